package archtest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/archtest/rustmod"
)

// knotted crates still have modules that use one another.
var knotted = []string{"load"}

func TestNoModulesUseOneAnother(t *testing.T) {
	manifests, err := filepath.Glob(filepath.Join(rootDir, "crates/*/Cargo.toml"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("%v: no crates", err)
	}
	for _, manifest := range manifests {
		dir := filepath.Dir(manifest)
		name := filepath.Base(dir)
		crate, err := rustmod.Load(filepath.Join(dir, "src"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		cycles := crate.Cycles()
		if slices.Contains(knotted, name) {
			if len(cycles) == 0 {
				t.Errorf("crates/%s: no modules use one another any more; take it off the list", name)
			}
			continue
		}
		for _, cycle := range cycles {
			t.Errorf("crates/%s: modules that use one another: %s; move what they share into a module of its own", name, strings.Join(cycle, ", "))
		}
	}
}
