package envoy

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

const (
	clientAddress = "10.9.0.1"
	serverAddress = "10.9.0.2"
	probeAddress  = "169.254.7.127"
)

// tell listens in a namespace and tells everybody who connects its own name and where they were going.
func tell(t *testing.T, ns *netns.Namespace, name string, port int) {
	l := netnstest.Listen(t, ns, fmt.Sprintf("0.0.0.0:%d", port))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "%s %s", name, originalDestination(c))
			c.Close()
		}
	}()
}

func originalDestination(c net.Conn) string {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err.Error()
	}
	var address *unix.IPv6Mreq // any type of 16 bytes or more: the kernel answers with a sockaddr_in
	var failed error
	err = raw.Control(func(fd uintptr) {
		address, failed = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST)
	})
	if err != nil || failed != nil {
		return "unknown" // the kernel tracks no connection of this namespace
	}
	b := address.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), uint16(b[2])<<8|uint16(b[3])).String()
}

// asUser dials from inside a namespace with a socket of the given user.
func asUser(ns *netns.Namespace, uid int, to string) (net.Conn, error) {
	var c net.Conn
	err := ns.Do(func() (err error) {
		// Of this thread alone, which ends with the function.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0); errno != 0 {
			return syscall.Errno(errno)
		}
		c, err = net.DialTimeout("tcp", to, 15*time.Second)
		return err
	})
	return c, err
}

func TestAPodsTrafficIsRedirectedToItsProxy(t *testing.T) {
	node := netnstest.New(t)
	client := netnstest.Pod(t, node, "client", clientAddress)
	server := netnstest.Pod(t, node, "server", serverAddress)
	plain := netnstest.Pod(t, node, "plain", "10.9.0.3")
	netnstest.In(t, node, func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		return h.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(probeAddress), Mask: net.CIDRMask(32, 32)}})
	})
	launcher := NewLauncher()
	defer launcher.Close()
	for name, ns := range map[string]*netns.Namespace{"client": client, "server": server} {
		tell(t, ns, name+"'s outbound listener", OutboundPort)
		tell(t, ns, name+"'s inbound listener", InboundPort)
		tell(t, ns, name+"'s application", 8080)
		if err := launcher.Redirect(t.Context(), ns, Redirection(netip.MustParseAddr(probeAddress))); err != nil {
			t.Fatal(err)
		}
	}
	to := serverAddress + ":8080"
	for _, c := range []struct {
		what string
		dial func() (net.Conn, error)
		want string
	}{
		{"what the client dials", func() (net.Conn, error) { return netnstest.Dial(client, "", to) }, "client's outbound listener " + to},
		{"what its proxy dials", func() (net.Conn, error) { return asUser(client, UserID, to) }, "server's inbound listener " + to},
		{"what a pod without a proxy dials", func() (net.Conn, error) { return netnstest.Dial(plain, "", to) }, "server's inbound listener " + to},
		{"a probe", func() (net.Conn, error) { return netnstest.Dial(node, probeAddress+":0", to) }, "server's application"},
		{"the server to its own address", func() (net.Conn, error) { return netnstest.Dial(server, "", to) }, "server's application"},
		{"the server to its loopback address", func() (net.Conn, error) { return netnstest.Dial(server, "", "127.0.0.1:8080") }, "server's application"},
		{"its proxy to the application", func() (net.Conn, error) { return asUser(server, UserID, to) }, "server's application"},
	} {
		conn, err := c.dial()
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
		got, err := io.ReadAll(conn)
		conn.Close()
		if err != nil || !strings.HasPrefix(string(got), c.want) {
			t.Errorf("%s: arrived at %q (%v), want %q", c.what, got, err, c.want)
		}
	}
}

func TestARefusedRedirectionSaysWhy(t *testing.T) {
	launcher := NewLauncher()
	defer launcher.Close()
	err := launcher.Redirect(t.Context(), netnstest.New(t), "table ip x { chain y { nonsense } }")
	if err == nil || !strings.Contains(err.Error(), "nft") || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("error %v names neither nft nor what it refused", err)
	}
}

// The machine's own connections are never led anywhere, whatever a pod was taken for. The rules of this test would lead none.
func TestTheMachinesNetworkIsNotRedirected(t *testing.T) {
	own, err := netns.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	launcher := NewLauncher()
	defer launcher.Close()
	if err := launcher.Redirect(t.Context(), own, "# nothing"); err == nil || !strings.Contains(err.Error(), "the machine's") {
		t.Errorf("the machine's own network was taken: %v", err)
	}
}
