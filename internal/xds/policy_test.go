package xds

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"lateen.dev/lateen/internal/compile"
	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/translate"
)

const (
	modelPolicies = 3
	modelPods     = 6
	modelSources  = 3
)

// verdicts tells for each policy, pod and source of a connection whether the policy speaks against the connection.
type verdicts [modelPolicies][modelPods][modelSources]bool

// policyModel is a compiled mesh of a few pods whose policies are edited, the verdicts of each of its generations, and a client.
type policyModel struct {
	*client
	rng        *rand.Rand
	compiler   *compile.Compiler
	store      *model.Store
	history    []verdicts // by generation
	settled    int        // the last generation that the client surely had in full
	generation int
	said       []string // what happened since then
}

func modelNamespace(pod int) string { return []string{"shop", "other"}[pod/3] }
func modelApp(pod int) string       { return []string{"a", "b", "c"}[pod%3] }

// modelPolicy names a policy; the last one is the mesh's.
func modelPolicy(i int) (namespace, name string) {
	if i == modelPolicies-1 {
		return "istio-system", "p"
	}
	return "shop", fmt.Sprint("p", i)
}

func newPolicyModel(t *testing.T, seed uint64) *policyModel {
	w := newWorld(t)
	m := &policyModel{rng: rand.New(rand.NewPCG(seed, 17)), store: model.NewStore(), history: make([]verdicts, 1)}
	mesh := translate.Mesh{TrustDomain: "cluster.local", ClusterID: "Kubernetes", RootNamespace: "istio-system", DomainSuffix: "cluster.local"}
	m.compiler = compile.New(mesh, m.store, w.log, compile.NewAssignments(), slog.New(slog.DiscardHandler), nil)
	m.client = w.connect(m.limits())
	var pods strings.Builder
	for i := range modelPods {
		fmt.Fprintf(&pods, "apiVersion: v1\nkind: Pod\nmetadata: {name: pod%d, namespace: %s, labels: {app: %s}}\nspec: {nodeName: n1, containers: [{name: c}]}\nstatus: {podIP: 10.0.0.%d}\n---\n",
			i, modelNamespace(i), modelApp(i), i+1)
	}
	m.put(pods.String())
	return m
}

func (m *policyModel) limits() Limits {
	limits := DefaultLimits
	limits.ResponseBytes = []int{1, 300, 2 << 20}[m.rng.IntN(3)]
	return limits
}

func (m *policyModel) put(text string, removed ...model.Key) {
	m.w.t.Helper()
	objects, problems := files.Decode("model", []byte(text))
	if len(problems) > 0 {
		m.w.t.Fatal(problems)
	}
	var changes []model.Change
	for _, o := range objects {
		changes = append(changes, model.Change{Key: o.Key, Object: &o})
	}
	for _, k := range removed {
		changes = append(changes, model.Change{Key: k})
	}
	m.compiler.Apply(changes)
	m.generation++
}

// edit gives one policy a random scope, selector, action and rule, or removes it.
func (m *policyModel) edit() {
	i := m.rng.IntN(modelPolicies)
	namespace, name := modelPolicy(i)
	now := m.history[len(m.history)-1]
	now[i] = [modelPods][modelSources]bool{}
	if m.rng.IntN(6) == 0 {
		m.put("", model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: namespace, Name: name})
		m.history = append(m.history, now)
		m.said = append(m.said, fmt.Sprintf("generation %d removes %s", m.generation, name))
		return
	}
	action := []string{"ALLOW", "DENY"}[m.rng.IntN(2)]
	app := []string{"", "a", "b"}[m.rng.IntN(3)]
	source := m.rng.IntN(modelSources)
	selector := ""
	if app != "" {
		selector = "selector: {matchLabels: {app: " + app + "}}, "
	}
	spec := fmt.Sprintf("%saction: %s, rules: [{from: [{source: {namespaces: [s%d]}}]}]", selector, action, source)
	m.put(fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: %s, namespace: %s}\nspec: {%s}\n", name, namespace, spec))
	for p := range modelPods {
		if (namespace != "istio-system" && namespace != modelNamespace(p)) || (app != "" && app != modelApp(p)) {
			continue
		}
		for s := range modelSources {
			now[i][p][s] = (s == source) == (action == "DENY")
		}
	}
	m.history = append(m.history, now)
	m.said = append(m.said, fmt.Sprintf("generation %d: %s %s", m.generation, name, spec))
}

// judge computes what the client's policies say now, as a proxy that skips policies it does not know.
func (m *policyModel) judge() verdicts {
	m.w.t.Helper()
	var out verdicts
	for i := range modelPolicies {
		namespace, name := modelPolicy(i)
		for wire, r := range m.state[resourcekind.Authorization] {
			if own, _, _ := strings.Cut(wire, "~"); own != namespace+"/"+name {
				continue
			}
			m.judgeOne(&out, i, r)
		}
	}
	return out
}

// judgeOne adds what one version of a policy forbids: it may be there under several names.
func (m *policyModel) judgeOne(out *verdicts, i int, r *discovery.Resource) {
	m.w.t.Helper()
	policy := &security.Authorization{}
	if err := r.Resource.UnmarshalTo(policy); err != nil {
		m.w.t.Fatal(err)
	}
	source := policy.Rules[0].Clauses[0].Matches[0].Namespaces[0].GetExact()
	for p := range modelPods {
		covered := policy.Scope == security.Scope_GLOBAL || policy.Scope == security.Scope_NAMESPACE && policy.Namespace == modelNamespace(p)
		if w := m.state[resourcekind.Address][fmt.Sprintf("Kubernetes//Pod/%s/pod%d", modelNamespace(p), p)]; w != nil && !covered {
			address := &workload.Address{}
			if err := w.Resource.UnmarshalTo(address); err != nil {
				m.w.t.Fatal(err)
			}
			covered = covered || slices.Contains(address.GetWorkload().AuthorizationPolicies, r.GetName())
		}
		for s := range modelSources {
			out[i][p][s] = out[i][p][s] || covered && (source == fmt.Sprint("s", s)) == (policy.Action == security.Action_DENY)
		}
	}
}

// check holds the promise: what a policy forbids in every generation that the client may be on the way through, it forbids now.
func (m *policyModel) check() {
	m.w.t.Helper()
	now := m.judge()
	for i := range modelPolicies {
		for p := range modelPods {
			for s := range modelSources {
				always := true
				for _, v := range m.history[m.settled:] {
					always = always && v[i][p][s]
				}
				if always && !now[i][p][s] {
					_, name := modelPolicy(i)
					m.w.t.Fatalf("%s forbids s%d to connect to pod%d in all of generations %d to %d, and the client would let it in; before:\n%s", name, s, p, m.settled+1, m.generation, strings.Join(m.said, "\n"))
				}
			}
		}
	}
}

// take receives one response and applies it resource by resource, in any order.
func (m *policyModel) take() bool {
	m.w.t.Helper()
	r := m.session.Next(m.w.now)
	if r == nil {
		return false
	}
	msg, err := r.Message()
	if err != nil {
		m.w.t.Fatal(err)
	}
	m.pending[msg.TypeUrl] = msg
	m.said = append(m.said, fmt.Sprintf("response of %s: %v, removed %v", msg.TypeUrl, resourceNames(msg), msg.RemovedResources))
	var steps []func()
	for _, res := range msg.Resources {
		steps = append(steps, func() { m.state[msg.TypeUrl][res.Name] = res })
	}
	for _, name := range msg.RemovedResources {
		steps = append(steps, func() { delete(m.state[msg.TypeUrl], name) })
	}
	m.rng.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for _, step := range steps {
		step()
		m.checkPolicies()
		m.check()
	}
	return true
}

func (m *policyModel) follow() {
	m.w.t.Helper()
	types := []string{resourcekind.Authorization, resourcekind.Address}
	m.rng.Shuffle(2, func(i, j int) { types[i], types[j] = types[j], types[i] })
	for _, typeURL := range types {
		m.client.follow(typeURL)
	}
}

// rest answers and takes until there is no more to come.
func (m *policyModel) rest() {
	m.w.t.Helper()
	for more := true; more; {
		m.answer(resourcekind.Authorization, "")
		m.answer(resourcekind.Address, "")
		more = m.take()
	}
	m.checkEqual()
	for _, s := range m.session.States() {
		if s.AckedGeneration != uint64(m.generation) {
			m.w.t.Fatalf("%s rests at generation %d of %d", s.Type, s.AckedGeneration, m.generation)
		}
	}
	m.settled, m.said = m.generation-1, nil
}

// TestNoEditOfAPolicyLetsInWhatBothVersionsForbid runs random edits past a client that reads in chunks, answers late and reconnects.
func TestNoEditOfAPolicyLetsInWhatBothVersionsForbid(t *testing.T) {
	for seed := range uint64(300) {
		m := newPolicyModel(t, seed)
		m.history[0] = verdicts{}
		m.follow()
		m.rest()
		for range 80 {
			switch m.rng.IntN(8) {
			case 0, 1:
				m.edit()
			case 2:
				m.said = append(m.said, "policies are answered")
				m.answer(resourcekind.Authorization, "")
			case 3:
				m.said = append(m.said, "addresses are answered")
				m.answer(resourcekind.Address, "")
			case 4, 5, 6:
				m.take()
			case 7:
				switch m.rng.IntN(3) {
				case 0:
					m.said = append(m.said, "reconnects")
					m.reconnect(m.limits())
					m.follow()
				default:
					m.rest()
				}
			}
		}
		m.rest()
		if m.generation == 1 {
			t.Fatalf("seed %d edited nothing", seed)
		}
		m.session.Close()
	}
}

// TestNarrowsAPolicyAfterThoseThatNameIt shows the order in full for one edit.
func TestNarrowsAPolicyAfterThoseThatNameIt(t *testing.T) {
	w := newWorld(t)
	broad := w.policy("p", 1)
	broad.Resource.Broad = true
	w.apply(w.pod("web", "10.0.0.1", 1, nil), broad)
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	c.settle()
	w.apply(w.pod("web", "10.0.0.1", 1, []string{"p"}), w.policy("p", 2))
	var order []*discovery.DeltaDiscoveryResponse
	for r := c.receive(); r != nil; r = c.receive() {
		if len(order) == 0 {
			if again := c.receive(); again != nil {
				t.Fatalf("%v was sent before the workload was acknowledged", again)
			}
		}
		order = append(order, r)
		c.answer(r.TypeUrl, "")
	}
	if len(order) != 2 || order[0].TypeUrl != resourcekind.Address || order[1].TypeUrl != resourcekind.Authorization {
		t.Fatalf("got %v, want the workload that names the policy, then the policy", order)
	}
	// Back again, the policy comes first: those that name it lose nothing by that.
	w.apply(w.pod("web", "10.0.0.1", 1, nil), broad)
	if r := c.receive(); r.GetTypeUrl() != resourcekind.Authorization || c.receive() != nil {
		t.Fatalf("got %v, want the broad policy alone", r)
	}
}
