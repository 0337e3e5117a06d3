// Package demo shows on one machine what the mesh does and measures what it costs: Bookinfo on two nodes, enrolled
// under load, watched on the wire, with and without the mesh in turn. It drives a mesh through its engine's API like
// any other client; it holds no part of the mesh itself.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"lateen.dev/lateen/internal/check"
	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

// Mesh is what the demonstration asks of a running mesh; *api.Client is one.
type Mesh interface {
	Version(context.Context) (api.Version, error)
	Apply(context.Context, api.ApplyRequest) (api.ApplyResult, error)
	Delete(context.Context, api.DeleteRequest) (api.ApplyResult, error)
	Label(ctx context.Context, key api.Key, labels map[string]*string) (api.ObjectResult, error)
	Status(context.Context) (api.Status, error)
	Usage(context.Context) (api.Usage, error)
	Exec(context.Context, api.ExecRequest, api.Streams) (int, error)
	ProxyLog(ctx context.Context, node string, follow bool, tail int) (io.ReadCloser, error)
	ProxyMetrics(ctx context.Context, node string) ([]byte, error)
	Capture(context.Context, api.CaptureRequest) (api.CaptureReport, error)
}

// Stage is what the demonstration runs on.
type Stage struct {
	Mesh Mesh
	// Up starts the mesh, Down ends it; both report progress.
	Up, Down func(context.Context, func(api.Event)) error
	System   check.System
	Cores    int
	Busy     func() (time.Duration, error) // CPU time of the whole machine so far
	Out      io.Writer                     // the story
	Style    term.Style
	Progress *term.Progress
}

// Options is what a user can choose.
type Options struct {
	Name     string        // of the mesh
	Samples  string        // directory with bookinfo and echo
	Pairs    int           // rounds, each without and with the mesh
	Block    time.Duration // measured per target, round and side
	Warmup   time.Duration // before each of them
	Keep     bool          // leave the mesh running
	JSON     string        // file for all results
	Deadline time.Duration // for anything that is waited for
}

// Validate refuses what cannot be measured.
func (o Options) Validate() error {
	switch {
	case o.Pairs < 1 || o.Pairs > 100:
		return fmt.Errorf("--rounds %d: use a number from 1 to 100", o.Pairs)
	case o.Block < time.Second || o.Block > 10*time.Minute:
		return fmt.Errorf("--block %s: use a time from 1s to 10m", o.Block)
	case o.Warmup < 0 || o.Warmup > time.Minute:
		return fmt.Errorf("--warmup %s: use a time from 0s to 1m", o.Warmup)
	}
	return nil
}

// Results is everything that was found; --json writes it.
type Results struct {
	Note        string       `json:"note"`
	Started     time.Time    `json:"started"`
	Seconds     float64      `json:"seconds"`
	Cores       int          `json:"cores"`
	Engine      api.Version  `json:"engine"`
	Checks      check.Report `json:"checks"`
	StandIn     bool         `json:"standIn"` // the echo service stood in for Bookinfo
	Before      *Wire        `json:"wireBefore,omitempty"`
	Enrolment   *Enrolment   `json:"enrolment,omitempty"`
	After       *Wire        `json:"wireAfter,omitempty"`
	Flows       []Flow       `json:"flows,omitempty"`
	Denial      *Denial      `json:"denial,omitempty"`
	Blocks      []Block      `json:"blocks,omitempty"`
	Comparisons []Comparison `json:"comparisons,omitempty"`
	Paragraph   string       `json:"paragraph,omitempty"`
}

// ErrUnfit is returned when the machine cannot run the demonstration; the findings have been printed.
var ErrUnfit = errors.New("this machine cannot run the demonstration")

// downTimeout bounds the end of the mesh after an interrupt: pods get their grace period within it.
const downTimeout = time.Minute

// Run plays the demonstration. Whatever happens, the mesh is taken down, unless it has played to its end and the user
// wants to keep it.
func Run(ctx context.Context, stage Stage, options Options) (err error) {
	s := &session{Stage: stage, options: options}
	s.results = Results{Note: Mark, Started: time.Now(), Cores: stage.Cores}
	if options.JSON != "" {
		// What has been found until a failure is worth having too.
		defer func() {
			s.results.Seconds = time.Since(s.results.Started).Seconds()
			err = errors.Join(err, writeJSON(options.JSON, s.results))
		}()
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	defer func() {
		s.Progress.Abandon()
		if err == nil && options.Keep {
			s.kept()
			return
		}
		// The context may be the reason for ending; taking down must not stop for it.
		downCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
		defer cancel()
		err = errors.Join(err, s.takeDown(downCtx))
	}()
	return s.play(ctx)
}

// prepare is all that happens before anything is started: a failure leaves nothing to take down.
func (s *session) prepare(ctx context.Context) error {
	if err := s.inspect(ctx); err != nil {
		return err
	}
	if _, err := s.Mesh.Version(ctx); err == nil {
		return fmt.Errorf("a mesh named %s runs already; end it with: lateen down --name %s", s.options.Name, s.options.Name)
	}
	return nil
}

func (s *session) play(ctx context.Context) error {
	for _, act := range []struct {
		title string
		run   func(context.Context) error
	}{
		{"A mesh of two nodes", s.start},
		{"Services, as they go to a Kubernetes cluster", s.deploy},
		{"Load, and what an eavesdropper between the nodes sees", s.listen},
		{"Into the mesh, under that load", s.enrol},
		{"Who talks to whom", s.identify},
		{"A policy", s.deny},
		{"What it costs", s.measure},
	} {
		s.title(act.title)
		if err := act.run(ctx); err != nil {
			return err
		}
	}
	if s.options.Keep && !s.enrolled {
		// The last round may have been one without the mesh; whoever keeps it wants to look at it.
		return s.setMesh(ctx, true)
	}
	return nil
}

func (s *session) takeDown(ctx context.Context) error {
	s.title("Taking everything down")
	err := s.Down(ctx, s.event)
	s.Progress.Abandon()
	if errors.Is(err, api.ErrNotRunning) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("take the mesh down: %w; try: lateen down --name %s", err, s.options.Name)
	}
	s.say("Nothing of the mesh is left on this machine.")
	return nil
}

func (s *session) kept() {
	name := s.options.Name
	s.title("The mesh is kept")
	s.say("  lateen status --name %s", name)
	if !s.results.StandIn {
		s.say("  lateen port-forward --name %s svc/productpage 9080:9080    then open http://localhost:9080/productpage?u=normal", name)
	}
	s.say("  lateen logs --name %s proxy/n2 -f                          both identities of every connection", name)
	s.say("  lateen exec --name %s %s -- lateen-load run --url %s --qps 500 --connections 8 --duration 5s", name, clientTarget, echoTarget.url)
	s.say("  lateen label --name %s namespace default istio.io/dataplane-mode-    out of the mesh again", name)
	s.say("  lateen down --name %s", name)
}

func writeJSON(file string, results Results) error {
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}
