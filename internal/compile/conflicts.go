package compile

import (
	"maps"
	"net/netip"
	"slices"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// conflicts are the settled claims of several objects to one address, range or host. Each is settled once for all claimants: if each
// claimant looked at all others, the work would grow with their square.
type conflicts struct {
	addresses map[netip.Addr]*claimants // addresses that ServiceEntries ask for
	blocks    map[netip.Prefix]*rangeClaimants
	hosts     map[string]*claimants // for one batch only
}

func newConflicts() conflicts {
	return conflicts{addresses: map[netip.Addr]*claimants{}, blocks: map[netip.Prefix]*rangeClaimants{}, hosts: map[string]*claimants{}}
}

// arbiter settles the claims of objects to addresses, ranges and hosts, and reports which claimants lose or share one.
type arbiter struct {
	*facts
	places      *places
	hosts       *hosts
	names       *names
	asks        *addresses // what ServiceEntries ask for
	ranges      ranges
	endpointsAt addresses // where WorkloadEntries and ServiceEntries say that their endpoints are
	conflicts   conflicts
}

func newArbiter(f *facts, p *places, h *hosts, n *names) *arbiter {
	asks := newAddresses()
	return &arbiter{facts: f, places: p, hosts: h, names: n, asks: &asks, ranges: newRanges(), endpointsAt: newAddresses(), conflicts: newConflicts()}
}

// forget drops the results of the last batch.
func (a *arbiter) forget() {
	clear(a.places.firsts)
	clear(a.conflicts.hosts)
}

// claimants are the objects that declare one host or address, or name one range.
type claimants struct {
	holder    model.Key // the object with a better right than any claimant; if there is one, no claimant counts
	in        map[string]inNamespace
	count     int
	elsewhere claim    // the claim that counts in namespaces that declare none; empty if all claims are private to their namespaces
	told      []string // the first namespaces by name: enough to name translate.MostOthers others to each claimant
}

// inNamespace is the result for the claimants of one namespace.
type inNamespace struct {
	count        int
	best, public claim // public: the best claim that other namespaces may see
}

func (s *claimants) add(x claim) {
	if s.in == nil {
		s.in = map[string]inNamespace{}
	}
	own := s.in[x.key.Namespace]
	own.count++
	s.count++
	own.best = own.best.or(x)
	if x.public {
		own.public = own.public.or(x)
		s.elsewhere = s.elsewhere.or(x)
	}
	s.in[x.key.Namespace] = own
}

// or is the claim that comes before the other; none comes last.
func (x claim) or(y claim) claim {
	if (x.key == model.Key{}) || y.before(x) {
		return y
	}
	return x
}

func (s *claimants) settle() {
	s.told = slices.Sorted(maps.Keys(s.in))
	s.told = slices.Clone(s.told[:min(len(s.told), translate.MostOthers+1)])
}

// only returns the claimants of one namespace, settled among themselves.
func (s *claimants) only(namespace string) *claimants {
	own, ok := s.in[namespace]
	if !ok {
		return &claimants{}
	}
	return &claimants{in: map[string]inNamespace{namespace: own}, count: own.count, elsewhere: own.public, told: []string{namespace}}
}

// share returns the result for one claimant; not ok if it is the only one.
func (s *claimants) share(what string, key model.Key) (out translate.Shared, ok bool) {
	if s == nil || s.count < 2 {
		return out, false
	}
	out.What = what
	if best := s.in[key.Namespace].best.key; best != key && best != (model.Key{}) {
		out.Here = best.String()
	}
	for _, namespace := range s.told {
		if namespace != key.Namespace && len(out.Others) < translate.MostOthers {
			out.Others = append(out.Others, s.in[namespace].best.key.String())
		}
	}
	if s.elsewhere.key != (model.Key{}) {
		out.Elsewhere, out.Everywhere = s.elsewhere.key.String(), s.elsewhere.key == key
	}
	return out, true
}

// differs reports the namespaces whose result has changed: all of them, or those for which the function returns true.
func (s *claimants) differs(old *claimants) (all bool, here func(namespace string) bool) {
	here = func(namespace string) bool { return s.in[namespace].best.key != old.in[namespace].best.key }
	switch {
	case old == nil, s.holder != old.holder, (s.count < 2) != (old.count < 2):
		return true, nil
	case s.count < 2:
		return false, func(string) bool { return false }
	case s.elsewhere.key != old.elsewhere.key, !slices.Equal(s.told, old.told):
		return true, nil
	}
	return slices.ContainsFunc(s.told, here), here
}

// rangeClaimants are the objects that name one range, and the part of it that is left for them.
type rangeClaimants struct {
	claimants
	mesh           string    // the reason if no entry may have the range; otherwise empty
	place          model.Key // in a narrow range: the node, or the pod on a node's network
	tenant, second model.Key // in a narrow range: the first pod or Service, and the first one of another namespace
	left           translate.Remains
	owner          model.Key // the first node or pod, if they leave nothing of the range
}

// nothingLeft says whether nodes and their pods have all of a range.
func (s *conflicts) nothingLeft(block netip.Prefix) bool {
	r := s.blocks[block]
	return r != nil && len(r.left.Blocks) == 0
}

// keptOut says who keeps entries of a namespace out of the whole range; empty if nobody does.
func (s *rangeClaimants) keptOut(namespace string) string {
	if s.mesh != "" {
		return s.mesh
	}
	tenant := s.tenant
	if tenant.Namespace == namespace {
		tenant = s.second
	}
	if found := least(s.place, tenant); found != (model.Key{}) {
		return found.String()
	}
	return ""
}

// settleAddress settles the claims to an address again, and touches each claimant whose result has changed.
func (a *arbiter) settleAddress(addr netip.Addr, touch func(model.Key)) {
	asking, old := a.asks.by[addr], a.conflicts.addresses[addr]
	if asking.empty() {
		delete(a.conflicts.addresses, addr)
		return
	}
	now := &claimants{}
	now.holder, _ = a.places.first(addr)
	for key := range asking.all {
		a.places.looked++
		if x := a.asks.right[key]; x.published && now.holder == (model.Key{}) {
			now.add(x)
		}
	}
	now.settle()
	a.conflicts.addresses[addr] = now
	all, here := now.differs(old)
	if autoPrefix4.Contains(addr) || autoPrefix6.Contains(addr) {
		all = true // any of them may take a virtual address back from the entry that it was chosen for
	}
	for key := range asking.all {
		if all || here(key.Namespace) {
			touch(key)
		}
	}
}

// settleRange does the same for the entries that name a range.
func (a *arbiter) settleRange(block netip.Prefix, touch func(model.Key)) {
	naming, old := a.ranges.by[block], a.conflicts.blocks[block]
	if len(naming) == 0 {
		delete(a.conflicts.blocks, block)
		return
	}
	now := a.inRange(block)
	for key := range naming {
		a.places.looked++
		if x := a.ranges.right[key]; x.published && now.keptOut(key.Namespace) == "" {
			now.add(x)
		}
	}
	now.settle()
	a.conflicts.blocks[block] = now
	all, here := true, func(string) bool { return true }
	if old != nil {
		all, here = now.differs(&old.claimants)
		all = all || now.owner != old.owner || now.left.Theirs != old.left.Theirs || !slices.Equal(now.left.Blocks, old.left.Blocks)
	}
	for key := range naming {
		if all || here(key.Namespace) || now.keptOut(key.Namespace) != old.keptOut(key.Namespace) {
			touch(key)
		}
	}
}

// hostClaimants returns the settled claims of the objects that declare a host.
func (a *arbiter) hostClaimants(host string) *claimants {
	if s := a.conflicts.hosts[host]; s != nil {
		return s
	}
	s := &claimants{}
	for _, owner := range a.hosts.owners[host] {
		a.places.looked++
		x := a.claim(owner)
		x.public = x.public && (x.isService() || a.names.ofOthers(host, owner.Namespace) == "")
		s.add(x)
	}
	s.settle()
	a.conflicts.hosts[host] = s
	return s
}
