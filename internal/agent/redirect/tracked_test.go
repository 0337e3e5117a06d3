package redirect

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

// A client's port that the proxy delivers from.
const samePort = ":45678"

func settle(t *testing.T, ns *netns.Namespace) int {
	t.Helper()
	n, err := Settle(ns)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// delivers opens a connection as the proxy does, from the client's address.
func (w *world) delivers(t *testing.T, port string) (proxy, app net.Conn) {
	t.Helper()
	return open(t, w.pod, peerAddress+port, podAddress+appPort, w.app, netnstest.Marked(ProxyMark), netnstest.Transparent)
}

// ends closes a connection, from both of its sides, and waits until each has heard of the other.
func ends(t *testing.T, first, second net.Conn) {
	t.Helper()
	for _, c := range []*net.TCPConn{first.(*net.TCPConn), second.(*net.TCPConn)} {
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []net.Conn{second, first} {
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("%v, want EOF", err)
		}
		c.Close()
	}
}

// port is what the other end of a connection seems to have.
func port(c net.Conn) uint16 { return netip.MustParseAddrPort(c.RemoteAddr().String()).Port() }

// The kernel tracks a delivery for two minutes after its end. A plain connection of the client from that very port must not
// be translated for its sake, since it would be cut as the rules go.
func TestAPlainConnectionFromThePortOfAnEndedDeliveryOutlivesTheRules(t *testing.T) {
	w := newWorld(t)
	apply(t, w.pod, Capturing)
	proxy, app := w.delivers(t, samePort)
	ends(t, proxy, app)
	apply(t, w.pod, Draining)
	if n := settle(t, w.pod); n != 0 {
		t.Fatalf("%d connections are translated before there is any", n)
	}
	client, server := open(t, w.peer, peerAddress+samePort, podAddress+appPort, w.app)
	if port(server) != 45678 {
		t.Errorf("the app sees port %d", port(server))
	}
	if n := settle(t, w.pod); n != 0 {
		t.Errorf("%d connections are translated", n)
	}
	apply(t, w.pod, Absent)
	exchange(t, client, server)
}

// While the delivery is open the kernel cannot but translate: the pod could not tell the two apart. Then the rules are still needed.
func TestAPlainConnectionFromThePortOfAnOpenDeliveryIsCounted(t *testing.T) {
	w := newWorld(t)
	apply(t, w.pod, Capturing)
	proxy, app := w.delivers(t, samePort)
	other, otherApp := w.delivers(t, ":45680")
	apply(t, w.pod, Draining)
	settle(t, w.pod)
	client, server := open(t, w.peer, peerAddress+samePort, podAddress+appPort, w.app)
	if port(server) == 45678 {
		t.Fatal("the kernel did not translate: this test shows nothing")
	}
	// Open connections go on.
	if n := settle(t, w.pod); n != 1 {
		t.Errorf("%d connections are translated, want 1", n)
	}
	exchange(t, proxy, app)
	exchange(t, other, otherApp)
	ends(t, proxy, app)
	ends(t, other, otherApp)
	if n := settle(t, w.pod); n != 1 {
		t.Errorf("%d connections are translated once the delivery has ended, want 1", n)
	}
	exchange(t, client, server)
	ends(t, client, server)
	if n := settle(t, w.pod); n != 0 {
		t.Errorf("%d connections are translated once the last has ended", n)
	}
}

// Where others translate, the kernel goes on when our rules are gone: nobody is to be waited for. What has no rule, or sees
// other addresses, does not make it go on.
func TestWhatOthersTranslateIsNotWaitedFor(t *testing.T) {
	w := newWorld(t)
	apply(t, w.pod, Capturing)
	proxy, app := w.delivers(t, samePort)
	apply(t, w.pod, Draining)
	client, server := open(t, w.peer, peerAddress+samePort, podAddress+appPort, w.app)
	ends(t, proxy, app)
	foreign := func(family nftables.TableFamily, rules ...[]expr.Any) {
		nft(t, w.pod, func(c *nftables.Conn) error {
			table := c.AddTable(&nftables.Table{Family: family, Name: "foreign"})
			chain := c.AddChain(&nftables.Chain{
				Name: "out", Table: table, Type: nftables.ChainTypeNAT,
				Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
			})
			for _, r := range rules {
				c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r})
			}
			return nil
		})
	}
	own := rule(opening(), portIs(99), redirectTo(8080))
	foreign(nftables.TableFamilyIPv6, own)
	foreign(nftables.TableFamilyIPv4)
	if n := settle(t, w.pod); n != 1 {
		t.Errorf("%d connections are waited for, want 1", n)
	}
	foreign(nftables.TableFamilyIPv4, own)
	if n := settle(t, w.pod); n != 0 {
		t.Errorf("%d connections are waited for, want none", n)
	}
	apply(t, w.pod, Absent)
	exchange(t, client, server)
}

// Only the proxy's are forgotten, and a pod without anything of ours has nothing to settle.
func TestOnlyEndedDeliveriesAreForgotten(t *testing.T) {
	w := newWorld(t)
	if n := settle(t, w.pod); n != 0 {
		t.Errorf("%d connections are translated in a pod that is plain", n)
	}
	apply(t, w.pod, Capturing)
	redirected, proxy := open(t, w.peer, "", podAddress+appPort, w.inbound)
	deliver, app := w.delivers(t, ":0")
	ended, endedApp := w.delivers(t, samePort)
	ends(t, ended, endedApp)
	apply(t, w.pod, Draining)
	settle(t, w.pod)
	deadline := time.Now().Add(200 * time.Millisecond)
	for time.Now().Before(deadline) {
		exchange(t, redirected, proxy)
		exchange(t, deliver, app)
	}
	marks := map[uint32]int{}
	if err := w.pod.Do(func() error {
		return eachTracked(nil, func(_ []byte, t tracked) bool {
			if t.state != 0 {
				marks[t.mark]++
			}
			return true
		})
	}); err != nil {
		t.Fatal(err)
	}
	if marks[ReturnMark] != 1 || marks[0] != 1 {
		t.Errorf("tracked connections by mark: %v", marks)
	}
}
