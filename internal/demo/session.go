package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lateen.dev/lateen/internal/check"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/generator"
	"lateen.dev/lateen/internal/model/wellknown"
)

// session is one run of the demonstration.
type session struct {
	Stage
	options  Options
	results  Results
	acts     int
	traffic  *traffic // running load, from listen to enrol
	enrolled bool
}

// target is a service that load goes to. The rates leave most of two cores idle, so that latency is not a queue's.
type target struct {
	name        string
	url         string
	app         string // the label of its pods
	qps         int
	connections int
}

const (
	demoNamespace = "default"
	clientTarget  = "deploy/client"
	clientApp     = "client"
)

var (
	detailsTarget = target{name: "details", url: "http://details:9080/details/0", app: "details", qps: 100, connections: 10}
	echoTarget    = target{name: "echo", url: "http://echo:8080/?size=1024", app: "echo", qps: 1000, connections: 16}
)

// page is Bookinfo's front, which calls all of the others.
const page = "http://productpage:9080/productpage?u=normal"

// targets are what is measured; the first one also carries the load of the earlier acts.
func (s *session) targets() []target {
	if s.results.StandIn {
		return []target{echoTarget}
	}
	return []target{detailsTarget, echoTarget}
}

// title opens an act.
func (s *session) title(text string) {
	s.acts++
	_, _ = fmt.Fprintf(s.Out, "\n%s\n", s.Style.Bold(fmt.Sprintf("%d. %s", s.acts, text)))
}

func (s *session) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.Out, format+"\n", args...)
}

func (s *session) event(e api.Event) {
	switch e.State {
	case api.EventStarted:
		s.Progress.Start(e.Message)
	case api.EventDone:
		s.Progress.Done(e.Message)
	case api.EventFailed:
		s.Progress.Fail("")
		for _, line := range e.Log {
			s.Progress.Note("    | " + line)
		}
	}
}

// inspect checks the machine first: what is missing is named before anything is started.
func (s *session) inspect(ctx context.Context) error {
	s.title("This machine")
	s.Progress.Start("check what the demonstration needs")
	report := check.Run(ctx, s.System, check.Demo)
	s.results.Checks = report
	s.Progress.Done(fmt.Sprintf("%d checks: %d ok, %d warnings, %d failures", len(report.Results),
		report.Count(check.OK), report.Count(check.Warning), report.Count(check.Failure)))
	for _, r := range report.Results {
		if r.Outcome != check.OK {
			s.say("  %s %s: %s", r.Code, r.Title, r.Cause)
			s.say("    fix: %s", r.Fix)
		}
	}
	if report.Failed() {
		return ErrUnfit
	}
	// A warning in this purpose is an interpreter that Bookinfo needs.
	if report.Count(check.Warning) > 0 {
		s.results.StandIn = true
		s.say("Bookinfo needs all of its four languages, so a compiled echo service stands in for it from here on.")
	}
	return nil
}

// errNotYet is returned by a condition that may still come true.
var errNotYet = errors.New("not yet")

func notYet(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errNotYet, fmt.Sprintf(format, args...))
}

const pollTime = 100 * time.Millisecond

// waitFor tries a condition until it holds. The last reason for waiting is the error when time runs out.
func (s *session) waitFor(ctx context.Context, what string, condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Deadline)
	defer cancel()
	last := errNotYet
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && !errors.Is(err, errNotYet) {
			return fmt.Errorf("%s: %w", what, err)
		}
		if errors.Is(err, errNotYet) {
			last = err
			s.Progress.Update(fmt.Sprintf("%s (%s)", what, strings.TrimPrefix(err.Error(), errNotYet.Error()+": ")))
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%s: gave up after %s: %w", what, s.options.Deadline, last)
			}
			return ctx.Err()
		case <-time.After(pollTime):
		}
	}
}

// pods are the pods of the demonstration in a status.
func pods(status api.Status) []api.PodState {
	return slices.DeleteFunc(slices.Clone(status.Pods), func(p api.PodState) bool {
		return p.HostNetwork || p.Namespace != demoNamespace
	})
}

// pod finds the pod of an app by the name that its Deployment gives it.
func pod(status api.Status, app string) (api.PodState, error) {
	for _, p := range pods(status) {
		if strings.HasPrefix(p.Name, app+"-") {
			return p, nil
		}
	}
	return api.PodState{}, fmt.Errorf("there is no pod of %s", app)
}

// load runs the generator in the client's pod and returns its result.
func (s *session) load(ctx context.Context, l Load) (LoadResult, error) {
	return generator.Run[LoadResult](ctx, func(ctx context.Context, command []string, streams api.Streams) (int, error) {
		return s.Mesh.Exec(ctx, api.ExecRequest{Namespace: demoNamespace, Target: clientTarget, Command: command}, streams)
	}, l.Command())
}

// flows reads the metrics of every node's proxy.
func (s *session) flows(ctx context.Context) ([]Flow, error) {
	status, err := s.Mesh.Status(ctx)
	if err != nil {
		return nil, err
	}
	var pages [][]byte
	for _, node := range status.Nodes {
		metrics, err := s.Mesh.ProxyMetrics(ctx, node.Name)
		if err != nil {
			return nil, fmt.Errorf("read the metrics of the proxy on %s: %w", node.Name, err)
		}
		pages = append(pages, metrics)
	}
	return Flows(pages)
}

// setMesh puts the namespace into the mesh or takes it out, and returns when new connections show the difference.
func (s *session) setMesh(ctx context.Context, on bool) error {
	if err := s.label(ctx, on); err != nil {
		return err
	}
	what := "wait until every pod is out of the mesh"
	if on {
		what = "wait until every pod is in the mesh"
	}
	if err := s.waitFor(ctx, what, func(ctx context.Context) error { return s.captured(ctx, on) }); err != nil {
		return err
	}
	return s.waitFor(ctx, what, func(ctx context.Context) error { return s.effective(ctx, on) })
}

// ambient is the value of the label that enrols a namespace.
const ambient = "ambient"

func (s *session) label(ctx context.Context, on bool) error {
	var mode *string
	if on {
		value := ambient
		mode = &value
	}
	_, err := s.Mesh.Label(ctx, api.Key{Kind: "Namespace", Name: demoNamespace}, map[string]*string{wellknown.DataplaneMode: mode})
	if err != nil {
		return fmt.Errorf("label the namespace: %w", err)
	}
	s.enrolled = on
	return nil
}

func (s *session) captured(ctx context.Context, on bool) error {
	status, err := s.Mesh.Status(ctx)
	if err != nil {
		return err
	}
	list := pods(status)
	done := 0
	reason := ""
	for _, p := range list {
		if p.Redirection == on {
			done++
		} else if p.MeshReason != "" {
			reason = "; " + p.Name + ": " + p.MeshReason
		}
	}
	if done < len(list) {
		return notYet("%d of %d pods%s", done, len(list), reason)
	}
	return nil
}

// effective sends a few requests on new connections and looks at what the destination's proxy counted: configuration
// reaches the proxies a moment after the pods are captured, and a measurement must not begin in between.
func (s *session) effective(ctx context.Context, on bool) error {
	probe := s.targets()[0]
	result, meshed, err := s.countMeshed(ctx, probe, func(ctx context.Context) (LoadResult, error) {
		return s.load(ctx, Load{URL: probe.url, QPS: 20, Connections: 1, Duration: 500 * time.Millisecond, Fresh: true})
	})
	if err != nil {
		return err
	}
	switch {
	case result.Counts.OK == 0:
		return notYet("no answer from %s: %s", probe.name, result.ErrorText())
	case on && meshed < result.Counts.OK:
		return notYet("%d of %d new connections are meshed", meshed, result.Counts.OK)
	case !on && meshed > 0:
		return notYet("%d new connections are still meshed", meshed)
	}
	return nil
}

// countMeshed runs load and counts the connections from the client to the target that were mutually authenticated
// meanwhile.
func (s *session) countMeshed(ctx context.Context, to target, run func(context.Context) (LoadResult, error)) (LoadResult, uint64, error) {
	status, err := s.Mesh.Status(ctx)
	if err != nil {
		return LoadResult{}, 0, err
	}
	client, err := pod(status, clientApp)
	if err != nil {
		return LoadResult{}, 0, err
	}
	server, err := pod(status, to.app)
	if err != nil {
		return LoadResult{}, 0, err
	}
	before, err := s.flows(ctx)
	if err != nil {
		return LoadResult{}, 0, err
	}
	result, err := run(ctx)
	if err != nil {
		return LoadResult{}, 0, err
	}
	after, err := s.flows(ctx)
	if err != nil {
		return LoadResult{}, 0, err
	}
	return result, Meshed(after, client.Identity, server.Identity) - Meshed(before, client.Identity, server.Identity), nil
}
