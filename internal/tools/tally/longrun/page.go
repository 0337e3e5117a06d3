package longrun

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// dateForm is how the page writes a time, which is in UTC.
	dateForm = "2006-01-02 15:04"
	// none stands in a cell that has no value.
	none = "–"
	// enough is how long a target should be fuzzed since the newest change of its files.
	enough = time.Hour
)

// The first cells of the headers of the tables that Read reads.
const (
	stepTable    = "step"
	targetTable  = "fuzz target"
	failureTable = "failed part"
)

// Columns that are read back by their names.
const (
	columnDate     = "date, UTC"
	columnPassedOn = "last passed, UTC"
	columnCommit   = "commit"
	columnFiles    = "files"
	columnSeconds  = "seconds"
	columnPassed   = "passed"
	columnFailed   = "failed"
	columnSkipped  = "skipped"
	columnFinding  = "finding"
	columnFuzzed   = "fuzzed, s"
)

// Page writes the records of the parts in Markdown. Records of parts that are gone are left out.
func (b Book) Page(parts []Part, at time.Time, commit string) string {
	var p strings.Builder
	current := 0
	for _, part := range parts {
		if r := b[part.Name]; !r.failed() && r.passed() && r.Passed.Files == part.Files {
			current++
		}
	}
	fmt.Fprintf(&p, "# Results of `make test-long`\n\n%d of %d parts have passed with the newest files that they test. `make test-long` wrote this page at commit `%s` on\n"+
		"%s UTC, and reads it back: do not edit it. `make test-long MINUTES=40` runs the parts that have waited longest, as far as\nthey fit, and `PARTS=\"soak, h1_core\"` those alone. `MINUTES=0` runs none and judges the parts anew.\n\n", current, len(parts), commit, at.UTC().Format(dateForm))
	b.verdicts(&p, parts)
	b.parsers(&p, parts)
	p.WriteString("\n`files` is a digest of the files that a part tests. A fuzz target tests the files that its header names. Without them\n" +
		"it tests the sources of the crates that it names, or of its Go package. `fuzzed` counts the seconds since these files last changed in\n" +
		"which nothing was found. A finding stays open until the files change.\n")
	var failures []string
	table(&p, []string{stepTable, "result", columnPassedOn, columnCommit, columnSeconds, columnPassed, columnSkipped, columnFiles}, parts, func(part Part) []string {
		r := b[part.Name]
		if r.failed() {
			failures = append(failures, line(append(runCells(part.Name, r.Failed, true), cellOf(r.Finding))))
		}
		if part.Target() {
			return nil
		}
		return append([]string{code(part.Name), r.result()}, runCells("", r.Passed, false)[1:]...)
	})
	table(&p, []string{targetTable, "result", columnPassedOn, columnCommit, columnSeconds, columnPassed, columnSkipped, columnFiles, columnFuzzed}, parts, func(part Part) []string {
		if !part.Target() {
			return nil
		}
		r := b[part.Name]
		cells := append([]string{code(part.Name), r.result()}, runCells("", r.Passed, false)[1:]...)
		return append(cells, seconds(r.Fuzzed))
	})
	if len(failures) > 0 {
		p.WriteString("\n" + head([]string{failureTable, columnDate, columnCommit, columnSeconds, columnPassed, columnFailed, columnSkipped, columnFiles, columnFinding}))
		p.WriteString(strings.Join(failures, ""))
	}
	return p.String()
}

// verdicts writes the table at the top: which parts need attention, and which targets were fuzzed enough.
func (b Book) verdicts(p *strings.Builder, parts []Part) {
	var failed, never, older, fuzzed []string
	targets := 0
	for _, part := range parts {
		r, name := b[part.Name], code(part.Name)
		if r.failed() {
			failed = append(failed, name)
		}
		switch {
		case !r.passed():
			never = append(never, name)
		case r.Passed.Files != part.Files:
			older = append(older, name)
		}
		if part.Target() {
			targets++
			if !r.failed() && r.fuzzed(part) >= enough {
				fuzzed = append(fuzzed, name)
			}
		}
	}
	p.WriteString(head([]string{"parts that", "how many", "names"}))
	for _, v := range []struct {
		that  string
		names []string
		of    int
	}{
		{"failed in their last run, or have an open finding", failed, len(parts)},
		{"never passed", never, len(parts)},
		{"passed before the newest change of what they test", older, len(parts)},
		{"were fuzzed for an hour since that change, and have no open finding", fuzzed, targets},
	} {
		p.WriteString(line([]string{v.that, fmt.Sprintf("%d of %d", len(v.names), v.of), cmp.Or(strings.Join(v.names, ", "), none)}))
	}
}

// parsers writes a table of the parsers that several targets feed, with the sum of their times.
func (b Book) parsers(p *strings.Builder, parts []Part) {
	targets := map[string][]string{}
	sums := map[string]time.Duration{}
	for _, part := range parts {
		for _, parser := range part.Parsers {
			targets[parser] = append(targets[parser], code(part.Name))
			if r := b[part.Name]; !r.failed() {
				sums[parser] += r.fuzzed(part)
			}
		}
	}
	var rows strings.Builder
	for _, parser := range slices.Sorted(maps.Keys(targets)) {
		if len(targets[parser]) > 1 {
			rows.WriteString(line([]string{parser, strings.Join(targets[parser], ", "), seconds(sums[parser])}))
		}
	}
	if rows.Len() > 0 {
		p.WriteString("\nThe time of a parser is the sum of those of its targets that have no open finding.\n\n" + head([]string{"parser", "targets", columnFuzzed}) + rows.String())
	}
}

func (r Record) result() string {
	switch {
	case r.failed():
		return "**failed**"
	case r.passed():
		return "passed"
	}
	return "never ran"
}

// table writes the rows of the parts for which cells returns some; without rows it writes nothing.
func table(p *strings.Builder, header []string, parts []Part, cells func(Part) []string) {
	var rows strings.Builder
	for _, part := range parts {
		if c := cells(part); c != nil {
			rows.WriteString(line(c))
		}
	}
	if rows.Len() > 0 {
		p.WriteString("\n" + head(header) + rows.String())
	}
}

// runCells are the cells of a run behind the name of its part: date, commit, seconds, counts and files.
func runCells(name string, r Run, withFailed bool) []string {
	cells := []string{code(name)}
	if r.At.IsZero() {
		return append(cells, none, none, none, none, none, none)
	}
	cells = append(cells, r.At.UTC().Format(dateForm), code(r.Commit), seconds(r.Took), strconv.Itoa(r.Passed))
	if withFailed {
		cells = append(cells, strconv.Itoa(r.Failed))
	}
	return append(cells, strconv.Itoa(r.Skipped), code(r.Files))
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

func code(s string) string { return "`" + s + "`" }

func cellOf(s string) string {
	if s == "" {
		return none
	}
	return code(s)
}

func line(cells []string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

func head(cells []string) string { return line(cells) + strings.Repeat("|---", len(cells)) + "|\n" }

// Read reads back what Page wrote.
func Read(page string) (Book, error) {
	book := Book{}
	var header []string
	for n, text := range strings.Split(page, "\n") {
		if !strings.HasPrefix(text, "|") {
			header = nil
			continue
		}
		cells := strings.Split(strings.Trim(text, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case header == nil:
			header = cells
		case strings.HasPrefix(cells[0], "---"):
		default:
			if err := book.read(header, cells); err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
		}
	}
	return book, nil
}

// read takes one row into the book.
func (b Book) read(header, cells []string) error {
	if len(cells) != len(header) {
		return fmt.Errorf("%d cells below a header of %d", len(cells), len(header))
	}
	row := map[string]string{}
	for i, name := range header {
		row[name] = strings.Trim(cells[i], "`")
	}
	name := strings.Trim(cells[0], "`")
	r := b[name]
	var err error
	switch header[0] {
	case stepTable, targetTable:
		if row[columnPassedOn] != none {
			r.Passed, err = readRun(row, columnPassedOn)
		}
		if text, is := row[columnFuzzed]; is && err == nil {
			r.Fuzzed, err = readSeconds(columnFuzzed, text)
		}
	case failureTable:
		r.Failed, err = readRun(row, columnDate)
		if row[columnFinding] != none {
			r.Finding = row[columnFinding]
		}
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if r != (Record{}) {
		b[name] = r
	}
	return nil
}

// readRun reads the cells of a run. A table without a column of failed checks has only runs that passed.
func readRun(row map[string]string, date string) (Run, error) {
	r := Run{Commit: row[columnCommit], Files: row[columnFiles]}
	var err error
	if r.At, err = time.Parse(dateForm, row[date]); err != nil {
		return Run{}, fmt.Errorf("column %q: want a time as %s: %w", date, dateForm, err)
	}
	if r.Took, err = readSeconds(columnSeconds, row[columnSeconds]); err != nil {
		return Run{}, err
	}
	for _, c := range []struct {
		column string
		into   *int
	}{{columnPassed, &r.Passed}, {columnFailed, &r.Failed}, {columnSkipped, &r.Skipped}} {
		text, is := row[c.column]
		if !is && c.column == columnFailed {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return Run{}, fmt.Errorf("column %q: %w", c.column, err)
		}
		*c.into = int(n)
	}
	return r, nil
}

func readSeconds(column, text string) (time.Duration, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("column %q: %w", column, err)
	}
	return time.Duration(n) * time.Second, nil
}
