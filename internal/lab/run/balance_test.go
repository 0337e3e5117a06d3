package run

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/results"
)

// counting is a plane that can be asked for its workers.
type counting struct {
	dataplanes.Plane
	answer func() (map[string][]float64, error)
	asked  *int // for how many workers it was started
}

func (c counting) Start(ctx context.Context, t dataplanes.Topology, progress func(string)) (dataplanes.Bench, error) {
	b, err := c.Plane.Start(ctx, t, progress)
	*c.asked = t.Workers
	return countingBench{b, c}, err
}

type countingBench struct {
	dataplanes.Bench
	counting
}

func (b countingBench) Workers(context.Context) (map[string][]float64, error) { return b.answer() }

func withWorkers(t *testing.T, text string, answer func(kind string) (map[string][]float64, error)) (*results.Results, int, error) {
	t.Helper()
	_, stage, o := newWorld(t, text)
	make, asked := stage.Make, 0
	stage.Make = func(s dataplanes.Spec) (dataplanes.Plane, error) {
		p, err := make(s)
		return counting{p, func() (map[string][]float64, error) { return answer(s.Kind) }, &asked}, err
	}
	o.Planes = append(o.Planes, dataplanes.Spec{Name: "ztunnel", Kind: results.KindZtunnel})
	doc, err := Run(context.Background(), stage, o)
	return doc, asked, err
}

func unevenly(kind string) (map[string][]float64, error) {
	if kind != results.KindLateen {
		return nil, dataplanes.Uncounted("nobody counts")
	}
	return map[string][]float64{results.Outbound: {1, 31}, results.Inbound: {0, 0}}, nil
}

func TestWorkersAreAskedWhereTheScenarioWantsToKnow(t *testing.T) {
	doc, asked, err := withWorkers(t, smallScenario+"workers: 2\n", unevenly)
	if err != nil {
		t.Fatal(err)
	}
	if asked != 2 {
		t.Errorf("the planes were started with %d workers, want 2", asked)
	}
	out := doc.Scenarios[0]
	for _, b := range out.Cells[0].Blocks {
		_, has := b.Metrics[results.WorkerImbalance(results.Outbound)]
		if has != (b.Plane == "lateen") {
			t.Errorf("%s: workers are known: %v", b.Plane, has)
		}
		if !has {
			continue
		}
		for name, want := range map[string]float64{
			results.WorkerThreads(results.Outbound): 2, results.WorkerConnections(results.Outbound): 32,
			results.WorkerImbalance(results.Outbound): 1.9375, results.WorkerChiSquare(results.Outbound): 28.125,
		} {
			if b.Metrics[name] != want {
				t.Errorf("%s is %v, want %v", name, b.Metrics[name], want)
			}
		}
		if v, has := b.Metrics[results.WorkerImbalance(results.Inbound)]; has {
			t.Errorf("a proxy without connections has an imbalance of %v", v)
		}
	}
	want := []string{
		"every proxy ran 2 workers here, whatever its plane's settings say",
		"ztunnel: how its workers share connections is not known: nobody counts",
	}
	if !slices.Equal(out.Notes, want) {
		t.Errorf("notes %q, want %q", out.Notes, want)
	}
}

func TestWorkersAreNotAskedOtherwise(t *testing.T) {
	doc, asked, err := withWorkers(t, smallScenario, func(string) (map[string][]float64, error) {
		t.Error("asked")
		return nil, nil
	})
	if err != nil || asked != 0 || len(doc.Scenarios[0].Notes) != 0 {
		t.Errorf("%v, %d workers, notes %q", err, asked, doc.Scenarios[0].Notes)
	}
}

func TestAPlaneThatDoesNotAnswerEndsTheScenario(t *testing.T) {
	doc, _, err := withWorkers(t, smallScenario+"workers: 2\n", func(string) (map[string][]float64, error) {
		return nil, errors.New("no answer")
	})
	if err != nil || !strings.Contains(doc.Scenarios[0].Failed, "ask for the workers' connections: no answer") {
		t.Errorf("%v, failed %q", err, doc.Scenarios[0].Failed)
	}
}
