package netns

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// SetSysctl gives a setting below net/ of the calling thread's network namespace a value (see [Namespace.Do]), and says what
// it was. It writes nothing if it has the value already. The error wraps [fs.ErrNotExist] where the kernel has no such setting.
func SetSysctl(name, value string) (before string, err error) {
	have, err := os.ReadFile(path.Join("/proc/sys", name))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", dotted(name), err)
	}
	if before = strings.TrimSpace(string(have)); before == value {
		return before, nil
	}
	err = os.WriteFile(path.Join("/proc/sys", name), []byte(value), 0)
	if errors.Is(err, unix.EROFS) {
		// Containers that are not privileged have /proc/sys read-only.
		err = writeUnmounted(name, value)
	}
	if err != nil {
		return before, fmt.Errorf("set %s: %w", dotted(name), err)
	}
	return before, nil
}

func dotted(name string) string { return strings.ReplaceAll(name, "/", ".") }

func writeUnmounted(name, value string) error {
	proc, err := unmounted.open()
	if err != nil {
		return fmt.Errorf("open a /proc of its own, because /proc/sys is read-only: %w", err)
	}
	fd, err := unix.Openat(proc, path.Join("sys", name), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open it for writing: %w", err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// unmounted is a /proc that is mounted nowhere: this process alone has it, and nothing in it is read-only.
var unmounted procfs

type procfs struct {
	mu   sync.Mutex
	fd   int
	have bool
}

// open opens it once; an attempt that failed is made again. It needs CAP_SYS_ADMIN.
func (p *procfs) open() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.have {
		return p.fd, nil
	}
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err == nil {
		p.fd, p.have = fd, true
	}
	return fd, err
}
