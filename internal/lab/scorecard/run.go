package scorecard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/demo"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

const namespace = "default"

// Progress is told what happens.
type Progress interface {
	Start(text string)
	Done(text string)
	Abandon()
}

// Stage is what the measuring happens on.
type Stage struct {
	// Up starts a mesh of two nodes; certTTL is how long workload certificates live, 0 for the usual time.
	Up func(ctx context.Context, mesh string, certTTL time.Duration) error
	// Down ends it.
	Down func(ctx context.Context, mesh string) error
	// Client is a mesh's API.
	Client func(mesh string) *api.Client
	// Mesh begins the names of the meshes.
	Mesh string
	// Application is a client and a server, deployments client and echo.
	Application []api.Document
	Progress    Progress
	// Load is how long requests are made around each event.
	Load time.Duration
}

// Bounds of Stage.Load.
const (
	LeastLoad = 3 * time.Second
	MostLoad  = 10 * time.Minute
)

// session is one measuring.
type session struct {
	Stage
	client *api.Client
	card   *Card
}

const (
	// patience is how long anything may take to come about.
	patience = 2 * time.Minute
	pollTime = 50 * time.Millisecond
	// shortTTL is the life of certificates where their renewal is watched, rotationLoad how long requests are made meanwhile.
	shortTTL     = 5 * time.Second
	rotationLoad = 20 * time.Second
)

func (s *session) add(r Row) { s.card.Rows = append(s.card.Rows, r) }

// Run fills a card. It returns an error with what was measured until then; whatever happens, its meshes are taken down.
func Run(ctx context.Context, stage Stage, card *Card) error {
	s := &session{Stage: stage, card: card}
	err := s.with(ctx, stage.Mesh, 0, func(ctx context.Context) error {
		for _, step := range []func(context.Context) error{s.join, s.upgrade, s.failures, s.leave} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = s.with(ctx, stage.Mesh+"-ca", shortTTL, s.rotate)
	}
	s.Progress.Abandon()
	slices.SortStableFunc(card.Rows, func(a, b Row) int { return slices.Index(areas, a.Area) - slices.Index(areas, b.Area) })
	if err != nil {
		card.Failed = err.Error()
	}
	return err
}

// with starts a mesh with the application, does something with it, and takes it down.
func (s *session) with(ctx context.Context, mesh string, certTTL time.Duration, act func(ctx context.Context) error) (err error) {
	s.client = s.Client(mesh)
	s.Progress.Start("start a mesh")
	defer func() {
		if err != nil {
			s.Progress.Abandon() // what was under way has not come to its end
		}
		s.Progress.Start("take the mesh down")
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		down := s.Down(ctx, mesh)
		if errors.Is(down, api.ErrNotRunning) && err != nil {
			down = nil // it never came up
		}
		if err = errors.Join(err, down); err == nil && certTTL == 0 {
			s.add(Row{Area: AreaLeaving, Criterion: "the mesh is gone, and all that it brought", Value: time.Since(began).Seconds(), Unit: "s", Commands: []string{"lateen down"}})
		}
		s.Progress.Abandon()
	}()
	began := time.Now()
	if err := s.Up(ctx, mesh, certTTL); err != nil {
		return err
	}
	if certTTL == 0 {
		s.add(Row{Area: AreaDeployment, Criterion: "until the mesh is there: two nodes with control plane, agents and proxies", Value: time.Since(began).Seconds(), Unit: "s", Commands: []string{commandUp}})
	}
	s.Progress.Start("start the application")
	result, err := s.client.Apply(ctx, api.ApplyRequest{Documents: s.Application})
	if err != nil {
		return fmt.Errorf("apply the application: %w", err)
	}
	for _, p := range result.Problems {
		if p.Refused() {
			return fmt.Errorf("apply the application: %s", p)
		}
	}
	if err := s.until(ctx, "the application", func(ctx context.Context) (bool, error) {
		st, err := s.client.Status(ctx)
		if err != nil {
			return false, err
		}
		pods := application(st)
		for _, p := range pods {
			if !p.Ready {
				return false, fmt.Errorf("pod %s: %s %s", p.Name, p.Phase, p.Reason)
			}
		}
		return len(pods) >= applicationPods, nil
	}); err != nil {
		return err
	}
	return act(ctx)
}

const (
	commandUp    = "lateen up"
	commandLabel = "lateen label namespace default " + wellknown.DataplaneMode + "=ambient"
)

func every[T any](list []T, holds func(T) bool) bool {
	for _, v := range list {
		if !holds(v) {
			return false
		}
	}
	return true
}

// wait looks at the mesh's status until it is as it should be.
func (s *session) wait(ctx context.Context, what string, reached func(api.Status) bool) error {
	return s.until(ctx, what, func(ctx context.Context) (bool, error) {
		st, err := s.client.Status(ctx)
		return err == nil && reached(st), err
	})
}

func (s *session) until(ctx context.Context, what string, reached func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ok, err := reached(ctx)
		if ok {
			return nil
		}
		if pause(ctx, pollTime) != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return errors.Join(fmt.Errorf("gave up waiting for %s after %s", what, patience), err)
			}
			return ctx.Err()
		}
	}
}

// known says whether every proxy has what the control plane has.
func known(st api.Status) bool {
	return st.Control.Ready && every(st.Nodes, func(n api.NodeState) bool { return n.Proxy.Ready && n.Proxy.AckedGeneration >= st.Control.Generation })
}

// applicationPods is how many the application has: a client and a server.
const applicationPods = 2

// application are its pods.
func application(st api.Status) []api.PodState {
	return slices.DeleteFunc(slices.Clone(st.Pods), func(p api.PodState) bool { return p.Namespace != namespace || p.HostNetwork })
}

func captured(st api.Status) bool {
	return every(application(st), func(p api.PodState) bool { return p.Redirection })
}

func (s *session) label(ctx context.Context, value *string) error {
	_, err := s.client.Label(ctx, api.Key{Kind: "Namespace", Name: namespace}, map[string]*string{wellknown.DataplaneMode: value})
	return err
}

// encrypted is how many connections between pods the destinations' proxies have verified by mutual TLS.
func (s *session) encrypted(ctx context.Context) (uint64, error) {
	st, err := s.client.Status(ctx)
	if err != nil {
		return 0, err
	}
	var pages [][]byte
	for _, n := range st.Nodes {
		page, err := s.client.ProxyMetrics(ctx, n.Name)
		if err != nil {
			return 0, err
		}
		pages = append(pages, page)
	}
	flows, err := demo.Flows(pages)
	if err != nil {
		return 0, err
	}
	n := uint64(0)
	for _, f := range flows {
		if f.MutualTLS {
			n += f.Connections
		}
	}
	return n, nil
}

// process names one for good.
type process struct {
	pid      int
	start    uint64
	restarts int
}

// processes are the application's.
func (s *session) processes(ctx context.Context) (map[string]process, error) {
	st, err := s.client.Status(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]process{}
	for _, p := range application(st) {
		for _, c := range p.Containers {
			all[p.Name+"/"+c.Name] = process{c.PID, c.StartTime, c.Restarts}
		}
	}
	return all, nil
}

// restarts notes how many of the application's processes are not the same as before.
func (s *session) restarts(ctx context.Context, area, what string, before map[string]process) error {
	after, err := s.processes(ctx)
	if err != nil {
		return err
	}
	n := 0
	for name, was := range before {
		if after[name] != was {
			n++
		}
	}
	s.add(Row{Area: area, Criterion: "processes of the application restarted by " + what, Value: float64(n), Of: uint64(len(before)), Unit: "processes"})
	return nil
}

// kill ends a process of the mesh the hard way.
func kill(p api.Process) error {
	if p.PID == 0 {
		return errors.New("it does not run")
	}
	return syscall.Kill(p.PID, syscall.SIGKILL)
}
