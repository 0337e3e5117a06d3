// Command tally runs the steps of a test tier one after the other, or beside each other where the tier says so, and ends with
// one honest line of counts. It knows how cargo, go and this project's scripts report tests; it decides nothing about which
// steps there are (tests/tiers/).
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"lateen.dev/lateen/internal/tools/tally/longrun"
)

func main() {
	failOnSkip := flag.Bool("fail-on-skip", os.Getenv("CI") != "", "treat a skipped test as a failure")
	verbose := flag.Bool("v", false, "show the output of steps that pass")
	page := flag.String("page", "", "a page in Markdown that keeps the last result of each part; the parts run one after the other, longest-waiting first")
	minutes := flag.Uint("minutes", 0, "with -page: run only parts that fit in so many minutes; without it all run")
	only := flag.String("only", "", "with -page: run only these parts, or all targets of these steps, with commas between their names")
	flag.Parse()
	names := splitNames(*only)
	if flag.NArg() != 1 || *only != "" && (*page == "" || len(names) == 0) {
		fmt.Fprintln(os.Stderr, "usage: tally [-fail-on-skip] [-v] [-page FILE [-minutes N] [-only PART,PART]] STEPS_FILE")
		os.Exit(64)
	}
	steps, err := readSteps(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(64)
	}
	if *page != "" {
		budget := longrun.Unlimited
		flag.Visit(func(f *flag.Flag) {
			if f.Name == "minutes" {
				budget = time.Duration(*minutes) * time.Minute
			}
		})
		os.Exit(runLong(steps, *page, budget, names, *failOnSkip, *verbose))
	}
	t := &tier{w: os.Stdout, failOnSkip: *failOnSkip, verbose: *verbose, last: readDurations(flag.Arg(0))}
	passed := t.run(steps)
	t.last.write()
	if !passed {
		os.Exit(1)
	}
}

// kind says how a step reports its tests.
type kind string

const (
	kindPlain  kind = "plain"  // the exit code is the only test
	kindCargo  kind = "cargo"  // libtest's "test result:" lines
	kindGo     kind = "go"     // go test -json
	kindScript kind = "script" // "N passed, N failed, N skipped" lines
	// kindScripts is a runner of scripts: it reports as a script does, repeats each failure as "--- FAIL: SCRIPT: CHECK", and
	// takes names of scripts as arguments, so that a script that failed can be run once more, alone.
	kindScripts kind = "scripts"
	// kindTargets is a script that takes names of targets as arguments; without arguments it runs all of them. With --list it prints
	// a line for each target: its name, the seconds that it runs, the parsers that it feeds with commas between, and the files that it
	// tests. It ends the output of a target with "--- FUZZED: NAME, N s", where N is 0 if the target failed. It begins no target that
	// would not end by FUZZ_UNTIL.
	kindTargets kind = "targets"
)

type step struct {
	name    string
	kind    kind
	command string
	// beside: those after it begin while it runs.
	beside bool
	// wait: it runs nothing, those after it begin once those before have ended: all, or the ones in awaited.
	wait    bool
	awaited []string
	// assumed is how long the step takes, as the tier's file says; 0 if it says nothing. For targets it is the time before the first begins.
	assumed time.Duration
	// tests are the files and folders that the step tests; none if the tier's file says nothing.
	tests []string
}

type counts struct{ passed, failed, skipped int }

func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

func (c *counts) add(o counts) {
	c.passed += o.passed
	c.failed += o.failed
	c.skipped += o.skipped
}

// readSteps parses lines of the form `name | kind | command`; blank lines and # comments are passed over. A step whose line
// begins with & runs beside those after it, up to a line `wait NAME, NAME` that names it, or to a line `wait`. In a tier whose results
// a page keeps, the duration of the step and the files that it tests stand behind the kind: `name | kind 12m crates cmd | command`.
func readSteps(path string) ([]step, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var steps []step
	for n, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if names, ok := waitLine(line); ok {
			for _, name := range names {
				if !slices.ContainsFunc(steps, func(s step) bool { return s.beside && s.name == name }) {
					return nil, fmt.Errorf("%s:%d: no step %q runs beside others by then", path, n+1, name)
				}
			}
			steps = append(steps, step{wait: true, awaited: names})
			continue
		}
		line, beside := strings.CutPrefix(line, "&")
		parts := strings.SplitN(line, "|", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("%s:%d: want `name | kind | command`", path, n+1)
		}
		s := step{name: strings.TrimSpace(parts[0]), command: strings.TrimSpace(parts[2]), beside: beside}
		about := strings.Fields(parts[1])
		if len(about) > 0 {
			s.kind = kind(about[0])
		}
		switch s.kind {
		case kindPlain, kindCargo, kindGo, kindScript, kindScripts, kindTargets:
		default:
			return nil, fmt.Errorf("%s:%d: unknown kind %q: use plain, cargo, go, script, scripts or targets", path, n+1, s.kind)
		}
		if len(about) > 1 {
			if s.assumed, err = time.ParseDuration(about[1]); err != nil || s.assumed <= 0 {
				return nil, fmt.Errorf("%s:%d: want a duration such as 12m behind the kind, not %q", path, n+1, about[1])
			}
			s.tests = about[2:]
		}
		steps = append(steps, s)
	}
	if !slices.ContainsFunc(steps, func(s step) bool { return !s.wait }) {
		return nil, fmt.Errorf("%s: no steps", path)
	}
	return steps, nil
}

// splitNames splits a list at its commas. Names may have spaces within.
func splitNames(list string) []string {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// waitLine reads `wait`, or `wait NAME, NAME`; a line with | is a step.
func waitLine(line string) (names []string, ok bool) {
	rest, ok := strings.CutPrefix(line, "wait")
	if !ok || strings.Contains(rest, "|") || rest != "" && rest[0] != ' ' {
		return nil, false
	}
	return splitNames(rest), true
}

var (
	cargoResult  = regexp.MustCompile(`^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored`)
	scriptResult = regexp.MustCompile(`^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$`)
)

// tallyOutput counts what a step reported. A step that fails without naming a failed test counts as one failure, and a
// step that should run tests and reports none counts as one too: green by absence is red.
func tallyOutput(k kind, out []byte, err error) counts {
	var c counts
	switch k {
	case kindPlain:
		if err == nil {
			return counts{passed: 1}
		}
		return counts{failed: 1}
	case kindCargo:
		c = matchLines(out, cargoResult)
	case kindScript, kindScripts, kindTargets:
		c = matchLines(out, scriptResult)
	case kindGo:
		c = tallyGo(out)
	}
	if err != nil && c.failed == 0 {
		c.failed = 1
	}
	if err == nil && c == (counts{}) {
		c.failed = 1
	}
	return c
}

func matchLines(out []byte, re *regexp.Regexp) counts {
	var c counts
	for _, m := range matches(re, out) {
		c.add(counts{number(m[1]), number(m[2]), number(m[3])})
	}
	return c
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil && s != "" {
		panic("the expression matches digits only: " + s)
	}
	return n
}

type goEvent struct {
	Action, Package, Test, Output string
}

// goEvents reads the output of go test -json. The toolchain prints plain text between the events for what is not a test, such as a
// build error or a module that it downloads: such a line becomes an event of its own, and those behind it count as well.
func goEvents(out []byte) []goEvent {
	var events []goEvent
	for line := range bytes.Lines(out) {
		var e goEvent
		if json.Unmarshal(line, &e) != nil {
			e = goEvent{Action: "output", Output: string(line)}
		}
		events = append(events, e)
	}
	return events
}

func tallyGo(out []byte) counts {
	var c counts
	for _, e := range goEvents(out) {
		switch {
		case e.Test == "" && e.Action == "fail":
			// The package itself: counted only when no test of it is (a build failure, a panic in init).
			continue
		case e.Test == "":
		case e.Action == "pass":
			c.passed++
		case e.Action == "fail":
			c.failed++
		case e.Action == "skip":
			c.skipped++
		}
	}
	return c
}

// mostNames is how many failed tests are repeated at the end.
const mostNames = 40

var (
	cargoFailed = regexp.MustCompile(`^test (\S+) \.\.\. FAILED$`)
	// A runner of scripts repeats what failed with the script's name; a single script says no more than "not ok".
	scriptFailed = regexp.MustCompile(`^--- FAIL: (.*)$`)
	checkFailed  = regexp.MustCompile(`^not ok - (.*)$`)
	// scriptOfFailure takes the script's name from a runner's line.
	scriptOfFailure = regexp.MustCompile(`^--- FAIL: ([0-9][A-Za-z0-9._-]*\.sh): `)
	// told is what a step found that does not decide, such as an input that only a fuzzer met.
	told = regexp.MustCompile(`^--- FOUND: (.*)$`)
)

// failedNames lists the tests that a step named as failed, each once, prefixed with the step.
func failedNames(s step, out []byte) []string {
	var names []string
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, s.name+": "+name)
		}
	}
	switch s.kind {
	case kindGo:
		for _, e := range goEvents(out) {
			if e.Action == "fail" {
				add(strings.TrimSpace(e.Package + " " + e.Test))
			}
		}
	case kindCargo, kindScript, kindScripts, kindTargets:
		re := checkFailed
		switch {
		case s.kind == kindCargo:
			re = cargoFailed
		case bytes.Contains(out, []byte("--- FAIL: ")):
			re = scriptFailed
		}
		for _, m := range matches(re, out) {
			add(m[1])
		}
	}
	if len(names) == 0 {
		add("failed without naming a test")
	}
	return names
}

// namedUnits makes a unit of each line that matches, each name once.
func namedUnits(re *regexp.Regexp, out []byte, of func([]string) unit) []unit {
	var list []unit
	for _, m := range matches(re, out) {
		if u := of(m); !slices.Contains(list, u) {
			list = append(list, u)
		}
	}
	return list
}

// matches returns the submatches of every line that matches.
func matches(re *regexp.Regexp, out []byte) [][]string {
	var all [][]string
	for line := range bytes.Lines(out) {
		if m := re.FindStringSubmatch(string(bytes.TrimSpace(line))); m != nil {
			all = append(all, m)
		}
	}
	return all
}

// readable turns go's JSON back into the text of what failed.
func readable(k kind, out []byte) string {
	if k != kindGo {
		return string(out)
	}
	failed := map[string]bool{}
	events := goEvents(out)
	for _, e := range events {
		if e.Action == "fail" || e.Action == "skip" || e.Action == "build-fail" {
			failed[e.Package+" "+e.Test] = true
		}
	}
	var b strings.Builder
	for _, e := range events {
		if e.Output != "" && (failed[e.Package+" "+e.Test] || e.Package == "" || e.Action == "build-output") {
			b.WriteString(e.Output)
		}
	}
	return b.String()
}
