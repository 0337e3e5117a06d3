package run

import (
	"fmt"
	"slices"
	"time"

	"lateen.dev/lateen/internal/lab/scenario"
)

// remaining is what is left of a run's plan, and how fast the plan has been so far.
type remaining struct {
	steps []step // of the scenario under way
	later []step // of the scenarios after it
	began time.Time
	// planned and took are the times of the steps that were taken, by their kind.
	planned, took [stepKinds]time.Duration
}

// begin takes a scenario up; later is what the plan has behind it.
func (r *remaining) begin(steps, later []step, now time.Time) {
	r.steps, r.later, r.began = steps, later, now
}

// replan replaces what is left of the scenario, once it is known what takes part.
func (r *remaining) replan(steps []step) {
	r.steps = slices.DeleteFunc(steps, func(s step) bool { return s.kind == stepStart })
}

// add puts steps before the others: what has to be done again.
func (r *remaining) add(steps []step) { r.steps = append(steps, r.steps...) }

// done takes the next step of a kind off the plan. It took the time since the step before.
func (r *remaining) done(kind stepKind, now time.Time) {
	if i := slices.IndexFunc(r.steps, func(s step) bool { return s.kind == kind }); i >= 0 {
		r.planned[kind] += r.steps[i].takes
		r.took[kind] += now.Sub(r.began)
		r.steps = slices.Delete(r.steps, i, i+1)
	}
	r.began = now
}

// time is how long the rest will probably take. Steps of a kind that took half as long again so far will go on to do so.
func (r *remaining) time() (sum time.Duration) {
	for _, s := range slices.Concat(r.steps, r.later) {
		pace := 1.0
		if r.planned[s.kind] > 0 {
			pace = float64(r.took[s.kind]) / float64(r.planned[s.kind])
		}
		sum += time.Duration(float64(s.takes) * pace)
	}
	return sum
}

// blocks is how many blocks of the scenario are left.
func (r *remaining) blocks() (n int) {
	for _, s := range r.steps {
		if s.kind == stepBlock || s.kind == stepCount {
			n++
		}
	}
	return n
}

// left says how much there is still to do: in blocks of the scenario, and in time until the run ends.
func (s *session) left() string {
	rest := s.plan.blocks()
	if rest == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d of %d blocks, about %s left)", s.blocks, s.blocks+rest, Rough(s.plan.time()))
}

// Rough writes a duration as exactly as an estimate deserves: seconds up to a minute, tens of them up to ten minutes, then
// minutes.
func Rough(d time.Duration) string {
	switch {
	case d.Round(time.Second) < time.Minute:
		return fmt.Sprintf("%ds", int(d.Round(time.Second).Seconds()))
	case d.Round(10*time.Second) < 10*time.Minute:
		d = d.Round(10 * time.Second)
		if seconds := int(d.Seconds()) % 60; seconds > 0 {
			return fmt.Sprintf("%dm%ds", int(d.Minutes()), seconds)
		}
		return fmt.Sprintf("%dm", int(d.Minutes()))
	}
	d = d.Round(time.Minute)
	if d < time.Hour {
		return fmt.Sprintf("%dm", int(d.Minutes()))
	}
	return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
}

// after are the steps of the scenarios behind one.
func (s *session) after(sc *scenario.Scenario) (steps []step) {
	i := slices.Index(s.options.Scenarios, sc)
	for _, next := range s.options.Scenarios[i+1:] {
		_, cells, _ := s.options.equipped(next, s.LookPath)
		steps = append(steps, s.options.steps(next, cells, len(s.options.specs(next)), s.options.traces(next, s.LookPath))...)
	}
	return steps
}
