package redirect

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

// dialFor is set in a process that is this test's binary and only connects: cgroups are processes', not threads'. From
// which address, and for how long it tries, is in the others.
const (
	dialFor    = "LATEEN_TEST_DIAL"
	dialSource = "LATEEN_TEST_DIAL_FROM"
	dialTime   = "LATEEN_TEST_DIAL_TIME"
	dialMark   = "LATEEN_TEST_DIAL_MARK"   // with this mark, and no capability but CAP_NET_RAW
	dialDevice = "LATEEN_TEST_DIAL_DEVICE" // bound to this device
)

func TestMain(m *testing.M) {
	if to := os.Getenv(dialFor); to != "" {
		// The parent puts it where it belongs, and then lets it go.
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			os.Exit(2)
		}
		ns, err := netns.Open("/proc/self/fd/3")
		if err == nil {
			ctx, giveUp := context.WithCancel(context.Background())
			limit, _ := time.ParseDuration(os.Getenv(dialTime))
			// Its time begins with the socket: the process may stand still before that.
			begins := func(int) error { time.AfterFunc(limit, giveUp); return nil }
			d := net.Dialer{Control: netnstest.Control(reusable, posed, begins)}
			if from, err := netip.ParseAddrPort(os.Getenv(dialSource)); err == nil {
				d.LocalAddr = net.TCPAddrFromAddrPort(from)
			}
			err = ns.Do(func() error {
				if err := withNetRawAlone(); err != nil {
					return err
				}
				c, err := d.DialContext(ctx, "tcp", to)
				if err == nil {
					_, err = c.Write([]byte("hello"))
					c.Close()
				}
				return err
			})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// posed gives a socket the mark and the device that the environment says.
func posed(fd int) error {
	if device := os.Getenv(dialDevice); device != "" {
		if err := unix.BindToDevice(fd, device); err != nil {
			return err
		}
	}
	mark, err := strconv.Atoi(os.Getenv(dialMark))
	if err != nil {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, mark)
}

// withNetRawAlone leaves the calling thread no other capability, if it is to mark what it sends.
func withNetRawAlone() error {
	if os.Getenv(dialMark) == "" {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	raw := uint32(1 << unix.CAP_NET_RAW)
	sets := [2]unix.CapUserData{{Effective: raw, Permitted: raw}}
	return unix.Capset(&header, &sets[0])
}

// cgroups makes a cgroup of version 2 for the test, and says at which level it is.
func cgroups(t *testing.T) (dir string, level uint32) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); strings.HasPrefix(after, "cgroup2 ") && fields[3] == "/" {
			dir, err = os.MkdirTemp(fields[4], "lateen-test-")
			if err != nil {
				t.Fatalf("this test needs a cgroup of version 2: %v", err)
			}
			t.Cleanup(func() {
				for deadline := time.Now().Add(15 * time.Second); os.Remove(dir) != nil && time.Now().Before(deadline); {
					time.Sleep(10 * time.Millisecond)
				}
			})
			return dir, 1
		}
	}
	t.Fatal("this test needs cgroups of version 2, and none are mounted")
	return "", 0
}

func below(t *testing.T, dir, name string) string {
	t.Helper()
	sub := filepath.Join(dir, name)
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(15 * time.Second); os.Remove(sub) != nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	return sub
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// reusable lets a socket have a port that another had just now.
func reusable(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }

// dialFrom connects from a process of its own in a cgroup, inside the namespace.
func dialFrom(t *testing.T, cgroup string, ns *netns.Namespace, to netip.AddrPort) error {
	t.Helper()
	return dialBound(t, cgroup, ns, netip.AddrPort{}, to, 10*time.Second)
}

// dialBound does so from an address and port.
func dialBound(t *testing.T, cgroup string, ns *netns.Namespace, from, to netip.AddrPort, timeout time.Duration, environment ...string) error {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), dialFor+"="+to.String(), dialTime+"="+timeout.String())
	c.Env = append(c.Env, environment...)
	if from.IsValid() {
		c.Env = append(c.Env, dialSource+"="+from.String())
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	c.Stderr = &said
	err = ns.WithFD(func(fd int) error {
		dup, err := unix.Dup(fd)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(dup), "netns")
		defer f.Close()
		c.ExtraFiles = []*os.File{f}
		return c.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	if cgroup != "" {
		if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), fmt.Append(nil, c.Process.Pid), 0); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintln(in)
	if err := c.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, said.String())
	}
	return nil
}

// posing is a captured pod whose probes are made by the node.
type posing struct {
	node, pod    *netns.Namespace
	address      netip.Addr
	probe, own   netip.Addr
	app, inbound net.Listener
}

func newPosing(t *testing.T, v6 bool) *posing {
	p := &posing{node: netnstest.New(t), address: netip.MustParseAddr("10.9.0.1"), own: netip.MustParseAddr("10.9.0.254"), probe: Probe4}
	any := "0.0.0.0"
	if v6 {
		p.address, p.own, p.probe, any = netip.MustParseAddr("fd00:9::1"), netip.MustParseAddr("fd00:9::fe"), Probe6, "[::]"
		netnstest.Sysctl(t, p.node, "net.ipv6.conf.all.forwarding", "1")
	}
	p.pod = netnstest.Pod(t, p.node, "pod", p.address.String())
	netnstest.In(t, p.node, func(h *netlink.Handle) error {
		link, err := h.LinkByName("pod")
		if err != nil {
			return err
		}
		return h.AddrAdd(link, &netlink.Addr{IPNet: netlink.NewIPNet(p.own.AsSlice()), Flags: unix.IFA_F_NODAD})
	})
	// As CNI plugins do it: the pod's way to everywhere is its gateway.
	netnstest.In(t, p.pod, func(h *netlink.Handle) error {
		eth0, err := h.LinkByName("eth0")
		if err != nil {
			return err
		}
		return h.RouteReplace(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: nil, Gw: p.own.AsSlice(), Flags: int(netlink.FLAG_ONLINK)})
	})
	p.app = netnstest.Listen(t, p.pod, any+":8080")
	p.inbound = netnstest.Listen(t, p.pod, fmt.Sprintf("%s:%d", any, InboundPort), netnstest.Marked(ProxyMark))
	apply(t, p.pod, Capturing)
	return p
}

func (p *posing) pose(t *testing.T, prober Prober, changed bool, targets ...netip.AddrPort) {
	t.Helper()
	var did bool
	err := p.node.Do(func() (err error) {
		did, err = PoseProbes(prober, targets)
		return err
	})
	if err != nil || did != changed {
		t.Fatalf("pose: changed %v, %v; want %v", did, err, changed)
	}
}

// arrives says where a connection comes out in the pod and from whom.
func (p *posing) arrives(t *testing.T, dial func() error) (direct bool, from netip.Addr) {
	t.Helper()
	type arrival struct {
		direct bool
		from   netip.Addr
	}
	came := make(chan arrival, 2)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for _, l := range []net.Listener{p.app, p.inbound} {
		if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
			t.Fatal(err)
		}
		waiting.Go(func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			from, _ := netip.ParseAddrPort(c.RemoteAddr().String())
			came <- arrival{l == p.app, from.Addr().Unmap()}
			c.Close()
		})
	}
	if err := dial(); err != nil {
		t.Fatalf("dial: %v", err)
	}
	select {
	case a := <-came:
		// The other listener's wait ends before the next one's begins.
		for _, l := range []net.Listener{p.app, p.inbound} {
			_ = l.(*net.TCPListener).SetDeadline(time.Unix(1, 0))
		}
		return a.direct, a.from
	case <-time.After(15 * time.Second):
		t.Fatal("nothing arrived")
		return false, netip.Addr{}
	}
}

func TestTheKubeletsProbesPassACapturedPodAndNobodyElses(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
			p := newPosing(t, v6)
			dir, level := cgroups(t)
			pods := below(t, dir, "kubepods")
			target := netip.AddrPortFrom(p.address, 8080)
			prober := ByCgroup(inode(t, dir), level)
			p.pose(t, prober, true, target)
			p.pose(t, prober, false, target)

			from := func(cgroup string) func() error {
				return func() error { return dialFrom(t, cgroup, p.node, target) }
			}
			if direct, who := p.arrives(t, from(dir)); !direct || who != p.probe {
				t.Errorf("the kubelet's probe: direct %v, from %v", direct, who)
			}
			for name, cgroup := range map[string]string{"another process of root": "", "a pod on the node's network": pods} {
				if direct, who := p.arrives(t, from(cgroup)); direct || who == p.probe {
					t.Errorf("%s: direct %v, from %v", name, direct, who)
				}
			}
			// Only what the pod wants probed.
			p.pose(t, prober, false, netip.AddrPortFrom(p.address, 9999))
			if direct, who := p.arrives(t, from(dir)); direct || who == p.probe {
				t.Errorf("the kubelet to a port that is not probed: direct %v, from %v", direct, who)
			}
			p.pose(t, prober, false, target, target)
			if direct, _ := p.arrives(t, from(dir)); !direct {
				t.Error("the kubelet's probe does not pass once the port is probed again")
			}
			// Nobody takes the address for his own.
			probe := netip.AddrPortFrom(p.probe, 0)
			netnstest.In(t, p.node, func(h *netlink.Handle) error {
				lo, err := h.LinkByName("lo")
				if err != nil {
					return err
				}
				return h.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(p.probe.AsSlice()), Flags: unix.IFA_F_NODAD})
			})
			if c, err := dialAs(p.node, 0, probe, target, 3*time.Second); err == nil {
				c.Close()
				t.Error("whoever binds to the probe address passes")
			}
		})
	}
}

func TestWithoutCgroupsTheKubeletIsKnownByItsUser(t *testing.T) {
	p := newPosing(t, false)
	target := netip.AddrPortFrom(p.address, 8080)
	p.pose(t, ByUser(0), true, target)
	if direct, who := p.arrives(t, func() error { return dialFrom(t, "", p.node, target) }); !direct || who != p.probe {
		t.Errorf("root's connection: direct %v, from %v", direct, who)
	}
	as := func(uid uintptr) error {
		return p.node.Do(func() error {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETFSUID, uid, 0, 0); errno != 0 {
				return errno
			}
			c, err := net.DialTimeout("tcp", target.String(), 10*time.Second)
			if err == nil {
				c.Close()
			}
			return err
		})
	}
	if direct, who := p.arrives(t, func() error { return as(12345) }); direct || who == p.probe {
		t.Errorf("somebody else's connection: direct %v, from %v", direct, who)
	}
}

// An agent that starts does not know yet what is probed. What the last one knew stays, also where the rules are to be written anew.
func TestTargetsThatAreNotKnownStay(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		p := newPosing(t, v6)
		target := netip.AddrPortFrom(p.address, 8080)
		probed := func() error { return dialFrom(t, "", p.node, target) }
		p.pose(t, ByUser(7), true)
		p.pose(t, ByUser(7), false, target)
		p.pose(t, ByUser(7), false)
		p.pose(t, ByUser(0), true)
		if direct, who := p.arrives(t, probed); !direct || who != p.probe {
			t.Errorf("v6 %v: a probe: direct %v, from %v", v6, direct, who)
		}
		p.pose(t, ByUser(0), false, []netip.AddrPort{}...)
		if direct, who := p.arrives(t, probed); direct || who == p.probe {
			t.Errorf("v6 %v: what is probed no more: direct %v, from %v", v6, direct, who)
		}
	}
}

func TestPosingIsRepairedAndRemoved(t *testing.T) {
	p := newPosing(t, false)
	target := netip.AddrPortFrom(p.address, 8080)
	p.pose(t, ByUser(0), true, target)
	nft(t, p.node, func(c *nftables.Conn) error {
		c.FlushChain(&nftables.Chain{Name: "pose-as-prober", Table: &nftables.Table{Family: nftables.TableFamilyINet, Name: probeTable}})
		return nil
	})
	p.pose(t, ByUser(0), true, target)
	p.pose(t, ByUser(7), true, target)
	if err := p.node.Do(RemoveProbes); err != nil {
		t.Fatal(err)
	}
	nft(t, p.node, func(c *nftables.Conn) error {
		tables, err := c.ListTables()
		if len(tables) > 0 {
			t.Errorf("tables left: %v", tables[0].Name)
		}
		return err
	})
	if err := p.node.Do(RemoveProbes); err != nil {
		t.Errorf("removed twice: %v", err)
	}
}
