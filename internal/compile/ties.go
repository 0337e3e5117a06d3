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
	// assumed is the time until which the tie counts as ready without an acknowledgement; zero: it does not.
	assumed time.Time
	// since is the generation that published the Binding for the asked waypoint, acked the time of the first acknowledgement of it.
	since uint64
	acked time.Time
	// canaryReady says that the canary may have a share of the connections.
	canary      string
	canaryReady bool
	// leaving are the waypoints that keep the Binding until a time, although the Addresses no longer name them.
	leaving map[string]time.Time
	// proven are those of the asked waypoint and the canary that this mesh serves: their proxies acknowledge the Binding. foreign says that somebody else
	// serves the asked one, and that it can be used.
	proven  map[string]*translate.Waypoint
	foreign bool
	// refused says why the object's workloads would refuse the asked waypoint; empty if they would not, as far as it was judged.
	refused string
	// told is the waypoint that the Addresses of the last batch named.
	told string
	// stored says that the AssignmentStore has the tie as waiting; resolved that it is to have it no more.
	stored, resolved bool
}

func (t *tie) waits() bool { return t.asked != "" && t.way != t.asked }

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
	// refusal says why an object's workloads would refuse a waypoint; own says that the object is the workload.
	refusal func(key model.Key, own bool, w *translate.Waypoint) string
	// turned hears of an object whose Addresses name another waypoint.
	turned func(b *batch, key model.Key)
	began  bool // the first batch, which holds every object, was taken
	of     map[string]*tie
	// open are the ties that time or an acknowledgement will change.
	open map[string]bool
	wake chan struct{}
}

func newTies(mesh translate.Mesh, assignments *Assignments, operational func(ref string) bool) *ties {
	return &ties{mode: mesh.BindWaypoints, suffix: mesh.DomainSuffix, assignments: assignments, now: time.Now, operational: operational,
		refusal: func(model.Key, bool, *translate.Waypoint) string { return "" }, turned: func(*batch, model.Key) {},
		of: map[string]*tie{}, open: map[string]bool{}, wake: make(chan struct{}, 1)}
}

// drop forgets the tie of an object that is gone.
func (x *ties) drop(name string) {
	delete(x.of, name)
	delete(x.open, name)
	x.assignments.arrived(name)
}

// decide brings the tie of an object up to date. existed says that the object's Address was published before; intent is what its labels ask for now.
func (x *ties) decide(b *batch, name string, key model.Key, intent translate.Intent, existed bool, ctx translate.Context) *translate.Decision {
	if x.mode == translate.BindAtOnce {
		namespace, asked, _ := strings.Cut(intent.Asked, "/")
		return intent.AtOnce(ctx.Waypoints(namespace, asked) != nil)
	}
	t := x.of[name]
	if t == nil {
		if way, _ := x.assignments.waiting(name); intent.Asked == "" || intent.Unfit && way == "" {
			x.assignments.arrived(name)
			return x.without(intent)
		}
		t = x.tie(name, key, intent, existed)
	}
	if intent.Unfit && !t.was {
		x.drop(name)
		return x.without(intent)
	}
	if t.asked != intent.Asked {
		t.asked, t.ready, t.acked, t.assumed, t.refused = intent.Asked, false, time.Time{}, time.Time{}, ""
	}
	if t.asked == "" {
		t.turn("", x.now())
	}
	delete(t.leaving, t.way)
	delete(t.leaving, t.asked)
	t.read(intent)
	t.since = b.generation
	if t.waits() || intent.Unfit {
		x.assignments.wait(name, t.way)
	} else {
		x.assignments.arrived(name)
		t.stored, t.resolved = false, false
	}
	if t.asked == "" && len(t.leaving) == 0 {
		x.turned(b, key)
		x.drop(name)
		return x.without(intent)
	}
	if t.told != t.way {
		t.told = t.way
		x.turned(b, key)
	}
	x.watch(name, t)
	return x.decision(t, intent, ctx)
}

// tie makes the tie of an object that is seen with the label for the first time.
func (x *ties) tie(name string, key model.Key, intent translate.Intent, existed bool) *tie {
	t := &tie{key: key, asked: intent.Asked, canary: canaryOf(intent), leaving: map[string]time.Time{}}
	x.of[name] = t
	way, waiting := x.assignments.waiting(name)
	switch {
	case waiting:
		t.way, t.stored, t.was = way, true, way != ""
	case !existed:
		t.way = intent.Asked
		if !x.began {
			t.ready, t.was, t.canaryReady, t.assumed = true, true, true, x.now().Add(assumeFor)
		}
	}
	return t
}

// read takes over what the labels ask for, and what the waypoint says of it.
func (t *tie) read(intent translate.Intent) {
	t.proven, t.foreign = map[string]*translate.Waypoint{}, intent.Foreign
	for _, w := range intent.Gateways {
		t.proven[w.Ref()] = w
	}
	if canary := canaryOf(intent); canary != t.canary {
		t.canary, t.canaryReady = canary, false
	}
	t.ready = t.ready && t.usable() // it is not there any more, or may not be used
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
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

func (t *tie) unsettled() bool {
	return t.usable() && (!t.ready || t.waits()) || !t.assumed.IsZero() || t.canary != "" && !t.canaryReady || len(t.leaving) > 0
}

// without is the decision for an object that goes through no waypoint.
func (x *ties) without(intent translate.Intent) *translate.Decision {
	return &translate.Decision{Asked: intent.Asked, Unfit: intent.Unfit, Why: intent.Why, Reason: intent.Reason, Own: intent.Own}
}

// decision renders a tie for the translation, and lists the Gateways of the Binding.
func (x *ties) decision(t *tie, intent translate.Intent, ctx translate.Context) *translate.Decision {
	d := x.without(intent)
	d.Unfit, d.Way, d.Ready, d.Foreign, d.Canary, d.DomainSuffix = false, t.way, t.ready, t.foreign, t.canaryReady, x.suffix
	switch {
	case t.foreign:
		d.Why = ""
	case t.refused != "":
		d.Why, d.Reason = t.refused, translate.ReasonRefused
	}
	gateways := maps.Clone(t.proven)
	keep := func(ref string) bool {
		w := ctx.Server(ref)
		if w != nil {
			gateways[ref] = w
		}
		return w != nil
	}
	if t.way != "" && gateways[t.way] == nil {
		keep(t.way)
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

// GatewayProxy is a connected proxy of a waypoint.
type GatewayProxy struct {
	// Gateway is "namespace/name", Identity the proven "namespace/serviceaccount".
	Gateway, Identity string
	// Through is the generation through which it has acknowledged all that it follows.
	Through uint64
	// Refused are the names of the Bindings that it refuses.
	Refused map[string]bool
}

// accepted says whether the proxies of a Gateway have acknowledged a Binding: all that are connected, or one of them for some time. bindings are the names.
func (x *ties) accepted(w *translate.Waypoint, since uint64, first *time.Time, bindings []string, proxies map[string][]GatewayProxy) bool {
	have, lag := false, false
	for _, p := range proxies[w.Ref()] {
		switch {
		case p.Identity != w.Identity:
		case p.Through < since, slices.ContainsFunc(bindings, func(name string) bool { return p.Refused[name] }):
			lag = true
		default:
			have = true
		}
	}
	if !have {
		*first = time.Time{}
		return false
	}
	if first.IsZero() {
		*first = x.now()
	}
	return !lag || x.now().Sub(*first) >= lagFor
}

// judge looks at every open tie. It returns the objects that are to be compiled again, and the names of the ties whose objects may now go their way: that must be
// written down first.
func (x *ties) judge(proxies map[string][]GatewayProxy, bindings func(t *tie, name string) []string) (stale []model.Key, resolved []string) {
	now := x.now()
	for _, name := range slices.Sorted(maps.Keys(x.open)) {
		t := x.of[name]
		touched := false
		for ref, until := range t.leaving {
			if !now.Before(until) {
				delete(t.leaving, ref)
				touched = true
			}
		}
		ready := t.ready
		if own := t.proven[t.asked]; own != nil {
			// A pod may have acknowledged before node proxies are told that it is ready.
			if x.accepted(own, t.since, &t.acked, bindings(t, name), proxies) && x.operational(t.asked) {
				refused := ""
				if !t.ready || t.waits() {
					refused = x.refusal(t.key, name != objectName(t.key), own)
				}
				touched = touched || refused != t.refused
				ready, t.refused, t.assumed = refused == "", refused, time.Time{}
			}
		} else if t.foreign && x.operational(t.asked) {
			ready, t.assumed = true, time.Time{}
		}
		if t.ready && !t.assumed.IsZero() && !now.Before(t.assumed) {
			ready, t.assumed = false, time.Time{}
		}
		if canary := t.proven[t.canary]; t.canary != "" && !t.canaryReady {
			var ignored time.Time
			if (canary == nil || x.accepted(canary, t.since, &ignored, bindings(t, name), proxies)) && x.operational(t.canary) {
				t.canaryReady, touched = true, true
			}
		}
		touched = touched || ready != t.ready
		t.was = t.was || ready && t.way == t.asked
		if t.ready = ready; ready && t.waits() && t.assumed.IsZero() {
			resolved = append(resolved, name)
		}
		if touched {
			stale = append(stale, t.key)
		}
		if !t.unsettled() {
			delete(x.open, name)
		}
	}
	return stale, resolved
}

// proceed has objects go the way that their labels say, and returns them.
func (x *ties) proceed(names []string) (stale []model.Key) {
	for _, name := range names {
		if t := x.of[name]; t != nil && t.waits() {
			t.turn(t.asked, x.now())
			t.was = true
			t.stored, t.resolved = false, false
			stale = append(stale, t.key)
		}
	}
	return stale
}

// Unsettled is woken when Settle has something to do.
func (c *Compiler) Unsettled() <-chan struct{} { return c.ties.wake }

// Settle moves objects behind the waypoints that they ask for, as far as the proxies of those have acknowledged it, and ends what is over. It returns
// whether it is to be called again when proxies have acknowledged more, or when some time has passed.
func (c *Compiler) Settle(proxies []GatewayProxy) (again bool) {
	by := map[string][]GatewayProxy{}
	for _, p := range proxies {
		by[p.Gateway] = append(by[p.Gateway], p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ties.open) == 0 {
		return false
	}
	stale, resolved := c.ties.judge(by, func(t *tie, name string) []string {
		if names := c.hosts.resources[t.key]; len(names) > 0 && name == objectName(t.key) {
			return slices.Sorted(maps.Keys(names))
		}
		return []string{name}
	})
	if len(resolved) > 0 {
		stale = append(stale, c.resolve(resolved)...)
	}
	c.again(stale)
	return len(c.ties.open) > 0
}

// resolve writes down that ties wait no more, and then has their objects go their way. Where others keep the memory it asks them; see keepWaiting.
func (c *Compiler) resolve(names []string) []model.Key {
	if s := c.assignments.shared; s != nil {
		for _, name := range names {
			if t := c.ties.of[name]; !t.resolved {
				t.resolved = true
				s.nudge()
			}
		}
		return nil
	}
	before := map[string]string{}
	for _, name := range names {
		before[name] = c.assignments.Waiting[name]
		c.assignments.arrived(name)
	}
	if err := c.assignments.save(); err != nil {
		maps.Copy(c.assignments.Waiting, before)
		c.logger.Error("compile: objects are not moved behind their waypoints, since that cannot be written down; it is tried again", "objects", len(names), "error", err)
		return nil
	}
	return c.ties.proceed(names)
}

// again compiles objects anew, as a generation of their own.
func (c *Compiler) again(stale []model.Key) {
	if len(stale) == 0 {
		return
	}
	generation, _ := c.store.Apply(nil)
	c.arbiter.forget()
	b := newBatch(generation)
	for _, key := range stale {
		switch key.Kind {
		case "Service":
			b.mark(serviceOutput, key)
		case "ServiceEntry":
			b.mark(serviceOutput, key)
			b.workload(key)
		default:
			b.workload(key)
		}
	}
	for _, run := range c.steps {
		run(b)
	}
	c.keepAssignments(b)
	c.log.Append(generation, b.changes)
}

// objectName is the name of the tie that the Addresses of a Service or a ServiceEntry share.
func objectName(key model.Key) string { return key.Kind + " " + key.Namespace + "/" + key.Name }

// behind are the waypoints of this mesh that the Addresses of an object name, by the name of its tie.
func (x *ties) behind(name string, served func(ref string) *translate.Waypoint) *translate.Waypoint {
	if t := x.of[name]; t != nil && t.way != "" {
		return served(t.way)
	}
	return nil
}
