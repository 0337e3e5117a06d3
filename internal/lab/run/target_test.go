package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

func TestVariantsAreComparedWithLateenAsItIs(t *testing.T) {
	w, stage, o := newWorld(t, smallScenario+"variants: [{name: quiet, proxyEnv: [A=b]}]\n")
	answer := w.answer
	w.answer = func(plane string, n int) (string, error) {
		if plane == "lateen-quiet" {
			return answered(1.5 + float64(n%7)/1000), nil
		}
		return answer(plane, n)
	}
	made := map[string][]string{}
	make := stage.Make
	stage.Make = func(s dataplanes.Spec) (dataplanes.Plane, error) {
		made[s.Name] = s.ProxyEnv
		return make(s)
	}
	doc, err := Run(context.Background(), stage, o)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(made["lateen-quiet"], []string{"A=b"}) || len(made["lateen"]) != 0 {
		t.Errorf("the planes' environments are %v", made)
	}
	var judged []string
	for _, v := range doc.Scenarios[0].Cells[0].Verdicts {
		judged = append(judged, fmt.Sprintf("%s/%s %s", v.Plane, v.Baseline, v.Judgement))
	}
	want := []string{"lateen/none slower", "none-2/none indistinguishable", "lateen-quiet/lateen faster"}
	slices.Sort(judged)
	slices.Sort(want)
	if !slices.Equal(judged, want) {
		t.Errorf("got %v, want %v", judged, want)
	}
}

// aimedBench is a fake that takes load at a URL of its own.
type aimedBench struct {
	dataplanes.Bench
	to string
}

func (a aimedBench) Aim(scenario string) (string, error) { return a.to + scenario, nil }

func TestAPlanesOwnURLTakesTheLoad(t *testing.T) {
	load, err := aimed(running{Bench: aimedBench{to: "at:"}}, scenario.Load{URL: "there", Connections: 3})
	if err != nil || load.URL != "at:there" || load.Connections != 3 {
		t.Errorf("got %+v, %v", load, err)
	}
	if load, err = aimed(running{Bench: &fakeBench{}}, scenario.Load{URL: "there"}); err != nil || load.URL != "there" {
		t.Errorf("got %+v, %v", load, err)
	}
}

// Nothing is charged for what runs somewhere else, and scenarios that change the services are refused.
func TestGivenServicesAreOnlySentLoad(t *testing.T) {
	_, stage, o := newWorld(t, smallScenario+"syscalls: true\n")
	o.Planes = []dataplanes.Spec{{Name: "a", Kind: results.KindUnderTest}, {Name: "b", Kind: results.KindUnderTest}}
	make := stage.Make
	stage.Make = func(s dataplanes.Spec) (dataplanes.Plane, error) {
		p, err := make(s)
		return elsewhere{p}, err
	}
	stage.LookPath = func(program string) (string, error) { t.Errorf("looked for %s", program); return "", nil }
	doc, err := Run(context.Background(), stage, o)
	if err != nil {
		t.Fatal(err)
	}
	out := doc.Scenarios[0]
	if out.Failed != "" || len(out.Notes) != 1 || !strings.Contains(out.Notes[0], "system calls were not counted") {
		t.Errorf("failed %q, notes %q", out.Failed, out.Notes)
	}
	for _, c := range out.Cells {
		if len(c.Blocks) != 18 {
			t.Errorf("%s: %d blocks", c.Name, len(c.Blocks))
		}
		for _, b := range c.Blocks {
			for name := range b.Metrics {
				if strings.HasPrefix(name, "cpu_") || strings.HasPrefix(name, "pss_") {
					t.Fatalf("%s on %s: %s is charged", c.Name, b.Plane, name)
				}
			}
		}
	}
	for _, cells := range []string{"[{name: a, scale: {echo: 2}}]", "[{name: a, policies: 1}]", "[{name: a, requestPolicies: {deny: 1}}]", "[{name: a, kill: {role: proxies, after: 1}}]"} {
		s, err := scenario.Parse("small", []byte(strings.Replace(smallScenario, "[{name: a}, {name: b}]", cells, 1)))
		if err != nil {
			t.Fatal(err)
		}
		o.Scenarios = []*scenario.Scenario{s}
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "cannot be run against a URL: cell a") {
			t.Errorf("%s: %v", cells, err)
		}
	}
}

// elsewhere is a plane whose processes are not known.
type elsewhere struct{ dataplanes.Plane }

func (e elsewhere) Start(ctx context.Context, t dataplanes.Topology, progress func(string)) (dataplanes.Bench, error) {
	b, err := e.Plane.Start(ctx, t, progress)
	return nobody{b}, err
}

type nobody struct{ dataplanes.Bench }

func (nobody) Processes(context.Context) ([]dataplanes.Process, error) { return nil, nil }
func (nobody) Carried(context.Context) (uint64, bool, error)           { return 0, false, nil }
