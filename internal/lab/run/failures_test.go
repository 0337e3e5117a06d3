package run

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

// oneCell is a scenario whose only cell has further settings.
func oneCell(more string) string {
	return strings.Replace(smallScenario, "[{name: a}, {name: b}]", "[{name: a"+more+"}]", 1)
}

// failed is a report of which a twentieth failed.
func failed() string {
	return strings.NewReplacer(`"ok":5000,"failed":0`, `"ok":4750,"failed":250`, `"achieved_qps":1000`, `"achieved_qps":950`, `"errors":{}`, `"errors":{"status_503":250}`).Replace(answered(1))
}

// slow is a report of a service whose connections were busy.
func slow() string {
	return strings.NewReplacer(`"unsent":0`, `"unsent":2500`, `"ok":5000`, `"ok":2500`, `"achieved_qps":1000`, `"achieved_qps":500`).Replace(answered(900))
}

// silent is a report without an answer.
func silent() string {
	return `{"format":"lateen-load/1","measured_s":5,"counts":{"intended":5000,"ok":0,"failed":5000},"rates":{"wanted_qps":1000},"errors":{"timeout":5000}}`
}

func TestWhatAPlaneDoesNeverRejectsItsBlocks(t *testing.T) {
	for name, tt := range map[string]struct{ report, says, judged string }{
		"failures": {failed(), "5 % of the requests failed: 1500 status_503", "5 % of the requests failed with lateen"},
		"slowness": {slow(), "the server fell behind: 50 % of requests started on schedule", ""},
		"refusal":  {"", "failed in 6 of 6 blocks: the load generator printed no result", "lateen failed in 6 blocks"},
		"silence":  {silent(), "failed in 6 of 6 blocks: no request was answered: 5000 timeout", "lateen failed in 6 blocks"},
	} {
		w, stage, o := newWorld(t, oneCell(""))
		w.answer = func(plane string, _ int) (string, error) {
			if plane == "lateen" {
				return tt.report, nil
			}
			return answered(1), nil
		}
		doc, err := Run(context.Background(), stage, o)
		if err != nil {
			t.Fatal(err)
		}
		s := doc.Scenarios[0]
		if blocks, rejected := Rejected(doc); blocks != 18 || rejected != 0 {
			t.Errorf("%s: %d blocks, %d rejected", name, blocks, rejected)
		}
		if len(s.Failures) == 0 || !strings.HasPrefix(s.Failures[0], "a, lateen: ") || !strings.Contains(s.Failures[0], tt.says) {
			t.Errorf("%s: failures %q", name, s.Failures)
		}
		i := slices.IndexFunc(s.Cells[0].Verdicts, func(v results.Verdict) bool { return v.Plane == "lateen" })
		if v := s.Cells[0].Verdicts[i]; !strings.Contains(v.Why, tt.judged) || (v.Judgement == results.Failed) != (name == "silence" || name == "refusal") {
			t.Errorf("%s: %s, %q", name, v.Judgement, v.Why)
		}
		_, once, _ := strings.Cut(tt.says, ": ") // not in each verdict as well
		var out bytes.Buffer
		if err := Summary(&out, doc, 0); err != nil || !strings.Contains(out.String(), "failed: "+s.Failures[0]) || once != "" && strings.Count(out.String(), once) != 1 {
			t.Errorf("%s: %v, the summary is\n%s", name, err, out.String())
		}
	}
}

// Whatever spoils a block's times: that requests failed in it, or that something broke, is said.
func TestWhatFailedInRejectedBlocksIsSaid(t *testing.T) {
	s := &session{doc: &results.Results{Planes: []results.Plane{{Name: "none"}, {Name: "lateen"}}}}
	spoilt := []string{"share stolen by the hypervisor 0.04, at most 0.01"}
	cells := []results.Cell{{Name: "a", Blocks: []results.Block{
		{Plane: "none", Round: 1, Rejected: spoilt, Metrics: map[string]float64{results.FailedShare: 0}},
		{Plane: "lateen", Round: 1, Rejected: spoilt, Metrics: map[string]float64{results.FailedShare: 0.25}, Errors: map[string]uint64{"reset": 250}, Failed: []string{"a process ended meanwhile: proxies n1"}},
		{Plane: "lateen", Round: 2, Metrics: map[string]float64{results.FailedShare: 0}},
	}}}
	got := s.failures(&scenario.Scenario{}, cells)
	want := []string{"a, lateen: failed in 1 of 2 blocks: a process ended meanwhile: proxies n1", "a, lateen: 25 % of the requests failed in rejected blocks: 250 reset"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Times that rest on answers are no measure of the generator: a fast plane would be rejected sooner than a slow one.
func TestTheGeneratorsLatenessIsTheSameLimitForAll(t *testing.T) {
	late := func(p99 float64) report {
		var r report
		r.Rates.Wanted, r.Lateness.P99, r.Response.P99 = 1000, 3, p99
		return r
	}
	for _, p99 := range []float64{3.1, 300} {
		if got := rejected(environment(procstat.Shares{}, late(p99)), results.DefaultGates, scenario.Cell{}, nil); len(got) > 0 {
			t.Errorf("a response P99 of %v ms: %v", p99, got)
		}
	}
}

func TestAProcessThatEndsIsAResult(t *testing.T) {
	w, stage, o := newWorld(t, oneCell(""))
	o.Rounds = 1
	pids := map[string]int{}
	make := stage.Make
	stage.Make = func(s dataplanes.Spec) (dataplanes.Plane, error) {
		p, err := make(s)
		return noting{p, func(pid int) { pids[s.Name] = pid }}, err
	}
	w.answer = func(plane string, _ int) (string, error) {
		if plane == "lateen" {
			if err := syscall.Kill(pids[plane], syscall.SIGKILL); err != nil {
				return "", err
			}
			until(t, "the end of a process", func() bool { return over(t, pids[plane]) })
		}
		return answered(1), nil
	}
	doc, err := Run(context.Background(), stage, o)
	if err != nil {
		t.Fatal(err)
	}
	s := doc.Scenarios[0]
	i := slices.IndexFunc(s.Cells[0].Blocks, func(b results.Block) bool { return b.Plane == "lateen" })
	if i < 0 {
		t.Fatalf("the block is gone: %q", s.Failed)
	}
	b := s.Cells[0].Blocks[i]
	if !b.Counted() || !strings.Contains(strings.Join(b.Failed, ""), "a process ended meanwhile") || !strings.Contains(strings.Join(s.Failures, ""), "a process ended meanwhile") {
		t.Errorf("rejected %q, failed %q, failures %q", b.Rejected, b.Failed, s.Failures)
	}
}

// noting is a plane that tells its bench's process.
type noting struct {
	dataplanes.Plane
	tell func(pid int)
}

func (n noting) Start(ctx context.Context, t dataplanes.Topology, progress func(string)) (dataplanes.Bench, error) {
	b, err := n.Plane.Start(ctx, t, progress)
	if f, ok := b.(*fakeBench); ok {
		n.tell(f.pid)
	}
	return b, err
}

// The loud pod and its server are applications as well: what the request of the quiet one costs is not known beside them.
func TestNothingIsChargedBesideAnotherLoad(t *testing.T) {
	for _, beside := range []bool{false, true} {
		more := ""
		if beside {
			more = `, beside: {from: deploy/loud, load: {url: "http://echo:8080/", qps: 0, connections: 1}}`
		}
		_, stage, o := newWorld(t, oneCell(more))
		o.Rounds = 1
		doc, err := Run(context.Background(), stage, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range doc.Scenarios[0].Cells[0].Blocks {
			charged := false
			for name := range b.Metrics {
				charged = charged || strings.Contains(name, "_per_request.") || strings.HasPrefix(name, "pss_")
			}
			if charged == beside {
				t.Errorf("beside another load %v: %v", beside, b.Metrics)
			}
		}
	}
}

// A witness that could not be measured does not make every difference a verdict.
func TestWithoutItsWitnessThereIsNoVerdict(t *testing.T) {
	w, stage, o := newWorld(t, oneCell(""))
	w.refuse["none-2"] = errors.New("no room")
	doc, err := Run(context.Background(), stage, o)
	if err != nil {
		t.Fatal(err)
	}
	v := doc.Scenarios[0].Cells[0].Verdicts
	if len(v) != 1 || v[0].Says() != "too few rounds (0 of 6)" || !strings.Contains(v[0].Why, "the noise floor was not measured") {
		t.Errorf("got %+v", v)
	}
}
