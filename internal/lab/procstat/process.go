package procstat

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of the times in /proc/<pid>/stat and /proc/stat: USER_HZ is 100 on every architecture that Linux has today.
const tick = 10 * time.Millisecond

// mostTicks is what a counter may say, 146 years: two such times can still be added up.
const mostTicks = math.MaxInt64 / int64(tick) / 2

// parseTicks reads a time that is counted in ticks.
func parseTicks(text string) (time.Duration, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > mostTicks {
		return 0, fmt.Errorf("%q is no time in ticks from 0 to %d", text, mostTicks)
	}
	return time.Duration(n) * tick, nil
}

// Reader reads the kernel's books.
type Reader struct {
	// Proc is where procfs is mounted, Sys where sysfs is; Boot has the kernel's configuration. The latter two may be empty.
	Proc, Sys, Boot string
	// Clock is the CPU time of all threads of a process, ended ones included.
	Clock func(pid int) (time.Duration, error)
	Now   func() time.Time
}

// Host reads those of this machine.
func Host() Reader {
	return Reader{Proc: "/proc", Sys: "/sys", Boot: "/boot", Clock: processClock, Now: time.Now}
}

// processClock asks for the CPU clock of another process. The kernel numbers such clocks by the process (posix-timers.h,
// as clock_getcpuclockid(3) does); 2 is the scheduler's own count, which reading all threads' schedstat would miss the
// ended threads of.
func processClock(pid int) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|2, &t); err != nil {
		return 0, fmt.Errorf("read the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// ErrGone is returned for a process that has ended.
var ErrGone = errors.New("the process has ended")

// stat is what is used of /proc/<pid>/stat.
type stat struct {
	parent              int
	user, system        time.Duration
	childUser, childSys time.Duration // of children that have ended and were waited for
	threads             int
	state               byte
}

func parseStat(text []byte) (stat, error) {
	// The command is in parentheses and may hold anything, parentheses included: the last one ends it.
	_, rest, ok := cutLast(string(text), ')')
	f := strings.Fields(rest)
	if !ok || len(f) < 18 || len(f[0]) != 1 {
		return stat{}, fmt.Errorf("read process counters: %q is not what /proc/<pid>/stat looks like", strings.TrimSpace(string(text)))
	}
	var err error
	// Fields are numbered as in proc(5), where the state is 3.
	number := func(field int) int {
		n, e := strconv.ParseInt(f[field-3], 10, 32)
		if e != nil || n < 0 {
			err = errors.Join(err, fmt.Errorf("read process counters: field %d is %q", field, f[field-3]))
		}
		return int(max(0, n))
	}
	ticks := func(field int) time.Duration {
		d, e := parseTicks(f[field-3])
		if e != nil {
			err = errors.Join(err, fmt.Errorf("read process counters: field %d: %w", field, e))
		}
		return d
	}
	s := stat{
		state: f[0][0], parent: number(4), threads: number(20),
		user: ticks(14), system: ticks(15), childUser: ticks(16), childSys: ticks(17),
	}
	return s, err
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// family is every process of the machine with its counters.
type family map[int]stat

func (r Reader) family() (family, error) {
	entries, err := os.ReadDir(r.Proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := family{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(r.Proc, e.Name(), "stat"))
		if err != nil {
			continue // it has just ended
		}
		s, err := parseStat(text)
		if err != nil {
			return nil, err
		}
		if s.state != 'Z' && s.state != 'X' {
			all[pid] = s
		}
	}
	return all, nil
}

// members gives every process to the nearest of its ancestors that is among the roots, itself included.
func (f family) members(roots []int) map[int][]int {
	listed := map[int]bool{}
	for _, root := range roots {
		listed[root] = true
	}
	members := map[int][]int{}
	for pid := range f {
		for at, hops := pid, 0; hops < 1000; hops++ {
			if listed[at] {
				members[at] = append(members[at], pid)
				break
			}
			parent, ok := f[at]
			if !ok {
				break
			}
			at = parent.parent
		}
	}
	return members
}

// Read returns what each of the processes has used so far, its descendants included, except those below another one of the
// list, which are that one's. A process that has ended is missing from the answer.
func (r Reader) Read(pids []int) (map[int]Usage, error) {
	all, err := r.family()
	if err != nil {
		return nil, err
	}
	used := map[int]Usage{}
	for root, members := range all.members(pids) {
		var sum Usage
		for _, pid := range members {
			u, err := r.one(pid, all[pid])
			if errors.Is(err, ErrGone) && pid != root {
				continue // what it used comes back as its parent's
			} else if errors.Is(err, ErrGone) {
				sum.Processes = -1
				break
			} else if err != nil {
				return nil, err
			}
			sum = sum.Add(u)
		}
		if sum.Processes > 0 {
			used[root] = sum
		}
	}
	return used, nil
}

// one reads a single process; its waited-for children count as its own.
func (r Reader) one(pid int, s stat) (Usage, error) {
	cpu, err := r.Clock(pid)
	if err != nil {
		if _, gone := os.Stat(filepath.Join(r.Proc, strconv.Itoa(pid))); errors.Is(gone, fs.ErrNotExist) {
			return Usage{}, ErrGone
		}
		return Usage{}, err
	}
	u := Usage{
		CPU: cpu + s.childUser + s.childSys, User: s.user + s.childUser, System: s.system + s.childSys,
		Processes: 1, Threads: s.threads,
	}
	tasks := filepath.Join(r.Proc, strconv.Itoa(pid), "task")
	entries, err := os.ReadDir(tasks)
	if err != nil {
		return Usage{}, ErrGone
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(tasks, e.Name(), "status"))
		if err != nil {
			continue // a thread that has just ended
		}
		v, i, err := parseSwitches(string(text))
		if err != nil {
			return Usage{}, err
		}
		u.Voluntary += v
		u.Involuntary += i
	}
	return u, nil
}

func parseSwitches(text string) (voluntary, involuntary uint64, err error) {
	found := 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		var to *uint64
		switch name {
		case "voluntary_ctxt_switches":
			to = &voluntary
		case "nonvoluntary_ctxt_switches":
			to = &involuntary
		default:
			continue
		}
		if *to, err = strconv.ParseUint(strings.TrimSpace(value), 10, 64); err != nil {
			return 0, 0, fmt.Errorf("read context switches: %w", err)
		}
		found++
	}
	if found != 2 {
		return 0, 0, errors.New("read context switches: the kernel does not count them")
	}
	return voluntary, involuntary, nil
}

// PSS is the memory of the processes and their descendants, in bytes, as Read counts them: pages that several processes
// share are divided among them.
func (r Reader) PSS(pids []int) (map[int]uint64, error) {
	all, err := r.family()
	if err != nil {
		return nil, err
	}
	size := map[int]uint64{}
	for root, members := range all.members(pids) {
		for _, pid := range members {
			text, err := os.ReadFile(filepath.Join(r.Proc, strconv.Itoa(pid), "smaps_rollup"))
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue
			} else if err != nil {
				return nil, fmt.Errorf("read the memory of process %d: %w", pid, err)
			}
			n, err := parsePSS(string(text))
			if err != nil {
				return nil, err
			}
			size[root] += n
		}
	}
	return size, nil
}

func parsePSS(text string) (uint64, error) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" && f[2] == "kB" {
			n, err := strconv.ParseUint(f[1], 10, 48)
			if err != nil {
				return 0, fmt.Errorf("read the memory of a process: %w", err)
			}
			return n << 10, nil
		}
	}
	return 0, errors.New("read the memory of a process: smaps_rollup has no line Pss")
}

// Below lists every process that descends from one of the roots, the roots included.
func (r Reader) Below(roots []int) ([]int, error) {
	all, err := r.family()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, members := range all.members(roots) {
		pids = append(pids, members...)
	}
	return pids, nil
}

// Heirs finds for each of the processes who takes over what it has used when it has ended: the nearest of the list among those
// that descend to its parent, the parent included. One without such an ancestor is missing from the answer.
func (r Reader) Heirs(pids []int) (map[int]int, error) {
	all, err := r.family()
	if err != nil {
		return nil, err
	}
	owner := map[int]int{}
	for root, members := range all.members(pids) {
		for _, pid := range members {
			owner[pid] = root
		}
	}
	heirs := map[int]int{}
	for _, pid := range pids {
		if s, there := all[pid]; there {
			if heir, ok := owner[s.parent]; ok {
				heirs[pid] = heir
			}
		}
	}
	return heirs, nil
}

// Reaped says that a process has ended and was waited for, so that what it used is its parent's now.
func (r Reader) Reaped(pid int) bool {
	_, err := os.Stat(filepath.Join(r.Proc, strconv.Itoa(pid)))
	return errors.Is(err, fs.ErrNotExist)
}

// Parent is the process that started another one, or took it over.
func (r Reader) Parent(pid int) (int, error) {
	text, err := os.ReadFile(filepath.Join(r.Proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("find the parent of process %d: %w", pid, err)
	}
	s, err := parseStat(text)
	return s.parent, err
}

// Command is the command line of a process.
func (r Reader) Command(pid int) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(r.Proc, strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return nil, fmt.Errorf("read the command line of process %d: %w", pid, err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"), nil
}

// Network names the network namespace of a process; two processes in one have the same name.
func (r Reader) Network(pid int) (string, error) {
	link, err := os.Readlink(filepath.Join(r.Proc, strconv.Itoa(pid), "ns", "net"))
	if err != nil {
		return "", fmt.Errorf("find the network namespace of process %d: %w", pid, err)
	}
	return link, nil
}

// Traced says whether a tracer is attached to a process.
func (r Reader) Traced(pid int) (bool, error) {
	text, err := os.ReadFile(filepath.Join(r.Proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return false, fmt.Errorf("read the state of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "TracerPid:"); ok {
			return strings.TrimSpace(value) != "0", nil
		}
	}
	return false, nil
}
