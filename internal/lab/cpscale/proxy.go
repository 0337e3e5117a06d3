package cpscale

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/resourcekind"
)

const discoveryPath = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"

const (
	// window is how much the control plane may send before a proxy says that it has read it; half of it is given back at a time.
	window = 1 << 30
	// handshakeTime bounds how long a connection may take until its stream is open.
	handshakeTime = time.Minute
)

// proxy is a node proxy that takes configuration, acknowledges it, and does nothing with it. It is one connection and one goroutine.
type proxy struct {
	index int
	conn  net.Conn
	frame *http2.Framer
	hpack *hpack.Decoder
	read  reader
	// owed is what was read and not yet given back to the window.
	owed uint32
	// whole counts the types of which it has everything.
	whole    map[string]bool
	synced   bool
	received atomic.Int64 // bytes of messages, as they are on the wire within TLS
	answers  atomic.Int64
	fleet    *fleet
}

// dial opens the connection and its stream, and asks for everything.
func (p *proxy) dial(ctx context.Context, address, token string, config *tls.Config) error {
	// The control plane limits connections by address, so a few proxies each share one.
	local := &net.TCPAddr{IP: net.IPv4(127, 77, byte(p.index/proxiesPerAddress>>8), byte(1+p.index/proxiesPerAddress&127))}
	raw, err := (&net.Dialer{LocalAddr: local, Timeout: handshakeTime}).DialContext(ctx, "tcp4", address)
	if err != nil {
		return fmt.Errorf("connect proxy %d: %w", p.index+1, err)
	}
	conn := tls.Client(raw, config)
	p.conn = conn
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return err
	}
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("connect proxy %d: %w", p.index+1, err)
	}
	var hello bytes.Buffer
	hello.WriteString(http2.ClientPreface)
	first := http2.NewFramer(&hello, nil)
	headers, err := p.headers(token)
	if err != nil {
		return err
	}
	var asks []byte
	node := &core.Node{Id: fmt.Sprintf("ztunnel~127.0.0.1~ztunnel-%s.istio-system~istio-system.svc.cluster.local", nodeName(p.index))}
	for _, typeURL := range []string{resourcekind.Address, resourcekind.Authorization} {
		text, err := proto.Marshal(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, Node: node})
		if err != nil {
			return err
		}
		asks = append(asks, framed(text)...)
	}
	if err := errors.Join(
		first.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}),
		first.WriteWindowUpdate(0, window),
		first.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers, EndHeaders: true}),
		first.WriteData(1, false, asks),
	); err != nil {
		return err
	}
	if _, err := conn.Write(hello.Bytes()); err != nil {
		return fmt.Errorf("connect proxy %d: %w", p.index+1, err)
	}
	p.frame = http2.NewFramer(conn, conn)
	p.frame.SetReuseFrames()
	p.hpack = hpack.NewDecoder(4096, nil)
	p.whole = map[string]bool{}
	return conn.SetDeadline(time.Time{})
}

func (p *proxy) headers(token string) ([]byte, error) {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":path", discoveryPath}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"authorization", "Bearer " + token}, {"clusterid", "Kubernetes"},
	} {
		if err := e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: h[0] == "authorization"}); err != nil {
			return nil, err
		}
	}
	return block.Bytes(), nil
}

// framed puts gRPC's five bytes before a message.
func framed(message []byte) []byte {
	out := make([]byte, prefix, prefix+len(message))
	binary.BigEndian.PutUint32(out[1:], uint32(len(message)))
	return append(out, message...)
}

// serve reads until the connection ends, and says why it did.
func (p *proxy) serve() error {
	for {
		f, err := p.frame.ReadFrame()
		if err != nil {
			return err
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			p.received.Add(int64(len(f.Data())))
			if err := p.read.feed(f.Data(), p.answer); err != nil {
				return err
			}
			if err := p.giveBack(f.Header().Length); err != nil {
				return err
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = p.frame.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = p.frame.WritePing(true, f.Data)
			}
		case *http2.HeadersFrame:
			err = p.status(f)
		case *http2.RSTStreamFrame:
			err = fmt.Errorf("the control plane reset the stream: %s", f.ErrCode)
		case *http2.GoAwayFrame:
			err = fmt.Errorf("the control plane ends the connection: %s %s", f.ErrCode, f.DebugData())
		}
		if err != nil {
			return err
		}
	}
}

// status looks for the end of the stream in headers and trailers.
func (p *proxy) status(f *http2.HeadersFrame) error {
	fields, err := p.hpack.DecodeFull(f.HeaderBlockFragment())
	if err != nil {
		return err
	}
	var said []string
	for _, h := range fields {
		if strings.HasPrefix(h.Name, "grpc-") || h.Name == ":status" && h.Value != "200" {
			said = append(said, h.Name+": "+h.Value)
		}
	}
	if f.StreamEnded() {
		return fmt.Errorf("the control plane ended the stream: %s", strings.Join(said, ", "))
	}
	return nil
}

func (p *proxy) giveBack(n uint32) error {
	if p.owed += n; p.owed < window/2 {
		return nil
	}
	err := errors.Join(p.frame.WriteWindowUpdate(0, p.owed), p.frame.WriteWindowUpdate(1, p.owed))
	p.owed = 0
	return err
}

// answer acknowledges a response. At most one of each type is under way, and an answer is some hundred bytes: the control plane's
// window, 64 KiB at least, need not be watched.
func (p *proxy) answer(r response) error {
	ack, err := proto.Marshal(&discovery.DeltaDiscoveryRequest{TypeUrl: r.typeURL, ResponseNonce: r.nonce})
	if err != nil {
		return err
	}
	if err := p.frame.WriteData(1, false, framed(ack)); err != nil {
		return err
	}
	p.answers.Add(1)
	at := time.Now()
	if !p.synced {
		// A nonce ends in "+" while more of its type follows.
		if p.whole[r.typeURL] = p.whole[r.typeURL] || !strings.HasSuffix(r.nonce, "+"); len(p.whole) == 2 && p.whole[resourcekind.Address] && p.whole[resourcekind.Authorization] {
			p.synced, p.whole = true, nil
			p.fleet.whole(at)
		}
		return nil
	}
	for _, name := range r.resources {
		p.fleet.acknowledged(p.index, name, at)
	}
	return nil
}
