package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/account"
	"lateen.dev/lateen/internal/lab/bench"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

// running is a plane at work.
type running struct {
	about results.Plane
	bench.Bench
}

// sample is a look at everything before or after a block.
type sample struct {
	machine account.Machine
	used    map[int]account.Usage
	acks    map[string]uint64 // by role
}

// look reads the books. pids are those of all planes: what the idle ones use is the experiment's own too.
func (s *session) look(pids []int, processes []bench.Process) (sample, error) {
	var l sample
	var err error
	if l.acks, err = s.delayedACKs(processes); err != nil {
		return l, err
	}
	if l.used, err = s.Account.Read(pids); err != nil {
		return l, err
	}
	l.machine, err = s.Account.Machine()
	return l, err
}

// delayedACKs adds up the counters of the network namespaces of generator and application, each namespace once.
func (s *session) delayedACKs(processes []bench.Process) (map[string]uint64, error) {
	seen := map[string]bool{}
	acks := map[string]uint64{}
	for _, p := range processes {
		if p.Role != results.RoleGenerator && p.Role != results.RoleApp {
			continue
		}
		network, err := s.Account.Network(p.PID)
		if err != nil {
			continue // it has just ended, which is looked at elsewhere
		}
		if seen[network] {
			continue
		}
		seen[network] = true
		n, err := s.Account.DelayedACKs(p.PID)
		if err != nil {
			return nil, err
		}
		acks[p.Role] += n
	}
	return acks, nil
}

// errNoAnswer is returned with a block in which no request was answered.
var errNoAnswer = errors.New("no request was answered")

// measure runs one block of a cell on a plane. Where something other than the plane spoils the block, the block says so; an
// error means that the plane can go on no longer, or that ctx has ended.
func (s *session) measure(ctx context.Context, on running, cell scenario.Cell, load scenario.Load, round int) (results.Block, error) {
	b := results.Block{Plane: on.about.Name, Round: round, Order: s.blocks, Started: s.Now(), Metrics: map[string]float64{}}
	s.blocks++
	processes, err := on.Processes(ctx)
	if err != nil {
		return b, err
	}
	pids, err := s.everybody(ctx)
	if err != nil {
		return b, err
	}
	carried, counts, err := on.Carried(ctx)
	if err != nil {
		return b, err
	}
	stop := s.disturb(ctx, on, cell, processes)
	before, err := s.look(pids, processes)
	if err != nil {
		stop()
		return b, err
	}
	r, loadErr := s.generate(ctx, on, command(load, s.seconds, s.warmup, uint64(round)))
	after, err := s.look(pids, processes)
	stop()
	if ctx.Err() != nil {
		return b, ctx.Err()
	}
	if err != nil {
		return b, err
	}
	if loadErr != nil {
		b.Rejected = append(b.Rejected, loadErr.Error())
		return b, fmt.Errorf("%w: %w", errNoAnswer, loadErr)
	}
	b.Seconds, b.Metrics, b.Errors, b.Histogram = r.Measured, r.metrics(), r.Errors, r.Response.Histogram
	if err := s.charge(&b, before, after, processes, r); err != nil {
		return b, err
	}
	own := time.Duration(0)
	for pid, u := range after.used {
		own += u.Sub(before.used[pid]).CPU
	}
	shares, err := account.SharesOf(before.machine, after.machine, own)
	if err != nil {
		return b, err
	}
	b.Environment = environment(shares, r)
	b.Rejected = rejected(b.Environment, s.options.Gates, cell)
	if cell.Kill != nil {
		return b, s.recover(ctx, on, processes)
	}
	b.Rejected = append(b.Rejected, ended(processes, after.used)...)
	if counts {
		now, _, err := on.Carried(ctx)
		if err != nil {
			return b, err
		}
		if now <= carried {
			b.Rejected = append(b.Rejected, "no connection went through the plane")
		}
	}
	if r.Counts.OK == 0 {
		b.Rejected = append(b.Rejected, errNoAnswer.Error()+": "+r.failures())
		return b, fmt.Errorf("%w: %s", errNoAnswer, r.failures())
	}
	return b, nil
}

// ended names the services' processes that are gone.
func ended(processes []bench.Process, after map[int]account.Usage) []string {
	var gone []string
	for _, p := range processes {
		if _, there := after[p.PID]; !there && p.Role != bench.RoleEngine {
			gone = append(gone, fmt.Sprintf("a process ended meanwhile: %s %s", p.Role, p.Name))
		}
	}
	return gone
}

// generate runs the load generator in its pod.
func (s *session) generate(ctx context.Context, on running, command []string) (report, error) {
	// A generator that hangs would hang the run: it has its own time limits, and here is one for all of them.
	ctx, cancel := context.WithTimeout(ctx, time.Duration((s.seconds+s.warmup)*float64(time.Second))+time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code, err := on.Exec(ctx, scenario.Generator, command, api.Streams{Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		return report{}, fmt.Errorf("run the load generator: %w", err)
	}
	r, err := parseReport(stdout.Bytes())
	if err != nil {
		return report{}, fmt.Errorf("%w (exit code %d): %s", err, code, lastLine(stderr.String()))
	}
	return r, nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// charge writes what the block cost, by role, per request.
func (s *session) charge(b *results.Block, before, after sample, processes []bench.Process, r report) error {
	requests := float64(r.requests())
	if requests == 0 {
		return nil
	}
	roots := map[string][]int{}
	whole := map[string]bool{}
	used := map[string]account.Usage{}
	for _, p := range processes {
		if p.Role == bench.RoleEngine {
			continue
		}
		if _, seen := whole[p.Role]; !seen {
			whole[p.Role] = true
		}
		was, had := before.used[p.PID]
		is, has := after.used[p.PID]
		if !had || !has {
			whole[p.Role] = false // what it used is not known
			continue
		}
		used[p.Role] = used[p.Role].Add(is.Sub(was))
		roots[p.Role] = append(roots[p.Role], p.PID)
	}
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / requests }
	all := [3]float64{}
	complete := true
	for _, known := range whole {
		complete = complete && known
	}
	for role, u := range used {
		if !whole[role] {
			continue
		}
		total := micros(u.CPU)
		// The kernel's split is in ticks; the sum is exact.
		share := 0.0
		if u.User+u.System > 0 {
			share = float64(u.User) / float64(u.User+u.System)
		}
		parts := [3]float64{total, total * share, total * (1 - share)}
		for i, name := range []string{"total", "user", "system"} {
			b.Metrics[results.CPUPerRequest(role, name)] = parts[i]
			if role == results.RoleGenerator || role == results.RoleApp || role == results.RoleProxies {
				all[i] += parts[i]
			}
		}
		if role != results.RoleGenerator { // its threads have ended, and their switches with them
			b.Metrics[results.SwitchesPerRequest(role)] = float64(u.Voluntary) / requests
		}
	}
	if complete {
		for i, name := range []string{"total", "user", "system"} {
			b.Metrics[results.CPUPerRequest(results.RoleAll, name)] = all[i]
		}
	}
	for role, n := range after.acks {
		if was := before.acks[role]; n >= was {
			b.Metrics[results.DelayedACKsPerRequest(role)] = float64(n-was) / requests
		}
	}
	for role, pids := range roots {
		if role == results.RoleGenerator || !whole[role] {
			continue
		}
		sizes, err := s.Account.PSS(pids)
		if err != nil {
			return err
		}
		sum := uint64(0)
		for _, n := range sizes {
			sum += n
		}
		b.Metrics[results.PSS(role)] = float64(sum) / (1 << 20)
	}
	return nil
}

// everybody lists the processes of all planes, and this one.
func (s *session) everybody(ctx context.Context) ([]int, error) {
	pids := []int{s.self}
	for _, on := range s.running {
		processes, err := on.Processes(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range processes {
			if !slices.Contains(pids, p.PID) {
				pids = append(pids, p.PID)
			}
		}
	}
	return pids, nil
}

// ahead is how long a disturbing load runs before the measured one, and how much longer than it.
const ahead = 500 * time.Millisecond

// disturb starts what goes on beside a cell's load. The function that it returns ends it.
func (s *session) disturb(ctx context.Context, on running, cell scenario.Cell, processes []bench.Process) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done []chan struct{}
	beside := func(f func()) {
		d := make(chan struct{})
		done = append(done, d)
		go func() { defer close(d); f() }()
	}
	if cell.Beside != nil {
		load := command(cell.Beside.Load, s.seconds+s.warmup+5, 0, 1)
		beside(func() {
			var discard bytes.Buffer
			_, _ = on.Exec(ctx, cell.Beside.From, load, api.Streams{Stdout: &discard, Stderr: &discard})
		})
		s.Sleep(ctx, ahead)
	}
	if cell.Kill != nil {
		beside(func() {
			// A shorter block than the scenario's is hit in its middle.
			s.Sleep(ctx, time.Duration((s.warmup+min(cell.Kill.After, s.seconds/2))*float64(time.Second)))
			for _, p := range processes {
				if p.Role == cell.Kill.Role && ctx.Err() == nil {
					_ = syscall.Kill(p.PID, syscall.SIGKILL)
				}
			}
		})
	}
	return func() {
		cancel()
		for _, d := range done {
			<-d
		}
	}
}

// recoverTime bounds how long killed processes may take to come back.
const recoverTime = time.Minute

// recover waits until as many processes of each role run as before a cell that killed some, and the plane answers.
func (s *session) recover(ctx context.Context, on running, before []bench.Process) error {
	deadline := s.Now().Add(recoverTime)
	for {
		now, err := on.Processes(ctx)
		if err == nil && len(now) >= len(before) {
			if _, _, err = on.Carried(ctx); err == nil {
				return nil
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s.Now().After(deadline) {
			return fmt.Errorf("%s: what was killed has not come back within %s: %w", on.about.Name, recoverTime, err)
		}
		s.Sleep(ctx, 200*time.Millisecond)
	}
}
