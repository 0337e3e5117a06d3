package compile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
)

// The model of the design page's rules: random events reach control planes, and after each of them invariants hold that need no knowledge of how the
// planes come to their decisions.
//
//  1. Connections that go through a waypoint go direct only if the labels name none.
//  2. Connections that go direct, or through another waypoint, go through the asked one only after one of its proxies has acknowledged the Binding.
//  3. A waypoint that connections go to has the Binding and the policies of the service, and one that does not admit the namespace has neither.
//  4. In the end all planes have the connections go where the labels say.

// bindingEvent changes one object. Events of one kind reach a plane in their order.
type bindingEvent struct {
	kind string
	text string      // what the object is now
	gone []model.Key // or that it is gone
}

// bindingReplica is a control plane of the model, with what has not reached it yet.
type bindingReplica struct {
	*bindingPlane
	queue map[string][]bindingEvent
	view  map[string]bindingEvent // by kind: what it has heard last
	way   string                  // as of the last check; empty: web is not published
}

type bindingModel struct {
	t        *testing.T
	seed     uint64
	rng      *rand.Rand
	now      time.Time
	shared   *memoryStore // nil: one plane with a file
	file     string
	replicas []*bindingReplica
	truth    map[string]bindingEvent
	// proof are the waypoints of which a proxy has acknowledged the Binding to a plane that had heard that it is asked for, asked is when a plane last had.
	proof map[string]bool
	asked map[string]time.Time
	trace []string
}

func (m *bindingModel) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("seed %d: %s\n%s", m.seed, fmt.Sprintf(format, args...), strings.Join(m.trace, "\n"))
}

func (m *bindingModel) pick(options ...string) string { return options[m.rng.IntN(len(options))] }

func (m *bindingModel) assignments() *Assignments {
	if m.shared != nil {
		return ShareAssignments(m.shared, 1<<20)
	}
	a, err := LoadAssignments(m.file, m.now)
	if err != nil {
		m.t.Fatal(err)
	}
	return a
}

// start begins the life of a plane, which reads the memory and then every object.
func (m *bindingModel) start(r *bindingReplica) {
	r.bindingPlane = newBindingPlane(m.t, m.assignments())
	r.ties.now = func() time.Time { return m.now }
	r.queue, r.view = map[string][]bindingEvent{}, map[string]bindingEvent{}
	if m.shared != nil {
		r.AdoptWaiting(m.shared.waitingNow())
	}
	var all []model.Change
	for _, kind := range modelKinds {
		r.view[kind] = m.truth[kind]
		all = append(all, m.changes(r.view[kind])...)
	}
	r.Apply(all)
}

func (m *bindingModel) changes(e bindingEvent) (out []model.Change) {
	for _, key := range e.gone {
		out = append(out, model.Change{Key: key})
	}
	if e.text != "" {
		out = append(out, changes(m.t, e.text)...)
	}
	return out
}

// publish has an event on its way to all planes.
func (m *bindingModel) publish(e bindingEvent) {
	m.truth[e.kind] = e
	for _, r := range m.replicas {
		r.queue[e.kind] = append(r.queue[e.kind], e)
	}
}

// deliver has the next event of a kind reach a plane.
func (m *bindingModel) deliver(r *bindingReplica, kind string) {
	if q := r.queue[kind]; len(q) > 0 {
		r.queue[kind], r.view[kind] = q[1:], q[0]
		r.Apply(m.changes(q[0]))
	}
}

// modelKinds are the kinds of events.
var modelKinds = []string{"namespace", "wp", "next", "policy", "service"}

func labelled(label string) string {
	if label == "" {
		return ""
	}
	return "istio.io/use-waypoint: " + label
}

func modelGateway(name, from string) string {
	return strings.Replace(waypointOf(name, map[string]string{"wp": "10.96.0.9", "next": "10.96.0.10"}[name]), "port: 15008}]}\n---\napiVersion: v1", "port: 15008, allowedRoutes: {namespaces: {from: "+from+"}}}]}\n---\napiVersion: v1", 1)
}

const modelPolicy = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: web, namespace: shop}\nspec: {targetRefs: [{kind: Service, name: web}], rules: [{to: [{operation: {methods: [GET]}}]}]}\n---\n"

// asked is the waypoint that the labels ask for as a plane has heard of them; empty if none.
func (r *bindingReplica) asked() string {
	for _, of := range []string{"service", "namespace"} {
		text := r.view[of].text
		if _, label, ok := strings.Cut(text, "use-waypoint: "); ok {
			label = label[:strings.IndexAny(label, ",}")]
			if label == "none" {
				return ""
			}
			return label
		}
	}
	return ""
}

// step does one random thing, and has some planes hear of earlier ones.
func (m *bindingModel) step() {
	r := m.replicas[m.rng.IntN(len(m.replicas))]
	at := slices.Index(m.replicas, r)
	note := func(format string, args ...any) {
		m.trace = append(m.trace, fmt.Sprintf("%d: ", at)+fmt.Sprintf(format, args...))
	}
	switch m.rng.IntN(14) {
	case 0, 1:
		label := m.pick("", "wp", "wp", "next", "none")
		note("service label %q", label)
		m.publish(bindingEvent{kind: "service", text: serviceWith("web", labelled(label))})
	case 2:
		label := m.pick("", "wp", "none")
		note("namespace label %q", label)
		m.publish(bindingEvent{kind: "namespace", text: "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {" + labelled(label) + "}}\n---\n"})
	case 3:
		name, from := m.pick("wp", "next"), m.pick("Same", "Same", "Same", "None")
		note("gateway %s admits %s", name, from)
		m.publish(bindingEvent{kind: name, text: modelGateway(name, from)})
	case 4:
		switch name := m.pick("wp", "next", "web", "policy"); name {
		case "web":
			note("the service is gone")
			m.publish(bindingEvent{kind: "service", gone: []model.Key{webKey}})
		case "policy":
			note("the policy is gone")
			m.publish(bindingEvent{kind: "policy", gone: []model.Key{policyKey("AuthorizationPolicy", "shop", "web")}})
		default:
			note("gateway %s is gone", name)
			m.publish(bindingEvent{kind: name, gone: []model.Key{model.GatewayKey("shop", name), model.ServiceKey("shop", name)}})
		}
	case 5:
		note("a policy")
		m.publish(bindingEvent{kind: "policy", text: modelPolicy})
	case 6:
		wait := []time.Duration{time.Second, 6 * time.Second, 31 * time.Second}[m.rng.IntN(3)]
		note("%s pass", wait)
		m.now = m.now.Add(wait)
	case 7, 8, 9:
		m.settleSome(r, note)
	case 10:
		if m.rng.IntN(4) == 0 {
			note("restart")
			m.start(r)
			m.restarted(r)
		}
	case 11:
		if m.shared == nil {
			return
		}
		if m.shared.err = nil; m.rng.IntN(4) == 0 {
			m.shared.err = errors.New("away")
		}
		note("the memory is away: %v", m.shared.err)
	case 12:
		if m.shared == nil {
			return
		}
		note("it hears of %v", m.shared.waitingNow())
		r.AdoptWaiting(m.shared.waitingNow())
	default:
		note("it keeps")
		_ = r.Keep(context.Background())
	}
	for range m.rng.IntN(3) {
		r := m.replicas[m.rng.IntN(len(m.replicas))]
		kind := m.pick("service", "namespace", "wp", "next", "policy")
		if len(r.queue[kind]) > 0 {
			m.check()
			m.trace = append(m.trace, fmt.Sprintf("%d: hears of %s", slices.Index(m.replicas, r), kind))
		}
		m.deliver(r, kind)
	}
	m.check()
}

// settleSome has a plane look at proxies of random states.
func (m *bindingModel) settleSome(r *bindingReplica, note func(string, ...any)) {
	var proxies []GatewayProxy
	for range 1 + m.rng.IntN(3) {
		name := m.pick("wp", "next")
		p := r.proxy(name, r.log.Generation())
		state := m.pick("acknowledged", "acknowledged", "acknowledged", "lags", "refuses", "refuses a policy", "pretends")
		switch state {
		case "acknowledged":
			if r.lists(name) && r.asked() == name {
				m.proof[name] = true
			}
		case "lags":
			if _, since := r.log.Find(resourcekind.Binding, webName); since > 0 {
				p.Through = since - 1
			} else {
				p.Through = 0
			}
		case "refuses":
			p.Refused[webName] = true
		case "refuses a policy":
			if r.view["policy"].text == "" {
				continue
			}
			p.RefusedPolicies = map[string]bool{"shop/web": true}
		case "pretends":
			p.Identity = "shop/thief"
		}
		note("a proxy of %s %s", name, state)
		proxies = append(proxies, p)
	}
	r.settle(proxies...)
}

// lists says whether the Binding of web is for a waypoint.
func (r *bindingReplica) lists(name string) bool {
	b := r.binding(webName)
	return b != nil && slices.ContainsFunc(b.Parents, func(p *l7.Parent) bool { return p.Gateway == "shop/"+name })
}

// named is where connections to web go; empty if it is not published.
func (r *bindingReplica) named() string {
	if r.service(webName) == nil {
		return ""
	}
	return r.bindingPlane.way()
}

// restarted checks what a plane does first in a new life. Another plane may know more of the past, so it is for one alone.
func (m *bindingModel) restarted(r *bindingReplica) {
	before, now := r.way, r.named()
	if m.shared == nil && before != "" && before != "direct" && now == "direct" && r.asked() != "" {
		m.fail("a restart has connections go past %s", before)
	}
	r.way = now
}

func (m *bindingModel) check() {
	m.t.Helper()
	defer m.expire()
	for i, r := range m.replicas {
		before, now := strings.TrimPrefix(r.way, "not-admitted."), r.named()
		bare := strings.TrimPrefix(now, "not-admitted.")
		r.way = now
		switch {
		case now == "":
			continue
		case now == "direct":
			if before != "" && before != "direct" && r.asked() != "" {
				m.fail("plane %d has connections go past %s, and the labels ask for %s", i, before, r.asked())
			}
			continue
		case before != "" && before != bare:
			if !m.proof[bare] {
				m.fail("plane %d has connections go to %s after %s, and none of its proxies has acknowledged that", i, bare, before)
			}
		}
		gateway := r.view[bare].text
		admits := gateway != "" && !strings.Contains(gateway, "from: None")
		switch {
		case gateway != "" && admits != (now == bare):
			m.fail("plane %d names %s, which admits: %v", i, now, admits)
		case admits != r.lists(bare):
			m.fail("plane %d names %s, whose Binding is %v", i, now, r.binding(webName))
		}
		if r.view["policy"].text != "" && admits {
			var parents []*l7.Parent
			r.get(resourcekind.RequestAuthorization, "shop/web", func(v any) { parents = v.(*l7.Authorization).Parents })
			if !slices.ContainsFunc(parents, func(p *l7.Parent) bool { return p.Gateway == "shop/"+bare }) {
				m.fail("plane %d names %s, which does not have the policy: %v", i, now, parents)
			}
		}
	}
}

// expire ends proofs. One plane alone moves at once. Others may hear of a proof late, but not after the waypoint has lost the Binding.
func (m *bindingModel) expire() {
	if m.shared == nil {
		clear(m.proof)
		return
	}
	for _, r := range m.replicas {
		m.asked[r.asked()] = m.now
	}
	for name := range m.proof {
		if m.now.Sub(m.asked[name]) > leaveFor {
			delete(m.proof, name)
		}
	}
}

// end delivers everything and has all proxies acknowledge everything. Then all planes agree.
func (m *bindingModel) end() {
	m.trace = append(m.trace, "end")
	if m.shared != nil {
		m.shared.err = nil
	}
	m.publish(bindingEvent{kind: "wp", text: modelGateway("wp", "Same")})
	m.publish(bindingEvent{kind: "next", text: modelGateway("next", "Same")})
	for range 3 {
		for _, r := range m.replicas {
			for _, kind := range modelKinds {
				for len(r.queue[kind]) > 0 {
					m.deliver(r, kind)
					m.check()
				}
			}
		}
	}
	connected := m.rng.IntN(len(m.replicas)) // the waypoints are connected to one of them
	for range 6 {
		m.now = m.now.Add(leaveFor + lagFor)
		for i, r := range m.replicas {
			var proxies []GatewayProxy
			if i == connected {
				for _, name := range []string{"wp", "next"} {
					if r.lists(name) && r.asked() == name {
						m.proof[name] = true
					}
					proxies = append(proxies, r.proxy(name, r.log.Generation()))
				}
			}
			r.settle(proxies...)
			m.check()
			_ = r.Keep(context.Background())
			m.check()
			if m.shared != nil {
				r.AdoptWaiting(m.shared.waitingNow())
				m.check()
			}
		}
	}
	for i, r := range m.replicas {
		want := r.asked()
		if want == "" {
			want = "direct"
		}
		if r.way != "" && r.way != want {
			m.fail("in the end plane %d has connections go %s, want %s; the waypoints are connected to plane %d\n%s", i, r.way, want, connected, m.states())
		}
		if m.shared != nil && len(r.Arrived()) != len(m.shared.waiting) || m.shared == nil && len(r.assignments.Waiting) > 0 {
			m.fail("in the end plane %d remembers %v, and of these nobody needs %v", i, r.assignments.Waiting, r.Arrived())
		}
		if len(r.ties.open) > 0 && i == connected {
			m.fail("in the end plane %d still waits for %v", i, r.ties.open)
		}
	}
}

// modelSeeds is how many sequences are tried. LATEEN_MODEL_SEEDS asks for more.
func modelSeeds(t *testing.T) uint64 {
	text := os.Getenv("LATEEN_MODEL_SEEDS")
	if text == "" {
		return 60
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// states tells what planes and the memory have in mind.
func (m *bindingModel) states() string {
	var out strings.Builder
	for i, r := range m.replicas {
		fmt.Fprintf(&out, "plane %d: %+v\n", i, r.ties.of["Service shop/web"])
	}
	if m.shared != nil {
		fmt.Fprintf(&out, "memory: %v\n", m.shared.waiting)
	}
	return out.String()
}

func testBindingModel(t *testing.T, seeds uint64, planes int) {
	for seed := range seeds {
		m := &bindingModel{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, uint64(planes))), now: time.Unix(1_700_000_000, 0), truth: map[string]bindingEvent{}, proof: map[string]bool{}, asked: map[string]time.Time{}}
		if planes > 1 {
			m.shared = &memoryStore{}
		} else {
			m.file = filepath.Join(t.TempDir(), "assignments.json")
		}
		m.truth["service"] = bindingEvent{kind: "service", text: serviceWith("web", "")}
		for range planes {
			r := &bindingReplica{}
			m.replicas = append(m.replicas, r)
			m.start(r)
			r.way = r.named()
		}
		for range 60 {
			m.step()
		}
		m.end()
	}
}

func TestNoSequenceOfEventsHasOnePlaneGoPastAWaypointOrToOneTooEarly(t *testing.T) {
	testBindingModel(t, modelSeeds(t), 1)
}

func TestNoSequenceOfEventsHasReplicasGoPastAWaypointOrToOneTooEarly(t *testing.T) {
	testBindingModel(t, modelSeeds(t), 3)
}
