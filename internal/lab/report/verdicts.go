package report

import (
	"fmt"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/lab/results"
)

// The report begins with its verdicts: a sentence for each plane of a scenario, then a table of one row for each of them in each
// setting. Both are about the scenario's headline, the first metric that it declared.

// verdictSentences says for every plane of a scenario how it compares with its baseline over all settings.
func verdictSentences(o *results.Outcome, ds []digest) (sentences []string) {
	type tally struct {
		plane, baseline, metric string
		says                    []string // by order of appearance
		times                   map[string]int
		settings                int
	}
	var list []*tally
	for i := range ds {
		for _, v := range headlines(&ds[i]) {
			at := slices.IndexFunc(list, func(t *tally) bool { return t.plane == v.Plane && t.baseline == v.Baseline })
			if at < 0 {
				at, list = len(list), append(list, &tally{plane: v.Plane, baseline: v.Baseline, metric: v.Metric, times: map[string]int{}})
			}
			t := list[at]
			if says := v.Says(); t.times[says] == 0 {
				t.says = append(t.says, says)
			}
			t.times[v.Says()]++
			t.settings++
		}
	}
	for _, t := range list {
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
		sentences = append(sentences, fmt.Sprintf("%s: %s against %s, by %s: %s.", clean(o.Scenario), clean(t.plane), clean(t.baseline), ShortName(t.metric), strings.Join(parts, ", ")))
	}
	return sentences
}

// headlines are the verdicts of a setting by its headline, those of witnesses left out: two that are alike are the noise.
func headlines(d *digest) (list []results.Verdict) {
	base := d.side(d.baseline)
	for i := range d.sides {
		s := &d.sides[i]
		if s.plane.Name == d.baseline || base != nil && alike(base.plane, s.plane) {
			continue
		}
		for _, v := range d.verdicts(s.plane.Name) {
			if first := d.side(v.Baseline); v.Metric == d.headline() && (first == nil || !alike(first.plane, s.plane)) {
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
