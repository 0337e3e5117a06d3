package compile

import (
	"net/netip"
	"strings"
)

// quota divides the shared store of virtual addresses among namespaces, in bytes. The store is small, and every author of a ServiceEntry
// asks for a part of it.
type quota struct {
	all, used int
	by        map[string]int // by namespace
}

// addressesSize bounds what a service takes beside its name, in bytes: an address of each family and what JSON puts around them.
const addressesSize = 40

// share is the part of what is left that a namespace may have: one in so many.
const share = 4

func quotaOf(all int, kept map[string][]netip.Addr) *quota {
	r := &quota{all: all, by: map[string]int{}}
	for service := range kept {
		r.take(service)
	}
	return r
}

func (r *quota) take(service string) {
	namespace, _, _ := strings.Cut(service, "/")
	size := len(service) + addressesSize
	r.used += size
	r.by[namespace] += size
}

// admits says whether a service may have its place. A namespace may have a quarter of what it leaves to all others: one alone a fifth. What
// ten that take all they can leave, one after the other, is a tenth, of which the eleventh may have its part; so there is room for whoever comes later.
func (r *quota) admits(service string) bool {
	namespace, _, _ := strings.Cut(service, "/")
	size := len(service) + addressesSize
	return share*(r.by[namespace]+size) <= r.all-r.used-size
}

// fits says whether there is a place at all.
func (r *quota) fits(service string) bool { return r.used+len(service)+addressesSize <= r.all }
