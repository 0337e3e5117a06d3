package report

import (
	"fmt"
	"io"
	"maps"
	"strings"

	"lateen.dev/lateen/internal/lab/results"
)

// Compare writes two runs side by side, with a warning for everything in which machines or settings differ. It gives no
// verdict: blocks of different runs are no pairs. What it says is whether a plane's ratio to its own baseline has moved beyond
// the intervals of both runs.
func Compare(w io.Writer, a, b *results.Results) error {
	p := printer{w: w}
	p.line("# %s", markdown(clean("Two runs: A "+a.Name+", B "+b.Name)))
	p.line("")
	for _, run := range []struct {
		name string
		r    *results.Results
	}{{"A", a}, {"B", b}} {
		p.line("%s: %s %s", run.name, markdown(when(run.r)), markdown(clean(run.r.Machine.Lateen)))
		p.line("")
		p.line("    %s", clean(strings.Join(quoted(run.r.Command), " ")))
		p.line("")
	}
	for _, run := range []*results.Results{a, b} {
		for _, remark := range run.Remarks {
			p.line("%s: %s", markdown(clean(run.Name)), markdown(clean(remark)))
			p.line("")
		}
	}
	machine := machineDifferences(a, b)
	if len(machine) > 0 {
		p.line("**Warning: these runs differ in more than what was measured. Ratios within a run can still be compared with care, times and costs cannot.**")
		p.line("")
		p.list(machine)
	}
	p.line("Indicative, not a claim: A and B were not measured in turn, so the time between them is in every change of a time or cost. A ratio is that of a plane to the baseline of its own run.")
	p.line("")
	if settings := planeDifferences(a, b); len(settings) > 0 {
		p.line("What differs between the planes:")
		p.line("")
		p.list(settings)
	}
	var lacking []string
	for i := range a.Scenarios {
		oa := &a.Scenarios[i]
		ob := outcome(b, oa.Scenario)
		if ob == nil {
			lacking = append(lacking, "scenario "+clean(oa.Scenario)+" is in A only")
			continue
		}
		p.compareScenario(a, b, oa, ob, len(machine) == 0, &lacking)
	}
	for i := range b.Scenarios {
		if outcome(a, b.Scenarios[i].Scenario) == nil {
			lacking = append(lacking, "scenario "+clean(b.Scenarios[i].Scenario)+" is in B only")
		}
	}
	if len(lacking) > 0 {
		p.line("## Not in both")
		p.line("")
		p.list(lacking)
	}
	return p.err
}

func (p *printer) list(items []string) {
	for _, item := range items {
		p.line("- %s", paragraph(item))
	}
	p.line("")
}

func outcome(r *results.Results, name string) *results.Outcome {
	for i := range r.Scenarios {
		if r.Scenarios[i].Scenario == name {
			return &r.Scenarios[i]
		}
	}
	return nil
}

// machineDifferences lists what makes times of two runs incomparable.
func machineDifferences(a, b *results.Results) []string {
	var list []string
	differ := func(what string, va, vb any) {
		if va != vb {
			list = append(list, fmt.Sprintf("%s: %s in A, %s in B", what, orNothing(va), orNothing(vb)))
		}
	}
	differ("processor", a.Machine.CPU, b.Machine.CPU)
	differ("cores", a.Machine.Cores, b.Machine.Cores)
	differ("memory in MiB", a.Machine.MemoryMiB, b.Machine.MemoryMiB)
	differ("kernel", a.Machine.Kernel, b.Machine.Kernel)
	differ("congestion control", a.Machine.CongestionControl, b.Machine.CongestionControl)
	differ("CPU time from", a.Machine.Accounting, b.Machine.Accounting)
	differ("ms added to round trips between nodes", a.AddedLatencyMS, b.AddedLatencyMS)
	differ("gate on other processes' CPU", a.Gates.OtherCPU, b.Gates.OtherCPU)
	differ("gate on steal", a.Gates.Steal, b.Gates.Steal)
	differ("gate on lateness", a.Gates.Lateness, b.Gates.Lateness)
	differ("gate on the achieved rate", a.Gates.Achieved, b.Gates.Achieved)
	return list
}

func orNothing(v any) string {
	if s := clean(fmt.Sprint(v)); s != "" {
		return s
	}
	return "nothing"
}

// planeDifferences lists what the planes differ in, which is often why two runs are compared.
func planeDifferences(a, b *results.Results) []string {
	var list []string
	differ := func(what, va, vb string) {
		if va != vb {
			list = append(list, fmt.Sprintf("%s: %s in A, %s in B", what, orNothing(va), orNothing(vb)))
		}
	}
	differ("version of lateen", a.Machine.Lateen, b.Machine.Lateen)
	find := func(r *results.Results, name string) *results.Plane {
		for i := range r.Planes {
			if r.Planes[i].Name == name {
				return &r.Planes[i]
			}
		}
		return nil
	}
	for i := range a.Planes {
		pa := &a.Planes[i]
		name := clean(pa.Name)
		pb := find(b, pa.Name)
		if pb == nil {
			list = append(list, "plane "+name+" is in A only")
			continue
		}
		differ("kind of "+name, pa.Kind, pb.Kind)
		differ("version of "+name, pa.Version, pb.Version)
		differ("program of "+name+" (SHA-256)", pa.SHA256, pb.SHA256)
		keys := maps.Clone(pa.Settings)
		if keys == nil {
			keys = map[string]string{}
		}
		maps.Copy(keys, pb.Settings)
		for _, k := range sortedKeys(keys) {
			differ("setting "+clean(k)+" of "+name, pa.Settings[k], pb.Settings[k])
		}
	}
	for i := range b.Planes {
		if find(a, b.Planes[i].Name) == nil {
			list = append(list, "plane "+clean(b.Planes[i].Name)+" is in B only")
		}
	}
	return list
}

// loadDifferences lists what two cells of one name were loaded with differently.
func loadDifferences(a, b *results.Cell) []string {
	var list []string
	differ := func(what string, va, vb any) {
		if va != vb {
			list = append(list, fmt.Sprintf("%s: %s: %s in A, %s in B", clean(a.Name), what, orNothing(va), orNothing(vb)))
		}
	}
	differ("URL", a.Load.URL, b.Load.URL)
	differ("protocol", a.Load.Protocol, b.Load.Protocol)
	differ("requests/s", a.Load.QPS, b.Load.QPS)
	differ("connections", a.Load.Connections, b.Load.Connections)
	differ("keep-alive", a.Load.Keepalive, b.Load.Keepalive)
	differ("arrivals", a.Load.Arrivals, b.Load.Arrivals)
	differ("seconds", a.Load.Seconds, b.Load.Seconds)
	differ("warm-up seconds", a.Load.Warmup, b.Load.Warmup)
	return list
}

func (p *printer) compareScenario(a, b *results.Results, oa, ob *results.Outcome, sameMachine bool, lacking *[]string) {
	times := table{caption: "Medians over the blocks that count", columns: []column{text("setting"), text("side"), text("metric"), numeric("A"), numeric("B")}}
	if sameMachine {
		times.columns = append(times.columns, numeric("B to A"))
	}
	ratios := table{caption: "Ratios to the baseline of the same run", columns: []column{text("setting"), text("compared"), text("metric"), numeric("A"), text("A, 95 %"), numeric("B"), text("B, 95 %"), text("moved")}}
	das, dbs := digests(a, oa), digests(b, ob)
	var loads []string
	for i := range das {
		da := &das[i]
		db := digestNamed(dbs, da.cell.Name)
		where := clean(oa.Scenario) + ", " + clean(da.cell.Name)
		if db == nil {
			*lacking = append(*lacking, where+" is in A only")
			continue
		}
		loads = append(loads, loadDifferences(da.cell, db.cell)...)
		for j := range da.sides {
			sa := &da.sides[j]
			sb := db.side(sa.plane.Name)
			if sb == nil {
				continue
			}
			for _, m := range comparedMetrics(da) {
				va, okA := sa.get(m)
				vb, okB := sb.get(m)
				if !okA || !okB {
					continue
				}
				row := []string{clean(da.cell.Name), clean(sa.label), clean(metricName(m)), number(va), number(vb)}
				if sameMachine {
					change := none
					if va > 0 && vb > 0 {
						change, _ = difference(vb/va, vb/va, vb/va)
					}
					row = append(row, change)
				}
				times.add(row...)
			}
		}
		for _, v := range da.cell.Verdicts {
			if u := sameVerdict(db.cell.Verdicts, v); u != nil {
				ra, ia := verdictDifference(da.cell, v)
				rb, ib := verdictDifference(db.cell, *u)
				ratios.add(clean(da.cell.Name), clean(v.Plane)+" to "+clean(v.Baseline), clean(metricName(v.Metric)), ra, ia, rb, ib, moved(v, *u))
			}
		}
	}
	for i := range dbs {
		if digestNamed(das, dbs[i].cell.Name) == nil {
			*lacking = append(*lacking, clean(ob.Scenario)+", "+clean(dbs[i].cell.Name)+" is in B only")
		}
	}
	if len(times.rows)+len(ratios.rows)+len(loads) == 0 {
		return
	}
	p.line("## %s", markdown(clean(strings.TrimSuffix(oa.Scenario+": "+oa.Title, ": "))))
	p.line("")
	if len(loads) > 0 {
		p.line("**Warning: the loads differ.**")
		p.line("")
		p.list(loads)
	}
	for _, t := range []table{ratios, times} {
		if len(t.rows) > 0 {
			p.table(t.trimmed())
		}
	}
}

func digestNamed(ds []digest, name string) *digest {
	for i := range ds {
		if ds[i].cell.Name == name {
			return &ds[i]
		}
	}
	return nil
}

// comparedMetrics are those that the cell's verdicts are about, else what most runs have.
func comparedMetrics(d *digest) []string {
	var list []string
	seen := map[string]bool{}
	add := func(m string) {
		if !seen[m] {
			seen[m] = true
			list = append(list, m)
		}
	}
	for _, v := range d.cell.Verdicts {
		add(v.Metric)
	}
	for _, m := range []string{results.ResponseP50, results.ResponseP99, results.QPS, cpuTotal(results.RoleAll), cpuTotal(results.RoleProxies), allCalls(results.RoleProxies)} {
		add(m)
	}
	return list
}

func sameVerdict(list []results.Verdict, v results.Verdict) *results.Verdict {
	for i := range list {
		if u := &list[i]; u.Metric == v.Metric && u.Baseline == v.Baseline && u.Plane == v.Plane {
			return u
		}
	}
	return nil
}

// moved says whether two intervals leave room for one value.
func moved(a, b results.Verdict) string {
	switch {
	case a.Pairs == 0 || b.Pairs == 0 || results.Unjudged(a.Judgement) || results.Unjudged(b.Judgement):
		return "cannot be said: one of them has too few rounds"
	case a.Judgement == results.Failed || b.Judgement == results.Failed:
		return "cannot be said: a plane failed in one of them"
	case b.High < a.Low, b.Low > a.High:
		better := (b.Ratio < a.Ratio) == results.BetterIsLower(a.Metric)
		if better {
			return "yes, for the better"
		}
		return "yes, for the worse"
	}
	return "no: the intervals overlap"
}
