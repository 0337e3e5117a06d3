package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/generator"
	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

// fakePlane answers load with numbers of its own; its services are a sleeping process of this machine.
type fakePlane struct {
	t     *testing.T
	world *fakeWorld
	spec  dataplanes.Spec
}

// fakeWorld is what the planes of a test have in common.
type fakeWorld struct {
	mu      sync.Mutex
	up      map[string]bool
	loads   []string                                  // planes in the order of their blocks
	answer  func(plane string, n int) (string, error) // the generator's output for the nth block of all
	refuse  map[string]error                          // planes that cannot be started
	carried uint64
	still   bool   // connections do not go through the plane
	down    func() // called when a plane is taken down
}

func (p *fakePlane) Describe() results.Plane {
	return results.Plane{Name: p.spec.Name, Kind: p.spec.Kind}
}

func (p *fakePlane) Start(context.Context, dataplanes.Topology, func(string)) (dataplanes.Bench, error) {
	if err := p.world.refuse[p.spec.Name]; err != nil {
		return nil, err
	}
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	p.world.mu.Lock()
	p.world.up[p.spec.Name] = true
	p.world.mu.Unlock()
	return &fakeBench{p, child.Process.Pid}, nil
}

type fakeBench struct {
	*fakePlane
	pid int
}

func (b *fakeBench) Exec(ctx context.Context, _ string, command []string, s api.Streams) (int, error) {
	b.world.mu.Lock()
	b.world.loads = append(b.world.loads, b.spec.Name)
	n := len(b.world.loads)
	b.world.carried++
	b.world.mu.Unlock()
	time.Sleep(20 * time.Millisecond) // the machine's clock goes on in ticks of 10 ms
	text, err := b.world.answer(b.spec.Name, n)
	if err != nil {
		return 0, err
	}
	_, err = s.Stdout.Write([]byte(text))
	return 0, err
}

func (b *fakeBench) Processes(context.Context) ([]dataplanes.Process, error) {
	return []dataplanes.Process{{Role: results.RoleApp, Name: "default/echo/echo", PID: b.pid}}, nil
}

func (b *fakeBench) Carried(context.Context) (uint64, bool, error) {
	if b.world.still {
		return 7, true, nil
	}
	return b.world.carried, b.spec.Kind != results.KindNone, nil
}
func (b *fakeBench) Apply(context.Context, []api.Document) error  { return nil }
func (b *fakeBench) Delete(context.Context, []api.Document) error { return nil }
func (b *fakeBench) Scale(context.Context, string, int) error     { return nil }
func (b *fakeBench) Down(context.Context) error {
	if b.world.down != nil {
		b.world.down()
	}
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	b.world.up[b.spec.Name] = false
	return nil
}

// quiet takes progress and forgets it.
type quiet struct{}

func (quiet) Start(string)  {}
func (quiet) Update(string) {}
func (quiet) Done(string)   {}
func (quiet) Warn(string)   {}
func (quiet) Abandon()      {}

// warner is progress of which warnings are heard.
type warner struct {
	quiet
	warn func(text string)
}

func (w warner) Warn(text string) { w.warn(text) }

// answered is a generator's report with a median of so many milliseconds.
func answered(p50 float64) string {
	return fmt.Sprintf(`{"format":"lateen-load/1","measured_s":5,"counts":{"intended":5000,"unsent":0,"ok":5000,"failed":0,"warmup_ok":1000,"content_bytes":5000000},
	"rates":{"wanted_qps":1000,"achieved_qps":1000},"errors":{},"warmup_errors":{},
	"response_time":{"count":5000,"avg":%[1]v,"p50":%[1]v,"p75":%[1]v,"p90":%[1]v,"p99":%[1]v,"histogram":"x"},
	"service_time":{"count":5000,"p50":%[1]v,"p90":%[1]v,"p99":%[1]v},"lateness":{"count":5000,"p99":0.001},"connect_time":{"count":4}}`, p50)
}

const smallScenario = `
title: t
does: d
world: [client, echo]
rounds: 6
seconds: 5
metrics: [response_p50_ms]
load: {url: "http://echo:8080/", connections: 4, qps: 1000}
cells: [{name: a}, {name: b}]
`

func newWorld(t *testing.T, text string) (*fakeWorld, Stage, Options) {
	t.Helper()
	s, err := scenario.Parse("small", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	w := &fakeWorld{up: map[string]bool{}, refuse: map[string]error{}, answer: func(plane string, n int) (string, error) {
		p50 := 1 + float64(n%7)/1000 // no two blocks are exactly alike
		if plane == "lateen" {
			p50 *= 2
		}
		return answered(p50), nil
	}}
	stage := Stage{
		Make:    func(s dataplanes.Spec) (dataplanes.Plane, error) { return &fakePlane{t, w, s}, nil },
		Account: procstat.Host(), Progress: quiet{}, LookPath: exec.LookPath, Cores: 2, Now: time.Now,
		Sleep: func(context.Context, time.Duration) { time.Sleep(time.Millisecond) },
	}
	open := results.Gates{OtherCPU: 10, Steal: 10, Lateness: 10, Achieved: 0.99}
	return w, stage, Options{
		Scenarios: []*scenario.Scenario{s}, Planes: []dataplanes.Spec{{Name: "none", Kind: "none"}, {Name: "lateen", Kind: "lateen"}},
		Rounds: -1, Seconds: -1, Warmup: -1, Gates: open, Seed: 1, File: filepath.Join(t.TempDir(), "results.json"), Command: []string{"lateen"},
	}
}

func (w *fakeWorld) allDown(t *testing.T) {
	t.Helper()
	for plane, up := range w.up {
		if up {
			t.Errorf("%s was left running", plane)
		}
	}
}

func TestEveryCellIsMeasuredOnEveryPlaneInEachRound(t *testing.T) {
	w, stage, o := newWorld(t, smallScenario)
	if _, err := Run(context.Background(), stage, o); err != nil {
		t.Fatal(err)
	}
	w.allDown(t)
	doc, err := results.Read(o.File)
	if err != nil {
		t.Fatal(err)
	}
	if len(doc.Planes) != 3 || doc.Planes[1].Name != "none-2" || len(doc.Scenarios) != 1 || doc.Interrupted {
		t.Fatalf("got planes %+v and %d scenarios", doc.Planes, len(doc.Scenarios))
	}
	for _, c := range doc.Scenarios[0].Cells {
		seen := map[string]bool{}
		for _, b := range c.Blocks {
			seen[fmt.Sprint(b.Plane, b.Round)] = true
			if !b.Counted() {
				t.Errorf("%s, %s: rejected: %v", c.Name, b.Plane, b.Rejected)
			}
			if _, ok := b.Metrics[results.CPUPerRequest(results.RoleApp, "total")]; !ok || b.Metrics[results.PSS(results.RoleApp)] == 0 {
				t.Errorf("%s, %s: nothing is charged: %v", c.Name, b.Plane, b.Metrics)
			}
			if _, ok := b.Metrics[results.ResponseP99]; ok {
				t.Errorf("%s: a P99 of 5000 samples", c.Name)
			}
		}
		if len(seen) != 18 || len(c.Blocks) != 18 {
			t.Errorf("%s: %d blocks, %d of them different: want 6 rounds of 3 planes", c.Name, len(c.Blocks), len(seen))
		}
		var judged []string
		for _, v := range c.Verdicts {
			judged = append(judged, v.Plane+" "+v.Judgement)
		}
		if !slices.Equal(judged, []string{"lateen slower", "none-2 indistinguishable"}) {
			t.Errorf("%s: got %v", c.Name, judged)
		}
	}
}

func TestTheDocumentSaysWhatLatencyWasAdded(t *testing.T) {
	_, stage, o := newWorld(t, smallScenario)
	o.Rounds, o.Latency = 1, 2500*time.Microsecond
	if _, err := Run(context.Background(), stage, o); err != nil {
		t.Fatal(err)
	}
	doc, err := results.Read(o.File)
	if err != nil {
		t.Fatal(err)
	}
	if doc.AddedLatencyMS != 2.5 {
		t.Errorf("got %v ms, want 2.5", doc.AddedLatencyMS)
	}
}

// A proxy that was killed took what it had used with it: neither its role's cost is known nor the whole path's.
func TestWhatEndedMeanwhileIsChargedToNobody(t *testing.T) {
	s := &session{Stage: Stage{Account: procstat.Host()}, doc: &results.Results{}}
	processes := []dataplanes.Process{{Role: results.RoleApp, PID: os.Getpid()}, {Role: results.RoleProxies, PID: 1 << 30}}
	ms := time.Millisecond
	before := sample{used: map[int]procstat.Usage{os.Getpid(): {}, 1 << 30: {}}}
	after := sample{used: map[int]procstat.Usage{os.Getpid(): {CPU: 10 * ms, User: 5 * ms, System: 5 * ms, Voluntary: 20}}}
	var r report
	r.Counts.OK = 10
	b := results.Block{Metrics: map[string]float64{}}
	if err := s.charge(&b, before, after, nil, processes, r); err != nil {
		t.Fatal(err)
	}
	if got := b.Metrics[results.CPUPerRequest(results.RoleApp, "total")]; got != 1000 {
		t.Errorf("application: got %v µs, want 1000", got)
	}
	// How it is split is no number of one block, unless the kernel measures it.
	if got, ok := b.Metrics[results.CPUPerRequest(results.RoleApp, "user")]; ok || b.Split[results.RoleApp] != [2]float64{0.005, 0.005} {
		t.Errorf("application: got %v µs of user time, split %v", got, b.Split)
	}
	s.doc.Machine.ExactSplit = true
	if err := s.charge(&b, before, after, nil, processes, r); err != nil {
		t.Fatal(err)
	}
	if got := b.Metrics[results.CPUPerRequest(results.RoleApp, "user")]; got != 500 {
		t.Errorf("application: got %v µs of user time, want 500", got)
	}
	for _, role := range []string{results.RoleProxies, results.RoleAll} {
		if got, ok := b.Metrics[results.CPUPerRequest(role, "total")]; ok {
			t.Errorf("%s: got %v µs", role, got)
		}
	}
	// Nor is that of the process which took it over, and started the next one.
	b.Metrics = map[string]float64{}
	if err := s.charge(&b, before, after, map[int]time.Duration{os.Getpid(): ms}, processes, r); err != nil {
		t.Fatal(err)
	}
	if got, ok := b.Metrics[results.CPUPerRequest(results.RoleApp, "total")]; ok {
		t.Errorf("application with an estate: got %v µs", got)
	}
}

func TestOrders(t *testing.T) {
	if got := order(3, true, 1, 0, 1); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("first round: got %v", got)
	}
	if got := order(3, true, 1, 0, 2); !slices.Equal(got, []int{2, 1, 0}) {
		t.Errorf("second round: got %v", got)
	}
	first := map[int]int{}
	for round := range 300 {
		got := order(3, false, 1, 0, round)
		if again := order(3, false, 1, 0, round); !slices.Equal(got, again) {
			t.Fatalf("round %d: %v, then %v", round, got, again)
		}
		first[got[0]]++
		slices.Sort(got)
		if !slices.Equal(got, []int{0, 1, 2}) {
			t.Fatalf("round %d: %v is not every plane once", round, got)
		}
	}
	for plane := range 3 {
		if first[plane] < 60 {
			t.Errorf("plane %d came first in %d of 300 rounds", plane, first[plane])
		}
	}
}

// spoilt is a report of a generator that could not keep its rate.
func spoilt() string {
	return strings.NewReplacer(`"unsent":0`, `"unsent":500`, `"connect_time"`, `"generator":{"cpu_share":0.6,"wait_share":0.39},"connect_time"`).Replace(answered(1))
}

func TestARejectedBlockIsMeasuredAgainInItsRound(t *testing.T) {
	w, stage, o := newWorld(t, smallScenario)
	w.answer = func(_ string, n int) (string, error) {
		if n == 2 {
			return spoilt(), nil
		}
		return answered(1), nil
	}
	doc, err := Run(context.Background(), stage, o)
	if err != nil {
		t.Fatal(err)
	}
	cells := doc.Scenarios[0].Cells
	if blocks, rejected := Rejected(doc); blocks != 37 || rejected != 1 {
		t.Errorf("%d blocks, %d rejected: want 36 and one of them again", blocks, rejected)
	}
	bad, again := cells[0].Blocks[1], cells[0].Blocks[3]
	if !strings.Contains(strings.Join(bad.Rejected, ""), "due requests begun in time 0.9") {
		t.Errorf("got %v", bad.Rejected)
	}
	if again.Plane != bad.Plane || again.Round != bad.Round || !again.Counted() {
		t.Errorf("got plane %s in round %d, rejected %v: want %s in round %d to count", again.Plane, again.Round, again.Rejected, bad.Plane, bad.Round)
	}
}

func TestRoundsThatTheEnvironmentSpoiltAreMadeUpFor(t *testing.T) {
	w, stage, o := newWorld(t, smallScenario)
	w.answer = func(_ string, n int) (string, error) {
		if n == 2 || n == 4 || n == 5 { // the second plane, and both times that it is measured again
			return spoilt(), nil
		}
		return answered(1), nil
	}
	doc, err := Run(context.Background(), stage, o)
	if err != nil {
		t.Fatal(err)
	}
	if blocks, rejected := Rejected(doc); blocks != 41 || rejected != 3 {
		t.Errorf("%d blocks, %d rejected: want 36, two attempts and one round more of one cell", blocks, rejected)
	}
}

// Only a round that was measured is told as done.
func TestAnInterruptedRoundHasNoTick(t *testing.T) {
	w, stage, o := newWorld(t, smallScenario)
	var said bytes.Buffer
	stage.Progress = term.NewProgress(&said, term.Style{})
	ctx, interrupt := context.WithCancel(context.Background())
	answer := w.answer
	w.answer = func(plane string, n int) (string, error) {
		interrupt()
		return answer(plane, n)
	}
	if _, err := Run(ctx, stage, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	for line := range strings.Lines(said.String()) {
		if strings.HasPrefix(line, term.MarkGood) && strings.Contains(line, "round 1") {
			t.Errorf("%q of\n%s", line, said.String())
		}
	}
	if !strings.Contains(said.String(), "round 1 of 6") || !strings.Contains(said.String(), "take down none") {
		t.Errorf("got\n%s", said.String())
	}
}

func TestAnInterruptKeepsWhatThereIs(t *testing.T) {
	w, stage, o := newWorld(t, smallScenario)
	ctx, interrupt := context.WithCancel(context.Background())
	w.answer = func(_ string, n int) (string, error) {
		if n == 8 {
			if so, err := results.Read(o.File); err != nil {
				t.Error(err)
			} else if blocks, _ := Rejected(so); blocks != 6 {
				t.Errorf("the document has %d blocks after the first round, want 6", blocks)
			}
			interrupt()
			return "", context.Canceled
		}
		return answered(1), nil
	}
	if _, err := Run(ctx, stage, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	w.allDown(t)
	doc, err := results.Read(o.File)
	if err != nil {
		t.Fatal(err)
	}
	if blocks, _ := Rejected(doc); !doc.Interrupted || blocks != 7 || len(doc.Scenarios[0].Cells[0].Verdicts) == 0 {
		t.Errorf("interrupted %v, %d blocks: want the 7 whole ones, judged", doc.Interrupted, blocks)
	}
}

func TestATargetThatDiesEndsTheScenarioAndSaysWhy(t *testing.T) {
	w, stage, o := newWorld(t, smallScenario)
	w.answer = func(_ string, n int) (string, error) {
		if n <= 6 {
			return answered(1), nil
		}
		var r map[string]any
		_ = json.Unmarshal([]byte(answered(1)), &r)
		r["counts"] = map[string]int{"failed": 5000}
		r["errors"] = map[string]int{"refused": 5000}
		r["rates"] = map[string]float64{"wanted_qps": 1000}
		text, err := json.Marshal(r)
		return string(text), err
	}
	doc, err := Run(context.Background(), stage, o)
	if err != nil {
		t.Fatal(err)
	}
	w.allDown(t)
	s := doc.Scenarios[0]
	blocks, rejected := Rejected(doc)
	if !strings.Contains(s.Failed, "5000 refused") || blocks != 9 || rejected != 0 || len(s.Failures) == 0 {
		t.Errorf("failed %q, failures %q, %d blocks, %d rejected", s.Failed, s.Failures, blocks, rejected)
	}
}

func TestAPlaneThatCarriesNothingFails(t *testing.T) {
	w, stage, o := newWorld(t, smallScenario)
	w.still = true
	o.Planes = o.Planes[1:]
	o.Rounds = 1
	doc, err := Run(context.Background(), stage, o)
	if err != nil {
		t.Fatal(err)
	}
	s := doc.Scenarios[0]
	if b := s.Cells[0].Blocks[0]; !slices.Contains(b.Failed, bypassed) || len(b.Metrics) > 0 || b.Histogram != "" {
		t.Errorf("got %v, with numbers of nobody: %v", b.Failed, b.Metrics)
	}
	if !strings.Contains(strings.Join(s.Failures, ""), bypassed) {
		t.Errorf("failures %q", s.Failures)
	}
}

func TestAPlaneThatCannotBeStartedIsNamed(t *testing.T) {
	for plane, failed := range map[string]bool{"lateen": false, "none": true} {
		w, stage, o := newWorld(t, smallScenario)
		o.Rounds = 1
		w.refuse[plane] = errors.New("no room")
		doc, err := Run(context.Background(), stage, o)
		if err != nil {
			t.Fatal(err)
		}
		w.allDown(t)
		s := doc.Scenarios[0]
		if said := strings.Join(append(s.Failures, s.Failed), " "); (s.Failed != "") != failed || !strings.Contains(said, plane+" could not be started: no room") {
			t.Errorf("%s: failed %q, failures %q", plane, s.Failed, s.Failures)
		}
	}
}

func TestAPlaneThatCannotRunHereIsReportedAsNotRun(t *testing.T) {
	w, stage, o := newWorld(t, smallScenario)
	o.Rounds = 1
	fake := stage.Make
	stage.Make = func(s dataplanes.Spec) (dataplanes.Plane, error) {
		if s.Kind == results.KindCilium {
			return dataplanes.Maker{}.Plane(s)
		}
		return fake(s)
	}
	o.Planes = append(o.Planes, dataplanes.Spec{Name: "cilium", Kind: results.KindCilium})
	var warned []string
	stage.Progress = warner{warn: func(text string) { warned = append(warned, text) }}
	doc, err := Run(context.Background(), stage, o)
	if err != nil {
		t.Fatal(err)
	}
	w.allDown(t)
	i := slices.IndexFunc(doc.Planes, func(p results.Plane) bool { return p.Name == "cilium" })
	if i < 0 || doc.Planes[i].NotRun == "" {
		t.Errorf("planes %+v: cilium is not among them with a reason", doc.Planes)
	}
	if len(warned) != 1 || !strings.Contains(warned[0], "cilium is not run: Cilium attaches") {
		t.Errorf("warned %q: want it to be said at the start", warned)
	}
	if s := doc.Scenarios[0]; s.Failed != "" || slices.Contains(w.loads, "cilium") || !slices.Contains(w.loads, "lateen") {
		t.Errorf("failed %q, loads on %v: want all planes but cilium measured", s.Failed, w.loads)
	}
}

func TestWithoutItsProgramsACellIsLeftOut(t *testing.T) {
	w, stage, o := newWorld(t, strings.NewReplacer("[client, echo]", "[client, echo, details]", "{name: b}", "{name: b, part: details}").Replace(smallScenario))
	o.Rounds = 1
	stage.LookPath = func(program string) (string, error) { return "", os.ErrNotExist }
	doc, err := Run(context.Background(), stage, o)
	if err != nil {
		t.Fatal(err)
	}
	w.allDown(t)
	s := doc.Scenarios[0]
	if len(s.Cells) != 1 || s.Failed != "" || !strings.Contains(strings.Join(s.Notes, ""), "no ruby") {
		t.Errorf("%d cells, failed %q, notes %q", len(s.Cells), s.Failed, s.Notes)
	}
}

func TestAFileThatCannotBeWrittenIsSaidAtOnce(t *testing.T) {
	w, stage, o := newWorld(t, smallScenario)
	o.File = filepath.Join(t.TempDir(), "missing", "results.json")
	if _, err := Run(context.Background(), stage, o); err == nil || len(w.loads) > 0 {
		t.Errorf("got %v after %d blocks", err, len(w.loads))
	}
}

func TestGates(t *testing.T) {
	fine := map[string]float64{envOther: .1, envSteal: .01, envLateness: 5, envKept: .99, envBusy: 1, envStalled: 1}
	if got := rejected(fine, results.DefaultGates, scenario.Cell{}, nil); len(got) > 0 {
		t.Errorf("got %v", got)
	}
	for name, bad := range map[string]float64{envOther: .11, envSteal: .02, envLateness: 5.1, envKept: .98} {
		e := map[string]float64{envBusy: 1, name: bad}
		if got := rejected(e, results.DefaultGates, scenario.Cell{}, nil); len(got) != 1 {
			t.Errorf("%s: got %v", name, got)
		}
	}
	for what, got := range map[string][]string{
		"services that are asked for too much":         rejected(map[string]float64{envKept: .5, envBusy: 1}, results.DefaultGates, scenario.Cell{Saturates: true}, nil),
		"slow services, and a generator that has time": rejected(map[string]float64{envKept: .5, envBusy: .4}, results.DefaultGates, scenario.Cell{}, nil),
		"a load beside that takes the processors":      rejected(map[string]float64{envLateness: 50}, results.DefaultGates, scenario.Cell{Beside: &scenario.Beside{}}, nil),
	} {
		if len(got) > 0 {
			t.Errorf("%s: got %v", what, got)
		}
	}
}

func TestABlockIsHeldAgainstTheOthersOfItsRound(t *testing.T) {
	gates := results.DefaultGates
	block := func(plane string, round int, other float64) results.Block {
		e := map[string]float64{envOther: other}
		return results.Block{Plane: plane, Round: round, Environment: e, Rejected: rejected(e, gates, scenario.Cell{}, nil)}
	}
	for _, tt := range []struct {
		name   string
		blocks []results.Block
		counts []bool
	}{
		{"a quiet round and one block that is not", []results.Block{block("a", 1, .02), block("b", 1, .03), block("c", 1, .15)}, []bool{true, true, false}},
		{"a round that is disturbed alike", []results.Block{block("a", 1, .22), block("b", 1, .25), block("c", 1, .29)}, []bool{true, true, true}},
		{"one that is disturbed by more than the limit above the others", []results.Block{block("a", 1, .22), block("b", 1, .22), block("c", 1, .33)}, []bool{true, true, false}},
		{"more than so many times the limit", []results.Block{block("a", 1, .51), block("b", 1, .51), block("c", 1, .49)}, []bool{false, false, true}},
		{"another round says nothing", []results.Block{block("a", 1, .3), block("b", 1, .02), block("b", 2, .3), block("a", 2, .3)}, []bool{false, true, true, true}},
		{"a plane alone", []results.Block{block("a", 1, .15)}, []bool{false}},
		{"an earlier attempt stays rejected", []results.Block{block("a", 1, .15), block("b", 1, .02), block("c", 1, .14), block("a", 1, .02)}, []bool{false, true, false, true}},
	} {
		rounds := map[int]bool{}
		for _, b := range tt.blocks {
			rounds[b.Round] = true
		}
		for round := range rounds {
			compareSurroundings(tt.blocks, round, gates, scenario.Cell{})
		}
		for i, b := range tt.blocks {
			if b.Counted() != tt.counts[i] {
				t.Errorf("%s: block %d of %s: rejected %v, want it to count: %v", tt.name, i, b.Plane, b.Rejected, tt.counts[i])
			}
		}
	}
	// What else a block was rejected for stays.
	blocks := []results.Block{block("a", 1, .2), block("b", 1, .2)}
	blocks[0].Rejected = append([]string{"the machine's processors were not the same"}, blocks[0].Rejected...)
	compareSurroundings(blocks, 1, gates, scenario.Cell{})
	if len(blocks[0].Rejected) != 1 || len(blocks[1].Rejected) != 0 {
		t.Errorf("got %v and %v", blocks[0].Rejected, blocks[1].Rejected)
	}
}

func TestParseStrace(t *testing.T) {
	calls, err := parseStrace(`strace: Process 7 attached
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.100000          10       100        40 recvfrom
 20.00    0.050000          10        20           writev
 20.00    0.050000          10        30           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.200000                   150        40 total
`)
	want := map[string]float64{"all": 150, "reads": 60, "writes": 20, "recvfrom": 100, "writev": 20, "epoll_wait": 30}
	if err != nil || fmt.Sprint(calls) != fmt.Sprint(want) {
		t.Errorf("got %v, %v", calls, err)
	}
	if calls, err := parseStrace(""); err != nil || calls["all"] != 0 {
		t.Errorf("no call: got %v, %v", calls, err)
	}
	if calls, err := parseStrace("---\n 1.0 0.1 10 x y read\n"); err == nil {
		t.Errorf("got %v", calls)
	}
}

func TestReportsThatAreNoneAreRefused(t *testing.T) {
	for _, text := range []string{"", "{", `{"format":"other/1"}`} {
		if r, err := generator.Read[report]([]byte(text)); err == nil {
			t.Errorf("%q: got %+v", text, r)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("---\n 60.00 0.100000 10 100 40 recvfrom\n")
	f.Add(answered(1))
	f.Fuzz(func(t *testing.T, text string) {
		if calls, err := parseStrace(text); err == nil && calls[results.CallsReads] > calls[results.CallsAll] {
			t.Errorf("%q: more reads than calls: %v", text, calls)
		}
		if r, err := generator.Read[report]([]byte(text)); err == nil {
			_ = r.metrics()
			_ = r.failures()
		}
	})
}
