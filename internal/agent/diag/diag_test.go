package diag

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
	"lateen.dev/lateen/internal/agent/redirect"
)

func list(t *testing.T, ns *netns.Namespace) Listing {
	t.Helper()
	l, err := List(ns)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func find(l Listing, match func(Socket) bool) (Socket, bool) {
	i := slices.IndexFunc(l.Sockets, match)
	if i < 0 {
		return Socket{}, false
	}
	return l.Sockets[i], true
}

func pairOf(t *testing.T, ns *netns.Namespace, listener net.Listener, to string, options ...netnstest.Option) (client, server net.Conn) {
	t.Helper()
	client, err := netnstest.Dial(ns, "", to, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

func TestListsSocketsWithMarksAndLastingCookies(t *testing.T) {
	ns := netnstest.New(t)
	// A dual-stack listener, as many runtimes have: its IPv4 connections live on IPv6 sockets.
	l := netnstest.Listen(t, ns, "[::]:8080")
	client, server := pairOf(t, ns, l, "127.0.0.1:8080", netnstest.Marked(0x1539))

	listing := list(t, ns)
	dialled, ok := find(listing, func(s Socket) bool { return s.Local.String() == client.LocalAddr().String() })
	if !ok || dialled.State != Established || dialled.Mark != 0x1539 || dialled.Remote.String() != "127.0.0.1:8080" {
		t.Errorf("the client's socket: %+v, %v", dialled, ok)
	}
	accepted, ok := find(listing, func(s Socket) bool {
		return s.State == Established && s.Remote.String() == client.LocalAddr().String()
	})
	if !ok || accepted.Mark != 0 || accepted.Local.String() != "127.0.0.1:8080" {
		t.Errorf("the server's socket: %+v, %v", accepted, ok)
	}
	if _, ok := find(listing, func(s Socket) bool { return s.State == Listen && s.Local.Port() == 8080 }); !ok {
		t.Error("the listener is missing")
	}

	again, _ := find(list(t, ns), func(s Socket) bool { return s.Local == dialled.Local && s.Remote == dialled.Remote })
	if again.Cookie != dialled.Cookie || again.Cookie == accepted.Cookie || again.Cookie == 0 {
		t.Errorf("cookies %d, later %d; the other socket's %d", dialled.Cookie, again.Cookie, accepted.Cookie)
	}

	client.Close()
	if _, err := server.Read(make([]byte, 1)); err != io.EOF {
		t.Fatal(err)
	}
	server.Close()
	deadline := time.Now().Add(30 * time.Second)
	for {
		_, ok := find(list(t, ns), func(s Socket) bool { return s.Cookie == dialled.Cookie || s.Cookie == accepted.Cookie })
		if !ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("closed sockets are still listed")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestAcceptedSocketsCarryTheirListenersMark(t *testing.T) {
	ns := netnstest.New(t)
	l := netnstest.Listen(t, ns, "127.0.0.1:9000", netnstest.Marked(redirect.ProxyMark))
	client, _ := pairOf(t, ns, l, "127.0.0.1:9000")
	accepted, ok := find(list(t, ns), func(s Socket) bool { return s.Remote.String() == client.LocalAddr().String() })
	if !ok || !ofProxy(accepted) {
		t.Errorf("%+v, %v", accepted, ok)
	}
}

func TestSeesOnlyTheNamespaceItLooksInto(t *testing.T) {
	a, b := netnstest.New(t), netnstest.New(t)
	netnstest.Listen(t, a, "127.0.0.1:7001")
	if l := list(t, b); len(l.Sockets) != 0 {
		t.Errorf("another namespace's sockets: %v", l.Sockets)
	}
	if l := list(t, a); len(l.Sockets) != 1 || len(l.Own) == 0 {
		t.Errorf("sockets %v, addresses %v", l.Sockets, l.Own)
	}
}

// A real capture: what the rules led to the proxy is not unmeshed, and what was there before is, from whichever side it
// was opened.
func TestTellsOlderConnectionsInARealCapture(t *testing.T) {
	node := netnstest.New(t)
	pod := netnstest.Pod(t, node, "pod", "10.9.0.1")
	peer := netnstest.Pod(t, node, "peer", "10.9.0.2")
	app := netnstest.Listen(t, pod, "0.0.0.0:8080")
	peerApp := netnstest.Listen(t, peer, "0.0.0.0:8080")
	outbound := netnstest.Listen(t, pod, "0.0.0.0:15001", netnstest.Marked(redirect.ProxyMark))
	older, _ := pairOf(t, pod, peerApp, "10.9.0.2:8080")
	olderIn, _ := pairOf(t, peer, app, "10.9.0.1:8080")
	pairOf(t, pod, app, "10.9.0.1:8080")

	before := list(t, pod).Unmeshed()
	if _, err := redirect.Apply(pod, redirect.Capturing, redirect.Settings{}); err != nil {
		t.Fatal(err)
	}
	pairOf(t, pod, outbound, "10.9.0.2:8080")

	l := list(t, pod)
	after := l.Unmeshed()
	if !slices.Equal(before, after) {
		t.Errorf("before the capture %v, after it and one more connection %v", before, after)
	}
	want := map[string]Direction{older.LocalAddr().String(): Outbound, "10.9.0.1:8080": Inbound}
	for _, c := range after {
		if want[c.Local.String()] != c.Direction {
			t.Errorf("unexpected %v", c)
		}
		if c.Direction == Inbound && c.Remote.String() != olderIn.LocalAddr().String() {
			t.Errorf("inbound from %v", c.Remote)
		}
	}
	if len(after) != 2 {
		t.Errorf("%d unmeshed connections, want 2", len(after))
	}
	if got := l.Carried(); got != 1 {
		t.Errorf("%d connections carried, want 1", got)
	}
}
