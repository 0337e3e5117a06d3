package xds

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
)

// ticketType is a kind that no part of the mesh knows. A ticket's aliases are the identities that may have it.
const ticketType = "type.googleapis.com/google.protobuf.StringValue"

func ticketKind(order int, removedAfter ...string) resourcelog.Kind {
	return resourcelog.Kind{TypeURL: ticketType, Order: order, RemovedAfter: removedAfter,
		Audience: func(c resourcelog.Caller, r *resourcelog.Resource) bool {
			return slices.Contains(r.Aliases, c.Identity)
		}}
}

// withTickets is the mesh's registry with one more kind.
func withTickets(ticket resourcelog.Kind) *resourcelog.Kinds {
	kinds := []resourcelog.Kind{ticket}
	for _, k := range resourcekind.Mesh.All() {
		kinds = append(kinds, *k)
	}
	return resourcelog.NewKinds(kinds...)
}

func (w *world) ticket(name string, serial int, identities ...string) resourcelog.Change {
	return w.change(ticketType, name, identities, nil, wrapperspb.String(fmt.Sprint(serial)))
}

// byIdentity lets a client in as the service account that it says it is.
type byIdentity struct{}

func (byIdentity) Authenticate(ctx context.Context) (Client, func(context.Context) error, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	return Client{Node: "n1", Workload: "shop/pod", Identity: md.Get("identity")[0]}, nil, nil
}

// outstandingTypes lists the types that have a response without an answer.
func (f *fixture) outstandingTypes() (types []string) {
	for _, c := range f.server.Clients() {
		for _, st := range c.Types {
			if st.Outstanding {
				types = append(types, st.Type)
			}
		}
	}
	return types
}

func TestAMadeUpKindTravelsInItsOrderToItsAudience(t *testing.T) {
	cases := map[string]struct {
		kind  resourcelog.Kind
		order []string
	}{
		"before Addresses": {ticketKind(150, resourcekind.Address), []string{resourcekind.Authorization, ticketType, resourcekind.Address}},
		"after Addresses":  {ticketKind(300), []string{resourcekind.Authorization, resourcekind.Address, ticketType}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			f := serveKinds(t, withTickets(c.kind), &mu, time.Minute, byIdentity{}, 0)
			ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "identity", "shop/web"), 30*time.Second)
			defer cancel()
			s, err := f.dial().DeltaAggregatedResources(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, typeURL := range c.order {
				mustSend(t, s, &discovery.DeltaDiscoveryRequest{TypeUrl: typeURL})
			}
			// next takes a response, sees that nothing else was sent before its answer, and answers.
			next := func(typeURL string, resources, removed []string) {
				t.Helper()
				r := mustReceive(t, s)
				time.Sleep(5 * time.Millisecond)
				if r.TypeUrl != typeURL || !slices.Equal(resourceNames(r), resources) || !slices.Equal(r.RemovedResources, removed) {
					t.Fatalf("got %s with %v, without %v; want %s with %v, without %v", r.TypeUrl, resourceNames(r), r.RemovedResources, typeURL, resources, removed)
				}
				if got := f.outstandingTypes(); !slices.Equal(got, []string{typeURL}) {
					t.Fatalf("without an answer are %v, want %s alone", got, typeURL)
				}
				mustSend(t, s, &discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: r.Nonce})
			}
			for _, typeURL := range c.order {
				next(typeURL, nil, nil)
			}
			f.apply(f.service("s", "10.0.0.1", 1), f.policy("p", 1), f.ticket("own", 1, "shop/web"), f.ticket("foreign", 1, "shop/db"))
			names := map[string][]string{resourcekind.Address: {"s"}, resourcekind.Authorization: {"p"}, ticketType: {"own"}}
			for _, typeURL := range c.order {
				next(typeURL, names[typeURL], nil)
			}
			// A change of a withheld resource is not heard of: the next response is about the Address.
			f.apply(f.ticket("foreign", 2, "shop/db"))
			f.apply(f.service("s", "10.0.0.1", 2))
			next(resourcekind.Address, []string{"s"}, nil)
			// A removal goes after the acknowledgement of what may name the resource, and the withheld one is not named.
			f.apply(f.service("s", "10.0.0.1", 3), gone(ticketType, "own"), gone(ticketType, "foreign"))
			next(resourcekind.Address, []string{"s"}, nil)
			next(ticketType, nil, []string{"own"})
		})
	}
}

func TestAClientThatDoesNotAskForAKindWaitsForNone(t *testing.T) {
	w := newWorld(t)
	w.log = resourcelog.New(func() time.Time { return w.now }, withTickets(ticketKind(150)))
	c := w.connect(DefaultLimits)
	defer c.session.Close()
	w.apply(w.service("s", "10.0.0.1", 1), w.ticket("own", 1, "shop/web"))
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	if wait := c.session.Wait(w.now); wait != 0 {
		t.Errorf("the session waits %s", wait)
	}
	if got := len(c.settle()); got != 2 {
		t.Errorf("%d responses, want one of each type", got)
	}
	c.checkPolicies()
}

// holder is a client of tickets that answers everything at once.
type holder struct {
	w       *world
	session *Session
	has     map[string]string // name → version
	heard   map[string]bool   // every name that a response has told of
}

func (w *world) holder(identity string, kept map[string]string, names ...string) *holder {
	h := &holder{w: w, session: NewSession(w.log, "e", Limits{ResponseBytes: 100, PolicyBytes: 100, Names: 1 << 20, TypeGrace: time.Millisecond}),
		has: maps.Clone(kept), heard: map[string]bool{}}
	if h.has == nil {
		h.has = map[string]string{}
	}
	h.session.Caller.Identity = identity
	h.send(&discovery.DeltaDiscoveryRequest{TypeUrl: ticketType, ResourceNamesSubscribe: names, InitialResourceVersions: kept})
	return h
}

func (h *holder) send(req *discovery.DeltaDiscoveryRequest) {
	h.w.t.Helper()
	if err := h.session.Handle(req, h.w.now); err != nil {
		h.w.t.Fatal(err)
	}
}

func (h *holder) settle() *holder {
	h.w.t.Helper()
	for r := h.session.Next(h.w.now); r != nil; r = h.session.Next(h.w.now) {
		for _, res := range r.Resources {
			h.has[res.Name] = res.Version
			h.heard[res.Name] = true
		}
		for _, name := range r.Removed {
			delete(h.has, name)
			h.heard[name] = true
		}
		h.send(&discovery.DeltaDiscoveryRequest{TypeUrl: ticketType, ResponseNonce: r.Nonce.String()})
	}
	return h
}

// check compares what the client has with what it may have of the names that it asked for; none means all.
func (h *holder) check(names ...string) {
	h.w.t.Helper()
	want := map[string]string{}
	for _, r := range h.w.log.Live(ticketType) {
		if slices.Contains(r.Aliases, h.session.Caller.Identity) && (len(names) == 0 || slices.Contains(names, r.Name)) {
			want[r.Name] = r.Version
		}
	}
	if !maps.Equal(h.has, want) {
		h.w.t.Errorf("%s has %v, want %v", h.session.Caller.Identity, h.has, want)
	}
}

func ticketWorld(t *testing.T, kind resourcelog.Kind) *world {
	w := newWorld(t)
	w.log = resourcelog.New(func() time.Time { return w.now }, resourcelog.NewKinds(kind))
	return w
}

func TestAWithheldResourceLooksLikeOneThatDoesNotExist(t *testing.T) {
	w := ticketWorld(t, ticketKind(1))
	w.apply(w.ticket("own", 1, "a"), w.ticket("foreign", 1, "b"))
	h := w.holder("a", nil, "own", "foreign", "nothing").settle()
	h.check()
	if heard := slices.Sorted(maps.Keys(h.heard)); !slices.Equal(heard, []string{"foreign", "nothing", "own"}) {
		t.Errorf("the client heard of %v", heard)
	}
}

func TestAResourceThatMovesToAnotherAudienceIsRemoved(t *testing.T) {
	w := ticketWorld(t, ticketKind(1))
	w.apply(w.ticket("x", 1, "a"))
	a, b := w.holder("a", nil).settle(), w.holder("b", nil).settle()
	w.apply(w.ticket("x", 2, "b"))
	a.settle().check()
	b.settle().check()
	w.apply(gone(ticketType, "x"))
	a.settle().check()
	b.settle().check()
	// What a client kept over a reconnect and may not have any more goes, too.
	w.apply(w.ticket("y", 1, "b"))
	w.holder("a", map[string]string{"y": w.log.Get(ticketType, "y").Version}).settle().check()
}

// TestAClientHearsOfItsAudienceOnly makes random changes and holds every client to what it may have, and to hear of nothing else.
func TestAClientHearsOfItsAudienceOnly(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 9))
		w := ticketWorld(t, ticketKind(1))
		asked := []string{"t0", "t1", "t2", "t3"}
		all, some := w.holder("a", nil), w.holder("a", nil, asked...)
		ever := map[string]bool{} // names that were for the client at any time
		for range 100 {
			var changes []resourcelog.Change
			for range 1 + rng.IntN(4) {
				name := fmt.Sprint("t", rng.IntN(8))
				if rng.IntN(4) == 0 {
					changes = append(changes, gone(ticketType, name))
					continue
				}
				identities := [][]string{{"a"}, {"b"}, {"a", "b"}, {"b"}}[rng.IntN(4)]
				if name == "t7" {
					identities = []string{"b"}
				}
				ever[name] = ever[name] || slices.Contains(identities, "a")
				changes = append(changes, w.ticket(name, rng.IntN(50), identities...))
			}
			w.apply(changes...)
			if rng.IntN(3) == 0 {
				all.settle().check()
			}
			if rng.IntN(3) == 0 {
				some.settle().check(asked...)
			}
			if rng.IntN(10) == 0 {
				heard := all.heard
				all.session.Close()
				all = w.holder("a", all.has)
				all.heard = heard
			}
		}
		all.settle().check()
		some.settle().check(asked...)
		for name := range all.heard {
			if !ever[name] {
				t.Errorf("seed %d: a client heard of %s, which was never for it", seed, name)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestAReadingOfTheLogGoesOnWhileAWriterWaitsForItsEnd(t *testing.T) {
	w := newWorld(t)
	kind := ticketKind(150)
	admits := kind.Audience
	appended := make(chan struct{})
	var once sync.Once
	kind.Audience = func(c resourcelog.Caller, r *resourcelog.Resource) bool {
		if r.Name == "later" { // it is seen while the log is read
			once.Do(func() {
				go func() {
					w.log.Append(w.generation+1, nil)
					close(appended)
				}()
				time.Sleep(20 * time.Millisecond) // until the writer waits
			})
		}
		return admits(c, r)
	}
	w.log = resourcelog.New(func() time.Time { return w.now }, withTickets(kind))
	w.apply(w.ticket("own", 1, ""))
	s := NewSession(w.log, "e", DefaultLimits)
	if err := s.Handle(&discovery.DeltaDiscoveryRequest{TypeUrl: ticketType, ResourceNamesSubscribe: []string{"own"}}, w.now); err != nil {
		t.Fatal(err)
	}
	first := s.Next(w.now)
	if err := s.Handle(&discovery.DeltaDiscoveryRequest{TypeUrl: ticketType, ResponseNonce: first.Nonce.String()}, w.now); err != nil {
		t.Fatal(err)
	}
	w.apply(w.ticket("later", 1, "")) // nobody asked for it
	read := make(chan struct{})
	go func() {
		s.Next(w.now)
		close(read)
	}()
	for name, done := range map[string]chan struct{}{"reader": read, "writer": appended} {
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatalf("the %s waits for ever", name)
		}
	}
	s.Close()
}
