package report

import (
	"strconv"

	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/stats"
)

// Beyond these probabilities the workers' shares are not what chance makes of them; with fewer connections than tooFew for each
// worker the test is a rough one.
const (
	unlikely = 0.025
	tooFew   = 5
)

// workerMetrics are those of workersTable.
func workerMetrics(direction string) []string {
	return []string{results.WorkerThreads(direction), results.WorkerConnections(direction), results.WorkerImbalance(direction), results.WorkerChiSquare(direction)}
}

// workersTable says how the proxies' workers shared the connections of each cell. Clients open theirs anew in each block, so that
// each is an experiment of its own, and the statistics and degrees of freedom of all add up; proxies keep theirs to each other from
// block to block, which is one experiment only, and nothing is tested.
func workersTable(ds []digest) table {
	t := table{caption: "Connections over the proxies' workers in the middle of each block (outbound: the clients', new in each; inbound: the proxies' own, kept from block to block)", columns: []column{
		{title: "setting", keep: len(ds) > 1}, text("side"), text("direction"), numeric("workers"), numeric("connections"),
		numeric("fullest over mean"), numeric("at worst"), {title: "chi-square"}, {title: "p"}, {title: "against chance"},
	}}
	shown := map[*digest]bool{}
	eachSide(ds, func(d *digest, s *side, _ string) {
		lead, setting := clean(s.label), ""
		if len(ds) > 1 && !shown[d] { // the first side of a cell may have no workers
			setting = clean(d.cell.Name)
		}
		for _, direction := range []string{results.Outbound, results.Inbound} {
			if _, there := s.get(results.WorkerImbalance(direction)); !there {
				continue
			}
			statistic, freedom, worst := 0.0, 0, 0.0
			for i := range d.cell.Blocks {
				b := &d.cell.Blocks[i]
				if x, there := b.Metrics[results.WorkerChiSquare(direction)]; there && b.Plane == s.plane.Name && b.Counted() {
					statistic += x
					freedom += int(b.Metrics[results.WorkerThreads(direction)]) - 1
					worst = max(worst, b.Metrics[results.WorkerImbalance(direction)])
				}
			}
			square, probable, verdict := "", "", ""
			if direction == results.Outbound && freedom > 0 {
				p := stats.ChiSquareTail(statistic, freedom)
				square, probable = number(statistic)+" ("+strconv.Itoa(freedom)+" d.f.)", probability(p)
				verdict = "as uneven"
				switch {
				case p < unlikely:
					verdict = "less even"
				case p > 1-unlikely:
					verdict = "more even"
				}
				if s.medians[results.WorkerConnections(direction)] < tooFew*s.medians[results.WorkerThreads(direction)] {
					verdict += " (few connections: a rough test)"
				}
			}
			whole := func(metric string) string { return strconv.FormatFloat(s.medians[metric], 'g', 4, 64) }
			t.add(setting, lead, direction, whole(results.WorkerThreads(direction)), whole(results.WorkerConnections(direction)),
				s.text(results.WorkerImbalance(direction)), number(worst), square, probable, verdict)
			setting, lead, shown[d] = "", "", true
		}
	})
	return t.trimmed()
}
