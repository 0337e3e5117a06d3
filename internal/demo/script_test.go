package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tree is a copy of the scripts with everything that they call replaced by fakes that say how they were called.
type tree struct {
	t    *testing.T
	root string
}

func newTree(t *testing.T) tree {
	t.Helper()
	tr := tree{t, t.TempDir()}
	for _, name := range []string{"demo.sh", "toolchain.sh", "packages.sh", "packages.list"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "hack", name))
		if err != nil {
			t.Fatal(err)
		}
		tr.write("hack/"+name, string(text))
	}
	// What the scripts need of a plain system comes from this one.
	for _, name := range []string{"bash", "sh", "env", "dirname", "sort", "head", "awk", "sed", "uname", "cat", "test"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(tr.root, "fake"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(tr.root, "fake", name)); err != nil {
			t.Fatal(err)
		}
	}
	tr.says("id", "0")
	tr.says("go", "go1.26.8")
	tr.says("rustc", "rustc 1.95.0 (abc 2026-04-14)")
	for _, name := range []string{"cc", "cmake", "git", "curl", "ps", "ss"} {
		tr.says(name, name)
	}
	tr.calls("fake/make")
	tr.calls("fake/apt-get")
	tr.calls("bin/lateen")
	return tr
}

func (tr tree) write(name, text string) {
	file := filepath.Join(tr.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		tr.t.Fatal(err)
	}
}

// says makes a program that prints a text.
func (tr tree) says(name, text string) { tr.write("fake/"+name, "#!/bin/sh\necho '"+text+"'\n") }

// calls makes a program that prints how it was called.
func (tr tree) calls(name string) {
	tr.write(name, "#!/bin/sh\necho \"called: "+filepath.Base(name)+" $*\"\n")
}

func (tr tree) interpreters() {
	for _, name := range []string{"python3", "node", "javac", "ruby"} {
		tr.says(name, "99.0")
	}
}

func (tr tree) run(variables ...string) (string, int) {
	cmd := exec.Command(filepath.Join(tr.root, "hack/demo.sh"))
	cmd.Env = append([]string{"PATH=" + filepath.Join(tr.root, "fake")}, variables...)
	output, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		tr.t.Fatal(err)
	}
	return string(output), cmd.ProcessState.ExitCode()
}

// inOrder checks that the texts follow one another.
func inOrder(t *testing.T, output string, texts ...string) {
	t.Helper()
	rest := output
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			t.Fatalf("%q does not follow in:\n%s", text, output)
		}
		rest = after
	}
}

func TestTheScriptListsWhatItInstallsBeforeItDoes(t *testing.T) {
	output, code := newTree(t).run()
	if code != 0 {
		t.Fatalf("exit code %d:\n%s", code, output)
	}
	inOrder(t, output, "with apt-get: python3 nodejs openjdk-17-jdk-headless ruby ruby-webrick", "the mesh is taken down",
		"Bookinfo's reviews", "called: apt-get", "install -y --no-install-recommends python3 nodejs openjdk-17-jdk-headless ruby ruby-webrick",
		"called: make --no-print-directory build", "called: lateen demo\n")
}

func TestTheScriptInstallsACompilerThatIsMissing(t *testing.T) {
	tr := newTree(t)
	tr.interpreters()
	if err := os.Remove(filepath.Join(tr.root, "fake/cc")); err != nil {
		t.Fatal(err)
	}
	output, code := tr.run()
	if code != 0 {
		t.Errorf("exit code %d:\n%s", code, output)
	}
	inOrder(t, output, "with apt-get: gcc", "called: apt-get", "install -y --no-install-recommends gcc", "called: make --no-print-directory build")
}

func TestPackagesAreNamedWhereNobodyCanInstallThem(t *testing.T) {
	tr := newTree(t)
	tr.interpreters()
	for _, name := range []string{"jq", "patch", "nft", "openssl", "c++", "valgrind", "strace"} {
		tr.says(name, name)
	}
	tr.says("id", "1000")
	cmd := exec.Command(filepath.Join(tr.root, "hack/packages.sh"), "test")
	cmd.Env = []string{"PATH=" + filepath.Join(tr.root, "fake")}
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, output)
	}
	inOrder(t, string(output), "tcpdump", "no plaintext is on the wire", "apt-get needs root; make test goes on without: tcpdump")
	if strings.Contains(string(output), "called:") {
		t.Errorf("it calls apt-get without root:\n%s", output)
	}
}

func TestTheScriptInstallsNothingThatIsThere(t *testing.T) {
	tr := newTree(t)
	tr.interpreters()
	output, code := tr.run("KEEP=1")
	if code != 0 || strings.Contains(output, "called: apt-get") {
		t.Errorf("exit code %d:\n%s", code, output)
	}
	inOrder(t, output, "install     nothing", "KEEP=1", "called: make", "called: lateen demo --keep\n")
}

func TestTheScriptGoesOnWhenAnInstallationFails(t *testing.T) {
	tr := newTree(t)
	tr.interpreters()
	tr.write("fake/ruby", "#!/bin/sh\nexit 1\n") // Ruby without WEBrick
	tr.write("fake/apt-get", "#!/bin/sh\nexit 100\n")
	output, code := tr.run()
	if code != 0 {
		t.Errorf("exit code %d:\n%s", code, output)
	}
	inOrder(t, output, "with apt-get: ruby-webrick", "apt-get could not install all packages; make demo goes on without: ruby-webrick", "called: lateen demo")
}

func TestTheScriptStopsBeforeItChangesAnything(t *testing.T) {
	tests := map[string]struct {
		change func(tree)
		says   []string
	}{
		"no root":  {func(tr tree) { tr.says("id", "1000") }, []string{"needs root", "fix:"}},
		"old Go":   {func(tr tree) { tr.says("go", "go1.19.8") }, []string{"Go is 1.19.8", "too old"}},
		"old Rust": {func(tr tree) { tr.says("rustc", "rustc 1.63.0") }, []string{"Rust is 1.63.0", "rustup"}},
		"a Mac":    {func(tr tree) { _ = os.Remove(filepath.Join(tr.root, "fake/uname")); tr.says("uname", "Darwin") }, []string{"needs Linux", "Darwin"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			tt.change(tr)
			output, code := tr.run()
			if code == 0 || strings.Contains(output, "called:") {
				t.Errorf("exit code %d:\n%s", code, output)
			}
			for _, text := range tt.says {
				if !strings.Contains(output, text) {
					t.Errorf("does not say %q:\n%s", text, output)
				}
			}
		})
	}
}
