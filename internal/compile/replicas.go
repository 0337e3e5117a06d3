package compile

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/model"
)

// MaxWaiting bounds what is kept of the objects that are not behind their waypoints, in bytes. A store may keep up to the same again for earlier versions.
// aroundWaiting is what JSON puts around each.
const (
	MaxWaiting    = 100 << 10
	aroundWaiting = 6
)

// AssignmentStore keeps virtual addresses where several control planes choose.
type AssignmentStore interface {
	// Update calls change with the addresses that are kept, by service, and keeps what it made of them if it says that it changed them. If
	// somebody else wrote meanwhile, it calls it again with what is kept then.
	Update(ctx context.Context, change func(kept map[string][]netip.Addr) bool) error
	// UpdateWaiting is the same for the objects that are not behind their waypoints yet; see Assignments.Waiting.
	UpdateWaiting(ctx context.Context, change func(kept map[string]string) bool) error
}

// sharedAssignments is the state of assignments that an AssignmentStore keeps. What is in memory is what was kept there when it was last looked at: nothing is published
// that is not kept. What is wanted is written by Keep, beside the compiling of everything else.
type sharedAssignments struct {
	store    AssignmentStore
	capacity int // bytes in the store
	wake     chan struct{}
	// wanted are services that need addresses; denied are those that get none for now, and why. Both have nobody who speaks for them no more
	// only until the compiler notices.
	wanted map[string]bool
	denied map[string]string
	// dropped are addresses that were taken away here and may still be kept.
	dropped map[string][]netip.Addr
	// lost says that the store has lost what it kept. It is put back.
	lost bool
	used int // bytes in the store when it was last looked at
	// held are the notes that are to be written down, freed the objects of which none is to be. over are those of held that count before what is
	// written down: that is of an earlier label.
	held        map[string]note
	freed, over map[string]bool
}

// ShareAssignments keeps virtual addresses in a store that other control planes use as well. The store has room for so many bytes.
func ShareAssignments(store AssignmentStore, capacity int) *Assignments {
	a := NewAssignments()
	a.shared = &sharedAssignments{store: store, capacity: capacity, wake: make(chan struct{}, 1), wanted: map[string]bool{}, denied: map[string]string{}, dropped: map[string][]netip.Addr{},
		held: map[string]note{}, freed: map[string]bool{}, over: map[string]bool{}}
	return a
}

func (s *sharedAssignments) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// want takes note that a service needs addresses.
func (s *sharedAssignments) want(service string) {
	if s.denied[service] == "" && !s.wanted[service] {
		s.wanted[service] = true
		s.nudge()
	}
}

// hold takes note of what is to be written down of an object. kept says that it is.
func (s *sharedAssignments) hold(name string, n note, kept bool) {
	if s.freed[name] {
		delete(s.freed, name)
		s.over[name], kept = true, false
	}
	have, ok := s.held[name]
	switch {
	case kept:
		s.unhold(name)
	case !ok || have != n:
		s.held[name] = n
		s.nudge()
	}
}

// unhold forgets what was to be written down of an object.
func (s *sharedAssignments) unhold(name string) {
	delete(s.held, name)
	delete(s.over, name)
}

// release takes note that nothing is to be written down of an object. kept says that something is.
func (s *sharedAssignments) release(name string, kept bool) {
	s.unhold(name)
	if kept && !s.freed[name] {
		s.freed[name] = true
		s.nudge()
	}
}

// drop takes addresses away from a service; it is to get others.
func (a *Assignments) drop(service string, addr netip.Addr) {
	s := a.shared
	s.dropped[service] = append(s.dropped[service], addr)
	a.forget(service)
	s.nudge()
}

// wants says of a service without addresses whether it gets some, and if not, why; empty if the assignments are not shared.
func (a *Assignments) wants(service string) (pending bool, denied string) {
	if a.shared == nil {
		return false, ""
	}
	return a.shared.wanted[service], a.shared.denied[service]
}

// forget takes a service's addresses out of memory.
func (a *Assignments) forget(service string) {
	for _, addr := range a.Addresses[service] {
		if a.taken[addr] == service {
			delete(a.taken, addr)
		}
	}
	delete(a.Addresses, service)
}

// take makes what is kept one's own, and returns the services whose addresses were others. What was taken away here is not taken back.
func (a *Assignments) take(kept map[string][]netip.Addr) (changed []string) {
	s := a.shared
	stays := func(service string) bool {
		return !slices.ContainsFunc(kept[service], func(addr netip.Addr) bool { return slices.Contains(s.dropped[service], addr) })
	}
	for service, have := range a.Addresses {
		want, ok := kept[service]
		if (ok && stays(service) && slices.Equal(have, want)) || (!ok && s.lost) {
			continue
		}
		a.forget(service)
		changed = append(changed, service)
	}
	for service, addresses := range kept {
		if a.Addresses[service] != nil || !stays(service) {
			continue
		}
		for _, addr := range addresses {
			if other := a.taken[addr]; other != "" && other != service {
				a.forget(other) // lost, and somebody else was quicker
				changed = append(changed, other)
			}
			a.taken[addr] = service
		}
		a.Addresses[service] = addresses
		delete(s.wanted, service)
		delete(s.denied, service)
		changed = append(changed, service)
	}
	slices.Sort(changed)
	return slices.Compact(changed)
}

// revive has those chosen for again that were denied, as far as there is room for them since something was taken out of the store.
func (a *Assignments) revive() {
	s := a.shared
	r := quotaOf(s.capacity, a.Addresses)
	freed := r.used < s.used
	if s.used = r.used; !freed {
		return
	}
	for _, service := range slices.Sorted(maps.Keys(s.denied)) {
		if r.admits(service) {
			r.take(service)
			delete(s.denied, service)
			s.want(service)
		}
	}
}

// proposal is what is to be written into the store.
type proposal struct {
	capacity int
	chosen   map[string][]netip.Addr
	// again are those of the chosen that were kept before.
	again   map[string]bool
	dropped map[string][]netip.Addr
}

// write puts a proposal into the store, as far as it fits: somebody else may have been quicker.
func (p *proposal) write(kept map[string][]netip.Addr) (wrote bool) {
	for service, gone := range p.dropped {
		if slices.ContainsFunc(kept[service], func(addr netip.Addr) bool { return slices.Contains(gone, addr) }) {
			delete(kept, service)
			wrote = true
		}
	}
	taken := map[netip.Addr]bool{}
	for _, addresses := range kept {
		for _, addr := range addresses {
			taken[addr] = true
		}
	}
	r := quotaOf(p.capacity, kept)
	for _, service := range slices.Sorted(maps.Keys(p.chosen)) {
		addresses := p.chosen[service]
		fits := r.admits(service) || p.again[service] && r.fits(service)
		if kept[service] != nil || !fits || slices.ContainsFunc(addresses, func(addr netip.Addr) bool { return taken[addr] }) {
			continue
		}
		kept[service] = addresses
		r.take(service)
		for _, addr := range addresses {
			taken[addr] = true
		}
		wrote = true
	}
	return wrote
}

// Wants is woken when Keep has something to do.
func (c *Compiler) Wants() <-chan struct{} {
	if c.assignments.shared == nil {
		return nil
	}
	return c.assignments.shared.wake
}

// Keep chooses addresses for the services that want some, writes them into the store, and publishes what is kept then. If the store does not
// answer, they go on wanting. Compiling goes on while it waits. It, Adopt and Lost are called one at a time.
func (c *Compiler) Keep(ctx context.Context) error {
	s := c.assignments.shared
	if s == nil {
		return nil
	}
	if err := c.keepWaiting(ctx); err != nil {
		return err
	}
	const rounds = 16 // each of them loses to another control plane, which has won
	for round := range rounds {
		c.mu.Lock()
		p, denied := c.allocator.propose()
		empty := len(p.chosen)+len(p.dropped) == 0
		if empty {
			s.lost = false // nothing that anybody needs
		}
		c.mu.Unlock()
		c.publishAgain(denied)
		if empty {
			return nil
		}
		var kept map[string][]netip.Addr
		if err := s.store.Update(ctx, func(present map[string][]netip.Addr) bool {
			kept = present
			return p.write(present)
		}); err != nil {
			if round > 0 && ctx.Err() != nil {
				break // there was so much to keep
			}
			return err
		}
		c.mu.Lock()
		s.lost = false
		for service, gone := range p.dropped {
			if len(s.dropped[service]) == len(gone) {
				delete(s.dropped, service)
			}
		}
		changed := c.assignments.take(kept)
		c.assignments.revive()
		rest := len(s.wanted) + len(s.dropped)
		c.mu.Unlock()
		c.publishAgain(changed)
		if rest == 0 {
			return nil
		}
	}
	s.nudge()
	return nil
}

// Adopt takes over the addresses that another control plane has kept.
func (c *Compiler) Adopt(kept map[string][]netip.Addr) {
	c.mu.Lock()
	if c.assignments.shared == nil {
		c.mu.Unlock()
		return
	}
	changed := c.assignments.take(kept)
	c.assignments.revive()
	started := c.started
	c.mu.Unlock()
	if started {
		c.publishAgain(changed)
	}
}

// Lost tells that nothing is kept any more. What is published stays, and is kept again.
func (c *Compiler) Lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.assignments.shared; s != nil {
		s.lost = true
		c.assignments.Waiting = map[string]string{}
		clear(s.freed)
		c.holdAgain()
		s.nudge()
	}
}

// holdAgain has what is to be remembered written down, as far as it is not. Nobody takes a note away to say that an object may go to its waypoint: it is lost, or
// was taken away by a control plane that has not heard of the label.
func (c *Compiler) holdAgain() {
	for name, t := range c.ties.of {
		if _, there := c.assignments.Waiting[name]; !there && t.remembered() {
			c.assignments.wait(name, t.note())
		}
	}
}

// AdoptWaiting takes over which objects are not behind their waypoints yet, as all control planes know it. An object goes to its waypoint when a note says
// so: the waypoint's proxies are connected to the control plane that wrote it.
func (c *Compiler) AdoptWaiting(kept map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.assignments
	s := a.shared
	if s == nil {
		return
	}
	a.Waiting = kept
	for name := range s.freed {
		if _, there := kept[name]; !there {
			delete(s.freed, name)
		}
	}
	var moved []string
	for name, text := range kept {
		if n, ok := s.held[name]; ok && n.in(text) {
			s.unhold(name)
		}
		t := c.ties.of[name]
		if t == nil {
			continue
		}
		n := readNote(text)
		switch {
		case t.waits() && n.letsGo(t.asked) && !s.over[name]:
			s.unhold(name)
			moved = append(moved, name)
		case !t.remembered() && t.sure:
			a.affirm(name, t.asked) // written by one that had not heard of it
		}
	}
	c.holdAgain()
	slices.Sort(moved)
	for _, name := range moved {
		c.ties.of[name].ready = true // as another control plane has heard
	}
	c.again(c.ties.proceed(moved), nil)
}

// keepWaiting writes down which objects are not behind their waypoints, and which may go there.
func (c *Compiler) keepWaiting(ctx context.Context) error {
	s := c.assignments.shared
	c.mu.Lock()
	held, freed, over := maps.Clone(s.held), maps.Clone(s.freed), maps.Clone(s.over)
	c.mu.Unlock()
	if len(held)+len(freed) == 0 {
		return nil
	}
	var now map[string]string
	var tooMany []string
	err := s.store.UpdateWaiting(ctx, func(kept map[string]string) (wrote bool) {
		for name := range freed {
			if _, there := kept[name]; there {
				delete(kept, name)
				wrote = true
			}
		}
		size, own := 0, map[string]int{}
		for name, text := range kept {
			n := len(name) + len(text) + aroundWaiting
			size += n
			own[namespaceOf(name)] += n
		}
		tooMany = nil
		for _, name := range slices.Sorted(maps.Keys(held)) {
			n := held[name]
			have, there := kept[name]
			if there && !over[name] {
				n = n.after(readNote(have))
			}
			text := n.String()
			if there && have == text {
				continue
			}
			if !there {
				// A namespace with many objects that wait leaves a quarter of the memory to others, which do the same.
				n, namespace := len(name)+len(text)+aroundWaiting, namespaceOf(name)
				if free := MaxWaiting - size - n; own[namespace]+n > 3*free {
					tooMany = append(tooMany, name)
					continue
				}
				size += n
				own[namespace] += n
			} else {
				size += len(text) - len(have)
			}
			kept[name] = text
			wrote = true
		}
		now = kept
		return wrote
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	for name, n := range held {
		if s.held[name] == n {
			s.unhold(name)
		}
	}
	c.mu.Unlock()
	c.AdoptWaiting(now)
	if len(tooMany) > 0 {
		c.logger.Warn("compile: too many objects wait for their waypoints at once; the connections of these are refused until then", "objects", len(tooMany), "object", tooMany[0])
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, name := range tooMany {
			s.unhold(name) // it was held again
		}
		c.again(c.ties.proceed(tooMany), nil)
	}
	return nil
}

// namespaceOf is the namespace of the object that has a tie: "Kind namespace/name", or a workload's "cluster/group/kind/namespace/name".
func namespaceOf(name string) string {
	if kind, object, _ := strings.Cut(name, " "); kind == "Service" || kind == "ServiceEntry" {
		namespace, _, _ := strings.Cut(object, "/")
		return namespace
	}
	if parts := strings.Split(name, "/"); len(parts) > 3 {
		return parts[3]
	}
	return ""
}

// Arrived lists the objects of which nothing need be remembered, and of which something is. The leader takes them out of the store when that has long been so.
func (c *Compiler) Arrived() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.assignments.Waiting {
		if t := c.ties.of[name]; t == nil || !t.remembered() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// publishAgain compiles the objects that speak for services again, as generations of their own: a few at a time, so that others' changes
// come in between.
func (c *Compiler) publishAgain(services []string) {
	if len(services) == 0 {
		return
	}
	speakers := map[model.Key]bool{}
	c.mu.Lock()
	for _, service := range services {
		if owner, ok := c.hosts.owner(service); ok {
			speakers[owner] = true
		}
	}
	c.mu.Unlock()
	const few = 32 // of up to 256 hosts each
	for some := range slices.Chunk(slices.SortedFunc(maps.Keys(speakers), model.Key.Compare), few) {
		c.mu.Lock()
		c.recompile(some)
		c.mu.Unlock()
	}
}

func (c *Compiler) recompile(speakers []model.Key) {
	generation, _ := c.store.Apply(nil)
	b := newBatch(generation)
	for _, key := range speakers {
		c.services.compile(b, key)
	}
	c.places.settleVirtual(b)
	each(workloadOutput, c.workloads.compile)(b)
	each(nodeOutput, c.workloads.tellNode)(b)
	each(requestPolicyOutput, c.requests.compilePolicy)(b)
	c.keepAssignments(b)
	c.log.Append(generation, b.changes)
}

// Unneeded lists the services that have addresses and for which nothing speaks; the leader takes them out of the store when they have long
// been unneeded.
func (c *Compiler) Unneeded() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for service := range c.assignments.Addresses {
		if _, ok := c.hosts.owner(service); !ok {
			out = append(out, service)
		}
	}
	slices.Sort(out)
	return out
}
