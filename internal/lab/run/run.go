package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

// session is one run.
type session struct {
	Stage
	options         Options
	doc             *results.Results
	self            int
	seconds, warmup float64                         // of the scenario under way
	workers         int                             // likewise; 0 if nobody asks
	onlyOK          bool                            // likewise: a failed request voids its block
	uncounted       []string                        // what planes said when asked for their workers
	running         []running                       // its planes
	known           map[string][]dataplanes.Process // that are to live on, by plane
	strength        map[string]int                  // how many there were of a plane
	inForce         api.Document                    // policies of requests that are in force on planes with a waypoint
	missed          map[string][]string             // what ended of a plane and stands in no block of it yet
	blocks          int                             // so far in the scenario
	plan            remaining                       // what is left to do
}

// Run carries the scenarios out and returns what was measured, also when it ends early: interrupted, the document says so and
// the error is the context's. Whatever happens, every plane is taken down.
func Run(ctx context.Context, stage Stage, options Options) (*results.Results, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	facts := stage.Account.Facts()
	s := &session{Stage: stage, options: options, self: os.Getpid(), doc: &results.Results{
		Format: results.Format, Command: options.Command, Started: stage.Now(), Gates: options.Gates, AddedLatencyMS: float64(options.Latency) / float64(time.Millisecond),
		Machine: results.Machine{
			Kernel: facts.Kernel, CPU: facts.CPU, Cores: stage.Cores, MemoryMiB: facts.MemoryMiB, CongestionControl: facts.CongestionControl,
			Accounting: "CPU clocks of the processes; user and system by ticks", ExactSplit: stage.Account.ExactSplit(), Lateen: stage.Version,
		},
	}}
	if s.doc.Machine.ExactSplit {
		s.doc.Machine.Accounting = "CPU clocks of the processes; user and system measured"
	}
	var names []string
	for _, sc := range options.Scenarios {
		names = append(names, sc.Name)
	}
	s.doc.Name = strings.Join(names, "+")
	// A file that cannot be written is said before an hour of measuring, not after it.
	if err := s.write(); err != nil {
		return nil, err
	}
	var err error
	for _, sc := range options.Scenarios {
		if err = s.scenario(ctx, sc); err != nil {
			break
		}
	}
	s.Progress.Abandon()
	s.doc.Interrupted = ctx.Err() != nil
	return s.doc, errors.Join(err, s.write())
}

func (s *session) write() error {
	s.doc.Ended = s.Now()
	return s.doc.Write(s.options.File)
}

// scenario carries one out. An error ends the run; what only this scenario fails of is in its outcome.
func (s *session) scenario(ctx context.Context, sc *scenario.Scenario) error {
	s.doc.Scenarios = append(s.doc.Scenarios, results.Outcome{
		Scenario: sc.Name, Title: sc.Title, Answers: sc.Answers, NotValid: slices.Clone(sc.NotValid), Cells: []results.Cell{},
	})
	out := &s.doc.Scenarios[len(s.doc.Scenarios)-1]
	if s.options.Latency > 0 {
		out.NotValid = append(out.NotValid, fmt.Sprintf("%s were added to every round trip between nodes by a program on this machine, which takes CPU time for each packet (in no role's account)", s.options.Latency))
	}
	s.blocks, s.workers, s.onlyOK, s.uncounted, s.inForce = 0, sc.Workers, sc.OnlyOK, nil, api.Document{}
	s.seconds, s.warmup = s.options.measures(sc)
	_, cells, _ := s.options.equipped(sc, s.LookPath)
	s.plan.begin(s.options.steps(sc, cells, len(s.options.specs(sc)), s.options.traces(sc, s.LookPath)), s.after(sc), s.Now())
	s.missed = map[string][]string{}
	s.forget()
	err := s.play(ctx, sc, out)
	if ctx.Err() == nil && err == nil {
		err = s.attend(ctx)
	}
	// The context may be the reason for ending; taking down must not stop for it.
	down := s.takeDown(context.WithoutCancel(ctx))
	s.judge(sc, out)
	for _, plane := range slices.Sorted(maps.Keys(s.missed)) {
		out.Failures = append(out.Failures, plane+": "+strings.Join(s.missed[plane], "; "))
	}
	if err != nil && ctx.Err() == nil {
		out.Failed = err.Error()
		s.Progress.Warn(sc.Name + " ended early: " + err.Error())
		err = nil
	}
	return errors.Join(err, down, s.write())
}

func (s *session) play(ctx context.Context, sc *scenario.Scenario, out *results.Outcome) error {
	if sc.Control != nil {
		return s.control(ctx, sc, out)
	}
	parts, cells := s.equip(sc, out)
	if len(cells) == 0 {
		return errors.New("no cell is left: " + strings.Join(out.Notes, "; "))
	}
	var documents []api.Document
	for _, part := range parts {
		if s.options.given() {
			break // the services are there already
		}
		d, err := scenario.Documents(part, s.options.Samples)
		if err != nil {
			return err
		}
		documents = append(documents, d...)
	}
	topology := dataplanes.Topology{Nodes: 2, Documents: documents, Generator: scenario.Generator, ProxyEnv: sc.ProxyEnv, Workers: sc.Workers, Latency: s.options.Latency}
	if err := s.bringUp(ctx, sc, topology, out); err != nil {
		return err
	}
	if err := s.alike(ctx, sc); err != nil {
		return err
	}
	for _, c := range cells {
		load := sc.Load.With(c.Load)
		out.Cells = append(out.Cells, results.Cell{Name: c.Name, Params: c.Params, Load: described(load, s.seconds, s.warmup), Blocks: []results.Block{}})
	}
	s.plan.replan(s.options.steps(sc, cells, len(s.running), s.options.traces(sc, s.LookPath)))
	for _, group := range groups(cells) {
		if err := s.prepare(ctx, cells[group[0]]); err != nil {
			return err
		}
		s.plan.done(stepPrepare, s.Now())
		if err := s.measureGroup(ctx, sc, cells, group, out); err != nil {
			return err
		}
	}
	if sc.Syscalls && s.options.given() {
		out.Notes = append(out.Notes, "system calls were not counted: the processes behind a URL are not the lab's")
	} else if sc.Syscalls {
		return s.trace(ctx, sc, cells, out)
	}
	return nil
}

func sameScale(a, b map[string]int) bool {
	if len(a) != len(b) {
		return false
	}
	for name, n := range a {
		if m, ok := b[name]; !ok || m != n {
			return false
		}
	}
	return true
}

// equip leaves out what this machine lacks the programs for, and says so in the outcome.
func (s *session) equip(sc *scenario.Scenario, out *results.Outcome) (parts []string, cells []scenario.Cell) {
	parts, cells, notes := s.options.equipped(sc, s.LookPath)
	out.Notes = append(out.Notes, notes...)
	for _, note := range notes {
		s.Progress.Warn(sc.Name + ": " + note)
	}
	return parts, cells
}

// bringUp starts a scenario's planes, one after the other. A plane that cannot run here is named in the document; one that fails
// to start is a failure, and ends the scenario only if nothing is left to compare with.
func (s *session) bringUp(ctx context.Context, sc *scenario.Scenario, topology dataplanes.Topology, out *results.Outcome) error {
	for _, spec := range s.options.specs(sc) {
		plane, err := s.Make(spec)
		if err != nil {
			return err
		}
		if plane.Describe().NotRun != "" {
			s.know(plane.Describe())
			s.Progress.Warn(fmt.Sprintf("%s: %s is not run: %s", sc.Name, spec.Name, plane.Describe().NotRun))
			continue
		}
		what := sc.Name + ": " + spec.Name
		s.Progress.Start(what + s.left())
		started, err := plane.Start(ctx, topology, func(step string) { s.Progress.Update(what + ": " + step + s.left()) })
		s.plan.done(stepStart, s.Now())
		if ctx.Err() != nil {
			if started != nil {
				s.running = append(s.running, running{plane.Describe(), started})
			}
			return ctx.Err()
		}
		if err != nil {
			s.Progress.Abandon()
			s.know(plane.Describe())
			if spec.Name == s.options.Planes[0].Name {
				return fmt.Errorf("%s could not be started: %w", spec.Name, err)
			}
			s.Progress.Warn(what + " could not be started: " + err.Error())
			out.Failures = append(out.Failures, fmt.Sprintf("%s could not be started: %v", spec.Name, err))
			continue
		}
		s.Progress.Done(what + " is up")
		s.know(plane.Describe())
		s.running = append(s.running, running{plane.Describe(), started})
	}
	return nil
}

// know adds a plane to the document, or brings what it has up to date.
func (s *session) know(p results.Plane) {
	i := slices.IndexFunc(s.doc.Planes, func(known results.Plane) bool { return known.Name == p.Name })
	if i < 0 {
		s.doc.Planes = append(s.doc.Planes, p)
		return
	}
	s.doc.Planes[i] = p
}

// takeDown ends all planes at the same time: after an interrupt, somebody waits for it.
func (s *session) takeDown(ctx context.Context) error {
	if len(s.running) == 0 {
		return nil
	}
	names := make([]string, len(s.running))
	for i, on := range s.running {
		names[i] = on.about.Name
	}
	s.Progress.Abandon() // an activity that still runs was interrupted, and the next one would show it as done
	s.Progress.Start("take down " + strings.Join(names, ", "))
	errs := make([]error, len(s.running))
	var ending sync.WaitGroup
	for i, on := range s.running {
		ending.Go(func() { errs[i] = on.Down(ctx) })
	}
	ending.Wait()
	s.Progress.Abandon()
	s.running = nil
	return errors.Join(errs...)
}

// prepare brings the services of every plane into a cell's state.
func (s *session) prepare(ctx context.Context, c scenario.Cell) error {
	if err := s.attend(ctx); err != nil {
		return err
	}
	before := s.inForce
	s.inForce = requestPolicies(c.RequestPolicies)
	if len(c.Scale) > 0 || c.Policies > 0 || !bytes.Equal(before.Data, s.inForce.Data) {
		s.forget() // pods that are scaled away are not missed, nor proxies that start anew with other policies
	}
	for _, on := range s.running {
		for deployment, n := range c.Scale {
			s.Progress.Update(fmt.Sprintf("%s: scale %s to %d", on.about.Name, deployment, n))
			if err := on.Scale(ctx, deployment, n); err != nil {
				return err
			}
		}
		if c.Policies > 0 {
			s.Progress.Update(fmt.Sprintf("%s: apply %d policies", on.about.Name, c.Policies))
			if err := on.Apply(ctx, []api.Document{policies(c.Policies)}); err != nil {
				return err
			}
		}
		if bytes.Equal(before.Data, s.inForce.Data) || !hasWaypoint(dataplanes.Spec{Kind: on.about.Kind}) {
			continue
		}
		s.Progress.Update(on.about.Name + ": change the policies of requests")
		if len(before.Data) > 0 {
			if err := on.Delete(ctx, []api.Document{before}); err != nil {
				return err
			}
		}
		if len(s.inForce.Data) > 0 {
			if err := on.Apply(ctx, []api.Document{s.inForce}); err != nil {
				return err
			}
		}
	}
	return nil
}

// requestPolicies are authorization policies that a waypoint decides by about requests to echo. The one that admits the load is the last by
// name, since Envoy looks at them in that order.
func requestPolicies(p scenario.RequestPolicies) api.Document {
	var text strings.Builder
	one := func(name, action, rule string) {
		fmt.Fprintf(&text, `---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: %s}
spec:
  targetRefs: [{kind: Service, group: "", name: echo}]
  action: %s
  rules: [%s]
`, name, action, rule)
	}
	for i := 1; i <= p.Deny; i++ {
		one(fmt.Sprintf("lab-deny-%06d", i), "DENY", fmt.Sprintf(`{to: [{operation: {paths: ["/private-%d/*"]}}]}`, i))
	}
	for i := 1; i <= p.Allow; i++ {
		account := fmt.Sprintf("nobody-%d", i)
		if i == p.Allow {
			account = "client"
		}
		one(fmt.Sprintf("lab-allow-%06d", i), "ALLOW", fmt.Sprintf(`{from: [{source: {principals: [cluster.local/ns/default/sa/%s]}}]}`, account))
	}
	return api.Document{File: "request-policies.yaml", Data: []byte(text.String())}
}

// policies are n authorization policies for the server, of which the last one admits the generator: the last by name too, for
// Envoy looks at them in that order.
func policies(n int) api.Document {
	var text strings.Builder
	for i := 1; i <= n; i++ {
		account := fmt.Sprintf("nobody-%d", i)
		if i == n {
			account = "client"
		}
		fmt.Fprintf(&text, `---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: lab-%06d}
spec:
  selector: {matchLabels: {app: echo}}
  action: ALLOW
  rules: [{from: [{source: {principals: [cluster.local/ns/default/sa/%s]}}], to: [{operation: {ports: ["8080"]}}]}]
`, i, account)
	}
	return api.Document{File: "policies.yaml", Data: []byte(text.String())}
}

// plural is a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
