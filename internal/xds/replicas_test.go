package xds

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/compile"
	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/translate"
)

// edition is what one policy was in one generation: whom it speaks of, and for which pods.
type edition struct {
	what   string // action and source; empty if there was no such policy
	covers [modelPods]bool
}

// replicated is a mesh with several control planes, each of which was started at another moment and so knows another history, and a client
// that moves between them.
type replicated struct {
	*client
	rng      *rand.Rand
	objects  map[model.Key]files.Object
	replicas []*oneOfSeveral
	at       int // the one that the client is connected to
	history  [][modelPolicies]edition
	settled  int // the first of the history that the client may still be at
	said     []string
}

type oneOfSeveral struct {
	log      *resourcelog.Log
	compiler *compile.Compiler
}

func newReplicated(t *testing.T, seed uint64) *replicated {
	w := newWorld(t)
	r := &replicated{client: &client{w: w}, rng: rand.New(rand.NewPCG(seed, 23)), objects: map[model.Key]files.Object{}} //nolint:gosec // a test
	r.start()
	var pods strings.Builder
	for i := range modelPods {
		fmt.Fprintf(&pods, "apiVersion: v1\nkind: Pod\nmetadata: {name: pod%d, namespace: %s, labels: {app: %s}}\nspec: {nodeName: n1, containers: [{name: c}]}\nstatus: {podIP: 10.0.0.%d}\n---\n",
			i, modelNamespace(i), modelApp(i), i+1)
	}
	r.put(pods.String())
	r.history = make([][modelPolicies]edition, 1)
	w.log = r.replicas[0].log
	r.client = w.connect(DefaultLimits)
	r.client.follow(resourcekind.Authorization)
	r.client.follow(resourcekind.Address)
	return r
}

// start adds a replica that reads everything there is, at once.
func (r *replicated) start() {
	mesh := translate.Mesh{TrustDomain: "cluster.local", ClusterID: "Kubernetes", RootNamespace: "istio-system", DomainSuffix: "cluster.local"}
	one := &oneOfSeveral{log: resourcelog.New(func() time.Time { return r.w.now }, resourcekind.Mesh)}
	one.compiler = compile.New(mesh, model.NewStore(), one.log, compile.ShareAssignments(nil, 1<<20), slog.New(slog.DiscardHandler), nil)
	var all []model.Change
	for key, o := range r.objects {
		all = append(all, model.Change{Key: key, Object: &o})
	}
	one.compiler.Apply(all)
	r.replicas = append(r.replicas, one)
}

// move has the client connect to another replica, with what it has.
func (r *replicated) move() {
	if r.rng.IntN(2) == 0 {
		r.start()
	}
	r.at = r.rng.IntN(len(r.replicas))
	r.said = append(r.said, fmt.Sprint("moves to replica ", r.at))
	r.w.log = r.replicas[r.at].log
	limits := DefaultLimits
	limits.ResponseBytes = []int{1, 300, 2 << 20}[r.rng.IntN(3)]
	r.reconnect(limits)
	types := []string{resourcekind.Authorization, resourcekind.Address}
	r.rng.Shuffle(2, func(i, j int) { types[i], types[j] = types[j], types[i] })
	for _, t := range types {
		r.follow(t)
	}
}

func (r *replicated) put(text string, removed ...model.Key) {
	r.w.t.Helper()
	objects, problems := files.Decode("model", []byte(text))
	if len(problems) > 0 {
		r.w.t.Fatal(problems)
	}
	var changes []model.Change
	for _, o := range objects {
		r.objects[o.Key] = o
		changes = append(changes, model.Change{Key: o.Key, Object: &o})
	}
	for _, k := range removed {
		delete(r.objects, k)
		changes = append(changes, model.Change{Key: k})
	}
	for _, one := range r.replicas {
		one.compiler.Apply(changes)
	}
}

// edit gives some policies others to choose and to speak of, or removes them, all at once.
func (r *replicated) edit() {
	now := r.history[len(r.history)-1]
	var text strings.Builder
	var removed []model.Key
	for i := range modelPolicies {
		if r.rng.IntN(2) == 0 {
			continue
		}
		namespace, name := modelPolicy(i)
		now[i] = edition{}
		if r.rng.IntN(4) == 0 {
			removed = append(removed, model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: namespace, Name: name})
			continue
		}
		action, source := []string{"ALLOW", "DENY"}[r.rng.IntN(2)], r.rng.IntN(modelSources)
		app := []string{"", "a", "b"}[r.rng.IntN(3)]
		selector := ""
		if app != "" {
			selector = "selector: {matchLabels: {app: " + app + "}}, "
		}
		fmt.Fprintf(&text, "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: %s, namespace: %s}\nspec: {%saction: %s, rules: [{from: [{source: {namespaces: [s%d]}}]}]}\n---\n", name, namespace, selector, action, source)
		now[i].what = fmt.Sprint(action, " s", source)
		for p := range modelPods {
			now[i].covers[p] = (namespace == "istio-system" || namespace == modelNamespace(p)) && (app == "" || app == modelApp(p))
		}
	}
	r.put(text.String(), removed...)
	r.history = append(r.history, now)
	r.said = append(r.said, fmt.Sprintf("edit %d: %+v", len(r.history)-1, now))
}

// check holds the promise: no policy speaks for a pod in words that it never had for it, whichever replica told them.
func (r *replicated) check() {
	r.w.t.Helper()
	for wire, resource := range r.state[resourcekind.Authorization] {
		policy := &security.Authorization{}
		if err := resource.Resource.UnmarshalTo(policy); err != nil {
			r.w.t.Fatal(err)
		}
		what := fmt.Sprint(policy.Action, " ", policy.Rules[0].Clauses[0].Matches[0].Namespaces[0].GetExact())
		own, _, _ := strings.Cut(wire, "~")
		i := slices.IndexFunc([]int{0, 1, 2}, func(i int) bool { namespace, name := modelPolicy(i); return own == namespace+"/"+name })
		for p := range modelPods {
			if !r.covers(policy, wire, p) {
				continue
			}
			if !slices.ContainsFunc(r.history[r.settled:], func(at [modelPolicies]edition) bool { return at[i].what == what && at[i].covers[p] }) {
				r.w.t.Fatalf("%s says %q of pod%d, which it did in none of editions %d to %d; before:\n%s", wire, what, p, r.settled, len(r.history)-1, strings.Join(r.said, "\n"))
			}
		}
	}
}

// covers says whether a policy holds for a pod, as the client sees it.
func (r *replicated) covers(policy *security.Authorization, wire string, pod int) bool {
	r.w.t.Helper()
	switch {
	case policy.Scope == security.Scope_GLOBAL, policy.Scope == security.Scope_NAMESPACE && policy.Namespace == modelNamespace(pod):
		return true
	}
	w := r.state[resourcekind.Address][fmt.Sprintf("Kubernetes//Pod/%s/pod%d", modelNamespace(pod), pod)]
	if w == nil {
		return false
	}
	address := &workload.Address{}
	if err := w.Resource.UnmarshalTo(address); err != nil {
		r.w.t.Fatal(err)
	}
	return slices.Contains(address.GetWorkload().AuthorizationPolicies, wire)
}

// take receives one response.
func (r *replicated) take() bool {
	r.w.t.Helper()
	msg := r.receive()
	if msg == nil {
		return false
	}
	r.said = append(r.said, fmt.Sprintf("response of %s: %v, removed %v", msg.TypeUrl, resourceNames(msg), msg.RemovedResources))
	r.check()
	return true
}

// rest answers and takes until there is no more to come.
func (r *replicated) rest() {
	r.w.t.Helper()
	for more := true; more; {
		r.answer(resourcekind.Authorization, "")
		r.answer(resourcekind.Address, "")
		more = r.take()
	}
	r.checkEqual()
	r.settled, r.said = len(r.history)-1, nil
	r.check()
}

// TestNoMoveToAnotherReplicaHasAPolicySpeakForOthers runs random edits past a client that moves between control planes of different
// history, and reads and answers late.
func TestNoMoveToAnotherReplicaHasAPolicySpeakForOthers(t *testing.T) {
	for seed := range uint64(300) {
		r := newReplicated(t, seed)
		r.rest()
		for range 60 {
			switch r.rng.IntN(8) {
			case 0, 1:
				r.edit()
			case 2:
				r.answer(resourcekind.Authorization, "")
			case 3:
				r.answer(resourcekind.Address, "")
			case 4, 5:
				r.take()
			case 6:
				r.move()
			case 7:
				if r.rng.IntN(3) == 0 {
					r.rest()
				}
			}
		}
		r.rest()
		r.session.Close()
	}
}
