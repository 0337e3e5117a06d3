package local

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/engine/local/proc"
)

// hostView is how the host sees the processes of the mesh. Its fields never change, and it needs no lock.
type hostView struct {
	proc string // the host's /proc
	pid  int    // of the engine
}

// newHostView looks at the host's /proc. It must be made before the mesh's own is mounted there.
func newHostView() (*hostView, error) {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return nil, fmt.Errorf("find my pid on the host: %w", err)
	}
	pid, err := strconv.Atoi(self)
	if err != nil {
		return nil, fmt.Errorf("find my pid on the host: %w", err)
	}
	fd, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the host's /proc: %w", err)
	}
	return &hostView{proc: fmt.Sprintf("/proc/self/fd/%d", fd), pid: pid}, nil
}

// pids maps pids of the mesh's pid namespace to those that the host sees.
func (v *hostView) pids() map[int]int {
	out := map[int]int{}
	pids, err := proc.PIDs(v.proc)
	if err != nil {
		return out
	}
	// The mesh's processes are those that the host sees at the engine's depth or below, and descend from it.
	engine, err := proc.NSPIDs(v.proc, v.pid)
	if err != nil {
		return out
	}
	depth := len(engine) - 1
	mine := map[int]bool{v.pid: true}
	parents := map[int]int{}
	inMesh := map[int]int{}
	for _, host := range pids {
		ns, err := proc.NSPIDs(v.proc, host)
		if err != nil || len(ns) <= depth {
			continue
		}
		st, err := proc.ReadStat(v.proc, host)
		if err != nil {
			continue
		}
		parents[host], inMesh[host] = st.PPID, ns[depth]
	}
	var belongs func(host, hops int) bool
	belongs = func(host, hops int) bool {
		if mine[host] {
			return true
		}
		parent, ok := parents[host]
		if !ok || hops == 0 || !belongs(parent, hops-1) {
			return false
		}
		mine[host] = true
		return true
	}
	for host := range parents {
		if belongs(host, 1000) {
			out[inMesh[host]] = host
		}
	}
	return out
}
