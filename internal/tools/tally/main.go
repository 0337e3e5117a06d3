// Command tally runs the steps of a test tier one after the other, or beside each other where the tier says so, and ends with
// one honest line of counts. It knows how cargo, go and this project's scripts report tests; it decides nothing about which
// steps there are (tests/tiers/).
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	failOnSkip := flag.Bool("fail-on-skip", os.Getenv("CI") != "", "treat a skipped test as a failure")
	verbose := flag.Bool("v", false, "show the output of steps that pass")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: tally [-fail-on-skip] [-v] STEPS_FILE")
		os.Exit(64)
	}
	steps, err := readSteps(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(64)
	}
	if !runAll(os.Stdout, steps, *failOnSkip, *verbose) {
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
)

type step struct {
	name    string
	kind    kind
	command string
	// beside: those after it begin while it runs.
	beside bool
	// wait: it runs nothing, those after it begin once all those before have ended.
	wait bool
}

type counts struct{ passed, failed, skipped int }

func (c *counts) add(o counts) {
	c.passed += o.passed
	c.failed += o.failed
	c.skipped += o.skipped
}

// readSteps parses lines of the form `name | kind | command`; blank lines and # comments are passed over. A step whose line
// begins with & runs beside those after it, up to a line that says wait.
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
		if line == "wait" {
			steps = append(steps, step{wait: true})
			continue
		}
		line, beside := strings.CutPrefix(line, "&")
		parts := strings.SplitN(line, "|", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("%s:%d: want `name | kind | command`", path, n+1)
		}
		s := step{name: strings.TrimSpace(parts[0]), kind: kind(strings.TrimSpace(parts[1])), command: strings.TrimSpace(parts[2]), beside: beside}
		switch s.kind {
		case kindPlain, kindCargo, kindGo, kindScript:
		default:
			return nil, fmt.Errorf("%s:%d: unknown kind %q: use plain, cargo, go or script", path, n+1, s.kind)
		}
		steps = append(steps, s)
	}
	if !slices.ContainsFunc(steps, func(s step) bool { return !s.wait }) {
		return nil, fmt.Errorf("%s: no steps", path)
	}
	return steps, nil
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
	case kindScript:
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
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if m := re.FindStringSubmatch(strings.TrimSpace(lines.Text())); m != nil {
			c.add(counts{number(m[1]), number(m[2]), number(m[3])})
		}
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

func goEvents(out []byte) []goEvent {
	var events []goEvent
	d := json.NewDecoder(bytes.NewReader(out))
	for {
		var e goEvent
		err := d.Decode(&e)
		if errors.Is(err, io.EOF) {
			return events
		}
		if err != nil {
			// The toolchain prints plain text for what is not a test (a build error); keep it readable.
			rest, _ := io.ReadAll(d.Buffered())
			return append(events, goEvent{Action: "output", Output: string(rest)})
		}
		events = append(events, e)
	}
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
	case kindCargo, kindScript:
		re := cargoFailed
		if s.kind == kindScript {
			re = checkFailed
			if bytes.Contains(out, []byte("--- FAIL: ")) {
				re = scriptFailed
			}
		}
		for line := range strings.Lines(string(out)) {
			if m := re.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				add(m[1])
			}
		}
	}
	if len(names) == 0 {
		add("failed without naming a test")
	}
	return names
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
