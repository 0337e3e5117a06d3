package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"lateen.dev/lateen/internal/tools/tally/longrun"
)

const (
	// lanes is how many targets hack/fuzz.sh runs at once.
	lanes = 2
	// aroundTarget is how long a target takes besides the seconds that it says: its start, and the replay of its corpus.
	aroundTarget = 5 * time.Second
)

// partsOf lists the parts of a tier whose results a page keeps: each step, and each target of a step that has targets.
func (l *long) partsOf(steps []step) error {
	l.steps = map[string]step{}
	files, err := l.tree.files()
	if err != nil {
		return err
	}
	named := map[string]bool{}
	add := func(p longrun.Part, paths []string) error {
		if named[p.Name] {
			return fmt.Errorf("two parts have the name %q: rename one", p.Name)
		}
		if strings.Contains(p.Name, ",") {
			return fmt.Errorf("the part %q has a comma in its name, which separates names in PARTS: rename it", p.Name)
		}
		named[p.Name] = true
		var err error
		if p.Files, err = files.digest(paths); err != nil {
			return fmt.Errorf("the files that %s tests: %w", p.Name, err)
		}
		l.parts = append(l.parts, p)
		return nil
	}
	for _, s := range steps {
		switch {
		case s.wait || s.beside:
			return fmt.Errorf("the parts of this tier run one after the other: remove wait, and & before a step")
		case s.assumed == 0:
			return fmt.Errorf("step %q: write how long it takes behind its kind, such as 12m", s.name)
		case s.kind != kindTargets && len(s.tests) == 0:
			return fmt.Errorf("step %q: write the files that it tests behind its duration", s.name)
		}
		l.steps[s.name] = s
		if s.kind != kindTargets {
			if err := add(longrun.Part{Name: s.name, Step: s.name, Assumed: s.assumed}, s.tests); err != nil {
				return err
			}
			continue
		}
		targets, err := l.targetsOf(s)
		if err != nil {
			return err
		}
		for _, t := range targets {
			p := longrun.Part{Name: t.name, Step: s.name, Assumed: t.takes + aroundTarget, Setup: s.assumed, Parsers: t.parsers, Lanes: lanes}
			if err := add(p, t.tests); err != nil {
				return err
			}
		}
	}
	return nil
}

// target is a line of what a step lists.
type target struct {
	name    string
	takes   time.Duration
	parsers []string
	tests   []string
}

// targetsOf asks a step for its targets.
func (l *long) targetsOf(s step) ([]target, error) {
	cmd := shell(l.ctx, s.command+" --list")
	cmd.Dir = l.tree.dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", s.command, err)
	}
	var list []target
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			return nil, fmt.Errorf("%s --list: want NAME SECONDS PARSERS FILES, not %q", s.command, line)
		}
		n, err := strconv.ParseUint(fields[1], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s --list: the seconds of %s: %w", s.command, fields[0], err)
		}
		list = append(list, target{name: fields[0], takes: time.Duration(n) * time.Second, parsers: strings.Split(fields[2], ","), tests: fields[3:]})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s --list names no target", s.command)
	}
	return list, nil
}
