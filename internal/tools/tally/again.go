package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// mostFlaky is how many flaky tests a tier tolerates. With more of them the run fails: they hide what they should show.
const mostFlaky = 3

// unit is what is run once more: a test function of a package, a Rust test, or a script.
type unit struct {
	name string
	// command runs the unit alone.
	command string
}

// units lists what failed in a step and how each is run alone. It returns nothing for a step whose result depends on the tree alone,
// and for a failure that names no test, such as a build error.
func units(s step, out []byte) []unit {
	switch s.kind {
	case kindGo:
		return goUnits(out)
	case kindCargo:
		if strings.Contains(s.command, " -- ") {
			return nil
		}
		return namedUnits(cargoFailed, out, func(m []string) unit {
			return unit{name: m[1], command: s.command + " -- --exact " + quoted(m[1])}
		})
	case kindScripts:
		return namedUnits(scriptOfFailure, out, func(m []string) unit {
			return unit{name: m[1], command: s.command + " " + quoted(m[1])}
		})
	}
	return nil
}

// goUnits returns the failed top-level tests. A package that failed without a failed test, by a build error or a panic
// before the first test, gives none.
func goUnits(out []byte) []unit {
	tests := map[[2]string]bool{}
	for _, e := range goEvents(out) {
		if e.Action == "fail" && e.Test != "" {
			top, _, _ := strings.Cut(e.Test, "/")
			tests[[2]string{e.Package, top}] = true
		}
	}
	var list []unit
	for _, k := range slices.SortedFunc(maps.Keys(tests), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		list = append(list, unit{name: k[0] + " " + k[1], command: "go test -json -count=1 -run " + quoted("^"+k[1]+"$") + " " + quoted(k[0])})
	}
	return list
}

// again runs what failed in a step once more, each unit by itself, and says which of them pass alone. Everything else has ended by then.
func (t *tier) again(o *outcome) {
	list := units(o.step, o.output)
	if len(list) == 0 || len(list) > mostFlaky {
		return
	}
	named := failedNames(o.step, o.output)
	passed := 0
	for _, u := range list {
		fmt.Fprintf(t.w, "--- %s: once more, alone: %s\n", o.step.name, u.name)
		second := runStep(step{name: o.step.name, kind: o.step.kind, command: u.command}, nil)
		if second.counts.failed > 0 || second.counts.passed == 0 {
			fmt.Fprint(t.w, readable(o.step.kind, second.output))
			fmt.Fprintf(t.w, "    it fails again\n")
			continue
		}
		fmt.Fprintf(t.w, "    it passes alone, so it is flaky\n")
		passed++
		t.flaky = append(t.flaky, o.step.name+": "+u.name)
	}
	if passed < len(list) || !covers(list, o.step, named) || t.failOnSkip && o.counts.skipped > 0 {
		return
	}
	// The failures of the first run count as passed: the second run decided.
	t.total.passed += o.counts.failed
	t.total.failed -= o.counts.failed
	o.forgiven = true
}

// covers says whether every failure that the step named belongs to a unit. A failure that belongs to none, such as a step that
// ended early, still decides.
func covers(list []unit, s step, named []string) bool {
	return !slices.ContainsFunc(named, func(name string) bool {
		name = strings.TrimPrefix(name, s.name+": ")
		return !slices.ContainsFunc(list, func(u unit) bool {
			pkg, _, _ := strings.Cut(u.name, " ")
			return name == u.name || strings.HasPrefix(name, u.name+"/") || strings.HasPrefix(name, u.name+": ") || s.kind == kindGo && name == pkg
		})
	})
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
