package compile

import (
	"maps"
	"slices"
	"time"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// assertAfter is how long a control plane leaves a note in the memory that is of another label than the one it has heard of.
const assertAfter = 5 * time.Second

// leastBackoff and mostBackoff bound the pause before a memory that could not be written is tried again.
const (
	leastBackoff = time.Second
	mostBackoff  = 30 * time.Second
)

// GatewayProxy is a connected proxy of a waypoint.
type GatewayProxy struct {
	// Gateway is "namespace/name", Identity the proven "namespace/serviceaccount".
	Gateway, Identity string
	// Through is the generation through which it has acknowledged all kinds that are for it; 0 if it does not follow one of them.
	Through uint64
	// Refused are the names of the Bindings that it refuses, RefusedPolicies those of the policies with targetRefs.
	Refused, RefusedPolicies map[string]bool
}

// refuses says whether a proxy refuses one of the names.
func refuses(refused map[string]bool, names []string) bool {
	return len(refused) > 0 && slices.ContainsFunc(names, func(name string) bool { return refused[name] })
}

// bearing is what a proxy must take before it takes the connections of an object.
type bearing struct {
	// bindings are the names of the object's Bindings. Without one there is nothing to acknowledge.
	bindings []string
	// policies lists the names of the policies that hold for the object at a waypoint.
	policies func(w *translate.Waypoint) []string
}

// accepted says whether the proxies of a Gateway have acknowledged the Bindings of an object: all that are connected, or one of them for some time.
func (x *ties) accepted(w *translate.Waypoint, since uint64, first *time.Time, of bearing, proxies map[string][]GatewayProxy) bool {
	have, lag := false, false
	for _, p := range proxies[w.Ref()] {
		switch {
		case p.Identity != w.Identity:
		case p.Through < since, refuses(p.Refused, of.bindings), len(p.RefusedPolicies) > 0 && refuses(p.RefusedPolicies, of.policies(w)):
			lag = true
		default:
			have = len(of.bindings) > 0
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
func (x *ties) judge(proxies map[string][]GatewayProxy, bearing func(t *tie, name string) bearing) (stale []model.Key, resolved []string) {
	now := x.now()
	for _, name := range slices.Sorted(maps.Keys(x.open)) {
		t := x.of[name]
		touched := t.leave(now)
		of := bearing(t, name)
		ready, proved := t.ready, false
		if own := t.proven[t.asked]; own != nil {
			// A pod may have acknowledged before node proxies are told that it is ready.
			if proved = x.accepted(own, t.since, &t.acked, of, proxies) && x.operational(t.asked); proved {
				why := x.barrier(t, name, own, now)
				touched = touched || why != t.refused
				ready, t.refused, t.assumed = why == "", why, time.Time{}
			}
		} else if proved = t.foreign && x.operational(t.asked); proved {
			ready, t.assumed = true, time.Time{}
		}
		if t.ready && !t.assumed.IsZero() && !now.Before(t.assumed) {
			ready, t.assumed = x.elsewhere(t, t.asked, proxies), time.Time{}
		}
		touched = x.judgeCanary(t, name, of, proxies, now) || touched || ready != t.ready
		if t.ready = ready; ready && t.way == t.asked {
			t.was = true
			if proved && !t.sure {
				t.sure = true
				x.assignments.affirm(name, t.asked)
			}
		}
		if t.waits() {
			x.assert(t, name, now)
		}
		if ready && t.waits() && t.assumed.IsZero() && !now.Before(x.retry) {
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

// elsewhere says whether the proxies of a waypoint may all be connected to another control plane: the waypoint has pods, and none of its own is here.
func (x *ties) elsewhere(t *tie, ref string, proxies map[string][]GatewayProxy) bool {
	return x.assignments.shared != nil && !x.here(t, ref, proxies) && x.operational(ref)
}

// here says whether a proxy of a waypoint is connected to this control plane.
func (x *ties) here(t *tie, ref string, proxies map[string][]GatewayProxy) bool {
	own := t.proven[ref]
	return slices.ContainsFunc(proxies[ref], func(p GatewayProxy) bool { return own == nil || p.Identity == own.Identity })
}

// admitted says whether the object's workloads would let its canary in. Where they would not it is asked again after some time.
func (x *ties) admitted(t *tie, name string, canary *translate.Waypoint, now time.Time) bool {
	if now.Before(t.canaryAsked) {
		return false
	}
	why, _ := x.refusal(t.key, name != objectName(t.key), canary)
	if t.canaryAsked = (time.Time{}); why != "" {
		t.canaryAsked = now.Add(lagFor)
	}
	return why == ""
}

// judgeCanary looks whether the canary may have a share, and says whether that has changed. A canary without an acknowledgement may have one for some time
// after the start. After that time it may if its proxies are elsewhere: only other control planes know what those have acknowledged.
func (x *ties) judgeCanary(t *tie, name string, of bearing, proxies map[string][]GatewayProxy, now time.Time) (changed bool) {
	if t.canary == "" || t.canaryReady && t.canaryUntil.IsZero() {
		return false
	}
	ready := t.canaryReady
	own := t.proven[t.canary]
	switch proved := own == nil || x.accepted(own, t.since, &t.canaryAcked, of, proxies); {
	case proved && x.operational(t.canary):
		if ready = own == nil || x.admitted(t, name, own, now); ready {
			t.canaryUntil = time.Time{}
		}
	case !ready && x.here(t, t.canary, proxies):
		t.canaryUntil = now.Add(assumeFor) // none may be here for so long before they count as being elsewhere
	case !now.Before(t.canaryUntil):
		if ready = x.elsewhere(t, t.canary, proxies); ready {
			t.canaryUntil = time.Time{}
		}
	}
	changed = ready != t.canaryReady
	t.canaryReady = ready
	return changed
}

// assert writes down again, after a while, that an object waits, if another control plane has replaced that by what an earlier or a later label says. Whoever
// knows that the object may go has to learn that somebody waits for it.
func (x *ties) assert(t *tie, name string, now time.Time) {
	text, there := x.assignments.Waiting[name]
	switch {
	case x.assignments.shared == nil || !there || readNote(text).about(t.asked):
		t.assertAt = time.Time{}
	case t.assertAt.IsZero():
		t.assertAt = now.Add(assertAfter)
	case !now.Before(t.assertAt):
		t.assertAt = now.Add(assertAfter)
		x.assignments.wait(name, t.note())
	}
}

// leave ends what waypoints have left of the connections, and says whether any did.
func (t *tie) leave(now time.Time) (ended bool) {
	for ref, until := range t.leaving {
		if !now.Before(until) {
			delete(t.leaving, ref)
			ended = true
		}
	}
	return ended
}

// barrier says why the workloads of an object would refuse its waypoint. It asks once before the object is bound. A refusal stands until the workload that
// refuses, or one of its policies, has changed.
func (x *ties) barrier(t *tie, name string, w *translate.Waypoint, now time.Time) string {
	switch {
	case t.stands:
		return t.refused
	case t.ready && (!t.waits() || t.resolved || now.Before(x.retry)):
		return ""
	}
	why, witness := x.refusal(t.key, name != objectName(t.key), w)
	if t.stands, t.witness = why != "", witness; t.stands {
		x.barred[name] = true
	}
	return why
}

// reconsider has those objects judged again whose workloads refused a waypoint, if a batch touched the workload or one of its policies.
func (x *ties) reconsider(b *batch, root string) {
	if len(x.barred) == 0 {
		return
	}
	judged := map[string]bool{} // namespaces with other policies
	for policy := range b.stale[policyOutput] {
		judged[policy.Namespace] = true
	}
	for name := range x.barred {
		t := x.of[name]
		if t.stands && !b.stale[workloadOutput][t.witness] && !judged[t.witness.Namespace] && !judged[root] {
			continue
		}
		t.stands = false
		delete(x.barred, name)
		x.watch(name, t)
	}
}

// proceed has objects go the way that their labels say, and returns them.
func (x *ties) proceed(names []string) (stale []model.Key) {
	for _, name := range names {
		if t := x.of[name]; t != nil && t.waits() {
			t.turn(t.asked, x.now())
			t.was, t.sure, t.resolved = true, true, false
			stale = append(stale, t.key)
		}
	}
	return stale
}

// next is when time alone will change an open tie after now, and whether one awaits an acknowledgement. at is zero if time changes none.
func (x *ties) next(now time.Time) (acks bool, at time.Time) {
	sooner := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for name := range x.open {
		t := x.of[name]
		acks = acks || t.awaits()
		sooner(t.assumed)
		sooner(t.canaryUntil)
		sooner(t.canaryAsked)
		if !t.acked.IsZero() && !t.ready {
			sooner(t.acked.Add(lagFor))
		}
		if !t.canaryAcked.IsZero() && !t.canaryReady {
			sooner(t.canaryAcked.Add(lagFor))
		}
		if t.waits() {
			sooner(t.assertAt)
			sooner(x.retry)
		}
		for _, until := range t.leaving {
			sooner(until)
		}
	}
	return acks, at
}

// Unsettled is woken when Settle has something to do.
func (c *Compiler) Unsettled() <-chan struct{} { return c.ties.wake }

// Settle moves objects behind the waypoints that they ask for, as far as the proxies of those have acknowledged it, and ends what is over. proxies lists
// the connected ones as they are at the time of the call. acks says whether it is to be called again when proxies have acknowledged more, and at when it is
// to be called without that; zero: never.
func (c *Compiler) Settle(proxies func() []GatewayProxy) (acks bool, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ties.open)+len(c.services.departed.of) == 0 {
		return false, time.Time{}
	}
	// With the lock: acknowledgements that were read before a batch say nothing of it, and nothing else may ever be acknowledged.
	now, by := c.ties.now(), map[string][]GatewayProxy{}
	for _, p := range proxies() {
		by[p.Gateway] = append(by[p.Gateway], p)
	}
	stale, resolved := c.ties.judge(by, c.bearing)
	if len(resolved) > 0 {
		stale = append(stale, c.resolve(resolved)...)
	}
	lost := slices.DeleteFunc(c.services.departed.expire(now), func(key model.Key) bool { return len(c.index.targets[key]) == 0 })
	c.again(stale, lost)
	acks, at = c.ties.next(now)
	if expires := c.services.departed.next(); at.IsZero() || !expires.IsZero() && expires.Before(at) {
		at = expires
	}
	return acks, at
}

// bearing finds what a proxy must take before it takes the connections of an object.
func (c *Compiler) bearing(t *tie, name string) bearing {
	if name != objectName(t.key) {
		return bearing{bindings: []string{name}, policies: func(w *translate.Waypoint) []string {
			return c.policyNames(waypointKeys(w)...)
		}}
	}
	return bearing{bindings: slices.Collect(maps.Keys(c.hosts.resources[t.key])), policies: func(w *translate.Waypoint) []string {
		return c.policyNames(append(waypointKeys(w), t.key)...)
	}}
}

func waypointKey(w *translate.Waypoint) model.Key { return model.GatewayKey(w.Namespace, w.Name) }

// waypointKeys are the targets of policies for all requests that a waypoint takes.
func waypointKeys(w *translate.Waypoint) []model.Key {
	keys := []model.Key{waypointKey(w)}
	for _, class := range w.Classes() {
		keys = append(keys, model.GatewayClassKey(class))
	}
	return keys
}

// policyNames are the wire names of the policies that name one of the targets.
func (c *Compiler) policyNames(targets ...model.Key) (names []string) {
	for _, target := range targets {
		c.index.policiesFor(target, func(policy model.Key) { names = append(names, policy.Namespace+"/"+policy.Name) })
	}
	return names
}

// resolve writes down that ties wait no more, and then has their objects go their way. Where others keep the memory it asks them; see keepWaiting.
func (c *Compiler) resolve(names []string) []model.Key {
	if c.assignments.shared != nil {
		for _, name := range names {
			t := c.ties.of[name]
			t.resolved = true
			c.assignments.wait(name, t.note())
		}
		return nil
	}
	before := maps.Clone(c.assignments.Waiting)
	for _, name := range names {
		c.assignments.arrived(name)
	}
	if err := c.assignments.save(); err != nil {
		c.assignments.Waiting = before
		c.ties.backoff = min(max(2*c.ties.backoff, leastBackoff), mostBackoff)
		c.ties.retry = c.ties.now().Add(c.ties.backoff)
		c.logger.Error("compile: objects are not moved behind their waypoints, since that cannot be written down; it is tried again", "objects", len(names), "error", err)
		return nil
	}
	c.ties.backoff, c.ties.retry = 0, time.Time{}
	return c.ties.proceed(names)
}

// again compiles objects anew, and the policies of those that have lost hosts for good, as a generation of their own.
func (c *Compiler) again(stale, lost []model.Key) {
	if len(stale)+len(lost) == 0 {
		return
	}
	generation, _ := c.store.Apply(nil)
	c.arbiter.forget()
	b := newBatch(generation)
	b.settling = true
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
	for _, key := range lost {
		c.index.policiesFor(key, func(policy model.Key) { b.mark(requestPolicyOutput, policy) })
	}
	for _, run := range c.steps {
		run(b)
	}
	c.keepAssignments(b)
	c.log.Append(generation, b.changes)
}
