package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/stats"
)

// waypointRun is a run of so many rounds in which Lateen's waypoint takes half of the processor time of one Envoy, and four fifths of the other's.
func waypointRun(rounds int) *results.Results {
	envoy := func(name, listeners string) results.Plane {
		return results.Plane{Name: name, Kind: results.KindEnvoyWaypoint, Version: "1.40.0", Settings: map[string]string{
			results.SettingListeners: listeners, "configuration": "istiod 86c9f01", "without": "stats.PluginConfig tls",
		}}
	}
	r := &results.Results{
		Format: results.Format, Name: "waypoint", Command: []string{"lateen", "lab", "run", "waypoint", "waypoint-conn"}, Gates: results.DefaultGates,
		Machine: results.Machine{CPU: "AMD EPYC", Cores: 2, Lateen: "0.3.0"},
		Planes: []results.Plane{
			{Name: "lateen", Kind: results.KindLateen}, {Name: "lateen-2", Kind: results.KindLateen},
			envoy("envoy-waypoint", results.ThreeListeners), envoy("envoy-one-listener", results.OneListener), {Name: "waypoint", Kind: results.KindWaypoint},
		},
	}
	costs := map[string]float64{"lateen": 100, "lateen-2": 100, "envoy-waypoint": 400, "envoy-one-listener": 250, "waypoint": 200}
	for name, qps := range map[string]float64{"waypoint": 0, sweepScenario: 1000} {
		c := results.Cell{Name: "16 connections", Load: results.Load{QPS: qps, Connections: 16}}
		for round := 1; round <= rounds; round++ {
			for plane, cost := range costs {
				hour := 1 + 0.01*float64(round)
				alone := hour * (cost - 100)
				cost *= hour
				c.Blocks = append(c.Blocks, results.Block{Plane: plane, Round: round, Metrics: map[string]float64{
					cpuTotal(results.RoleProxies): cost, cpuTotal(results.RoleWaypoint): alone, results.QPS: 1e6 / cost,
					results.ResponseP50: cost / 1000, results.ResponseP90: cost / 800, results.ResponseP99: cost / 500, results.PSS(results.RoleWaypoint): cost / 10,
				}})
			}
		}
		for _, other := range []string{"envoy-waypoint", "envoy-one-listener"} {
			c.Verdicts = append(c.Verdicts, stats.Judge(c, other, []string{"waypoint"}, []string{cpuTotal(results.RoleProxies)}, &stats.Witness{Baseline: "lateen", Plane: "lateen-2"})...)
		}
		r.Scenarios = append(r.Scenarios, results.Outcome{Scenario: name, Title: name, Cells: []results.Cell{c}, NotValid: []string{"absolute times"}})
	}
	return r
}

// pageOf is the page of a run, with single spaces.
func pageOf(t *testing.T, r *results.Results) string {
	t.Helper()
	var page bytes.Buffer
	if err := WaypointPage(&page, r); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(page.String()), " ")
}

func TestThePageOfWaypointsBeginsWithWhatWasFound(t *testing.T) {
	page := pageOf(t, waypointRun(10))
	for _, want := range []string{
		"# Cost of a waypoint beside an Envoy - **CPU of all proxies:** 0.50 to 0.50 of that with `envoy-waypoint`, over 2 settings. - **CPU of all proxies:** 0.80 to 0.80 of that with `envoy-one-listener`",
		"**CPU of the waypoint alone:** 0.33 to 0.33 of that of `envoy-waypoint`, over 2 settings. - **P99 at a fixed rate:** 0.50 of that with `envoy-waypoint`, in one setting.",
		"**Requests per second, saturated:** 2.00 times those with `envoy-waypoint`, in one setting.",
		"| waypoint-conn: 16 connections | 211 | 422 | 264 | 0.50 (0.50–0.50) | 0.80 (0.80–0.80) |",
		"istiod 86c9f01. Removed from the dump: stats.PluginConfig, tls.",
		"An Envoy of one listener gives up its tunnels.",
		"Of 100 blocks, 0 were rejected and 0 failed.",
		"lateen lab run waypoint waypoint-conn",
		"What does not hold on one machine: - absolute times",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, "no finding") {
		t.Error("ten rounds are no finding")
	}
	// The waypoint's own account lacks the work of the node proxy for it.
	_, alone, _ := strings.Cut(page, "## CPU of the waypoint alone")
	alone, _, _ = strings.Cut(alone, "## ")
	if !strings.Contains(alone, "| 0.33 (0.33–0.33) |") || strings.Contains(alone, "envoy-one-listener") {
		t.Errorf("alone: %s", alone)
	}
	// The sweep has the times, and the saturated setting the rate.
	_, times, _ := strings.Cut(page, "## Response times")
	times, _, _ = strings.Cut(times, "## ")
	if strings.Contains(times, "| waypoint: 16") || !strings.Contains(times, "| waypoint-conn: 16 connections, 1000 requests/s | P50 |") || !strings.Contains(times, "| P99 |") || strings.Contains(times, "| none |") {
		t.Errorf("times: %s", times)
	}
}

func TestThePageOfTooFewRoundsSaysThatItIsNoFinding(t *testing.T) {
	r := waypointRun(2)
	r.Interrupted = true
	r.Scenarios[0].Failures = []string{"16 connections, envoy-waypoint: failed in 1 of 2 blocks: the proxy logged 9 of 10 requests"}
	r.Scenarios[0].Cells[0].Blocks[0].Failed = []string{"the proxy logged 9 of 10 requests"}
	page := pageOf(t, r)
	for _, want := range []string{"**Too few rounds for 4 verdicts on waypoint: these numbers are no finding.**", "| 203 | 406 | 254 | 0.50 | 0.80 |", "**The run was interrupted.", "the proxy logged 9 of 10 requests**", "and 1 failed."} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %q in\n%s", want, page)
		}
	}
}

// below is what stands below a heading, up to the next one.
func below(page, heading string) string {
	_, rest, _ := strings.Cut(page, "## "+heading)
	text, _, _ := strings.Cut(rest, "## ")
	return text
}

func TestEachFindingOfThePageHasItsTable(t *testing.T) {
	r := waypointRun(10)
	for i := range r.Scenarios {
		r.Scenarios[i].Cells[0].Load.QPS = 1000
	}
	page := pageOf(t, r)
	// The table has the times of the sweep alone, and so has the finding.
	if rows := strings.Count(below(page, "Response times"), "| P99 |"); rows != 1 || !strings.Contains(page, "**P99 at a fixed rate:** 0.50 of that with `envoy-waypoint`, in one setting.") {
		t.Errorf("%d rows of P99 in\n%s", rows, page)
	}
	if strings.Contains(page, "saturated") {
		t.Errorf("no setting is saturated:\n%s", page)
	}
	memory := below(page, "Memory of the waypoint")
	for _, want := range []string{"| waypoint: 16 connections | 21.1 | 42.2 | 26.4 | 0.50 (0.50–0.50) | 0.80 (0.80–0.80) |", "| waypoint-conn: 16 connections |"} {
		if !strings.Contains(memory, want) {
			t.Errorf("memory: there is no %q in %s", want, memory)
		}
	}
}

func TestThePageOfWaypointsTellsWhatIsMissing(t *testing.T) {
	r := waypointRun(10)
	r.Remarks = []string{"The verdicts were computed again."}
	r.Planes = append(r.Planes, results.Plane{Name: "old", Kind: results.KindEnvoyWaypoint, NotRun: "there is no such file"})
	page := pageOf(t, r)
	for _, want := range []string{"**The verdicts were computed again.**", "**old was not run: there is no such file**"} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %q in\n%s", want, page)
		}
	}
}

// Witnesses are the only planes that the page leaves out for their names.
func TestAPlaneOfAnyNameIsOnThePageOfWaypoints(t *testing.T) {
	named := func(to string) *results.Results {
		r := waypointRun(10)
		for i := range r.Planes {
			if r.Planes[i].Name == "envoy-one-listener" {
				r.Planes[i].Name = to
			}
		}
		for i := range r.Scenarios {
			blocks := r.Scenarios[i].Cells[0].Blocks
			for j := range blocks {
				if blocks[j].Plane == "envoy-one-listener" {
					blocks[j].Plane = to
				}
			}
		}
		return r
	}
	for name, shown := range map[string]bool{"v1-2": true, "envoy-waypoint-2": false} {
		if page := pageOf(t, named(name)); strings.Contains(page, "ratio to "+name) != shown {
			t.Errorf("%s: shown is to be %v:\n%s", name, shown, page)
		}
	}
}

func TestARunWithoutBothWaypointsHasNoPage(t *testing.T) {
	r := waypointRun(1)
	for i := range r.Planes {
		if r.Planes[i].Kind == results.KindEnvoyWaypoint {
			r.Planes[i].Kind = results.KindEnvoy
		}
	}
	if err := WaypointPage(&bytes.Buffer{}, r); err == nil || !strings.Contains(err.Error(), "--peer envoy-waypoint=PATH") {
		t.Errorf("got %v", err)
	}
	if err := WaypointPage(&failingWriter{}, waypointRun(1)); err == nil {
		t.Error("a page that cannot be written is said to be")
	}
}

type failingWriter struct{}

func (*failingWriter) Write([]byte) (int, error) { return 0, fmt.Errorf("full") }
