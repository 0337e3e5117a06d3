package control

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/gen/auth"
	"lateen.dev/lateen/internal/resourcekind"
	rpcmetrics "lateen.dev/lateen/internal/status"
)

func TestTheOldestConnectionOfAnAddressThatHasTooManyIsClosed(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limit(inner, 8, 2, nil)
	defer l.Close()
	accepted := make(chan net.Conn, 8)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		<-accepted
		return conn
	}
	first, second := dial(), dial()
	dial()
	_ = first.SetReadDeadline(time.Now().Add(15 * time.Second))
	if _, err := first.Read(make([]byte, 1)); err == nil || !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the first of three connections got %v, want its end", err)
	}
	l.vouch(second.LocalAddr().String())
	l.mu.Lock()
	if l.sum != 2 || l.by["127.0.0.1"].open != 2 || l.by["127.0.0.1"].strangers.Len() != 1 {
		t.Errorf("%d open in all, %d strangers", l.sum, l.by["127.0.0.1"].strangers.Len())
	}
	l.mu.Unlock()
}

func TestOnlyThoseThatTheMeshNeedsAreVouchedFor(t *testing.T) {
	verifier := tokens{"node": {Namespace: "lateen-system", ServiceAccount: "lateen-node"}, "pod": {Namespace: "shop", ServiceAccount: "web"}}
	var vouched []string
	d := newDoor(verifier, func(string, string) error { return nil }, map[string]bool{"lateen-system/lateen-node": true}, func(peer string) { vouched = append(vouched, peer) },
		rpcmetrics.NewMetrics("test", func() time.Time { return time.Time{} }), slog.New(slog.DiscardHandler))
	for i, token := range []string{"node", "pod", "nobody"} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(i)), Port: 7}})
		_, err := d.handle(ctx, &tap.Info{FullMethodName: "/x", Header: metadata.Pairs("authorization", "Bearer "+token)})
		if (err != nil) != (token == "nobody") {
			t.Errorf("%s: %v", token, err)
		}
	}
	if len(vouched) != 1 || vouched[0] != "10.0.0.0:7" {
		t.Errorf("vouched for %v", vouched)
	}
}

// A connection that only holds its place ends, and one with a stream stays.
func TestAConnectionOnWhichNobodyCallsEnds(t *testing.T) {
	p := runWith(t, t.TempDir(), func(o *Options) { o.idle = time.Second })
	silent, _ := p.connect()
	busy, ctx := p.connect()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(busy).DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Address}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	silent.Connect()
	for state := silent.GetState(); state != connectivity.Ready; state = silent.GetState() {
		if !silent.WaitForStateChange(ctx, state) {
			t.Fatal("it never connects")
		}
	}
	if !silent.WaitForStateChange(ctx, connectivity.Ready) {
		t.Error("a connection without a call stays for ever")
	}
	p.control.listen.grpc.mu.Lock()
	known := 0
	for _, c := range p.control.listen.grpc.peers {
		if c.place == nil {
			known++
		}
	}
	p.control.listen.grpc.mu.Unlock()
	if known != 1 {
		t.Errorf("%d connections are a node proxy's, want 1", known)
	}
	if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Authorization}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Errorf("a stream ended with %v", err)
	}
}

func TestHeadersOfUnknownCallersAreLimited(t *testing.T) {
	p := run(t, t.TempDir())
	conn, _ := p.connect()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+p.token(), "padding", strings.Repeat("x", maxHeaders))
	_, err := auth.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &auth.IstioCertificateRequest{}, grpc.WaitForReady(true))
	if code := status.Code(err); code == codes.OK || code == codes.InvalidArgument {
		t.Errorf("a request with %d bytes of headers reached the service: %v", maxHeaders, err)
	}
}

func TestWhoIsTurnedAwayCannotFillTheLog(t *testing.T) {
	var out strings.Builder
	d := newDoor(nil, nil, nil, nil, nil, slog.New(slog.NewTextHandler(&out, nil)))
	now := time.Unix(0, 0)
	d.now = func() time.Time { return now }
	for range 1000 {
		d.tell(&d.strangers, &tap.Info{FullMethodName: "/" + strings.Repeat("x", 1<<20)}, "10.0.0.1:1", ca.Caller{}, "no token")
	}
	if out.Len() > 1000 || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("a thousand callers wrote %d bytes", out.Len())
	}
	now = now.Add(2 * tellEvery)
	d.tell(&d.strangers, &tap.Info{FullMethodName: auth.IstioCertificateService_CreateCertificate_FullMethodName}, "10.0.0.1:1", ca.Caller{}, "no token")
	if !strings.Contains(out.String(), "others=999") || !strings.Contains(out.String(), "CreateCertificate") {
		t.Errorf("the next line does not tell how many were left out: %s", out.String())
	}
}
