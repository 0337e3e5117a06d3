package compile

import (
	"maps"
	"net/netip"
	"slices"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// allocator chooses virtual addresses for the hosts of ServiceEntries that name none.
type allocator struct {
	*facts
	assignments *Assignments
	hosts       *hosts
	asks        *addresses
	places      *places
	inherited   inherited
}

func newAllocator(f *facts, assignments *Assignments, h *hosts, asks *addresses, p *places) *allocator {
	return &allocator{facts: f, assignments: assignments, hosts: h, asks: asks, places: p, inherited: newInherited()}
}

// reclaim chooses virtual addresses for the hosts of a ServiceEntry that need them, and gives back those that are no longer needed.
func (v *allocator) reclaim(b *batch, key model.Key) {
	for _, addr := range v.asks.named[key] {
		if !autoPrefix4.Contains(addr) && !autoPrefix6.Contains(addr) {
			continue
		}
		if _, lost := v.places.holder(key, addr); lost {
			continue
		}
		// What its author asks for goes before what was chosen for the own namespace; the other gets a new one.
		if service, evicted := v.assignments.evict(addr); evicted {
			if owner, ok := v.hosts.owner(service); ok {
				b.mark(serviceOutput, owner)
			}
		}
	}
}

// used says whether an address is not to be chosen for anybody: an entry asks for it as its own, or a pod or node says that it is there.
func (v *allocator) used(addr netip.Addr) bool {
	return !v.asks.by[addr].empty() || !v.places.claims.by[addr].empty()
}

// autoAddresses are the virtual addresses of a ServiceEntry's hosts that need them.
func (v *allocator) autoAddresses(se *networkingv1.ServiceEntry, key model.Key) map[string][]netip.Addr {
	wanted := translate.AutoHosts(se)
	out := map[string][]netip.Addr{}
	for _, h := range translate.EntryHosts(se) {
		name := translate.EntryResource(se, h)
		if !v.hosts.speaks(key, h) {
			continue
		}
		if slices.Contains(wanted, h) {
			out[h] = v.assignments.addresses(name, func(prefix netip.Prefix) (netip.Addr, bool) { return v.virtualAddress(name, prefix, v.used) })
		} else {
			v.assignments.release(name)
		}
	}
	return out
}

// propose chooses addresses for the services that want some. denied are those for which there is none.
func (v *allocator) propose() (p *proposal, denied []string) {
	a := v.assignments
	s := a.shared
	p = &proposal{capacity: s.capacity, chosen: map[string][]netip.Addr{}, again: map[string]bool{}, dropped: maps.Clone(s.dropped)}
	if s.lost {
		for service, addresses := range a.Addresses {
			if _, ok := v.hosts.owner(service); ok {
				p.chosen[service], p.again[service] = addresses, true
			}
		}
	}
	r := quotaOf(s.capacity, a.Addresses)
	chosen := map[netip.Addr]bool{}
	used := func(addr netip.Addr) bool { return chosen[addr] || v.used(addr) }
	deny := func(service, why string) {
		delete(s.wanted, service)
		s.denied[service] = why
		denied = append(denied, service)
	}
	for _, service := range slices.Sorted(maps.Keys(s.wanted)) {
		if _, ok := v.hosts.owner(service); !ok {
			delete(s.wanted, service)
			continue
		}
		if !r.admits(service) {
			deny(service, "its namespace has as many virtual addresses as it may")
			continue
		}
		var addresses []netip.Addr
		for _, prefix := range []netip.Prefix{autoPrefix4, autoPrefix6} {
			if addr, ok := v.virtualAddress(service, prefix, used); ok {
				addresses = append(addresses, addr)
				chosen[addr] = true
			}
		}
		if len(addresses) == 0 {
			deny(service, "none is free")
			continue
		}
		p.chosen[service] = addresses
		r.take(service)
	}
	return p, denied
}
