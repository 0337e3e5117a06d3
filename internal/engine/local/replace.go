package local

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// lastWords is what a process may take to end once it has been told to cut what is left.
const lastWords = 5 * time.Second

// replace starts another process beside the daemon's and puts it in its place when it says that it is ready. The one
// before is returned and still runs; nil if there was none. If anything goes wrong it stays in its place.
func (d *daemon) replace(ctx context.Context, what program, env []string, patience time.Duration) (before, now *launched, err error) {
	d.mu.Lock()
	if d.replacing {
		d.mu.Unlock()
		return nil, nil, fmt.Errorf("%s is being replaced already", d.name)
	}
	d.replacing = true
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.replacing = false
		d.mu.Unlock()
	}()
	reports, err := listenNotify()
	if err != nil {
		return nil, nil, err
	}
	defer reports.close()
	next, err := d.launch(what, append(env, reports.env()), func(l *launched) { d.beside[l] = true })
	if err != nil {
		return nil, nil, err
	}
	if what.ztunnel {
		err = what.answers(ctx, next, patience)
	} else {
		err = awaitReady(ctx, next, reports, patience)
	}
	if err != nil {
		_ = next.Signal(syscall.SIGKILL)
		d.follow(next)
		return nil, nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping {
		_ = next.Signal(syscall.SIGKILL)
		return nil, nil, fmt.Errorf("%s is being ended", d.name)
	}
	before = d.current
	delete(d.beside, next)
	d.current, d.process, d.program, d.failures = next, next.Process, what, 0
	if before != nil {
		d.beside[before] = true
	}
	select {
	case d.replaced <- struct{}{}:
	default: // it is told already
	}
	return before, next, nil
}

func awaitReady(ctx context.Context, next *launched, reports *notifySocket, patience time.Duration) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-reports.ready:
		return nil
	case <-next.Done():
		next.output.Drain(drainOutput)
		why := next.output.Reason()
		if why == "" {
			why = "it wrote nothing; is it a node proxy of Lateen?"
		}
		return fmt.Errorf("the new process ended before it was ready: it %s: %s", next.Exit(), why)
	case <-timer.C:
		said := reports.lastStatus()
		if said == "" {
			said = "it said nothing; is it a node proxy of Lateen? (name an unmodified ztunnel with --ztunnel)"
		}
		return fmt.Errorf("the new process was not ready after %s: %s", patience, said)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow waits for the end of a process beside the daemon's.
func (d *daemon) follow(l *launched) {
	<-l.Done()
	l.output.End(drainOutput)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.beside, l)
	delete(d.draining, l)
}

// drainTime is since when a process drains, and until when it may.
type drainTime struct{ since, until time.Time }

// drain waits until a process that was told to end has ended; when its time is over it is told again, and then killed.
func (d *daemon) drain(l *launched, limit time.Duration) {
	began := time.Now()
	d.mu.Lock()
	d.draining[l] = drainTime{began, began.Add(limit)}
	d.mu.Unlock()
	defer d.follow(l)
	for _, step := range []struct {
		wait   time.Duration
		signal syscall.Signal
	}{{limit + lastWords, syscall.SIGTERM}, {lastWords, syscall.SIGKILL}} {
		select {
		case <-l.Done():
			d.log.Info("the process that was replaced has ended", "pid", l.PID, "after", time.Since(began).Round(time.Millisecond))
			return
		case <-time.After(step.wait):
			d.log.Warn("the process that was replaced does not end", "pid", l.PID, "signal", step.signal)
			_ = l.Signal(step.signal)
		}
	}
}
