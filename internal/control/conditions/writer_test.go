package conditions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	kubetesting "k8s.io/client-go/testing"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/replica"
	kubesource "lateen.dev/lateen/internal/source/kube"
	"lateen.dev/lateen/internal/translate"
)

var (
	policy   = model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: "shop", Name: "a"}
	resource = map[string]schema.GroupVersionResource{
		"AuthorizationPolicy": {Group: model.SecurityGroup, Version: "v1", Resource: "authorizationpolicies"},
		"ServiceEntry":        {Group: model.NetworkGroup, Version: "v1", Resource: "serviceentries"},
		"Gateway":             {Group: model.GatewayGroup, Version: "v1", Resource: "gateways"},
		"GatewayClass":        {Group: model.GatewayGroup, Version: "v1", Resource: "gatewayclasses"},
		"Service":             {Version: "v1", Resource: "services"},
	}
)

// rig is an API server in memory, what the replicas are said to know, and a writer.
type rig struct {
	t       *testing.T
	client  *fake.FakeDynamicClient
	store   *model.Store
	writer  *Writer
	version atomic.Int64
	writes  atomic.Int64 // patches that were taken
	asked   atomic.Int64 // requests of any kind
	led     atomic.Int64 // how often the writer began to lead
	log     said
	unready bool // whether Gateways that are put have no ready pod

	mu       sync.Mutex
	verdict  replica.Verdict
	refusals map[model.Key]kubesource.Refused
	fail     func(kubetesting.Action) error
	now      time.Time
	results  map[string]int
}

type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func newRig(t *testing.T) *rig {
	lists := map[schema.GroupVersionResource]string{}
	for kind, gvr := range resource {
		lists[gvr] = kind + "List"
	}
	r := &rig{t: t, client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists), store: model.NewStore(),
		verdict: replica.Verdict{Status: model.True, Reason: wellknown.ReasonProgrammed, Message: "all"}, refusals: map[model.Key]kubesource.Refused{}, results: map[string]int{}}
	r.client.PrependReactor("patch", "*", r.patched)
	r.client.PrependReactor("*", "*", func(a kubetesting.Action) (bool, runtime.Object, error) {
		r.asked.Add(1)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.fail != nil {
			if err := r.fail(a); err != nil {
				return true, nil, err
			}
		}
		return false, nil, nil
	})
	r.writer = New(Options{Client: r.client, Cluster: r, Store: r.store, Controllers: []string{wellknown.LateenWaypointController}, Observer: r, Now: r.clock, Prepare: func(context.Context) { r.led.Add(1) },
		Logger: slog.New(slog.NewTextHandler(&r.log, nil)), Programmed: func(model.Key, replica.Version) replica.Verdict {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.verdict
		}})
	return r
}

// patched does what an API server does with a merge patch of a status.
func (r *rig) patched(a kubetesting.Action) (bool, runtime.Object, error) {
	p := a.(kubetesting.PatchAction)
	if a.GetSubresource() != "status" || p.GetPatchType() != types.MergePatchType {
		return true, nil, fmt.Errorf("%s of %q", p.GetPatchType(), a.GetSubresource())
	}
	var patch struct {
		Metadata struct{ ResourceVersion, UID string }
		Status   map[string]any
	}
	if err := json.Unmarshal(p.GetPatch(), &patch); err != nil {
		return true, nil, err
	}
	o, err := r.client.Tracker().Get(a.GetResource(), a.GetNamespace(), p.GetName())
	if err != nil {
		return true, nil, err
	}
	u := o.(*unstructured.Unstructured).DeepCopy()
	if patch.Metadata.ResourceVersion != u.GetResourceVersion() || patch.Metadata.UID != string(u.GetUID()) {
		return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), p.GetName(), errors.New("it has changed"))
	}
	status, _, _ := unstructured.NestedMap(u.Object, "status")
	if status == nil {
		status = map[string]any{}
	}
	for k, v := range patch.Status {
		if status[k] = v; v == nil {
			delete(status, k)
		}
	}
	u.Object["status"] = status
	u.SetResourceVersion(strconv.FormatInt(r.version.Add(1), 10))
	r.writes.Add(1)
	return true, u, r.client.Tracker().Update(a.GetResource(), u, a.GetNamespace())
}

func (r *rig) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now.IsZero() {
		return time.Now()
	}
	return r.now
}

func (r *rig) Resource(_, kind string) (schema.GroupVersionResource, bool) {
	gvr, ok := resource[kind]
	return gvr, ok
}

func (r *rig) Refusal(key model.Key) (kubesource.Refused, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	refused, ok := r.refusals[key]
	return refused, ok
}

func (r *rig) StatusWritten(_, result string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results[result]++
}

func (r *rig) StatusLag(time.Duration) {}

// put puts an object into the API server, and with conditions into the model.
func (r *rig) put(key model.Key, uid string, generation int64, value metav1.Object, status map[string]any, conditions ...model.Condition) {
	r.t.Helper()
	gvr := resource[key.Kind]
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gvr.GroupVersion().String(), "kind": key.Kind}}
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	u.SetUID(types.UID(uid))
	u.SetGeneration(generation)
	u.SetResourceVersion(strconv.FormatInt(r.version.Add(1), 10))
	if before, err := r.client.Tracker().Get(gvr, key.Namespace, key.Name); err == nil && status == nil {
		status, _, _ = unstructured.NestedMap(before.(*unstructured.Unstructured).Object, "status")
		_ = r.client.Tracker().Delete(gvr, key.Namespace, key.Name)
	}
	if status != nil {
		u.Object["status"] = status
	}
	if err := r.client.Tracker().Create(gvr, u, key.Namespace); err != nil {
		r.t.Fatal(err)
	}
	if value == nil {
		return
	}
	value.SetNamespace(key.Namespace)
	value.SetName(key.Name)
	value.SetUID(types.UID(uid))
	value.SetGeneration(generation)
	r.store.Apply([]model.Change{{Key: key, Object: &model.Object{Key: key, Value: value}}})
	report := model.Report{Conditions: conditions}
	if gw, ok := value.(*gatewayv1.Gateway); ok {
		class, _ := r.store.GatewayClass(string(gw.Spec.GatewayClassName))
		report.Parts = &model.Parts{Listeners: translate.ListenerConditions(gw, class), Unready: r.unready}
	}
	r.store.SetReport(key, report)
}

// policyPut puts a policy that is in force.
func (r *rig) policyPut(generation int64) {
	r.t.Helper()
	r.put(policy, "u1", generation, &securityv1.AuthorizationPolicy{}, nil, inForce)
}

var inForce = model.Condition{Type: "Accepted", Status: model.True, Reason: "Accepted", Message: "the object is accepted as it is written"}

func (r *rig) say(v replica.Verdict) {
	r.mu.Lock()
	r.verdict = v
	r.mu.Unlock()
	r.writer.Changed(nil, true)
}

func (r *rig) fails(f func(kubetesting.Action) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = f
}

// lead has the writer lead until the function that it returns is called. It leads when lead returns: before, it hears of nothing.
func (r *rig) lead() (resign func()) {
	r.t.Helper()
	before := r.led.Load()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.writer.Lead(ctx) }()
	resign = sync.OnceFunc(func() { cancel(); <-done })
	r.t.Cleanup(resign)
	r.eventually("it leads", func() bool { return r.led.Load() > before })
	return resign
}

// result is how many attempts to write ended in one way. What a write does is seen before it is counted.
func (r *rig) result(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results[name]
}

// status is an object's conditions as "Type=Status/Reason@generation", and the whole of each.
func (r *rig) status(key model.Key) (string, map[string]map[string]any) {
	o, err := r.client.Tracker().Get(resource[key.Kind], key.Namespace, key.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	var texts []string
	whole := map[string]map[string]any{}
	for _, raw := range rawConditions(o.(*unstructured.Unstructured)) {
		c := raw.(map[string]any)
		line := fmt.Sprintf("%v=%v/%v", c["type"], c["status"], c["reason"])
		if g := number(c["observedGeneration"]); g > 0 {
			line += fmt.Sprintf("@%d", g)
		}
		texts = append(texts, line)
		whole[fmt.Sprint(c["type"])] = c
	}
	return strings.Join(texts, " "), whole
}

func (r *rig) eventually(what string, condition func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); {
		if time.Now().After(deadline) {
			r.t.Fatalf("it never came about that %s\n%s", what, r.log.String())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (r *rig) comes(key model.Key, want string) map[string]map[string]any {
	r.t.Helper()
	got := ""
	for deadline := time.Now().Add(2 * time.Minute); got != want; {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: %s\nwant %s\n%s", key, got, want, r.log.String())
		}
		time.Sleep(5 * time.Millisecond)
		got, _ = r.status(key)
	}
	_, whole := r.status(key)
	return whole
}

// idle waits until nothing is left to do.
func (r *rig) idle() {
	r.t.Helper()
	time.Sleep(settleTime) // for what may still come of what a test did
	r.eventually("nothing waits", func() bool { return len(r.writer.feed.Wake()) == 0 && r.writer.Waiting() == 0 })
}

const good = "Accepted=True/Accepted@%d lateen.dev/Programmed=True/Programmed@%d"

func TestConditionsAreWrittenOnceForEachGeneration(t *testing.T) {
	r := newRig(t)
	r.policyPut(1)
	r.lead()
	whole := r.comes(policy, fmt.Sprintf(good, 1, 1))
	if at, err := time.Parse(time.RFC3339, fmt.Sprint(whole["Accepted"]["lastTransitionTime"])); err != nil || time.Since(at) > time.Hour {
		t.Errorf("since %v: %v", whole["Accepted"]["lastTransitionTime"], err)
	}
	r.idle()
	if n := r.writes.Load(); n != 1 {
		t.Errorf("%d writes", n)
	}
	asked := r.asked.Load()
	r.say(replica.Verdict{Status: model.True, Reason: wellknown.ReasonProgrammed, Message: "all"})
	r.store.SetConditions(policy, nil)
	r.store.SetConditions(policy, []model.Condition{inForce})
	r.writer.Changed([]model.Key{policy}, false)
	r.idle()
	if n := r.asked.Load() - asked; n != 0 {
		t.Errorf("%d requests although nothing is new", n)
	}
	r.policyPut(2)
	r.comes(policy, fmt.Sprintf(good, 2, 2))
}

func TestALaggardIsNamedUntilItAcknowledges(t *testing.T) {
	r := newRig(t)
	r.say(replica.Verdict{Status: model.False, Reason: wellknown.ReasonAwaited, Message: "not acknowledged yet by the proxy of node n1"})
	r.policyPut(1)
	r.lead()
	whole := r.comes(policy, "Accepted=True/Accepted@1 lateen.dev/Programmed=False/AwaitingProxies@1")
	if m := fmt.Sprint(whole[wellknown.Programmed]["message"]); !strings.Contains(m, "node n1") {
		t.Errorf("the message is %s", m)
	}
	r.say(replica.Verdict{Status: model.True, Reason: wellknown.ReasonProgrammed, Message: "all"})
	r.comes(policy, fmt.Sprintf(good, 1, 1))
	// What all had stays had, whoever comes or goes; what one refuses does not.
	r.say(replica.Verdict{Status: model.False, Reason: wellknown.ReasonAwaited, Message: "replica b cannot be asked"})
	r.writer.Changed([]model.Key{policy}, false)
	r.idle()
	r.comes(policy, fmt.Sprintf(good, 1, 1))
	r.say(replica.Verdict{Status: model.False, Reason: wellknown.ReasonRefused, Message: "n1 refuses it"})
	r.writer.Changed([]model.Key{policy}, false)
	r.comes(policy, "Accepted=True/Accepted@1 lateen.dev/Programmed=False/RefusedByProxy@1")
	r.say(replica.Verdict{Status: model.True, Reason: wellknown.ReasonProgrammed, Message: "all"})
	r.comes(policy, fmt.Sprintf(good, 1, 1))
}

func TestANewLeaderChangesNothingThatIsSo(t *testing.T) {
	r := newRig(t)
	r.policyPut(1)
	resign := r.lead()
	whole := r.comes(policy, fmt.Sprintf(good, 1, 1))
	resign()
	if r.writer.Waiting() != 0 {
		t.Error("who does not lead waits for writes")
	}
	writes := r.writes.Load()
	// The next one does not know the other replicas yet.
	r.say(replica.Verdict{Status: model.False, Reason: wellknown.ReasonAwaited, Message: "replica b cannot be asked"})
	r.lead()
	r.idle()
	r.writer.Changed([]model.Key{policy}, true)
	r.idle()
	if n := r.writes.Load() - writes; n != 0 {
		t.Errorf("%d writes", n)
	}
	if _, now := r.status(policy); now[wellknown.Programmed]["lastTransitionTime"] != whole[wellknown.Programmed]["lastTransitionTime"] {
		t.Errorf("since %v, was %v", now[wellknown.Programmed]["lastTransitionTime"], whole[wellknown.Programmed]["lastTransitionTime"])
	}
}

func TestTheTimeOfAStatusIsKeptWhileItLasts(t *testing.T) {
	r := newRig(t)
	const long = "2020-01-02T03:04:05Z"
	r.put(policy, "u1", 2, &securityv1.AuthorizationPolicy{}, map[string]any{"conditions": []any{
		map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "before", "observedGeneration": "1", "lastTransitionTime": long},
		map[string]any{"type": wellknown.Programmed, "status": "False", "reason": "AwaitingProxies", "observedGeneration": int64(1), "lastTransitionTime": long},
		map[string]any{"type": "Reconciled", "status": "True", "reason": "Theirs", "lastTransitionTime": long, "lastProbeTime": long},
		map[string]any{"type": "istio.io/WaypointBound", "status": "True", "reason": "Old"},
	}, "observedGeneration": int64(1)}, inForce)
	r.lead()
	whole := r.comes(policy, "Accepted=True/Accepted@2 lateen.dev/Programmed=True/Programmed@2 Reconciled=True/Theirs")
	if since := whole["Accepted"]["lastTransitionTime"]; since != long {
		t.Errorf("Accepted is so since %v", since)
	}
	if since := whole[wellknown.Programmed]["lastTransitionTime"]; since == long {
		t.Errorf("Programmed is so since %v", since)
	}
	if whole["Reconciled"]["lastProbeTime"] != long {
		t.Errorf("another's condition is %v", whole["Reconciled"])
	}
}

func TestAConflictIsTriedAgain(t *testing.T) {
	r := newRig(t)
	r.policyPut(1)
	var once sync.Once
	r.fails(func(a kubetesting.Action) (err error) {
		if a.GetVerb() == "patch" {
			once.Do(func() { err = apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("it has changed")) })
		}
		return err
	})
	r.lead()
	r.comes(policy, fmt.Sprintf(good, 1, 1))
	if n := r.result(resultConflict); n != 1 {
		t.Errorf("%d conflicts", n)
	}
}

func TestAServerThatIsAwayGetsTheNewestOnly(t *testing.T) {
	r := newRig(t)
	r.lead()
	r.idle()
	r.fails(func(kubetesting.Action) error { return errors.New("dial tcp: connection refused") })
	for g := range int64(20) {
		r.policyPut(g + 1)
		time.Sleep(20 * time.Millisecond)
	}
	r.eventually("it was tried", func() bool { return r.result(resultAway) > 1 })
	if n := r.writer.Waiting(); n != 1 {
		t.Errorf("%d wait", n)
	}
	r.fails(nil)
	r.comes(policy, fmt.Sprintf(good, 20, 20))
	if n := r.writes.Load(); n != 1 {
		t.Errorf("%d writes", n)
	}
	r.eventually("it says that the API server is back", func() bool { return strings.Contains(r.log.String(), "can be written again") })
	if text := r.log.String(); strings.Count(text, "the API server does not answer") != 1 {
		t.Errorf("the log:\n%s", text)
	}
}

func TestMissingRightsAreSaidOnceAndStopNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		text string
	}{
		"rights":  {apierrors.NewForbidden(schema.GroupResource{Resource: "authorizationpolicies"}, "a", errors.New("no")), "authorizationpolicies/status"},
		"version": {apierrors.NewNotFound(schema.GroupResource{Resource: "authorizationpolicies"}, "a"), "upgrade the chart lateen-crds"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			entry := model.Key{Group: model.NetworkGroup, Kind: "ServiceEntry", Namespace: "shop", Name: "e"}
			r.fails(func(a kubetesting.Action) error {
				if a.GetVerb() == "patch" && a.GetResource().Resource == "authorizationpolicies" {
					return c.err
				}
				return nil
			})
			r.policyPut(1)
			r.put(entry, "u2", 1, &networkingv1.ServiceEntry{}, nil, inForce)
			r.lead()
			r.comes(entry, fmt.Sprintf(good, 1, 1))
			r.eventually("it was tried again", func() bool { return r.result(resultRefused) > 2 })
			if text := r.log.String(); strings.Count(text, "cannot be written") != 1 || !strings.Contains(text, c.text) {
				t.Errorf("the log:\n%s", text)
			}
			r.fails(nil)
			r.comes(policy, fmt.Sprintf(good, 1, 1))
		})
	}
}

func TestARefusedVersionIsToldToItsAuthor(t *testing.T) {
	r := newRig(t)
	r.policyPut(1)
	r.lead()
	r.comes(policy, fmt.Sprintf(good, 1, 1))
	// The store keeps the version before it.
	r.put(policy, "u1", 2, nil, nil)
	r.mu.Lock()
	r.refusals[policy] = kubesource.Refused{Key: policy, Generation: 2, Condition: model.Condition{Message: "spec.rules[0]: it is wrong; correct it"}}
	r.mu.Unlock()
	r.writer.Judged(policy)
	whole := r.comes(policy, "Accepted=False/Invalid@2 lateen.dev/Programmed=False/NotAccepted@2")
	if m := whole["Accepted"]["message"]; m != "spec.rules[0]: it is wrong; correct it" {
		t.Errorf("the message is %v", m)
	}
	r.mu.Lock()
	delete(r.refusals, policy)
	r.mu.Unlock()
	r.policyPut(3)
	r.comes(policy, fmt.Sprintf(good, 3, 3))
}

func TestOnlyWhatIsOursIsSpokenOf(t *testing.T) {
	r := newRig(t)
	key := func(kind, name string) model.Key {
		return model.Key{Group: model.GatewayGroup, Kind: kind, Namespace: map[string]string{"Gateway": "shop"}[kind], Name: name}
	}
	class := func(controller gatewayv1.GatewayController) *gatewayv1.GatewayClass {
		return &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{ControllerName: controller}}
	}
	gateway := func(class gatewayv1.ObjectName) *gatewayv1.Gateway {
		return &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: class}}
	}
	r.put(key("GatewayClass", "lateen-waypoint"), "c1", 1, class(wellknown.LateenWaypointController), nil, inForce)
	r.put(key("GatewayClass", "other"), "c2", 1, class("example.com/other"), nil, inForce)
	r.put(key("Gateway", "w"), "g1", 1, gateway("lateen-waypoint"), nil, inForce)
	r.put(key("Gateway", "lost"), "g2", 1, gateway("lateen-waypoint"), nil, model.Condition{Type: "Accepted", Status: model.False, Reason: "AddressNotAssigned", Message: "no address"})
	r.put(key("Gateway", "theirs"), "g3", 1, gateway("other"), nil, inForce)
	r.put(key("Gateway", "nobody's"), "g4", 1, gateway("none"), nil, inForce)
	bound := model.Condition{Type: "WaypointBound", Status: model.True, Reason: "Accepted", Message: "connections go through waypoint shop/w"}
	r.put(model.ServiceKey("shop", "s"), "s1", 0, &corev1.Service{}, nil, inForce, bound)
	r.put(model.ServiceKey("shop", "plain"), "s2", 0, &corev1.Service{}, nil, inForce)
	r.put(model.ServiceKey("shop", "unbound"), "s3", 0, &corev1.Service{}, nil, model.Condition{Type: "Accepted", Status: model.True, Reason: "WaypointIsNotReady", Message: "not ready"})
	r.lead()
	r.comes(key("GatewayClass", "lateen-waypoint"), "Accepted=True/Accepted@1")
	r.comes(key("Gateway", "w"), "Accepted=True/Accepted@1 Programmed=True/Programmed@1")
	r.comes(key("Gateway", "lost"), "Accepted=True/Accepted@1 Programmed=False/AddressNotAssigned@1")
	r.comes(model.ServiceKey("shop", "s"), "istio.io/WaypointBound=True/Accepted")
	r.comes(model.ServiceKey("shop", "unbound"), "istio.io/WaypointBound=False/WaypointIsNotReady")
	r.idle()
	for _, k := range []model.Key{key("GatewayClass", "other"), key("Gateway", "theirs"), key("Gateway", "nobody's"), model.ServiceKey("shop", "plain")} {
		if got, _ := r.status(k); got != "" {
			t.Errorf("%s: %s", k, got)
		}
	}
	// Whose a Gateway is follows its class.
	r.put(key("GatewayClass", "none"), "c3", 1, class(wellknown.LateenWaypointController), nil, inForce)
	r.comes(key("Gateway", "nobody's"), "Accepted=True/Accepted@1 Programmed=True/Programmed@1")
	// A service that asks for no waypoint any more is not said to have one.
	r.store.SetConditions(model.ServiceKey("shop", "s"), []model.Condition{inForce})
	r.comes(model.ServiceKey("shop", "s"), "")
}

func TestAStormIsWrittenAtItsPace(t *testing.T) {
	r := newRig(t)
	r.lead()
	r.idle()
	const many = 200
	start := time.Now()
	for i := range many {
		key := policy
		key.Name = fmt.Sprint("p", i)
		r.put(key, key.Name, 1, &securityv1.AuthorizationPolicy{}, nil, inForce)
	}
	r.eventually("all are written", func() bool { return r.writes.Load() == many })
	if took, least := time.Since(start), time.Duration(float64(many-writeBurst)/writesPerSecond*float64(time.Second))*8/10; took < least {
		t.Errorf("%d writes in %s", many, took)
	}
}
