package xds

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
)

func TestAnswersAnEmptyMeshSoThatProxiesBecomeReady(t *testing.T) {
	w := newWorld(t)
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Address)
	c.follow(resourcekind.Authorization)
	got := c.settle()
	if len(got) != 2 || got[0].TypeUrl != resourcekind.Authorization || got[1].TypeUrl != resourcekind.Address {
		t.Fatalf("got %v, want one empty response for each type, policies first", got)
	}
}

func TestSendsPoliciesBeforeTheWorkloadsThatNameThem(t *testing.T) {
	w := newWorld(t)
	w.apply(w.pod("p", "10.0.0.1", 1, []string{"deny"}), w.policy("deny", 1))
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Address) // asks in the wrong order
	c.follow(resourcekind.Authorization)
	first := c.receive()
	if first.GetTypeUrl() != resourcekind.Authorization {
		t.Fatalf("first response is %v", first)
	}
	if r := c.receive(); r != nil {
		t.Fatalf("%s was sent before the policies were acknowledged", r.TypeUrl)
	}
	c.answer(resourcekind.Authorization, "")
	if r := c.receive(); r.GetTypeUrl() != resourcekind.Address || len(r.Resources) != 1 {
		t.Fatalf("got %v, want the workload", r)
	}
}

func TestWaitsALittleForAClientToAskForPolicies(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("s", "10.0.0.1", 1))
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Address)
	if r := c.receive(); r != nil {
		t.Fatalf("answered %v at once", r)
	}
	if wait := c.session.Wait(w.now); wait <= 0 || wait > DefaultLimits.TypeGrace {
		t.Fatalf("Wait() = %s", wait)
	}
	w.now = w.now.Add(DefaultLimits.TypeGrace)
	if r := c.receive(); len(r.GetResources()) != 1 {
		t.Fatalf("got %v, want the service: some clients want addresses only", r)
	}
	if wait := c.session.Wait(w.now); wait != 0 {
		t.Fatalf("Wait() = %s after the answer", wait)
	}
}

func TestRemovesPoliciesAfterTheWorkloadsThatNamedThem(t *testing.T) {
	w := newWorld(t)
	w.apply(w.pod("p", "10.0.0.1", 1, []string{"deny"}), w.policy("deny", 1))
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	c.settle()
	w.apply(w.pod("p", "10.0.0.1", 2, nil), gone(resourcekind.Authorization, "deny"))
	first := c.receive()
	if first.GetTypeUrl() != resourcekind.Address {
		t.Fatalf("first came %v", first)
	}
	if r := c.receive(); r != nil {
		t.Fatalf("%v was sent before the workload was acknowledged", r)
	}
	c.answer(resourcekind.Address, "")
	if r := c.receive(); r.GetTypeUrl() != resourcekind.Authorization || !slices.Equal(r.RemovedResources, []string{"deny"}) {
		t.Fatalf("got %v, want the policy's removal", r)
	}
}

func TestRemovesAPolicyThatNoWorkloadNamesWithoutWaitingForAnything(t *testing.T) {
	w := newWorld(t)
	w.apply(w.policy("global", 1))
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	c.settle()
	w.apply(gone(resourcekind.Authorization, "global"))
	if r := c.receive(); r.GetTypeUrl() != resourcekind.Authorization || len(r.RemovedResources) != 1 {
		t.Fatalf("got %v, want the removal at once: nothing else will ever wake this client", r)
	}
}

func TestCoalescesWhatChangesWhileAResponseIsOutstanding(t *testing.T) {
	w := newWorld(t)
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	c.settle()
	w.apply(w.service("a", "10.0.0.1", 1))
	if r := c.receive(); len(r.GetResources()) != 1 {
		t.Fatalf("the first change did not leave at once: %v", r)
	}
	for i := range 50 {
		w.apply(w.service("a", "10.0.0.1", i+2), w.service("b", "10.0.0.2", i))
		if r := c.receive(); r != nil {
			t.Fatalf("response %v although one is outstanding", r)
		}
	}
	w.apply(w.service("c", "10.0.0.3", 1))
	w.apply(gone(resourcekind.Address, "c"))
	c.answer(resourcekind.Address, "")
	r := c.receive()
	if got := resourceNames(r); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("coalesced response has %v, want a and b once each", got)
	}
	c.answer(resourcekind.Address, "")
	c.settle()
	c.checkEqual()
}

func TestChunksLargeAnswersWithinTheBudget(t *testing.T) {
	w := newWorld(t)
	var changes []resourcelog.Change
	for i := range 500 {
		changes = append(changes, w.service(fmt.Sprintf("service-%03d", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250), 1))
	}
	w.apply(changes...)
	limits := DefaultLimits
	limits.ResponseBytes = 2000
	c := w.connect(limits)
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	generation := uint64(99)
	chunks := 0
	for _, r := range c.settle() {
		if r.TypeUrl != resourcekind.Address {
			continue
		}
		chunks++
		size := 0
		for _, res := range r.Resources {
			size += len(res.Resource.Value)
		}
		if size > limits.ResponseBytes {
			t.Errorf("chunk of %d bytes", size)
		}
		n, err := ParseNonce(r.Nonce)
		if err != nil {
			t.Fatal(err)
		}
		generation = n.Generation
	}
	if chunks < 10 || generation != w.generation {
		t.Errorf("%d chunks, the last for generation %d; want many and generation %d", chunks, generation, w.generation)
	}
	c.checkEqual()
}

func TestClaimsAGenerationOnlyWithItsLastChunk(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("a", "10.0.0.1", 1), w.service("b", "10.0.0.2", 1))
	c := w.connect(Limits{ResponseBytes: 1, Names: 10})
	c.follow(resourcekind.Authorization)
	c.settle()
	c.follow(resourcekind.Address)
	var generations []uint64
	for {
		r := c.receive()
		if r == nil {
			break
		}
		n, err := ParseNonce(r.Nonce)
		if err != nil {
			t.Fatal(err)
		}
		generations = append(generations, n.Generation)
		c.answer(resourcekind.Address, "")
	}
	if !slices.Equal(generations, []uint64{0, 1}) {
		t.Errorf("the two chunks claim generations %v, want 0 and 1", generations)
	}
}

func TestSkipsOnReconnectWhatTheClientStillHas(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("same", "10.0.0.1", 1), w.service("changed", "10.0.0.2", 1), w.service("removed", "10.0.0.3", 1), w.policy("old", 1), w.policy("kept", 1))
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	c.settle()
	w.apply(w.service("changed", "10.0.0.2", 2), gone(resourcekind.Address, "removed"), gone(resourcekind.Authorization, "old"))
	c.reconnect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	var sent, removed []string
	for _, r := range c.settle() {
		sent = append(sent, resourceNames(r)...)
		removed = append(removed, r.RemovedResources...)
	}
	slices.Sort(removed)
	if !slices.Equal(sent, []string{"changed"}) || !slices.Equal(removed, []string{"old", "removed"}) {
		t.Errorf("reconnecting sent %v and removed %v; want changed; old and removed", sent, removed)
	}
	c.checkEqual()
}

func TestSendsAgainWhatChangedBackDuringAReconnect(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("x", "10.0.0.1", 1), w.service("y", "10.0.0.2", 1))
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	c.settle()
	w.apply(w.service("x", "10.0.0.1", 2), w.service("y", "10.0.0.2", 2))
	c.reconnect(Limits{ResponseBytes: 1, Names: 10})
	c.follow(resourcekind.Authorization)
	c.settle()
	c.follow(resourcekind.Address)
	c.receive() // x at 2, the first chunk of two
	w.apply(w.service("x", "10.0.0.1", 1))
	c.settle()
	c.checkEqual()
}

func TestRecordsARefusalByNameAndGoesOn(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("good", "10.0.0.1", 1), w.service("bad", "10.0.0.2", 1))
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.settle()
	c.follow(resourcekind.Address)
	var heard *Nack
	c.session.Settled = func(_ string, _, _ uint64, nack *Nack) { heard = nack }
	c.receive()
	c.answer(resourcekind.Address, "resource bad: hostname is empty")
	state := c.session.States()[1]
	if heard == nil || state.LastNack != heard || !slices.Equal(heard.Names, []string{"bad"}) || !strings.Contains(heard.String(), "hostname is empty") {
		t.Fatalf("recorded %v", state.LastNack)
	}
	if r := c.receive(); r != nil {
		t.Fatalf("%v was sent again although nothing changed", r)
	}
	w.apply(w.service("bad", "10.0.0.2", 2))
	if r := c.receive(); !slices.Equal(resourceNames(r), []string{"bad"}) {
		t.Fatalf("got %v, want the corrected resource", r)
	}
}

func TestARefusalIsOverOnceItsResourceIsTakenOrGone(t *testing.T) {
	refused := func(c *client) (names []string) {
		for _, nack := range c.session.States()[1].Refused {
			names = append(names, nack.Names...)
		}
		return names
	}
	w := newWorld(t)
	w.apply(w.service("a", "10.0.0.1", 1), w.service("b", "10.0.0.2", 1))
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.settle()
	c.follow(resourcekind.Address)
	c.receive()
	c.answer(resourcekind.Address, "resource a, resource b: hostname is empty")
	if got := refused(c); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("refused are %v", got)
	}
	w.apply(w.service("c", "10.0.0.3", 1))
	c.receive()
	c.answer(resourcekind.Address, "resource c: no port")
	if got := refused(c); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Fatalf("after a refusal of something else refused are %v", got)
	}
	w.apply(w.service("a", "10.0.0.1", 2))
	c.settle()
	if got := refused(c); !slices.Equal(got, []string{"b", "c"}) {
		t.Fatalf("after a was taken refused are %v", got)
	}
	w.apply(resourcelog.Change{Type: resourcekind.Address, Name: "b"})
	c.settle()
	if got := refused(c); !slices.Equal(got, []string{"c"}) {
		t.Fatalf("after b was removed refused are %v", got)
	}
}

func TestAGenerationThatChangesNothingIsKnownAtOnce(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("a", "10.0.0.1", 1), w.policy("p", 1))
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	c.settle()
	w.apply()
	for _, s := range c.session.States() {
		if s.AckedGeneration != 2 {
			t.Errorf("%s: generation %d, want 2", s.Type, s.AckedGeneration)
		}
	}
	w.apply(w.service("a", "10.0.0.1", 2), gone(resourcekind.Authorization, "p"))
	for _, s := range c.session.States() {
		if s.AckedGeneration != 2 {
			t.Errorf("%s: generation %d is claimed before the change was sent; want 2 still", s.Type, s.AckedGeneration)
		}
	}
}

func TestIgnoresAStaleAnswer(t *testing.T) {
	w := newWorld(t)
	w.apply(w.policy("p", 1))
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.receive()
	for _, nonce := range []string{"e.0.77", "other.1.1", "garbage"} {
		if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Authorization, ResponseNonce: nonce}); err != nil {
			t.Fatal(err)
		}
	}
	if !c.session.States()[0].Outstanding {
		t.Error("a nonce that was never sent settled the outstanding response")
	}
}

func TestRefusesATypeItDoesNotServe(t *testing.T) {
	w := newWorld(t)
	err := w.connect(DefaultLimits).send(&discovery.DeltaDiscoveryRequest{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), resourcekind.Address) {
		t.Errorf("got %v, want InvalidArgument naming the types that there are", err)
	}
}

func TestBoundsTheNamesOfAClient(t *testing.T) {
	w := newWorld(t)
	c := w.connect(Limits{ResponseBytes: 1000, Names: 2})
	err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Address, ResourceNamesSubscribe: []string{"a", "b", "c"}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want ResourceExhausted", err)
	}
}

func TestBoundsTheBytesOfAClientsNames(t *testing.T) {
	const address, policy = resourcekind.Address, resourcekind.Authorization
	w := newWorld(t)
	limits := DefaultLimits
	limits.Bytes = 100
	c := w.connect(limits)
	for _, step := range []struct {
		name string
		req  *discovery.DeltaDiscoveryRequest
		code codes.Code
	}{
		{"one name", &discovery.DeltaDiscoveryRequest{TypeUrl: address, ResourceNamesSubscribe: []string{strings.Repeat("a", 60)}}, codes.OK},
		{"the same again", &discovery.DeltaDiscoveryRequest{TypeUrl: address, ResourceNamesSubscribe: []string{strings.Repeat("a", 30)}}, codes.OK},
		{"another", &discovery.DeltaDiscoveryRequest{TypeUrl: address, ResourceNamesSubscribe: []string{strings.Repeat("b", 20)}}, codes.ResourceExhausted},
		{"what it has of another type", &discovery.DeltaDiscoveryRequest{TypeUrl: policy, InitialResourceVersions: map[string]string{"a": strings.Repeat("1", 20)}}, codes.ResourceExhausted},
		{"one less", &discovery.DeltaDiscoveryRequest{TypeUrl: address, ResourceNamesUnsubscribe: []string{strings.Repeat("a", 60)}}, codes.OK},
		{"room again", &discovery.DeltaDiscoveryRequest{TypeUrl: policy, InitialResourceVersions: map[string]string{"a": strings.Repeat("1", 20)}}, codes.OK},
	} {
		if err := c.send(step.req); status.Code(err) != step.code {
			t.Errorf("%s: got %v, want %s", step.name, err, step.code)
		}
	}
}

func TestBoundsWhatAClientMakesTheSessionKeep(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("s", "10.0.0.1", 1))
	limits := Limits{ResponseBytes: 1000, Names: 10}
	c := w.connect(limits)
	c.follow(resourcekind.Authorization)
	c.settle()
	for range 100 { // unanswered, so that nothing is looked up meanwhile
		if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Address, ResourceNamesSubscribe: []string{"/10.0.0.1", "/10.0.0.1", "none"}}); err != nil {
			t.Fatalf("two names asked for again and again: %v", err)
		}
	}
	if n := c.session.watch[resourcekind.Address].lookups.len(); n != 2 {
		t.Errorf("%d look-ups are queued for two names", n)
	}
	if r := c.receive(); !slices.Equal(resourceNames(r), []string{"s"}) || !slices.Equal(r.RemovedResources, []string{"none"}) {
		t.Errorf("got %v, want the service once and that there is no other", r)
	}
	many := map[string]string{}
	for i := range 11 {
		many[fmt.Sprint("kept-", i)] = "v"
	}
	for name, subscribe := range map[string][]string{"everything": nil, "by name": {"s"}} {
		c := w.connect(limits)
		err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Address, ResourceNamesSubscribe: subscribe, InitialResourceVersions: many})
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s, with 11 names kept from before: got %v, want ResourceExhausted", name, err)
		}
	}
}

func TestCutsARefusalShort(t *testing.T) {
	w := newWorld(t)
	w.apply(w.policy("p", 1))
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.receive()
	c.answer(resourcekind.Authorization, "p is bad: "+strings.Repeat("ü", 1<<20))
	nack := c.session.States()[0].LastNack
	if nack == nil || len(nack.Message) > maxComplaint || len(nack.Message) < maxComplaint-1 || !slices.Equal(nack.Names, []string{"p"}) || !utf8.ValidString(nack.Message) {
		t.Errorf("kept %d bytes of the complaint", len(nack.Message))
	}
}
