package cluster

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lateen.dev/lateen/internal/check"
	"lateen.dev/lateen/internal/engine/api"
)

// policyThatSays is a policy of generation 2 with one condition in its status.
func policyThatSays(name, status, message string, generation int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
		"metadata": map[string]any{"namespace": "shop", "name": name, "generation": int64(2)},
		"status":   map[string]any{"conditions": []any{map[string]any{"type": "Accepted", "status": status, "message": message, "observedGeneration": generation}}}}}
}

// Where no replica can be asked nothing is said to be well that was not looked at, and what objects say of themselves is read.
func TestWhatCouldNotBeAskedIsNotKnown(t *testing.T) {
	definition := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "authorizationpolicies.security.istio.io"},
		"spec":     map[string]any{"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true}}}}}
	for name, x := range map[string]struct {
		objects  []*unstructured.Unstructured
		cause    []string
		problems []api.Problem // what the mesh's status has of it already
	}{
		"no definition": {nil, []string{"not known", "0 of 0 objects"}, nil},
		"none refused":  {[]*unstructured.Unstructured{definition, policyThatSays("a", "True", "in force", 2)}, []string{"not known: no object says", "0 of 1 objects"}, nil},
		"one refused":   {[]*unstructured.Unstructured{definition, policyThatSays("a", "False", "the port is wrong", 2)}, []string{"AuthorizationPolicy shop/a: the port is wrong", "LAT124"}, nil},
		"one that was":  {[]*unstructured.Unstructured{definition, policyThatSays("a", "False", "the port is wrong", 1)}, []string{"not known: no object says", "1 of 1 objects"}, nil},
		"one that is told": {[]*unstructured.Unstructured{definition, policyThatSays("a", "False", "the port is wrong", 2)}, []string{"AuthorizationPolicy shop/a: Invalid: the port is wrong"},
			[]api.Problem{{Object: "AuthorizationPolicy shop/a", Message: "Invalid: the port is wrong"}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := good()
			r.pages.status.Control.Error, r.pages.clocks, r.custom = "no replica answers", nil, x.objects
			r.pages.status.Problems = x.problems
			for _, got := range r.run(t, Installed).Results {
				switch got.Code {
				case "LAT127":
					if got.Outcome == check.OK || !strings.Contains(got.Cause, "not known") {
						t.Errorf("of the clocks: %+v", got)
					}
				case "LAT129":
					if got.Outcome != check.Warning || !strings.Contains(got.Fix, "LAT124") {
						t.Errorf("of the objects: %+v", got)
					}
					if strings.Count(got.Cause, "AuthorizationPolicy shop/a") > 1 {
						t.Errorf("told twice: %s", got.Cause)
					}
					for _, want := range x.cause {
						if !strings.Contains(got.Cause, want) {
							t.Errorf("%q is not in %q", want, got.Cause)
						}
					}
				}
			}
		})
	}
}

// What the control plane has no complaint about, a policy for waypoints say, may have no effect all the same: its status says so.
func TestWhatHasNoEffectIsNamed(t *testing.T) {
	definition := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "authorizationpolicies.security.istio.io"},
		"spec":     map[string]any{"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true}}}}}
	for name, x := range map[string]struct {
		status  string
		problem string
		outcome check.Outcome
	}{
		"in force":   {"True", "", check.OK},
		"no effect":  {"False", "", check.Warning},
		"told twice": {"False", "AuthorizationPolicy shop/a", check.Warning},
	} {
		t.Run(name, func(t *testing.T) {
			r := good()
			r.custom = []*unstructured.Unstructured{definition, policyThatSays("a", x.status, "it is for waypoints", 2)}
			want := "AuthorizationPolicy shop/a: it is for waypoints"
			if x.problem != "" {
				r.pages.status.Problems = []api.Problem{{Object: x.problem, Message: "it is for waypoints"}, {Object: "Service shop/b", Message: "no port"}}
				want += "; Service shop/b: no port"
			}
			got := result(t, r.run(t, Installed), "LAT129")
			if got.Outcome != x.outcome || got.Outcome != check.OK && (strings.Count(got.Cause, "for waypoints") != 1 || !strings.Contains(got.Cause, want)) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// The control plane writes a condition into each RequestAuthentication, too.
func TestARequestAuthenticationThatIsRefusedIsNamed(t *testing.T) {
	r := good()
	d := definition("", map[string]any{"name": "v1", "served": true, "storage": true})
	d.SetName("requestauthentications.security.istio.io")
	o := policyThatSays("tokens", "False", "the issuer is missing", 2)
	o.SetKind("RequestAuthentication")
	r.custom = []*unstructured.Unstructured{d, o}
	if got := result(t, r.run(t, Installed), "LAT129"); got.Outcome != check.Warning || !strings.Contains(got.Cause, "RequestAuthentication shop/tokens: the issuer is missing") {
		t.Errorf("%+v", got)
	}
}
