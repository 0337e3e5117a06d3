package compile

import (
	"maps"
	"net/netip"
	"slices"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// shared lists what other entries declare as well as this one: its addresses, and the hosts for which it speaks in its namespace. Clients
// of a namespace that declares the thing get their own; of the others all get one, the oldest that they may see.
func (c *Compiler) shared(se *networkingv1.ServiceEntry, key model.Key) []translate.Shared {
	var out []translate.Shared
	for _, addr := range c.claims.named[key] {
		if _, held := c.holder(key, addr); held {
			continue // it does not have the address at all, and is told so
		}
		var claims []claim
		for _, other := range c.claims.by[addr] {
			if other.Kind == "ServiceEntry" && c.contends(other, addr) {
				claims = append(claims, c.claim(other))
			}
		}
		if s, ok := share("address "+addr.String(), key, claims); ok {
			out = append(out, s)
		}
	}
	for _, h := range translate.EntryHosts(se) {
		if !c.hosts.speaks(key, h) {
			continue
		}
		var claims []claim
		for _, owner := range c.hosts.owners[h] {
			x := c.claim(owner)
			x.public = x.public && (x.isService() || c.nameOfOthers(h, owner.Namespace) == "")
			claims = append(claims, x)
		}
		if s, ok := share("host "+h, key, claims); ok {
			out = append(out, s)
		}
	}
	return out
}

// contends says whether an entry that names an address has it: it is published, and nobody has more right.
func (c *Compiler) contends(key model.Key, addr netip.Addr) bool {
	se, ok := c.store.ServiceEntry(key)
	if !ok {
		return false
	}
	if _, published := translate.EntryVisibility(se); !published {
		return false
	}
	_, held := c.holder(key, addr)
	return !held
}

// share says how one claimant fares among all; not ok if there is no other.
func share(what string, key model.Key, claims []claim) (s translate.Shared, ok bool) {
	if len(claims) < 2 {
		return s, false
	}
	s.What = what
	best := map[string]claim{}
	var elsewhere *claim
	for _, x := range claims {
		if y, ok := best[x.key.Namespace]; !ok || x.before(y) {
			best[x.key.Namespace] = x
		}
		if (x.isService() || x.public) && (elsewhere == nil || x.before(*elsewhere)) {
			elsewhere = &x
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(best)) {
		switch x := best[namespace]; {
		case namespace != key.Namespace:
			s.Others = append(s.Others, x.key.String())
		case x.key != key:
			s.Here = x.key.String()
		}
	}
	if elsewhere != nil {
		s.Elsewhere, s.Everywhere = elsewhere.key.String(), elsewhere.key == key
	}
	return s, true
}
