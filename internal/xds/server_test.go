package xds

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// byHeader lets anybody in who says which node it is.
type byHeader struct{ still func(context.Context) error }

func (b byHeader) Authenticate(ctx context.Context) (Client, func(context.Context) error, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get("node"); len(v) == 1 {
		return Client{Node: v[0], Workload: "ns/pod", Identity: "ns/sa"}, b.still, nil
	}
	return Client{}, nil, status.Error(codes.Unauthenticated, "say which node")
}

type counts struct {
	mu        sync.Mutex
	connected int
	sent      map[string]int
	delays    []time.Duration
	refused   int
}

func (c *counts) Connected(delta int) { c.mu.Lock(); c.connected += delta; c.mu.Unlock() }
func (c *counts) Sent(typeURL string, _, _ int) {
	c.mu.Lock()
	c.sent[typeURL]++
	c.mu.Unlock()
}
func (c *counts) Settled(_ string, delay time.Duration, refused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delay > 0 {
		c.delays = append(c.delays, delay)
	}
	if refused {
		c.refused++
	}
}

// fixture is a server on a pipe.
type fixture struct {
	*world
	server *Server
	counts *counts
	dial   func() discovery.AggregatedDiscoveryServiceClient
}

func serve(t *testing.T, mu *sync.Mutex, answerWithin time.Duration) *fixture {
	t.Helper()
	return serveTo(t, mu, answerWithin, byHeader{}, 0)
}

func serveTo(t *testing.T, mu *sync.Mutex, answerWithin time.Duration, clients Authenticator, proveEvery time.Duration) *fixture {
	t.Helper()
	return serveKinds(t, resourcekind.Mesh, mu, answerWithin, clients, proveEvery)
}

func serveKinds(t *testing.T, kinds *resourcelog.Kinds, mu *sync.Mutex, answerWithin time.Duration, clients Authenticator, proveEvery time.Duration) *fixture {
	t.Helper()
	f := &fixture{world: newWorld(t), counts: &counts{sent: map[string]int{}}}
	now := func() time.Time { mu.Lock(); defer mu.Unlock(); return f.now }
	f.log = resourcelog.New(now, kinds)
	f.server = NewServer(Options{Log: f.log, Epoch: "epoch", Authenticator: clients, Observer: f.counts,
		Logger: slog.New(slog.DiscardHandler), Now: now, AnswerWithin: answerWithin, ProveEvery: proveEvery})
	listener := bufconn.Listen(1 << 20)
	rpc := grpc.NewServer(grpc.ForceServerCodecV2(Codec()))
	discovery.RegisterAggregatedDiscoveryServiceServer(rpc, f.server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := rpc.Serve(listener); err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient("passthrough:///pipe", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	f.dial = func() discovery.AggregatedDiscoveryServiceClient {
		return discovery.NewAggregatedDiscoveryServiceClient(conn)
	}
	t.Cleanup(func() {
		f.server.Close()
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		rpc.Stop()
		<-done
	})
	return f
}

type deltaStream = grpc.BidiStreamingClient[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]

// open starts a stream as a node proxy does and reads both first responses.
func (f *fixture) open(t *testing.T) deltaStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "node", "n1"), 30*time.Second)
	t.Cleanup(cancel)
	s, err := f.dial().DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, typeURL := range []string{resourcekind.Address, resourcekind.Authorization} {
		mustSend(t, s, &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "ztunnel~1.2.3.4~a.b~b"}, TypeUrl: typeURL})
	}
	for _, typeURL := range []string{resourcekind.Authorization, resourcekind.Address} {
		r := mustReceive(t, s)
		if r.TypeUrl != typeURL {
			t.Fatalf("got %s first", r.TypeUrl)
		}
		mustSend(t, s, &discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: r.Nonce})
	}
	return s
}

func mustSend(t *testing.T, s deltaStream, r *discovery.DeltaDiscoveryRequest) {
	t.Helper()
	if err := s.Send(r); err != nil {
		t.Fatal(err)
	}
}

func mustReceive(t *testing.T, s deltaStream) *discovery.DeltaDiscoveryResponse {
	t.Helper()
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("%s: not within 20 s", what)
}

func TestServerPushesAChangeAndReportsWhoHasIt(t *testing.T) {
	var mu sync.Mutex
	f := serve(t, &mu, time.Minute)
	s := f.open(t)
	mu.Lock()
	f.now = f.now.Add(time.Second)
	mu.Unlock()
	f.apply(f.service("a", "10.0.0.1", 1))
	r := mustReceive(t, s)
	if !slices.Equal(resourceNames(r), []string{"a"}) {
		t.Fatalf("got %v", r)
	}
	if st := f.server.Clients()[0]; !st.Types[1].Outstanding || st.Node != "n1" || st.NodeID != "ztunnel~1.2.3.4~a.b~b" {
		t.Fatalf("clients: %+v", st)
	}
	mu.Lock()
	f.now = f.now.Add(7 * time.Millisecond)
	mu.Unlock()
	mustSend(t, s, &discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Address, ResponseNonce: r.Nonce})
	eventually(t, "the client is known to run generation 1", func() bool { return f.server.Clients()[0].Types[1].AckedGeneration == 1 })
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("the stream ended with %v", err)
	}
	eventually(t, "the client is gone", func() bool { return len(f.server.Clients()) == 0 })
	f.counts.mu.Lock()
	defer f.counts.mu.Unlock()
	if f.counts.connected != 0 || f.counts.sent[resourcekind.Address] != 2 {
		t.Errorf("counted %+v", f.counts)
	}
}

func TestServerRefusesAStreamWithoutProof(t *testing.T) {
	var mu sync.Mutex
	f := serve(t, &mu, time.Minute)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s, err := f.dial().DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("got %v, want Unauthenticated", err)
	}
}

func TestServerEndsAStreamWhoseClientIsNoMoreWhatItWas(t *testing.T) {
	var mu sync.Mutex
	var gone atomic.Bool
	var asked atomic.Int64
	f := serveTo(t, &mu, time.Minute, byHeader{still: func(context.Context) error {
		asked.Add(1)
		if gone.Load() {
			return status.Error(codes.PermissionDenied, "its pod is gone")
		}
		return nil
	}}, 10*time.Millisecond)
	s := f.open(t)
	eventually(t, "it is asked about again and again", func() bool { return asked.Load() > 3 })
	f.apply(f.service("a", "10.0.0.1", 1))
	mustReceive(t, s)
	gone.Store(true)
	if _, err := s.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v", err)
	}
}

func TestServerEndsAStreamThatLeavesAResponseUnanswered(t *testing.T) {
	var mu sync.Mutex
	f := serve(t, &mu, 50*time.Millisecond)
	s := f.open(t)
	f.apply(f.service("a", "10.0.0.1", 1))
	mustReceive(t, s)
	mu.Lock()
	f.now = f.now.Add(time.Second)
	mu.Unlock()
	if _, err := s.Recv(); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
}

func TestServerEndsStreamsWhenItCloses(t *testing.T) {
	var mu sync.Mutex
	f := serve(t, &mu, time.Minute)
	s := f.open(t)
	f.server.Close()
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want Unavailable, on which clients reconnect", err)
	}
}

func TestServerNamesTheVariantItServes(t *testing.T) {
	var mu sync.Mutex
	f := serve(t, &mu, time.Minute)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s, err := f.dial().StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v, want Unimplemented", err)
	}
}

// A client that answers what it has not read, by the nonces that it expects, is ended like any other that does not read.
func TestServerEndsAStreamThatAnswersUnread(t *testing.T) {
	var mu sync.Mutex
	f := serve(t, &mu, 200*time.Millisecond)
	s := f.open(t)
	f.apply(f.service("a", "10.0.0.1", 0))
	r := mustReceive(t, s)
	mustSend(t, s, &discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
	next, err := ParseNonce(r.Nonce)
	if err != nil {
		t.Fatal(err)
	}
	sent := func() int {
		f.counts.mu.Lock()
		defer f.counts.mu.Unlock()
		return f.counts.sent[resourcekind.Address]
	}
	follows := func(before int) bool {
		for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if sent() > before {
				return true
			}
		}
		return false
	}
	// Small responses, each soon after the answer to the one before, until none follows: more than a connection holds.
	for i := range 1000 {
		before := sent()
		f.apply(f.change(resourcekind.Address, "a", nil, nil, &workload.Address{Type: &workload.Address_Service{
			Service: &workload.Service{Name: "a", Hostname: fmt.Sprint(i, strings.Repeat("w", sendAtOnce/2))}}}))
		if !follows(before) {
			break
		}
		next.Generation, next.Chunk = next.Generation+1, next.Chunk+1
		mustSend(t, s, &discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Address, ResponseNonce: next.String()})
	}
	// Also if one followed late: then it is that which is left unanswered.
	eventually(t, "the stream is ended", func() bool {
		mu.Lock()
		f.now = f.now.Add(time.Second)
		mu.Unlock()
		return len(f.server.Clients()) == 0
	})
}

// BenchmarkFanOut measures what a change costs per connected client: reading the log, framing and the answer's handling,
// without the transport's own cost.
func BenchmarkFanOut(b *testing.B) {
	for _, clients := range []int{1, 100, 1000, 5000} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			w := newWorld(b)
			var base []resourcelog.Change
			for i := range 1000 {
				base = append(base, w.service(fmt.Sprintf("s%d", i), "10.0.0.1", 0))
			}
			w.apply(base...)
			sessions := make([]*Session, clients)
			answer := func(s *Session) {
				for r := s.Next(w.now); r != nil; r = s.Next(w.now) {
					r.Frame()
					if err := s.Handle(&discovery.DeltaDiscoveryRequest{TypeUrl: r.Type, ResponseNonce: r.Nonce.String()}, w.now); err != nil {
						b.Fatal(err)
					}
				}
			}
			for i := range sessions {
				s := NewSession(w.log, "e", DefaultLimits)
				sessions[i] = s
				for _, t := range w.log.Types() {
					if err := s.Handle(&discovery.DeltaDiscoveryRequest{TypeUrl: t}, w.now); err != nil {
						b.Fatal(err)
					}
				}
				answer(s)
			}
			serial := 0
			b.ReportAllocs()
			for b.Loop() {
				serial++
				w.apply(w.service("s1", "10.0.0.1", serial))
				for _, s := range sessions {
					answer(s)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(clients), "ns/client")
		})
	}
}

func TestServerEndsAStreamThatIsNotRead(t *testing.T) {
	var mu sync.Mutex // the clock stands still: no answer is ever late
	// Messages that are read are not late either.
	f := serve(t, &mu, 5*time.Second)
	f.open(t)
	eventually(t, "both answers are taken", func() bool {
		types := f.server.Clients()[0].Types
		return len(types) == 2 && !types[0].Outstanding && !types[1].Outstanding
	})
	var changes []resourcelog.Change
	for i := range 20000 { // more than a connection holds for somebody who does not read
		changes = append(changes, f.service(fmt.Sprint("service-", i), "10.0.0.1", i))
	}
	f.apply(changes...)
	eventually(t, "the services are on their way", func() bool {
		f.counts.mu.Lock()
		defer f.counts.mu.Unlock()
		return f.counts.sent[resourcekind.Address] == 2
	})
	f.apply(f.policy("p", 1))
	eventually(t, "the stream is ended", func() bool { return len(f.server.Clients()) == 0 })
}

func TestAPodOfAGatewayHasFewStreams(t *testing.T) {
	w := newWorld(t)
	s := NewServer(Options{Log: w.log, Epoch: "e", Authenticator: byHeader{}, Observer: &counts{sent: map[string]int{}}, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	enter := func(role resourcelog.Role, workload string) (*stream, error) {
		st := &stream{client: Client{Role: role, Workload: workload}, session: NewSession(s.opts.Log, "e", DefaultLimits)}
		return st, s.enter(st)
	}
	var first *stream
	for range waypointStreams {
		st, err := enter(resourcelog.RoleWaypoint, "shop/wp-1")
		if err != nil {
			t.Fatal(err)
		}
		first = st
	}
	if _, err := enter(resourcelog.RoleWaypoint, "shop/wp-1"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	for _, other := range []struct {
		role resourcelog.Role
		name string
	}{{resourcelog.RoleWaypoint, "shop/wp-2"}, {resourcelog.RoleNode, "shop/wp-1"}} {
		if _, err := enter(other.role, other.name); err != nil {
			t.Errorf("%s of %s: %v", other.name, other.role, err)
		}
	}
	s.leave(first)
	if _, err := enter(resourcelog.RoleWaypoint, "shop/wp-1"); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
