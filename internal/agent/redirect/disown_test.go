package redirect

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
)

// household is a captured pod of which the cgroup is known.
type household struct {
	*poked
	cgroups, own, container, proxy string
	settings                       Settings
}

func newHousehold(t *testing.T, p *poked) *household {
	dir, level := cgroups(t)
	h := &household{poked: p, cgroups: dir, own: below(t, dir, "pod"), proxy: below(t, dir, "proxy")}
	h.container = below(t, h.own, "container")
	h.settings = Settings{Own: Cgroup{ID: inode(t, h.own), Level: level + 1}}
	h.capture(t, true)
	return h
}

func (h *household) capture(t *testing.T, changed bool) {
	t.Helper()
	if did, err := Apply(h.pod, Capturing, h.settings); err != nil || did != changed {
		t.Fatalf("capture: changed %v, %v; want %v", did, err, changed)
	}
}

// dials says where a connection comes out that a process in a cgroup opens with a mark: at the proxy, at the peer, or nowhere.
func (h *household) dials(t *testing.T, cgroup string, mark int, device string) string {
	t.Helper()
	came := make(chan string, 2)
	var waiting sync.WaitGroup
	for name, l := range map[string]net.Listener{"proxy": h.outbound, "peer": h.peerApp} {
		_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(15 * time.Second))
		waiting.Go(func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came <- name
			c.Close()
		})
	}
	defer func() {
		for _, l := range []net.Listener{h.outbound, h.peerApp} {
			_ = l.(*net.TCPListener).SetDeadline(time.Unix(1, 0))
		}
		waiting.Wait() // or it takes the next one's connection
	}()
	to, limit := netip.AddrPortFrom(h.peerAddr, 8080), 10*time.Second
	if device != "" && cgroup != h.proxy {
		// One that is redirected has no answer: that comes by another link. One that passes has it at once.
		limit = time.Second
	}
	if err := dialBound(t, cgroup, h.pod, netip.AddrPort{}, to, limit, fmt.Sprintf("%s=%d", dialMark, mark), dialDevice+"="+device); err != nil {
		return "nowhere"
	}
	select {
	case where := <-came:
		return where
	case <-time.After(15 * time.Second):
		return "nowhere"
	}
}

// With CAP_NET_RAW alone a process may mark what it sends. It passes by the proxy no more than others do.
func TestThePodsOwnMarkOpensNoWayPastTheProxy(t *testing.T) {
	forBothFamilies(t, func(t *testing.T, p *poked) {
		h := newHousehold(t, p)
		// It is there, and can be reached past the proxy by the proxy.
		for _, device := range []string{"", "eth0"} {
			if where := h.dials(t, h.proxy, ProxyMark, device); where != "peer" {
				t.Fatalf("from the proxy: %s", where)
			}
		}
		for name, cgroup := range map[string]string{"the pod": h.own, "a container": h.container} {
			for _, mark := range []int{0, ProxyMark, 0x7000 | ProxyMark} {
				if where := h.dials(t, cgroup, mark, ""); where != "proxy" {
					t.Errorf("from %s with mark %#x: %s", name, mark, where)
				}
			}
			// A socket that is bound to a link does not follow the route that the mark would choose.
			for _, mark := range []int{ProxyMark, ReturnMark, 0x7000 | ReturnMark} {
				if where := h.dials(t, cgroup, mark, "eth0"); where == "peer" {
					t.Errorf("from %s with mark %#x by eth0: %s", name, mark, where)
				}
			}
		}
	})
}

// The proxy may be anywhere else, and its sockets may have been made by the one before it, somewhere else again.
func TestMarksOfWhoeverIsNotInThePodCount(t *testing.T) {
	forBothFamilies(t, func(t *testing.T, p *poked) {
		h := newHousehold(t, p)
		for name, cgroup := range map[string]string{
			"the proxy": h.proxy, "one below it": below(t, h.proxy, "container"), "one above the pod": h.cgroups, "none": "",
		} {
			if where := h.dials(t, cgroup, ProxyMark, ""); where != "peer" {
				t.Errorf("from %s: %s", name, where)
			}
		}
	})
}

func TestWithoutItsCgroupAPodIsCapturedAsBefore(t *testing.T) {
	h := newHousehold(t, newPoked(t, false))
	h.settings = Settings{}
	h.capture(t, true)
	if where := h.dials(t, h.container, 0, ""); where != "proxy" {
		t.Errorf("without a mark: %s", where)
	}
	if where := h.dials(t, h.container, ProxyMark, ""); where != "peer" {
		t.Errorf("with one: %s", where)
	}
	if n, err := Disowned(h.pod); err != nil || n != 0 {
		t.Errorf("counted %d, %v", n, err)
	}
}

// The counter names the pod that tries. A counter that grows is no difference to repair, and hides none.
func TestMarksOfThePodAreCounted(t *testing.T) {
	h := newHousehold(t, newPoked(t, false))
	h.dials(t, h.proxy, ProxyMark, "")
	h.dials(t, h.container, 0, "")
	if n, err := Disowned(h.pod); err != nil || n != 0 {
		t.Errorf("before: %d, %v", n, err)
	}
	h.dials(t, h.container, ProxyMark, "")
	h.capture(t, false)
	if n, err := Disowned(h.pod); err != nil || n != 1 {
		t.Errorf("after: %d, %v", n, err)
	}
	nft(t, h.pod, func(c *nftables.Conn) error {
		c.FlushChain(&nftables.Chain{Name: disownOutbound, Table: ourTable()})
		return nil
	})
	h.capture(t, true)
	if where := h.dials(t, h.container, ProxyMark, ""); where != "proxy" {
		t.Errorf("once repaired: %s", where)
	}
	if n, err := Disowned(h.pod); err != nil || n != 1 {
		t.Errorf("once repaired: %d, %v", n, err)
	}
}

// A pod that has another cgroup has another rule.
func TestAnotherCgroupIsWritten(t *testing.T) {
	h := newHousehold(t, newPoked(t, false))
	h.settings.Own.ID = inode(t, h.proxy)
	h.capture(t, true)
	h.capture(t, false)
	if where := h.dials(t, h.proxy, ProxyMark, ""); where != "proxy" {
		t.Errorf("from the pod's: %s", where)
	}
}

// A connection that its process opened before it was captured, and one that was redirected, go on whatever mark they have.
func TestMarkedConnectionsThatAreOpenGoOn(t *testing.T) {
	w := newWorld(t)
	dir, level := cgroups(t)
	// The test's own process is the pod's: its cgroup contains all others.
	own := Settings{Own: Cgroup{ID: inode(t, filepath.Dir(dir)), Level: level - 1}}
	older, server := open(t, w.pod, "", peerAddress+appPort, w.peerApp)
	if _, err := Apply(w.pod, Capturing, own); err != nil {
		t.Fatal(err)
	}
	redirected, proxy := open(t, w.pod, "", peerAddress+appPort, w.outbound)
	for _, c := range []net.Conn{older, redirected} {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, ProxyMark) })
		if err != nil {
			t.Fatal(err)
		}
	}
	exchange(t, older, server)
	exchange(t, redirected, proxy)
}

func TestWhetherMarksCanBeTakenOffIsTried(t *testing.T) {
	dir, level := cgroups(t)
	own := Cgroup{ID: inode(t, dir), Level: level, Root: "/proc/self/ns/cgroup"}
	if err := CanDisown(own); err != nil {
		t.Error(err)
	}
	own.Root = "/nowhere"
	if err := CanDisown(own); err == nil {
		t.Error("a cgroup namespace that is not there was entered")
	}
	pod, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	if _, err := Apply(pod, Capturing, Settings{Own: own}); err == nil {
		t.Error("a pod was captured in the view of a cgroup namespace that is not there")
	}
}
