package local

import (
	"fmt"
	"net/netip"
)

// addresses hands out a node's pod addresses, each as late as possible after it was given back: others may still have
// connections to its last owner in mind. It has no lock of its own.
type addresses struct {
	cidr netip.Prefix
	last netip.Addr
	used map[netip.Addr]bool
}

func newAddresses(cidr netip.Prefix) *addresses {
	// The network's own address and the gateway's are not for pods.
	return &addresses{cidr: cidr, last: cidr.Addr().Next(), used: map[netip.Addr]bool{}}
}

// size is how many addresses there are: all but the network's, the gateway's and the broadcast address.
func (a *addresses) size() int { return 1<<(a.cidr.Addr().BitLen()-a.cidr.Bits()) - 3 }

func (a *addresses) free() int { return a.size() - len(a.used) }

func (a *addresses) take() (netip.Addr, error) {
	ip := a.last
	for range a.size() {
		ip = ip.Next()
		if !a.cidr.Contains(ip.Next()) {
			ip = a.cidr.Addr().Next().Next()
		}
		if !a.used[ip] {
			a.used[ip] = true
			a.last = ip
			return ip, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("all %d pod addresses of %s are in use", a.size(), a.cidr)
}

func (a *addresses) release(ip netip.Addr) { delete(a.used, ip) }
