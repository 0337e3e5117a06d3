package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/tools/images/catalogue"
	"lateen.dev/lateen/internal/tools/images/rootfs"
)

const root = "../../.."

// bench is a bin/ with programs that can be started: copies of this test under the programs' names.
func bench(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, image := range catalogue.All() {
		for _, p := range image.Programs {
			if err := os.WriteFile(filepath.Join(dir, p.Name), program, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func images(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	err = run(context.Background(), append([]string{"-root", root, "-version", "1.2.3", "-cache", t.TempDir()}, args...), &out, &errs)
	return out.String(), err
}

func digests(t *testing.T, table string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); len(fields) == 4 && strings.HasPrefix(fields[3], "sha256:") {
			found[fields[0]] = fields[3]
		}
	}
	return found
}

func TestTheSameInputsGiveTheSameImages(t *testing.T) {
	bin, one, two := bench(t), t.TempDir(), t.TempDir()
	first, err := images(t, "-bin", bin, "-out", one, "control", "agent")
	if err != nil {
		t.Fatal(err)
	}
	second, err := images(t, "-bin", bin, "-out", two, "control", "agent")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"docker.io/lateen/control:1.2.3", "docker.io/lateen/agent:1.2.3"} {
		if a, b := digests(t, first)[name], digests(t, second)[name]; a == "" || a != b {
			t.Errorf("%s: %q and %q\n%s", name, a, b, first)
		}
	}
	if !strings.Contains(first, "ctr -n k8s.io images import "+one) {
		t.Errorf("no next step in\n%s", first)
	}
}

func TestAnImageIsMadeAgainOnlyWhenSomethingChanged(t *testing.T) {
	bin, out := bench(t), t.TempDir()
	archive := filepath.Join(out, "control.tar")
	made := func(args ...string) (os.FileInfo, string) {
		t.Helper()
		table, err := images(t, append([]string{"-bin", bin, "-out", out}, append(args, "control")...)...)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(archive)
		if err != nil {
			t.Fatal(err)
		}
		for _, digest := range digests(t, table) {
			return info, digest
		}
		t.Fatalf("no digest in\n%s", table)
		return nil, ""
	}
	first, digest := made()
	again, same := made()
	if !os.SameFile(first, again) || digest != same {
		t.Error("an archive was made again of the same")
	}
	program := filepath.Join(bin, "lateen-control")
	f, err := os.OpenFile(program, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("x")
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	changed, other := made()
	if os.SameFile(again, changed) || other == digest {
		t.Error("the program changed, and the image did not")
	}
	// The name is beside the manifest and not in it.
	if renamed, same := made("-repository", "registry.example/mesh"); os.SameFile(changed, renamed) || same != other {
		t.Errorf("under another name: %s and %s", other, same)
	}
}

func TestWhatIsLinkedComesAlongAndWhatIsMissingIsNamed(t *testing.T) {
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	needed, err := libraries(context.Background(), shell)
	if err != nil || len(needed) < 2 {
		t.Fatalf("/bin/sh is linked to %v, %v", needed, err)
	}
	in := &inputs{}
	defer in.close()
	tree := rootfs.Merged()
	put := func(from string) {
		t.Helper()
		if err := in.put(tree, from, 0o755, from); err != nil {
			t.Fatal(err)
		}
	}
	put(shell)
	alone := strings.Join(tree.Unloadable(), "\n")
	for _, library := range needed {
		if !strings.Contains(alone, filepath.Base(library)) {
			t.Errorf("%s is missing and not named in\n%s", library, alone)
		}
	}
	for _, library := range needed {
		put(library)
	}
	if missing := tree.Unloadable(); len(missing) != 0 {
		t.Errorf("with all that ldd names: %v", missing)
	}
}

func TestLddIsRead(t *testing.T) {
	found, err := parseLdd("\tlinux-vdso.so.1 (0x7f)\n\tlibm.so.6 => /lib/libm.so.6 (0x7f)\n\t/lib64/ld.so (0x7f)\n\tlibm.so.6 => /lib/libm.so.6 (0x8f)\n")
	if err != nil || strings.Join(found, " ") != "/lib/libm.so.6 /lib64/ld.so" {
		t.Errorf("%v %v", found, err)
	}
	for _, text := range []string{"", "\tlibx.so => not found\n\t/lib64/ld.so (0x7f)\n"} {
		if found, err := parseLdd(text); err == nil {
			t.Errorf("%q gives %v", text, found)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{`no image "contrl"`, []string{"contrl"}},
		{"is not built", []string{"-bin", t.TempDir(), "-out", t.TempDir(), "control"}},
		{"no -version", []string{"-version", "", "control"}},
		{"want REGISTRY/REPOSITORY:TAG", []string{"-bin", bench(t), "-out", t.TempDir(), "-version", "a/b", "control"}},
	} {
		if out, err := images(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s\n%s", c.args, err, c.want, out)
		}
	}
}
