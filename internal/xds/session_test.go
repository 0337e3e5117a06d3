package xds

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/log"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a log with a tiny mesh behind it and a clock that only moves when told.
type world struct {
	t          testing.TB
	log        *log.Log
	now        time.Time
	generation uint64
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, now: start}
	w.log = log.New(func() time.Time { return w.now }, log.AddressType, log.AuthorizationType)
	return w
}

func (w *world) apply(changes ...log.Change) {
	w.generation++
	w.log.Append(w.generation, changes)
}

// pod makes a workload that names policies and belongs to services.
func (w *world) pod(name, ip string, serial int, policies []string, services ...string) log.Change {
	msg := &workload.Address{Type: &workload.Address_Workload{Workload: &workload.Workload{
		Uid: name, Name: fmt.Sprint(serial), AuthorizationPolicies: policies,
	}}}
	return w.change(log.AddressType, name, []string{"/" + ip}, services, msg)
}

func (w *world) service(name, ip string, serial int) log.Change {
	msg := &workload.Address{Type: &workload.Address_Service{Service: &workload.Service{Name: name, Hostname: fmt.Sprint(serial)}}}
	return w.change(log.AddressType, name, []string{"/" + ip}, nil, msg)
}

func (w *world) policy(name string, serial int) log.Change {
	return w.change(log.AuthorizationType, name, nil, nil, &security.Authorization{Name: name, Namespace: fmt.Sprint(serial)})
}

func (w *world) change(typeURL, name string, aliases, parents []string, msg proto.Message) log.Change {
	w.t.Helper()
	r, err := log.Encode(typeURL, name, aliases, parents, msg)
	if err != nil {
		w.t.Fatal(err)
	}
	return log.Change{Type: typeURL, Name: name, Resource: r}
}

func gone(typeURL, name string) log.Change { return log.Change{Type: typeURL, Name: name} }

// client is the other side of a session, as the protocol describes it.
type client struct {
	w       *world
	session *Session
	state   map[string]map[string]*discovery.Resource // type → name → resource
	pending map[string]*discovery.DeltaDiscoveryResponse
}

func (w *world) connect(limits Limits) *client {
	return &client{w: w, session: NewSession(w.log, "e", limits), pending: map[string]*discovery.DeltaDiscoveryResponse{},
		state: map[string]map[string]*discovery.Resource{log.AddressType: {}, log.AuthorizationType: {}}}
}

// reconnect loses the stream and keeps the state, as a proxy does.
func (c *client) reconnect(limits Limits) {
	c.session.Close()
	c.session = NewSession(c.w.log, "e", limits)
	c.pending = map[string]*discovery.DeltaDiscoveryResponse{}
}

func (c *client) send(req *discovery.DeltaDiscoveryRequest) error {
	return c.session.Handle(req, c.w.now)
}

// follow opens a type as a node proxy does: everything, with what is left from before.
func (c *client) follow(typeURL string) {
	c.w.t.Helper()
	versions := map[string]string{}
	for name, r := range c.state[typeURL] {
		versions[name] = r.Version
	}
	if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, InitialResourceVersions: versions}); err != nil {
		c.w.t.Fatal(err)
	}
}

// receive takes one response, if there is one, and leaves it unanswered.
func (c *client) receive() *discovery.DeltaDiscoveryResponse {
	c.w.t.Helper()
	r := c.session.Next(c.w.now)
	if r == nil {
		return nil
	}
	msg, err := r.Message()
	if err != nil {
		c.w.t.Fatalf("response does not decode: %v", err)
	}
	if c.pending[msg.TypeUrl] != nil {
		c.w.t.Fatalf("a second response of type %s although %s is not answered", msg.TypeUrl, c.pending[msg.TypeUrl].Nonce)
	}
	c.pending[msg.TypeUrl] = msg
	for _, res := range msg.Resources {
		c.state[msg.TypeUrl][res.Name] = res
	}
	for _, name := range msg.RemovedResources {
		delete(c.state[msg.TypeUrl], name)
	}
	c.checkPolicies()
	return msg
}

// checkPolicies holds the promise that makes a proxy safe: it knows every policy that its workloads name.
func (c *client) checkPolicies() {
	c.w.t.Helper()
	for name, r := range c.state[log.AddressType] {
		msg, err := r.Resource.UnmarshalNew()
		if err != nil {
			c.w.t.Fatal(err)
		}
		for _, p := range msg.(*workload.Address).GetWorkload().GetAuthorizationPolicies() {
			if c.state[log.AuthorizationType][p] == nil {
				c.w.t.Fatalf("workload %s names policy %s, which the client does not have", name, p)
			}
		}
	}
}

func (c *client) answer(typeURL string, refusal string) {
	c.w.t.Helper()
	p := c.pending[typeURL]
	if p == nil {
		return
	}
	delete(c.pending, typeURL)
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: p.Nonce}
	if refusal != "" {
		req.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: refusal}
	}
	if err := c.send(req); err != nil {
		c.w.t.Fatal(err)
	}
}

// settle takes and acknowledges everything there is.
func (c *client) settle() (responses []*discovery.DeltaDiscoveryResponse) {
	c.w.t.Helper()
	for range 10000 {
		c.answer(log.AuthorizationType, "")
		c.answer(log.AddressType, "")
		r := c.receive()
		if r == nil {
			return responses
		}
		responses = append(responses, r)
	}
	c.w.t.Fatal("the conversation does not come to rest")
	return nil
}

func (c *client) names(typeURL string) []string {
	var out []string
	for n := range c.state[typeURL] {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// checkEqual compares a client that follows everything with the log.
func (c *client) checkEqual() {
	c.w.t.Helper()
	for _, typeURL := range c.w.log.Types() {
		live := map[string]string{}
		for _, r := range c.w.log.Live(typeURL) {
			live[r.Name] = r.Version
		}
		for name, version := range live {
			if got := c.state[typeURL][name]; got == nil || got.Version != version {
				c.w.t.Errorf("%s: client has %v of %s, want version %s", typeURL, got.GetVersion(), name, version)
			}
		}
		for name := range c.state[typeURL] {
			if _, ok := live[name]; !ok {
				c.w.t.Errorf("%s: client kept %s, which is gone", typeURL, name)
			}
		}
	}
}

func resourceNames(r *discovery.DeltaDiscoveryResponse) []string {
	var out []string
	for _, res := range r.GetResources() {
		out = append(out, res.Name)
	}
	return out
}

func TestAnswersAnEmptyMeshSoThatProxiesBecomeReady(t *testing.T) {
	w := newWorld(t)
	c := w.connect(DefaultLimits)
	c.follow(log.AddressType)
	c.follow(log.AuthorizationType)
	got := c.settle()
	if len(got) != 2 || got[0].TypeUrl != log.AuthorizationType || got[1].TypeUrl != log.AddressType {
		t.Fatalf("got %v, want one empty response for each type, policies first", got)
	}
}

func TestSendsPoliciesBeforeTheWorkloadsThatNameThem(t *testing.T) {
	w := newWorld(t)
	w.apply(w.pod("p", "10.0.0.1", 1, []string{"deny"}), w.policy("deny", 1))
	c := w.connect(DefaultLimits)
	c.follow(log.AddressType) // asks in the wrong order
	c.follow(log.AuthorizationType)
	first := c.receive()
	if first.GetTypeUrl() != log.AuthorizationType {
		t.Fatalf("first response is %v", first)
	}
	if r := c.receive(); r != nil {
		t.Fatalf("%s was sent before the policies were acknowledged", r.TypeUrl)
	}
	c.answer(log.AuthorizationType, "")
	if r := c.receive(); r.GetTypeUrl() != log.AddressType || len(r.Resources) != 1 {
		t.Fatalf("got %v, want the workload", r)
	}
}

func TestWaitsALittleForAClientToAskForPolicies(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("s", "10.0.0.1", 1))
	c := w.connect(DefaultLimits)
	c.follow(log.AddressType)
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
	c.follow(log.AuthorizationType)
	c.follow(log.AddressType)
	c.settle()
	w.apply(w.pod("p", "10.0.0.1", 2, nil), gone(log.AuthorizationType, "deny"))
	first := c.receive()
	if first.GetTypeUrl() != log.AddressType {
		t.Fatalf("first came %v", first)
	}
	if r := c.receive(); r != nil {
		t.Fatalf("%v was sent before the workload was acknowledged", r)
	}
	c.answer(log.AddressType, "")
	if r := c.receive(); r.GetTypeUrl() != log.AuthorizationType || !slices.Equal(r.RemovedResources, []string{"deny"}) {
		t.Fatalf("got %v, want the policy's removal", r)
	}
}

func TestRemovesAPolicyThatNoWorkloadNamesWithoutWaitingForAnything(t *testing.T) {
	w := newWorld(t)
	w.apply(w.policy("global", 1))
	c := w.connect(DefaultLimits)
	c.follow(log.AuthorizationType)
	c.follow(log.AddressType)
	c.settle()
	w.apply(gone(log.AuthorizationType, "global"))
	if r := c.receive(); r.GetTypeUrl() != log.AuthorizationType || len(r.RemovedResources) != 1 {
		t.Fatalf("got %v, want the removal at once: nothing else will ever wake this client", r)
	}
}

func TestCoalescesWhatChangesWhileAResponseIsOutstanding(t *testing.T) {
	w := newWorld(t)
	c := w.connect(DefaultLimits)
	c.follow(log.AuthorizationType)
	c.follow(log.AddressType)
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
	w.apply(gone(log.AddressType, "c"))
	c.answer(log.AddressType, "")
	r := c.receive()
	if got := resourceNames(r); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("coalesced response has %v, want a and b once each", got)
	}
	c.answer(log.AddressType, "")
	c.settle()
	c.checkEqual()
}

func TestChunksLargeAnswersWithinTheBudget(t *testing.T) {
	w := newWorld(t)
	var changes []log.Change
	for i := range 500 {
		changes = append(changes, w.service(fmt.Sprintf("service-%03d", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250), 1))
	}
	w.apply(changes...)
	limits := DefaultLimits
	limits.ResponseBytes = 2000
	c := w.connect(limits)
	c.follow(log.AuthorizationType)
	c.follow(log.AddressType)
	generation := uint64(99)
	chunks := 0
	for _, r := range c.settle() {
		if r.TypeUrl != log.AddressType {
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
	c.follow(log.AuthorizationType)
	c.settle()
	c.follow(log.AddressType)
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
		c.answer(log.AddressType, "")
	}
	if !slices.Equal(generations, []uint64{0, 1}) {
		t.Errorf("the two chunks claim generations %v, want 0 and 1", generations)
	}
}

func TestSkipsOnReconnectWhatTheClientStillHas(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("same", "10.0.0.1", 1), w.service("changed", "10.0.0.2", 1), w.service("removed", "10.0.0.3", 1), w.policy("old", 1), w.policy("kept", 1))
	c := w.connect(DefaultLimits)
	c.follow(log.AuthorizationType)
	c.follow(log.AddressType)
	c.settle()
	w.apply(w.service("changed", "10.0.0.2", 2), gone(log.AddressType, "removed"), gone(log.AuthorizationType, "old"))
	c.reconnect(DefaultLimits)
	c.follow(log.AuthorizationType)
	c.follow(log.AddressType)
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
	c.follow(log.AuthorizationType)
	c.follow(log.AddressType)
	c.settle()
	w.apply(w.service("x", "10.0.0.1", 2), w.service("y", "10.0.0.2", 2))
	c.reconnect(Limits{ResponseBytes: 1, Names: 10})
	c.follow(log.AuthorizationType)
	c.settle()
	c.follow(log.AddressType)
	c.receive() // x at 2, the first chunk of two
	w.apply(w.service("x", "10.0.0.1", 1))
	c.settle()
	c.checkEqual()
}

func TestRecordsARefusalByNameAndGoesOn(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("good", "10.0.0.1", 1), w.service("bad", "10.0.0.2", 1))
	c := w.connect(DefaultLimits)
	c.follow(log.AuthorizationType)
	c.settle()
	c.follow(log.AddressType)
	var heard *Nack
	c.session.Settled = func(_ string, _, _ uint64, nack *Nack) { heard = nack }
	c.receive()
	c.answer(log.AddressType, "resource bad: hostname is empty")
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

func TestAGenerationThatChangesNothingIsKnownAtOnce(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("a", "10.0.0.1", 1), w.policy("p", 1))
	c := w.connect(DefaultLimits)
	c.follow(log.AuthorizationType)
	c.follow(log.AddressType)
	c.settle()
	w.apply()
	for _, s := range c.session.States() {
		if s.AckedGeneration != 2 {
			t.Errorf("%s: generation %d, want 2", s.Type, s.AckedGeneration)
		}
	}
	w.apply(w.service("a", "10.0.0.1", 2), gone(log.AuthorizationType, "p"))
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
	c.follow(log.AuthorizationType)
	c.receive()
	for _, nonce := range []string{"e.0.77", "other.1.1", "garbage"} {
		if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: log.AuthorizationType, ResponseNonce: nonce}); err != nil {
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
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), log.AddressType) {
		t.Errorf("got %v, want InvalidArgument naming the types that there are", err)
	}
}

// onDemand opens Addresses without asking for any.
func onDemand(t *testing.T, w *world) *client {
	t.Helper()
	c := w.connect(DefaultLimits)
	c.follow(log.AuthorizationType)
	if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: log.AddressType,
		ResourceNamesSubscribe: []string{"*"}, ResourceNamesUnsubscribe: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *client) subscribe(names ...string) {
	c.w.t.Helper()
	if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: log.AddressType, ResourceNamesSubscribe: names}); err != nil {
		c.w.t.Fatal(err)
	}
}

func TestOnDemandClientGetsWhatItAsksForByAnyName(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("ns/web.svc", "10.96.0.1", 1), w.pod("uid-1", "10.0.0.1", 1, nil, "ns/web.svc"), w.pod("uid-2", "10.0.0.2", 1, nil, "ns/web.svc"),
		w.pod("uid-3", "10.0.0.3", 1, nil))
	c := onDemand(t, w)
	if got := c.settle(); len(got) != 2 {
		t.Fatalf("%d first responses, want an empty one for each type", len(got))
	}
	if n := len(c.state[log.AddressType]); n != 0 {
		t.Fatalf("%d addresses nobody asked for", n)
	}
	c.subscribe("/10.0.0.3")
	c.settle()
	if got := c.names(log.AddressType); !slices.Equal(got, []string{"uid-3"}) {
		t.Fatalf("by address: %v", got)
	}
	c.subscribe("/10.96.0.1") // a service brings its workloads
	c.settle()
	if got := c.names(log.AddressType); !slices.Equal(got, []string{"ns/web.svc", "uid-1", "uid-2", "uid-3"}) {
		t.Fatalf("by service address: %v", got)
	}
	w.apply(w.pod("uid-4", "10.0.0.4", 1, nil, "ns/web.svc"), w.pod("uid-5", "10.0.0.5", 1, nil), gone(log.AddressType, "uid-1"))
	c.settle()
	if got := c.names(log.AddressType); !slices.Equal(got, []string{"ns/web.svc", "uid-2", "uid-3", "uid-4"}) {
		t.Fatalf("after changes: %v", got)
	}
}

func TestOnDemandClientLearnsThatANameDoesNotExistAndLaterThatItDoes(t *testing.T) {
	w := newWorld(t)
	c := onDemand(t, w)
	c.settle()
	c.subscribe("/10.0.0.9")
	r := c.receive()
	if !slices.Equal(r.GetRemovedResources(), []string{"/10.0.0.9"}) {
		t.Fatalf("got %v, want the name reported as removed", r)
	}
	c.answer(log.AddressType, "")
	w.apply(w.pod("uid-9", "10.0.0.9", 1, nil))
	c.settle()
	if got := c.names(log.AddressType); !slices.Equal(got, []string{"uid-9"}) {
		t.Fatalf("got %v once it exists", got)
	}
}

func TestOnDemandClientStopsHearingOfWhatItUnsubscribed(t *testing.T) {
	w := newWorld(t)
	w.apply(w.pod("a", "10.0.0.1", 1, nil), w.pod("b", "10.0.0.2", 1, nil))
	c := onDemand(t, w)
	c.subscribe("a", "b")
	c.settle()
	if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: log.AddressType, ResourceNamesUnsubscribe: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	w.apply(w.pod("a", "10.0.0.1", 2, nil), w.pod("b", "10.0.0.2", 2, nil))
	if r := c.receive(); !slices.Equal(resourceNames(r), []string{"b"}) {
		t.Fatalf("got %v, want b only", r)
	}
}

func TestAnsweringAgainForANameThatAClientAsksForAgain(t *testing.T) {
	w := newWorld(t)
	w.apply(w.pod("a", "10.0.0.1", 1, nil))
	c := onDemand(t, w)
	c.subscribe("a")
	c.settle()
	c.subscribe("a")
	if r := c.receive(); !slices.Equal(resourceNames(r), []string{"a"}) {
		t.Fatalf("got %v: a client that asks again has lost it", r)
	}
}

func TestBoundsTheNamesOfAClient(t *testing.T) {
	w := newWorld(t)
	c := w.connect(Limits{ResponseBytes: 1000, Names: 2})
	err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: log.AddressType, ResourceNamesSubscribe: []string{"a", "b", "c"}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want ResourceExhausted", err)
	}
}

func TestRandomConversationsEndInAgreement(t *testing.T) {
	for seed := range uint64(500) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			tape := make([]byte, 600)
			for i := range tape {
				tape[i] = byte(rng.Uint32())
			}
			converse(t, tape)
		})
	}
}

func FuzzConversation(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	f.Add([]byte("reconnect in the middle of a chunked answer"))
	f.Fuzz(func(t *testing.T, tape []byte) {
		if len(tape) > 2000 {
			t.Skip("long tapes find nothing that short ones do not")
		}
		converse(t, tape)
	})
}

// FuzzRequest sends requests of any bytes: no panic, and whatever is answered decodes.
func FuzzRequest(f *testing.F) {
	for _, r := range []*discovery.DeltaDiscoveryRequest{
		{TypeUrl: log.AddressType},
		{TypeUrl: log.AuthorizationType, ResponseNonce: "e.1.1"},
		{TypeUrl: log.AddressType, ResourceNamesSubscribe: []string{"*"}, ResourceNamesUnsubscribe: []string{"*"}},
		{TypeUrl: log.AddressType, ResourceNamesSubscribe: []string{"/10.0.0.1", "svc"}, InitialResourceVersions: map[string]string{"pod": "x"}},
	} {
		data, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, data)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		w := newWorld(t)
		w.apply(w.service("svc", "10.96.0.1", 1), w.pod("pod", "10.0.0.1", 1, nil, "svc"), w.policy("p", 1))
		s := NewSession(w.log, "e", Limits{ResponseBytes: 100, Names: 10, TypeGrace: time.Millisecond})
		defer s.Close()
		for _, data := range [][]byte{first, second, first} {
			req := &discovery.DeltaDiscoveryRequest{}
			if proto.Unmarshal(data, req) != nil {
				return
			}
			if s.Handle(req, w.now) != nil {
				return
			}
			w.now = w.now.Add(time.Second)
			for i := 0; ; i++ {
				r := s.Next(w.now)
				if r == nil {
					break
				}
				if i > 2 {
					t.Fatal("more responses than types without an answer")
				}
				if _, err := r.Message(); err != nil {
					t.Fatal(err)
				}
			}
			s.States()
			w.apply(w.service("svc", "10.96.0.1", int(w.generation)), gone(log.AddressType, "pod"))
		}
	})
}

// converse plays a tape: changes of the mesh, answers, refusals and lost streams of two clients, in the tape's order. In the end
// both clients must know what the log says, and at no time may a workload name a policy that a client does not have.
func converse(t testing.TB, tape []byte) {
	w := newWorld(t)
	read := func() int {
		if len(tape) == 0 {
			return 0
		}
		b := tape[0]
		tape = tape[1:]
		return int(b)
	}
	limits := func() Limits {
		return Limits{ResponseBytes: 1 + read()*4, Names: 1000, TypeGrace: time.Millisecond}
	}
	policies := map[string]bool{}
	pods := map[string][]string{} // pod → policies it names
	all := w.connect(limits())
	some := w.connect(limits())
	subscribed := map[string]bool{}
	follow := func() {
		all.follow(log.AddressType)
		all.follow(log.AuthorizationType)
	}
	ask := func() {
		some.follow(log.AuthorizationType)
		versions := map[string]string{}
		for n, r := range some.state[log.AddressType] {
			versions[n] = r.Version
		}
		req := &discovery.DeltaDiscoveryRequest{TypeUrl: log.AddressType, InitialResourceVersions: versions,
			ResourceNamesSubscribe: []string{"*"}, ResourceNamesUnsubscribe: []string{"*"}}
		for n := range subscribed {
			req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, n)
		}
		slices.Sort(req.ResourceNamesSubscribe)
		if err := some.send(req); err != nil {
			t.Fatal(err)
		}
	}
	follow()
	ask()
	for serial := 1; len(tape) > 0; serial++ {
		switch op := read() % 12; op {
		case 0, 1, 2: // one generation: policies come and go, pods follow
			var changes []log.Change
			for range 1 + read()%3 {
				p := fmt.Sprintf("policy-%d", read()%5)
				if policies[p] && read()%2 == 0 {
					delete(policies, p)
					changes = append(changes, gone(log.AuthorizationType, p))
					for pod, named := range pods {
						if slices.Contains(named, p) {
							pods[pod] = slices.DeleteFunc(slices.Clone(named), func(n string) bool { return n == p })
							changes = append(changes, w.pod(pod, "10.0.0."+pod[4:], serial, pods[pod], "svc"))
						}
					}
				} else {
					policies[p] = true
					changes = append(changes, w.policy(p, serial))
				}
			}
			w.apply(changes...)
		case 3, 4, 5: // a pod comes, changes or goes
			pod := fmt.Sprintf("pod-%d", read()%8)
			if _, ok := pods[pod]; ok && read()%3 == 0 {
				delete(pods, pod)
				w.apply(gone(log.AddressType, pod))
				break
			}
			pods[pod] = nil
			for i := range 5 {
				if p := fmt.Sprintf("policy-%d", i); policies[p] && read()%2 == 0 {
					pods[pod] = append(pods[pod], p)
				}
			}
			w.apply(w.pod(pod, "10.0.0."+pod[4:], read()%3, pods[pod], "svc"))
		case 6:
			if read()%2 == 0 {
				w.apply(w.service("svc", "10.96.0.1", serial))
			} else {
				w.apply(gone(log.AddressType, "svc"))
			}
		case 7:
			all.receive()
			some.receive()
		case 8:
			all.answer(log.AddressType, "")
			some.answer(log.AuthorizationType, "")
		case 9:
			all.answer(log.AuthorizationType, "")
			some.answer(log.AddressType, "refused")
		case 10:
			if read()%2 == 0 {
				all.reconnect(limits())
				follow()
			} else {
				some.reconnect(limits())
				ask()
			}
		case 11:
			name := []string{"/10.0.0.1", "pod-2", "/10.96.0.1", "svc", "pod-3", "nothing"}[read()%6]
			req := &discovery.DeltaDiscoveryRequest{TypeUrl: log.AddressType}
			if subscribed[name] {
				delete(subscribed, name)
				req.ResourceNamesUnsubscribe = []string{name}
			} else {
				subscribed[name] = true
				req.ResourceNamesSubscribe = []string{name}
			}
			if err := some.send(req); err != nil {
				t.Fatal(err)
			}
			if len(req.ResourceNamesUnsubscribe) > 0 {
				some.dropUncovered(subscribed)
			}
		}
		w.now = w.now.Add(time.Millisecond)
	}
	all.settle()
	all.checkEqual()
	some.settle()
	for name := range subscribed {
		for _, r := range w.log.Lookup(log.AddressType, name) {
			if got := some.state[log.AddressType][r.Name]; got == nil || got.Version != r.Version {
				t.Errorf("on demand: client has %v of %s, asked for as %s; want %s", got.GetVersion(), r.Name, name, r.Version)
			}
		}
	}
	for name, r := range some.state[log.AddressType] {
		if live := w.log.Get(log.AddressType, name); live == nil || live.Version != r.Version {
			t.Errorf("on demand: client kept a stale %s", name)
		}
	}
}

// dropUncovered does what a client does that unsubscribes: it lets go of everything that its other subscriptions do not cover.
func (c *client) dropUncovered(subscribed map[string]bool) {
	covered := map[string]bool{}
	for n := range subscribed {
		for _, r := range c.w.log.Lookup(log.AddressType, n) {
			covered[r.Name] = true
		}
	}
	for n := range c.state[log.AddressType] {
		if !covered[n] {
			delete(c.state[log.AddressType], n)
		}
	}
}
