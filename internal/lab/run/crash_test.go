package run

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/results"
)

// books are those of a machine with one processor on which nothing runs but this test, the processes of its planes and what a test
// says besides; the processes are real ones.
type books struct {
	t            *testing.T
	dir          string
	passed, idle time.Duration
	processors   int // 0 is one
}

func (b *books) now() time.Time { return time.Unix(0, 0).Add(b.passed) }

func newBooks(t *testing.T) *books {
	b := &books{t: t, dir: t.TempDir()}
	b.pass(0)
	b.enter(os.Getpid())
	return b
}

func (b *books) enter(pid int) {
	b.t.Helper()
	if err := os.Symlink(fmt.Sprintf("/proc/%d", pid), filepath.Join(b.dir, strconv.Itoa(pid))); err != nil {
		b.t.Fatal(err)
	}
}

// pass lets a second go by, of which so much was used.
func (b *books) pass(used time.Duration) {
	b.t.Helper()
	idle := max(0, time.Second-used)
	b.passed, b.idle = b.passed+used+idle, b.idle+idle
	text := fmt.Sprintf("cpu  0 0 0 %d 0 0 0 0 0 0\n", b.idle.Milliseconds()/10) + strings.Repeat("cpu0 0 0 0 0\n", max(1, b.processors))
	if err := os.WriteFile(filepath.Join(b.dir, "stat"), []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// until waits for a condition.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

func used(t *testing.T, pid int) time.Duration {
	t.Helper()
	d, err := procstat.Host().Clock(pid)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// burn lets a process run until it has used so much more, and stops it.
func burn(t *testing.T, pid int, least time.Duration) (spent time.Duration) {
	t.Helper()
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
	}
	from := used(t, pid)
	signal(syscall.SIGCONT)
	until(t, "a process that burns", func() bool { return used(t, pid) >= from+least })
	signal(syscall.SIGSTOP)
	last := from
	until(t, "a process that has stopped", func() bool {
		before := last
		last = used(t, pid)
		return last == before
	})
	return last - from
}

// over says that a process has ended, whether somebody has waited for it or not.
func over(t *testing.T, pid int) bool {
	t.Helper()
	used, err := procstat.Host().Read([]int{pid})
	if err != nil {
		t.Fatal(err)
	}
	return len(used) == 0
}

// mortal is a plane whose process burns processor time.
type mortal struct {
	*fakePlane
	books *books
	pids  map[string]int
	reap  bool
}

// burnt is what a mortal plane's process has used before anything is measured.
const burnt = 500 * time.Millisecond

func (m mortal) Start(context.Context, dataplanes.Topology, func(string)) (dataplanes.Bench, error) {
	t := m.t
	child := exec.Command("sh", "-c", "while :; do :; done")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	if m.reap {
		ended := make(chan struct{})
		go func() { defer close(ended); _ = child.Wait() }()
		t.Cleanup(func() { _ = child.Process.Kill(); <-ended })
	} else {
		t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	}
	m.books.enter(pid)
	m.pids[m.spec.Name] = pid
	burn(t, pid, burnt)
	return proxied{&fakeBench{m.fakePlane, pid}}, nil
}

// proxied is a bench whose process is a proxy.
type proxied struct{ *fakeBench }

func (p proxied) Processes(context.Context) ([]dataplanes.Process, error) {
	return []dataplanes.Process{{Role: results.RoleProxies, Name: "n1", PID: p.pid}}, nil
}

// With gates as they are in earnest: neither what a process used that died, nor how long it had run before, is taken for others' or
// hides others'; and what died is told whether its block is rejected or not.
func TestAProcessThatDiesBurningIsNotTakenForOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		reap, kill      bool
		others          time.Duration // of a second
		known, rejected bool
	}{
		"it dies":                                 {reap: true, known: true},
		"it dies while others work":               {reap: true, others: 600 * time.Millisecond, known: true, rejected: true},
		"nobody has waited for it":                {},
		"the lab kills it":                        {reap: true, kill: true, known: true},
		"the lab kills it while others work":      {reap: true, kill: true, others: 600 * time.Millisecond, known: true, rejected: true},
		"the lab kills it, and nobody has waited": {kill: true},
	} {
		t.Run(name, func(t *testing.T) {
			more := ""
			if tt.kill {
				more = ", kill: {role: proxies, after: 1}"
			}
			w, stage, o := newWorld(t, oneCell(more))
			o.Rounds, o.Gates.OtherCPU = 1, results.DefaultGates.OtherCPU
			b, pids := newBooks(t), map[string]int{}
			stage.Account.Proc = b.dir
			stage.Account.Now = b.now
			mk := stage.Make
			stage.Make = func(s dataplanes.Spec) (dataplanes.Plane, error) {
				p, err := mk(s)
				if s.Name == "lateen" {
					return mortal{p.(*fakePlane), b, pids, tt.reap}, err
				}
				return noting{p, func(pid int) { b.enter(pid); pids[s.Name] = pid }}, err
			}
			hit := make(chan struct{}, 1)
			stage.Sleep = func(ctx context.Context, d time.Duration) {
				if d < time.Second { // only the time until the lab kills something is that long
					time.Sleep(time.Millisecond)
					return
				}
				select {
				case <-hit:
				case <-ctx.Done():
				}
			}
			w.answer = func(plane string, _ int) (string, error) {
				pid := pids[plane]
				if plane != "lateen" || over(t, pid) { // a rejected block is measured again, without a process here
					b.pass(0)
					return answered(1), nil
				}
				spent := burn(t, pid, 300*time.Millisecond)
				if tt.kill {
					hit <- struct{}{}
				} else if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					return "", err
				}
				until(t, "the end of a process", func() bool { return over(t, pid) && stage.Account.Reaped(pid) == tt.reap })
				b.pass(spent + tt.others)
				return answered(1), nil
			}
			doc, err := Run(context.Background(), stage, o)
			if err != nil {
				t.Fatal(err)
			}
			s := doc.Scenarios[0]
			i := slices.IndexFunc(s.Cells[0].Blocks, func(b results.Block) bool { return b.Plane == "lateen" })
			if i < 0 {
				t.Fatalf("the block is gone: %q", s.Failed)
			}
			block := s.Cells[0].Blocks[i]
			other, known := block.Environment[envOther]
			if known != tt.known || block.Counted() == tt.rejected {
				t.Errorf("others' share is %v (known: %v), rejected %q", other, known, block.Rejected)
			}
			told := strings.Contains(strings.Join(s.Failures, ""), "a process ended meanwhile: proxies n1")
			if told == tt.kill || (len(block.Failed) > 0) == tt.kill {
				t.Errorf("failed %q, failures %q", block.Failed, s.Failures)
			}
			for _, v := range s.Cells[0].Verdicts {
				if v.Plane == "lateen" && (v.Judgement == results.Failed) == tt.kill {
					t.Errorf("verdict %+v", v)
				}
			}
		})
	}
}

// away is a plane that is away for some time once something of it has ended.
type away struct {
	dataplanes.Bench
	looks *int // that still find nothing
}

func (a away) Processes(ctx context.Context) ([]dataplanes.Process, error) {
	if *a.looks > 0 {
		*a.looks--
		return nil, nil
	}
	return a.Bench.Processes(ctx)
}

// started is a plane whose bench is wrapped.
type started struct {
	dataplanes.Plane
	wrap func(dataplanes.Bench) dataplanes.Bench
}

func (s started) Start(ctx context.Context, t dataplanes.Topology, progress func(string)) (dataplanes.Bench, error) {
	b, err := s.Plane.Start(ctx, t, progress)
	if err != nil {
		return nil, err
	}
	return s.wrap(b), nil
}

// Where nobody answered, what was killed or has ended is waited for as well: the next block would be measured without it.
func TestWhatEndedIsWaitedForWhereNobodyAnswered(t *testing.T) {
	for name, more := range map[string]string{"killed": ", kill: {role: app, after: 1}", "ended": ""} {
		t.Run(name, func(t *testing.T) {
			w, stage, o := newWorld(t, oneCell(more))
			o.Rounds = 1
			looks, pids, left := 0, map[string]int{}, []int{}
			mk := stage.Make
			stage.Make = func(s dataplanes.Spec) (dataplanes.Plane, error) {
				p, err := mk(s)
				return started{noting{p, func(pid int) { pids[s.Name] = pid }}, func(b dataplanes.Bench) dataplanes.Bench {
					if s.Name == "lateen" {
						return away{b, &looks}
					}
					return b
				}}, err
			}
			w.answer = func(plane string, _ int) (string, error) {
				left = append(left, looks)
				if plane != "lateen" {
					return answered(1), nil
				}
				if err := syscall.Kill(pids[plane], syscall.SIGKILL); err != nil {
					return "", err
				}
				until(t, "the end of a process", func() bool { return over(t, pids[plane]) })
				looks = 50
				return "", nil
			}
			doc, err := Run(context.Background(), stage, o)
			if err != nil {
				t.Fatal(err)
			}
			s := doc.Scenarios[0]
			i := slices.IndexFunc(s.Cells[0].Blocks, func(b results.Block) bool { return b.Plane == "lateen" })
			if i < 0 || s.Failed != "" {
				t.Fatalf("the block is gone, or the scenario ended: %q", s.Failed)
			}
			if left = append(left, looks); slices.Max(left) > 0 {
				t.Errorf("blocks began, or the run ended, before everything was back: %v", left)
			}
			said := strings.Join(s.Cells[0].Blocks[i].Failed, "; ")
			if !strings.Contains(said, "printed no result") || strings.Contains(said, "a process ended meanwhile") != (name == "ended") {
				t.Errorf("failed %q", said)
			}
		})
	}
}

// What never comes back is the plane's failure, and there is nothing more to measure.
func TestWhatDoesNotComeBackIsAFailure(t *testing.T) {
	w, stage, o := newWorld(t, oneCell(", kill: {role: app, after: 1}"))
	looks := 0
	at := time.Now()
	stage.Now = func() time.Time { at = at.Add(time.Second); return at }
	mk := stage.Make
	stage.Make = func(s dataplanes.Spec) (dataplanes.Plane, error) {
		p, err := mk(s)
		return started{p, func(b dataplanes.Bench) dataplanes.Bench { return away{b, &looks} }}, err
	}
	w.answer = func(plane string, _ int) (string, error) {
		if plane == "lateen" {
			looks = 1 << 30
		}
		return answered(1), nil
	}
	doc, err := Run(context.Background(), stage, o)
	if err != nil {
		t.Fatal(err)
	}
	s := doc.Scenarios[0]
	if want := "lateen: what ended has not come back within 1m0s: 0 of 1 processes run"; !strings.Contains(s.Failed, want) || !strings.Contains(strings.Join(s.Failures, ""), want) {
		t.Errorf("failed %q, failures %q", s.Failed, s.Failures)
	}
}
