package files

import (
	"slices"
	"testing"
)

func TestIdentitiesNeedNoValidSpec(t *testing.T) {
	tests := map[string]struct {
		text     string
		want     []string
		bare     []bool
		problems int
	}{
		"valid":               {"apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: shop}\nspec: {ports: [{port: 80}]}\n", []string{"Service shop/a"}, []bool{false}, 0},
		"unknown field":       {"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {prots: []}\n", []string{"Service default/a"}, []bool{true}, 0},
		"several mistakes":    {"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {prots: [], x: 1, ports: [{port: 99999999}]}\n", []string{"Service default/a"}, []bool{true}, 0},
		"cluster-scoped":      {"apiVersion: v1\nkind: Namespace\nmetadata: {name: a, namespace: b}\n", []string{"Namespace a"}, []bool{false}, 0},
		"wrong version":       {"apiVersion: security.istio.io/v7\nkind: AuthorizationPolicy\nmetadata: {name: a, namespace: b}\nspec: {}\n", []string{"AuthorizationPolicy b/a"}, []bool{false}, 0},
		"in the file's order": {"apiVersion: v1\nkind: Service\nmetadata: {name: b}\nspec: {x: 1}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n", []string{"Service default/b", "Service default/a"}, []bool{true, true}, 0},
		"no name":             {"apiVersion: v1\nkind: Service\nmetadata: {}\nspec: {x: 1}\n", nil, nil, 2},
		"no kind":             {"apiVersion: v1\nkind: Nothing\nmetadata: {name: a}\n", nil, nil, 1},
		"no YAML":             {"a: [", nil, nil, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			found, problems := Identities("f.yaml", []byte(tt.text))
			var got []string
			var bare []bool
			for _, i := range found {
				got, bare = append(got, i.Key.String()), append(bare, i.Bare)
			}
			if !slices.Equal(got, tt.want) || !slices.Equal(bare, tt.bare) || len(problems) != tt.problems {
				t.Errorf("got %v %v, problems %v", got, bare, problems)
			}
		})
	}
}
