package files

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fsnotify/fsnotify"
)

// What a link leads to is followed by events alone, hidden or not, there or not.
func TestFollowsWhatLinksLeadTo(t *testing.T) {
	remove := func(name string) func(*directory) {
		return func(d *directory) { must(d.t, os.RemoveAll(filepath.Join(d.dir, name))) }
	}
	for name, tt := range map[string]struct {
		prepare func(t *testing.T, dir string)
		act     func(*directory)
		want    string
	}{
		"a hidden file, replaced": {
			func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, ".real"), namespace("old"))
				link(t, ".real", filepath.Join(dir, "a.yaml"))
			},
			func(d *directory) { d.replace(".real", namespace("new")) }, "new",
		},
		"a hidden file, removed": {
			func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, ".real"), namespace("old"))
				link(t, ".real", filepath.Join(dir, "a.yaml"))
			},
			remove(".real"), "",
		},
		"a hidden file, not there before": {
			func(t *testing.T, dir string) { link(t, ".real", filepath.Join(dir, "a.yaml")) },
			func(d *directory) { d.write(".real", namespace("new")) }, "new",
		},
		"a hidden file, through an absolute link from a folder": {
			func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, ".real"), namespace("old"))
				write(t, filepath.Join(dir, "sub", "notes.txt"), "")
				link(t, filepath.Join(dir, "sub", "..", ".real"), filepath.Join(dir, "sub", "a.yaml"))
			},
			func(d *directory) { d.replace(".real", namespace("new")) }, "new",
		},
		"a visible file of another kind": {
			func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, "real.txt"), namespace("old"))
				link(t, "real.txt", filepath.Join(dir, "a.yaml"))
			},
			func(d *directory) { d.write("real.txt", namespace("new")) }, "new",
		},
		"a switch, removed": {
			func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, "..2026_1", "a.yaml"), namespace("old"))
				link(t, "..2026_1", filepath.Join(dir, "..data"))
				link(t, "..data/a.yaml", filepath.Join(dir, "a.yaml"))
			},
			remove("..data"), "",
		},
		"a hidden folder, removed": {
			func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, ".v", "a.yaml"), namespace("old"))
				link(t, ".v/a.yaml", filepath.Join(dir, "a.yaml"))
			},
			remove(".v"), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := watch(t, func(dir string) { tt.prepare(t, dir) })
			tt.act(d)
			d.eventually(tt.want)
		})
	}
}

// A link that is gone leaves nothing behind, and one in a circle ends.
func TestForgetsWhatNoLinkLeadsToAnyMore(t *testing.T) {
	dir := t.TempDir()
	s := NewSource(dir, slog.New(slog.DiscardHandler))
	w := newSilentWatcher(t)
	write(t, filepath.Join(dir, ".real"), namespace("a"))
	link(t, ".real", filepath.Join(dir, "a.yaml"))
	link(t, "circle.yaml", filepath.Join(dir, "circle.yaml"))
	for range 2 {
		if _, err := s.scan(w); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.links.passing(filepath.Join(dir, ".real")); !slices.Equal(got, []string{filepath.Join(dir, "a.yaml")}) {
		t.Errorf("%q lead to the file", got)
	}
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	must(t, os.Remove(filepath.Join(dir, "circle.yaml")))
	if _, err := s.scan(w); err != nil {
		t.Fatal(err)
	}
	if len(s.links.trails)+len(s.links.through) != 0 {
		t.Errorf("kept %v, %v", s.links.trails, s.links.through)
	}
}

func TestAFolderWithAFilesNameTakesItsFilesAlong(t *testing.T) {
	d := watch(t, func(dir string) {
		write(t, filepath.Join(dir, "x.yaml", "deeper.json", "a.yaml"), namespace("a"))
		write(t, filepath.Join(dir, "b.yaml"), namespace("b"))
	})
	d.eventually("a b")
	must(t, os.Rename(filepath.Join(d.dir, "x.yaml"), filepath.Join(t.TempDir(), "elsewhere")))
	d.eventually("b")
}

// A folder that became a file between two looks is a folder that went.
func TestAFileInPlaceOfAFolderIsNotTheFolder(t *testing.T) {
	dir := t.TempDir()
	s := NewSource(dir, slog.New(slog.DiscardHandler))
	w := newSilentWatcher(t)
	write(t, filepath.Join(dir, "x.yaml", "a.yaml"), namespace("a"))
	if _, err := s.scan(w); err != nil {
		t.Fatal(err)
	}
	must(t, os.RemoveAll(filepath.Join(dir, "x.yaml")))
	write(t, filepath.Join(dir, "x.yaml"), namespace("x"))
	changes := s.take(w, fsnotify.Event{Name: filepath.Join(dir, "x.yaml"), Op: fsnotify.Create})
	if got := describeChanges(changes); !strings.Contains(got, "-a") || !strings.Contains(got, "+x@") {
		t.Errorf("it told %s", got)
	}
}

// What cannot be read to an end is refused, keeps nobody waiting, and takes nothing down.
func TestRefusesWhatIsNoFile(t *testing.T) {
	d := watch(t, func(dir string) { write(t, filepath.Join(dir, "pipe.yaml"), namespace("stays")) })
	pipe := filepath.Join(d.dir, "pipe.yaml")
	must(t, os.Remove(pipe))
	d.eventually("")
	d.write("pipe.yaml", namespace("stays"))
	d.eventually("stays")
	must(t, syscall.Mkfifo(filepath.Join(d.dir, ".pipe"), 0o644))
	must(t, os.Rename(filepath.Join(d.dir, ".pipe"), pipe))
	link(t, "/dev/zero", filepath.Join(d.dir, "zero.yaml"))
	link(t, "/proc", filepath.Join(d.dir, "folder.json"))
	large := filepath.Join(d.dir, "large.yaml")
	write(t, large, "")
	must(t, os.Truncate(large, maxFile+1))
	d.write("z.yaml", namespace("z"))
	d.eventually("stays z")
	want := map[string]string{"pipe.yaml": "is a named pipe, not a file", "zero.yaml": "is a device, not a file",
		"folder.json": "is a folder, not a file", "large.yaml": "is larger than 64 MiB"}
	got := map[string]string{}
	for _, p := range d.source.Problems() {
		if p.Fix == "" || p.Fix == "make the file readable" {
			t.Errorf("%s: the fix is %q", p.File, p.Fix)
		}
		got[filepath.Base(p.File)] = p.Message
	}
	for name, message := range want {
		if got[name] != message {
			t.Errorf("%s: %q, want %q", name, got[name], message)
		}
	}
	// A race between the look and the opening ends as well.
	if _, err := load(pipe); err == nil || !strings.Contains(err.Error(), "named pipe") {
		t.Errorf("opened as a file: %v", err)
	}
}
