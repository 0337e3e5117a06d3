package report

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/stats"
)

// WaypointPage writes a reference page of a run that compares Lateen's waypoint with Envoys in its place: verdicts, tables, what was compared,
// and the command. Every number in it comes from the run.
func WaypointPage(w io.Writer, r *results.Results) error {
	page := waypointPage{r: r}
	for _, p := range r.Planes {
		switch {
		case p.NotRun != "":
		case p.Kind == results.KindWaypoint && page.own == "":
			page.own = p.Name
		case p.Kind == results.KindEnvoyWaypoint && !isSecondSelf(r, p):
			page.others = append(page.others, p)
		}
	}
	if page.own == "" || len(page.others) == 0 {
		return errors.New("the run compares no waypoint of Lateen's with an Envoy: run `lateen lab run waypoint --peer envoy-waypoint=PATH`")
	}
	for i := range r.Scenarios {
		for _, d := range digests(r, &r.Scenarios[i]) {
			if !d.cell.Untimed {
				page.settings = append(page.settings, waypointSetting{&r.Scenarios[i], d})
			}
		}
	}
	p := &printer{w: w}
	page.write(p)
	return p.err
}

// isSecondSelf says whether a plane is another one of the run a second time.
func isSecondSelf(r *results.Results, p results.Plane) bool {
	first, isNamedSo := strings.CutSuffix(p.Name, secondSelf)
	return isNamedSo && slices.ContainsFunc(r.Planes, func(o results.Plane) bool { return o.Name == first })
}

// waypointPage holds the planes and settings of a page.
type waypointPage struct {
	r        *results.Results
	own      string // the plane with Lateen's waypoint
	others   []results.Plane
	settings []waypointSetting
}

// waypointSetting is a cell of a scenario.
type waypointSetting struct {
	scenario *results.Outcome
	digest
}

func (s *waypointSetting) name() string {
	return clean(s.scenario.Scenario) + ": " + clean(s.cell.Name)
}

// isPaced says whether a setting has a fixed rate.
func (s *waypointSetting) isPaced() bool { return s.cell.Load.QPS > 0 }

// isSaturated says whether each connection sends its next request when the last one is answered.
func (s *waypointSetting) isSaturated() bool { return !s.isPaced() }

// isAny is every setting.
func (s *waypointSetting) isAny() bool { return true }

// isTimed says whether the page has the response times of a setting: those of the scenario that varies connections alone. Without that
// scenario it has those of all settings with a fixed rate.
func (page *waypointPage) isTimed(s *waypointSetting) bool {
	sweep := slices.ContainsFunc(page.settings, func(s waypointSetting) bool { return s.scenario.Scenario == sweepScenario })
	return s.isPaced() && (!sweep || s.scenario.Scenario == sweepScenario)
}

// code shows a name as code. Nothing within has a meaning of its own but the sign that ends it.
func code(name string) string {
	return "`" + strings.ReplaceAll(clean(name), "`", "'") + "`"
}

// ratio compares Lateen's waypoint with another plane in one setting.
func (page *waypointPage) ratio(s *waypointSetting, other, metric string) (stats.Interval, bool) {
	return stats.Ratio(stats.PairsOf(s.cell.Blocks, other, page.own, metric))
}

// selfTunnelled says whether an Envoy does the work of a waypoint by itself. The tunnels of others are the node proxy's work.
func selfTunnelled(p results.Plane) bool {
	return p.Settings[results.SettingListeners] != results.OneListener
}

func (page *waypointPage) write(p *printer) {
	p.line("# Cost of a waypoint beside an Envoy")
	p.line("")
	for _, warning := range page.warnings() {
		p.line("**%s**", markdown(warning))
		p.line("")
	}
	for _, finding := range page.findings() {
		p.line("- %s", finding)
	}
	p.line("")
	p.line("These are ranges of median ratios over settings. The tables have the ratio of each setting.")
	p.line("")
	proxies, alone := results.CPUPerRequest(results.RoleProxies, "total"), results.CPUPerRequest(results.RoleWaypoint, "total")
	p.line("## CPU of all proxies on the path")
	p.line("")
	p.line("Microseconds per request of both node proxies and the waypoint: medians. Each ratio is that of %s to the plane named, with its 95 %% interval over rounds.", code(page.own))
	p.line("It is the median of the rounds' ratios, and not the quotient of the two medians.")
	p.line("")
	p.table(page.costs(proxies, page.others, (*waypointSetting).isAny))
	if own := slices.DeleteFunc(slices.Clone(page.others), func(o results.Plane) bool { return !selfTunnelled(o) }); len(own) > 0 {
		p.line("## CPU of the waypoint alone")
		p.line("")
		p.line("Microseconds per request. An Envoy behind the node proxy is left out: the node proxy does its TLS and its tunnels.")
		p.line("")
		p.table(page.costs(alone, own, (*waypointSetting).isAny))
	}
	p.line("## Memory of the waypoint")
	p.line("")
	p.line("MiB of the process, each shared page divided by the number of its users (PSS).")
	p.line("")
	p.table(page.costs(results.PSS(results.RoleWaypoint), page.others, (*waypointSetting).isAny))
	if t := page.costs(results.QPS, page.others, (*waypointSetting).isSaturated); len(t.rows) > 0 {
		p.line("## Requests per second, saturated")
		p.line("")
		p.table(t)
	}
	if t := page.times(); len(t.rows) > 0 {
		p.line("## Response times at a fixed rate")
		p.line("")
		p.line("Milliseconds from when a request was due: medians over blocks. `lateen` has node proxies alone, `none` has no mesh.")
		p.line("A dash stands where blocks have too few requests for a percentile.")
		p.line("")
		p.table(t)
	}
	page.compared(p)
	page.measured(p)
}

// warnings are what makes the numbers no finding.
func (page *waypointPage) warnings() (list []string) {
	if page.r.Interrupted {
		list = append(list, "The run was interrupted. What was measured until then is complete block by block.")
	}
	for _, remark := range page.r.Remarks {
		list = append(list, clean(remark))
	}
	for _, p := range page.r.Planes {
		if p.NotRun != "" {
			list = append(list, clean(p.Name)+" was not run: "+clean(p.NotRun))
		}
	}
	unjudged := 0
	for i := range page.r.Scenarios {
		o := &page.r.Scenarios[i]
		if o.Failed != "" {
			list = append(list, clean(o.Scenario)+" ended early: "+clean(o.Failed))
		}
		for j := range o.Cells {
			for _, v := range o.Cells[j].Verdicts {
				if v.Plane == page.own && results.Unjudged(v.Judgement) {
					unjudged++
				}
			}
		}
		for _, f := range o.Failures {
			list = append(list, clean(o.Scenario)+": "+clean(f))
		}
	}
	if unjudged > 0 {
		list = append(list, "Too few rounds for "+count(unjudged, "verdict", "verdicts")+" on "+clean(page.own)+": these numbers are no finding.")
	}
	return list
}

// findings say the ratios over all settings.
func (page *waypointPage) findings() (list []string) {
	say := func(what, metric, of string, others []results.Plane, wanted func(*waypointSetting) bool) {
		for _, other := range others {
			least, most, settings := math.Inf(1), 0.0, 0
			for i := range page.settings {
				s := &page.settings[i]
				if ratio, ok := page.ratio(s, other.Name, metric); ok && wanted(s) {
					least, most, settings = min(least, ratio.Estimate), max(most, ratio.Estimate), settings+1
				}
			}
			switch {
			case settings == 1:
				list = append(list, fmt.Sprintf("**%s:** %s %s %s, in one setting.", what, number(least), of, code(other.Name)))
			case settings > 1:
				list = append(list, fmt.Sprintf("**%s:** %s to %s %s %s, over %d settings.", what, number(least), number(most), of, code(other.Name), settings))
			}
		}
	}
	tunnelled := slices.DeleteFunc(slices.Clone(page.others), func(o results.Plane) bool { return !selfTunnelled(o) })
	say("CPU of all proxies", results.CPUPerRequest(results.RoleProxies, "total"), "of that with", page.others, (*waypointSetting).isAny)
	say("CPU of the waypoint alone", results.CPUPerRequest(results.RoleWaypoint, "total"), "of that of", tunnelled, (*waypointSetting).isAny)
	say("P99 at a fixed rate", results.ResponseP99, "of that with", page.others, page.isTimed)
	say("Requests per second, saturated", results.QPS, "times those with", page.others, (*waypointSetting).isSaturated)
	say("Memory of the waypoint", results.PSS(results.RoleWaypoint), "of that of", page.others, (*waypointSetting).isAny)
	return list
}

// costs is the table of a metric of all waypoints, in the settings that are wanted.
func (page *waypointPage) costs(metric string, others []results.Plane, wanted func(*waypointSetting) bool) table {
	t := table{columns: []column{text("setting"), numeric(clean(page.own))}}
	for _, o := range others {
		t.columns = append(t.columns, numeric(clean(o.Name)))
	}
	for _, o := range others {
		t.columns = append(t.columns, numeric("ratio to "+clean(o.Name)))
	}
	for i := range page.settings {
		s := &page.settings[i]
		if !wanted(s) {
			continue
		}
		row := []string{s.name(), s.median(page.own, metric)}
		for _, o := range others {
			row = append(row, s.median(o.Name, metric))
		}
		for _, o := range others {
			row = append(row, page.said(s, o.Name, metric))
		}
		t.add(row...)
	}
	return t
}

// median of a metric, in words.
func (s *waypointSetting) median(plane, metric string) string {
	if side := s.side(plane); side != nil {
		if v, ok := side.get(metric); ok {
			return number(v)
		}
	}
	return none
}

// said is a ratio with its interval, in words.
func (page *waypointPage) said(s *waypointSetting, other, metric string) string {
	pairs := stats.PairsOf(s.cell.Blocks, other, page.own, metric)
	ratio, ok := stats.Ratio(pairs)
	switch {
	case !ok:
		return none
	case len(pairs) < stats.MinPairs(1): // of fewer an interval says nothing
		return number(ratio.Estimate)
	}
	return fmt.Sprintf("%s (%s–%s)", number(ratio.Estimate), number(ratio.Low), number(ratio.High))
}

// times are the response times of all settings that the page has times of.
func (page *waypointPage) times() table {
	names := []string{results.KindNone, results.KindLateen, page.own}
	for _, o := range page.others {
		names = append(names, o.Name)
	}
	t := table{columns: []column{text("setting"), text("percentile")}}
	for _, n := range names {
		t.columns = append(t.columns, numeric(clean(n)))
	}
	for _, o := range page.others {
		t.columns = append(t.columns, numeric("ratio to "+clean(o.Name)))
	}
	for i := range page.settings {
		s := &page.settings[i]
		if !page.isTimed(s) {
			continue
		}
		lead := s.name()
		if s.scenario.Scenario == sweepScenario {
			lead += fmt.Sprintf(", %.0f requests/s", s.cell.Load.QPS) // its cells are named by what differs
		}
		for _, metric := range []string{results.ResponseP50, results.ResponseP90, results.ResponseP99} {
			row := []string{lead, metricName(metric)}
			for _, n := range names {
				row = append(row, s.median(n, metric))
			}
			for _, o := range page.others {
				row = append(row, page.said(s, o.Name, metric))
			}
			t.add(row...)
			lead = ""
		}
	}
	return t.trimmed()
}

// sweepScenario varies connections alone, as published latency sweeps do.
const sweepScenario = "waypoint-conn"

// compared says what the planes are.
func (page *waypointPage) compared(p *printer) {
	p.line("## What is compared")
	p.line("")
	p.line("Two node proxies of Lateen are on every path but `none`. The waypoint stands on the server's node.")
	p.line("")
	p.line("- %s: Lateen's waypoint, with its access log and its metrics.", code(page.own))
	for _, o := range page.others {
		p.line("- %s: Envoy %s, listeners: %s. Configured from the dump of %s. Removed from the dump: %s.", code(o.Name), markdown(clean(o.Version)),
			markdown(clean(o.Settings[results.SettingListeners])), markdown(clean(o.Settings["configuration"])), markdown(strings.ReplaceAll(clean(o.Settings["without"]), " ", ", ")))
	}
	p.line("")
	p.line("All write Istio's log format to their standard output, have as many workers, the same policies and the same key exchange. A block fails if the waypoint")
	p.line("counted or logged fewer requests than were sent.")
	p.line("")
	p.line("The scenarios `waypoint`, `waypoint-grpc` and `waypoint-conn` demand more. All waypoints answer one table of requests alike before the first block. A block")
	p.line("fails if a request has another status than 200.")
	p.line("")
	if slices.ContainsFunc(page.others, func(o results.Plane) bool { return !selfTunnelled(o) }) {
		p.line("An Envoy of one listener gives up its tunnels. The node proxy ends the client's mutual TLS and CONNECT, and tells the Envoy by the PROXY protocol who the")
		p.line("client is. The node proxy also captures the Envoy's connections to the service. The server's pod is on the same node. This last hop is handed over")
		p.line("unencrypted, unless LATEEN_SAME_NODE is false. The other waypoints open a tunnel of mutual TLS there.")
		p.line("")
	}
}

// measured says where and how.
func (page *waypointPage) measured(p *printer) {
	p.line("## How it was measured")
	p.line("")
	m := page.r.Machine
	p.line("%s %s, %d cores, %d MiB, kernel %s, congestion control %s, Lateen %s. %s", markdown(when(page.r)), markdown(clean(m.CPU)), m.Cores, m.MemoryMiB,
		markdown(clean(m.Kernel)), markdown(clean(m.CongestionControl)), markdown(clean(m.Lateen)), gatesText(page.r.Gates))
	p.line("")
	blocks, rejected, void := 0, 0, 0
	for _, s := range page.settings {
		for i := range s.cell.Blocks {
			b := &s.cell.Blocks[i]
			blocks++
			if !b.Counted() {
				rejected++
			}
			if len(b.Failed) > 0 {
				void++
			}
		}
	}
	p.line("Of %s, %d were rejected and %d failed.", count(blocks, "block", "blocks"), rejected, void)
	if slices.ContainsFunc(page.r.Planes, func(o results.Plane) bool { return isSecondSelf(page.r, o) }) {
		p.line("They include those of a plane that was measured a second time, which this page leaves out.")
	}
	p.line("")
	p.line("    %s", clean(strings.Join(quoted(page.r.Command), " "))) // an indented block shows everything as it is
	p.line("")
	p.line("Read the ratios. Absolute times belong to that machine and hour.")
	var seen []string
	for i := range page.r.Scenarios {
		for _, n := range page.r.Scenarios[i].NotValid {
			if !slices.Contains(seen, clean(n)) {
				seen = append(seen, clean(n))
			}
		}
	}
	if len(seen) > 0 {
		p.line("")
		p.line("What does not hold on one machine:")
		p.line("")
		p.list(seen)
	}
}
