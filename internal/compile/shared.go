package compile

import (
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// shared lists what other entries declare as well as this one: its addresses, and the hosts for which it speaks in its namespace. Clients
// of a namespace that declares the thing get their own; of the others all get one, the oldest that they may see.
func (a *arbiter) shared(se *networkingv1.ServiceEntry, key model.Key) []translate.Shared {
	var out []translate.Shared
	add := func(claimants *claimants, what string) {
		if s, ok := claimants.share(what, key); ok {
			out = append(out, s)
		}
	}
	for _, addr := range a.asks.named[key] {
		if _, held := a.places.holder(key, addr); held {
			continue // it does not have the address at all, and is told so
		}
		s := a.conflicts.addresses[addr]
		if _, chosen := a.places.chosenFor(addr); chosen && s != nil {
			s = s.only(key.Namespace)
		}
		add(s, "address "+addr.String())
	}
	for _, block := range a.ranges.named[key] {
		// What is taken off a wide range for nodes is taken off everybody's; who is kept out of a narrow one is told whose that is.
		if s := a.conflicts.blocks[block]; s != nil && s.keptOut(key.Namespace) == "" {
			add(&s.claimants, "range "+block.String())
		}
	}
	for _, h := range translate.EntryHosts(se) {
		if a.hosts.speaks(key, h) {
			add(a.hostClaimants(h), "host "+h)
		}
	}
	return out
}
