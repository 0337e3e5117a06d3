package redirect

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

// sendACK sends a lone TCP packet that opens nothing. It carries a signature (RFC 2385) that nobody expects, so that a
// listener drops it without a word; an RST would make connection tracking forget it again.
func sendACK(t *testing.T, ns *netns.Namespace, from, to netip.AddrPort) {
	t.Helper()
	const header, ack, md5 = 40, 0x10, 19
	segment := make([]byte, header)
	binary.BigEndian.PutUint16(segment[0:], from.Port())
	binary.BigEndian.PutUint16(segment[2:], to.Port())
	binary.BigEndian.PutUint32(segment[4:], 1000)
	binary.BigEndian.PutUint32(segment[8:], 2000)
	segment[12], segment[13] = header/4<<4, ack
	binary.BigEndian.PutUint16(segment[14:], 1024)
	copy(segment[20:], []byte{1, 1, md5, 18})
	pseudo := append(from.Addr().AsSlice(), to.Addr().AsSlice()...)
	pseudo = append(pseudo, 0, unix.IPPROTO_TCP, 0, header)
	var sum uint32
	for _, b := range [][]byte{pseudo, segment} {
		for i := 0; i < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(segment[16:], ^uint16(sum))
	err := ns.Do(func() error {
		family, address := unix.AF_INET, unix.Sockaddr(nil)
		if to.Addr().Is4() {
			address = &unix.SockaddrInet4{Addr: to.Addr().As4()}
		} else {
			family, address = unix.AF_INET6, &unix.SockaddrInet6{Addr: to.Addr().As16()}
		}
		fd, err := unix.Socket(family, unix.SOCK_RAW, unix.IPPROTO_TCP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, segment, 0, address)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// reaches says whether a connection is made; one that is dropped is given up soon.
func reaches(t *testing.T, ns *netns.Namespace, from, to netip.AddrPort) bool {
	t.Helper()
	var c net.Conn
	err := ns.Do(func() (err error) {
		c, err = (&net.Dialer{Timeout: time.Second, LocalAddr: net.TCPAddrFromAddrPort(from)}).Dial("tcp", to.String())
		return err
	})
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// poked is two pods, one of them captured, that speak one address family.
type poked struct {
	pod, peer                       *netns.Namespace
	inbound, outbound, app, peerApp net.Listener
	podAddr, peerAddr               netip.Addr
}

func newPoked(t *testing.T, v6 bool) *poked {
	if !v6 {
		w := newWorld(t)
		return &poked{pod: w.pod, peer: w.peer, inbound: w.inbound, outbound: w.outbound, app: w.app, peerApp: w.peerApp,
			podAddr: netip.MustParseAddr(podAddress), peerAddr: netip.MustParseAddr(peerAddress)}
	}
	p := &poked{podAddr: netip.MustParseAddr("fd00:9::1"), peerAddr: netip.MustParseAddr("fd00:9::2")}
	node := netnstest.New(t)
	netnstest.Sysctl(t, node, "net.ipv6.conf.all.forwarding", "1")
	p.pod = netnstest.Pod(t, node, "pod", p.podAddr.String())
	p.peer = netnstest.Pod(t, node, "peer", p.peerAddr.String())
	netnstest.ProxyNeighbours(t, node, map[string]string{"pod": p.peerAddr.String(), "peer": p.podAddr.String()})
	p.inbound = netnstest.Listen(t, p.pod, fmt.Sprintf("[::]:%d", InboundPort), netnstest.Marked(ProxyMark))
	p.outbound = netnstest.Listen(t, p.pod, fmt.Sprintf("[::]:%d", OutboundPort), netnstest.Marked(ProxyMark))
	p.app, p.peerApp = netnstest.Listen(t, p.pod, "[::]"+appPort), netnstest.Listen(t, p.peer, "[::]"+appPort)
	return p
}

func forBothFamilies(t *testing.T, test func(*testing.T, *poked)) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) { test(t, newPoked(t, v6)) })
	}
}

// A packet sent ahead makes connection tracking know the connection before the rules see it. It must not open a way past
// the proxy, neither for others to the pod nor for the pod to others.
func TestAPacketSentAheadOpensNoWayPastTheProxy(t *testing.T) {
	forBothFamilies(t, func(t *testing.T, p *poked) {
		apply(t, p.pod, Capturing)
		for _, way := range []struct {
			name     string
			ns       *netns.Namespace
			from, to netip.Addr
			proxy    net.Listener
		}{
			{"inbound", p.peer, p.peerAddr, p.podAddr, p.inbound},
			{"outbound", p.pod, p.podAddr, p.peerAddr, p.outbound},
		} {
			from, to := netip.AddrPortFrom(way.from, 40000), netip.AddrPortFrom(way.to, 8080)
			sendACK(t, way.ns, from, to)
			if reaches(t, way.ns, from, to) {
				t.Errorf("%s: connected although the connection cannot be translated", way.name)
			}
			// Nobody else is affected.
			open(t, way.ns, netip.AddrPortFrom(way.from, 40001).String(), to.String(), way.proxy)
		}
	})
}

// What is not the proxy's may be known to connection tracking however it likes, and a pod that was released has nothing
// dropped.
func TestAPacketSentAheadHarmsNoPlainConnection(t *testing.T) {
	forBothFamilies(t, func(t *testing.T, p *poked) {
		ways := func(port uint16) {
			t.Helper()
			in, out := netip.AddrPortFrom(p.peerAddr, port), netip.AddrPortFrom(p.podAddr, port)
			toApp, toPeer := netip.AddrPortFrom(p.podAddr, 8080), netip.AddrPortFrom(p.peerAddr, 8080)
			sendACK(t, p.peer, in, toApp)
			sendACK(t, p.pod, out, toPeer)
			open(t, p.peer, in.String(), toApp.String(), p.app)
			open(t, p.pod, out.String(), toPeer.String(), p.peerApp)
		}
		for i, s := range []Settings{
			{InboundPorts: []uint16{8080}, OutboundPorts: []uint16{8080}},
			{BypassInbound: true, OutboundRanges: []netip.Prefix{netip.PrefixFrom(p.peerAddr, p.peerAddr.BitLen())}},
			{BypassInbound: true, OnlyRanges: []netip.Prefix{}},
		} {
			if _, err := Apply(p.pod, Capturing, s); err != nil {
				t.Fatal(err)
			}
			ways(40000 + uint16(i))
		}
		apply(t, p.pod, Capturing)
		apply(t, p.pod, Draining)
		ways(40010)
	})
}

// Packets that connection tracking does not look at pass the chains of type nat as well.
func TestUntrackedConnectionsDoNotPassByTheProxy(t *testing.T) {
	forBothFamilies(t, func(t *testing.T, p *poked) {
		apply(t, p.pod, Capturing)
		nft(t, p.pod, func(c *nftables.Conn) error {
			table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "foreign"})
			chain := c.AddChain(&nftables.Chain{Name: "in", Table: table, Type: nftables.ChainTypeFilter,
				Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule(opening(), []expr.Any{&expr.Notrack{}})})
			return nil
		})
		if reaches(t, p.peer, netip.AddrPortFrom(p.peerAddr, 40000), netip.AddrPortFrom(p.podAddr, 8080)) {
			t.Error("an untracked connection reached the pod")
		}
	})
}

// The proxy's own port for plaintext is where a connection would be led anyway.
func TestTheProxysPlaintextPortMayBeDialled(t *testing.T) {
	forBothFamilies(t, func(t *testing.T, p *poked) {
		apply(t, p.pod, Capturing)
		open(t, p.peer, "", netip.AddrPortFrom(p.podAddr, InboundPort).String(), p.inbound)
	})
}

// If only what drops is left, the pod is to be repaired: as released it would reach nobody.
func TestAPodThatIsOnlyHeldIsObserved(t *testing.T) {
	w := newWorld(t)
	apply(t, w.pod, Capturing)
	nft(t, w.pod, func(c *nftables.Conn) error {
		for _, chain := range []string{"redirect-inbound", "redirect-outbound"} {
			c.FlushChain(&nftables.Chain{Name: chain, Table: ourTable()})
		}
		return nil
	})
	if got := observe(t, w.pod); got != Capturing {
		t.Errorf("observed %v", got)
	}
	if reaches(t, w.peer, netip.AddrPortFrom(netip.MustParseAddr(peerAddress), 40000), netip.AddrPortFrom(netip.MustParseAddr(podAddress), 8080)) {
		t.Error("the app was reached past the proxy")
	}
	apply(t, w.pod, Capturing)
	open(t, w.peer, "", podAddress+appPort, w.inbound)
}
