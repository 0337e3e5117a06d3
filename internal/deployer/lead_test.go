package deployer

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

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
