package statefile

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWhatIsSetAsideIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	seen := map[string]bool{}
	for _, content := range []string{"one", "two", "three"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		to, err := SetAside(path, time.Unix(1000, 0))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(to); err != nil || string(got) != content || seen[to] {
			t.Errorf("%s holds %q (%v), want %q", to, got, err, content)
		}
		seen[to] = true
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if _, err := SetAside(path, time.Unix(1000, 0)); err == nil {
		t.Error("nothing was set aside, and that was a success")
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := SetAside(path, time.Unix(1000, 0)); err != nil {
		t.Errorf("a directory in its place: %v", err)
	}
}
