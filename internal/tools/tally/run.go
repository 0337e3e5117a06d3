package main

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// outcome is a step that has ended.
type outcome struct {
	step   step
	counts counts
	output []byte
	took   time.Duration
}

// tier is a run of steps, as far as it has come.
type tier struct {
	w          io.Writer
	failOnSkip bool
	verbose    bool
	total      counts
	// failed steps, and what they named.
	failures, names []string
	// beside are the steps that run beside the others, in the order in which they began.
	beside []chan outcome
}

// runAll runs the steps and says how they ended. What a step that runs beside others has to say is said in one piece, where
// the steps wait for it.
func runAll(w io.Writer, steps []step, failOnSkip, verbose bool) bool {
	t := &tier{w: w, failOnSkip: failOnSkip, verbose: verbose}
	started := time.Now()
	for _, s := range steps {
		switch {
		case s.wait:
			t.wait()
		case s.beside:
			fmt.Fprintf(w, "--- %s begins, beside what follows\n", s.name)
			ended := make(chan outcome, 1)
			t.beside = append(t.beside, ended)
			go func() { ended <- runStep(s, nil) }()
		default:
			fmt.Fprintf(w, "--- %s\n", s.name)
			var live io.Writer
			if verbose && s.kind != kindGo {
				live = w
			}
			t.take(runStep(s, live), live != nil)
		}
	}
	t.wait()
	for _, f := range t.failures {
		fmt.Fprintf(w, "FAILED: %s\n", f)
	}
	// Last, because a reader of a long log looks at its end, and one line each, in the form that log viewers know.
	for _, n := range t.names[:min(len(t.names), mostNames)] {
		fmt.Fprintf(w, "--- FAIL: %s\n", n)
	}
	fmt.Fprintf(w, "%.0f s in all\n", time.Since(started).Seconds())
	if failOnSkip && t.total.skipped > 0 {
		fmt.Fprintln(w, "a skipped test counts as a failure here: make it run or remove it")
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", t.total.passed, t.total.failed, t.total.skipped)
	return len(t.failures) == 0
}

// wait takes the outcomes of the steps that run beside the others.
func (t *tier) wait() {
	for _, ended := range t.beside {
		o := <-ended
		fmt.Fprintf(t.w, "--- %s\n", o.step.name)
		t.take(o, false)
	}
	t.beside = nil
}

// take counts a step's outcome; shown says whether its output has been seen already.
func (t *tier) take(o outcome, shown bool) {
	t.total.add(o.counts)
	failed := o.counts.failed > 0 || (t.failOnSkip && o.counts.skipped > 0)
	if failed {
		t.failures = append(t.failures, o.step.name)
		t.names = append(t.names, failedNames(o.step, o.output)...)
	}
	if !shown && (failed || t.verbose && o.step.kind != kindGo) {
		fmt.Fprint(t.w, readable(o.step.kind, o.output))
	}
	fmt.Fprintf(t.w, "    %d passed, %d failed, %d skipped in %.1fs\n", o.counts.passed, o.counts.failed, o.counts.skipped, o.took.Seconds())
}

// runStep runs a step to its end; its output goes to live as well, if that is given.
func runStep(s step, live io.Writer) outcome {
	var out bytes.Buffer
	var w io.Writer = &out
	if live != nil {
		w = io.MultiWriter(&out, live)
	}
	began := time.Now()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", s.command)
	cmd.Stdout, cmd.Stderr = w, w
	err := cmd.Run()
	return outcome{s, tallyOutput(s.kind, out.Bytes(), err), out.Bytes(), time.Since(began)}
}
