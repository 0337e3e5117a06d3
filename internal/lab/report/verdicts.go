package report

import (
	"fmt"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/lab/results"
)

// The report begins with its verdicts: a sentence for each plane of a scenario, then a table of one row for each of them in each
// setting. Both are about the scenario's headline, the first metric that it declared.

// verdictSentences says for every plane of a scenario how it compares with its baseline over all settings, by the headline. Where the
// CPU time of the whole path was judged, a second sentence has that: a plane can be faster and cost more.
func verdictSentences(o *results.Outcome, ds []digest) (sentences []string) {
	byTime := tallies(ds, func(d *digest) string { return d.headline() })
	byCost := tallies(ds, func(*digest) string { return cpuTotal(results.RoleAll) })
	for _, t := range byTime {
		sentences = append(sentences, t.sentence(o.Scenario))
		for _, cost := range byCost {
			if cost.plane == t.plane && cost.baseline == t.baseline && cost.metric != t.metric && cost.judged {
				sentences = append(sentences, cost.sentence(o.Scenario))
			}
		}
	}
	return sentences
}

// tally is how a plane compares with its baseline by one metric, over the settings of a scenario.
type tally struct {
	plane, baseline, metric string
	says                    []string // by order of appearance
	times                   map[string]int
	settings                int
	judged                  bool      // in some setting
	ratios                  []float64 // of the settings that were judged
}

// tallies are those of all planes by the metric that each setting has.
func tallies(ds []digest, metric func(*digest) string) (list []*tally) {
	for i := range ds {
		for _, v := range verdictsBy(&ds[i], metric(&ds[i])) {
			at := slices.IndexFunc(list, func(t *tally) bool { return t.plane == v.Plane && t.baseline == v.Baseline })
			if at < 0 {
				at, list = len(list), append(list, &tally{plane: v.Plane, baseline: v.Baseline, metric: v.Metric, times: map[string]int{}})
			}
			t, says := list[at], saysOf(v)
			if t.times[says] == 0 {
				t.says = append(t.says, says)
			}
			t.times[says]++
			t.settings++
			t.judged = t.judged || !results.Unjudged(v.Judgement)
			if !results.Unjudged(v.Judgement) && v.Pairs > 0 && v.Ratio > 0 {
				t.ratios = append(t.ratios, v.Ratio)
			}
		}
	}
	return list
}

// saysOf is a judgement in a word. CPU time is more or less, since "slower" means that a request takes longer.
func saysOf(v results.Verdict) string {
	switch {
	case v.Metric == cpuTotal(results.RoleAll) && v.Judgement == results.Slower:
		return "more"
	case v.Metric == cpuTotal(results.RoleAll) && v.Judgement == results.Faster:
		return "less"
	}
	return v.Says()
}

// sentence says a tally, of CPU time with how much it differs.
func (t *tally) sentence(scenario string) string {
	var parts []string
	for _, says := range t.says {
		switch {
		case t.settings == 1:
			parts = append(parts, clean(says))
		case t.times[says] == t.settings:
			parts = append(parts, fmt.Sprintf("%s in all %d settings", clean(says), t.settings))
		default:
			parts = append(parts, fmt.Sprintf("%s in %d of %d settings", clean(says), t.times[says], t.settings))
		}
	}
	text := fmt.Sprintf("%s: %s against %s, by %s: %s", clean(scenario), clean(t.plane), clean(t.baseline), ShortName(t.metric), strings.Join(parts, ", "))
	if t.metric == cpuTotal(results.RoleAll) && len(t.ratios) > 0 {
		low, high := slices.Min(t.ratios), slices.Max(t.ratios)
		factor := asFactors(t.ratios...)
		text += " (" + change(low, factor)
		if change(high, factor) != change(low, factor) {
			text += " to " + change(high, factor)
		}
		text += ")"
	}
	return text + "."
}

// headlines are the verdicts of a setting by its headline.
func headlines(d *digest) []results.Verdict { return verdictsBy(d, d.headline()) }

// verdictsBy are the verdicts of a setting by a metric, those of witnesses left out: two that are alike are the noise.
func verdictsBy(d *digest, metric string) (list []results.Verdict) {
	base := d.side(d.baseline)
	for i := range d.sides {
		s := &d.sides[i]
		if s.plane.Name == d.baseline || base != nil && alike(base.plane, s.plane) {
			continue
		}
		for _, v := range d.verdicts(s.plane.Name) {
			if first := d.side(v.Baseline); v.Metric == metric && (first == nil || !alike(first.plane, s.plane)) {
				list = append(list, v)
			}
		}
	}
	return list
}

// verdictSummary is the table of the headlines of all scenarios. What all rows have in common is in no row: a table that is
// wider than a screen is no summary.
func verdictSummary(r *results.Results) table {
	type row struct {
		scenario, setting string
		v                 results.Verdict
		diff, interval    string
		own               bool // against the setting's baseline
	}
	var rows []row
	metrics := map[string]bool{}
	for i := range r.Scenarios {
		o := &r.Scenarios[i]
		scenario := clean(o.Scenario)
		if len(r.Scenarios) == 1 {
			scenario = ""
		}
		for _, d := range digests(r, o) {
			setting := clean(d.cell.Name)
			for _, v := range headlines(&d) {
				diff, interval := verdictDifference(d.cell, v)
				rows = append(rows, row{scenario, setting, v, diff, interval, v.Baseline == d.baseline})
				metrics[v.Metric] = true
				scenario, setting = "", ""
			}
		}
	}
	t := table{columns: []column{{title: "scenario"}, {title: "setting"}, text("plane"), text("difference"), {title: "95 % interval"}, text("verdict")}}
	if len(rows) > 0 && len(metrics) == 1 {
		t.columns[3].title = ShortName(rows[0].v.Metric)
	}
	for _, one := range rows {
		plane := clean(one.v.Plane)
		if !one.own {
			plane += " / " + clean(one.v.Baseline)
		}
		if len(metrics) > 1 && one.diff != none {
			one.diff = ShortName(one.v.Metric) + " " + one.diff
		}
		t.add(one.scenario, one.setting, plane, one.diff, one.interval, clean(one.v.Says()))
	}
	return t.trimmed()
}

// Verdicts are the sentences that a report begins with.
func Verdicts(r *results.Results) (sentences []string) {
	for i := range r.Scenarios {
		sentences = append(sentences, verdictSentences(&r.Scenarios[i], digests(r, &r.Scenarios[i]))...)
	}
	return sentences
}

// planeWords says of the planes whose names do not tell it what they are.
func planeWords(r *results.Results) string {
	var parts []string
	for _, p := range r.Planes {
		if is := nature(r, p); is != "" {
			parts = append(parts, clean(p.Name)+" is "+is)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	text := "Planes: " + strings.Join(parts, "; ") + "."
	if strings.Contains(text, "(A/A)") {
		text += " What differs between a plane and its second self is noise."
	}
	return text
}
