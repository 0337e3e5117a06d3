package compile

import (
	"net/netip"
	"strings"
)

// room is how much of what all replicas share is used by whom. It is small, and whoever may write a ServiceEntry asks for some of it.
type room struct {
	all, used int
	by        map[string]int // by namespace
}

// addressesSize bounds what a service takes beside its name, in bytes: an address of each family and what JSON puts around them.
const addressesSize = 40

// share is the part of what is left that a namespace may have: one in so many.
const share = 4

func roomOf(all int, kept map[string][]netip.Addr) *room {
	r := &room{all: all, by: map[string]int{}}
	for service := range kept {
		r.take(service)
	}
	return r
}

func (r *room) take(service string) {
	namespace, _, _ := strings.Cut(service, "/")
	size := len(service) + addressesSize
	r.used += size
	r.by[namespace] += size
}

// admits says whether a service may have its place. A namespace may have a quarter of what it leaves to all others: one alone a fifth. What
// ten that take all they can leave, one after the other, is a tenth, of which the eleventh may have its part; so there is room for whoever comes later.
func (r *room) admits(service string) bool {
	namespace, _, _ := strings.Cut(service, "/")
	size := len(service) + addressesSize
	return share*(r.by[namespace]+size) <= r.all-r.used-size
}

// fits says whether there is a place at all.
func (r *room) fits(service string) bool { return r.used+len(service)+addressesSize <= r.all }
