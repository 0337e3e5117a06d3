package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// State of a run, by Fortio's numbers.
type State int

// States of a run.
const (
	Pending State = iota + 1
	Running
	Stopping
	Stopped
)

func (s State) String() string {
	return [...]string{"unknown", "pending", "running", "stopping", "stopped"}[s]
}

// maxFailures bounds how many runs that came to nothing are remembered.
const maxFailures = 20

// Runs are the runs under way. There are no others: what a run found is stored, or given to who waits for it.
type Runs struct {
	generator Generator
	store     *Store
	most      int
	now       func() time.Time

	mu       sync.Mutex
	next     int64
	active   map[int64]*Run
	failures []Failure
	closed   bool
}

// Run is a run under way.
type Run struct {
	ID      int64
	Name    string // the identifier of its stored result
	Request *Request
	Started time.Time

	stop context.CancelFunc
	done chan struct{}
	// Written before done is closed, read after.
	document []byte
	err      error

	// Guarded by Runs.mu.
	state    State
	progress *Progress
}

// Failure is a run that came to nothing.
type Failure struct {
	ID    int64     `json:"runid"`
	Name  string    `json:"id"`
	URL   string    `json:"url"`
	Ended time.Time `json:"ended"`
	Error string    `json:"error"`
}

// NewRuns makes room for at most so many runs at a time.
func NewRuns(generator Generator, store *Store, most int, now func() time.Time) *Runs {
	return &Runs{generator: generator, store: store, most: most, now: now, active: map[int64]*Run{}}
}

// ErrBusy says that a run has to wait for others to end.
var ErrBusy = errors.New("too many runs")

// Start begins a run. It goes on until it ends by itself or is stopped.
func (r *Runs) Start(request *Request) (*Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, &Refusal{Message: "shutting down", Cause: errors.New("the server is ending")}
	}
	if len(r.active) >= r.most {
		return nil, &Refusal{Message: "too many runs", Cause: fmt.Errorf("%w: %d are under way, which is the limit: wait for one to end or stop it", ErrBusy, len(r.active))}
	}
	if request.Save {
		saving := 0
		for _, other := range r.active {
			if other.Request.Save {
				saving++
			}
		}
		if err := r.store.Room(saving + 1); err != nil {
			return nil, &Refusal{Message: "no room for the result", Cause: err}
		}
	}
	started := r.now()
	for {
		r.next++
		if name := resultName(started, r.next, request.Labels); !r.store.Has(name) {
			break
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	run := &Run{ID: r.next, Name: resultName(started, r.next, request.Labels), Request: request, Started: started, stop: stop, done: make(chan struct{}), state: Running}
	r.active[run.ID] = run
	go r.carryOut(ctx, run)
	return run, nil
}

func (r *Runs) carryOut(ctx context.Context, run *Run) {
	defer run.stop()
	result, err := r.generator.run(ctx, run.Request.Arguments(), func(p Progress) {
		r.mu.Lock()
		defer r.mu.Unlock()
		printable := p.printable()
		run.progress = &printable
	})
	if err == nil {
		run.document, err = fortioDocument(result.Fortio, run)
	}
	if err == nil && run.Request.Save {
		err = r.store.Save(run.Name, run.document, result.Report)
	}
	run.err = err
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		slog.Warn("run failed", "runid", run.ID, "error", err)
		r.failures = append(r.failures, Failure{ID: run.ID, Name: run.Name, URL: run.Request.URL, Ended: r.now(), Error: err.Error()})
		r.failures = r.failures[max(0, len(r.failures)-maxFailures):]
	}
	delete(r.active, run.ID)
	close(run.done)
}

// Wait returns the run's result once it has ended.
func (r *Run) Wait(ctx context.Context) ([]byte, error) {
	select {
	case <-r.done:
		return r.document, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Stop interrupts the run of a number, or all for 0, and returns those that it stopped.
func (r *Runs) Stop(id int64) []*Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	var stopped []*Run
	for _, run := range r.active {
		if (id == 0 || run.ID == id) && run.state == Running {
			run.state = Stopping
			run.stop()
			stopped = append(stopped, run)
		}
	}
	slices.SortFunc(stopped, func(a, b *Run) int { return cmp.Compare(a.ID, b.ID) })
	return stopped
}

// Close stops all runs, lets no other begin, and returns when the last has ended.
func (r *Runs) Close() {
	r.mu.Lock()
	r.closed = true
	waiting := make([]*Run, 0, len(r.active))
	for _, run := range r.active {
		waiting = append(waiting, run)
	}
	r.mu.Unlock()
	r.Stop(0)
	for _, run := range waiting {
		<-run.done
	}
}

// Active is a run under way at one moment.
type Active struct {
	*Run
	State    State
	Progress *Progress
}

// Active lists the runs under way, oldest first; with a number, that one alone.
func (r *Runs) Active(id int64) []Active {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Active
	for _, run := range r.active {
		if id == 0 || run.ID == id {
			out = append(out, Active{run, run.state, run.progress})
		}
	}
	slices.SortFunc(out, func(a, b Active) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Failures lists the last runs that came to nothing, oldest first.
func (r *Runs) Failures() []Failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.failures)
}

// resultName is the identifier that Fortio would give a result: time, number and labels, of letters, digits, - and _ alone.
func resultName(at time.Time, id int64, labels string) string {
	const most = 96
	at = at.Local()
	name := at.Format("2006-01-02-150405") + "_" + strconv.FormatInt(id, 10)
	if labels == "" {
		return name
	}
	var b strings.Builder
	b.WriteString(name + "_")
	last := '_'
	for _, c := range labels {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9') {
			if last == '_' {
				continue
			}
			c = '_'
		}
		last = c
		b.WriteRune(c)
	}
	name = strings.TrimSuffix(b.String(), "_")
	return name[:min(len(name), most)]
}
