package replica

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	wire "lateen.dev/lateen/internal/gen/replica"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/xds"
)

var policy = model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: "shop", Name: "a"}

// instance is a replica with clients that are only what they have acknowledged.
type instance struct {
	t     *testing.T
	name  string
	store *model.Store
	log   *resourcelog.Log
	local *Local
	view  *View
	addr  *net.TCPAddr
	stop  func()

	mu       sync.Mutex
	clients  map[string]*xds.ClientState
	refusals map[model.Key]model.Condition
}

func start(t *testing.T, name string) *instance {
	t.Helper()
	r := &instance{t: t, name: name, store: model.NewStore(), log: resourcelog.New(time.Now, resourcekind.Mesh),
		clients: map[string]*xds.ClientState{}, refusals: map[model.Key]model.Condition{}}
	r.local = NewLocal(Sources{Store: r.store, Log: r.log, Clients: r.list, Refusals: func([]xds.ClientState) map[model.Key]model.Condition {
		r.mu.Lock()
		defer r.mu.Unlock()
		out := map[model.Key]model.Condition{}
		for k, c := range r.refusals {
			out[k] = c
		}
		return out
	}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().(*net.TCPAddr)
	server := grpc.NewServer()
	wire.RegisterAcknowledgementsServer(server, &Service{Local: r.local, Logger: slog.New(slog.DiscardHandler), Authorize: func(context.Context) error { return nil }})
	go server.Serve(l) //nolint:errcheck // ends with the test
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.local.Run(ctx) })
	r.stop = sync.OnceFunc(func() { server.Stop(); cancel(); running.Wait() })
	t.Cleanup(r.stop)
	return r
}

func (r *instance) list() (out []xds.ClientState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clients {
		one := *c
		one.Types = append([]xds.State(nil), c.Types...)
		out = append(out, one)
	}
	return out
}

// apply takes changes as the compiler does.
func (r *instance) apply(changes ...model.Change) uint64 {
	generation, _ := r.store.Apply(changes)
	r.log.Append(generation, nil)
	return generation
}

// acknowledge has the proxy of a node connected here and as far as a generation.
func (r *instance) acknowledge(node string, generation uint64) {
	r.mu.Lock()
	name := "lateen-system/node-" + node
	fresh := r.clients[name] == nil
	since := time.Now()
	if !fresh {
		since = r.clients[name].Connected
	}
	r.clients[name] = &xds.ClientState{Client: xds.Client{Node: node, Workload: name}, Connected: since,
		Types: []xds.State{{Type: resourcekind.Address, AckedGeneration: generation}, {Type: resourcekind.Authorization, AckedGeneration: generation}}}
	r.mu.Unlock()
	if fresh {
		r.local.Connected()
	} else {
		r.local.Answered(false)
	}
}

func (r *instance) disconnect(node string) {
	r.mu.Lock()
	delete(r.clients, "lateen-system/node-"+node)
	r.mu.Unlock()
	r.local.Connected()
}

func (r *instance) refuse(c *model.Condition) {
	r.mu.Lock()
	if delete(r.refusals, policy); c != nil {
		r.refusals[policy] = *c
	}
	r.mu.Unlock()
	r.local.Answered(true)
}

// leads makes the view of this replica, which follows the others at their ports.
func (r *instance) leads(others ...*instance) *View {
	at := map[string]*instance{}
	for i, o := range others {
		ip := fmt.Sprintf("10.0.0.%d", i+1)
		at[ip] = o
		r.apply(r.pod(o.name, "lateen-control", "lateen-control", "n1", ip))
	}
	r.view = NewView(Options{Local: r.local, Store: r.store, Namespace: "lateen-system", Pod: r.name, Port: 15012, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Proxies: func(account string) bool { return account == "lateen-system/lateen-node" },
		Dial: func(address string) (*grpc.ClientConn, error) {
			host, _, _ := net.SplitHostPort(address)
			return grpc.NewClient(at[host].addr.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		}})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.view.Run(ctx) })
	running.Go(func() { r.view.Lead(ctx) })
	r.t.Cleanup(func() { cancel(); running.Wait() })
	return r.view
}

func (r *instance) pod(name, app, account, node, ip string) model.Change {
	key := model.PodKey("lateen-system", name)
	return model.Change{Key: key, Object: &model.Object{Key: key, Value: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name, UID: types.UID(name + ip), Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{ServiceAccountName: account, NodeName: node},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}}}
}

func version(generation int64) model.Change {
	return model.Change{Key: policy, Object: &model.Object{Key: policy, Value: &securityv1.AuthorizationPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: policy.Namespace, Name: policy.Name, UID: "u1", Generation: generation}}}}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("it never came about that %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// comes waits for a verdict on a generation of the policy, with all texts in it.
func comes(t *testing.T, v *View, generation int64, reason string, texts ...string) {
	t.Helper()
	var got Verdict
	for deadline := time.Now().Add(2 * time.Minute); ; {
		now := Version{UID: "u1", Generation: generation}
		good := true
		for _, judge := range []func(model.Key, Version) Verdict{v.Page(), v.Of} { // which are alike
			got = judge(policy, now)
			good = good && got.Reason == reason
			for _, text := range texts {
				good = good && strings.Contains(got.Message, text)
			}
		}
		if good {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("generation %d: %+v; want %s with %q", generation, got, reason, texts)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestAnObjectIsProgrammedWhenTheProxiesOfAllReplicasHaveIt(t *testing.T) {
	a, b, c := start(t, "a"), start(t, "b"), start(t, "c")
	view := a.leads(b, c)
	var at [3]uint64
	all := []*instance{a, b, c}
	for i, r := range all {
		at[i] = r.apply(version(1))
		r.acknowledge(fmt.Sprint("n", i), at[i])
	}
	comes(t, view, 1, wellknown.ReasonProgrammed)

	// B's proxy lags.
	for i, r := range all {
		at[i] = r.apply(version(2))
	}
	a.acknowledge("n0", at[0])
	c.acknowledge("n2", at[2])
	comes(t, view, 2, wellknown.ReasonAwaited, "the proxy of node n1 (lateen-system/node-n1)")
	if v := view.Of(policy, Version{UID: "u1", Generation: 2}); v.Status != model.False || strings.Contains(v.Message, "n0") || strings.Contains(v.Message, "n2") {
		t.Errorf("%+v", v)
	}
	b.acknowledge("n1", at[1])
	comes(t, view, 2, wellknown.ReasonProgrammed)

	// C has not heard of the version yet.
	for i, r := range []*instance{a, b} {
		r.acknowledge(fmt.Sprint("n", i), r.apply(version(3)))
	}
	comes(t, view, 3, wellknown.ReasonAwaited, "replica c does not know this version")
	c.acknowledge("n2", c.apply(version(3)))
	comes(t, view, 3, wellknown.ReasonProgrammed)
	if v := view.Of(policy, Version{UID: "u2", Generation: 3}); v.Status != model.False {
		t.Errorf("an object of the same name that was made anew: %+v", v)
	}
}

func TestWhichVersionsOtherReplicasHave(t *testing.T) {
	a, b, c, d := start(t, "a"), start(t, "b"), start(t, "c"), start(t, "d")
	view := a.leads(b, c, d)
	a.apply(version(1))
	b.apply(version(1))
	c.apply(version(2))
	want := map[string]Version{"b": {UID: "u1", Generation: 1}, "c": {UID: "u1", Generation: 2}, "d": {}}
	eventually(t, "each is asked", func() bool { return maps.Equal(view.Versions(policy), want) })
	d.stop() // what is not known is not told
	delete(want, "d")
	eventually(t, "one is away", func() bool { return maps.Equal(view.Versions(policy), want) })
}

func TestAReplicaThatCannotBeAskedIsNamed(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	view := a.leads(b)
	a.acknowledge("n0", a.apply(version(1)))
	b.acknowledge("n1", b.apply(version(1)))
	comes(t, view, 1, wellknown.ReasonProgrammed)
	b.stop()
	comes(t, view, 1, wellknown.ReasonAwaited, "replica b cannot be asked")
	if s := view.States(); len(s.Replicas) != 2 || s.Replicas[1].Asked || s.Replicas[1].Error == "" {
		t.Errorf("%+v", s)
	}
	// When its pod is gone nothing is asked of it any more.
	a.acknowledge("n0", a.apply(model.Change{Key: model.PodKey("lateen-system", "b")}))
	comes(t, view, 1, wellknown.ReasonProgrammed)
}

func TestAProxyThatIsConnectedToNoReplicaIsNamed(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	view := a.leads(b)
	a.apply(a.pod("node-n0", "lateen-node", "lateen-node", "n0", "10.1.0.1"), a.pod("node-n1", "lateen-node", "lateen-node", "n1", "10.1.0.2"),
		a.pod("other", "lateen-node", "other", "n2", "10.1.0.3"))
	a.acknowledge("n0", a.apply(version(1)))
	b.apply(version(1))
	comes(t, view, 1, wellknown.ReasonAwaited, "connected to no replica: the proxy of node n1 (lateen-system/node-n1)")
	if v := view.Of(policy, Version{UID: "u1", Generation: 1}); strings.Contains(v.Message, "n0") || strings.Contains(v.Message, "other") {
		t.Errorf("%+v", v)
	}
	// It comes back, at the other replica, and has to take what it missed before it counts.
	b.acknowledge("n1", 0)
	comes(t, view, 1, wellknown.ReasonAwaited, "not acknowledged yet by the proxy of node n1")
	b.acknowledge("n1", b.log.Generation())
	comes(t, view, 1, wellknown.ReasonProgrammed)
}

func TestARefusalAtAnyReplicaCounts(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	view := a.leads(b)
	a.acknowledge("n0", a.apply(version(1)))
	b.acknowledge("n1", b.apply(version(1)))
	comes(t, view, 1, wellknown.ReasonProgrammed)
	b.refuse(&model.Condition{Reason: wellknown.ReasonRefused, Message: "the proxy of node n1 refuses it"})
	comes(t, view, 1, wellknown.ReasonRefused, "n1 refuses it")
	b.refuse(&model.Condition{Reason: wellknown.ReasonRefusalUnnamed, Message: "who knows"})
	comes(t, view, 1, wellknown.ReasonRefusalUnnamed, "who knows")
	b.refuse(nil)
	comes(t, view, 1, wellknown.ReasonProgrammed)
}

func TestWithoutAnyProxyNothingIsKnown(t *testing.T) {
	a := start(t, "a")
	view := a.leads()
	a.apply(version(1))
	comes(t, view, 1, wellknown.ReasonNoProxies)
	if v := view.Of(policy, Version{UID: "u1", Generation: 1}); v.Status != model.Unknown {
		t.Errorf("%+v", v)
	}
}

func TestOthersAreFollowedOnlyWhileSomebodyNeedsIt(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	view := a.leads(b)
	followers := func() int {
		b.local.mu.Lock()
		defer b.local.mu.Unlock()
		return len(b.local.follower)
	}
	eventually(t, "the leader follows", func() bool { return followers() == 1 })
	view.lead(false)
	eventually(t, "it no longer does", func() bool { return followers() == 0 })
	b.acknowledge("n1", b.apply(version(1)))
	eventually(t, "it knows its own proxy", func() bool { s, _ := b.local.standing(policy); return s.Version.Generation == 1 && s.Waiting == 0 })
	view.Ask(t.Context())
	if s := view.States(); !s.Replicas[1].Asked || len(s.Replicas[1].Proxies) != 1 {
		t.Errorf("who asked did not get the first reports: %+v", s)
	}
}

func TestReportsComeInPartsThatFit(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	view := a.leads(b)
	var changes []model.Change
	for i := range 2*maxReport + 10 {
		key := model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: "shop", Name: fmt.Sprint("p", i)}
		changes = append(changes, model.Change{Key: key, Object: &model.Object{Key: key, Value: &securityv1.AuthorizationPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u", Generation: 1}}}})
	}
	b.apply(changes...)
	eventually(t, "all arrive", func() bool { return view.States().Replicas[1].Objects == 2*maxReport+10 })
}

func TestOnlyReplicasAreAnswered(t *testing.T) {
	a := start(t, "a")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	defer server.Stop()
	wire.RegisterAcknowledgementsServer(server, &Service{Local: a.local, Logger: slog.New(slog.DiscardHandler),
		Authorize: func(context.Context) error { return status.Error(codes.PermissionDenied, "not you") }})
	go server.Serve(l) //nolint:errcheck // ends with the test
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call, err := wire.NewAcknowledgementsClient(conn).Follow(t.Context(), &wire.FollowRequest{})
	if err == nil {
		_, err = call.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v", err)
	}
}

// A page of the objects of a large mesh: 2,000 of them, 1,000 proxies.
func BenchmarkPage(b *testing.B) {
	v := NewView(Options{Local: NewLocal(Sources{Store: model.NewStore()}), Store: model.NewStore(), Now: time.Now})
	for i := range 1000 {
		name := fmt.Sprintf("lateen-system/lateen-node-%d", i)
		v.proxies[name], v.Local.known.proxies[name] = "n", Proxy{Node: "n", CaughtUp: true}
	}
	for name, judges := range map[string]func() func(model.Key, Version) Verdict{
		"page":     v.Page,
		"each own": func() func(model.Key, Version) Verdict { return v.Of },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				of := judges()
				for range 2000 {
					of(policy, Version{})
				}
			}
		})
	}
}

// With its kubelet's credential a node makes static pods in every namespace, with labels of its choice.
func TestAStaticPodIsNoReplicaAndNoProxy(t *testing.T) {
	store := model.NewStore()
	r := &instance{}
	v := NewView(Options{Store: store, Namespace: "lateen-system", Pod: "self", Proxies: func(account string) bool { return account == "lateen-system/lateen-node" }})
	for _, c := range []struct {
		static                       bool
		app, account                 string
		becomesReplica, becomesProxy bool
	}{
		{false, "lateen-control", "lateen-control", true, false},
		{true, "lateen-control", "lateen-control", false, false},
		{false, "lateen-node", "lateen-node", false, true},
		{true, "lateen-node", "lateen-node", false, false},
	} {
		change := r.pod("p", c.app, c.account, "n1", "10.0.0.9")
		pod := change.Object.Value.(*corev1.Pod)
		if c.static {
			pod.Annotations = map[string]string{"kubernetes.io/config.mirror": ""}
		}
		v.replica(change.Key, pod, true)
		v.proxy(change.Key, pod, true)
		if got := len(v.replicas) > 0; got != c.becomesReplica {
			t.Errorf("%+v: a replica: %v", c, got)
		}
		if got := len(v.proxies) > 0; got != c.becomesProxy {
			t.Errorf("%+v: a proxy: %v", c, got)
		}
	}
}
