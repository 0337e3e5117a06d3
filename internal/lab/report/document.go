package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"lateen.dev/lateen/internal/lab/published"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/stats"
)

// document is a report before it has a form: the same sections, sentences and tables for Markdown and HTML.
type document struct {
	title string
	// verdicts stand before everything else: sentences, then a table that fits a screen.
	verdicts []string
	summary  table
	about    []string
	warnings []string
	command  string
	sections []section
}

// section is a heading with what stands below it.
type section struct {
	title string
	text  []string
	items []string
	// charts are for HTML only; the tables beside them hold their numbers.
	charts []chart
	tables []table
	// foreign marks what others have published, so that it looks different from what was measured.
	foreign bool
	// folded sections are details, which the page shows on demand.
	folded bool
	inner  []section
}

func (s *section) empty() bool {
	return len(s.text)+len(s.items)+len(s.charts)+len(s.tables)+len(s.inner) == 0
}

// table is rows of text under columns. Columns without any value are left out when it is printed.
type table struct {
	caption string
	columns []column
	rows    [][]string
	notes   []string
}

type column struct {
	title   string
	numeric bool
	// keep keeps the column although no row has a value.
	keep bool
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// trimmed is the table without columns that say nothing.
func (t table) trimmed() table {
	var kept []int
	for i, c := range t.columns {
		if c.keep || slices.ContainsFunc(t.rows, func(r []string) bool { return r[i] != none && r[i] != "" }) {
			kept = append(kept, i)
		}
	}
	out := table{caption: t.caption, notes: t.notes}
	for _, i := range kept {
		out.columns = append(out.columns, t.columns[i])
	}
	for _, r := range t.rows {
		row := make([]string, 0, len(kept))
		for _, i := range kept {
			row = append(row, r[i])
		}
		out.rows = append(out.rows, row)
	}
	return out
}

func text(title string) column    { return column{title: title, keep: true} }
func numeric(title string) column { return column{title: title, numeric: true} }

// compose makes the document of a run. Only a page can show drawings and fold away every number that was measured.
func compose(r *results.Results, page bool) document {
	d := document{title: "Lab report: " + clean(r.Name), command: clean(strings.Join(quoted(r.Command), " "))}
	d.about = append(d.about, when(r), "Indicative, not a claim: what was measured holds for this machine. Ratios between planes of this run can be compared, as they were measured in turn within each round; absolute times cannot be carried elsewhere. Unless said otherwise numbers are medians over the blocks that count.")
	if r.Interrupted {
		d.warnings = append(d.warnings, "The run was interrupted. What was measured until then is complete block by block.")
	}
	d.verdicts = Verdicts(r)
	if d.summary = verdictSummary(r); len(d.summary.rows) > 0 {
		if words := planeWords(r); words != "" {
			d.summary.notes = append(d.summary.notes, words)
		}
	}
	for _, remark := range r.Remarks {
		d.warnings = append(d.warnings, clean(remark))
	}
	for _, o := range r.Scenarios {
		if o.Failed != "" {
			d.warnings = append(d.warnings, clean(o.Scenario)+" ended early: "+clean(o.Failed))
		}
	}
	for _, o := range r.Scenarios {
		for _, f := range o.Failures {
			d.warnings = append(d.warnings, clean(o.Scenario)+": "+clean(f))
		}
	}
	for i := range r.Scenarios {
		d.sections = append(d.sections, scenarioSection(r, &r.Scenarios[i], page))
	}
	d.sections = append(d.sections, setting(r))
	if s := notRun(r); !s.empty() {
		d.sections = append(d.sections, s)
	}
	return d
}

// quoted puts arguments that a shell would take apart into quotes.
func quoted(command []string) []string {
	out := make([]string, len(command))
	for i, a := range command {
		out[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$&|;<>()*?[]#~`!{}") {
			out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return out
}

func when(r *results.Results) string {
	text := "Measured " + r.Started.UTC().Format("2006-01-02 15:04 UTC")
	if took := r.Ended.Sub(r.Started).Round(time.Second); took > 0 {
		text += ", in " + took.String()
	}
	return text + "."
}

// setting is where and what was measured.
func setting(r *results.Results) section {
	m := r.Machine
	machine := table{caption: "Machine", columns: []column{text("what"), text("value")}}
	row := func(what, value string) {
		if value = clean(value); value != "" {
			machine.add(what, value)
		}
	}
	row("processor", m.CPU)
	row("cores", positive(m.Cores, ""))
	row("memory", positive(m.MemoryMiB, " MiB"))
	row("kernel", m.Kernel)
	row("congestion control", m.CongestionControl)
	row("CPU time from", m.Accounting)
	row("hardware counters", map[bool]string{true: "yes", false: "no"}[m.Counters])
	row("lateen", m.Lateen)
	planes := table{caption: "Planes", columns: []column{text("plane"), text("kind"), {title: "which is"}, {title: "version"}, {title: "program"}, {title: "SHA-256"}, {title: "settings"}, {title: "not run because"}}}
	for _, p := range r.Planes {
		var settings []string
		for _, k := range sortedKeys(p.Settings) {
			settings = append(settings, clean(k)+"="+clean(p.Settings[k]))
		}
		sum := clean(p.SHA256)
		if len(sum) > 12 {
			sum = sum[:12] + "…"
		}
		planes.add(clean(p.Name), clean(p.Kind), nature(r, p), clean(p.Version), clean(p.Path), sum, strings.Join(settings, " "), clean(p.NotRun))
	}
	s := section{title: "Machine and planes", tables: []table{machine}}
	if slices.ContainsFunc(r.Scenarios, func(o results.Outcome) bool { return len(o.Cells) > 0 }) {
		s.text = append(s.text, gatesText(r.Gates)) // what has no blocks has no gates
	}
	if len(planes.rows) > 0 {
		s.tables = append(s.tables, planes.trimmed())
	}
	return s
}

// gatesText says what rejects a block. A gate that nothing can exceed is open.
func gatesText(g results.Gates) string {
	var rules, open []string
	gate := func(limit, widest float64, rule, name string) {
		if limit >= widest {
			open = append(open, name)
			return
		}
		rules = append(rules, fmt.Sprintf(rule, share(limit)))
	}
	gate(g.OtherCPU, 1, "other processes use more than %s of the machine", "other processes")
	gate(g.Steal, 1, "the hypervisor takes more than %s", "the hypervisor")
	switch {
	case g.Lateness >= 1000:
		open = append(open, "the generator's lateness")
	case g.Lateness > 0: // documents of old have none
		rules = append(rules, fmt.Sprintf("the generator's own lateness exceeds %s ms at P99", number(g.Lateness)))
	}
	if g.Achieved > 0 {
		rules = append(rules, fmt.Sprintf("a generator at its own limit begins less than %s of the due requests", share(g.Achieved)))
	} else {
		open = append(open, "the rate")
	}
	text := "No gate on the environment was set."
	if len(rules) > 0 {
		// Two at a time, so that no sentence is long.
		var sentences []string
		verb := "A block is rejected if "
		for some := range slices.Chunk(rules, 2) {
			sentences = append(sentences, verb+strings.Join(some, " or ")+".")
			verb = "It is rejected as well if "
		}
		text = strings.Join(sentences, " ") + besideItsRound(g)
	}
	if len(open) > 0 {
		text += " The command opened the gates on " + listed(open) + ": such blocks count here, and the noise of two alike says what that costs."
	}
	return text
}

func listed(parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

func positive(n int, unit string) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n) + unit
}

// rough is a share in three digits.
func rough(v float64) string { return strconv.FormatFloat(100*v, 'g', 3, 64) + " %" }

func share(v float64) string { return strconv.FormatFloat(100*v, 'g', 4, 64) + " %" }

// scenarioSection is one scenario.
func scenarioSection(r *results.Results, o *results.Outcome, page bool) section {
	s := section{title: clean(o.Scenario)}
	if o.Title != "" {
		s.title += ": " + clean(o.Title)
	}
	if o.Failed != "" {
		s.text = append(s.text, "Ended early: "+clean(o.Failed)+". What was measured until then stands below.")
	}
	ds := digests(r, o)
	if len(ds) == 0 && len(o.Facts) == 0 {
		s.text = append(s.text, "Nothing was measured.")
	}
	add := func(inner section) {
		if !inner.empty() {
			s.inner = append(s.inner, inner)
		}
	}
	if len(ds) > 0 {
		s.tables = append(s.tables, mainTable(ds))
	}
	for _, f := range []table{workersTable(ds), factTable(r, o), facts(r, o)} {
		if len(f.rows) > 0 {
			s.tables = append(s.tables, f)
		}
	}
	if page {
		s.charts = scenarioCharts(r, ds)
	}
	why := section{title: "Why, from what was counted"}
	why.inner, why.items = explanations(ds, o)
	add(why)
	add(limits(o))
	add(details(r, ds, page))
	add(rejections(r, o))
	add(anchors(o))
	return s
}

// limits is what about the scenario does not hold here.
func limits(o *results.Outcome) section {
	s := section{title: "Not valid on one machine"}
	for _, n := range o.NotValid {
		s.items = append(s.items, clean(n))
	}
	return s
}

// details are the tables behind the first one.
func details(r *results.Results, ds []digest, page bool) section {
	s := section{title: "Cost, verdicts and distributions in full", folded: true}
	further := furtherTable(ds)
	if len(further.rows) > 0 && !page { // thousands of lines, a row for each metric, plane and setting
		further = table{}
		s.text = append(s.text, "Every other metric, and every block by itself, is in results.json beside this file; report.html shows their medians.")
	}
	for _, t := range []table{costTable(ds), verdictTable(r, ds), distributionTable(ds), further, loadTable(ds)} {
		if len(t.rows) > 0 {
			s.tables = append(s.tables, t)
		}
	}
	return s
}

// besideItsRound says that blocks are held against the others of their round; nothing where no gate is on what disturbs them.
func besideItsRound(g results.Gates) string {
	if g.OtherCPU >= 1 && g.Steal >= 1 && (g.Lateness >= 1000 || g.Lateness <= 0) {
		return ""
	}
	return fmt.Sprintf(" Where the other blocks of its round were disturbed as well, a block may be disturbed by that much more than they were, up to %d times the limit.", results.MostOfLimit)
}

// rejections lists the blocks that do not count, one line for each plane of a cell.
func rejections(r *results.Results, o *results.Outcome) section {
	s := section{title: "Rejected blocks"}
	for i := range o.Cells {
		c := &o.Cells[i]
		for _, p := range r.Planes {
			total, bad := 0, []string{}
			for j := range c.Blocks {
				b := &c.Blocks[j]
				if b.Plane != p.Name {
					continue
				}
				total++
				if !b.Counted() {
					why := slices.Concat(b.Rejected, b.Failed)
					for _, kind := range sortedKeys(b.Errors) {
						why = append(why, fmt.Sprintf("failed requests: %d %s", b.Errors[kind], kind))
					}
					bad = append(bad, fmt.Sprintf("round %d (%s)", b.Round, clean(strings.Join(why, "; "))))
				}
			}
			if len(bad) > 0 {
				s.items = append(s.items, fmt.Sprintf("%s, %s: %d of %s rejected: %s", clean(c.Name), clean(p.Name), len(bad), count(total, "block", "blocks"), strings.Join(bad, ", ")))
			}
		}
	}
	if len(s.items) > 0 {
		s.text = []string{"By gates that were fixed before the run and look at a block's environment only; no result rejects a block."}
		if said := unevenly(r, o); said != "" {
			s.text = append(s.text, said)
		}
	}
	return s
}

// byChance is the probability from which on an uneven number of rejected blocks is left to chance.
const byChance = 0.05

// unevenly says of which two planes the environment spoilt clearly different shares of the blocks: what spoils those of one plane
// more than those of another may come of the plane, and the blocks that are left are then chosen ones.
func unevenly(r *results.Results, o *results.Outcome) string {
	type tally struct {
		name        string
		bad, blocks int
	}
	var tallies []tally
	for _, p := range r.Planes {
		one := tally{name: clean(p.Name)}
		for i := range o.Cells {
			if o.Cells[i].Untimed {
				continue // rejected for the tracer's sake
			}
			for j := range o.Cells[i].Blocks {
				if b := &o.Cells[i].Blocks[j]; b.Plane == p.Name {
					one.blocks++
					if !b.Counted() {
						one.bad++
					}
				}
			}
		}
		if one.blocks > 0 {
			tallies = append(tallies, one)
		}
	}
	least, pairs := 1.0, 0
	var more, less tally
	for i, a := range tallies {
		for _, b := range tallies[:i] {
			pairs++
			if p := stats.Fisher(a.bad, a.blocks, b.bad, b.blocks); p < least {
				least, more, less = p, a, b
			}
		}
	}
	if least *= float64(pairs); least > byChance {
		return ""
	}
	if more.bad*less.blocks < less.bad*more.blocks {
		more, less = less, more
	}
	return fmt.Sprintf("Not alike for all planes: %d of %s of the plane %s, and %d of %s of the plane %s; chance alone seldom does that (p %s, by Fisher's exact test over all pairs of planes). What spoils the blocks of one plane more often may come of that plane, and the blocks that are left of it are chosen ones.",
		more.bad, count(more.blocks, "block", "blocks"), more.name, less.bad, count(less.blocks, "block", "blocks"), less.name, strings.Replace(probability(least), "<", "below ", 1))
}

// anchors are the published tables that a scenario stands beside.
func anchors(o *results.Outcome) section {
	s := section{title: "Published by others", foreign: true}
	for _, id := range o.Answers {
		p, err := published.Find(id)
		if err != nil {
			s.text = append(s.text, "The published table "+clean(id)+" is not known to this program.")
			continue
		}
		s.tables = append(s.tables, foreignTable(p, p.Rows))
	}
	if len(s.tables) > 0 {
		s.text = append([]string{"Measured elsewhere, on other machines and with other versions. Nothing above was computed with these numbers, and they compare with ours by their pattern at most."}, s.text...)
	}
	return s
}

func foreignTable(p published.Table, rows [][]string) table {
	t := table{caption: p.Title, rows: rows}
	for i, title := range p.Columns {
		if i > 0 && p.Unit == "ms" && !strings.Contains(title, "requests") {
			title += ", ms"
		}
		t.columns = append(t.columns, column{title: title, keep: true, numeric: i > 0 && numericColumn(rows, i)})
	}
	t.notes = append(t.notes, "Source: "+p.Source+".", "Setting: "+p.Setting+".")
	if p.Unit != "" && p.Unit != "ms" && p.Unit != "-" {
		t.notes = append(t.notes, "Unit: "+p.Unit+".")
	}
	if p.Remark != "" {
		t.notes = append(t.notes, "Remark: "+p.Remark)
	}
	return t
}

func numericColumn(rows [][]string, i int) bool {
	return !slices.ContainsFunc(rows, func(r []string) bool {
		_, err := strconv.ParseFloat(r[i], 64)
		return err != nil
	})
}

// publishedNames are what the published tables call planes.
var publishedNames = map[string][]string{
	results.KindZtunnel:  {"ambient", "ztunnel"},
	results.KindEnvoy:    {"sidecar", "Envoy", "Istio"},
	results.KindLinkerd:  {"Linkerd"},
	results.KindCilium:   {"Cilium"},
	results.KindWaypoint: {"waypoint"},

	results.KindEnvoyWaypoint: {"waypoint"},
}

// notRun quotes what others published about planes that could not take part.
func notRun(r *results.Results) section {
	s := section{title: "Planes that were not run", foreign: true}
	for _, p := range r.Planes {
		if p.NotRun == "" {
			continue
		}
		s.items = append(s.items, clean(p.Name)+": "+clean(p.NotRun))
		for _, t := range published.All() {
			rows := slices.DeleteFunc(slices.Clone(t.Rows), func(row []string) bool {
				return !strings.Contains(row[0], "no mesh") && !slices.ContainsFunc(publishedNames[p.Kind], func(n string) bool { return strings.Contains(row[0], n) })
			})
			about := slices.ContainsFunc(rows, func(row []string) bool { return !strings.Contains(row[0], "no mesh") })
			if about {
				s.tables = append(s.tables, foreignTable(t, rows))
			}
		}
	}
	if len(s.tables) > 0 {
		s.text = []string{"Of these only what others published can be quoted, measured elsewhere and not comparable with the numbers of this run."}
	}
	return s
}
