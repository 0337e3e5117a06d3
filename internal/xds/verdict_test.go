package xds

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
)

// admissions tells for each pod and source whether all policies together let a connection in.
type admissions [modelPods][modelSources]bool

// admits computes what a client's policies and workloads, taken together, let in.
func admits(t testing.TB, c *client) (out admissions) {
	t.Helper()
	for p := range modelPods {
		var named []string
		if r := c.state[resourcekind.Address][fmt.Sprintf("Kubernetes//Pod/%s/pod%d", modelNamespace(p), p)]; r != nil {
			address := &workload.Address{}
			if err := r.Resource.UnmarshalTo(address); err != nil {
				t.Fatal(err)
			}
			named = address.GetWorkload().AuthorizationPolicies
		}
		for s := range modelSources {
			allows, allowed, denied := false, false, false
			for name, r := range c.state[resourcekind.Authorization] {
				policy := &security.Authorization{}
				if err := r.Resource.UnmarshalTo(policy); err != nil {
					t.Fatal(err)
				}
				covered := policy.Scope == security.Scope_GLOBAL || policy.Scope == security.Scope_NAMESPACE && policy.Namespace == modelNamespace(p) || slices.Contains(named, name)
				matches := policy.Rules[0].Clauses[0].Matches[0].Namespaces[0].GetExact() == fmt.Sprint("s", s)
				switch {
				case !covered:
				case policy.Action == security.Action_ALLOW:
					allows, allowed = true, allowed || matches
				default:
					denied = denied || matches
				}
			}
			out[p][s] = !denied && (!allows || allowed)
		}
	}
	return out
}

// TestNoStepOfAnEditLetsInWhatNoVersionDoes makes random edits – of one policy, of its selector and rules at once, of several policies
// together – and looks at a client after each response: what is let in must be let in by one of the versions on the way.
func TestNoStepOfAnEditLetsInWhatNoVersionDoes(t *testing.T) {
	for seed := range uint64(100) {
		m := newPolicyModel(t, seed)
		exact := m.w.connect(DefaultLimits) // follows every version to its end
		m.client.session.Close()
		m.client = m.w.connect(Limits{ResponseBytes: []int{1, 2 << 20}[m.rng.IntN(2)], PolicyBytes: 1 << 20, Names: 1000, TypeGrace: DefaultLimits.TypeGrace})
		for _, c := range []*client{m.client, exact} {
			c.follow(resourcekind.Authorization)
			c.follow(resourcekind.Address)
			c.settle()
		}
		for edit := range 25 {
			versions := []admissions{admits(t, exact)}
			var texts []string
			var removed []model.Key
			switch m.rng.IntN(3) {
			case 0: // one policy in any way, once or twice
				i := m.rng.IntN(modelPolicies)
				for range 1 + m.rng.IntN(2) {
					texts = append(texts, m.someSpec(i, m.rng.IntN(3) == 0))
				}
			case 1: // all of them with selectors; a first edit brings them there and is taken in before
				m.put(m.someSpec(0, false) + m.someSpec(1, false) + m.someSpec(2, false))
				texts = append(texts, m.someSpec(0, false)+m.someSpec(1, false)+m.someSpec(2, false))
			case 2: // all of them without; one may go
				m.put(m.someSpec(0, true) + m.someSpec(1, true) + m.someSpec(2, true))
				text := m.someSpec(0, true) + m.someSpec(1, true)
				if m.rng.IntN(2) == 0 {
					namespace, name := modelPolicy(2)
					removed = append(removed, model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: namespace, Name: name})
				} else {
					text += m.someSpec(2, true)
				}
				texts = append(texts, text)
			}
			if len(texts) == 1 && strings.Count(texts[0], "kind:") > 1 {
				m.client.settle()
				exact.settle()
				versions = []admissions{admits(t, exact)}
			}
			for _, text := range texts {
				m.put(text, removed...)
				exact.settle()
				versions = append(versions, admits(t, exact))
			}
			for more := true; more; {
				for _, typeURL := range []string{resourcekind.Address, resourcekind.Authorization} {
					if m.rng.IntN(2) == 0 || m.client.pending[resourcekind.Address] == nil || m.client.pending[resourcekind.Authorization] == nil {
						m.client.answer(typeURL, "")
					}
				}
				r := m.client.receive()
				more = r != nil || len(m.client.pending) > 0
				now := admits(t, m.client)
				for p := range modelPods {
					for s := range modelSources {
						if now[p][s] && !slices.ContainsFunc(versions, func(v admissions) bool { return v[p][s] }) {
							t.Fatalf("seed %d, edit %d: pod%d admits s%d, which no version does, after %v removed %v; the edits:\n%s", seed, edit, p, s, resourceNames(r), r.GetRemovedResources(), strings.Join(texts, "---\n"))
						}
					}
				}
			}
			m.client.checkEqual()
		}
		m.client.session.Close()
		exact.session.Close()
	}
}

// someSpec writes a policy of random action and rule, for all of its scope or with a selector.
func (m *policyModel) someSpec(i int, broad bool) string {
	namespace, name := modelPolicy(i)
	selector := ""
	if !broad {
		selector = fmt.Sprintf("selector: {matchLabels: {app: %s}}, ", []string{"a", "b"}[m.rng.IntN(2)])
	}
	return fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: %s, namespace: %s}\nspec: {%saction: %s, rules: [{from: [{source: {namespaces: [s%d]}}]}]}\n---\n",
		name, namespace, selector, []string{"ALLOW", "DENY"}[m.rng.IntN(2)], m.rng.IntN(modelSources))
}
