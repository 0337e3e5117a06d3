package compile

import (
	"net/netip"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// inherited holds which virtual addresses services had under Istio, by their entries' status. A service whose addresses are not chosen yet gets
// these if they are free, so that what clients have resolved stays true when the mesh changes hands.
type inherited struct {
	of    map[model.Key]map[string][]netip.Addr // entry → service → addresses
	by    map[netip.Addr]map[string]bool        // address → services
	right map[model.Key]claim                   // how entries stood when they named them
}

func newInherited() inherited {
	return inherited{of: map[model.Key]map[string][]netip.Addr{}, by: map[netip.Addr]map[string]bool{}, right: map[model.Key]claim{}}
}

// put says which addresses an entry's status names now, by service.
func (h *inherited) put(right claim, now map[string][]netip.Addr) {
	for service, addresses := range h.of[right.key] {
		for _, addr := range addresses {
			if delete(h.by[addr], service); len(h.by[addr]) == 0 {
				delete(h.by, addr)
			}
		}
	}
	for service, addresses := range now {
		for _, addr := range addresses {
			if h.by[addr] == nil {
				h.by[addr] = map[string]bool{}
			}
			h.by[addr][service] = true
		}
	}
	if h.of[right.key], h.right[right.key] = now, right; len(now) == 0 {
		delete(h.of, right.key)
		delete(h.right, right.key)
	}
}

// noteInherited reads an entry's status.
func (v *allocator) noteInherited(key model.Key) {
	now := map[string][]netip.Addr{}
	if se, ok := v.store.ServiceEntry(key); ok {
		for host, addresses := range translate.Allocated(se) {
			for _, addr := range addresses {
				if isVirtual(addr) {
					service := translate.EntryResource(se, host)
					now[service] = append(now[service], addr)
				}
			}
		}
	}
	v.inherited.put(v.claim(key), now)
}

// isVirtual says whether an address is one that a service may get.
func isVirtual(addr netip.Addr) bool {
	for _, prefix := range []netip.Prefix{autoPrefix4, autoPrefix6} {
		if prefix.Contains(addr) {
			last := addr.AsSlice()
			end := last[len(last)-2:]
			return addr != prefix.Addr() && (addr.Is6() || end[0] != 0xff || end[1] != 0xff)
		}
	}
	return false
}

// virtualAddress chooses an address of a range for a service: the one that it had under Istio, else where its name points to. used tells which
// are not free although nobody has them by choice.
//
// An author of an entry's status may name any address there, so the address is a wish. Addresses that were chosen for others, or that others
// ask for, are not to be had. Of several entries that wish for one address the oldest gets it.
func (v *allocator) virtualAddress(service string, prefix netip.Prefix, used func(netip.Addr) bool) (netip.Addr, bool) {
	if addr, ok := v.inheritance(service, prefix, used); ok {
		return addr, true
	}
	// Addresses that others are about to inherit are left to them as long as another one is free.
	unwanted := func(addr netip.Addr) bool {
		return used(addr) || v.heir(service, addr, func(claim) bool { return true })
	}
	if addr, ok := v.assignments.choose(service, prefix, unwanted); ok {
		return addr, true
	}
	return v.assignments.choose(service, prefix, used)
}

// inheritance is the address of a range that a service had under Istio, if it may have it.
func (v *allocator) inheritance(service string, prefix netip.Prefix, used func(netip.Addr) bool) (netip.Addr, bool) {
	owner, ok := v.hosts.owner(service)
	if !ok {
		return netip.Addr{}, false
	}
	right := v.inherited.right[owner]
	for _, addr := range v.inherited.of[owner][service] {
		_, taken := v.assignments.taken[addr]
		if prefix.Contains(addr) && !taken && !used(addr) && !v.heir(service, addr, func(other claim) bool { return other.before(right) }) {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// heir says whether another service is waiting for an address that it had under Istio, and its entry stands in such a way.
func (v *allocator) heir(service string, addr netip.Addr, stands func(claim) bool) bool {
	for other := range v.inherited.by[addr] {
		owner, ok := v.hosts.owner(other)
		if !ok || other == service || !v.waits(other) {
			continue
		}
		if _, wishes := v.inherited.of[owner][other]; wishes && stands(v.inherited.right[owner]) {
			return true
		}
	}
	return false
}

// waits says whether a service is still to get addresses.
func (v *allocator) waits(service string) bool {
	a := v.assignments
	return len(a.Addresses[service]) == 0 && (a.shared == nil || a.shared.denied[service] == "")
}
