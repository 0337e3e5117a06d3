package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

// A traced block is short and slow: strace stops a process twice in each call.
const (
	tracedSeconds = 3
	tracedRate    = 100.0 // requests/s at most
)

// trace counts system calls, in one block of each cell and plane whose times nobody looks at.
func (s *session) trace(ctx context.Context, sc *scenario.Scenario, cells []scenario.Cell, out *results.Outcome) error {
	strace, err := s.LookPath("strace")
	if err != nil {
		out.Notes = append(out.Notes, "system calls were not counted: this machine has no strace")
		return nil
	}
	s.Progress.Start(sc.Name + ": count system calls" + s.left())
	for _, c := range cells {
		load := sc.Load.With(c.Load)
		if rate := min(*load.QPS, tracedRate); rate > 0 {
			load.QPS = &rate
		}
		cell := results.Cell{Name: c.Name + ", counted", Params: c.Params, Load: described(load, tracedSeconds, 0), Untimed: true, Blocks: []results.Block{}}
		for _, on := range s.running {
			s.Progress.Update(fmt.Sprintf("%s: count system calls: %s, %s%s", sc.Name, c.Name, on.about.Name, s.left()))
			b, err := s.traced(ctx, strace, on, load)
			s.plan.done(stepCount, s.Now())
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				b.Rejected = append(b.Rejected, err.Error())
				s.Progress.Warn(fmt.Sprintf("%s, %s: %v", c.Name, on.about.Name, err))
			}
			cell.Blocks = append(cell.Blocks, b)
		}
		out.Cells = append(out.Cells, cell)
		if err := s.write(); err != nil {
			return err
		}
	}
	s.Progress.Done(sc.Name + ": system calls counted")
	return nil
}

// traced runs one block under strace, one for the processes of each role.
func (s *session) traced(ctx context.Context, strace string, on running, load scenario.Load) (b results.Block, err error) {
	b = results.Block{Plane: on.about.Name, Round: 1, Order: s.blocks, Started: s.Now(), Seconds: tracedSeconds, Metrics: map[string]float64{}}
	s.blocks++
	processes, err := on.Processes(ctx)
	if err != nil {
		return b, err
	}
	dir, err := os.MkdirTemp("", "lateen-lab-")
	if err != nil {
		return b, fmt.Errorf("count system calls: %w", err)
	}
	defer os.RemoveAll(dir)
	var tracers []*tracer
	defer func() {
		for _, t := range tracers {
			t.end()
		}
	}()
	for _, role := range []string{results.RoleApp, results.RoleProxies, results.RoleGenerator} {
		pids, err := s.branch(processes, role)
		if err != nil || len(pids) == 0 {
			if err != nil {
				return b, err
			}
			continue
		}
		t, err := attach(strace, filepath.Join(dir, role), role, pids)
		if err != nil {
			return b, err
		}
		tracers = append(tracers, t)
		if err := s.attached(ctx, t, pids); err != nil {
			return b, err
		}
	}
	r, err := s.generate(ctx, on, command(load, tracedSeconds, 0, 1))
	if err != nil {
		return b, err
	}
	if r.requests() == 0 {
		return b, errNoAnswer
	}
	for _, t := range tracers {
		calls, err := t.result()
		if err != nil {
			return b, err
		}
		for name, n := range calls {
			b.Metrics[results.SyscallsPerRequest(t.role, name)] = n / float64(r.requests())
		}
	}
	tracers = nil
	return b, nil
}

// branch lists the processes of a role with all that descend from them, except those of other roles.
func (s *session) branch(processes []dataplanes.Process, role string) ([]int, error) {
	var roots, others []int
	for _, p := range processes {
		if p.Role == role {
			roots = append(roots, p.PID)
		} else {
			others = append(others, p.PID)
		}
	}
	if len(roots) == 0 {
		return nil, nil
	}
	pids, err := s.Account.Below(roots)
	return slices.DeleteFunc(pids, func(pid int) bool { return slices.Contains(others, pid) }), err
}

// tracer is a running strace.
type tracer struct {
	role string
	cmd  *exec.Cmd
	file string
	done chan error
	gone bool
}

// attach starts to count the calls of some processes, of their threads and of what they start.
func attach(strace, file, role string, pids []int) (*tracer, error) {
	args := []string{"-c", "-f", "-q", "-o", file}
	for _, pid := range pids {
		args = append(args, "-p", strconv.Itoa(pid))
	}
	t := &tracer{role: role, file: file, done: make(chan error, 1), cmd: exec.Command(strace, args...)}
	// A terminal's Ctrl-C reaches the whole group; strace must let go in its own time.
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT}
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("count system calls: %w", err)
	}
	go func() { t.done <- t.cmd.Wait() }()
	return t, nil
}

// attachTime bounds how long a tracer may take to attach, endTime how long to let go.
const (
	attachTime = 15 * time.Second
	endTime    = 15 * time.Second
)

func (s *session) attached(ctx context.Context, t *tracer, pids []int) error {
	deadline := s.Now().Add(attachTime)
	for _, pid := range pids {
		for {
			traced, err := s.Account.Traced(pid)
			if err != nil || traced {
				break // one that has ended needs no tracer
			}
			select {
			case err := <-t.done:
				t.gone = true
				return fmt.Errorf("count system calls: strace ended at once: %w", err)
			default:
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if s.Now().After(deadline) {
				return fmt.Errorf("count system calls: strace has not attached to process %d within %s; another tracer may have", pid, attachTime)
			}
			s.Sleep(ctx, 20*time.Millisecond)
		}
	}
	return nil
}

// end lets the processes go. It is safe to call twice.
func (t *tracer) end() {
	if t.gone {
		return
	}
	t.gone = true
	_ = t.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-t.done:
	case <-time.After(endTime):
		_ = t.cmd.Process.Kill()
		<-t.done
	}
}

// result ends the tracer and reads what it counted.
func (t *tracer) result() (map[string]float64, error) {
	t.end()
	text, err := os.ReadFile(t.file)
	if err != nil {
		return nil, fmt.Errorf("count system calls: %w", err)
	}
	return parseStrace(string(text))
}

// moving are the calls that move bytes of connections and files.
var (
	reading = []string{"read", "readv", "recvfrom", "recvmsg", "recvmmsg", "preadv", "pread64", "preadv2"}
	writing = []string{"write", "writev", "sendto", "sendmsg", "sendmmsg", "pwritev", "pwrite64", "pwritev2", "sendfile", "splice"}
)

// parseStrace reads the table of strace -c: calls by name, and their sums. A process that made no call has an empty one.
func parseStrace(text string) (map[string]float64, error) {
	calls := map[string]float64{results.CallsAll: 0, results.CallsReads: 0, results.CallsWrites: 0}
	inside := false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "-"):
			inside = true
			continue
		case !inside || len(f) < 5 || f[len(f)-1] == "total":
			continue
		}
		// % time, seconds, usecs/call, calls, [errors], syscall
		n, err := strconv.ParseUint(f[3], 10, 48)
		if err != nil {
			return nil, fmt.Errorf("read strace's table: calls: %w", err)
		}
		failed := uint64(0)
		if len(f) == 6 {
			if failed, err = strconv.ParseUint(f[4], 10, 48); err != nil {
				return nil, fmt.Errorf("read strace's table: errors: %w", err)
			}
		}
		name := f[len(f)-1]
		calls[name] += float64(n)
		calls[results.CallsAll] += float64(n)
		if failed > n {
			return nil, errors.New("read strace's table: more errors than calls")
		}
		if slices.Contains(reading, name) {
			calls[results.CallsReads] += float64(n - failed)
		} else if slices.Contains(writing, name) {
			calls[results.CallsWrites] += float64(n - failed)
		}
	}
	return calls, nil
}
