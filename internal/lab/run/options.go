// Package run carries scenarios out: every cell on every plane in turn, round by round, with what the blocks cost, and leaves
// one results document. Package dataplanes makes the planes. Packages stats and report interpret the numbers.
package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

// Options is what a user chooses.
type Options struct {
	Scenarios []*scenario.Scenario
	// Planes take part in every scenario; the others are compared with the first one.
	Planes []dataplanes.Spec
	// Rounds, Seconds and Warmup replace the scenarios' own; negative ones do not.
	Rounds          int
	Seconds, Warmup float64
	Gates           results.Gates
	// ABBA alternates the order of the planes from round to round; otherwise each round has a random one, from Seed.
	ABBA bool
	Seed uint64
	// File is where the document goes; it is written anew after each round.
	File    string
	Command []string
	// Latency is added to round trips between nodes, in user space; whatever is measured so is labelled.
	Latency time.Duration
	// Samples is the directory with Bookinfo.
	Samples string
}

// Validate refuses what cannot be measured.
func (o Options) Validate() error {
	switch {
	case o.Rounds == 0 || o.Rounds > 1000:
		return fmt.Errorf("--rounds %d: use a number from 1 to 1000", o.Rounds)
	case o.Seconds >= 0 && (o.Seconds < 1 || o.Seconds > 3600):
		return fmt.Errorf("--block %v s: use a time from 1s to 1h", o.Seconds)
	case o.Warmup > 600:
		return fmt.Errorf("--warmup %v s: use a time from 0s to 10m", o.Warmup)
	case len(o.Planes) < 1:
		return fmt.Errorf("--planes: name at least one")
	}
	given := slices.ContainsFunc(o.Planes, func(p dataplanes.Spec) bool { return p.Kind == results.KindUnderTest })
	if given && o.Latency > 0 {
		return errors.New("--latency: the network behind a URL is not the lab's: use it with planes")
	}
	for _, s := range o.Scenarios {
		for _, kind := range s.Planes {
			if slices.ContainsFunc(o.Planes, func(p dataplanes.Spec) bool { return p.Name == kind && p.Kind != kind }) && !given {
				return fmt.Errorf("plane %s: scenario %s brings a plane of this name: use another one", kind, s.Name)
			}
		}
		if i := slices.IndexFunc(s.Cells, func(c scenario.Cell) bool { return c.Policies > 0 }); i >= 0 && slices.ContainsFunc(o.planes(s), hasWaypoint) {
			return fmt.Errorf("scenario %s cannot be run behind a waypoint: the policies of cell %s admit the client alone, and the server's pods see the waypoint", s.Name, s.Cells[i].Name)
		}
		if why := s.Changes(); why != "" && given {
			return fmt.Errorf("scenario %s cannot be run against a URL: %s", s.Name, why)
		}
	}
	names := map[string]bool{}
	for _, p := range o.Planes {
		if names[p.Name] {
			return fmt.Errorf("plane %s takes part twice already, as its own witness: name it once", p.Name)
		}
		names[p.Name] = true
	}
	return nil
}

// Progress is told what happens; *term.Progress is one.
type Progress interface {
	Start(text string)
	Update(text string)
	Done(text string)
	Warn(text string)
	Abandon()
}

// Stage is what a run happens on.
type Stage struct {
	// Make makes a plane.
	Make     func(dataplanes.Spec) (dataplanes.Plane, error)
	Account  procstat.Reader
	Progress Progress
	// LookPath finds a program, as exec.LookPath does.
	LookPath func(program string) (string, error)
	// Control finds lateen's control plane, for experiments on it alone.
	Control func() (string, error)
	Version string
	Cores   int
	Now     func() time.Time
	// Sleep waits, unless the context ends before.
	Sleep func(context.Context, time.Duration)
}
