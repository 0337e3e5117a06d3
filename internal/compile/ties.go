package compile

import (
	"maps"
	"slices"
	"strings"
	"time"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

const (
	// leaveFor is how long a waypoint keeps the Binding of an object whose connections no longer go through it: node proxies hear of the change
	// within that time, and connections that clients keep open end with their next answer.
	leaveFor = 30 * time.Second
	// lagFor is how long one proxy of a waypoint is waited for once another one has acknowledged a Binding.
	lagFor = 5 * time.Second
	// assumeFor is how long an object counts as bound after the start because its Address names the waypoint: the waypoint's proxies have that
	// time to connect and to acknowledge.
	assumeFor = 30 * time.Second
)

// tie is how an object stands to the waypoint that its labels ask for. The Addresses of a Service or a ServiceEntry share one tie; a workload
// has its own.
type tie struct {
	key model.Key
	// asked is the waypoint that the labels ask for, way the one that the Addresses name; empty: connections go direct. Both are "namespace/name".
	asked, way string
	// ready says that the proxies of the asked waypoint have acknowledged the Binding, or that a waypoint of others is ready.
	ready bool
	// was says that connections went through a waypoint once. Since then they never go direct, unless the labels ask for that.
	was bool
	// sure says that the proxies of the asked waypoint acknowledged the Binding to a control plane of this mesh in its present life. Else the tie may
	// name the waypoint since nothing else is known, as after a restart.
	sure bool
	// unfit says that the asked waypoint takes traffic of another kind.
	unfit bool
	// assumed is the time until which the tie counts as ready without an acknowledgement; zero: it does not.
	assumed time.Time
	// since is the generation that published the Binding for the asked waypoint, acked the time of the first acknowledgement of it.
	since uint64
	acked time.Time
	// canaryReady says that the canary may have a share of the connections, canaryAcked is the time of its first acknowledgement. Until canaryUntil an
	// acknowledgement is waited for, or the canary counts as ready without one, as after the start. Zero: its state is known.
	canary      string
	canaryReady bool
	canaryAcked time.Time
	canaryUntil time.Time
	canaryAsked time.Time // when the workloads that refuse the canary are asked again
	// leaving are the waypoints that keep the Binding until a time, although the Addresses no longer name them.
	leaving map[string]time.Time
	// proven are those of the asked waypoint and the canary that this mesh serves: their proxies acknowledge the Binding. foreign says that somebody else
	// serves the asked one, and that it can be used.
	proven  map[string]*translate.Waypoint
	foreign bool
	// refused says why the object's workloads would refuse the asked waypoint; empty if they would not, as far as it was judged. The verdict stands
	// until something touches the witness, which is the pod that would.
	refused string
	stands  bool
	witness model.Key
	// told are the waypoints that the policies of the last batch were for; see behind.
	told string
	// resolved says that the tie waits for nothing but the memory, which is to say so first.
	resolved bool
	// assertAt is when the memory is to have the tie's note again, which another control plane has replaced; zero: it has it.
	assertAt time.Time
}

func (t *tie) waits() bool { return t.asked != "" && t.way != t.asked }

// remembered says whether the memory is to have the tie: what its labels say is not what is.
func (t *tie) remembered() bool { return t.waits() || t.unfit }

// note is what the memory is to say of the tie.
func (t *tie) note() note {
	if t.resolved {
		return settledNote(t.asked)
	}
	return note{way: t.way, asked: t.asked}
}

// ties decides which waypoint the Addresses of each object name. An Address names the waypoint that the labels ask for once that is ready. Until
// then it names what it named before; an object that is seen with the label for the first time names it from the start, so that nobody reaches
// it without. Only the owner of the labels takes an object from behind a waypoint.
//
// The memory that outlives a restart (Assignments.Waiting) therefore lists the objects alone whose connections go another way than their labels
// say, and those whose waypoint does not take them any more. If it is lost, their connections are refused until the waypoint is ready, and never go past it.
type ties struct {
	mode        translate.BindMode
	suffix      string // DNS suffix of services
	assignments *Assignments
	now         func() time.Time
	operational func(ref string) bool
	// refusal says why an object's workloads would refuse a waypoint, and which of them; own says that the object is the workload.
	refusal func(key model.Key, own bool, w *translate.Waypoint) (why string, witness model.Key)
	// turned hears of an object whose Addresses name another waypoint.
	turned func(b *batch, key model.Key)
	began  bool // the first batch, which holds every object, was taken
	of     map[string]*tie
	// atOnce are the waypoints of objects that have no ties, since their Addresses name them as soon as they have an address: references with
	// spaces between them.
	atOnce map[string]string
	// open are the ties that time or an acknowledgement will change. barred are those that wait for a policy to change.
	open, barred map[string]bool
	wake         chan struct{}
	// retry is when it is tried again to write the memory, after it could not be written for some time.
	retry   time.Time
	backoff time.Duration
}

func newTies(mesh translate.Mesh, assignments *Assignments, operational func(ref string) bool) *ties {
	return &ties{mode: mesh.BindWaypoints, suffix: mesh.DomainSuffix, assignments: assignments, now: time.Now, operational: operational,
		refusal: func(model.Key, bool, *translate.Waypoint) (string, model.Key) { return "", model.Key{} }, turned: func(*batch, model.Key) {},
		of: map[string]*tie{}, atOnce: map[string]string{}, open: map[string]bool{}, barred: map[string]bool{}, wake: make(chan struct{}, 1)}
}

// drop forgets the tie of an object that is gone.
func (x *ties) drop(name string) {
	delete(x.of, name)
	delete(x.atOnce, name)
	delete(x.open, name)
	delete(x.barred, name)
	x.assignments.arrived(name)
}

// decide brings the tie of an object up to date. existed says that the object's Address was published before; intent is what its labels ask for now.
func (x *ties) decide(b *batch, name string, key model.Key, intent translate.Intent, existed bool, ctx translate.Context) *translate.Decision {
	if x.mode == translate.BindAtOnce {
		namespace, asked, _ := strings.Cut(intent.Asked, "/")
		d := intent.AtOnce(ctx.Waypoints(namespace, asked) != nil)
		var refs []string
		if d.Way != "" {
			for _, w := range d.Gateways {
				refs = append(refs, w.Ref())
			}
		}
		x.follow(b, name, key, strings.Join(refs, " "))
		return d
	}
	t := x.of[name]
	if t == nil {
		if way, _ := x.assignments.waiting(name); intent.Asked == "" || intent.Unfit && way == "" {
			x.assignments.arrived(name)
			return x.without(intent)
		}
		t = x.tie(name, key, intent, existed)
	}
	if intent.Unfit && !t.was && len(t.leaving) == 0 {
		if t.told != "" {
			x.turned(b, key)
		}
		x.drop(name)
		return x.without(intent)
	}
	if t.asked == "" && intent.Asked != "" && !existed {
		t.way = intent.Asked // it was away, and is seen with the label first
	}
	if t.asked != intent.Asked {
		t.asked, t.ready, t.sure, t.resolved, t.acked, t.assumed, t.refused = intent.Asked, false, false, false, time.Time{}, time.Time{}, ""
	}
	if t.asked == "" {
		t.turn("", x.now())
		t.was = false
	}
	delete(t.leaving, t.way)
	delete(t.leaving, t.asked)
	t.read(intent, x.now())
	t.since = b.generation
	if !b.settling {
		t.stands = false // the object has changed, or its waypoint
	}
	switch {
	case t.remembered():
		x.assignments.wait(name, t.note())
	case t.asked == "":
		x.assignments.arrived(name)
	default:
		t.resolved = false
		x.assignments.bound(name)
	}
	if told := strings.Join(x.behind(name), " "); t.told != told {
		t.told = told
		x.turned(b, key)
	}
	if t.asked == "" && len(t.leaving) == 0 {
		x.drop(name)
		return x.without(intent)
	}
	x.watch(name, t)
	return x.decision(t, intent, ctx)
}

// follow takes note of the waypoints that the Addresses of an object name where they name them at once.
func (x *ties) follow(b *batch, name string, key model.Key, refs string) {
	switch {
	case x.atOnce[name] == refs:
		return
	case refs == "":
		delete(x.atOnce, name)
	default:
		x.atOnce[name] = refs
	}
	x.turned(b, key)
}

// tie makes the tie of an object that is seen with the label for the first time.
func (x *ties) tie(name string, key model.Key, intent translate.Intent, existed bool) *tie {
	t := &tie{key: key, asked: intent.Asked, canary: canaryOf(intent), leaving: map[string]time.Time{}}
	x.of[name] = t
	way, waiting := x.assignments.waiting(name)
	switch {
	case x.began && existed:
		// It went direct up to now. Another control plane may know that it need not any more.
		if x.assignments.mayGo(name, t.asked) {
			t.way, t.was, t.ready, t.sure = t.asked, true, true, true
		}
	case waiting && x.assignments.settled(name):
		t.way, t.was = t.asked, true // the line may be of an earlier label
	case waiting:
		t.way, t.was = way, way != ""
	case !existed:
		t.way = intent.Asked
		if !x.began {
			t.ready, t.was, t.assumed = true, true, x.now().Add(assumeFor)
			t.canaryReady = t.canary != ""
		}
	}
	if t.canary != "" {
		t.canaryUntil = x.now().Add(assumeFor)
	}
	return t
}

// read takes over what the labels ask for, and what the waypoint says of it.
func (t *tie) read(intent translate.Intent, now time.Time) {
	before := t.proven[t.asked]
	t.proven, t.foreign, t.unfit = map[string]*translate.Waypoint{}, intent.Foreign, intent.Unfit
	for _, w := range intent.Gateways {
		t.proven[w.Ref()] = w
	}
	if canary := canaryOf(intent); canary != t.canary {
		if t.canaryReady && t.canary != "" && t.canary != t.way && t.canary != t.asked {
			t.leaving[t.canary] = now.Add(leaveFor)
		}
		delete(t.leaving, canary)
		t.canary, t.canaryReady, t.canaryAcked, t.canaryUntil, t.canaryAsked = canary, false, time.Time{}, time.Time{}, time.Time{}
		if canary != "" {
			t.canaryUntil = now.Add(assumeFor)
		}
	}
	// Proxies of another identity are others.
	same := before == nil || t.proven[t.asked] == nil || before.Identity == t.proven[t.asked].Identity
	if t.ready = t.ready && t.usable() && same; !t.ready {
		t.resolved, t.sure, t.assumed = false, false, time.Time{}
	}
}

// canaryOf is the canary of an object's waypoint; empty if there is none.
func canaryOf(intent translate.Intent) string {
	for _, w := range intent.Gateways {
		if w.Ref() != intent.Asked {
			return w.Ref()
		}
	}
	return intent.Canary
}

// usable says whether the asked waypoint is there and takes the object's connections.
func (t *tie) usable() bool { return t.foreign || t.proven[t.asked] != nil }

// turn has the Addresses name another waypoint, or none.
func (t *tie) turn(way string, now time.Time) {
	if t.way != "" && t.way != way {
		t.leaving[t.way] = now.Add(leaveFor)
	}
	t.way = way
	delete(t.leaving, way)
}

// watch takes note of whether time or an acknowledgement will change a tie.
func (x *ties) watch(name string, t *tie) {
	if !t.unsettled() {
		delete(x.open, name)
		return
	}
	x.open[name] = true
	x.rouse()
}

// rouse has Settle called.
func (x *ties) rouse() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

func (t *tie) unsettled() bool {
	return t.awaits() || !t.assumed.IsZero() || len(t.leaving) > 0
}

// awaits says whether a proxy of the asked waypoint or of the canary, or a pod of them, will change the tie.
func (t *tie) awaits() bool {
	return t.usable() && !t.stands && (!t.ready || t.waits()) || t.canary != "" && (!t.canaryReady || !t.canaryUntil.IsZero())
}

// without is the decision for an object that goes through no waypoint.
func (x *ties) without(intent translate.Intent) *translate.Decision {
	return &translate.Decision{Asked: intent.Asked, Unfit: intent.Unfit, Why: intent.Why, Reason: intent.Reason, Own: intent.Own}
}

// decision renders a tie for the translation, and lists the Gateways of the Binding.
func (x *ties) decision(t *tie, intent translate.Intent, ctx translate.Context) *translate.Decision {
	d := x.without(intent)
	d.Unfit = t.unfit && t.way == "" // it never was for the object's traffic
	d.Way, d.Ready, d.Foreign, d.Canary, d.DomainSuffix = t.way, t.ready, t.foreign, t.canaryReady, x.suffix
	switch {
	case t.foreign:
		d.Why = ""
	case t.refused != "":
		d.Why, d.Reason = t.refused, translate.ReasonRefused
	}
	gateways := maps.Clone(t.proven)
	keep := func(ref string) bool {
		w := ctx.Server(ref)
		if w == nil || intent.Admits == nil || !intent.Admits(w) {
			return false
		}
		gateways[ref] = w
		return true
	}
	if t.way != "" && gateways[t.way] == nil {
		keep(t.way)
		w := ctx.Gateway(t.way)
		d.Denied = w != nil && (intent.Admits == nil || !intent.Admits(w))
	}
	for _, ref := range slices.Sorted(maps.Keys(t.leaving)) {
		if gateways[ref] == nil && keep(ref) {
			d.Leaving = append(d.Leaving, ref)
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(gateways)) {
		d.Gateways = append(d.Gateways, gateways[ref])
	}
	return d
}

// objectName is the name of the tie that the Addresses of a Service or a ServiceEntry share.
func objectName(key model.Key) string { return key.Kind + " " + key.Namespace + "/" + key.Name }

// behind names the waypoints by which the connections of an object come, if they do not come directly: the one that its Addresses name, the canary, and
// those that have connections left.
func (x *ties) behind(name string) []string {
	if refs := x.atOnce[name]; refs != "" {
		return strings.Split(refs, " ")
	}
	t := x.of[name]
	if t == nil || t.way == "" {
		return nil
	}
	refs := append([]string{t.way}, slices.Sorted(maps.Keys(t.leaving))...)
	if t.canary != "" {
		refs = append(refs, t.canary)
	}
	return refs
}
