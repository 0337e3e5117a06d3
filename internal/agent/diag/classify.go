package diag

import (
	"net/netip"

	"lateen.dev/lateen/internal/agent/redirect"
)

// Direction is a connection's direction as the pod sees it.
type Direction string

// Directions.
const (
	Inbound  Direction = "inbound"
	Outbound Direction = "outbound"
)

// Connection is one of the pod's connections that the proxy does not carry.
type Connection struct {
	Local, Remote netip.AddrPort
	Direction     Direction
	Cookie        uint64
}

// ofProxy says whether the socket is the node proxy's. Sockets that it accepts inherit the mark of their listener;
// the ports cover a proxy that marks only what it dials.
func ofProxy(s Socket) bool {
	if s.Mark&redirect.MarkMask == redirect.ProxyMark {
		return true
	}
	switch s.Local.Port() {
	case redirect.OutboundPort, redirect.InboundPort, redirect.TunnelPort:
		return true
	}
	return false
}

// pair is a connection by its two ends.
type pair struct{ local, remote netip.AddrPort }

// Carried counts the connections of the pod that the proxy carries now. Tunnels between proxies do not count: they
// stay open for reuse after the last connection in them.
func (l Listing) Carried() int {
	own := l.own()
	n := l.carried
	for _, s := range l.Sockets {
		if carried(s, own) {
			n++
		}
	}
	return n
}

func carried(s Socket, own map[netip.Addr]bool) bool {
	if !ofProxy(s) || s.State == Listen {
		return false
	}
	switch s.Local.Port() {
	case redirect.TunnelPort:
		return false
	case redirect.OutboundPort, redirect.InboundPort:
		return true
	}
	return own[s.Remote.Addr()] && s.Remote.Port() != redirect.TunnelPort
}

// Unheard counts the proxy's connections in the pod, tunnels among them, whose other end has not acknowledged that they
// have ended.
func (l Listing) Unheard() int {
	n := l.unheard
	for _, s := range l.Sockets {
		if unheard(s) {
			n++
		}
	}
	return n
}

func unheard(s Socket) bool {
	if !ofProxy(s) {
		return false
	}
	switch s.State {
	case Established, FinWait1, CloseWait, LastAck, Closing:
		return true
	}
	return false
}

// Unmeshed lists the pod's connections that are neither carried by the proxy nor meant to bypass it (health checks and
// the pod calling itself). Of a pod with more sockets than a listing has it lists none: the proxy's side of a connection
// may be among those left out.
func (l Listing) Unmeshed() []Connection {
	if l.Omitted > 0 {
		return nil
	}
	own := l.own()
	listening := map[uint16]bool{}
	toProxy := map[netip.AddrPort]bool{} // connections that the pod dialled and the rules redirected to the proxy, by the pod's address
	fromProxy := map[pair]bool{}         // connections that the proxy dialled, by both addresses as the pod sees them
	for _, s := range l.Sockets {
		switch {
		case s.State == Listen:
			listening[s.Local.Port()] = true
		case !ofProxy(s):
		case s.Local.Port() == redirect.OutboundPort:
			toProxy[s.Remote] = true
		default:
			fromProxy[pair{local: s.Remote, remote: s.Local}] = true
		}
	}
	var unmeshed []Connection
	for _, s := range l.Sockets {
		switch {
		case ofProxy(s), !s.carries(), toProxy[s.Local], fromProxy[pair{s.Local, s.Remote}]:
		case own[s.Remote.Addr()], s.Remote.Addr().IsLoopback():
		case s.Remote.Addr() == redirect.Probe4, s.Remote.Addr() == redirect.Probe6:
		default:
			direction := Outbound
			if listening[s.Local.Port()] {
				direction = Inbound
			}
			unmeshed = append(unmeshed, Connection{Local: s.Local, Remote: s.Remote, Direction: direction, Cookie: s.Cookie})
		}
	}
	return unmeshed
}

func (l Listing) own() map[netip.Addr]bool {
	own := make(map[netip.Addr]bool, len(l.Own))
	for _, a := range l.Own {
		own[a] = true
	}
	return own
}
