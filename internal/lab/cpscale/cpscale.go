// Package cpscale measures the control plane at scale: a real lateen-control process over a directory of objects, thousands of node
// proxies that are nothing but their discovery stream, and changes to the objects. It owns the proxies, the objects and the
// measuring; it judges nothing, and there is no data plane in it.
package cpscale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/results"
)

// Size is what the control plane is to carry.
type Size struct {
	// Services and Pods are objects; pods belong to services in turn, and are in the mesh.
	Services int `json:"services"`
	Pods     int `json:"pods"`
	// Proxies are node proxies, each on a node of its own; pods are on the nodes in turn.
	Proxies int `json:"proxies"`
	// Rest is how many seconds are measured without a change.
	Rest float64 `json:"rest"`
	// Rates are changes per second; each is a setting of its own, as long as a block of the scenario.
	Rates []float64 `json:"rates"`
}

// Validate refuses what cannot be measured.
func (s Size) Validate() error {
	switch {
	case s.Services < 1 || s.Services > 50_000:
		return fmt.Errorf("services: %d: use 1 to 50000", s.Services)
	case s.Pods < s.Services || s.Pods > 100_000:
		return fmt.Errorf("pods: %d: use %d, one for each service, to 100000", s.Pods, s.Services)
	case s.Proxies < 1 || s.Proxies > 10_000:
		return fmt.Errorf("proxies: %d: use 1 to 10000", s.Proxies)
	case !(s.Rest >= 1 && s.Rest <= 3600):
		return fmt.Errorf("rest: %v: use 1 to 3600 seconds", s.Rest)
	case len(s.Rates) == 0:
		return errors.New("rates: name the changes per second")
	}
	for i, r := range s.Rates {
		if slices.Contains(s.Rates[:i], r) { // their results would have one name
			return fmt.Errorf("rates: %v is there twice: name each once", r)
		}
		if !(r > 0 && r <= 1000) {
			return fmt.Errorf("rates: %v: use more than 0 and at most 1000 changes per second", r)
		}
	}
	return nil
}

// Options are a measurement.
type Options struct {
	Size
	// Seconds is how long changes are made at each rate.
	Seconds float64
	// Control is the executable of the control plane.
	Control string
	// Kubeconfig, if there is one, names an API server that is filled with the objects instead of a directory; it must be one for measuring.
	Kubeconfig string
	// ControlFlags are given to the control plane besides those that the measurement needs.
	ControlFlags []string
	// Progress is told what is going on.
	Progress func(what string)
	Account  procstat.Reader
	// ExactSplit says that the kernel measures user and system time; otherwise nothing is told of them.
	ExactSplit bool
}

// Promises of the design for 1000 services and 2000 proxies.
const (
	promisedServices = 1000
	promisedProxies  = 2000
	promisedCores    = 0.25
	promisedMB       = 300
	promisedMillis   = 30
)

// Run measures and returns what came out, also if it ends early: then with an error, which is the context's if that ended.
func Run(ctx context.Context, o Options) (_ []results.Fact, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lateen-cp-scale-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m := &measurement{Options: o, plane: results.KindLateen}
	flags := o.ControlFlags
	var token func(i int) (string, error)
	var root func() ([]byte, error)
	if o.Kubeconfig != "" {
		c, err := newCluster(ctx, o.Kubeconfig, o.Size, o.Progress)
		if err != nil {
			return nil, err
		}
		m.next = func() (string, func() error) { return c.next(ctx) }
		token = func(i int) (string, error) { return c.token(ctx, i) }
		root = func() ([]byte, error) { return c.root(ctx) }
		flags = append(flags, "--kube", "--kubeconfig", o.Kubeconfig, "--namespace", proxyNamespace)
	} else {
		o.Progress(fmt.Sprintf("write %d services and %d pods", o.Services, o.Pods))
		w, err := newWorld(filepath.Join(dir, "objects"), o.Size)
		if err != nil {
			return nil, err
		}
		m.next = w.next
		flags = append(flags, "--config-dir", w.dir)
	}
	began := time.Now()
	o.Progress("start the control plane")
	if m.control, err = startControl(ctx, o.Control, dir, flags, root); err != nil {
		return nil, err
	}
	if token != nil {
		m.control.token = token
	}
	defer func() { err = errors.Join(err, m.control.stop()) }()
	m.fact(atStart, "until it serves", time.Since(began).Seconds(), "s", 0, "")
	if err := m.connect(ctx); err != nil {
		return m.facts, err
	}
	defer m.fleet.close()
	if err := m.rest(ctx); err != nil {
		return m.facts, err
	}
	for _, rate := range o.Rates {
		if err := m.churn(ctx, rate); err != nil {
			return m.facts, err
		}
	}
	return m.facts, nil
}
