package check

import (
	"context"
	"errors"
	"fmt"
)

// Minimum is the least version of a tool that Lateen's own programs or samples work with.
type Minimum struct {
	Code    string
	Name    string
	Command []string // prints the version, on standard output or standard error
	Least   Version
	Weight  map[Purpose]Outcome
	// Package is the Debian package that has it; empty where Debian 12's is too old to help.
	Package string
	// TooOld is added to the fix where people are likely to have an old version from their distribution.
	TooOld string
	// Without says what goes on without the tool, where the finding is a warning.
	Without string
}

// Minimums is the one table of versions: the check, the demonstration and the documentation follow it.
// The interpreters are warnings for the demonstration because the compiled echo service can stand in for them.
func Minimums() []Minimum {
	build := map[Purpose]Outcome{Build: Failure}
	demo := map[Purpose]Outcome{Demo: Warning}
	const standIn = "the compiled echo service stands in for Bookinfo"
	return []Minimum{
		{
			Code: "LAT020", Name: "Go", Command: []string{"go", "version"}, Least: Version{1, 26}, Weight: build,
			TooOld: "Debian 12's own Go is too old; install a release from https://go.dev/dl/ and put its bin first in PATH",
		},
		{
			Code: "LAT021", Name: "Rust", Command: []string{"rustc", "--version"}, Least: Version{1, 95}, Weight: build,
			TooOld: "Debian 12's own Rust is too old; install with https://rustup.rs and put ~/.cargo/bin first in PATH",
		},
		{
			Code: "LAT022", Name: "Cargo", Command: []string{"cargo", "--version"}, Least: Version{1, 95}, Weight: build,
			TooOld: "it comes with Rust from https://rustup.rs; Debian 12's own is too old",
		},
		{
			Code: "LAT023", Name: "C compiler", Command: []string{"cc", "--version"}, Least: Version{10}, Weight: build,
			Package: "build-essential",
		},
		{
			Code: "LAT030", Name: "Python", Command: []string{"python3", "--version"}, Least: Version{3, 11}, Weight: demo,
			Package: "python3", Without: standIn,
		},
		{
			Code: "LAT031", Name: "Node.js", Command: []string{"node", "--version"}, Least: Version{18}, Weight: demo,
			Package: "nodejs", Without: standIn,
		},
		{
			Code: "LAT032", Name: "JDK", Command: []string{"javac", "-version"}, Least: Version{17}, Weight: demo,
			Package: "openjdk-17-jdk-headless", Without: standIn,
		},
		{
			Code: "LAT033", Name: "Ruby", Command: []string{"ruby", "--version"}, Least: Version{3, 1}, Weight: demo,
			Package: "ruby", Without: standIn,
		},
		{
			Code: "LAT034", Name: "WEBrick", Command: []string{"ruby", "-e", `require "webrick"; puts WEBrick::VERSION`},
			Least: Version{1, 7}, Weight: demo, Package: "ruby-webrick", Without: standIn,
		},
	}
}

func (m Minimum) probe(ctx context.Context, sys System) (string, *Problem) {
	output, err := sys.Output(ctx, m.Command)
	if err != nil {
		cause := fmt.Sprintf("%s does not answer: %v", m.Command[0], err)
		if errors.Is(err, ErrNotFound) {
			cause = fmt.Sprintf("%s is not in PATH", m.Command[0])
		}
		return "", m.problem(cause)
	}
	version, ok := FindVersion(output)
	if !ok {
		return "", m.problem(fmt.Sprintf("%s printed no version: %q", m.Command[0], firstLine(output)))
	}
	if version.Less(m.Least) {
		return "", m.problem(fmt.Sprintf("version %s found, %s needed", version, m.Least))
	}
	return version.String(), nil
}

func (m Minimum) problem(cause string) *Problem {
	fix := m.TooOld
	if m.Package != "" {
		fix = "apt-get install " + m.Package
	}
	if m.Without != "" {
		fix += "; without it " + m.Without
	}
	return &Problem{Cause: cause, Fix: fix}
}
