package report

import (
	"fmt"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/stats"
)

// Rejudge computes a document's verdicts again from its blocks, as this program judges; who was compared with whom, and by which
// metrics, stays as it was declared before the run. Where a judgement differs from that in the document the report says so.
func Rejudge(r *results.Results) {
	if len(r.Planes) == 0 {
		return
	}
	all, differ := 0, []string{}
	for i := range r.Scenarios {
		for j := range r.Scenarios[i].Cells {
			c := &r.Scenarios[i].Cells[j]
			if c.Untimed {
				continue
			}
			var anew []results.Verdict
			for rest := c.Verdicts; len(rest) > 0; {
				n := 1
				for n < len(rest) && rest[n].Baseline == rest[0].Baseline && rest[n].Plane == rest[0].Plane {
					n++
				}
				var metrics []string
				for _, v := range rest[:n] {
					metrics = append(metrics, v.Metric)
				}
				anew = append(anew, stats.Judge(*c, rest[0].Baseline, []string{rest[0].Plane}, metrics, witnessOf(r, rest[0]))...)
				rest = rest[n:]
			}
			if len(anew) != len(c.Verdicts) {
				continue // a plane beside itself: no program of ours wrote that
			}
			for k, v := range anew {
				all++
				if was := c.Verdicts[k]; was.Judgement != v.Judgement && !(results.Unjudged(was.Judgement) && results.Unjudged(v.Judgement)) {
					differ = append(differ, fmt.Sprintf("%s, %s of %s to %s: %s, was %s", c.Name, metricWords(v.Metric), v.Plane, v.Baseline, v.Says(), was.Says()))
				}
			}
			c.Verdicts = anew
		}
	}
	if len(differ) == 0 {
		return
	}
	const most = 8
	text := fmt.Sprintf("The verdicts were computed again from the blocks: %d of %d are not those of the document, which another version of this program wrote", len(differ), all)
	if more := len(differ) - most; more > 0 {
		differ = append(differ[:most], fmt.Sprintf("and %d more", more))
	}
	r.Remarks = append(r.Remarks, text+" ("+strings.Join(differ, "; ")+").")
}

// witnessOf finds the two planes that are alike whose noise a comparison is judged by, as runs do: those of the plane that is compared
// with itself, else lateen's where lateen is one of the two and not beside the first plane, else the first's.
func witnessOf(r *results.Results, v results.Verdict) *stats.Witness {
	twin := func(name string) *stats.Witness {
		if i := slices.IndexFunc(r.Planes, func(p results.Plane) bool { return p.Name == name+secondSelf }); i < 0 {
			return nil
		}
		return &stats.Witness{Baseline: name, Plane: name + secondSelf}
	}
	order := []string{r.Planes[0].Name}
	switch {
	case v.Plane == v.Baseline+secondSelf:
		order = []string{v.Baseline}
	case v.Baseline != r.Planes[0].Name:
		order = append([]string{results.KindLateen}, order...)
	}
	for _, p := range r.Planes {
		order = append(order, p.Name)
	}
	for _, name := range order {
		if w := twin(name); w != nil {
			return w
		}
	}
	return &stats.Witness{Baseline: order[0], Plane: order[0] + secondSelf} // declared, and never measured
}

// secondSelf ends the name of a plane that takes part twice.
const secondSelf = "-2"
