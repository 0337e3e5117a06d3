package redirect

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

// A connection that was open before the capture and says nothing may stand in the way of a delivery with the same port.
func TestADeliveryFromThePortOfAnIdleOlderConnectionHarmsNeither(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
			pod, peer, all := podAddress, peerAddress, "0.0.0.0"
			if v6 {
				pod, peer, all = "fd00:9::1", "fd00:9::2", "::"
			}
			node := netnstest.New(t)
			inPod, outside := netnstest.Pod(t, node, "pod", pod), netnstest.Pod(t, node, "peer", peer)
			if v6 {
				netnstest.ProxyNeighbours(t, node, map[string]string{"pod": peer, "peer": pod})
				netnstest.Sysctl(t, node, "net.ipv6.conf.all.forwarding", "1")
			}
			app := netnstest.Listen(t, inPod, net.JoinHostPort(all, "8080"))
			from, to := net.JoinHostPort(peer, "45678"), net.JoinHostPort(pod, "8080")
			client, server := open(t, outside, from, to, app)

			older := []Older{{Client: netip.MustParseAddrPort(from), Pod: netip.MustParseAddrPort(to)}}
			for range 2 {
				if err := Track(inPod, older); err != nil {
					t.Fatal(err)
				}
			}
			apply(t, inPod, Capturing)
			transparent := netnstest.Option(netnstest.Transparent)
			if v6 {
				transparent = func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1) }
			}
			proxy, delivered := open(t, inPod, from, to, app, netnstest.Marked(ProxyMark), transparent)
			if got := host(delivered.RemoteAddr()); got != peer {
				t.Errorf("the app sees source %s", got)
			}
			for range 3 {
				exchange(t, client, server)
				exchange(t, proxy, delivered)
			}
			ends(t, proxy, delivered)
			// The older one is not translated: it outlives the rules.
			for _, mode := range []Mode{Draining, Absent} {
				apply(t, inPod, mode)
				if n := settle(t, inPod); n != 0 {
					t.Errorf("%v: %d connections are translated", mode, n)
				}
				exchange(t, client, server)
			}
		})
	}
}

// Between the listing and the rules nothing sees a connection end. Its client may use the port again at once.
func TestAClientUsesThePortOfAnOlderConnectionAgainThatEndedUnseen(t *testing.T) {
	w := newWorld(t)
	client, server := open(t, w.peer, peerAddress+samePort, podAddress+appPort, w.app)
	older := []Older{{Client: netip.MustParseAddrPort(peerAddress + samePort), Pod: netip.MustParseAddrPort(podAddress + appPort)}}
	if err := Track(w.pod, older); err != nil {
		t.Fatal(err)
	}
	ends(t, server, client)
	apply(t, w.pod, Capturing)
	for range 2 {
		if err := Untrack(w.pod, older); err != nil {
			t.Fatal(err)
		}
	}
	open(t, w.peer, peerAddress+samePort, podAddress+appPort, w.inbound)
}

// The kernel tracks connections only while a pod has rules. Of one whose first half ended before them it sees the second half
// alone, takes it for open, and what the pod opens from the same port passes for a part of it.
func TestAPodUsesThePortOfAConnectionAgainThatHalfEndedUnseen(t *testing.T) {
	w := newWorld(t)
	client, server := open(t, w.pod, podAddress+samePort, peerAddress+appPort, w.peerApp)
	if err := server.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("%v, want EOF", err)
	}
	apply(t, w.pod, Capturing)
	client.Close()
	if _, err := server.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("%v, want EOF", err)
	}
	server.Close()
	tracked, err := Untranslated(w.pod)
	if err != nil || len(tracked) != 1 {
		t.Fatalf("%v, %v: want the one that has ended", tracked, err)
	}
	if err := Untrack(w.pod, tracked); err != nil {
		t.Fatal(err)
	}
	open(t, w.pod, podAddress+samePort, peerAddress+appPort, w.outbound)
	if tracked, err = Untranslated(w.pod); err != nil || len(tracked) != 0 {
		t.Errorf("%v, %v: a connection that the rules redirect is no untranslated one", tracked, err)
	}
}
