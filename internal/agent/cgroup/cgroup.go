// Package cgroup sees the node's cgroups of version 2 as the node's init does, and finds those of pods. It does not know what they are
// for.
package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/osthread"
)

// Namespace is where the cgroup namespace of the node's init is, below the node's /proc.
func Namespace(proc string) string { return filepath.Join(proc, "1/ns/cgroup") }

// Mount is where the node's init has all cgroups of version 2, or empty. Call it AsInit.
func Mount(proc string) (string, error) {
	b, err := os.ReadFile(filepath.Join(proc, "1/mountinfo"))
	if err != nil {
		return "", fmt.Errorf("look for the node's cgroups: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if ok && strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 && fields[3] == "/" {
			return fields[4], nil
		}
	}
	return "", nil
}

// AsInit runs fn on a thread of its own in the cgroup namespace of the node's init: that is how cgroups are called there,
// and what levels are counted from.
func AsInit(proc string, fn func() error) error {
	return osthread.Run(func() error {
		f, err := os.Open(Namespace(proc))
		if err != nil {
			return fmt.Errorf("open the cgroup namespace of the node's init: %w; the agent needs hostPID and CAP_SYS_PTRACE", err)
		}
		defer f.Close()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWCGROUP); err != nil {
			return fmt.Errorf("enter the cgroup namespace of the node's init: %w; the agent needs CAP_SYS_ADMIN", err)
		}
		return fn()
	})
}
