package redirect

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

// world is two pods on a node. One of them, pod, is what the tests capture; in it a proxy listens on its three ports.
type world struct {
	node, pod, peer *netns.Namespace

	outbound, inbound, tunnel, app, peerApp net.Listener
}

const (
	podAddress  = "10.9.0.1"
	peerAddress = "10.9.0.2"
	appPort     = ":8080"
)

func newWorld(t *testing.T) *world {
	node := netnstest.New(t)
	w := &world{node: node, pod: netnstest.Pod(t, node, "pod", podAddress), peer: netnstest.Pod(t, node, "peer", peerAddress)}
	w.outbound = netnstest.Listen(t, w.pod, fmt.Sprintf("0.0.0.0:%d", OutboundPort), netnstest.Marked(ProxyMark))
	w.inbound = netnstest.Listen(t, w.pod, fmt.Sprintf("0.0.0.0:%d", InboundPort), netnstest.Marked(ProxyMark))
	w.tunnel = netnstest.Listen(t, w.pod, fmt.Sprintf("0.0.0.0:%d", TunnelPort), netnstest.Marked(ProxyMark))
	w.app = netnstest.Listen(t, w.pod, "0.0.0.0"+appPort)
	w.peerApp = netnstest.Listen(t, w.peer, "0.0.0.0"+appPort)
	return w
}

// open dials and returns both ends. It fails the test unless the connection arrives at the listener, and unless
// bytes pass both ways.
func open(t *testing.T, from *netns.Namespace, source, to string, at net.Listener, options ...netnstest.Option) (client, server net.Conn) {
	t.Helper()
	accepted := make(chan net.Conn, 1)
	_ = at.(*net.TCPListener).SetDeadline(time.Now().Add(30 * time.Second))
	go func() {
		c, err := at.Accept()
		if err != nil {
			close(accepted)
			return
		}
		accepted <- c
	}()
	client, err := netnstest.Dial(from, source, to, options...)
	if err != nil {
		t.Fatalf("dial %s: %v", to, err)
	}
	t.Cleanup(func() { client.Close() })
	server, ok := <-accepted
	if !ok {
		t.Fatalf("the connection to %s did not arrive at %s", to, at.Addr())
	}
	t.Cleanup(func() { server.Close() })
	exchange(t, client, server)
	return client, server
}

// exchange passes bytes both ways.
func exchange(t *testing.T, a, b net.Conn) {
	t.Helper()
	for _, ends := range [][2]net.Conn{{a, b}, {b, a}} {
		for _, c := range ends {
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		}
		if _, err := ends[0].Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(ends[1], got); err != nil {
			t.Fatalf("read %v from %v: %v", ends[1].LocalAddr(), ends[1].RemoteAddr(), err)
		}
	}
}

// originalDestination is where a redirected connection was going.
func originalDestination(t *testing.T, c net.Conn) string {
	t.Helper()
	const soOriginalDst = 80 // SO_ORIGINAL_DST, linux/netfilter_ipv4.h
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var address unix.RawSockaddrInet4
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		length := uint32(unsafe.Sizeof(address))
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_IP, soOriginalDst,
			uintptr(unsafe.Pointer(&address)), uintptr(unsafe.Pointer(&length)), 0)
	})
	if err != nil || errno == unix.ENOENT {
		return ""
	}
	if errno != 0 {
		t.Fatal(errno)
	}
	port := address.Port>>8 | address.Port<<8
	return netip.AddrPortFrom(netip.AddrFrom4(address.Addr), port).String()
}

func host(a net.Addr) string { return netip.MustParseAddrPort(a.String()).Addr().Unmap().String() }

func TestOutboundConnectionsGoToTheProxy(t *testing.T) {
	w := newWorld(t)
	apply(t, w.pod, Capturing)
	_, proxy := open(t, w.pod, "", peerAddress+appPort, w.outbound)
	if got := originalDestination(t, proxy); got != peerAddress+appPort {
		t.Errorf("original destination %q", got)
	}
	if got := host(proxy.RemoteAddr()); got != podAddress {
		t.Errorf("the proxy sees source %s", got)
	}
}

func TestOutboundConnectionsToNowhereGoToTheProxy(t *testing.T) {
	w := newWorld(t)
	apply(t, w.pod, Capturing)
	_, proxy := open(t, w.pod, "", "192.0.2.1:443", w.outbound)
	if got := originalDestination(t, proxy); got != "192.0.2.1:443" {
		t.Errorf("original destination %q", got)
	}
}

func TestInboundPlaintextGoesToTheProxy(t *testing.T) {
	w := newWorld(t)
	apply(t, w.pod, Capturing)
	_, proxy := open(t, w.peer, "", podAddress+appPort, w.inbound)
	if got := originalDestination(t, proxy); got != podAddress+appPort {
		t.Errorf("original destination %q", got)
	}
	if got := host(proxy.RemoteAddr()); got != peerAddress {
		t.Errorf("the proxy sees source %s", got)
	}
}

func TestTunnelsArriveDirectly(t *testing.T) {
	w := newWorld(t)
	apply(t, w.pod, Capturing)
	_, proxy := open(t, w.peer, "", fmt.Sprintf("%s:%d", podAddress, TunnelPort), w.tunnel)
	if got := host(proxy.LocalAddr()); got != podAddress {
		t.Errorf("accepted at %s", got)
	}
}

func TestTheProxysSocketsAreNotRedirected(t *testing.T) {
	w := newWorld(t)
	apply(t, w.pod, Capturing)
	// The upper bits of a mark belong to others.
	for _, mark := range []int{ProxyMark, 0x7000 | ProxyMark} {
		open(t, w.pod, "", peerAddress+appPort, w.peerApp, netnstest.Marked(mark))
	}
	for _, mark := range []int{0, 0x7000, 0x538} {
		open(t, w.pod, "", peerAddress+appPort, w.outbound, netnstest.Marked(mark))
	}
}

func TestHealthChecksReachTheAppDirectly(t *testing.T) {
	w := newWorld(t)
	netnstest.In(t, w.node, func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		return h.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(Probe4.AsSlice())})
	})
	apply(t, w.pod, Capturing)
	_, app := open(t, w.node, Probe4.String()+":0", podAddress+appPort, w.app)
	if got := host(app.RemoteAddr()); got != Probe4.String() {
		t.Errorf("the app sees source %s", got)
	}
	// And what the pod opens towards that address is not redirected either.
	probe := netnstest.Listen(t, w.node, Probe4.String()+":7000")
	open(t, w.pod, "", Probe4.String()+":7000", probe)
}

func TestThePodsCallsToItselfAreNotRedirected(t *testing.T) {
	w := newWorld(t)
	apply(t, w.pod, Capturing)
	for _, to := range []string{podAddress, "127.0.0.1", "127.0.0.7"} {
		open(t, w.pod, "", to+appPort, w.app)
	}
}

// The proxy delivers to the app from the client's own address, which is not the pod's: the app's answers must turn
// round inside the pod.
func TestTheProxyDeliversFromTheClientsAddress(t *testing.T) {
	for _, filter := range []string{"0", "1", "2"} {
		for _, srcValidMark := range []string{"0", "1"} {
			t.Run("rp_filter "+filter+" src_valid_mark "+srcValidMark, func(t *testing.T) {
				w := newWorld(t)
				for _, link := range []string{"all", "lo", "eth0"} {
					netnstest.Sysctl(t, w.pod, "net.ipv4.conf."+link+".rp_filter", filter)
					netnstest.Sysctl(t, w.pod, "net.ipv4.conf."+link+".src_valid_mark", srcValidMark)
				}
				apply(t, w.pod, Capturing)
				for _, client := range []string{peerAddress, "198.51.100.7"} {
					_, app := open(t, w.pod, client+":0", podAddress+appPort, w.app,
						netnstest.Marked(ProxyMark), netnstest.Transparent)
					if got := host(app.RemoteAddr()); got != client {
						t.Errorf("the app sees source %s, want %s", got, client)
					}
				}
				// The same setting must not harm what goes out and comes in otherwise.
				open(t, w.pod, "", peerAddress+appPort, w.peerApp, netnstest.Marked(ProxyMark))
				open(t, w.peer, "", podAddress+appPort, w.inbound)
			})
		}
	}
}

// Connections that were opened before the rules are picked up by connection tracking in the middle. They must go on.
func TestOlderConnectionsGoOn(t *testing.T) {
	w := newWorld(t)
	type ends struct{ a, b net.Conn }
	var older []ends
	dial := func(from *netns.Namespace, to string, at net.Listener) {
		a, b := open(t, from, "", to, at)
		older = append(older, ends{a, b})
	}
	dial(w.pod, peerAddress+appPort, w.peerApp)
	dial(w.peer, podAddress+appPort, w.app)
	dial(w.pod, podAddress+appPort, w.app)
	dial(w.pod, "127.0.0.1"+appPort, w.app)
	for _, mode := range []Mode{Capturing, Capturing, Draining, Capturing, Draining, Absent} {
		apply(t, w.pod, mode)
		for _, c := range older {
			exchange(t, c.a, c.b)
			exchange(t, c.b, c.a)
		}
	}
	for _, c := range older {
		// Orderly to the end: each side sees the other's close.
		if err := c.a.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.b.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%v: %v, want EOF", c.b.LocalAddr(), err)
		}
	}
}

// After a release new connections are plain at once, and those that the proxy carries go on until they end.
func TestReleasedPodsFinishTheirMeshedConnections(t *testing.T) {
	w := newWorld(t)
	apply(t, w.pod, Capturing)
	outApp, outProxy := open(t, w.pod, "", peerAddress+appPort, w.outbound)
	inPeer, inProxy := open(t, w.peer, "", podAddress+appPort, w.inbound)
	deliver, app := open(t, w.pod, peerAddress+":0", podAddress+appPort, w.app,
		netnstest.Marked(ProxyMark), netnstest.Transparent)

	apply(t, w.pod, Draining)
	open(t, w.pod, "", peerAddress+appPort, w.peerApp)
	open(t, w.peer, "", podAddress+appPort, w.app)
	for range 3 {
		exchange(t, outApp, outProxy)
		exchange(t, inPeer, inProxy)
		exchange(t, deliver, app)
	}

	apply(t, w.pod, Absent)
	open(t, w.pod, "", peerAddress+appPort, w.peerApp)
	open(t, w.peer, "", podAddress+appPort, w.app)
}

// Connection tracking stops with the last rule but remembers. What it remembers must not hide a new connection.
func TestAPodCapturedAgainIsCapturedWhole(t *testing.T) {
	w := newWorld(t)
	const from = podAddress + ":45000"
	older, server := open(t, w.pod, from, peerAddress+appPort, w.peerApp)
	apply(t, w.pod, Capturing)
	exchange(t, older, server)
	apply(t, w.pod, Absent)
	// Reset, so that nothing waits on the old ports.
	if err := older.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	older.Close()
	apply(t, w.pod, Capturing)
	open(t, w.pod, from, peerAddress+appPort, w.outbound)
}

// What others track is theirs.
func TestTrackedConnectionsOfOthersAreKept(t *testing.T) {
	w := newWorld(t)
	nft(t, w.pod, func(c *nftables.Conn) error {
		table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "foreign"})
		chain := c.AddChain(&nftables.Chain{
			Name: "out", Table: table, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
		})
		// The pod's own redirection, which has nothing to do with the mesh.
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule(
			opening(), address(destination, netip.MustParseAddr("192.0.2.9")), redirectTo(8080))})
		return nil
	})
	redirected, app := open(t, w.pod, "", "192.0.2.9:99", w.app)
	apply(t, w.pod, Capturing)
	apply(t, w.pod, Absent)
	exchange(t, redirected, app)
}

func TestIPv6GoesTheSameWay(t *testing.T) {
	const podAddress, nodeAddress, client = "fd00:9::1", "fd00:9::fe", "fd00:9::77"
	node := netnstest.New(t)
	pod := netnstest.Pod(t, node, "pod", podAddress)
	netnstest.In(t, node, func(h *netlink.Handle) error {
		link, err := h.LinkByName("pod")
		if err != nil {
			return err
		}
		// Off its own link, so that the pod resolves it like any node's address.
		return h.AddrAdd(link, &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(nodeAddress)), Flags: unix.IFA_F_NODAD})
	})
	at := func(ns *netns.Namespace, port int, options ...netnstest.Option) net.Listener {
		return netnstest.Listen(t, ns, fmt.Sprintf("[::]:%d", port), options...)
	}
	outbound, inbound := at(pod, OutboundPort, netnstest.Marked(ProxyMark)), at(pod, InboundPort, netnstest.Marked(ProxyMark))
	tunnel, app, nodeApp := at(pod, TunnelPort, netnstest.Marked(ProxyMark)), at(pod, 8080), at(node, 8080)
	inPod, onNode := "["+podAddress+"]:8080", "["+nodeAddress+"]:8080"

	older, olderApp := open(t, node, "", inPod, app)
	apply(t, pod, Capturing)
	exchange(t, older, olderApp)
	open(t, pod, "", onNode, outbound)
	open(t, pod, "", onNode, nodeApp, netnstest.Marked(ProxyMark))
	open(t, node, "", inPod, inbound)
	open(t, node, "", fmt.Sprintf("[%s]:%d", podAddress, TunnelPort), tunnel)
	open(t, pod, "", inPod, app)
	open(t, pod, "", "[::1]:8080", app)
	transparent6 := func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1) }
	_, delivered := open(t, pod, "["+client+"]:0", inPod, app, netnstest.Marked(ProxyMark), transparent6)
	if got := host(delivered.RemoteAddr()); got != client {
		t.Errorf("the app sees source %s, want %s", got, client)
	}
	apply(t, pod, Absent)
	open(t, pod, "", onNode, nodeApp)
	open(t, node, "", inPod, app)
	exchange(t, older, olderApp)
}
