package account

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Machine reads what the whole machine has done so far.
func (r Reader) Machine() (Machine, error) {
	m := Machine{At: r.Now()}
	text, err := os.ReadFile(filepath.Join(r.Proc, "stat"))
	if err != nil {
		return m, fmt.Errorf("read the machine's CPU time: %w", err)
	}
	if m.Busy, m.Steal, m.Idle, err = parseMachine(string(text)); err != nil {
		return m, err
	}
	// Kernels without PSI, or with psi=0, have no such file: one gate less.
	if text, err = os.ReadFile(filepath.Join(r.Proc, "pressure", "cpu")); err == nil {
		if m.Stalled, err = parsePressure(string(text)); err != nil {
			return m, err
		}
		m.Pressure = true
	}
	return m, nil
}

// parseMachine adds up the first line of /proc/stat (proc_stat(5)); guest time is part of user time already.
func parseMachine(text string) (busy, steal, idle time.Duration, err error) {
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, 0, 0, errors.New("read the machine's CPU time: the first line of /proc/stat is not as expected")
	}
	for i, to := range []*time.Duration{1: &busy, 2: &busy, 3: &busy, 4: &idle, 5: &idle, 6: &busy, 7: &busy, 8: &steal} {
		if to == nil {
			continue
		}
		n, err := strconv.ParseUint(f[i], 10, 48)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("read the machine's CPU time: %w", err)
		}
		*to += time.Duration(n) * tick
	}
	return busy, steal, idle, nil
}

// parsePressure finds the total of the line "some", in microseconds.
func parsePressure(text string) (time.Duration, error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "some" {
			continue
		}
		for _, field := range f[1:] {
			if value, ok := strings.CutPrefix(field, "total="); ok {
				n, err := strconv.ParseUint(value, 10, 53)
				if err != nil {
					return 0, fmt.Errorf("read the machine's pressure: %w", err)
				}
				return time.Duration(n) * time.Microsecond, nil
			}
		}
	}
	return 0, errors.New("read the machine's pressure: /proc/pressure/cpu has no total")
}

// Shares says what happened to a machine between two readings, as shares from 0 to 1 of the time of all its processors; own is
// what the experiment itself has used meanwhile.
type Shares struct {
	Other, Steal float64
	// Stalled is the share of time in which some task waited for a processor, whosoever it was.
	Stalled      float64
	KnowsStalled bool
}

// SharesOf subtracts. A kernel counts the machine's time in ticks, so that Other may come out just below what is true.
func SharesOf(before, after Machine, own time.Duration) (Shares, error) {
	all := after.Busy + after.Steal + after.Idle - before.Busy - before.Steal - before.Idle
	passed := after.At.Sub(before.At)
	if all <= 0 || passed <= 0 {
		return Shares{}, errors.New("compare the machine's CPU time: no time has passed between two readings")
	}
	return Shares{
		Other:   max(0, float64(after.Busy-before.Busy-own)/float64(all)),
		Steal:   max(0, float64(after.Steal-before.Steal)/float64(all)),
		Stalled: max(0, float64(after.Stalled-before.Stalled)/float64(passed)), KnowsStalled: before.Pressure && after.Pressure,
	}, nil
}

// Facts are what a report says of a machine.
type Facts struct {
	Kernel, CPU, CongestionControl string
	MemoryMiB                      int
}

// Facts reads them. What cannot be read stays empty: a report is not lost for it.
func (r Reader) Facts() Facts {
	read := func(path ...string) string {
		text, _ := os.ReadFile(filepath.Join(append([]string{r.Proc}, path...)...))
		return string(bytes.TrimSpace(text))
	}
	f := Facts{Kernel: read("sys", "kernel", "osrelease"), CongestionControl: read("sys", "net", "ipv4", "tcp_congestion_control")}
	for line := range strings.Lines(read("cpuinfo")) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) == "model name" {
			f.CPU = strings.TrimSpace(value)
			break
		}
	}
	for line := range strings.Lines(read("meminfo")) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" {
			kib, _ := strconv.Atoi(fields[1])
			f.MemoryMiB = kib >> 10
		}
	}
	return f
}

// DelayedACKs is how often TCP has held an acknowledgement back until its timer ran out, in the network namespace of a process.
func (r Reader) DelayedACKs(pid int) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(r.Proc, strconv.Itoa(pid), "net", "netstat"))
	if err != nil {
		return 0, fmt.Errorf("read TCP's counters: %w", err)
	}
	return parseNetstat(string(text), "DelayedACKs")
}

// parseNetstat finds a counter of TcpExt: one line has the names, the next one the values.
func parseNetstat(text, name string) (uint64, error) {
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "TcpExt:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, n := range names {
			if n == name && i < len(f) {
				v, err := strconv.ParseUint(f[i], 10, 64)
				if err != nil {
					return 0, fmt.Errorf("read TCP's counters: %w", err)
				}
				return v, nil
			}
		}
	}
	return 0, fmt.Errorf("read TCP's counters: the kernel has none called %s", name)
}
