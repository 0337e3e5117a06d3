package archtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// interop runs a runner of tests/interop, in a tree of its own, on one script that says and does what is given. Nothing of the mesh runs.
func interop(t *testing.T, runner, script, says string, code int) (output string, exit int) {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{runner, "release.sh"} {
		put("tests/interop/"+name, read(t, "tests/interop/"+name))
	}
	put("tests/interop/sides.txt", "accept/01-told 2\n\naccept/02-listed 2\n  client: the second | its reason\n\naccept/03-uncounted\n")
	put("tests/"+script+".sh", "cat <<'END'\n"+says+"\nEND\nexit "+strconv.Itoa(code)+"\n")
	put("ztunnel", "visibility")
	put("bin/go", "#!/bin/sh\n") // builds the tools, of which there is no need
	cmd := exec.Command("bash", filepath.Join(dir, "tests/interop", runner), strings.TrimPrefix(script, "interop/"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "ZTUNNEL="+filepath.Join(dir, "ztunnel"), "TMPDIR="+dir)
	out, err := cmd.CombinedOutput()
	if exited := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exited) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// Each script runs twice: with ztunnel behind the client, and behind the server.
func TestSidesPassOnlyChecksThatWereMade(t *testing.T) {
	const told, listed, uncounted = "accept/01-told", "accept/02-listed", "accept/03-uncounted"
	for name, c := range map[string]struct {
		script, says string
		code, exit   int
		last, want   string
	}{
		"all made":                    {told, "ok - one\nok - two\n2 passed, 0 failed, 0 skipped", 0, 0, "4 passed, 0 failed, 0 skipped", "2 passed, 0 failed in"},
		"one failed":                  {told, "ok - one\nnot ok - two\n1 passed, 1 failed, 0 skipped", 1, 1, "2 passed, 2 failed, 0 skipped", "ztunnel behind the client: two"},
		"listed at the client alone":  {listed, "ok - one\nnot ok - the second\n1 passed, 1 failed, 0 skipped", 1, 1, "3 passed, 1 failed, 0 skipped", "ok - as listed, otherwise: the second"},
		"listed, and not otherwise":   {listed, "ok - one\nok - two\n2 passed, 0 failed, 0 skipped", 0, 1, "4 passed, 1 failed, 0 skipped", "listed as otherwise: the second"},
		"skipped":                     {told, "ok - one\nok - two\n2 passed, 0 failed, 1 skipped", 0, 1, "4 passed, 2 failed, 2 skipped", "1 of its checks were skipped"},
		"fewer checks than there are": {told, "ok - one\n1 passed, 0 failed, 0 skipped", 0, 1, "2 passed, 2 failed, 0 skipped", "it made 1 checks of 2"},
		"more checks than there are":  {told, "3 passed, 0 failed, 0 skipped", 0, 1, "6 passed, 2 failed, 0 skipped", "it made 3 checks of 2"},
		"another code":                {told, "2 passed, 0 failed, 0 skipped", 3, 1, "4 passed, 2 failed, 0 skipped", "it ended with code 3"},
		"a code that counts deny":     {told, "2 passed, 0 failed, 0 skipped", 1, 1, "4 passed, 2 failed, 0 skipped", "it ended with code 1 where it counted 0 failed"},
		"failures without names":      {told, "1 passed, 1 failed, 0 skipped", 1, 1, "2 passed, 2 failed, 0 skipped", "it counted 1 failed and named 0"},
		"no counts":                   {told, "ok - one\nok - two", 0, 1, "0 passed, 2 failed, 0 skipped", "it ended with code 0 and no counts"},
		"no number in sides.txt":      {uncounted, "2 passed, 0 failed, 0 skipped", 0, 1, "4 passed, 2 failed, 0 skipped", "does not say how many checks"},
	} {
		out, exit := interop(t, "sides.sh", c.script, c.says, c.code)
		if exit != c.exit || lastLine(out) != c.last || !strings.Contains(out, c.want) {
			t.Errorf("%s: code %d, want %d with %q and %q:\n%s", name, exit, c.exit, c.last, c.want, out)
		}
	}
}

func TestInteropPassesOnlyChecksThatWereMade(t *testing.T) {
	for name, c := range map[string]struct {
		says       string
		code, exit int
		last, want string
	}{
		"all made":     {"ok - one\n1 passed, 0 failed, 0 skipped", 0, 0, "1 passed, 0 failed, 0 skipped", "ok - one"},
		"one failed":   {"not ok - one\n0 passed, 1 failed, 0 skipped", 1, 1, "0 passed, 1 failed, 0 skipped", "not ok - one"},
		"another code": {"1 passed, 0 failed, 0 skipped", 3, 1, "1 passed, 1 failed, 0 skipped", "ended with code 3"},
		"skipped":      {"1 passed, 0 failed, 16 skipped", 0, 1, "1 passed, 1 failed, 16 skipped", "16 checks of 01-told.sh were skipped"},
		"no counts":    {"ok - one", 0, 1, "0 passed, 1 failed, 0 skipped", "no counts"},
	} {
		out, exit := interop(t, "run.sh", "interop/01-told", c.says, c.code)
		if exit != c.exit || lastLine(out) != c.last || !strings.Contains(out, c.want) {
			t.Errorf("%s: code %d, want %d with %q and %q:\n%s", name, exit, c.exit, c.last, c.want, out)
		}
	}
}

// How many checks a script makes is said where the runner reads it and where readers do.
func TestChecksOfSidesAreThoseOfItsPage(t *testing.T) {
	const page = "docs/reference/ztunnel-compatibility.md"
	_, section, _ := strings.Cut(read(t, page), "## The other tests, with ztunnel on either side")
	section, _, _ = strings.Cut(section, "\n## ")
	told := map[string]string{}
	names := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		scripts, counts := names.FindAllStringSubmatch(cells[1], -1), strings.Split(cells[2], ",")
		if len(scripts) != len(counts) {
			t.Errorf("%s: %d scripts and %d numbers: %s", page, len(scripts), len(counts), line)
			continue
		}
		for i, s := range scripts {
			name := s[1]
			if !strings.Contains(name, "/") {
				name = "accept/" + name
			}
			told[name] = strings.TrimSpace(counts[i])
		}
	}
	counted, sum := map[string]string{}, 0
	for line := range strings.Lines(read(t, "tests/interop/sides.txt")) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.ContainsAny(line[:1], "# ") {
			continue
		}
		if len(words) != 2 {
			t.Errorf("sides.txt: a script and its number of checks, and no more: %s", line)
			continue
		}
		n, err := strconv.Atoi(words[1])
		if err != nil {
			t.Errorf("sides.txt: %s", line)
		}
		counted[words[0]], sum = words[1], sum+2*n
	}
	var all []string
	for name := range counted {
		all = append(all, name)
	}
	for name := range told {
		all = append(all, name)
	}
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		if counted[name] != told[name] {
			t.Errorf("%s makes %q checks by sides.txt and %q by %s", name, counted[name], told[name], page)
		}
		if _, err := os.Stat(filepath.Join(root(t), "tests", name+".sh")); err != nil {
			t.Error(err)
		}
	}
	if want := "all " + strconv.Itoa(sum) + " ended so"; !strings.Contains(section, want) {
		t.Errorf("%s does not say %q, the sum of both sides", page, want)
	}
}
