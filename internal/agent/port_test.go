package agent

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

// Pods that hold connections to the metrics' port keep neither the kubelet nor other pods from being answered.
func TestNobodyUsesUpTheMetricsPort(t *testing.T) {
	node := netnstest.New(t)
	own := net.IPv4(10, 9, 0, 254)
	greedy, other := netnstest.Pod(t, node, "greedy", "10.9.0.1"), netnstest.Pod(t, node, "other", "10.9.0.2")
	netnstest.In(t, node, func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		return h.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(own), Flags: unix.IFA_F_NODAD})
	})
	l := newBounded(netnstest.Listen(t, node, "0.0.0.0:15014"))
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ready") }), slog.New(slog.DiscardHandler))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })

	to := own.String() + ":15014"
	ask := func(c net.Conn) error {
		_ = c.SetDeadline(time.Now().Add(15 * time.Second))
		if _, err := io.WriteString(c, "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		b := make([]byte, 15)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "HTTP/1.1 200 OK" {
			return fmt.Errorf("%q, %w", b, err)
		}
		return nil
	}
	// All that one pod may have, each once answered and then held.
	for i := range portShare {
		c, err := netnstest.Dial(greedy, "", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := ask(c); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	more, err := netnstest.Dial(greedy, "", to)
	if err == nil {
		t.Cleanup(func() { more.Close() })
		err = ask(more)
	}
	if err == nil {
		t.Error("one pod has more connections than its share")
	}
	answered := func(name string, from *netns.Namespace) {
		c, err := netnstest.Dial(from, "", to)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := ask(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	answered("another pod", other)
	// Many pods at once.
	for n := byte(0); enters(l, &member{from: netip.AddrFrom4([4]byte{10, 9, 1, n})}); n++ {
	}
	answered("the kubelet", node)
	// And a pod on the node's network, whose address is the kubelet's, takes all that the node itself may have.
	for range 2 * portOwn {
		c, err := netnstest.Dial(node, "", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := ask(c); err != nil {
			t.Fatal(err)
		}
	}
	answered("the kubelet beside it", node)
}

func enters(c *bounded, m *member) bool {
	entered, _ := c.enter(m)
	return entered
}

func TestThePortsBoundsHoldAndAreGivenBack(t *testing.T) {
	c := newBounded(nil)
	address := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }
	entered := 0
	for n := range 2 * portMost {
		if enters(c, &member{from: address(n)}) {
			entered++
		}
	}
	if entered != portMost {
		t.Errorf("%d connections from as many addresses, want %d", entered, portMost)
	}
	var own []*member
	for i := range 2 * portOwn {
		m := &member{from: address(0), own: true}
		entered, oldest := c.enter(m)
		if !entered || (oldest != nil) != (i >= portOwn) || oldest != nil && oldest != own[i-portOwn] {
			t.Errorf("the node's own connection %d: %v, and %v is to make room", i, entered, oldest)
		}
		if oldest != nil {
			c.leave(oldest)
		}
		own = append(own, m)
	}
	if len(c.own) != portOwn {
		t.Errorf("the node itself has %d connections, want %d", len(c.own), portOwn)
	}
	for n := range portMost {
		c.leave(&member{from: address(n)})
	}
	for _, m := range own[portOwn:] {
		c.leave(m)
	}
	if len(c.own) != 0 || c.others != 0 || len(c.from) != 0 {
		t.Errorf("left: %v, %d, %v", c.own, c.others, c.from)
	}
}

// A request that does not end, and an answer that is not read, end some time.
func TestTheServerWaitsForNobodyForLong(t *testing.T) {
	s := newServer(nil, slog.New(slog.DiscardHandler))
	for name, d := range map[string]time.Duration{
		"head": s.ReadHeaderTimeout, "request": s.ReadTimeout, "answer": s.WriteTimeout, "next request": s.IdleTimeout,
	} {
		if d <= 0 || d > time.Minute {
			t.Errorf("it waits %v for the %s", d, name)
		}
	}
}
