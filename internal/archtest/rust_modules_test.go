package archtest

import (
	"path/filepath"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/archtest/rustmod"
)

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
		for _, cycle := range crate.Cycles() {
			t.Errorf("crates/%s: modules that use one another: %s; move what they share into a module of its own", name, strings.Join(cycle, ", "))
		}
	}
}
