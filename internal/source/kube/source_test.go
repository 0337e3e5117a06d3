package kube

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

// cluster is a source that runs, and what was heard of it.
type cluster struct {
	t      *testing.T
	api    *apiServer
	source *Source
	gate   sync.Mutex // while a test holds it, a batch is being applied
	end    func()

	mu      sync.Mutex
	batches [][]model.Change
	objects map[model.Key]*model.Object
	log     bytes.Buffer
}

func follow(t *testing.T, api *apiServer) *cluster {
	t.Helper()
	return followIn(t, api, "")
}

// followIn is the same in a mesh whose settings are in a namespace.
func followIn(t *testing.T, api *apiServer, root string) *cluster {
	t.Helper()
	c := &cluster{t: t, api: api, objects: map[model.Key]*model.Object{}}
	source, err := New(Options{Config: api.config(), Logger: slog.New(slog.NewTextHandler(&locked{mu: &c.mu, w: &c.log}, nil)), RootNamespace: root})
	if err != nil {
		t.Fatal(err)
	}
	c.source = source
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c.end = func() { cancel(); <-done }
	go func() {
		defer close(done)
		if err := source.Run(ctx, c.apply); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if t.Failed() {
			t.Log(c.logged())
		}
	})
	return c
}

type locked struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (c *cluster) apply(changes []model.Change) {
	c.gate.Lock()
	defer c.gate.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches = append(c.batches, changes)
	for _, ch := range changes {
		if ch.Object == nil {
			delete(c.objects, ch.Key)
		} else {
			c.objects[ch.Key] = ch.Object
		}
	}
}

func (c *cluster) logged() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.String()
}

func (c *cluster) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.batches)
}

// has lists what is live, "Kind namespace/name" in order.
func (c *cluster) has() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for k := range c.objects {
		out = append(out, k.String())
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (c *cluster) get(key model.Key) *model.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects[key]
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func (c *cluster) eventually(want string) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); c.has() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("it has %q, want %q", c.has(), want)
		}
	}
}

// loaded waits until the first batch, which is all that there is, has been applied. The source is ready a moment before.
func (c *cluster) loaded() *cluster {
	c.t.Helper()
	eventually(c.t, "loaded", c.source.isLoaded)
	return c
}

func podObject(name, ip string) object {
	return object{"metadata": object{"name": name, "namespace": "shop", "labels": object{"app": "web"}},
		"spec":   object{"nodeName": "n1", "containers": []object{{"name": "c", "image": "i"}}},
		"status": object{"phase": "Running", "podIP": ip, "podIPs": []object{{"ip": ip}}, "conditions": []object{{"type": "Ready", "status": "True"}}}}
}

func policyObject(port string) object {
	return object{"metadata": object{"name": "p", "namespace": "shop"}, "spec": object{"rules": []object{{"to": []object{{"operation": object{"ports": []string{port}}}}}}}}
}

const (
	policies = "authorizationpolicies.security.istio.io"
	entries  = "serviceentries.networking.istio.io"
)

func (a *apiServer) definePolicies(versions ...string) {
	a.define(model.SecurityGroup, "authorizationpolicies", "AuthorizationPolicy", versions...)
}

var policyKey = model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: "shop", Name: "p"}

func TestTheFirstBatchIsAllThereIs(t *testing.T) {
	for _, lists := range []bool{false, true} {
		t.Run(fmt.Sprintf("older=%v", lists), func(t *testing.T) {
			api := newAPIServer(t)
			api.lists = lists
			api.definePolicies("v1", "v1beta1")
			api.put("namespaces", object{"metadata": object{"name": "shop"}})
			api.put("nodes", object{"metadata": object{"name": "n1"}})
			api.put("pods", podObject("a", "10.0.0.1"))
			api.put("services", object{"metadata": object{"name": "web", "namespace": "shop"}, "spec": object{"ports": []object{{"port": 80}}}})
			api.put("endpointslices.discovery.k8s.io", object{"metadata": object{"name": "own", "namespace": "shop"}, "addressType": "IPv4"})
			api.put("endpointslices.discovery.k8s.io", object{"metadata": object{"name": "of-pods", "namespace": "shop",
				"labels": object{"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}}, "addressType": "IPv4"})
			api.put(policies, policyObject("80"))
			c := follow(t, api)
			c.eventually("AuthorizationPolicy shop/p, EndpointSlice shop/own, Namespace shop, Node n1, Pod shop/a, Service shop/web")
			if c.count() != 1 {
				t.Errorf("it came in %d batches", c.count())
			}
			if o := c.get(policyKey); o.APIVersion != "security.istio.io/v1" || o.Value.(*securityv1.AuthorizationPolicy).Spec.Rules[0].To[0].Operation.Ports[0] != "80" {
				t.Errorf("the policy is %+v", o)
			}
			if p := c.source.Problems(); len(p) > 0 {
				t.Errorf("problems: %v", p)
			}
			if log := c.logged(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "level=WARN") {
				t.Errorf("the log complains: %s", log)
			}
			// Nor are there other changes than those of objects.
			api.put("pods", podObject("b", "10.0.0.2"))
			eventually(t, "the pod", func() bool { return c.get(model.PodKey("shop", "b")) != nil })
			api.delete("pods", "shop", "b")
			eventually(t, "no pod", func() bool { return c.get(model.PodKey("shop", "b")) == nil })
			if c.count() != 3 {
				t.Errorf("%d batches, want 3", c.count())
			}
		})
	}
}

func TestAnEmptyClusterIsABatchToo(t *testing.T) {
	c := follow(t, newAPIServer(t)).loaded()
	if c.count() != 1 || c.has() != "" {
		t.Errorf("%d batches, with %s", c.count(), c.has())
	}
}

func TestPoliciesThatMayNotBeReadKeepItFromServing(t *testing.T) {
	api := newAPIServer(t)
	api.definePolicies("v1")
	api.put(policies, policyObject("80"))
	api.set(policies+" list", 403)
	api.set(policies+" watch", 403)
	c := follow(t, api)
	const rule = `{apiGroups: ["security.istio.io"], resources: ["authorizationpolicies"], verbs: [list, watch]}`
	eventually(t, "the rule that is missing is named", func() bool { err := c.source.Ready(); return err != nil && strings.Contains(err.Error(), rule) })
	if c.count() > 0 {
		t.Fatal("it began without the policies")
	}
	eventually(t, "all others are read", func() bool { return strings.Count(c.source.Ready().Error(), ".istio.io:") == 1 })
	if p := c.source.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, rule) {
		t.Errorf("problems: %v", p)
	}
	api.set(policies+" list", 0)
	api.set(policies+" watch", 0)
	c.loaded()
	if c.has() != "AuthorizationPolicy shop/p" || c.count() != 1 {
		t.Errorf("%d batches with %s", c.count(), c.has())
	}
	// What was listed is in force before the watch goes on.
	eventually(t, "nothing is wrong", func() bool { return len(c.source.Problems()) == 0 })
	eventually(t, "it is told", func() bool {
		return strings.Contains(c.logged(), "authorizationpolicies.security.istio.io is followed again")
	})
	if log := c.logged(); strings.Count(log, "level=ERROR") != 1 {
		t.Errorf("the log: %s", log)
	}
}

func TestDefinitionsThatMayNotBeReadKeepItFromServing(t *testing.T) {
	api := newAPIServer(t)
	api.set("customresourcedefinitions.apiextensions.k8s.io list", 403)
	api.set("customresourcedefinitions.apiextensions.k8s.io watch", 403)
	c := follow(t, api)
	eventually(t, "said", func() bool {
		err := c.source.Ready()
		return err != nil && strings.Contains(err.Error(), `resources: ["customresourcedefinitions"]`) && !strings.Contains(err.Error(), "pods")
	})
	if c.count() > 0 {
		t.Error("it began without knowing whether there are policies")
	}
}

func TestADefinitionThatIsNotServedYetIsWaitedFor(t *testing.T) {
	api := newAPIServer(t)
	api.put(policies, policyObject("80"))
	api.put("customresourcedefinitions.apiextensions.k8s.io", object{"metadata": object{"name": policies}})
	c := follow(t, api)
	eventually(t, "said", func() bool {
		err := c.source.Ready()
		return err != nil && strings.Contains(err.Error(), "none of the versions v1, v1beta1 is served")
	})
	api.mu.Lock()
	api.served["security.istio.io/v1beta1/authorizationpolicies"] = "AuthorizationPolicy"
	api.mu.Unlock()
	c.eventually("AuthorizationPolicy shop/p")
	if o := c.get(policyKey); o.APIVersion != "security.istio.io/v1beta1" {
		t.Errorf("it is %s", o.APIVersion)
	}
}

func TestKindsComeAndGoWithTheirDefinitions(t *testing.T) {
	api := newAPIServer(t)
	c := follow(t, api).loaded()
	api.put(policies, policyObject("80"))
	api.definePolicies("v1")
	c.eventually("AuthorizationPolicy shop/p")
	// The server forgets for a moment that it serves them, as one does that starts.
	api.unserve(model.SecurityGroup, "authorizationpolicies")
	api.put("customresourcedefinitions.apiextensions.k8s.io", object{"metadata": object{"name": policies, "annotations": object{"a": "b"}}})
	eventually(t, "it asks again", func() bool {
		return api.times("missing list") > 4 && strings.Contains(fmt.Sprint(c.source.Problems()), "none of the versions")
	})
	if c.has() != "AuthorizationPolicy shop/p" {
		t.Fatal("the policy was dropped because an answer was not found")
	}
	api.definePolicies("v1")
	c.eventually("AuthorizationPolicy shop/p")
	api.delete("customresourcedefinitions.apiextensions.k8s.io", "", policies)
	c.eventually("")
	if p := c.source.Problems(); len(p) != 0 {
		t.Errorf("problems: %v", p)
	}
}

func TestABetterVersionIsTakenWhenItComes(t *testing.T) {
	api := newAPIServer(t)
	api.definePolicies("v1beta1")
	api.put(policies, policyObject("80"))
	c := follow(t, api).loaded()
	// The definition says so, and the server serves it a moment later.
	api.put("customresourcedefinitions.apiextensions.k8s.io", object{"metadata": object{"name": policies}})
	asked := api.times("missing list")
	eventually(t, "it looks", func() bool { return api.times("missing list") > asked })
	api.mu.Lock()
	api.served["security.istio.io/v1/authorizationpolicies"] = "AuthorizationPolicy"
	api.mu.Unlock()
	eventually(t, "v1 is followed", func() bool { return strings.Contains(c.logged(), "version=v1\n") })
	api.put(policies, policyObject("81"))
	eventually(t, "v1", func() bool { return c.get(policyKey).APIVersion == "security.istio.io/v1" })
	for _, b := range c.batches {
		for _, ch := range b {
			if ch.Object == nil {
				t.Error("the policy was gone in between")
			}
		}
	}
}

func TestAnInvalidVersionLeavesTheOneBeforeIt(t *testing.T) {
	api := newAPIServer(t)
	api.definePolicies("v1")
	api.put(policies, policyObject("80"))
	c := follow(t, api).loaded()
	port := func() string {
		o := c.get(policyKey)
		if o == nil {
			return ""
		}
		return o.Value.(*securityv1.AuthorizationPolicy).Spec.Rules[0].To[0].Operation.Ports[0]
	}
	invalid := policyObject("http")
	invalid["metadata"].(object)["generation"] = 77
	api.put(policies, invalid)
	eventually(t, "it is refused", func() bool { return len(c.source.Refused()) == 1 })
	r := c.source.Refused()[0]
	for _, want := range []string{"spec.rules[0].to[0].operation.ports[0]", "write a port number", "the version before it stays in force"} {
		if r.Key != policyKey || r.Generation != 77 || !strings.Contains(r.Condition.Message, want) {
			t.Errorf("refused: %+v, want %s", r, want)
		}
	}
	if p := c.source.Problems(); port() != "80" || len(p) != 1 || p[0].Object != "AuthorizationPolicy shop/p" || p[0].Field == "" || p[0].Fix == "" {
		t.Errorf("port %s, problems %+v", port(), p)
	}
	if !strings.Contains(c.logged(), "spec.rules[0].to[0].operation.ports[0]") {
		t.Error("the log does not say so")
	}
	api.put(policies, policyObject("81"))
	eventually(t, "the good one", func() bool { return port() == "81" })
	if len(c.source.Refused())+len(c.source.Problems()) > 0 {
		t.Errorf("still: %v", c.source.Problems())
	}
	// Another object of the name has no version before it, and counts in its strictest reading.
	api.put(policies, invalid)
	eventually(t, "it is refused", func() bool { return len(c.source.Refused()) == 1 })
	api.mu.Lock()
	delete(api.objects[policies], "shop/p")
	api.mu.Unlock()
	api.put(policies, policyObject("https"))
	eventually(t, "it allows nothing", func() bool { return len(c.get(policyKey).Value.(*securityv1.AuthorizationPolicy).Spec.Rules) == 0 })
	if r := c.source.Refused(); len(r) != 1 || !strings.Contains(r[0].Condition.Message, "in force in its strictest reading") {
		t.Errorf("refused: %+v", r)
	}
	api.delete(policies, "shop", "p")
	eventually(t, "nothing is wrong", func() bool { return len(c.source.Problems()) == 0 })
}

func TestWhatDoesNotMatterMakesNoWork(t *testing.T) {
	api := newAPIServer(t)
	api.put("pods", podObject("a", "10.0.0.1"))
	api.put("nodes", object{"metadata": object{"name": "n1"}})
	c := follow(t, api).loaded()
	for i := range 20 {
		o := podObject("a", "10.0.0.1")
		o["metadata"].(object)["annotations"] = object{"example.com/x": fmt.Sprint(i)}
		o["status"].(object)["startTime"] = time.Unix(int64(i), 0).UTC().Format(time.RFC3339)
		api.put("pods", o)
		api.put("nodes", object{"metadata": object{"name": "n1"}, "status": object{"conditions": []object{{"type": "Ready", "status": "True", "message": fmt.Sprint(i)}}}})
	}
	api.put("pods", podObject("a", "10.0.0.2"))
	eventually(t, "the address", func() bool { return c.get(model.PodKey("shop", "a")).Value.(*corev1.Pod).Status.PodIP == "10.0.0.2" })
	if c.count() != 2 {
		t.Errorf("%d batches, want 2", c.count())
	}
}

func TestChangesGatherWhileABatchIsApplied(t *testing.T) {
	api := newAPIServer(t)
	c := follow(t, api).loaded()
	c.gate.Lock()
	api.put("pods", podObject("first", "10.0.0.1"))
	eventually(t, "it is being applied", func() bool {
		c.source.queue.mu.Lock()
		defer c.source.queue.mu.Unlock()
		return len(c.source.queue.pending) == 0 && c.seen("first")
	})
	for i := range 50 {
		api.put("pods", podObject(fmt.Sprint("p", i%10), fmt.Sprint("10.0.1.", i)))
	}
	eventually(t, "they have come", func() bool { return c.seen("p9") && c.address("p9") == "10.0.1.49" })
	c.gate.Unlock()
	eventually(t, "applied", func() bool { return c.get(model.PodKey("shop", "p9")) != nil })
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.batches); n != 3 || len(c.batches[1]) != 1 || len(c.batches[2]) != 10 {
		t.Errorf("%d batches", n)
	}
	for i := range 10 {
		if got, want := c.objects[model.PodKey("shop", fmt.Sprint("p", i))].Value.(*corev1.Pod).Status.PodIP, fmt.Sprint("10.0.1.", 40+i); got != want {
			t.Errorf("of p%d's addresses %s was handed on, and %s is the last", i, got, want)
		}
	}
}

// seen says whether a pod has arrived, applied or not.
func (c *cluster) seen(name string) bool { return c.address(name) != "" }

func (c *cluster) address(name string) string {
	c.source.mu.Lock()
	defer c.source.mu.Unlock()
	for k, sink := range c.source.sinks {
		if e, ok := sink.objects[model.PodKey("shop", name)]; k.name == "Pod" && ok {
			return e.live.Value.(*corev1.Pod).Status.PodIP
		}
	}
	return ""
}

func TestAServerThatIsAwayChangesNothing(t *testing.T) {
	api := newAPIServer(t)
	api.definePolicies("v1")
	api.put(policies, policyObject("80"))
	api.put("pods", podObject("stays", "10.0.0.1"))
	api.put("pods", podObject("goes", "10.0.0.2"))
	c := follow(t, api).loaded()
	before := c.has()
	api.stop()
	eventually(t, "it is noticed", func() bool { return c.source.Note() != "" })
	if c.has() != before || c.source.Ready() != nil {
		t.Errorf("it has %s, ready: %v", c.has(), c.source.Ready())
	}
	if p := c.source.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, "connection refused") {
		t.Errorf("problems: %v", p)
	}
	time.Sleep(time.Second) // several attempts
	api.delete("pods", "shop", "goes")
	api.put("pods", podObject("comes", "10.0.0.3"))
	api.start(api.addr)
	c.eventually("AuthorizationPolicy shop/p, Pod shop/comes, Pod shop/stays")
	eventually(t, "it is back", func() bool { return c.source.Note() == "" })
	log := c.logged()
	if strings.Count(log, "cannot be reached") != 1 || strings.Count(log, "is back") != 1 || strings.Contains(log, "level=ERROR") {
		t.Errorf("the log: %s", log)
	}
}

func TestAServerThatIsNotThereYetIsWaitedFor(t *testing.T) {
	api := newAPIServer(t)
	api.stop()
	c := follow(t, api)
	eventually(t, "said", func() bool {
		err := c.source.Ready()
		return err != nil && strings.Contains(err.Error(), "connection refused")
	})
	api.put("pods", podObject("a", "10.0.0.1"))
	api.set("*", 503) // it starts
	api.start(api.addr)
	time.Sleep(500 * time.Millisecond)
	if c.count() > 0 {
		t.Error("it began with a server that does not answer")
	}
	api.set("*", 0)
	c.eventually("Pod shop/a")
}

func TestItEndsWhileTheServerIsSilent(t *testing.T) {
	api := newAPIServer(t)
	api.definePolicies("v1")
	api.set("missing list", silence)
	c := follow(t, api)
	eventually(t, "it asks", func() bool { return api.times("missing list") > 0 })
	ended := make(chan struct{})
	go func() { c.end(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(findTime * 8 / 10): // without it, the client library's own 32 s
		t.Error("it waits for an answer that nobody needs")
		<-ended
	}
}
