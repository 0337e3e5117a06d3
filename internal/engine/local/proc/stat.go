package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Stat is the part of /proc/<pid>/stat that is needed here.
type Stat struct {
	State     byte // 'Z' for one that has ended and was not reaped
	PPID      int
	UserTicks uint64 // 10 ms each, dead threads included
	SysTicks  uint64
	Threads   int
	StartTime uint64 // clock ticks since boot
	RSSPages  uint64
}

// ReadStat reads a process's counters. procfs is where /proc is mounted.
func ReadStat(procfs string, pid int) (Stat, error) {
	b, err := os.ReadFile(filepath.Join(procfs, strconv.Itoa(pid), "stat"))
	if err != nil {
		return Stat{}, err
	}
	return parseStat(b)
}

func parseStat(b []byte) (Stat, error) {
	// The command is in parentheses and may hold anything, parentheses included: the last one ends it.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return Stat{}, fmt.Errorf("read process counters: no command in %q", b)
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 22 {
		return Stat{}, fmt.Errorf("read process counters: %d fields after the command, want at least 22", len(f))
	}
	if len(f[0]) != 1 || f[0][0] < 'A' || f[0][0] > 'z' {
		return Stat{}, fmt.Errorf("read process counters: %q is no state, which is one letter", f[0])
	}
	var s Stat
	var err error
	num := func(field int) uint64 { // numbered as in proc(5), where the state after the command is 3
		n, e := strconv.ParseUint(f[field-3], 10, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("read process counters: field %d: %w", field, e)
		}
		return n
	}
	s.State = f[0][0]
	s.PPID = int(num(4))
	s.UserTicks = num(14)
	s.SysTicks = num(15)
	s.Threads = int(num(20))
	s.StartTime = num(22)
	s.RSSPages = num(24)
	return s, err
}

// CPUNanos is the CPU time that all threads of a process have used, dead ones included, from the scheduler's own accounts.
func CPUNanos(pid int) (uint64, error) {
	// The kernel's encoding of "CPU clock of process pid, scheduler's count": see clock_getcpuclockid(3).
	const sched = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &ts); err != nil {
		return 0, err
	}
	return uint64(ts.Nano()), nil
}

// NSPIDs is the pids of a process in each pid namespace from that of procfs down to its own.
func NSPIDs(procfs string, pid int) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(procfs, strconv.Itoa(pid), "status"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, "NSpid:")
		if !ok {
			continue
		}
		var pids []int
		for _, f := range strings.Fields(rest) {
			n, err := strconv.Atoi(f)
			if err != nil {
				return nil, err
			}
			pids = append(pids, n)
		}
		return pids, nil
	}
	return nil, fmt.Errorf("no NSpid line for process %d", pid)
}

// PIDs lists all processes that procfs shows.
func PIDs(procfs string) ([]int, error) {
	d, err := os.Open(procfs)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
