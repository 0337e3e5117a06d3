// Package netns makes network namespaces, names them by bind mounts and runs code inside them.
// Callers configure the inside.
package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/osthread"
)

// threadNS is the network namespace of the calling thread.
const threadNS = "/proc/thread-self/ns/net"

// Create makes a new network namespace and binds it to path, which must not exist. The caller's mount namespace must be private.
func Create(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	err = osthread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare network namespace: %w", err)
		}
		if err := unix.Mount(threadNS, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind network namespace to %s: %w", path, err)
		}
		return nil
	})
	if err != nil {
		os.Remove(path)
	}
	return err
}

// Remove takes the name from a namespace. The kernel ends the namespace when its last process and socket are gone.
func Remove(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return os.Remove(path)
}

// Do runs f on a thread inside the namespace at path. Sockets that f makes and processes that f starts stay in it;
// goroutines that f starts do not.
func Do(path string, f func() error) error {
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return osthread.Run(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", path, err)
		}
		return f()
	})
}

// Dial connects from inside the namespace at path. address must hold an IP address, no name. local may be nil.
func Dial(ctx context.Context, path, network, address string, local net.Addr) (net.Conn, error) {
	var conn net.Conn
	err := Do(path, func() error {
		var err error
		d := net.Dialer{LocalAddr: local}
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// DialAs is Dial with a socket of the group gid, by which packet rules can know it.
func DialAs(ctx context.Context, gid int, path, network, address string, local net.Addr) (net.Conn, error) {
	var conn net.Conn
	err := Do(path, func() (err error) {
		own := uintptr(os.Getegid())
		if err := setGroup(uintptr(gid)); err != nil {
			return err
		}
		d := net.Dialer{LocalAddr: local}
		conn, err = d.DialContext(ctx, network, address)
		return errors.Join(err, setGroup(own))
	})
	if err != nil && conn != nil {
		conn.Close()
	}
	return conn, err
}

// setGroup sets the calling thread's group for what it makes; other threads keep theirs, unlike with the function of the
// standard library.
func setGroup(gid uintptr) error {
	// The kernel answers with the group before, whether or not it changed it, and with the present one to a bad number.
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, gid, 0, 0)
	if now, _, _ := unix.RawSyscall(unix.SYS_SETFSGID, ^uintptr(0), 0, 0); now != gid {
		return fmt.Errorf("take group %d for a socket: the kernel left it at %d; this needs root", gid, now)
	}
	return nil
}
