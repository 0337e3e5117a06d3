package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/quick"
)

// machine is a System that satisfies every check until a test takes something away.
type machine struct {
	uid     int
	outputs map[string]string // by command name and arguments
	memory  uint64
	disk    uint64
	lacks   map[KernelFeature]error
	files   map[string]bool
}

func goodMachine() *machine {
	return &machine{
		memory: 8192, disk: 50_000, lacks: map[KernelFeature]error{},
		outputs: map[string]string{
			"go version":        "go version go1.26.8 linux/amd64",
			"rustc --version":   "rustc 1.95.0 (59807616e 2026-04-14)",
			"cargo --version":   "cargo 1.95.0 (f2d3ce0bd 2026-03-21)",
			"cc --version":      "cc (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022",
			"python3 --version": "Python 3.11.7",
			"node --version":    "v20.20.2",
			"javac -version":    "javac 17.0.15",
			"ruby --version":    "ruby 3.1.2p20 (2022-04-12 revision 4491bb740a) [x86_64-linux-gnu]",
			`ruby -e require "webrick"; puts WEBrick::VERSION`: "1.8.1",
		},
		files: map[string]bool{"/opt/bin/lateen-control": true, "/opt/bin/lateen-agent": true, "/opt/bin/lateen-proxy": true, "/opt/bin/lateen-load": true},
	}
}

func (m *machine) EffectiveUID() int { return m.uid }
func (m *machine) Output(_ context.Context, command []string) (string, error) {
	output, ok := m.outputs[strings.Join(command, " ")]
	if !ok {
		return "", fmt.Errorf("%s: %w", command[0], ErrNotFound)
	}
	return output, nil
}
func (m *machine) AvailableMemoryMiB() (uint64, error)  { return m.memory, nil }
func (m *machine) FreeDiskMiB() (uint64, string, error) { return m.disk, "/srv", nil }
func (m *machine) ProgramDir() (string, error)          { return "/opt/bin", nil }
func (m *machine) IsExecutable(path string) bool        { return m.files[path] }
func (m *machine) ProbeKernel(_ context.Context, f KernelFeature) error {
	return m.lacks[f]
}

func TestAGoodMachinePassesForEveryPurpose(t *testing.T) {
	for _, purpose := range Purposes() {
		report := Run(t.Context(), goodMachine(), purpose)
		if len(report.Results) == 0 {
			t.Errorf("%s: nothing was checked", purpose)
		}
		for _, r := range report.Results {
			if r.Outcome != OK {
				t.Errorf("%s: %s %s: %s", purpose, r.Code, r.Title, r.Cause)
			}
		}
	}
}

func TestFindings(t *testing.T) {
	tests := []struct {
		name    string
		change  func(*machine)
		purpose Purpose
		code    string
		outcome Outcome
		cause   string
		fix     string
	}{
		{"no root", func(m *machine) { m.uid = 1000 }, Up, "LAT001", Failure, "user id is 1000", "as root"},
		{"no root hides no kernel", func(m *machine) { m.uid = 1000 }, Up, "LAT004", Failure, "without root", "see LAT001"},
		{
			"no redirect", func(m *machine) { m.lacks[KernelRedirect] = errors.New("add a redirect rule: the kernel lacks it") },
			Demo, "LAT004", Failure, "lacks it", "modprobe",
		},
		{
			"no capture is no obstacle to up", func(m *machine) { m.lacks[KernelCapture] = errors.New("no af_packet") },
			Up, "LAT009", Warning, "no af_packet", "modprobe af_packet",
		},
		{
			"no capture stops the demo", func(m *machine) { m.lacks[KernelCapture] = errors.New("no af_packet") },
			Demo, "LAT009", Failure, "no af_packet", "modprobe af_packet",
		},
		{"little memory", func(m *machine) { m.memory = 300 }, Up, "LAT010", Failure, "300 MiB available", "larger machine"},
		{"little disk", func(m *machine) { m.disk = 10 }, Build, "LAT011", Failure, "10 MiB free in /srv", "free some space"},
		{
			"not built", func(m *machine) { delete(m.files, "/opt/bin/lateen-proxy") },
			Up, "LAT012", Failure, "not in /opt/bin: lateen-proxy", "make build",
		},
		{
			"no load generator", func(m *machine) { delete(m.files, "/opt/bin/lateen-load") },
			Demo, "LAT013", Failure, "not in /opt/bin: lateen-load", "make build",
		},
		{
			"Debian's Go", func(m *machine) { m.outputs["go version"] = "go version go1.19.8 linux/amd64" },
			Build, "LAT020", Failure, "version 1.19.8 found, 1.26 needed", "Debian 12's own Go is too old",
		},
		{"no Go", func(m *machine) { delete(m.outputs, "go version") }, Build, "LAT020", Failure, "go is not in PATH", "go.dev"},
		{
			"Debian's Rust", func(m *machine) { m.outputs["rustc --version"] = "rustc 1.63.0 (4b91a6ea7 2022-08-08)" },
			Build, "LAT021", Failure, "version 1.63.0 found, 1.95 needed", "rustup",
		},
		{
			"old Python", func(m *machine) { m.outputs["python3 --version"] = "Python 3.9.2" },
			Demo, "LAT030", Warning, "version 3.9.2 found, 3.11 needed", "echo service stands in",
		},
		{
			"no Ruby", func(m *machine) { delete(m.outputs, "ruby --version") },
			Demo, "LAT033", Warning, "ruby is not in PATH", "apt-get install ruby;",
		},
		{
			"a tool without a version", func(m *machine) { m.outputs["node --version"] = "hello" },
			Demo, "LAT031", Warning, `printed no version: "hello"`, "apt-get install nodejs",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := goodMachine()
			tt.change(m)
			report := Run(t.Context(), m, tt.purpose)
			for _, r := range report.Results {
				if r.Code != tt.code {
					continue
				}
				if r.Outcome != tt.outcome || !strings.Contains(r.Cause, tt.cause) || !strings.Contains(r.Fix, tt.fix) {
					t.Errorf("got %s: cause %q, fix %q", r.Outcome, r.Cause, r.Fix)
				}
				if report.Failed() != (tt.outcome == Failure) {
					t.Errorf("report.Failed() = %v", report.Failed())
				}
				return
			}
			t.Errorf("%s was not checked", tt.code)
		})
	}
}

func TestCodesAreUniqueAndEveryCheckHasAPurpose(t *testing.T) {
	seen := map[string]string{}
	for _, c := range Catalogue() {
		if other, taken := seen[c.Code]; taken {
			t.Errorf("%s means both %q and %q", c.Code, other, c.Title)
		}
		seen[c.Code] = c.Title
		if len(c.Weight) == 0 {
			t.Errorf("%s is never run", c.Code)
		}
	}
}

func TestFindVersion(t *testing.T) {
	tests := map[string]string{
		"go version go1.26.8 linux/amd64":     "1.26.8",
		"rustc 1.95.0 (59807616e 2026-04-14)": "1.95.0",
		"v20.20.2":                            "20.20.2",
		"javac 17":                            "17",
		"javac 21.0.1":                        "21.0.1",
		"ruby 3.1.2p20 (2022-04-12) [x86_64-linux-gnu]":          "3.1.2",
		"cc (Debian 12.2.0-14+deb12u1) 12.2.0":                   "12.2.0",
		"Python 3.11.7":                                          "3.11.7",
		"Picked up _JAVA_OPTIONS: -Xmx1g\njavac 17.0.15":         "17.0.15",
		"go version devel go1.27-6b1b2c1 2026-01-01 linux/amd64": "1.27",
	}
	for output, want := range tests {
		if got, ok := FindVersion(output); !ok || got.String() != want {
			t.Errorf("%q: got %v, want %s", output, got, want)
		}
	}
	if v, ok := FindVersion("no number here"); ok {
		t.Errorf("found %v in a text without one", v)
	}
}

func TestFindVersionNeverPanicsAndRoundTrips(t *testing.T) {
	anything := func(s string) bool {
		v, ok := FindVersion(s)
		return ok == (len(v) > 0)
	}
	if err := quick.Check(anything, nil); err != nil {
		t.Error(err)
	}
	printed := func(a, b, c uint16) bool {
		v := Version{int(a), int(b), int(c)}
		got, ok := FindVersion("tool " + v.String() + " (build)")
		return ok && got.String() == v.String()
	}
	if err := quick.Check(printed, nil); err != nil {
		t.Error(err)
	}
}

func TestVersionsCompareByNumber(t *testing.T) {
	tests := []struct {
		a, b string
		less bool
	}{{"1.9", "1.26", true}, {"1.26", "1.26.0", false}, {"1.26.1", "1.26", false}, {"17", "17.0.1", true}, {"3.11", "3.9", false}}
	for _, tt := range tests {
		a, _ := FindVersion(tt.a)
		b, _ := FindVersion(tt.b)
		if got := a.Less(b); got != tt.less {
			t.Errorf("%s < %s: got %v", tt.a, tt.b, got)
		}
	}
}
