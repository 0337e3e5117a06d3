package agent

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestTheCollectorKeepsToTheContainersLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for _, c := range []struct {
		name, file, text, env string
		want                  int64
	}{
		{"version 2", "memory.max", "268435456\n", "", 268435456 / 10 * 8},
		{"version 2 without a limit", "memory.max", "max\n", "", before},
		{"version 1", "memory/memory.limit_in_bytes", "134217728\n", "", 134217728 / 10 * 8},
		{"version 1 without a limit", "memory/memory.limit_in_bytes", "9223372036854771712\n", "", before},
		{"no cgroups", "other", "1", "", before},
		{"the user says something else", "memory.max", "268435456\n", "100MiB", before},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", c.env)
			debug.SetMemoryLimit(before)
			root := t.TempDir()
			path := filepath.Join(root, c.file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(c.text), 0o644)); err != nil {
				t.Fatal(err)
			}
			keepBudget(root)
			if got := debug.SetMemoryLimit(-1); got != c.want {
				t.Errorf("the limit is %d, want %d", got, c.want)
			}
		})
	}
}
