// Package xds owns the conversation with proxies: delta ADS, told from positions in the log.
// It does not know what resources mean, with one exception that the protocol forces on it: the order of the two types.
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
	// PolicyBytes is the same for policies, if it is more: several that change together must come together.
	PolicyBytes int
	// Names is how many names a client may have kept for it per type: those that it subscribes to, waits for, and holds or held before.
	Names int
	// TypeGrace is how long a client that has asked for one type is given to ask for the other, too: a node proxy asks for both at once,
	// in either order, and the types wait for each other.
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
	watch  map[string]*watch
	chunk  uint64

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
	for _, w := range s.watch {
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
	if !s.log.Serves(typeURL) {
		return status.Errorf(codes.InvalidArgument, "type %q is not served here; ask for one of %s", clip(typeURL, maxLabel), strings.Join(s.log.Types(), ", "))
	}
	w := s.watch[typeURL]
	if w == nil {
		w = newWatch(s.log, typeURL, s.Serves, now)
		s.watch[typeURL] = w
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

// Next returns the next response that may be sent now, or nil. The caller sends it and asks again.
func (s *Session) Next(now time.Time) *Response {
	// Twice: when Addresses have nothing to say, that alone may open the gate for a policy's removal.
	for _, typeURL := range slices.Concat(s.order(), s.order()) {
		w := s.watch[typeURL]
		if w.outstanding != nil {
			continue
		}
		resources, removals := s.gates(w, now)
		if !resources.open && !w.answered {
			continue
		}
		budget := s.limits.ResponseBytes
		if typeURL == resourcelog.AuthorizationType {
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
func (s *Session) Wait(now time.Time) time.Duration {
	if len(s.watch) != 1 {
		return 0
	}
	for _, w := range s.watch {
		if left := s.limits.TypeGrace - now.Sub(w.since); left > 0 {
			return max(left, time.Millisecond)
		}
	}
	return 0
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

// order lists the watched types, policies first.
func (s *Session) order() []string {
	types := make([]string, 0, len(s.watch))
	for t := range s.watch {
		types = append(types, t)
	}
	slices.SortFunc(types, func(a, b string) int { return strings.Compare(rank(a), rank(b)) })
	return types
}

func rank(typeURL string) string {
	if typeURL == resourcelog.AuthorizationType {
		return ""
	}
	return typeURL
}

// gates says through which generation a type's resources and removals may be sent now.
func (s *Session) gates(w *watch, now time.Time) (resources, removals gate) {
	switch w.typeURL {
	case resourcelog.AddressType:
		switch policies := s.watch[resourcelog.AuthorizationType]; {
		case policies != nil:
			return policies.settled, policies.settled
		case !w.answered && now.Sub(w.since) < s.limits.TypeGrace:
			return gate{}, gate{}
		}
	case resourcelog.AuthorizationType:
		switch addresses := s.watch[resourcelog.AddressType]; {
		case addresses != nil:
			// Where no Address has to change first, a removal comes with what else changes among policies, not after it.
			if addresses.answered && addresses.outstanding == nil && addresses.lookups.len()+len(addresses.departed) == 0 {
				if generation, ok := addresses.upToDate(); ok {
					return openGate, gate{open: true, through: generation}
				}
			}
			return openGate, addresses.settled
		case now.Sub(w.since) < s.limits.TypeGrace:
			return openGate, gate{} // Addresses that it kept may name policies that it must not lose yet
		}
	}
	return openGate, openGate
}

// State is what can be told about one type of a client.
type State struct {
	Type            string    `json:"type"`
	Wildcard        bool      `json:"wildcard"`
	Names           int       `json:"names,omitempty"`
	SentGeneration  uint64    `json:"sentGeneration"`
	AckedGeneration uint64    `json:"ackedGeneration"`
	Nonce           string    `json:"nonce,omitempty"` // the last one sent
	Outstanding     bool      `json:"outstanding"`
	SentAt          time.Time `json:"sentAt,omitzero"`
	LastNack        *Nack     `json:"lastNack,omitempty"` // what it complained about last, be that over or not
	Refused         []Nack    `json:"refused,omitempty"`  // what it complained about and has not taken since
}

// States reports on all watched types, sorted by type.
func (s *Session) States() []State {
	out := make([]State, 0, len(s.watch))
	for _, t := range s.order() {
		out = append(out, s.watch[t].state())
	}
	return out
}
