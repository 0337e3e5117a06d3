// Package longrun keeps the last result of each part of a test tier whose run takes hours, and chooses the parts that a budget of time
// allows. It starts no program and reads no repository: internal/tools/tally runs the parts and names the files that they test.
package longrun

import (
	"math"
	"slices"
	"time"
)

// Unlimited is a budget in which every part fits.
const Unlimited time.Duration = math.MaxInt64

// Part is what passes or fails by itself: a step of a tier, or one target of a step that has targets.
type Part struct {
	Name string
	// Step runs the part. A run of the step takes any number of its targets.
	Step string
	// Files is a digest of the files that the part tests, as they are now.
	Files string
	// Assumed is how long a step takes if it never passed. A target takes this time in every run.
	Assumed time.Duration
	// Setup is how long a run of targets takes before the first one begins.
	Setup time.Duration
	// Parsers are what a target feeds with bytes.
	Parsers []string
	// Lanes is how many targets of the step run at once. It is 0 for a part that is a whole step.
	Lanes int
}

// Target says whether the part is one of several targets of its step.
func (p Part) Target() bool { return p.Lanes > 0 }

// Waiting returns the parts in the order in which they should run: those that never ran, then the others by the end of their last
// run. A failed run counts as a run here. Otherwise a part that always fails would use up every budget.
func (b Book) Waiting(parts []Part) []Part {
	sorted := slices.Clone(parts)
	slices.SortStableFunc(sorted, func(x, y Part) int { return b[x.Name].ended().Compare(b[y.Name].ended()) })
	return sorted
}

// Next chooses what runs next: the first waiting part that fits in the time that is left. If that is a target, the targets of the same
// step join it that have waited longer than the next part that fits. Next returns no part if none fits.
func (b Book) Next(waiting []Part, left time.Duration) []Part {
	var batch []Part
	var taken time.Duration
	for _, p := range waiting {
		if len(batch) > 0 && p.Step != batch[0].Step {
			if b.Estimate(p) <= left-taken {
				break
			}
			continue
		}
		joined := append(batch[:len(batch):len(batch)], p)
		took := b.Estimate(joined...)
		if took > left {
			continue
		}
		batch, taken = joined, took
		if !p.Target() {
			break
		}
	}
	return batch
}

// Estimate is how long parts of one step probably take together.
func (b Book) Estimate(parts ...Part) time.Duration {
	if len(parts) == 0 {
		return 0
	}
	first := parts[0]
	if first.Target() {
		turns := (len(parts) + first.Lanes - 1) / first.Lanes
		return first.Setup + time.Duration(turns)*first.Assumed
	}
	if last := b[first.Name].Passed; !last.At.IsZero() {
		return last.Took
	}
	return first.Assumed
}
