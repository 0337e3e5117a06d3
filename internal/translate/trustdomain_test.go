package translate

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	securityapi "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPrincipalsMeanTheMeshUnderAllItsNames(t *testing.T) {
	aliases := []string{"old.example", "older.example"}
	for _, c := range []struct {
		name, own string
		aliases   []string
		in, want  []string
	}{
		{"own domain", "mesh.example", aliases, []string{"mesh.example/ns/a/sa/b"},
			[]string{"mesh.example/ns/a/sa/b", "old.example/ns/a/sa/b", "older.example/ns/a/sa/b"}},
		{"an alias", "mesh.example", aliases, []string{"old.example/ns/a/sa/b"},
			[]string{"mesh.example/ns/a/sa/b", "old.example/ns/a/sa/b", "older.example/ns/a/sa/b"}},
		{"the local domain stands for the mesh's", "mesh.example", nil, []string{"cluster.local/ns/a/sa/b"},
			[]string{"mesh.example/ns/a/sa/b"}},
		{"the local domain is an alias", "mesh.example", []string{"cluster.local"}, []string{"cluster.local/ns/a/sa/b"},
			[]string{"mesh.example/ns/a/sa/b", "cluster.local/ns/a/sa/b"}},
		{"the local domain is the mesh's", "cluster.local", nil, []string{"cluster.local/ns/a/sa/b"}, []string{"cluster.local/ns/a/sa/b"}},
		{"another mesh", "mesh.example", aliases, []string{"other.example/ns/a/sa/b"}, []string{"other.example/ns/a/sa/b"}},
		{"a domain that ends like ours", "mesh.example", aliases, []string{"evil-mesh.example/ns/a/sa/b"}, []string{"evil-mesh.example/ns/a/sa/b"}},
		{"everybody", "mesh.example", aliases, []string{"*"}, []string{"*"}},
		{"any domain", "mesh.example", aliases, []string{"*/ns/a/sa/b"}, []string{"*/ns/a/sa/b"}},
		{"a suffix within the path", "mesh.example", aliases, []string{"*b"}, []string{"*b"}},
		{"a suffix within the domain", "mesh.example", []string{"old.test"}, []string{"*.example/ns/a/sa/b"}, []string{"*.example/ns/a/sa/b", "old.test/ns/a/sa/b"}},
		{"a suffix that all domains have", "mesh.example", aliases, []string{"*.example/ns/a/sa/b"}, []string{"*.example/ns/a/sa/b"}},
		{"a prefix within the domain", "mesh.example", []string{"old.test"}, []string{"mesh*/ns/a/sa/b"}, []string{"mesh.example/ns/a/sa/b", "old.test/ns/a/sa/b"}},
		{"a prefix of another domain", "mesh.example", aliases, []string{"other*/ns/a/sa/b"}, []string{"other*/ns/a/sa/b"}},
		{"any account", "mesh.example", []string{"old.example"}, []string{"mesh.example/ns/a/sa/*"}, []string{"mesh.example/ns/a/sa/*", "old.example/ns/a/sa/*"}},
		{"not written out to its last part", "mesh.example", []string{"old.example"}, []string{"mesh.example/ns/a/*"}, []string{"mesh.example/ns/a/*"}},
		{"no domain", "mesh.example", aliases, []string{"/ns/a/sa/b"}, []string{"/ns/a/sa/b"}},
		{"the same meant twice", "mesh.example", []string{"old.example"}, []string{"mesh.example/ns/a/sa/b", "old.example/ns/a/sa/b"},
			[]string{"mesh.example/ns/a/sa/b", "old.example/ns/a/sa/b"}},
		{"nobody", "mesh.example", aliases, nil, nil},
	} {
		if got := ExpandPrincipals(c.own, c.aliases, c.in); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestPoliciesHoldForAliases(t *testing.T) {
	policy := &securityv1.AuthorizationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}}
	policy.Spec.Rules = []*securityapi.Rule{{
		From: []*securityapi.Rule_From{{Source: &securityapi.Source{Principals: []string{"cluster.local/ns/a/sa/b"}}}},
		When: []*securityapi.Condition{{Key: "source.principal", NotValues: []string{"old.example/ns/a/sa/c"}}},
	}}
	before := proto.CloneOf(&policy.Spec)
	mesh := Mesh{TrustDomain: "mesh.example", TrustDomainAliases: []string{"old.example"}, RootNamespace: "istio-system"}
	out, _ := Authorization(mesh, policy)
	var allowed, except []string
	for _, clause := range out.GetRules()[0].GetClauses() {
		for _, m := range clause.GetMatches() {
			for _, p := range m.GetPrincipals() {
				allowed = append(allowed, p.GetExact())
			}
			for _, p := range m.GetNotPrincipals() {
				except = append(except, p.GetExact())
			}
		}
	}
	if want := []string{"mesh.example/ns/a/sa/b", "old.example/ns/a/sa/b"}; !slices.Equal(allowed, want) {
		t.Errorf("allowed %q, want %q", allowed, want)
	}
	if want := []string{"mesh.example/ns/a/sa/c", "old.example/ns/a/sa/c"}; !slices.Equal(except, want) {
		t.Errorf("except %q, want %q", except, want)
	}
	if !proto.Equal(before, &policy.Spec) {
		t.Error("the object itself was changed")
	}
}
