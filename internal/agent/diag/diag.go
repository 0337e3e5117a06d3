// Package diag lists the TCP sockets of a pod's network namespace and tells those of the node proxy, those whose
// connection the proxy carries, and those that bypass it. It only reads.
package diag

import (
	"net/netip"

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

	// Omitted are sockets that were left out because there are too many; those of the proxy are counted all the same.
	Omitted int

	carried, unheard int // of those left out
}

const (
	// maxSockets is how many sockets a listing has at most: how many there are is the pod's choice.
	maxSockets = 1 << 15
	// maxAddresses is the same for addresses.
	maxAddresses = 1 << 10
)

// List reads the namespace's TCP sockets and addresses. It needs CAP_NET_ADMIN; without it the kernel hides the marks.
func List(ns *netns.Namespace) (Listing, error) {
	var l Listing
	err := ns.Do(func() error {
		var err error
		if l.Own, err = addresses(); err != nil {
			return err
		}
		own := l.own()
		return sockets(func(s Socket) { l.add(s, own, maxSockets) })
	})
	return l, err
}

// add takes a socket into the listing. Beyond the most that it may have, only what the proxy has is counted.
func (l *Listing) add(s Socket, own map[netip.Addr]bool, most int) {
	if len(l.Sockets) < most {
		l.Sockets = append(l.Sockets, s)
		return
	}
	l.Omitted++
	if carried(s, own) {
		l.carried++
	}
	if unheard(s) {
		l.unheard++
	}
}
