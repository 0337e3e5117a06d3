package diag

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns/netnstest"
	"lateen.dev/lateen/internal/agent/redirect"
)

func TestAListingHasABound(t *testing.T) {
	var l Listing
	own := map[netip.Addr]bool{netip.MustParseAddr("10.0.0.1"): true}
	const proxy = redirect.ProxyMark
	for i := range 10 {
		from := fmt.Sprintf("10.0.0.1:%d", 40000+i)
		l.add(socket(from, "10.0.0.2:80", Established, 0), own, 8)
		l.add(socket("127.0.0.1:15001", from, Established, proxy), own, 8)
		l.add(socket("10.0.0.1:15008", fmt.Sprintf("10.0.0.3:%d", 40000+i), Established, proxy), own, 8)
	}
	l.Own = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	if len(l.Sockets) != 8 || l.Omitted != 22 {
		t.Errorf("%d sockets and %d omitted", len(l.Sockets), l.Omitted)
	}
	// What is waited for is counted whether it is listed or not.
	if got := l.Carried(); got != 10 {
		t.Errorf("the proxy carries %d connections, want 10", got)
	}
	if got := l.Unheard(); got != 20 {
		t.Errorf("%d connections have not been heard of to end, want 20", got)
	}
	// The other ends of some are not known.
	if got := l.Unmeshed(); got != nil {
		t.Errorf("unmeshed: %v", got)
	}
}

// More sockets than fit into one answer of the kernel's.
func TestListsManySockets(t *testing.T) {
	ns := netnstest.New(t)
	l := netnstest.Listen(t, ns, "127.0.0.1:8080")
	const n = 1000
	for range n {
		pairOf(t, ns, l, "127.0.0.1:8080")
	}
	established := 0
	for _, s := range list(t, ns).Sockets {
		if s.State == Established {
			established++
		}
	}
	if established != 2*n {
		t.Errorf("%d sockets, want %d", established, 2*n)
	}
}

func TestListsAddressesUpToABound(t *testing.T) {
	node := netnstest.New(t)
	ns := netnstest.Pod(t, node, "pod", "fd00::1")
	has := func(l Listing, text string) bool {
		return l.own()[netip.MustParseAddr(text)]
	}
	if l := list(t, ns); !has(l, "fd00::1") || !has(l, "127.0.0.1") || !has(l, "::1") {
		t.Errorf("the pod's addresses are %v", l.Own)
	}
	netnstest.In(t, ns, func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		for i := range maxAddresses + 10 {
			ip := net.IPv4(10, 1, byte(i>>8), byte(i))
			if err := h.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(32, 32)}}); err != nil {
				return err
			}
		}
		return nil
	})
	if l := list(t, ns); len(l.Own) != maxAddresses {
		t.Errorf("%d addresses are listed, want %d", len(l.Own), maxAddresses)
	}
}

func TestARefusedListIsAnError(t *testing.T) {
	refused := func(kind uint16, number int32) []byte {
		b := make([]byte, unix.SizeofNlMsghdr+4)
		binary.NativeEndian.PutUint32(b, uint32(len(b)))
		binary.NativeEndian.PutUint16(b[4:], kind)
		binary.NativeEndian.PutUint32(b[unix.SizeofNlMsghdr:], uint32(-number))
		return b
	}
	each := func(syscall.NetlinkMessage) (bool, error) { return true, nil }
	for _, kind := range []uint16{unix.NLMSG_ERROR, unix.NLMSG_DONE} {
		if more, err := answers(refused(kind, int32(unix.EPERM)), each); err != unix.EPERM || more {
			t.Errorf("kind %d: %v, %v", kind, more, err)
		}
		if more, err := answers(refused(kind, 0), each); err != nil || more {
			t.Errorf("kind %d without an error: %v, %v", kind, more, err)
		}
	}
	if err := os.NewSyscallError("x", refusal([]byte{1})); err != nil {
		t.Error(err)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 16))
	f.Add([]byte{20, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		_, _ = answers(b, func(m syscall.NetlinkMessage) (bool, error) {
			n++
			_, err := parse(m.Data)
			return err == nil, nil
		})
		if n > len(b)/unix.SizeofNlMsghdr {
			t.Errorf("%d messages in %d bytes", n, len(b))
		}
	})
}
