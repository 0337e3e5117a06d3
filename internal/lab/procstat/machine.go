package procstat

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
	if m.Processors, m.Steal, m.Idle, m.Interrupts, err = parseMachine(string(text)); err != nil {
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

// parseMachine reads what /proc/stat (proc_stat(5)) says of all processors together, and how many they are. The time that they
// waited for a disk is idle time too. Interrupts are those that the kernel measures apart from the processes (IRQ_TIME_ACCOUNTING):
// then their hardware part has a time, which ticks never see, for they are interrupts themselves. Where it has none, what ticks saw of
// the software part is in the processes' clocks as well.
func parseMachine(text string) (processors int, steal, idle, interrupts time.Duration, err error) {
	line, rest, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, 0, 0, 0, errors.New("read the machine's CPU time: the first line of /proc/stat is not as expected")
	}
	var hard, soft time.Duration
	for i, to := range map[int]*time.Duration{4: &idle, 5: &idle, 6: &hard, 7: &soft, 8: &steal} {
		n, err := parseTicks(f[i])
		if err != nil {
			return 0, 0, 0, 0, fmt.Errorf("read the machine's CPU time: %w", err)
		}
		*to += n
	}
	if hard > 0 {
		interrupts = hard + soft
	}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "cpu") {
			break
		}
		processors++
	}
	if processors == 0 {
		return 0, 0, 0, 0, errors.New("read the machine's CPU time: /proc/stat names no processor")
	}
	return processors, steal, idle, interrupts, nil
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

// ErrProcessors is returned where a processor went to work, or away, between two readings.
var ErrProcessors = errors.New("the machine's processors were not the same")

// SharesOf subtracts. What ran is the time that passed without the idle time, which a kernel that stops its ticks measures
// exactly; the busy times beside it are counted in ticks, and a load whose period is a multiple of theirs, or a fraction, is
// seen at each of them or at none: at 500 requests a second a kernel of 250 ticks has charged five times what was used.
func SharesOf(before, after Machine, own time.Duration) (Shares, error) {
	passed := after.At.Sub(before.At)
	all := passed * time.Duration(before.Processors)
	if all <= 0 {
		return Shares{}, errors.New("compare the machine's CPU time: no time has passed between two readings")
	}
	if before.Processors != after.Processors {
		return Shares{}, fmt.Errorf("%w: %d before and %d after", ErrProcessors, before.Processors, after.Processors)
	}
	steal, idle := after.Steal-before.Steal, after.Idle-before.Idle
	interrupts := time.Duration(0)
	if before.Interrupts > 0 { // otherwise the first of them would bring all since the machine started
		interrupts = after.Interrupts - before.Interrupts
	}
	return Shares{
		Other:   max(0, float64(all-idle-steal-interrupts-own)/float64(all)),
		Steal:   max(0, float64(steal)/float64(all)),
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

// DelayedACKs is how often TCP has held an acknowledgement back until its timer ran out, in the network namespace of a process;
// ErrGone means that the process has ended.
func (r Reader) DelayedACKs(pid int) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(r.Proc, strconv.Itoa(pid), "net", "netstat"))
	if err != nil {
		// One that has ended, waited for or not, has no network any more.
		if _, gone := r.Network(pid); gone != nil {
			return 0, ErrGone
		}
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
