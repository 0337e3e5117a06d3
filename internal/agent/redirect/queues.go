package redirect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
)

// migrate is net.ipv4.tcp_migrate_req, of each network namespace by itself, for IPv6 too (Linux 5.14): what waits in the queue of
// a listener that closes goes to another one of the same port (SO_REUSEPORT) instead of being reset.
const migrate = "net/ipv4/tcp_migrate_req"

// KeepQueues has a pod's kernel hand over the connections that wait for a proxy that closes its listeners. Proxies hand the
// sockets themselves over where they can; a stock ztunnel, and a proxy that starts before the agent was given what the other
// listens on, opens listeners of its own beside them, and each new connection goes to either. It changes nothing for
// applications but those that share a port among listeners of their own: there it loses connections no more, either.
//
// A kernel without the setting is no error.
func KeepQueues(ns *netns.Namespace) error {
	return ns.Do(func() error {
		err := setSysctl(migrate, "1")
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("set %s: %w", strings.ReplaceAll(migrate, "/", "."), err)
		}
		return nil
	})
}

// setSysctl gives a setting of the calling thread's network namespace a value that it does not have.
func setSysctl(name, value string) error {
	have, err := os.ReadFile(path.Join("/proc/sys", name))
	if err != nil || strings.TrimSpace(string(have)) == value {
		return err
	}
	err = os.WriteFile(path.Join("/proc/sys", name), []byte(value), 0)
	if !errors.Is(err, unix.EROFS) {
		return err
	}
	// Containers that are not privileged have /proc/sys read-only.
	proc, err := ownProc()
	if err != nil {
		return err
	}
	fd, err := unix.Openat(proc, path.Join("sys", name), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open it for writing: %w", err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// ownProc is a /proc that is mounted nowhere: this process alone has it, and nothing in it is read-only. It needs CAP_SYS_ADMIN.
var ownProc = sync.OnceValues(func() (int, error) {
	fail := func(err error) (int, error) {
		return -1, fmt.Errorf("open a /proc of its own, because /proc/sys is read-only: %w", err)
	}
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return fail(err)
	}
	proc, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	return proc, nil
})
