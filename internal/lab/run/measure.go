package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/generator"
	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

// running is a plane at work.
type running struct {
	about results.Plane
	dataplanes.Bench
}

// sample is a look at everything before or after a block.
type sample struct {
	machine procstat.Machine
	used    map[int]procstat.Usage
	acks    map[string]uint64 // by role
}

// estates are, by the process that took it over, what those had used before a block that ended in it. Such a process's own use
// cannot be told from theirs.
func (s *session) estates(before, after sample, heirs map[int]int) map[int]time.Duration {
	taken := map[int]time.Duration{}
	for pid, u := range before.used {
		if _, there := after.used[pid]; !there && s.Account.Reaped(pid) {
			taken[heirs[pid]] += u.CPU
		}
	}
	return taken
}

// own is what the experiment itself used in a block. It is not known where a process ended of which nobody in the experiment
// has taken over what it used.
func (s *session) own(pids []int, before, after sample, heirs map[int]int) (used time.Duration, known bool) {
	for _, pid := range pids {
		if _, there := after.used[pid]; there {
			continue
		}
		_, was := before.used[pid]
		_, waits := after.used[heirs[pid]]
		if !was || !waits || !s.Account.Reaped(pid) {
			return 0, false
		}
	}
	taken := s.estates(before, after, heirs)
	for pid, u := range after.used {
		used += max(0, u.CPU-before.used[pid].CPU-taken[pid])
	}
	return used, true
}

// look reads the books. pids are those of all planes: what the idle ones use is the experiment's own too.
func (s *session) look(pids []int, processes []dataplanes.Process) (sample, error) {
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
func (s *session) delayedACKs(processes []dataplanes.Process) (map[string]uint64, error) {
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
		if errors.Is(err, procstat.ErrGone) {
			continue
		} else if err != nil {
			return nil, err
		}
		acks[p.Role] += n
	}
	return acks, nil
}

// errNoAnswer is returned with a block in which no request was answered.
var errNoAnswer = errors.New("no request was answered")

// bypassed is said of a plane through which nothing went.
const bypassed = "no connection went through the plane"

// measure runs one block of a cell on a plane. Where something other than the plane spoils the block, it is rejected; what the
// plane breaks is its result, and the block says so. An error means that the plane can go on no longer, or that ctx has ended.
func (s *session) measure(ctx context.Context, on running, cell scenario.Cell, load scenario.Load, round int) (results.Block, error) {
	b := results.Block{Plane: on.about.Name, Round: round, Order: s.blocks, Started: s.Now(), Metrics: map[string]float64{}}
	s.blocks++
	if err := s.attend(ctx); err != nil {
		return b, err
	}
	if err := s.blame(ctx, on, &b); err != nil {
		return b, err
	}
	processes, pids := slices.Clone(s.known[on.about.Name]), s.everybody()
	carried, counts, err := on.Carried(ctx)
	if err != nil {
		return b, err
	}
	shaken, shakes, err := handshakes(ctx, on)
	if err != nil {
		return b, err
	}
	if load, err = aimed(on, load); err != nil {
		return b, err
	}
	heirs, err := s.Account.Heirs(pids)
	if err != nil {
		return b, err
	}
	stop := s.disturb(ctx, on, cell, processes)
	before, err := s.look(pids, processes)
	if err != nil {
		stop()
		return b, err
	}
	asked := s.balance(ctx, on)
	r, loadErr := s.generate(ctx, on, command(load, s.seconds, s.warmup, uint64(round)))
	after, err := s.look(pids, processes)
	if err == nil && len(after.used) < len(before.used) { // who ended while the books were read is its parent's in the next reading
		after, err = s.look(pids, processes)
	}
	stop()
	balance, unbalanced := asked()
	if ctx.Err() != nil {
		return b, ctx.Err()
	}
	if err != nil {
		return b, err
	}
	// What broke is a result, whatever comes of the rest of the block.
	gone := ended(processes, after.used, cell.Kill)
	b.Failed = append(b.Failed, gone...)
	s.miss(on, cell, after.used)
	if unbalanced != nil {
		return b, unbalanced
	}
	if loadErr != nil {
		if errors.Is(loadErr, generator.ErrNoResult) { // nobody answered it: a result
			b.Failed = append(b.Failed, loadErr.Error())
		} else { // it could not be run
			b.Rejected = append(b.Rejected, loadErr.Error())
		}
		if err := s.resume(ctx, on, cell, processes, gone, &b); err != nil {
			return b, err
		}
		return b, fmt.Errorf("%w: %w", errNoAnswer, loadErr)
	}
	b.Seconds, b.Metrics, b.Errors, b.Histogram = r.Measured, r.metrics(), r.Errors, r.Response.Histogram
	maps.Copy(b.Metrics, balance)
	if cell.Beside == nil { // otherwise the costs are those of another load as well
		if err := s.charge(&b, before, after, s.estates(before, after, heirs), processes, r); err != nil {
			return b, err
		}
	}
	own, known := s.own(pids, before, after, heirs)
	shares, err := procstat.SharesOf(before.machine, after.machine, own)
	if errors.Is(err, procstat.ErrProcessors) { // whose time was whose cannot be told
		b.Rejected = append(b.Rejected, err.Error())
		known = false
	} else if err != nil {
		return b, err
	}
	b.Environment = environment(shares, r)
	if !known { // what the experiment used and what others did cannot be told apart
		delete(b.Environment, envOther)
	}
	b.Rejected = append(b.Rejected, rejected(b.Environment, s.options.Gates, cell, nil)...)
	silent := error(nil)
	if r.Counts.OK == 0 {
		silent = fmt.Errorf("%w: %s", errNoAnswer, r.failures())
		b.Failed = append(b.Failed, silent.Error())
	}
	if cell.Kill != nil || len(gone) > 0 { // what is new counts from zero
		if err := s.resume(ctx, on, cell, processes, gone, &b); err != nil {
			return b, err
		}
		return b, silent
	}
	if failed := r.failures(); s.onlyOK && silent == nil && failed != "" {
		b.Failed = append(b.Failed, fmt.Sprintf("not every request was answered with 200: %s", failed))
		b.Metrics, b.Histogram, b.Split = map[string]float64{}, "", nil
		return b, nil
	}
	if counts && silent == nil {
		now, _, err := on.Carried(ctx)
		if err != nil {
			return b, err
		}
		if now <= carried { // a failure of the plane, and times that are not its own
			b.Failed = append(b.Failed, bypassed)
			b.Metrics, b.Histogram = map[string]float64{}, ""
		} else if missing, err := s.unrecorded(ctx, on, b.Started, r.requests(), now-carried); err != nil {
			return b, err
		} else if missing != "" {
			b.Failed = append(b.Failed, missing)
			b.Metrics, b.Histogram, b.Split = map[string]float64{}, "", nil
			return b, nil
		}
	}
	if cell.Beside == nil && shakes && r.requests() > 0 {
		now, _, err := handshakes(ctx, on)
		if err != nil {
			return b, err
		}
		if now >= shaken { // a proxy that was killed counts from zero
			b.Metrics[results.HandshakesPerRequest] = float64(now-shaken) / float64(r.requests())
		}
	}
	return b, silent
}

// handshakes are those of a plane's proxies so far.
func handshakes(ctx context.Context, on running) (n uint64, known bool, err error) {
	if h, ok := on.Bench.(dataplanes.Handshaker); ok {
		return h.Handshakes(ctx)
	}
	return 0, false, nil
}

// aimed is a load as a plane takes it.
func aimed(on running, load scenario.Load) (scenario.Load, error) {
	a, ok := on.Bench.(dataplanes.Aimer)
	if !ok {
		return load, nil
	}
	var err error
	load.URL, err = a.Aim(load.URL)
	return load, err
}

// resume waits for what the lab killed in a block, or what ended by itself. That it does not come back is the plane's failure.
func (s *session) resume(ctx context.Context, on running, cell scenario.Cell, before []dataplanes.Process, gone []string, b *results.Block) error {
	within := recoverTime
	if cell.Kill == nil {
		if within = returnTime; len(gone) == 0 {
			return nil
		}
	}
	err := s.recover(ctx, on, before, within)
	if err != nil && ctx.Err() == nil {
		b.Failed = append(b.Failed, err.Error())
	}
	return err
}

// ended names the services' processes that are gone, without those that the lab itself has killed.
func ended(processes []dataplanes.Process, after map[int]procstat.Usage, killed *scenario.Kill) []string {
	return gone(slices.DeleteFunc(slices.Clone(processes), func(p dataplanes.Process) bool {
		return killed != nil && p.Role == killed.Role
	}), after, "meanwhile")
}

// generate runs the load generator in its pod.
func (s *session) generate(ctx context.Context, on running, command []string) (report, error) {
	// A generator that hangs would hang the run: it has its own time limits, and here is one for all of them.
	ctx, cancel := context.WithTimeout(ctx, time.Duration((s.seconds+s.warmup)*float64(time.Second))+time.Minute)
	defer cancel()
	return generator.Run[report](ctx, func(ctx context.Context, command []string, streams api.Streams) (int, error) {
		return on.Exec(ctx, scenario.Generator, command, streams)
	}, command)
}

// charge writes what the block cost, by role, per request. estates are what those had used before that ended in it, by the
// process that took it over.
func (s *session) charge(b *results.Block, before, after sample, estates map[int]time.Duration, processes []dataplanes.Process, r report) error {
	requests := float64(r.requests())
	if requests == 0 {
		return nil
	}
	roots := map[string][]int{}
	whole := map[string]bool{}
	used := map[string]procstat.Usage{}
	for _, p := range processes {
		if p.Role == dataplanes.RoleEngine {
			continue
		}
		was, had := before.used[p.PID]
		is, has := after.used[p.PID]
		_, others := estates[p.PID]
		for _, role := range rolesOf(p) {
			if _, seen := whole[role]; !seen {
				whole[role] = true
			}
			if !had || !has || others {
				whole[role] = false // what it used is not known
				continue
			}
			used[role] = used[role].Add(is.Sub(was))
			roots[role] = append(roots[role], p.PID)
		}
	}
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / requests }
	all, both := 0.0, [2]float64{}
	b.Split = map[string][2]float64{}
	complete := len(whole) > 0
	for _, known := range whole {
		complete = complete && known
	}
	for role, u := range used {
		if !whole[role] {
			continue
		}
		total, split := micros(u.CPU), [2]float64{u.User.Seconds(), u.System.Seconds()}
		b.Metrics[results.CPUPerRequest(role, "total")], b.Split[role] = total, split
		share := split[0] / (split[0] + split[1])
		if s.doc.Machine.ExactSplit && share >= 0 { // not where nothing was used
			b.Metrics[results.CPUPerRequest(role, "user")], b.Metrics[results.CPUPerRequest(role, "system")] = total*share, total*(1-share)
		}
		if role == results.RoleGenerator || role == results.RoleApp || role == results.RoleProxies {
			all += total
			both[0], both[1] = both[0]+split[0], both[1]+split[1]
		}
		if role != results.RoleGenerator { // its threads have ended, and their switches with them
			b.Metrics[results.SwitchesPerRequest(role)] = float64(u.Voluntary) / requests
		}
	}
	if complete {
		b.Metrics[results.CPUPerRequest(results.RoleAll, "total")], b.Split[results.RoleAll] = all, both
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

// rolesOf are the roles that a process is charged to: its own, and the one that tells it apart within that.
func rolesOf(p dataplanes.Process) []string {
	if p.Part == "" {
		return []string{p.Role}
	}
	return []string{p.Role, p.Part}
}

// ahead is how long a disturbing load runs before the measured one, and how much longer than it.
const ahead = 500 * time.Millisecond

// disturb starts what goes on beside a cell's load. The function that it returns ends it.
func (s *session) disturb(ctx context.Context, on running, cell scenario.Cell, processes []dataplanes.Process) (stop func()) {
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

// recoverTime bounds how long processes may take to come back that the lab has killed, returnTime those that ended by themselves.
const (
	recoverTime = time.Minute
	returnTime  = 15 * time.Second
)

// recover waits until as many processes of each role run as before a cell that killed some, and the plane answers.
func (s *session) recover(ctx context.Context, on running, before []dataplanes.Process, within time.Duration) error {
	deadline := s.Now().Add(within)
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
			if err == nil {
				err = fmt.Errorf("%d of %d processes run", len(now), len(before))
			}
			return fmt.Errorf("%s: what ended has not come back within %s: %w", on.about.Name, within, err)
		}
		s.Sleep(ctx, 200*time.Millisecond)
	}
}
