package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"time"
)

// outcome is a step that has ended.
type outcome struct {
	step   step
	counts counts
	output []byte
	took   time.Duration
	// busy is the time on processors of its command and of all that the command waited for.
	busy time.Duration
	// forgiven: all that failed passed when it ran once more, alone.
	forgiven bool
}

// tier is a run of steps, as far as it has come.
type tier struct {
	w          io.Writer
	failOnSkip bool
	verbose    bool
	// last is how long the steps took the last time; nil for none.
	last  *durations
	total counts
	// ended steps, in the order in which they ended.
	ended []outcome
	// failed steps, in the order in which they ended.
	failed []*outcome
	// flaky tests: each failed and passed when it ran once more, alone.
	flaky []string
	// found is what steps found and did not let decide.
	found []string
	// beside are the steps that run beside the others, in the order in which they began.
	beside []running
}

// running is a step that runs beside others.
type running struct {
	name  string
	ended chan outcome
}

// run runs the steps, runs what failed once more, and says how all of it ended. The output of a step that runs beside others
// is printed in one piece, where the steps wait for it.
func (t *tier) run(steps []step) bool {
	started := time.Now()
	for i, s := range steps {
		switch {
		case s.wait:
			t.wait(s.awaited)
		case s.beside:
			fmt.Fprintf(t.w, "--- %s begins, beside what follows %s\n", s.name, t.last.place(steps, i))
			ended := make(chan outcome, 1)
			t.beside = append(t.beside, running{s.name, ended})
			go func() { ended <- runStep(s, nil) }()
		default:
			fmt.Fprintf(t.w, "--- %s %s\n", s.name, t.last.place(steps, i))
			var live io.Writer
			if t.verbose && s.kind != kindGo {
				live = t.w
			}
			t.take(runStep(s, live), live != nil)
		}
	}
	t.wait(nil)
	for _, o := range t.failed {
		t.again(o)
	}
	return t.end(time.Since(started))
}

// end prints what decides and says whether the tier passed. A reader of a long log looks at its end, so each finding is one line there.
func (t *tier) end(took time.Duration) bool {
	passed := true
	for _, o := range t.failed {
		if o.forgiven {
			continue
		}
		passed = false
		fmt.Fprintf(t.w, "FAILED: %s\n", o.step.name)
	}
	for _, n := range t.failures() {
		fmt.Fprintf(t.w, "--- FAIL: %s\n", n)
	}
	for _, n := range t.found {
		fmt.Fprintf(t.w, "--- FOUND: %s (this does not decide)\n", n)
	}
	for _, n := range t.flaky {
		fmt.Fprintf(t.w, "--- FLAKY: %s (failed, and passed alone: mend it before new work)\n", n)
	}
	if len(t.flaky) > mostFlaky {
		passed = false
		fmt.Fprintf(t.w, "FAILED: %d flaky tests, and at most %d are tolerated\n", len(t.flaky), mostFlaky)
	}
	fmt.Fprintf(t.w, "%.0f s in all\n", took.Seconds())
	if t.failOnSkip && t.total.skipped > 0 {
		fmt.Fprintln(t.w, "a skipped test counts as a failure here: make it run or remove it")
	}
	fmt.Fprintf(t.w, "%s\n", t.total)
	return passed
}

// failures names the tests that failed and decide, at most mostNames of them.
func (t *tier) failures() []string {
	var names []string
	for _, o := range t.failed {
		if !o.forgiven {
			names = append(names, failedNames(o.step, o.output)...)
		}
	}
	return names[:min(len(names), mostNames)]
}

// wait takes the outcomes of the steps of these names that run beside the others; without names, of all.
func (t *tier) wait(names []string) {
	var left []running
	for _, r := range t.beside {
		if len(names) > 0 && !slices.Contains(names, r.name) {
			left = append(left, r)
			continue
		}
		o := <-r.ended
		fmt.Fprintf(t.w, "--- %s\n", o.step.name)
		t.take(o, false)
	}
	t.beside = left
}

// take counts a step's outcome; shown says whether its output has been seen already.
func (t *tier) take(o outcome, shown bool) {
	t.total.add(o.counts)
	t.last.took(o.step, o.took)
	t.ended = append(t.ended, o)
	failed := o.counts.failed > 0 || (t.failOnSkip && o.counts.skipped > 0)
	if failed {
		t.failed = append(t.failed, &o)
	}
	for _, m := range matches(told, o.output) {
		t.found = append(t.found, o.step.name+": "+m[1])
	}
	if !shown && (failed || t.verbose && o.step.kind != kindGo) {
		fmt.Fprint(t.w, readable(o.step.kind, o.output))
	}
	fmt.Fprintf(t.w, "    %s in %.1fs (%.0f s of processor time)\n", o.counts, o.took.Seconds(), o.busy.Seconds())
}

// runStep runs a step to its end; its output goes to live as well, if that is given.
func runStep(s step, live io.Writer) outcome {
	return runCommand(shell(context.Background(), s.command), s, live)
}

func shell(ctx context.Context, command string) *exec.Cmd {
	return exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
}

// runCommand runs the command of a step to its end, and reads its output as the step's kind has it.
func runCommand(cmd *exec.Cmd, s step, live io.Writer) outcome {
	var out bytes.Buffer
	var w io.Writer = &out
	if live != nil {
		w = io.MultiWriter(&out, live)
	}
	began := time.Now()
	cmd.Stdout, cmd.Stderr = w, w
	err := cmd.Run()
	o := outcome{step: s, counts: tallyOutput(s.kind, out.Bytes(), err), output: out.Bytes(), took: time.Since(began)}
	if p := cmd.ProcessState; p != nil {
		o.busy = p.UserTime() + p.SystemTime()
	}
	return o
}
