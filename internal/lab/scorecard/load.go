package scorecard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/generator"
)

// target is the service that requests go to.
const target = "http://echo:8080/?size=512"

// Two loads run beside each other: one on connections that stay open, one with a connection for each request. They notice
// different things.
const (
	keptQPS, keptConnections = 100, 8
	newQPS, newConnections   = 50, 4
	// requestTimeout is when a request that has no answer has failed.
	requestTimeout = 5 * time.Second
)

// tally is what became of a load's requests.
type tally struct {
	Counts struct {
		OK         uint64 `json:"ok"`
		Failed     uint64 `json:"failed"`
		Unsent     uint64 `json:"unsent"`
		Unanswered uint64 `json:"unanswered"`
	} `json:"counts"`
	Errors map[string]uint64 `json:"errors"`
}

func (t tally) failed() uint64 { return t.Counts.Failed + t.Counts.Unsent + t.Counts.Unanswered }
func (t tally) all() uint64    { return t.failed() + t.Counts.OK }

func (t tally) kinds() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(t.Errors)) {
		parts = append(parts, fmt.Sprintf("%d %s", t.Errors[kind], kind))
	}
	return strings.Join(parts, ", ")
}

// traffic is both loads under way.
type traffic struct {
	done       chan struct{}
	kept, anew tally
	err        error
	until      time.Time
}

// begin starts both; they end by themselves after d.
func (s *session) begin(ctx context.Context, d time.Duration) *traffic {
	t := &traffic{done: make(chan struct{}), until: time.Now().Add(d)}
	// Limits of its own: a generator that hangs must not hang all.
	ctx, cancel := context.WithTimeout(ctx, d+time.Minute)
	results := make(chan error, 2)
	run := func(into *tally, qps, connections int, flags ...string) {
		command := append([]string{"lateen-load", "run", "--url", target, "--qps", fmt.Sprint(qps), "--connections", fmt.Sprint(connections),
			"--duration", d.String(), "--warmup", "0s", "--timeout", requestTimeout.String(), "--json", "-"}, flags...)
		var err error
		*into, err = generator.Run[tally](ctx, func(ctx context.Context, command []string, streams api.Streams) (int, error) {
			return s.client.Exec(ctx, api.ExecRequest{Namespace: namespace, Target: "deploy/client", Command: command}, streams)
		}, command)
		results <- err
	}
	go run(&t.kept, keptQPS, keptConnections)
	go run(&t.anew, newQPS, newConnections, "--no-keepalive")
	go func() {
		defer cancel()
		for range 2 {
			if err := <-results; err != nil && t.err == nil {
				t.err = err
			}
		}
		close(t.done)
	}()
	return t
}

// lead is how long loads run before something is done to the mesh.
const lead = 1500 * time.Millisecond

// under does something to the mesh while requests are under way, and notes what became of them.
func (s *session) under(ctx context.Context, area, what string, d time.Duration, act func(ctx context.Context) error) error {
	t := s.begin(ctx, d)
	finish := func() { <-t.done }
	if err := pause(ctx, lead); err != nil {
		finish()
		return err
	}
	began := time.Now()
	err := act(ctx)
	took := time.Since(began)
	outlasted := time.Now().After(t.until)
	finish()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if t.err != nil {
		return fmt.Errorf("%s: %w", what, t.err)
	}
	note := ""
	if outlasted {
		note = fmt.Sprintf("it took %.1f s and outlasted the load: use a longer --load", took.Seconds())
	}
	for _, l := range []struct {
		name string
		tally
	}{{"kept connections", t.kept}, {"new connections", t.anew}} {
		if l.all() == 0 {
			return fmt.Errorf("%s: no request was made", what)
		}
		said := note
		if kinds := l.kinds(); kinds != "" {
			said = strings.TrimPrefix(note+"; "+kinds, "; ")
		}
		s.add(Row{Area: area, Criterion: "requests failed while " + what + ", " + l.name, Value: float64(l.failed()), Of: l.all(), Unit: "requests", Note: said})
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
