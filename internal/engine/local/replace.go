package local

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/engine/api"
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
	if what.stock {
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
			said = "it said nothing; is it a node proxy of Lateen? (a stock ztunnel takes --stock)"
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

// serveReplace puts another process in the place of a node's proxy and streams how far it is.
func (e *Engine) serveReplace(w http.ResponseWriter, r *http.Request) {
	n, err := e.nodeOf(r)
	if err != nil {
		fail(w, err)
		return
	}
	var in api.ReplaceRequest
	if err := readJSON(w, r, &in); err != nil {
		fail(w, err)
		return
	}
	if in.Binary != "" {
		if err := executable(in.Binary); err != nil {
			fail(w, &api.Error{Code: http.StatusBadRequest, Message: "use another node proxy: " + err.Error(), Cure: "name an executable file by its absolute path"})
			return
		}
	}
	if in.Stock && in.Binary == "" {
		fail(w, &api.Error{Code: http.StatusBadRequest, Message: "use a stock node proxy: no executable is named", Cure: "name it with --binary"})
		return
	}
	limit := time.Duration(in.DrainSeconds * float64(time.Second))
	what, err := e.place(n, n.program(), n.successor(in.Binary, in.Stock))
	if err != nil {
		fail(w, &api.Error{Code: http.StatusConflict, Message: "the node proxy of " + n.name + " was not replaced: " + err.Error()})
		return
	}
	var env []string
	if what.stock { // it hears of its drain at its start and never again
		env = []string{fmt.Sprintf("CONNECTION_TERMINATION_DEADLINE=%dms", limit.Milliseconds())}
	}
	enc := json.NewEncoder(w)
	flush := http.NewResponseController(w)
	say := func(ev api.Event) {
		_ = enc.Encode(ev) // the asker may be gone
		_ = flush.Flush()
	}
	say(api.Event{Phase: "successor", State: api.EventStarted, Message: "starting another node proxy on " + n.name})
	began := time.Now()
	old, now, err := n.proxy.replace(r.Context(), what, env, readyTimeout)
	if err != nil {
		e.log.Warn("a node proxy was not replaced", "node", n.name, "err", err)
		say(api.Event{Phase: "successor", State: api.EventFailed, Message: "not replaced",
			Error: "the node proxy of " + n.name + " was not replaced: " + err.Error(), Cure: "the one before goes on as if nothing had been; the whole log is " + n.proxy.logPath})
		return
	}
	e.log.Info("a node proxy was replaced", "node", n.name, "pid", now.PID, "binary", in.Binary, "took", time.Since(began).Round(time.Millisecond))
	say(api.Event{Phase: "successor", State: api.EventDone, Message: fmt.Sprintf("%s: the new proxy serves", n.name)})
	if old == nil {
		return
	}
	say(api.Event{Phase: "drain", State: api.EventStarted, Message: n.name + ": the one before stops accepting"})
	open := "its connections"
	if old.program.stock {
		_ = old.Signal(syscall.SIGTERM)
	} else {
		// The pages on the socket are the old process's until it drains. Without an answer the plain way still works, with its
		// own deadline.
		open = connections(r.Context(), n.ownPages)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), pollTimeout)
		defer cancel()
		if err := askToQuit(ctx, n.ownPages, limit); err != nil {
			e.log.Warn("ask a node proxy to drain; sending a signal", "node", n.name, "err", err)
			_ = old.Signal(syscall.SIGTERM)
		}
	}
	go n.proxy.handOver(n.admin, old.PID, old.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.proxy.drain(old, limit)
	}()
	if in.Wait {
		<-done
		say(api.Event{Phase: "drain", State: api.EventDone, Message: n.name + ": the one before has ended"})
		return
	}
	say(api.Event{Phase: "drain", State: api.EventDone, Message: fmt.Sprintf("%s: the one before stopped accepting; %s may go on there for up to %s", n.name, open, limit)})
}

// connections says how many connections a node's proxy has, in words.
func connections(ctx context.Context, pages dialer) string {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	page, err := get(ctx, pages, "http://proxy/metrics")
	if err != nil {
		return "its connections"
	}
	total := 0
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "lateen_worker_connections{") {
			var count int
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &count); err == nil {
				total += count
			}
		}
	}
	if total == 1 {
		return "1 connection"
	}
	return fmt.Sprintf("%d connections", total)
}

// askToQuit tells a node's proxy to drain, with a limit.
func askToQuit(ctx context.Context, pages dialer, limit time.Duration) error {
	_, err := ask(ctx, pages, http.MethodPost, fmt.Sprintf("http://proxy/quitquitquit?deadline=%dms", limit.Milliseconds()))
	return err
}
