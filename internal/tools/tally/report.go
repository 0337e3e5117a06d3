package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// report is a page that keeps the last result of a tier whose runs take too long to repeat.
type report struct {
	title, command, commit string
	at                     time.Time
}

// newReport names the commit of the working tree; a tree with changes says so.
func newReport(tierFile string, at time.Time) report {
	name := tierFile[strings.LastIndexByte(tierFile, '/')+1:]
	commit, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return report{title: "Last run of `make " + name + "`", command: "make " + name, commit: strings.TrimSpace(string(commit)), at: at}
}

// page is the result in Markdown: the verdict first, then one row for each step that ran.
func (r report) page(t *tier, passed bool, took time.Duration) string {
	var b strings.Builder
	verdict := "passed"
	if !passed {
		verdict = "failed"
	}
	fmt.Fprintf(&b, "# %s\n\nThe run of %s at commit `%s` %s: %d checks passed, %d failed, %d were skipped, in %s.\n`%s` writes this page.\n\n", r.title,
		r.at.UTC().Format(time.DateOnly), r.commit, verdict, t.total.passed, t.total.failed, t.total.skipped, took.Round(time.Second), r.command)
	b.WriteString("| step | passed | failed | skipped | seconds |\n|---|---|---|---|---|\n")
	for _, o := range t.ended {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %.0f |\n", o.step.name, o.counts.passed, o.counts.failed, o.counts.skipped, o.took.Seconds())
	}
	lines := append(append([]string{}, prefixed("Failed: ", t.failures())...), prefixed("Found, and not deciding: ", t.found)...)
	lines = append(lines, prefixed("Flaky: ", t.flaky)...)
	if len(lines) > 0 {
		b.WriteString("\n")
	}
	for _, l := range lines {
		fmt.Fprintf(&b, "- %s\n", l)
	}
	return b.String()
}

func prefixed(prefix string, lines []string) []string {
	var all []string
	for _, l := range lines {
		all = append(all, prefix+l)
	}
	return all
}

// write replaces the page in one step.
func (r report) write(file string, t *tier, passed bool, took time.Duration) error {
	next := file + ".new"
	if err := os.WriteFile(next, []byte(r.page(t, passed, took)), 0o644); err != nil {
		return err
	}
	return os.Rename(next, file)
}
