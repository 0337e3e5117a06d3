package scenario_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/scenario"
)

func TestEveryScenarioCanBeReadAndItsWorldIsThere(t *testing.T) {
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	samples := filepath.Join("..", "..", "..", "samples")
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
		// The least probability that the rank test can give, over all metrics looked at: beyond it no verdict is ever clear.
		if least := float64(len(s.Metrics)) * math.Pow(2, 1-float64(s.Rounds)); least > 0.025 {
			t.Errorf("%s: %d rounds cannot be clear about %d metrics: p is %.3f at best", s.Name, s.Rounds, len(s.Metrics), least)
		}
		for _, part := range s.World {
			documents, err := scenario.Documents(part, samples)
			if err != nil || len(documents) == 0 || len(documents[0].Data) == 0 {
				t.Errorf("%s: part %s: %d documents, %v", s.Name, part, len(documents), err)
			}
		}
		for _, c := range s.Cells {
			if len(scenario.Needs(c.Part)) == 0 && strings.Contains(s.Load.With(c.Load).URL, "details") {
				t.Errorf("%s: cell %s: needs the part details and does not say so", s.Name, c.Name)
			}
		}
	}
	for _, want := range []string{"aa-null", "details-nagle", "details-close", "syscalls", "bookinfo-page", "bookinfo-sat", "replicas",
		"twopods-conn", "twopods-qps", "stream-rr-crr", "churn", "policy-cost", "blast-radius", "telemetry-cost", "conn-balance", "node-proxy", "waypoint", "waypoint-conn", "waypoint-grpc", "graph-13", "graph-111", "cp-scale"} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no scenario %s", want)
		}
	}
}

const good = `
title: t
does: d
world: [client, echo]
rounds: 6
seconds: 5
metrics: [qps]
load: {url: "http://echo:8080/", connections: 4}
cells:
- {name: a, load: {qps: 10}}
- {name: b, load: {qps: 0, keepalive: false}}
`

func TestOnlyPartsThatRunBookinfoNeedTheSamples(t *testing.T) {
	t.Chdir(t.TempDir())
	documents, err := scenario.Documents("echo", "samples")
	if err != nil || len(documents) != 1 || documents[0].Dir != "" {
		t.Errorf("echo needs the directory %+v, %v", documents, err)
	}
	if _, err := scenario.Documents("details", "samples"); err == nil || !strings.Contains(err.Error(), "--samples") {
		t.Errorf("details without samples: %v", err)
	}
	if err := os.MkdirAll("samples/bookinfo", 0o755); err != nil {
		t.Fatal(err)
	}
	documents, err = scenario.Documents("details", "samples")
	if err != nil || len(documents) != 1 || !filepath.IsAbs(documents[0].Dir) {
		t.Errorf("the engine cannot find %+v, %v", documents, err)
	}
}

func TestScenariosThatCannotBeCarriedOutAreRefused(t *testing.T) {
	if s, err := scenario.Parse("good", []byte(good)); err != nil || len(s.Cells) != 2 {
		t.Fatalf("got %+v, %v", s, err)
	}
	for _, tc := range []struct{ old, new, want string }{
		{"title: t", "titel: t", "titel"},
		{"title: t", "", "title"},
		{"rounds: 6", "rounds: 0", "rounds: 0"},
		{"seconds: 5", "seconds: 0.1", "seconds: 0.1"},
		{"metrics: [qps]", "", "metrics"},
		{"[client, echo]", "[echo]", "client"},
		{"[client, echo]", "[client, moon]", `no part "moon"`},
		{"name: b", "name: a", `"a" is empty or stands twice`},
		{"qps: 10", "qps: -1", "cell a: load: qps"},
		{"{qps: 10}", "{}", "cell a: load: qps"},
		{"connections: 4", "connections: 0", "connections: 0"},
		{"name: a,", "name: a, part: details,", `part: "details"`},
		{"name: a,", "name: a, kill: {role: proxies, after: 9},", "kill"},
		{"name: a,", "name: a, scale: {echo: -1},", "scale: echo"},
		{"does: d", "does: d\nanswers: [nobody]", `"nobody"`},
		{"does: d", "does: d\nplanes: [lateen]", `planes: "lateen": only waypoint`},
		{"does: d", `does: d
variants: [{name: "2", proxyEnv: [A=b]}]`, "second self"},
		{"does: d", `does: d
variants: [{name: a, proxyEnv: [A=b]}, {name: a, proxyEnv: [A=c]}]`, "each name once"},
		{"does: d", `does: d
variants: [{name: a}]`, "variant a: proxyEnv: say"},
		{"does: d", `does: d
variants: [{name: a, proxyEnv: [b]}]`, "write NAME=VALUE"},
	} {
		text := strings.Replace(good, tc.old, tc.new, 1)
		if _, err := scenario.Parse("x", []byte(text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s -> %s: got %v", tc.old, tc.new, err)
		}
	}
}

func TestAnExperimentOnTheControlPlaneHasNothingElse(t *testing.T) {
	const alone = "title: t\ndoes: d\nrounds: 1\nseconds: 5\ncontrol: {services: 2, pods: 4, proxies: 3, rest: 1, rates: [1]}\n"
	if s, err := scenario.Parse("alone", []byte(alone)); err != nil || s.Control.Pods != 4 {
		t.Fatalf("got %+v, %v", s, err)
	}
	for _, tc := range []struct{ old, new, want string }{
		{"rounds: 1", "rounds: 1\nworld: [client]", "leave world"},
		{"services: 2", "services: 0", "control: services: 0"},
		{"pods: 4", "pods: 1", "control: pods: 1"},
		{"proxies: 3", "proxies: 0", "control: proxies: 0"},
		{"rest: 1", "rest: 0", "control: rest: 0"},
		{"rates: [1]", "rates: []", "control: rates"},
		{"rates: [1]", "rates: [-1]", "control: rates: -1"},
	} {
		if _, err := scenario.Parse("x", []byte(strings.Replace(alone, tc.old, tc.new, 1))); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s -> %s: got %v", tc.old, tc.new, err)
		}
	}
}

func TestFind(t *testing.T) {
	if _, err := scenario.Find([]string{"no-such"}); err == nil || !strings.Contains(err.Error(), "lateen lab list") {
		t.Errorf("got %v", err)
	}
	if _, err := scenario.Find([]string{"aa-null", "all"}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("got %v", err)
	}
	if s, err := scenario.Find([]string{"twopods-qps", "aa-null"}); err != nil || len(s) != 2 || s[0].Name != "twopods-qps" {
		t.Errorf("got %v, %v", s, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := scenario.Parse("x", text); err == nil && (len(s.Cells) == 0 && s.Control == nil || s.Rounds < 1) {
			t.Errorf("%q was taken", text)
		}
	})
}

func TestCellsAreKeptByTheirNames(t *testing.T) {
	find := func() []*scenario.Scenario {
		all, err := scenario.Find([]string{"node-proxy"})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	whole, some := find(), find()
	if err := scenario.Keep(some, []string{"same node, bulk", "idle"}); err != nil {
		t.Fatal(err)
	}
	if got := some[0].Cells; len(got) != 2 || len(whole[0].Cells) < 10 {
		t.Errorf("%d of %d cells are kept, want 2: %v", len(got), len(whole[0].Cells), got)
	}
	if err := scenario.Keep(find(), []string{"bulk", "no such"}); err == nil || !strings.Contains(err.Error(), `--cell "no such"`) {
		t.Errorf("a text that is in no name: %v", err)
	}
	both := append(find(), find()...)
	both[1].Cells = both[1].Cells[:1]
	if err := scenario.Keep(both, []string{"bulk"}); err == nil || !strings.Contains(err.Error(), "has no such cell: it has "+both[1].Cells[0].Name) {
		t.Errorf("a scenario without such a cell: %v", err)
	}
	if err := scenario.Keep(whole, nil); err != nil || len(whole[0].Cells) < 10 {
		t.Errorf("without texts: %v", err)
	}
}
