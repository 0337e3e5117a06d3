package procstat

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// procfs lays the files of a few processes, and returns a reader of them whose clock counts a second for each pid.
func procfs(t *testing.T, files map[string]string) Reader {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Reader{Proc: root, Now: func() time.Time { return time.Unix(100, 0) }, Clock: func(pid int) (time.Duration, error) {
		if _, err := os.Stat(filepath.Join(root, fmt.Sprint(pid), "stat")); err != nil {
			return 0, errors.New("no such process")
		}
		return time.Duration(pid) * time.Second, nil
	}}
}

// statLine has user 11, system 12, children 13 and 14 ticks, and 3 threads.
func statLine(pid, parent int, command, state string) string {
	return fmt.Sprintf("%d (%s) %s %d 2 3 4 5 6 7 8 9 10 11 12 13 14 20 0 3 0 18 19 20 21\n", pid, command, state, parent)
}

const statusText = "Name:\tx\nPid:\t1\nvoluntary_ctxt_switches:\t100\nnonvoluntary_ctxt_switches:\t7\n"

func process(files map[string]string, pid, parent int, command string) {
	files[fmt.Sprintf("%d/stat", pid)] = statLine(pid, parent, command, "S")
	files[fmt.Sprintf("%d/task/%d/status", pid, pid)] = statusText
	files[fmt.Sprintf("%d/smaps_rollup", pid)] = "55d0-7ffe ---p 00000000 00:00 0   [rollup]\nRss:    9000 kB\nPss:    3000 kB\nPss_Anon: 1 kB\n"
}

func TestEveryProcessIsItsNearestListedAncestors(t *testing.T) {
	files := map[string]string{}
	process(files, 1, 0, "init")
	process(files, 10, 1, "engine")
	process(files, 20, 10, "proxy")
	process(files, 30, 10, "a) S (b")
	process(files, 31, 30, "worker")
	process(files, 40, 1, "stranger")
	files["50/stat"] = statLine(50, 30, "ended", "Z")
	r := procfs(t, files)
	used, err := r.Read([]int{10, 20, 30, 999})
	if err != nil {
		t.Fatal(err)
	}
	second, ticks := time.Second, 10*time.Millisecond
	for pid, want := range map[int]Usage{
		10: {CPU: 10*second + 27*ticks, User: 24 * ticks, System: 26 * ticks, Voluntary: 100, Involuntary: 7, Processes: 1, Threads: 3},
		20: {CPU: 20*second + 27*ticks, User: 24 * ticks, System: 26 * ticks, Voluntary: 100, Involuntary: 7, Processes: 1, Threads: 3},
		30: {CPU: 61*second + 54*ticks, User: 48 * ticks, System: 52 * ticks, Voluntary: 200, Involuntary: 14, Processes: 2, Threads: 6},
	} {
		if used[pid] != want {
			t.Errorf("process %d: got %+v, want %+v", pid, used[pid], want)
		}
	}
	if len(used) != 3 {
		t.Errorf("got %d processes, want 3: one that is not there has used nothing", len(used))
	}
	size, err := r.PSS([]int{20, 30})
	if err != nil || size[20] != 3000<<10 || size[30] != 6000<<10 {
		t.Errorf("memory: got %v, %v", size, err)
	}
	below, err := r.Below([]int{30})
	slices.Sort(below)
	if err != nil || !slices.Equal(below, []int{30, 31}) {
		t.Errorf("below 30: got %v, %v", below, err)
	}
	if parent, err := r.Parent(31); err != nil || parent != 30 {
		t.Errorf("parent: got %d, %v", parent, err)
	}
}

// What an ended process has used is its parent's, and so that of whoever the parent counts as.
func TestHeirs(t *testing.T) {
	files := map[string]string{}
	process(files, 1, 0, "init")
	process(files, 10, 1, "engine")
	process(files, 20, 10, "proxy")
	process(files, 30, 10, "shell")
	process(files, 31, 30, "worker")
	files["31/stat"] = statLine(31, 30, "worker", "Z")
	process(files, 32, 30, "worker")
	r := procfs(t, files)
	got, err := r.Heirs([]int{10, 20, 32, 999})
	if err != nil || !maps.Equal(got, map[int]int{20: 10, 32: 10}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err = r.Heirs([]int{10, 30, 32}); err != nil || !maps.Equal(got, map[int]int{30: 10, 32: 30}) {
		t.Errorf("got %v, %v", got, err)
	}
	if r.Reaped(20) || r.Reaped(31) || !r.Reaped(999) {
		t.Errorf("waited for: one that runs %v, one that nobody has waited for %v, one that is gone %v", r.Reaped(20), r.Reaped(31), r.Reaped(999))
	}
}

func TestUsageSubtracts(t *testing.T) {
	a := Usage{CPU: 5, User: 3, System: 2, Voluntary: 10, Involuntary: 1, Processes: 1, Threads: 4}
	b := Usage{CPU: 9, User: 3, System: 6, Voluntary: 30, Involuntary: 0, Processes: 2, Threads: 5}
	if got, want := b.Sub(a), (Usage{CPU: 4, System: 4, Voluntary: 20, Processes: 2, Threads: 5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestMachine(t *testing.T) {
	files := map[string]string{
		"stat":         "cpu  100 10 50 1000 40 0 15 20 30 0\ncpu0 1 2 3 4\ncpu1 1 2 3 4\nintr 1\n",
		"pressure/cpu": "some avg10=1.00 avg60=0.50 avg300=0.10 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
	}
	m, err := procfs(t, files).Machine()
	want := Machine{At: time.Unix(100, 0), Processors: 2, Steal: 200 * time.Millisecond, Idle: 10400 * time.Millisecond, Stalled: 2500 * time.Millisecond, Pressure: true}
	if err != nil || m != want {
		t.Errorf("got %+v, %v; want %+v", m, err, want)
	}
	delete(files, "pressure/cpu")
	if m, err = procfs(t, files).Machine(); err != nil || m.Pressure {
		t.Errorf("without PSI: got %+v, %v", m, err)
	}
	// Two processors for ten seconds: 8 s busy, of which the experiment used 5, and 0.4 s stolen.
	later := want
	later.At = want.At.Add(10 * time.Second)
	later.Steal += 400 * time.Millisecond
	later.Idle += 11600 * time.Millisecond
	later.Stalled += time.Second
	s, err := SharesOf(want, later, 5*time.Second)
	if err != nil || s != (Shares{Other: 0.15, Steal: 0.02, Stalled: 0.1, KnowsStalled: true}) {
		t.Errorf("got %+v, %v", s, err)
	}
	if _, err := SharesOf(want, want, 0); err == nil {
		t.Error("shares of no time at all")
	}
}

// A kernel that measures interrupts apart leaves them out of the processes' clocks: they are nobody's work, and not others'.
func TestInterruptsThatAreMeasuredApartAreNotOthers(t *testing.T) {
	look := func(at int, idle, hard, soft int) Machine {
		m, err := procfs(t, map[string]string{"stat": fmt.Sprintf("cpu  0 0 0 %d 0 %d %d 0 0 0\ncpu0 0 0 0 0\n", idle, hard, soft)}).Machine()
		if err != nil {
			t.Fatal(err)
		}
		m.At = time.Unix(int64(at), 0)
		return m
	}
	// Of ten seconds nine were idle; half of the tenth was interrupts.
	for hard, want := range map[int]float64{0: 0.1, 10: 0.05} {
		s, err := SharesOf(look(0, 0, hard, 100), look(10, 900, 2*hard, 150-hard), 0)
		if err != nil || math.Abs(s.Other-want) > 1e-9 {
			t.Errorf("%d ticks of hardware interrupts: got %+v, %v; want %v", hard, s, err, want)
		}
	}
	two := look(10, 900, 0, 0)
	two.Processors = 2
	if _, err := SharesOf(look(0, 0, 0, 0), two, 0); !errors.Is(err, ErrProcessors) {
		t.Errorf("a processor more: got %v", err)
	}
}

func TestDelayedACKs(t *testing.T) {
	text := "TcpExt: SyncookiesSent DelayedACKs DelayedACKLost\nTcpExt: 1 42 3\nIpExt: DelayedACKs\nIpExt: 7\n"
	if n, err := procfs(t, map[string]string{"5/net/netstat": text}).DelayedACKs(5); err != nil || n != 42 {
		t.Errorf("got %d, %v", n, err)
	}
	for _, text := range []string{"", "TcpExt: A B\nTcpExt: 1 2\n", "TcpExt: DelayedACKs\nTcpExt:\n", "TcpExt: DelayedACKs\nTcpExt: x\n"} {
		if n, err := parseNetstat(text, "DelayedACKs"); err == nil {
			t.Errorf("%q: got %d", text, n)
		}
	}
	if _, err := Host().DelayedACKs(os.Getpid()); err != nil {
		t.Error(err)
	}
	// It ends after somebody saw that it runs: that is not an error of the reading.
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := Host().DelayedACKs(child.Process.Pid); err != nil {
		t.Error(err)
	}
	_ = child.Process.Kill()
	for _, state := range []string{"not waited for", "waited for"} {
		for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err := Host().DelayedACKs(child.Process.Pid); errors.Is(err, ErrGone) {
				break
			} else if err != nil || time.Now().After(deadline) {
				t.Fatalf("%s: got %v, want %v", state, err, ErrGone)
			}
		}
		_ = child.Wait()
	}
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	for _, text := range []string{"", "7 (cat S 1", "7 (cat) S 1 2", "7 (cat) S x 2 3 4 5 6 7 8 9 10 11 12 13 14 20 0 3 0 18"} {
		if s, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: got %+v", text, s)
		}
	}
	for _, text := range []string{"", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9", "cpu a 2 3 4 5 6 7 8"} {
		if _, _, _, _, err := parseMachine(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	for _, text := range []string{"", "some avg10=1\n", "full total=1\n", "some total=x\n"} {
		if _, err := parsePressure(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	if _, err := parsePSS("Rss: 1 kB\n"); err == nil {
		t.Error("memory without Pss was read")
	}
	if _, _, err := parseSwitches("voluntary_ctxt_switches: 1\n"); err == nil {
		t.Error("half of the switches were read")
	}
}

// The real kernel: a child that burns CPU time and ends is counted, and one that lives as well.
func TestThisMachine(t *testing.T) {
	r := Host()
	pid := os.Getpid()
	before, err := r.Read([]int{pid})
	if err != nil {
		t.Fatal(err)
	}
	burn := "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
	if out, err := exec.Command("sh", "-c", burn).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	after, err := r.Read([]int{pid})
	if err != nil {
		t.Fatal(err)
	}
	if d := after[pid].Sub(before[pid]); d.CPU < 20*time.Millisecond || d.User == 0 {
		t.Errorf("a child that ended: got %+v", d)
	}
	child := exec.Command("sh", "-c", "while :; do :; done")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		used, err := r.Read([]int{child.Process.Pid})
		if err != nil {
			t.Fatal(err)
		}
		if used[child.Process.Pid].CPU > 50*time.Millisecond {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a child that lives: got %+v", used)
		}
	}
	if size, err := r.PSS([]int{pid}); err != nil || size[pid] < 1<<20 {
		t.Errorf("memory: got %v, %v", size, err)
	}
	if m, err := r.Machine(); err != nil || m.Idle == 0 || m.Processors < 1 {
		t.Errorf("machine: got %+v, %v", m, err)
	}
	if f := r.Facts(); f.Kernel == "" || f.MemoryMiB == 0 || strings.ContainsAny(f.Kernel, "\n") {
		t.Errorf("facts: got %+v", f)
	}
	if command, err := r.Command(child.Process.Pid); err != nil || command[0] != "sh" {
		t.Errorf("command: got %q, %v", command, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(statLine(7, 1, "a) S (b", "S"))
	f.Add("cpu  100 10 50 1000 40 5 15 20 30 0\ncpu0 1 2\n")
	f.Add("some avg10=1.00 total=2500000\n")
	f.Add(statusText)
	f.Add("Pss: 3000 kB\n")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := parseStat([]byte(text)); err == nil && (s.user < 0 || s.system < 0 || s.threads < 0) {
			t.Errorf("%q: got %+v", text, s)
		}
		if processors, steal, idle, interrupts, err := parseMachine(text); err == nil && (min(steal, idle, interrupts) < 0 || processors < 1) {
			t.Errorf("%q: got %v %v %v %v", text, processors, steal, idle, interrupts)
		}
		if stalled, err := parsePressure(text); err == nil && stalled < 0 {
			t.Errorf("%q: got %v", text, stalled)
		}
		_, _ = parsePSS(text)
		_, _ = parseNetstat(text, "DelayedACKs")
		_, _, _ = parseSwitches(text)
	})
}
