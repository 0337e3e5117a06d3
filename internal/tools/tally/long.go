package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/tools/tally/longrun"
)

// cleanup is how long an interrupted step may take to remove what it made, such as a mesh.
const cleanup = time.Minute

// long runs the parts of a tier whose run takes hours. It writes the page as soon as a part has ended, so that an interrupted run
// loses only the parts that were under way.
type long struct {
	ctx                 context.Context
	w                   io.Writer
	tree                tree
	failOnSkip, verbose bool
	now                 func() time.Time

	commit string
	steps  map[string]step
	parts  []longrun.Part
	book   longrun.Book
	// only has the names of the parts, or of their steps, that may run; if it is empty, all may.
	only []string

	total counts
	// failed checks, each behind the name of its part.
	failed []string
	// over are parts that did not fit in the time that was left.
	over []longrun.Part
	// unwritten is why the page could not be written.
	unwritten error
}

// runLong runs the parts named in only, or all if it is empty, as far as they fit in a budget. It returns the exit code of the program.
func runLong(steps []step, page string, budget time.Duration, only []string, failOnSkip, verbose bool) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l := &long{ctx: ctx, w: os.Stdout, tree: tree{dir: ".", page: page}, only: only, failOnSkip: failOnSkip, verbose: verbose, now: time.Now}
	passed, err := l.run(steps, budget)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "tally:", err)
		return 1
	case ctx.Err() != nil:
		return 130
	case !passed:
		return 1
	}
	return 0
}

// run runs the parts that have waited longest, as far as they fit in the budget, and says whether all that ran passed.
func (l *long) run(steps []step, budget time.Duration) (bool, error) {
	if err := l.open(steps); err != nil {
		return false, err
	}
	waiting, err := l.eligible()
	if err != nil {
		return false, err
	}
	started := l.now()
	until := started.Add(budget)
	for l.ctx.Err() == nil {
		batch := l.book.Next(waiting, until.Sub(l.now()))
		if len(batch) == 0 {
			break
		}
		if err := l.unchanged(); err != nil {
			return false, err
		}
		waiting = slices.DeleteFunc(waiting, func(p longrun.Part) bool {
			return slices.ContainsFunc(batch, func(chosen longrun.Part) bool { return chosen.Name == p.Name })
		})
		s := l.steps[batch[0].Step]
		takes := l.book.Estimate(batch...).Round(time.Second)
		if batch[0].Target() {
			fmt.Fprintf(l.w, "--- %s: %d of them, about %s\n", s.name, len(batch), takes)
			l.runTargets(s, batch, until, budget < longrun.Unlimited)
		} else {
			fmt.Fprintf(l.w, "--- %s, about %s\n", s.name, takes)
			l.runPart(s, batch[0])
		}
		if l.unwritten != nil {
			return false, l.unwritten
		}
	}
	l.over = append(waiting, l.over...)
	if l.write(); l.unwritten != nil {
		return false, l.unwritten
	}
	return l.end(until.Sub(l.now()), l.now().Sub(started)), nil
}

// eligible returns the parts that may run, longest-waiting first. A name that neither a part nor a step has is an error.
func (l *long) eligible() ([]longrun.Part, error) {
	waiting := l.book.Waiting(l.parts)
	if len(l.only) == 0 {
		return waiting, nil
	}
	var chosen []longrun.Part
	found := map[string]bool{}
	for _, p := range waiting {
		found[p.Name], found[p.Step] = true, true
		if slices.Contains(l.only, p.Name) || slices.Contains(l.only, p.Step) {
			chosen = append(chosen, p)
		}
	}
	for _, name := range l.only {
		if !found[name] {
			return nil, fmt.Errorf("no part has the name %q: the names are %s", name, strings.Join(slices.Sorted(maps.Keys(found)), ", "))
		}
	}
	return chosen, nil
}

// unchanged makes sure that the tree is still the commit of which the run has the digests, and from which the programs were built.
func (l *long) unchanged() error {
	commit, err := l.tree.commit()
	if err == nil && commit != l.commit {
		err = errors.New("it is at commit " + commit)
	}
	if err != nil {
		return fmt.Errorf("the tree has changed since this run began at commit %s: begin another run: %w", l.commit, err)
	}
	return nil
}

// open reads the tree and the page.
func (l *long) open(steps []step) error {
	var err error
	if l.commit, err = l.tree.commit(); err != nil {
		return err
	}
	if err := l.partsOf(steps); err != nil {
		return err
	}
	text, err := os.ReadFile(l.pageFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if l.book, err = longrun.Read(string(text)); err != nil {
		return fmt.Errorf("%s: %w: take the committed page back with git checkout", l.tree.page, err)
	}
	return nil
}

func (l *long) pageFile() string { return filepath.Join(l.tree.dir, l.tree.page) }

// write replaces the page in one step.
func (l *long) write() {
	next := l.pageFile() + ".new"
	if l.unwritten = os.WriteFile(next, []byte(l.book.Page(l.parts, l.now(), l.commit)), 0o644); l.unwritten == nil {
		l.unwritten = os.Rename(next, l.pageFile())
	}
}

// command runs in a process group of its own: an interrupt ends the programs that a script has started as well.
func (l *long) command(text string) *exec.Cmd {
	cmd := shell(l.ctx, text)
	cmd.Dir = l.tree.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Not SIGINT, which the background jobs of a script ignore.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = cleanup
	return cmd
}

// runPart runs a part that is a whole step.
func (l *long) runPart(s step, p longrun.Part) {
	var live io.Writer
	if l.verbose && s.kind != kindGo {
		live = l.w
	}
	o := runCommand(l.command(s.command), s, live)
	if l.ctx.Err() != nil {
		fmt.Fprintf(l.w, "    interrupted, so that it counts for nothing\n")
		return
	}
	if o.counts.failed > 0 {
		l.failed = append(l.failed, failedNames(s, o.output)...)
	}
	if ok := l.take(p, o.counts, o.took, 0, ""); !ok && live == nil {
		fmt.Fprint(l.w, readable(s.kind, o.output))
	}
	fmt.Fprintf(l.w, "    %s in %.1fs\n", o.counts, o.took.Seconds())
}

// take keeps the outcome of a part and says whether it passed. A part whose tests were all skipped has not.
func (l *long) take(p longrun.Part, c counts, took, fuzzed time.Duration, finding string) bool {
	ok := c.failed == 0 && c.passed > 0 && (c.skipped == 0 || !l.failOnSkip)
	if !ok && c.failed == 0 {
		l.failed = append(l.failed, p.Name+": tests were skipped")
	}
	l.total.add(c)
	// At least a second: what takes no time at all would fit in no time at all.
	took = max(took.Round(time.Second), time.Second)
	run := longrun.Run{At: l.now().UTC().Truncate(time.Minute), Commit: l.commit, Files: p.Files, Took: took, Passed: c.passed, Failed: c.failed, Skipped: c.skipped}
	l.book[p.Name] = l.book[p.Name].After(longrun.Outcome{Run: run, OK: ok, Fuzzed: fuzzed, Finding: finding})
	l.write()
	return ok
}

var (
	// targetEnded ends the lines of a target.
	targetEnded = regexp.MustCompile(`^--- FUZZED: (\S+), (\d+) s$`)
	// targetLeft names a target that was not begun, because it would not end in time.
	targetLeft = regexp.MustCompile(`^--- LEFT: (\S+)$`)
	// checkPassed is a check of a script.
	checkPassed = regexp.MustCompile(`^ok - `)
	// findingOf takes the name of the input from a failed check, and not its folder, which is one of this machine.
	findingOf = regexp.MustCompile(`^not ok - .*its input is \S*?([^/\s]+)$`)
)

// runTargets runs targets of a step and keeps each of them as it ends. What ends after an interrupt does not count.
func (l *long) runTargets(s step, batch []longrun.Part, until time.Time, limited bool) {
	text := s.command
	for _, p := range batch {
		text += " " + quoted(p.Name)
	}
	cmd := l.command(text)
	if limited {
		cmd.Env = append(os.Environ(), "FUZZ_UNTIL="+strconv.FormatInt(until.Unix(), 10))
	}
	open := slices.Clone(batch)
	remove := func(name string) (longrun.Part, bool) {
		at := slices.IndexFunc(open, func(p longrun.Part) bool { return p.Name == name })
		if at < 0 {
			return longrun.Part{}, false
		}
		p := open[at]
		open = slices.Delete(open, at, at+1)
		return p, true
	}
	var block bytes.Buffer
	o := runCommand(cmd, s, &lines{each: func(text string) {
		if m := targetLeft.FindStringSubmatch(text); m != nil {
			if p, is := remove(m[1]); is {
				l.over = append(l.over, p)
			}
			return
		}
		m := targetEnded.FindStringSubmatch(text)
		if m == nil {
			block.WriteString(text + "\n")
			return
		}
		if p, is := remove(m[1]); is && l.ctx.Err() == nil {
			l.takeTarget(s, p, block.Bytes(), time.Duration(number(m[2]))*time.Second)
		}
		block.Reset()
	}})
	if l.ctx.Err() != nil {
		fmt.Fprintf(l.w, "    interrupted: %d of %d targets ended before, and only they count\n", len(batch)-len(open), len(batch))
		return
	}
	if len(open) > 0 {
		fmt.Fprint(l.w, string(o.output))
	}
	for _, p := range open {
		l.failed = append(l.failed, s.name+": "+p.Name+" has no result")
		l.take(p, counts{failed: 1}, 0, 0, "")
	}
}

// takeTarget keeps the outcome of one target, of which out has the checks.
func (l *long) takeTarget(s step, p longrun.Part, out []byte, fuzzed time.Duration) {
	bad := matches(checkFailed, out)
	c := counts{passed: len(matches(checkPassed, out)), failed: len(bad)}
	finding := ""
	if m := matches(findingOf, out); len(m) > 0 {
		finding = m[0][1]
	}
	for _, m := range bad {
		l.failed = append(l.failed, s.name+": "+m[1])
	}
	if ok := l.take(p, c, fuzzed, fuzzed, finding); !ok || l.verbose {
		fmt.Fprint(l.w, string(out))
	}
	fmt.Fprintf(l.w, "    %s: %s\n", p.Name, c)
}

// end prints what was passed over and what failed, and says whether all that ran passed.
func (l *long) end(left, took time.Duration) bool {
	targets := map[string]int{}
	for _, p := range l.over {
		if p.Target() {
			targets[p.Step]++
		} else if l.ctx.Err() == nil {
			fmt.Fprintf(l.w, "--- PASSED OVER: %s takes about %s, and %s are left\n", p.Name, l.book.Estimate(p).Round(time.Second), max(left, 0).Round(time.Second))
		}
	}
	for _, s := range l.parts {
		if n := targets[s.Step]; n > 0 && l.ctx.Err() == nil {
			fmt.Fprintf(l.w, "--- PASSED OVER: %d targets of %s, and %s are left\n", n, s.Step, max(left, 0).Round(time.Second))
			delete(targets, s.Step)
		}
	}
	for _, n := range l.failed[:min(len(l.failed), mostNames)] {
		fmt.Fprintf(l.w, "--- FAIL: %s\n", n)
	}
	fmt.Fprintf(l.w, "%s has the last result of each part\n%.0f s in all\n%s\n", l.tree.page, took.Seconds(), l.total)
	return len(l.failed) == 0
}

// lines hands on what is written to it, line by line.
type lines struct {
	each func(string)
	rest []byte
}

func (l *lines) Write(data []byte) (int, error) {
	l.rest = append(l.rest, data...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(data), nil
		}
		l.each(strings.TrimRight(string(line), "\r"))
		l.rest = rest
	}
}
