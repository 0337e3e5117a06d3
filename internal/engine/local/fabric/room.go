package fabric

import (
	"errors"
	"net/netip"
	"os"

	"lateen.dev/lateen/internal/engine/local/netns"
)

// roomOffset is how far a room's address is from its node's: more than MaxNodes.
const roomOffset = 100

func (n Node) roomPort() string { return n.FabricPort() + "-room" }

// AddRoom makes a namespace at roomNS beside the node's own, on the same bridge and with addresses of its own, for a process
// whose ports another one has in the node's. One that is there already is kept. The caller is in the fabric's namespace.
func AddRoom(n Node, roomNS string) error {
	if err := netns.Create(roomNS); errors.Is(err, os.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	err := layRoom(n, roomNS)
	if err != nil {
		err = errors.Join(err, netns.Remove(roomNS)) // the link goes with it
	}
	return err
}

func layRoom(n Node, roomNS string) error {
	if err := addVeth(n.roomPort(), "eth0", roomNS); err != nil {
		return err
	}
	if err := n.attach(n.roomPort()); err != nil {
		return err
	}
	return netns.Do(roomNS, func() error {
		if err := setSysctls("net/ipv6/conf/default/disable_ipv6", onOff(!n.has(IPv6))); err != nil {
			return err
		}
		if err := quiet(n.has(IPv6), "eth0"); err != nil {
			return err
		}
		if err := linkUp("lo"); err != nil {
			return err
		}
		for _, f := range n.families() {
			if err := addAddr("eth0", netip.PrefixFrom(f.roomIP(n), f.FabricCIDR.Bits())); err != nil {
				return err
			}
		}
		if err := linkUp("eth0"); err != nil {
			return err
		}
		for _, f := range n.families() {
			if err := addRoute(f.anywhere, "eth0", f.FabricIP); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *Family) roomIP(n Node) netip.Addr {
	b := f.nodeIP(n).AsSlice()
	b[len(b)-1] += roomOffset
	a, _ := netip.AddrFromSlice(b)
	return a
}
