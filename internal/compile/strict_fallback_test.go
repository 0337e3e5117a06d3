package compile

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
)

const staticStrict = "istio-system/istio_converted_static_strict"

// putRefused compiles what stands in for a PeerAuthentication that is refused.
func (p *plane) putRefused(namespace, name string, born int64, spec string) model.Key {
	p.t.Helper()
	key := policyKey("PeerAuthentication", namespace, name)
	created, err := json.Marshal(metav1.NewTime(time.Unix(born, 0)))
	if err != nil {
		p.t.Fatal(err)
	}
	raw := []byte(`{"metadata":{"name":"` + name + `","namespace":"` + namespace + `","creationTimestamp":` + string(created) + `},"spec":` + spec + `}`)
	if value, _ := files.Served(key, raw); value != nil {
		p.t.Fatalf("%s is not refused", spec)
	}
	value, effect := files.Strictest(key, raw)
	if value == nil {
		p.t.Fatalf("nothing stands in for %s", spec)
	}
	p.Apply([]model.Change{{Key: key, Object: &model.Object{Key: key, Value: value, Refused: effect}}})
	return key
}

func (p *plane) putAged(namespace, name string, born int64, spec string) {
	p.t.Helper()
	all := changes(p.t, peerAuthentication(namespace, name, spec))
	all[0].Object.Value.(*securityv1.PeerAuthentication).CreationTimestamp = metav1.NewTime(time.Unix(born, 0))
	p.Apply(all)
}

func (p *plane) carries(pod string, want ...string) {
	p.t.Helper()
	if got := p.workload("shop", pod).GetAuthorizationPolicies(); !slices.Equal(got, want) {
		p.t.Errorf("%s names %v, want %v", pod, got, want)
	}
}

// What stands in for a refused PeerAuthentication may be older than one that is as it should be. It takes nothing of its strictness.
func TestAStandInNeverLoosens(t *testing.T) {
	const open = `{"mtls":{"mode":"PERMISSIVE"},"portLevelMtls":{"80":{"mode":"PERMISSIVE"}}}`
	for _, scope := range []string{"shop", "istio-system"} {
		p := newPlane(t)
		p.put(pod("shop", "web-1", "10.0.0.9", "web"))
		p.putAged(scope, "good", 2000, "mtls: {mode: STRICT}")
		p.carries("web-1", staticStrict)
		bad := p.putRefused(scope, "bad", 1000, open)
		p.carries("web-1", staticStrict)
		if c := p.condition(policyKey("PeerAuthentication", scope, "good")); c.Status != model.True || c.Reason != "Accepted" {
			t.Errorf("the author of what counts is told %+v", c)
		}
		if c := p.condition(bad); c.Status != model.False || c.Reason != "Invalid" {
			t.Errorf("the author of what is refused is told %+v", c)
		}
		p.remove(policyKey("PeerAuthentication", scope, "good"))
		p.carries("web-1")
		// The other way round both hold as well.
		p.putRefused(scope, "bad", 1000, `{"mtls":{"mode":"STRICT"},"except":["a"]}`)
		p.putAged(scope, "good", 2000, "mtls: {mode: PERMISSIVE}")
		p.carries("web-1", staticStrict)
		// A younger one counts no more than its earlier versions did.
		p.putRefused(scope, "bad", 3000, `{"mtls":{"mode":"STRICT"},"except":["a"]}`)
		p.carries("web-1")
	}
}

func TestAStandInThatSelectsNeverLoosens(t *testing.T) {
	p := newPlane(t)
	p.put(pod("shop", "web-1", "10.0.0.9", "web"))
	p.putAged("shop", "good", 2000, "selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {81: {mode: PERMISSIVE}}")
	own := p.workload("shop", "web-1").GetAuthorizationPolicies()
	if len(own) != 1 {
		t.Fatalf("names %v", own)
	}
	p.putRefused("shop", "bad", 1000, `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"PERMISSIVE"},"portLevelMtls":{"80":{"mode":"PERMISSIVE"},"80800":{"mode":"PERMISSIVE"}}}`)
	p.carries("web-1", own...)
	if c := p.condition(policyKey("PeerAuthentication", "shop", "good")); c.Status != model.True || c.Reason != "Accepted" {
		t.Errorf("the author of what counts is told %+v", c)
	}
	p.putRefused("shop", "bad", 1000, `{"selector":{"matchLabels":{"app":"web"}},"portLevelMtls":{"80800":{"mode":"STRICT"}}}`)
	p.carries("web-1", append(own, staticStrict)...)
}

// What a workload inherits is strict, too: a stand-in opens nothing of it, whether one or several stand in and whoever was there first.
func TestAStandInOpensNothingThatIsInherited(t *testing.T) {
	const open, strict = `{"mtls":{"mode":"PERMISSIVE"},"portLevelMtls":{"80":{"mode":"PERMISSIVE"}}}`, `{"mtls":{"mode":"STRICT"},"except":["a"]}`
	for name, given := range map[string]func(p *plane){
		"of the namespace, by one that selects": func(p *plane) {
			p.putAged("shop", "all", 1000, "mtls: {mode: STRICT}")
			p.putRefused("shop", "bad", 2000, `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"PERMISSIVE"},"portLevelMtls":{"80800":{"mode":"PERMISSIVE"}}}`)
		},
		"of the mesh, by one of the namespace": func(p *plane) {
			p.putAged("istio-system", "all", 1000, "mtls: {mode: STRICT}")
			p.putRefused("shop", "bad", 500, open)
		},
		"of the mesh, where that is one that stands in": func(p *plane) {
			p.putRefused("istio-system", "all", 1000, strict)
			p.putRefused("shop", "bad", 2000, open)
		},
		"by an older of two of one namespace": func(p *plane) {
			p.putRefused("shop", "bad", 1000, open)
			p.putRefused("shop", "good", 2000, strict)
		},
		"by an older of two for the mesh": func(p *plane) {
			p.putRefused("istio-system", "bad", 1000, open)
			p.putRefused("istio-system", "good", 2000, strict)
		},
		"by an older of two that select": func(p *plane) {
			p.putRefused("shop", "bad", 1000, `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"PERMISSIVE"},"portLevelMtls":{"0":{"mode":"PERMISSIVE"}}}`)
			p.putRefused("shop", "good", 2000, `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"QUANTUM"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			p.put(pod("shop", "web-1", "10.0.0.9", "web"))
			given(p)
			p.carries("web-1", staticStrict)
		})
	}
}

// Whoever admits plaintext is told that a stand-in keeps it out: "the object is accepted as it is written" would send its author looking elsewhere.
func TestWhoeverAStandInClosesIsTold(t *testing.T) {
	for name, scope := range map[string]struct{ namespace, good, bad, said string }{
		"those that select": {"shop", "selector: {matchLabels: {app: web}}, mtls: {mode: PERMISSIVE}", `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"QUANTUM"}}`, "1 of its 1 workloads"},
		"a port of those that select": {"shop", "selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {81: {mode: PERMISSIVE}}",
			`{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"QUANTUM"}}`, "1 of its 1 workloads"},
		"the namespace": {"shop", "mtls: {mode: PERMISSIVE}", `{"mtls":{"mode":"STRICT"},"except":["a"]}`, "its workloads"},
		"the mesh":      {"istio-system", "mtls: {mode: PERMISSIVE}", `{"mtls":{"mode":"STRICT"},"except":["a"]}`, "its workloads"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			good := policyKey("PeerAuthentication", scope.namespace, "good")
			p.put(pod("shop", "web-1", "10.0.0.9", "web"))
			p.putAged(scope.namespace, "good", 2000, scope.good)
			bad := p.putRefused(scope.namespace, "bad", 1000, scope.bad)
			if !slices.Contains(p.workload("shop", "web-1").GetAuthorizationPolicies(), staticStrict) {
				t.Fatal("it admits plaintext")
			}
			if c := p.condition(good); c.Status != model.True || c.Reason != "Conflicted" || !strings.Contains(c.Message, scope.said) || !strings.Contains(c.Message, scope.namespace+"/bad is refused") {
				t.Errorf("its author is told %+v", c)
			}
			p.remove(bad)
			if c := p.condition(good); c.Reason != "Accepted" {
				t.Errorf("once it is gone its author is told %+v", c)
			}
			p.putRefused(scope.namespace, "bad", 3000, scope.bad)
			if c := p.condition(good); c.Reason == "Conflicted" {
				t.Errorf("of one that came later its author is told %+v", c)
			}
		})
	}
}

// A selector of which nothing can be read chose some workloads before, and nobody can tell which.
func TestALostSelectorClosesItsNamespaceAlone(t *testing.T) {
	p := newPlane(t)
	p.put(pod("shop", "web-1", "10.0.0.9", "web") + pod("shop", "db-1", "10.0.0.10", "db") + pod("istio-system", "x", "10.0.0.11", "x"))
	p.putAged("shop", "all", 1000, "mtls: {mode: PERMISSIVE}")
	p.putAged("shop", "web", 1000, "selector: {matchLabels: {app: web}}, mtls: {mode: PERMISSIVE}")
	p.carries("web-1")
	bad := p.putRefused("shop", "bad", 2000, `{"selector":{"matchLabels":{"app":7}},"mtls":{"mode":"STRICT"}}`)
	p.carries("web-1", staticStrict)
	p.carries("db-1", staticStrict)
	for _, name := range []string{"all", "web"} {
		if c := p.condition(policyKey("PeerAuthentication", "shop", name)); c.Reason != "Conflicted" || !strings.Contains(c.Message, "shop/bad") {
			t.Errorf("the author of %s is told %+v", name, c)
		}
	}
	p.remove(bad)
	p.carries("web-1")
	p.carries("db-1")
	if c := p.condition(policyKey("PeerAuthentication", "shop", "all")); c.Reason != "Accepted" {
		t.Errorf("told %+v", c)
	}
	// One of the root namespace selects that namespace's own workloads.
	p.putRefused("istio-system", "bad", 2000, `{"selector":{"matchLabels":{"app":7}},"mtls":{"mode":"STRICT"}}`)
	p.carries("web-1")
	if got := p.workload("istio-system", "x").GetAuthorizationPolicies(); !slices.Equal(got, []string{staticStrict}) {
		t.Errorf("the root namespace's own names %v", got)
	}
}
