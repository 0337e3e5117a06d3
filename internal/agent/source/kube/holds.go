package kube

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
)

// maxAddresses are shown of a network that does not have the address. It can have a million, and whoever runs there chose
// them.
const maxAddresses = 4

// holds fails unless the namespace has one of the addresses.
func holds(ns *netns.Namespace, wanted []netip.Addr) error {
	var some []netip.Addr
	all, found := 0, false
	err := ns.Do(func() error {
		request := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
		request.AddData(nl.NewIfAddrmsg(unix.AF_UNSPEC))
		return request.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWADDR, func(message []byte) bool {
			if a, ok := addressIn(message); ok {
				if all++; len(some) < maxAddresses {
					some = append(some, a)
				}
				found = slices.Contains(wanted, a)
			}
			return !found
		})
	})
	switch {
	case found:
		return nil
	case errors.Is(err, nl.ErrDumpInterrupted):
		return errors.New("the addresses of the network of the pod's processes change all the time, and the pod's is not seen")
	case err != nil:
		return fmt.Errorf("list the addresses in %s: %w", ns.Name(), err)
	}
	more := ""
	if all > len(some) {
		more = fmt.Sprintf(" and %d more", all-len(some))
	}
	return fmt.Errorf("the network of the pod's processes has the addresses %v%s, and none of the pod's %v", some, more, wanted)
}

// addressIn reads an address that an interface has out of the kernel's message.
func addressIn(message []byte) (netip.Addr, bool) {
	if len(message) < unix.SizeofIfAddrmsg {
		return netip.Addr{}, false
	}
	attributes, err := nl.ParseRouteAttr(message[unix.SizeofIfAddrmsg:])
	if err != nil {
		return netip.Addr{}, false
	}
	var peer, local netip.Addr
	for _, a := range attributes {
		switch a.Attr.Type {
		case unix.IFA_ADDRESS:
			peer, _ = netip.AddrFromSlice(a.Value)
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(a.Value)
		}
	}
	if !local.IsValid() {
		// IPv6 has no IFA_LOCAL: IFA_ADDRESS is the interface's own address.
		local = peer
	}
	return local.Unmap(), local.IsValid()
}
