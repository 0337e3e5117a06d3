package report

import (
	"slices"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

// shares is a cell in which the planes' workers had the given numbers of connections, block by block.
func shares(name string, of map[string][][4]float64) results.Cell {
	c := results.Cell{Name: name, Blocks: []results.Block{{Plane: "none", Round: 1, Metrics: map[string]float64{results.ResponseP50: 1}}}}
	for _, plane := range []string{"lateen", "envoy"} {
		for round, chi := range of[plane] {
			b := results.Block{Plane: plane, Round: round + 1, Metrics: map[string]float64{results.ResponseP50: 1}}
			for _, direction := range []string{results.Outbound, results.Inbound} {
				b.Metrics[results.WorkerThreads(direction)] = chi[0]
				b.Metrics[results.WorkerConnections(direction)] = chi[1]
				b.Metrics[results.WorkerImbalance(direction)] = chi[2]
				b.Metrics[results.WorkerChiSquare(direction)] = chi[3]
			}
			c.Blocks = append(c.Blocks, b)
		}
	}
	return c
}

func TestWorkersAreSetAgainstChance(t *testing.T) {
	r := &results.Results{
		Planes: []results.Plane{{Name: "none", Kind: results.KindNone}, {Name: "lateen", Kind: results.KindLateen}, {Name: "envoy", Kind: results.KindEnvoy}},
		Scenarios: []results.Outcome{{Scenario: "s", Cells: []results.Cell{
			shares("32 connections", map[string][][4]float64{
				"lateen": {{4, 32, 1, 0}, {4, 32, 1, 0}, {4, 32, 1.125, 0.25}},
				// 3.84 is what one in twenty exceeds by chance, with one degree of freedom; together it is 0.075 with three.
				"envoy": {{2, 32, 1.25, 2}, {2, 32, 1.9, 3.84}, {2, 32, 1.3, 1.06}},
			}),
			shares("4 connections", map[string][][4]float64{"envoy": {{2, 4, 2, 8}, {2, 4, 2, 8}}}),
		}}},
	}
	r.Scenarios[0].Cells[0].Blocks = append(r.Scenarios[0].Cells[0].Blocks, results.Block{
		Plane: "envoy", Round: 4, Rejected: []string{"busy"}, Metrics: map[string]float64{
			results.WorkerThreads(results.Outbound): 2, results.WorkerChiSquare(results.Outbound): 1000, results.WorkerImbalance(results.Outbound): 2,
		},
	})
	got := workersTable(digests(r, &r.Scenarios[0])).rows
	want := [][]string{
		{"32 connections", "lateen", "outbound", "4", "32", "1.00", "1.12", "0.25 (9 d.f.)", "1.000", "more even"},
		{"", "", "inbound", "4", "32", "1.00", "1.12", "", "", ""},
		{"", "envoy", "outbound", "2", "32", "1.30", "1.90", "6.90 (3 d.f.)", "0.075", "as uneven"},
		{"", "", "inbound", "2", "32", "1.30", "1.90", "", "", ""},
		{"4 connections", "envoy", "outbound", "2", "4", "2.00", "2.00", "16.0 (2 d.f.)", "<0.001", "less even (few connections: a rough test)"},
		{"", "", "inbound", "2", "4", "2.00", "2.00", "", "", ""},
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

func TestWithoutWorkersThereIsNoTableOfThem(t *testing.T) {
	r := sample(t)
	for i := range r.Scenarios {
		if rows := workersTable(digests(r, &r.Scenarios[i])).rows; len(rows) > 0 {
			t.Errorf("got %q", rows)
		}
	}
}
