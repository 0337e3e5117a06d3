package compile

import (
	"net/netip"
	"strings"
)

// quota divides the shared store of virtual addresses among namespaces, in bytes. The store is small, and every ServiceEntry without
// addresses uses a part of it.
type quota struct {
	all, used int            // size of the store, and bytes in use
	by        map[string]int // bytes in use, by namespace
}

// addressesSize is the most bytes that a service uses beside its name: an address of each family, and the JSON around them.
const addressesSize = 40

// share limits a namespace: it may use one part in share of the bytes that would be free after that.
const share = 4

// quotaOf counts the services that a store of all bytes keeps.
func quotaOf(all int, kept map[string][]netip.Addr) *quota {
	r := &quota{all: all, by: map[string]int{}}
	for service := range kept {
		r.take(service)
	}
	return r
}

// take counts a service as kept.
func (r *quota) take(service string) {
	namespace, _, _ := strings.Cut(service, "/")
	size := len(service) + addressesSize
	r.used += size
	r.by[namespace] += size
}

// admits says whether a service's namespace may use the bytes that the service needs. A namespace may use a quarter of the bytes that it
// leaves free. So one namespace alone may use a fifth of the store. Ten namespaces that each use all they may leave a tenth of the store
// free, and the eleventh gets its part of that.
func (r *quota) admits(service string) bool {
	namespace, _, _ := strings.Cut(service, "/")
	size := len(service) + addressesSize
	return share*(r.by[namespace]+size) <= r.all-r.used-size
}

// fits says whether the store has enough free bytes for a service, whatever its namespace.
func (r *quota) fits(service string) bool { return r.used+len(service)+addressesSize <= r.all }
