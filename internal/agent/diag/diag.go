// Package diag lists the TCP sockets of a pod's network namespace and tells those of the node proxy, those whose
// connection the proxy carries, and those that bypass it. It only reads.
package diag

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
)

// State is a TCP socket's state, numbered as the kernel does.
type State uint8

// The states that a listing can contain; sockets in TIME_WAIT and CLOSE carry nothing any more and are left out.
const (
	Established State = 1
	SynSent     State = 2
	SynReceived State = 3
	FinWait1    State = 4
	FinWait2    State = 5
	CloseWait   State = 8
	LastAck     State = 9
	Listen      State = 10
	Closing     State = 11
	NewSyn      State = 12 // a connection request that has no socket of its own yet
)

const listedStates = 1<<Established | 1<<SynSent | 1<<SynReceived | 1<<FinWait1 | 1<<FinWait2 |
	1<<CloseWait | 1<<LastAck | 1<<Listen | 1<<Closing | 1<<NewSyn

// Socket is one TCP socket. Addresses that IPv6 sockets use for IPv4 peers are plain IPv4 addresses here.
type Socket struct {
	Local, Remote netip.AddrPort
	State         State
	Mark          uint32
	Cookie        uint64 // the kernel's name for the socket, never used twice
}

// carries says whether the socket belongs to a connection that can still transport data in either direction.
func (s Socket) carries() bool {
	switch s.State {
	case Established, FinWait1, FinWait2, CloseWait:
		return true
	}
	return false
}

// Listing is what stood in a namespace at about one moment.
type Listing struct {
	Sockets []Socket
	Own     []netip.Addr // the namespace's addresses
}

// List reads the namespace's TCP sockets and addresses. It needs CAP_NET_ADMIN; without it the kernel hides the marks.
func List(ns *netns.Namespace) (Listing, error) {
	var l Listing
	err := ns.Do(func() error {
		c, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
		if err != nil {
			return fmt.Errorf("open sock_diag: %w; the kernel needs INET_DIAG", err)
		}
		defer c.Close()
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			sockets, err := dump(c, family)
			if err != nil {
				return err
			}
			l.Sockets = append(l.Sockets, sockets...)
		}
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			return fmt.Errorf("list addresses: %w", err)
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				l.Own = append(l.Own, prefix.Addr().Unmap())
			}
		}
		return nil
	})
	return l, err
}

func dump(c *netlink.Conn, family uint8) ([]Socket, error) {
	messages, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request | netlink.Dump},
		Data:   request(family),
	})
	if err != nil {
		return nil, fmt.Errorf("list TCP sockets: %w; the kernel needs INET_TCP_DIAG", err)
	}
	sockets := make([]Socket, 0, len(messages))
	for _, m := range messages {
		s, err := parse(m.Data)
		if err != nil {
			return nil, fmt.Errorf("list TCP sockets: %w", err)
		}
		sockets = append(sockets, s)
	}
	return sockets, nil
}
