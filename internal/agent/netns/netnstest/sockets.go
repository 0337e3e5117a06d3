package netnstest

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
)

// Sysctl sets a kernel setting of the namespace.
func Sysctl(t testing.TB, ns *netns.Namespace, name, value string) {
	t.Helper()
	err := ns.Do(func() error {
		return os.WriteFile("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), []byte(value), 0)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Option sets something on a socket before it is bound.
type Option func(fd int) error

// Marked gives a socket's packets a mark.
func Marked(mark int) Option {
	return func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, mark) }
}

// Transparent lets a socket use a foreign address as its own.
func Transparent(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1)
}

// Control applies options to the sockets of a dialer or a listener.
func Control(options ...Option) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var inner error
		err := c.Control(func(fd uintptr) {
			for _, o := range options {
				if inner = o(int(fd)); inner != nil {
					return
				}
			}
		})
		if err != nil {
			return err
		}
		return inner
	}
}

// Listen listens in the namespace until the test ends.
func Listen(t testing.TB, ns *netns.Namespace, address string, options ...Option) net.Listener {
	t.Helper()
	var l net.Listener
	err := ns.Do(func() (err error) {
		l, err = (&net.ListenConfig{Control: Control(options...)}).Listen(context.Background(), "tcp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// dialTimeout is far more than anything on one machine takes, and less than the kernel's two minutes.
const dialTimeout = 30 * time.Second

// Dial connects from inside the namespace; from may be empty.
func Dial(ns *netns.Namespace, from, to string, options ...Option) (net.Conn, error) {
	var c net.Conn
	err := ns.Do(func() (err error) {
		d := net.Dialer{Control: Control(options...), Timeout: dialTimeout}
		if from != "" {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))
		}
		c, err = d.Dial("tcp", to)
		return err
	})
	return c, err
}
