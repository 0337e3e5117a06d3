package deployer

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func gatewayOf(t *testing.T, u *unstructured.Unstructured) *gatewayv1.Gateway {
	t.Helper()
	gw := &gatewayv1.Gateway{}
	if err := convert(u, gw); err != nil {
		t.Fatal(err)
	}
	return gw
}

// lead has the deployer lead until the test ends.
func (r *rig) lead() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.deployer.Lead(ctx)
	}()
	r.t.Cleanup(func() { cancel(); <-done })
}

func (r *rig) eventually(what string, is func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		r.mu.Lock()
		ok := is()
		r.mu.Unlock()
		if ok {
			return
		}
	}
	r.t.Errorf("not seen: %s; written was %v", what, r.writes)
}

func TestOnlyOwnClassesAndNamespacesAreDeployed(t *testing.T) {
	named := func(namespace, name, class string) string {
		return strings.NewReplacer("namespace: shop", "namespace: "+namespace, "name: waypoint", "name: "+name, "lateen-waypoint", class).Replace(plainGateway)
	}
	r := newRig(t, named("shop", "ours", "lateen-waypoint"), named("shop", "of-istio", "istio-waypoint"), named("shop", "other", "other"), named("elsewhere", "far", "lateen-waypoint"))
	r.deployer.Namespaces = []string{"shop", "empty"}
	r.lead()
	r.eventually("the own Gateway", func() bool { return slices.Contains(r.writes, "Gateway/ours/status") })
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.writes {
		if !strings.Contains(w, "/ours") {
			t.Errorf("wrote %s", w)
		}
	}
}

func TestAClassOfIstiosIsDeployedWhereItIsAllowed(t *testing.T) {
	r := newRig(t, strings.Replace(plainGateway, "lateen-waypoint", "istio-waypoint", 1))
	r.deployer.IstioClass = true
	r.lead()
	r.eventually("Istio's Gateway", func() bool { return slices.Contains(r.writes, "Deployment/waypoint") })
}

func TestADeploymentThatGoesIsMadeAgain(t *testing.T) {
	r := newRig(t, plainGateway)
	r.lead()
	r.eventually("the waypoint", func() bool { return slices.Contains(r.writes, "Gateway/waypoint/status") })
	r.mu.Lock()
	r.writes = nil
	r.mu.Unlock()
	r.eventually("they are watched", r.watches.Began("deployments"))
	if err := r.client.Tracker().Delete(deployments, "shop", "waypoint"); err != nil {
		t.Fatal(err)
	}
	r.eventually("the Deployment again", func() bool { return slices.Contains(r.writes, "Deployment/waypoint") })
}

// looks is how often a Gateway's Deployment was applied.
func (r *rig) looks(name string) (n int) {
	for _, w := range r.writes {
		if w == "Deployment/"+name {
			n++
		}
	}
	return n
}

// change updates a Gateway in the API server.
func (r *rig) change(name string, edit func(u *unstructured.Unstructured)) {
	r.t.Helper()
	o, err := r.client.Tracker().Get(gateways, "shop", name)
	if err != nil {
		r.t.Fatal(err)
	}
	u := o.(*unstructured.Unstructured).DeepCopy()
	edit(u)
	if err := r.client.Tracker().Update(gateways, u, "shop"); err != nil {
		r.t.Fatal(err)
	}
}

func TestAChangeOfAStatusStartsNoFurtherLook(t *testing.T) {
	r := newRig(t, plainGateway, strings.NewReplacer("name: waypoint", "name: other", "uid-1", "uid-2").Replace(plainGateway))
	r.lead()
	r.eventually("both waypoints", func() bool {
		return slices.Contains(r.writes, "Gateway/waypoint/status") && slices.Contains(r.writes, "Gateway/other/status")
	})
	r.eventually("Gateways are watched", r.watches.Began("gateways"))
	before := map[string]int{}
	r.mu.Lock()
	before["waypoint"], before["other"] = r.looks("waypoint"), r.looks("other")
	r.mu.Unlock()
	const changes, strays = 6, 3 // the Deployment that was just made may begin looks of its own
	for i := range changes {
		r.change("waypoint", func(u *unstructured.Unstructured) {
			u.SetResourceVersion(strconv.Itoa(100 + i))
			u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply, Subresource: "status"}, {Manager: "somebody", Time: &metav1.Time{Time: time.Unix(int64(i), 0)}}})
			if err := unstructured.SetNestedField(u.Object, strconv.Itoa(i), "status", "note"); err != nil {
				t.Fatal(err)
			}
		})
		// Events of Gateways arrive in their order, so this one is behind that of the status.
		r.change("other", func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"team": strconv.Itoa(i)}) })
		r.eventually("a change of an annotation", func() bool { return r.looks("other") > before["other"]+i })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.looks("waypoint") - before["waypoint"]; n > strays {
		t.Errorf("%d looks at a Gateway of which only the status changed, %d times", n, changes)
	}
}

func TestAChangeThatMayMatterIsHeard(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(u *unstructured.Unstructured)
		heard bool
	}{
		"the status":     {func(u *unstructured.Unstructured) { u.Object["status"] = map[string]any{"a": "b"} }, false},
		"who wrote it":   {func(u *unstructured.Unstructured) { u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "a"}}) }, false},
		"its version":    {func(u *unstructured.Unstructured) { u.SetResourceVersion("7") }, false},
		"nothing":        {func(*unstructured.Unstructured) {}, false},
		"a label":        {func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) }, true},
		"an annotation":  {func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"a": "b"}) }, true},
		"the end":        {func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(9, 0)}) }, true},
		"another object": {func(u *unstructured.Unstructured) { u.SetUID("uid-2") }, true},
		"the spec": {func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, "b", "spec", "gatewayClassName")
		}, true},
		"spec and status": {func(u *unstructured.Unstructured) {
			u.Object["status"], u.Object["spec"] = map[string]any{"a": "b"}, map[string]any{}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			was := object(t, plainGateway)
			now := was.DeepCopy()
			c.edit(now)
			heard := false
			handler(func(*unstructured.Unstructured) { heard = true }, onlyStatus).OnUpdate(was, now)
			if heard != c.heard {
				t.Errorf("heard is %v", heard)
			}
			if was.GetResourceVersion() != "" || was.Object["status"] != nil {
				t.Error("the object of the cache was changed")
			}
		})
	}
}

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "--image is missing"},
		{[]string{"--image=a"}, "--control is missing"},
		{[]string{"--image=a", "--control=b", "--image-pull-policy=Often"}, "use Always, IfNotPresent or Never"},
		{[]string{"--image=a", "--control=b", "--requests=cpu=much"}, "--requests has cpu=much"},
		{[]string{"--image=a", "--control=b", "--log-level=loud"}, `--log-level is "loud"`},
		{[]string{"--image=a", "--control=b", "--log-format=xml"}, `--log-format is "xml"`},
	} {
		cmd := Command()
		cmd.SetArgs(c.args)
		if err := cmd.ExecuteContext(context.Background()); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v", c.args, err)
		}
	}
}
