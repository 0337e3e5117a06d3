package redirect

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

// The proxy delivers from the client's address, and the kernel may give it the port of another connection of the same
// client, which was redirected and lives. Both must go on, whichever comes first.
func TestTheProxyMayUseTheClientsVeryPort(t *testing.T) {
	w := newWorld(t)
	apply(t, w.pod, Capturing)
	const client = peerAddress + ":40000"
	redirected, atProxy := open(t, w.peer, client, podAddress+appPort, w.inbound)
	delivered, app := open(t, w.pod, client, podAddress+appPort, w.app, netnstest.Marked(ProxyMark), netnstest.Transparent)
	if got := app.RemoteAddr().String(); got != client {
		t.Errorf("the app sees source %s, want %s", got, client)
	}
	if got := originalDestination(t, atProxy); got != podAddress+appPort {
		t.Errorf("original destination %q", got)
	}
	for range 3 {
		exchange(t, redirected, atProxy)
		exchange(t, delivered, app)
	}

	// The other order: delivered first, say through a tunnel, then the same port in plain text.
	const other = peerAddress + ":40001"
	delivered, app = open(t, w.pod, other, podAddress+appPort, w.app, netnstest.Marked(ProxyMark), netnstest.Transparent)
	redirected, atProxy = open(t, w.peer, other, podAddress+appPort, w.inbound)
	for range 3 {
		exchange(t, redirected, atProxy)
		exchange(t, delivered, app)
	}
}

func TestTheProxyMayUseTheClientsVeryPortOverIPv6(t *testing.T) {
	const podAddress, peerAddress = "fd00:9::1", "fd00:9::2"
	node := netnstest.New(t)
	netnstest.Sysctl(t, node, "net.ipv6.conf.all.forwarding", "1")
	pod := netnstest.Pod(t, node, "pod", podAddress)
	peer := netnstest.Pod(t, node, "peer", peerAddress)
	// The pods resolve each other at the node.
	netnstest.ProxyNeighbours(t, node, map[string]string{"pod": peerAddress, "peer": podAddress})
	inbound := netnstest.Listen(t, pod, fmt.Sprintf("[::]:%d", InboundPort), netnstest.Marked(ProxyMark))
	app := netnstest.Listen(t, pod, "[::]:8080")
	apply(t, pod, Capturing)
	transparent6 := func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1) }
	const client, to = "[" + peerAddress + "]:40000", "[" + podAddress + "]:8080"
	redirected, atProxy := open(t, peer, client, to, inbound)
	delivered, atApp := open(t, pod, client, to, app, netnstest.Marked(ProxyMark), transparent6)
	for range 3 {
		exchange(t, redirected, atProxy)
		exchange(t, delivered, atApp)
	}
}
