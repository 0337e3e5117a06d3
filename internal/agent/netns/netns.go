// Package netns holds open network namespaces and runs code inside them on threads of its own.
// It does not know what a namespace is for, and it never changes the namespace of a thread that anything else uses.
package netns

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/osthread"
)

// ID tells one network namespace from another for as long as both are held open.
type ID struct {
	Device, Inode uint64
}

// Namespace is an open network namespace. Holding it open keeps it alive, so that a pod can still be released after
// whatever mounted its namespace is gone.
type Namespace struct {
	file *os.File
	id   ID
}

// Open opens the network namespace that is mounted at path. It fails if path is anything else, such as the empty file
// that remains when a namespace has been unmounted.
func Open(path string) (*Namespace, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	return Adopt(file)
}

// Adopt makes a namespace of an open file, which is closed if it is anything else.
func Adopt(file *os.File) (*Namespace, error) {
	n, err := adopt(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open network namespace %s: %w", file.Name(), err), file.Close())
	}
	return n, nil
}

// Clone opens the namespace once more: each is closed on its own.
func (n *Namespace) Clone() (*Namespace, error) {
	var file *os.File
	err := n.WithFD(func(fd int) error {
		again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			file = os.NewFile(uintptr(again), n.file.Name())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s again: %w", n.file.Name(), err)
	}
	return &Namespace{file: file, id: n.id}, nil
}

// Owner identifies the user namespace that the namespace belongs to: whoever made one of its own has all rights in the
// network namespaces that he makes from there.
func (n *Namespace) Owner() (ID, error) {
	var id ID
	err := n.WithFD(func(fd int) error {
		owner, err := unix.IoctlRetInt(fd, unix.NS_GET_USERNS)
		if err != nil {
			return err
		}
		defer unix.Close(owner)
		id, err = identify(owner)
		return err
	})
	if err != nil {
		return ID{}, fmt.Errorf("ask who owns network namespace %s: %w", n.file.Name(), err)
	}
	return id, nil
}

// New makes a network namespace that nobody else knows; it ends when it is closed and its last socket is gone.
func New() (*Namespace, error) {
	var n *Namespace
	err := osthread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w; this needs root", err)
		}
		var err error
		n, err = Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		return err
	})
	return n, err
}

func adopt(file *os.File) (*Namespace, error) {
	kind, err := unix.IoctlRetInt(int(file.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		return nil, errors.New("it is no network namespace; the pod may be gone, or its namespace is not mounted here")
	}
	id, err := identify(int(file.Fd()))
	if err != nil {
		return nil, err
	}
	return &Namespace{file: file, id: id}, nil
}

func identify(fd int) (ID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return ID{}, fmt.Errorf("stat: %w", err)
	}
	return ID{Device: st.Dev, Inode: st.Ino}, nil
}

// ID identifies the namespace.
func (n *Namespace) ID() ID { return n.id }

// Name is where it was opened; the path may lead elsewhere now.
func (n *Namespace) Name() string { return n.file.Name() }

// Close lets go of the namespace.
func (n *Namespace) Close() error { return n.file.Close() }

// WithFD calls fn with a descriptor of the namespace that stays valid until fn returns, also if Close is called
// meanwhile. It fails once the namespace has been closed.
func (n *Namespace) WithFD(fn func(fd int) error) error {
	raw, err := n.file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return fmt.Errorf("use network namespace: %w", err)
	}
	return inner
}

// Do runs fn inside the namespace. Sockets that fn opens stay in the namespace wherever they are used afterwards;
// goroutines that fn starts do not run in it.
func (n *Namespace) Do(fn func() error) error {
	return osthread.Run(func() error {
		err := n.WithFD(func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) })
		if err != nil {
			return fmt.Errorf("enter network namespace: %w; this needs root", err)
		}
		return fn()
	})
}

// Identify names the namespace that is mounted at path, without opening it.
func Identify(path string) (ID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ID{}, fmt.Errorf("identify network namespace %s: %w", path, err)
	}
	return ID{Device: st.Dev, Inode: st.Ino}, nil
}
