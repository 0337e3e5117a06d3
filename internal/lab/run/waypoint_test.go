package run

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

func TestAScenarioBringsItsWaypointWhichIsComparedWithLateen(t *testing.T) {
	_, stage, o := newWorld(t, smallScenario+"planes: [waypoint]\nwitnesses: [lateen]\n")
	doc, err := Run(context.Background(), stage, o)
	if err != nil {
		t.Fatal(err)
	}
	var judged []string
	for _, v := range doc.Scenarios[0].Cells[0].Verdicts {
		judged = append(judged, fmt.Sprintf("%s/%s", v.Plane, v.Baseline))
	}
	slices.Sort(judged)
	if want := []string{"lateen-2/lateen", "lateen/none", "waypoint/lateen", "waypoint/none"}; !slices.Equal(judged, want) {
		t.Errorf("compared %v, want %v", judged, want)
	}
}

func TestAWaypointIsNotComparedTwice(t *testing.T) {
	blocks := []results.Block{{Plane: "lateen"}, {Plane: "waypoint"}}
	specs := []dataplanes.Spec{{Name: "lateen", Kind: results.KindLateen}, {Name: "waypoint", Kind: results.KindWaypoint}}
	list := comparisons(specs, []string{"lateen"}, nil, blocks)
	if len(list) != 1 || list[0].baseline != "lateen" || !slices.Equal(list[0].planes, []string{"waypoint"}) {
		t.Errorf("got %+v", list)
	}
}

func TestAnEnvoyInTheWaypointsPlaceIsComparedWithBoth(t *testing.T) {
	specs := []dataplanes.Spec{
		{Name: "none", Kind: results.KindNone}, {Name: "lateen", Kind: results.KindLateen}, {Name: "envoy-waypoint", Kind: results.KindEnvoyWaypoint}, {Name: "waypoint", Kind: results.KindWaypoint},
	}
	blocks := []results.Block{{Plane: "none"}, {Plane: "lateen"}, {Plane: "envoy-waypoint"}, {Plane: "waypoint"}}
	var got []string
	for _, c := range comparisons(specs, []string{"lateen"}, nil, blocks) {
		for _, plane := range c.planes {
			got = append(got, plane+"/"+c.baseline)
		}
	}
	want := []string{"lateen/none", "envoy-waypoint/none", "waypoint/none", "envoy-waypoint/lateen", "waypoint/lateen", "waypoint/envoy-waypoint"}
	if !slices.Equal(got, want) {
		t.Errorf("compared %v, want %v", got, want)
	}
	// Without a waypoint of lateen's there is nothing to compare it with but lateen.
	for _, c := range comparisons(specs, []string{"lateen"}, nil, blocks[:3]) {
		if c.baseline == "envoy-waypoint" {
			t.Errorf("compared %v with it", c.planes)
		}
	}
}

func TestPlanesThatAScenarioBringsAreThereOnce(t *testing.T) {
	_, _, o := newWorld(t, smallScenario+"planes: [waypoint]\n")
	sc := o.Scenarios[0]
	o.Planes = append(o.Planes, dataplanes.Spec{Name: "ways", Kind: results.KindWaypoint})
	if got := o.planes(sc); len(got) != 3 {
		t.Errorf("a waypoint that the run names: %+v", got)
	}
	o.Planes = []dataplanes.Spec{{Name: "a", Kind: results.KindUnderTest}}
	if got := o.planes(sc); len(got) != 1 || o.Validate() != nil {
		t.Errorf("beside a URL: %+v, %v", got, o.Validate())
	}
	o.Planes = []dataplanes.Spec{{Name: "waypoint", Kind: results.KindLateen}}
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "plane waypoint: scenario small brings a plane of this name") {
		t.Errorf("another plane of the name: %v", err)
	}
}

// The pods would refuse the waypoint, and every block would fail.
func TestPoliciesForTheClientAloneAreRefusedBehindAWaypoint(t *testing.T) {
	_, _, o := newWorld(t, oneCell(", policies: 1"))
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	without := o.Planes
	for _, kind := range []string{results.KindWaypoint, results.KindEnvoyWaypoint} {
		o.Planes = append(slices.Clone(without), dataplanes.Spec{Name: kind, Kind: kind})
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "scenario small cannot be run behind a waypoint: the policies of cell a") {
			t.Errorf("%s: got %v", kind, err)
		}
	}
}

// Answers of another status are other work: their cost and time are no numbers of the plane.
func TestAFailedRequestVoidsItsBlock(t *testing.T) {
	one := strings.NewReplacer(`"ok":5000,"failed":0`, `"ok":4999,"failed":1`, `"errors":{}`, `"errors":{"status_403":1}`, `"warmup_errors":{}`, `"warmup_errors":{"status_503":2}`).Replace(answered(1))
	for _, strict := range []bool{true, false} {
		w, stage, o := newWorld(t, oneCell("")+fmt.Sprintf("onlyOK: %v\n", strict))
		w.answer = func(plane string, _ int) (string, error) {
			if plane == "lateen" {
				return one, nil
			}
			return answered(1), nil
		}
		doc, err := Run(context.Background(), stage, o)
		if err != nil {
			t.Fatal(err)
		}
		s := doc.Scenarios[0]
		for _, b := range s.Cells[0].Blocks {
			if void := len(b.Metrics) == 0 && b.Histogram == "" && len(b.Failed) == 1; void != (strict && b.Plane == "lateen") {
				t.Errorf("strict %v, %s: failed %q, metrics %v", strict, b.Plane, b.Failed, b.Metrics)
			}
		}
		if said := strings.Contains(strings.Join(s.Failures, ""), "not every request was answered with 200: 1 status_403, 2 status_503"); said != strict {
			t.Errorf("strict %v: failures %q", strict, s.Failures)
		}
	}
}

// idle starts a process that does nothing, and returns its pid. It has answered once, so that its memory does not change any more.
func idle(t *testing.T) int {
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return child.Process.Pid
}

func TestAWaypointIsChargedToTheProxiesAndByItself(t *testing.T) {
	s := &session{Stage: Stage{Account: procstat.Host()}, doc: &results.Results{}}
	node, way := idle(t), idle(t)
	processes := []dataplanes.Process{{Role: results.RoleProxies, PID: node}, {Role: results.RoleProxies, Part: results.RoleWaypoint, PID: way}}
	ms := time.Millisecond
	before := sample{used: map[int]procstat.Usage{node: {}, way: {}}}
	after := sample{used: map[int]procstat.Usage{node: {CPU: 2 * ms, User: 1 * ms, System: 1 * ms}, way: {CPU: 3 * ms, User: 1 * ms, System: 2 * ms}}}
	var r report
	r.Counts.OK = 10
	b := results.Block{Metrics: map[string]float64{}}
	if err := s.charge(&b, before, after, nil, processes, r); err != nil {
		t.Fatal(err)
	}
	for role, want := range map[string]float64{results.RoleProxies: 500, results.RoleWaypoint: 300, results.RoleAll: 500} {
		if got := b.Metrics[results.CPUPerRequest(role, "total")]; got != want {
			t.Errorf("%s: got %v µs, want %v", role, got, want)
		}
	}
	if b.Split[results.RoleWaypoint] != [2]float64{0.001, 0.002} || b.Split[results.RoleAll] != [2]float64{0.002, 0.003} {
		t.Errorf("split %v", b.Split)
	}
	if own, all := b.Metrics[results.PSS(results.RoleWaypoint)], b.Metrics[results.PSS(results.RoleProxies)]; own <= 0 || own >= all {
		t.Errorf("memory: %v MiB of %v", own, all)
	}
	// Nothing is said of a waypoint that has ended, nor of the proxies that it was one of.
	delete(after.used, way)
	b.Metrics = map[string]float64{}
	if err := s.charge(&b, before, after, nil, processes, r); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{results.RoleProxies, results.RoleWaypoint, results.RoleAll} {
		if got, ok := b.Metrics[results.CPUPerRequest(role, "total")]; ok {
			t.Errorf("%s: got %v µs", role, got)
		}
	}
}

// policyBench notes what is applied and deleted.
type policyBench struct {
	dataplanes.Bench
	plane string
	noted *[]string
}

func (b policyBench) note(what string, documents []api.Document) error {
	for _, d := range documents {
		*b.noted = append(*b.noted, fmt.Sprintf("%s: %s %d deny, %d allow", b.plane, what, strings.Count(string(d.Data), "action: DENY"), strings.Count(string(d.Data), "action: ALLOW")))
	}
	return nil
}

func (b policyBench) Apply(_ context.Context, documents []api.Document) error {
	return b.note("apply", documents)
}

func (b policyBench) Delete(_ context.Context, documents []api.Document) error {
	return b.note("delete", documents)
}

func TestPoliciesOfRequestsAreThoseOfTheCellOnWaypointsAlone(t *testing.T) {
	cells := `[{name: a}, {name: b, requestPolicies: {deny: 3}}, {name: c, scale: {echo: 1}, requestPolicies: {deny: 3}}, {name: d, requestPolicies: {allow: 2}}, {name: e}]`
	_, stage, o := newWorld(t, strings.Replace(smallScenario, "[{name: a}, {name: b}]", cells, 1)+"planes: [waypoint]\nwitnesses: [lateen]\n")
	o.Rounds = 1
	var noted []string
	plain := stage.Make
	stage.Make = func(s dataplanes.Spec) (dataplanes.Plane, error) {
		p, err := plain(s)
		return wrapped{p, func(b dataplanes.Bench) dataplanes.Bench { return policyBench{b, s.Name, &noted} }}, err
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	doc, err := Run(context.Background(), stage, o)
	if err != nil || doc.Scenarios[0].Failed != "" {
		t.Fatal(err, doc.Scenarios[0].Failed)
	}
	want := []string{"waypoint: apply 3 deny, 0 allow", "waypoint: delete 3 deny, 0 allow", "waypoint: apply 0 deny, 2 allow", "waypoint: delete 0 deny, 2 allow"}
	if !slices.Equal(noted, want) {
		t.Errorf("got %q, want %q", noted, want)
	}
}

// Envoy looks at policies by name. If an earlier one admitted the load, the cost of those behind it would not be in the numbers.
func TestTheLastPolicyOfRequestsAloneAdmitsTheLoad(t *testing.T) {
	parts := strings.Split(string(requestPolicies(scenario.RequestPolicies{Deny: 1, Allow: 3}).Data), "---\n")[1:]
	var names []string
	for i, part := range parts {
		_, name, _ := strings.Cut(part, "{name: ")
		name, _, _ = strings.Cut(name, "}")
		names = append(names, name)
		if admits := strings.Contains(part, "sa/client]"); admits != (i == 3) {
			t.Errorf("%s admits the load: %v", name, admits)
		}
	}
	if allowed := names[1:]; len(parts) != 4 || !slices.IsSorted(allowed) || !strings.Contains(parts[0], `paths: ["/private-1/*"]`) {
		t.Errorf("policies %q", names)
	}
	if d := requestPolicies(scenario.RequestPolicies{}); len(d.Data) != 0 {
		t.Errorf("without policies there is %s", d.Data)
	}
}
