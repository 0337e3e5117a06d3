// Package xds owns the conversation with proxies: delta ADS, told from positions in the log.
// It does not know what resources mean. The declarations of the log's kinds give the order of the types, what a removal waits for, and who
// may have a resource.
//
// A response's nonce is "epoch.generation.chunk", followed by "+" while the client does not yet have every resource of the type that it
// follows: a large first answer comes in several responses. The first nonce of a type without the "+" therefore tells a client that it
// has the whole of that type, as of the nonce's generation, and may rely on what is not there; a client of another control plane, whose
// nonces bear no such mark, takes the first response for the whole. If nothing is left to be said after a "+", a response without
// content says so. After that first time "+" means the same of what has changed since. A policy's removal may still follow.
package xds

import (
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lateen.dev/lateen/internal/resourcelog"
)

// Limits bound what one response and one client may cost.
type Limits struct {
	// ResponseBytes is where a response ends and the next begins; a larger single resource still travels, alone.
	ResponseBytes int
	// PolicyBytes is the same, if it is more, for kinds whose resources must come together when they change together.
	PolicyBytes int
	// Names is how many names a client may have kept for it per type: those that it subscribes to, waits for, and holds or held before.
	Names int
	// Bytes is how many bytes the names and versions may have that a client sends and that are kept for it, of all types together; 0: any number.
	Bytes int
	// TypeGrace is how long a client that has asked for one of two types that wait for each other is given to ask for the other. A node
	// proxy asks for all of them at once, in any order.
	TypeGrace time.Duration
}

// DefaultLimits are the limits that the control plane uses.
var DefaultLimits = Limits{ResponseBytes: 2 << 20, PolicyBytes: 32 << 20, Names: 1 << 20, TypeGrace: 100 * time.Millisecond}

// Session is one client's conversation, without its transport: requests and times go in, responses come out. It is not safe for concurrent use.
//
// Per type at most one response is outstanding; whatever changes meanwhile becomes part of the next. A proxy skips a policy
// that it does not know, so an Address never arrives before an Authorization it may name,
// and an Authorization is removed only after every Address that may have named it was replaced. An Authorization that held for a
// namespace or the mesh and from now on holds for those that name it does both: Addresses name the broad one first, and only then the
// narrow one takes its place. A proxy evaluates what a workload names whatever its scope, so meanwhile the broad one holds as before.
//
// Policies that change together come in one response, together with the removals that nothing has to wait for, because a proxy puts a
// response in force as a whole. The compiler does the rest: a policy that is bound to other workloads than before has another name. So an
// edit of one policy, or of several that are all named or all broad, at no time lets in what both the old and the new version keep out.
// An apply that replaces both policies with selectors and policies without, for the same workloads, takes effect in two steps.
type Session struct {
	log    *resourcelog.Log
	limits Limits
	epoch  string
	node   *core.Node
	watch  map[string]*watch // by type URL
	order  []*watch          // the same in the order of their kinds
	chunk  uint64

	// Caller is the client's proven identity. Kinds with an audience ask for it.
	Caller resourcelog.Caller

	// Serves is the node whose proxy the client is, if it is one. What that needs to serve its node's pods it gets unasked.
	Serves string

	// Stride, if set, is how many numbers to leave out before the next response's: with it, nobody answers what he has not read.
	Stride func() uint64

	// Settled, if set, hears of every answer: what the client had taken before and has now, and its complaint if it has one.
	Settled func(typeURL string, before, through uint64, nack *Nack)
}

// NewSession starts a conversation. epoch names this life of the control plane and must not contain a dot.
func NewSession(l *resourcelog.Log, epoch string, limits Limits) *Session {
	return &Session{log: l, limits: limits, epoch: epoch, watch: map[string]*watch{}}
}

// Close lets go of the log.
func (s *Session) Close() {
	for _, w := range s.order {
		w.close()
	}
}

// Node is who the client said it is, by id and user agent, or nil before its first request. It is a claim, not a proof.
func (s *Session) Node() *core.Node { return s.node }

// Handle takes one request. An error ends the stream; it is a gRPC status.
func (s *Session) Handle(req *discovery.DeltaDiscoveryRequest, now time.Time) error {
	if req.GetNode() != nil && s.node == nil {
		// The rest of what it says of itself is of no use here, and there may be much of it.
		s.node = &core.Node{Id: clip(req.GetNode().GetId(), maxLabel), UserAgentName: clip(req.GetNode().GetUserAgentName(), maxLabel)}
	}
	typeURL := req.GetTypeUrl()
	kind := s.log.Kinds().Of(typeURL)
	if kind == nil {
		return status.Errorf(codes.InvalidArgument, "type %q is not served here; ask for one of %s", clip(typeURL, maxLabel), strings.Join(s.log.Types(), ", "))
	}
	if err := s.checkBytes(req); err != nil {
		return err
	}
	w := s.watch[typeURL]
	if w == nil {
		w = newWatch(s.log, kind, s.Caller, s.Serves, now)
		s.watch[typeURL] = w
		s.order = append(s.order, w)
		slices.SortFunc(s.order, func(a, b *watch) int { return a.kind.Compare(b.kind) })
		w.begin(req)
	} else {
		before := w.current
		if nack, settled := w.settle(req, now); settled && s.Settled != nil {
			s.Settled(typeURL, before.through, w.current.through, nack)
		}
		w.change(req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe(), true)
	}
	if n := w.size(); n > s.limits.Names {
		return status.Errorf(codes.ResourceExhausted, "%d names are subscribed or held, more than %d; subscribe to everything instead", n, s.limits.Names)
	}
	return nil
}

// checkBytes refuses a request whose names and versions are more than may be kept for the client.
func (s *Session) checkBytes(req *discovery.DeltaDiscoveryRequest) error {
	if s.limits.Bytes == 0 {
		return nil
	}
	size := 0
	for _, w := range s.order {
		size += w.bytes
	}
	for _, name := range req.GetResourceNamesSubscribe() {
		size += len(name)
	}
	for name, version := range req.GetInitialResourceVersions() {
		size += len(name) + len(version)
	}
	if size > s.limits.Bytes {
		return status.Errorf(codes.ResourceExhausted, "names and versions that are subscribed or held have %d bytes, more than %d; subscribe to everything instead", size, s.limits.Bytes)
	}
	return nil
}

// Next returns the next response that may be sent now, or nil. The caller sends it and asks again.
func (s *Session) Next(now time.Time) *Response {
	// Twice: when the kinds of a higher order have nothing to say, that alone may open the gate for a removal.
	for i := range 2 * len(s.order) {
		w := s.order[i%len(s.order)]
		if w.outstanding != nil {
			continue
		}
		resources, removals := s.gates(w, now)
		if !resources.open && !w.answered {
			continue
		}
		budget := s.limits.ResponseBytes
		if w.kind.Together {
			budget = max(budget, s.limits.PolicyBytes)
		}
		if r := w.next(resources, removals, budget, now); r != nil {
			s.chunk++
			if s.Stride != nil {
				s.chunk += s.Stride()
			}
			r.Nonce = Nonce{Epoch: s.epoch, Generation: w.outstanding.current.through, Chunk: s.chunk, More: w.more}
			w.outstanding.nonce = r.Nonce.String()
			w.lastNonce = w.outstanding.nonce
			return r
		}
	}
	return nil
}

// Wait says how long Next may have to be asked again although nothing happened; 0 means never.
func (s *Session) Wait(now time.Time) (wait time.Duration) {
	for _, w := range s.order {
		left := s.limits.TypeGrace - now.Sub(w.since)
		if left <= 0 || !s.partnerMissing(w) {
			continue
		}
		if left = max(left, time.Millisecond); wait == 0 || left < wait {
			wait = left
		}
	}
	return wait
}

// Oldest returns when the longest outstanding response was sent; ok is false if none is.
func (s *Session) Oldest() (at time.Time, ok bool) {
	for _, w := range s.watch {
		if w.outstanding != nil && (!ok || w.outstanding.at.Before(at)) {
			at, ok = w.outstanding.at, true
		}
	}
	return at, ok
}

// State is what can be told about one type of a client.
type State struct {
	Type     string `json:"type"`
	Wildcard bool   `json:"wildcard"`
	Names    int    `json:"names,omitempty"`
	// Only is the name that the client asked for, if it asked for one of a kind with an audience: a proxy of a Gateway follows that Gateway.
	Only            string    `json:"only,omitempty"`
	SentGeneration  uint64    `json:"sentGeneration"`
	AckedGeneration uint64    `json:"ackedGeneration"`
	Nonce           string    `json:"nonce,omitempty"` // the last one sent
	Outstanding     bool      `json:"outstanding"`
	SentAt          time.Time `json:"sentAt,omitzero"`
	LastNack        *Nack     `json:"lastNack,omitempty"` // what it complained about last, be that over or not
	Refused         []Nack    `json:"refused,omitempty"`  // what it complained about and has not taken since
}

// States reports on all watched types, in the order of their kinds.
func (s *Session) States() []State {
	out := make([]State, 0, len(s.order))
	for _, w := range s.order {
		out = append(out, w.state())
	}
	return out
}
