// Package check finds out whether this machine can build or run a mesh, and says what to do when it cannot: a
// catalogue of findings with a stable code, a cause and a fix each. It changes nothing on the machine, and it does
// not look into a running mesh.
package check

import (
	"context"
	"fmt"
	"slices"
)

// Purpose is what the machine is wanted for; it selects the checks that matter.
type Purpose string

// The purposes that a caller can ask about.
const (
	// Up is running a mesh of local nodes.
	Up Purpose = "up"
	// Demo is running the demonstration, with its samples in four languages.
	Demo Purpose = "demo"
	// Build is building Lateen from source.
	Build Purpose = "build"
)

// Purposes lists every purpose, in the order in which help texts name them.
func Purposes() []Purpose { return []Purpose{Up, Demo, Build} }

// ParsePurpose turns a flag's value into a Purpose.
func ParsePurpose(s string) (Purpose, error) {
	if p := Purpose(s); slices.Contains(Purposes(), p) {
		return p, nil
	}
	return "", fmt.Errorf("unknown purpose %q; use one of %v", s, Purposes())
}

// Outcome says how a check ended.
type Outcome string

// The outcomes of a check. A Warning names something that works less well; a Failure stops the purpose.
const (
	OK      Outcome = "ok"
	Warning Outcome = "warning"
	Failure Outcome = "failure"
)

// Result is one line of a report. Its JSON form is part of the command line's contract: fields are added, never renamed.
type Result struct {
	Code    string  `json:"code"`
	Title   string  `json:"title"`
	Outcome Outcome `json:"outcome"`
	Found   string  `json:"found,omitempty"`
	Cause   string  `json:"cause,omitempty"`
	Fix     string  `json:"fix,omitempty"`
}

// Report is what Run found for one purpose.
type Report struct {
	Purpose Purpose  `json:"purpose"`
	Results []Result `json:"results"`
}

// Failed reports whether any check of the report stops its purpose.
func (r Report) Failed() bool {
	return slices.ContainsFunc(r.Results, func(x Result) bool { return x.Outcome == Failure })
}

// Count returns how many results ended in the given outcome.
func (r Report) Count(o Outcome) int {
	n := 0
	for _, x := range r.Results {
		if x.Outcome == o {
			n++
		}
	}
	return n
}

// Check is one entry of the catalogue. Weight is the outcome of a finding per purpose: a purpose that is absent does
// not run the check at all.
type Check struct {
	Code   string
	Title  string
	Weight map[Purpose]Outcome
	// Probe looks at the system and returns what it found, or why that is not enough.
	Probe func(ctx context.Context, sys System) (found string, problem *Problem)
}

// Problem is why a probe is not satisfied, and what the user can do about it.
type Problem struct {
	Cause string
	Fix   string
}

// Run applies every check that matters for the purpose, in the catalogue's order; proxyEnv are the variables (NAME=VALUE) that node
// proxies are to have besides the engine's own.
func Run(ctx context.Context, sys System, purpose Purpose, proxyEnv ...string) Report {
	report := Report{Purpose: purpose, Results: []Result{}}
	for _, c := range Catalogue(proxyEnv...) {
		weight, wanted := c.Weight[purpose]
		if !wanted {
			continue
		}
		found, problem := c.Probe(ctx, sys)
		result := Result{Code: c.Code, Title: c.Title, Outcome: OK, Found: found}
		if problem != nil {
			result.Outcome, result.Cause, result.Fix = weight, problem.Cause, problem.Fix
		}
		report.Results = append(report.Results, result)
	}
	return report
}
