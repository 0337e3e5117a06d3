package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/check"
)

// rootDir is the repository's root as seen from this package.
const rootDir = "../.."

func root(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(rootDir, "go.mod")); err != nil {
		t.Fatal("archtest must stand two folders below go.mod")
	}
	return rootDir
}

// committedFiles are the files of the repository, those that are about to be committed included. What programs and people leave
// in the tree beside them comes and goes, and is nobody's rule.
func committedFiles(t *testing.T, patterns ...string) []string {
	t.Helper()
	files := committedIn(t, root(t), patterns...)
	if len(files) == 0 {
		t.Fatalf("no file matches %v", patterns)
	}
	return files
}

func committedIn(t *testing.T, root string, patterns ...string) []string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"ls-files", "--"}, patterns...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var files []string
	for _, name := range strings.Fields(string(out)) {
		if info, err := os.Stat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	return files
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(rootDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// unsafeCrates use system calls that no library has in a safe form: of a process, in pods' namespaces, a mapped file, bpf(2).
var unsafeCrates = []string{"os", "netns", "listener-store", "bpf-splice"}

func TestOnlyNamedCratesAreUnsafe(t *testing.T) {
	for _, name := range committedFiles(t, "crates/*/src/lib.rs", "crates/*/src/main.rs") {
		if crate := strings.Split(name, "/")[1]; slices.Contains(unsafeCrates, crate) {
			continue
		}
		if !strings.Contains(read(t, name), "#![forbid(unsafe_code)]") {
			t.Errorf("%s: every crate but %v says #![forbid(unsafe_code)]", name, unsafeCrates)
		}
	}
}

// A peer's identity is a type that only the verifier of its certificate makes.
func TestOnlyTLSAttestsPeers(t *testing.T) {
	calls := 0
	for _, name := range committedFiles(t, "crates/*.rs") {
		if !strings.Contains(read(t, name), "by_certificate(") {
			continue
		}
		switch {
		case strings.HasPrefix(name, "crates/tls/src/"):
			calls++
		case strings.HasPrefix(name, "crates/types/"), isRustTest(name):
		default:
			if callsOutsideTests(read(t, name)) {
				t.Errorf("%s makes a VerifiedPeer: only crates/tls may, after it checked the certificate", name)
			}
		}
	}
	if calls == 0 {
		t.Error("crates/tls makes no VerifiedPeer: the rule looks for a name that is gone")
	}
}

func isRustTest(name string) bool {
	return strings.Contains(name, "/tests/") || strings.HasSuffix(name, "/tests.rs") || strings.HasPrefix(name, "crates/testkit/")
}

// callsOutsideTests looks at the text above the first `#[cfg(test)]`, where this project keeps tests last.
func callsOutsideTests(source string) bool {
	code, _, _ := strings.Cut(source, "#[cfg(test)]")
	return strings.Contains(code, "by_certificate(")
}

// The compilers' minimums are written in four places; they must say the same.
func TestMinimumVersionsAgree(t *testing.T) {
	script := read(t, "hack/toolchain.sh")
	rust := find(t, `(?m)^MIN_RUST=(\S+)`, script)
	if cargo := find(t, `(?m)^rust-version = "([^"]+)"`, read(t, "Cargo.toml")); cargo != rust {
		t.Errorf("Cargo.toml wants Rust %s, hack/toolchain.sh %s", cargo, rust)
	}
	goVersion := find(t, `(?m)^MIN_GO=(\S+)`, script)
	if mod := find(t, `(?m)^go (\d+\.\d+)`, read(t, "go.mod")); mod != goVersion {
		t.Errorf("go.mod wants Go %s, hack/toolchain.sh %s", mod, goVersion)
	}
	for _, minimum := range check.Minimums() {
		want := map[string]string{"Go": goVersion, "Rust": rust, "Cargo": rust}[minimum.Name]
		if got := minimum.Least.String(); want != "" && got != want {
			t.Errorf("internal/check wants %s %s, hack/toolchain.sh %s", minimum.Name, got, want)
		}
	}
}

func find(t *testing.T, expression, text string) string {
	t.Helper()
	m := regexp.MustCompile(expression).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%s matches nothing", expression)
	}
	return m[1]
}

// Unfinished work is an open issue, not a comment.
func TestNoUnfinishedWords(t *testing.T) {
	words := regexp.MustCompile(`\b(TODO|FIXME|XXX)\b|todo!\(|unimplemented!\(`)
	for _, name := range committedFiles(t, "*.rs", "*.go", "*.py", "*.rb", "*.java", "*.js", "*.sh", "Makefile") {
		if strings.HasPrefix(name, "internal/gen/") || strings.HasPrefix(name, "internal/archtest/") {
			continue
		}
		for n, line := range strings.Split(read(t, name), "\n") {
			if words.MatchString(line) {
				t.Errorf("%s:%d: %s", name, n+1, strings.TrimSpace(line))
			}
		}
	}
}
