package xds

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"lateen.dev/lateen/internal/resourcelog"
)

// Client is a proxy that proved who it is.
type Client struct {
	Node     string `json:"node"`     // the node it runs on
	Workload string `json:"workload"` // "namespace/pod"
	Identity string `json:"identity"` // "namespace/serviceaccount"
	// Role is what the proxy is for.
	Role resourcelog.Role `json:"role,omitempty"`
}

// Authenticator proves from a stream's metadata who opened it. Its errors are gRPC statuses.
type Authenticator interface {
	// Authenticate proves it once. still, if it is not nil, says later why the client may not have the stream any longer.
	Authenticate(ctx context.Context) (client Client, still func(context.Context) error, err error)
}

// Observer hears what happens on all streams. Its methods are called from many goroutines.
type Observer interface {
	Connected(delta int)
	Sent(typeURL string, bytes int, resources int)
	// Settled hears of every answer; delay is the time from the oldest change it covers to the answer, or 0 if there was none.
	Settled(typeURL string, delay time.Duration, refused bool)
}

// Options configure a server; the zero values of Limits and AnswerWithin mean the defaults.
type Options struct {
	Log           *resourcelog.Log
	Epoch         string
	Authenticator Authenticator
	Observer      Observer
	Logger        *slog.Logger
	Now           func() time.Time
	Limits        Limits
	// AnswerWithin is how long a client may leave a response unanswered, or even unread, before its stream is ended.
	AnswerWithin time.Duration
	// ProveEvery is how often it is looked whether the client of an open stream may still have it.
	ProveEvery time.Duration
}

// Server serves the delta variant of aggregated discovery.
type Server struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	opts Options

	mu      sync.Mutex
	streams map[*stream]struct{}
	closed  chan struct{}
}

// stream is one connected client. Its session is the stream goroutine's; mu guards it against those who look in.
type stream struct {
	client    Client
	still     func(context.Context) error
	address   string
	connected time.Time
	mu        sync.Mutex
	session   *Session
}

// NewServer returns a server; register it with discovery.RegisterAggregatedDiscoveryServiceServer on a gRPC server that uses Codec.
func NewServer(opts Options) *Server {
	if opts.Limits == (Limits{}) {
		opts.Limits = DefaultLimits
	}
	if opts.AnswerWithin == 0 {
		opts.AnswerWithin = 2 * time.Minute
	}
	if opts.ProveEvery == 0 {
		opts.ProveEvery = 5 * time.Minute
	}
	return &Server{opts: opts, streams: map[*stream]struct{}{}, closed: make(chan struct{})}
}

// StreamAggregatedResources refuses the state-of-the-world variant by name, so that nobody has to guess.
func (s *Server) StreamAggregatedResources(grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]) error {
	return status.Error(codes.Unimplemented, "only DeltaAggregatedResources is served; configure the client for delta xDS")
}

// DeltaAggregatedResources implements the discovery service.
func (s *Server) DeltaAggregatedResources(rpc grpc.BidiStreamingServer[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]) error {
	client, still, err := s.opts.Authenticator.Authenticate(rpc.Context())
	if err != nil {
		return err
	}
	limits := s.opts.Limits
	if client.Role == resourcelog.RoleWaypoint {
		limits.Bytes = s.waypointBytes()
	}
	st := &stream{client: client, still: still, connected: s.opts.Now(), session: NewSession(s.opts.Log, s.opts.Epoch, limits)}
	st.session.Caller = resourcelog.Caller(client)
	if client.Role != resourcelog.RoleWaypoint {
		st.session.Serves = client.Node
	}
	st.session.Stride = stride
	if p, ok := peer.FromContext(rpc.Context()); ok {
		st.address = p.Addr.String()
	}
	logger := s.opts.Logger.With("node", client.Node, "workload", client.Workload, "address", st.address)
	st.session.Settled = func(typeURL string, before, through uint64, nack *Nack) {
		if nack != nil {
			logger.Warn("xds: client refused resources", "type", typeURL, "nonce", nack.Nonce, "names", nack.listed(), "others", nack.Others, "error", nack.Message)
		}
		var delay time.Duration
		if at, ok := s.opts.Log.FirstAfter(typeURL, before); ok && through > before && before > 0 {
			delay = s.opts.Now().Sub(at)
		}
		s.opts.Observer.Settled(typeURL, delay, nack != nil)
	}
	if err := s.enter(st); err != nil {
		st.session.Close()
		return err
	}
	logger.Info("xds: client connected")
	err = s.converse(rpc, st)
	s.leave(st)
	logger.Info("xds: client gone", "error", err)
	return err
}

// converse alternates between what the client says and what the log says until the stream ends.
func (s *Server) converse(rpc grpc.BidiStreamingServer[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse], st *stream) error {
	ctx := rpc.Context()
	requests := make(chan *discovery.DeltaDiscoveryRequest)
	ended := make(chan error, 1)
	go func() {
		for {
			req, err := rpc.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case requests <- req:
			case <-ctx.Done(): // the handler is gone; Recv will fail next
			}
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	// Not in step with others: they may all have come at once.
	prove := time.NewTicker(s.opts.ProveEvery*3/4 + rand.N(s.opts.ProveEvery/2+1))
	defer prove.Stop()
	unproven := make(chan error, 1)
	var proving bool
	for {
		// Taken before reading: a change after this line wakes the select below.
		changed := s.opts.Log.Changed()
		wait, err := s.speak(rpc, st)
		if err != nil {
			return err
		}
		timer.Reset(wait)
		select {
		case req := <-requests:
			if err := st.handle(req, s.opts.Now()); err != nil {
				return err
			}
		case <-changed:
		case <-timer.C:
		case <-prove.C:
			// It may take a while, and the stream must not wait for it.
			if !proving && st.still != nil {
				proving = true
				go func() { unproven <- st.still(ctx) }()
			}
		case err := <-unproven:
			if proving = false; err != nil {
				return err
			}
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-s.closed:
			return status.Error(codes.Unavailable, "the control plane is shutting down; reconnect")
		}
	}
}

func (st *stream) handle(req *discovery.DeltaDiscoveryRequest, now time.Time) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.session.Handle(req, now)
}

// speak sends all that may be sent now and says when to look again at the latest.
func (s *Server) speak(rpc grpc.ServerStream, st *stream) (time.Duration, error) {
	for {
		now := s.opts.Now()
		st.mu.Lock()
		_, earlier := st.session.Oldest()
		response := st.session.Next(now)
		wait := st.session.Wait(now)
		oldest, waiting := st.session.Oldest()
		st.mu.Unlock()
		if response != nil {
			// Where everything sent before was answered, it has left the transport's buffer, and a small message finds room there: an
			// answer needs a nonce that cannot be foreseen and comes last.
			send := s.send
			if !earlier && response.length() <= sendAtOnce {
				send = func(rpc grpc.ServerStream, response *Response) error { return rpc.SendMsg(response) }
			}
			if err := send(rpc, response); err != nil {
				return 0, err
			}
			s.opts.Observer.Sent(response.Type, response.size(), len(response.Resources))
			continue
		}
		if waiting {
			left := s.opts.AnswerWithin - now.Sub(oldest)
			if left <= 0 {
				return 0, status.Errorf(codes.DeadlineExceeded, "no answer to a response within %s; reconnect", s.opts.AnswerWithin)
			}
			if wait == 0 || left < wait {
				wait = left
			}
		}
		if wait == 0 {
			wait = time.Hour
		}
		return wait, nil
	}
}

// stride is a number of 40 bits that nobody can foresee.
func stride() uint64 {
	var random [8]byte
	cryptorand.Read(random[3:]) //nolint:errcheck // it never fails
	return binary.BigEndian.Uint64(random[:])
}

// sendAtOnce is the largest message, in bytes, that is handed to the transport without anybody watching over it: half of what the
// transport takes for a stream before it makes the sender wait.
const sendAtOnce = 32 << 10

// send gives up on a client that does not read. The send itself then ends with the stream, which ends when its handler returns.
func (s *Server) send(rpc grpc.ServerStream, response *Response) error {
	sent := make(chan error, 1)
	go func() { sent <- rpc.SendMsg(response) }()
	timer := time.NewTimer(s.opts.AnswerWithin)
	defer timer.Stop()
	select {
	case err := <-sent:
		return err
	case <-timer.C:
		return status.Errorf(codes.DeadlineExceeded, "a response was not read within %s; reconnect", s.opts.AnswerWithin)
	case <-s.closed:
		return status.Error(codes.Unavailable, "the control plane is shutting down; reconnect")
	}
}

// Anybody may have proxies follow the configuration who may create a Gateway. So a pod of a Gateway may have waypointStreams streams at once, and
// each of them keeps leastWaypointBytes of names for it, or as many as the mesh's resources need.
const (
	waypointStreams    = 4
	leastWaypointBytes = 32 << 20
	bytesOfAName       = 512
)

// waypointBytes is how much is kept of the names and versions that a waypoint sends: it lists all resources that it has when it comes again.
func (s *Server) waypointBytes() int {
	resources := 0
	for _, typeURL := range s.opts.Log.Types() {
		resources += s.opts.Log.Len(typeURL)
	}
	return max(leastWaypointBytes, bytesOfAName*resources)
}

// enter takes a stream in, unless its pod has too many.
func (s *Server) enter(st *stream) error {
	s.mu.Lock()
	open := 0
	if st.client.Role == resourcelog.RoleWaypoint {
		for other := range s.streams {
			if other.client.Role == resourcelog.RoleWaypoint && other.client.Workload == st.client.Workload {
				open++
			}
		}
	}
	few := open < waypointStreams
	if few {
		s.streams[st] = struct{}{}
	}
	s.mu.Unlock()
	if !few {
		return status.Errorf(codes.ResourceExhausted, "pod %s has %d streams already; use one of them", st.client.Workload, open)
	}
	s.opts.Observer.Connected(1)
	return nil
}

func (s *Server) leave(st *stream) {
	st.mu.Lock()
	st.session.Close()
	st.mu.Unlock()
	s.mu.Lock()
	delete(s.streams, st)
	s.mu.Unlock()
	s.opts.Observer.Connected(-1)
}

// Close ends all streams. The server takes no new ones to an end: stop the gRPC server as well.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
}

// Closed is closed by Close.
func (s *Server) Closed() <-chan struct{} { return s.closed }
