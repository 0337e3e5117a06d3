package files

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"

	"lateen.dev/lateen/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// directory is a watched directory and what was heard of it.
type directory struct {
	t      *testing.T
	dir    string
	source *Source

	mu      sync.Mutex
	batches [][]model.Change
	objects map[model.Key]*Object
	missing []string // names that were ever reported as removed
}

func watch(t *testing.T, prepare func(dir string)) *directory {
	t.Helper()
	d := &directory{t: t, dir: t.TempDir(), objects: map[model.Key]*Object{}}
	if prepare != nil {
		prepare(d.dir)
	}
	d.source = NewSource(d.dir, slog.New(slog.DiscardHandler))
	d.source.rescan = time.Hour // what a test waits for is told by events
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	first := make(chan struct{})
	go func() {
		once := sync.OnceFunc(func() { close(first) })
		done <- d.source.Run(ctx, func(changes []model.Change) { d.take(changes); once() })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-first
	return d
}

func (d *directory) take(changes []model.Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.batches = append(d.batches, changes)
	for _, c := range changes {
		if c.Object == nil {
			delete(d.objects, c.Key)
			d.missing = append(d.missing, c.Key.Name)
		} else {
			d.objects[c.Key] = c.Object
		}
	}
}

func (d *directory) names() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for k := range d.objects {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (d *directory) eventually(want string) {
	d.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if d.names() == want {
			return
		}
	}
	d.t.Fatalf("objects are %q, want %q", d.names(), want)
}

func (d *directory) write(name, text string) {
	d.t.Helper()
	write(d.t, filepath.Join(d.dir, name), text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (d *directory) replace(name, text string) {
	d.t.Helper()
	temp := filepath.Join(d.dir, "."+name+".tmp")
	write(d.t, temp, text)
	if err := os.Rename(temp, filepath.Join(d.dir, name)); err != nil {
		d.t.Fatal(err)
	}
}

func namespace(names ...string) string {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n---\n", n)
	}
	return b.String()
}

func TestReadsAllThereIsInOneFirstBatch(t *testing.T) {
	d := watch(t, func(dir string) {
		write(t, filepath.Join(dir, "a.yaml"), namespace("a"))
		write(t, filepath.Join(dir, "sub", "deeper", "b.yml"), namespace("b"))
		write(t, filepath.Join(dir, "c.json"), `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"c"}}`)
		write(t, filepath.Join(dir, "notes.txt"), namespace("txt"))
		write(t, filepath.Join(dir, ".hidden.yaml"), namespace("hidden"))
		write(t, filepath.Join(dir, ".git", "x.yaml"), namespace("git"))
	})
	if got := d.names(); got != "a b c" || len(d.batches) != 1 {
		t.Errorf("%q in %d batches", got, len(d.batches))
	}
}

func TestReportsAnEmptyDirectoryAsReadToo(t *testing.T) {
	d := watch(t, nil)
	if len(d.batches) != 1 || len(d.batches[0]) != 0 {
		t.Errorf("batches %v", d.batches)
	}
}

func TestFollowsCreationChangeAndRemoval(t *testing.T) {
	d := watch(t, nil)
	d.write("a.yaml", namespace("a"))
	d.eventually("a")
	d.write("new/folder/b.yaml", namespace("b"))
	d.eventually("a b")
	d.write("new/folder/c.yaml", namespace("c"))
	d.eventually("a b c")
	if err := os.Rename(filepath.Join(d.dir, "a.yaml"), filepath.Join(d.dir, "moved.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(d.dir, "new")); err != nil {
		t.Fatal(err)
	}
	d.eventually("a")
	d.replace("moved.yaml", namespace("x"))
	d.eventually("x")
}

func TestReplacingAFileNeverShowsItMissing(t *testing.T) {
	d := watch(t, func(dir string) { write(t, filepath.Join(dir, "a.yaml"), namespace("stays", "n0")) })
	for i := range 100 {
		d.replace("a.yaml", namespace("stays", fmt.Sprint("n", i+1)))
	}
	d.eventually("n100 stays")
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.missing, "stays") {
		t.Error("an object vanished while its file was replaced")
	}
}

func TestAFileWrittenInPlaceIsNotTakenForEmptyInBetween(t *testing.T) {
	var d *directory
	for tries := 0; ; tries++ {
		d = watch(t, func(dir string) { write(t, filepath.Join(dir, "a.yaml"), namespace("stays", "also")) })
		if writesInPieces(t, filepath.Join(d.dir, "a.yaml")) < writeGrace {
			break
		}
		// A writer that stands still for so long has its file taken as it is.
		if tries == 20 {
			t.Fatal("the machine is too busy for this test")
		}
	}
	d.write("b.yaml", namespace("end"))
	d.eventually("also end stays")
	d.mu.Lock()
	missing := slices.Clone(d.missing)
	d.mu.Unlock()
	if len(missing) > 0 {
		t.Errorf("%v vanished while the file was written", missing)
	}
	d.write("a.yaml", namespace("stays")) // and what is really gone goes
	d.eventually("end stays")
	d.write("a.yaml", "")
	d.eventually("end")
}

// writesInPieces writes a file of two objects many times, as an editor does it, and returns for how long at most it was cut short.
func writesInPieces(t *testing.T, path string) (most time.Duration) {
	t.Helper()
	for range 20 {
		began := time.Now()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{namespace("stays"), namespace("also")} {
			time.Sleep(5 * time.Millisecond)
			if _, err := f.WriteString(part); err != nil {
				t.Fatal(err)
			}
		}
		most = max(most, time.Since(began))
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return most
}

func TestFollowsLinksThatAreSwitchedAsInMountedConfigMaps(t *testing.T) {
	d := watch(t, func(dir string) {
		write(t, filepath.Join(dir, "..2026_1", "a.yaml"), namespace("old"))
		link(t, "..2026_1", filepath.Join(dir, "..data"))
		link(t, "..data/a.yaml", filepath.Join(dir, "a.yaml"))
	})
	d.eventually("old")
	write(t, filepath.Join(d.dir, "..2026_2", "a.yaml"), namespace("new"))
	link(t, "..2026_2", filepath.Join(d.dir, "..data_tmp"))
	if err := os.Rename(filepath.Join(d.dir, "..data_tmp"), filepath.Join(d.dir, "..data")); err != nil {
		t.Fatal(err)
	}
	d.eventually("new")
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestProblemsComeAndGoWithTheFile(t *testing.T) {
	d := watch(t, nil)
	d.write("a.yaml", namespace("a")+"a: [")
	d.eventually("a")
	if p := d.source.Problems(); len(p) != 1 || p[0].File != filepath.Join(d.dir, "a.yaml") || p[0].Line != 5 {
		t.Errorf("problems %v", p)
	}
	d.write("a.yaml", namespace("a", "b"))
	d.eventually("a b")
	if p := d.source.Problems(); len(p) != 0 {
		t.Errorf("problems %v", p)
	}
}

// An atomic writer's hidden file must not cost a look at every object.
func TestAHiddenFileIsNoReasonToReadEverything(t *testing.T) {
	dir := t.TempDir()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	s := NewSource(dir, slog.New(slog.DiscardHandler))
	if _, err := s.scan(watcher); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "quiet.yaml"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: quiet}\n")
	write(t, filepath.Join(dir, ".there.yaml.new"), "")
	// Asked about the hidden files alone, whatever is read was read unasked.
	for _, name := range []string{".there.yaml.new", ".gone.yaml.new"} {
		if changes := s.take(silent(), fsnotify.Event{Name: filepath.Join(dir, name), Op: fsnotify.Create}); len(changes) > 0 {
			t.Errorf("%s: it read %v", name, changes)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, ".folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if changes := s.take(watcher, fsnotify.Event{Name: filepath.Join(dir, ".folder"), Op: fsnotify.Create}); len(changes) != 1 {
		t.Errorf("a hidden folder may be what links point to, and it read %v", changes)
	}
}

// silent is a watcher of nothing.
func silent() *fsnotify.Watcher { return &fsnotify.Watcher{} }

func TestRescanFindsWhatNoEventTold(t *testing.T) {
	d := &directory{t: t, dir: t.TempDir()}
	s := NewSource(d.dir, slog.New(slog.DiscardHandler))
	w := newSilentWatcher(t)
	d.write("a.yaml", namespace("a"))
	d.write("b.yaml", namespace("b"))
	for _, step := range []struct {
		act  func()
		want string
	}{
		{func() {}, "+a +b"},
		{func() {}, ""},
		{func() { d.replace("a.yaml", namespace("c")) }, "-a +c"},
		{func() { must(t, os.Remove(filepath.Join(d.dir, "b.yaml"))) }, "-b"},
	} {
		step.act()
		changes, err := s.scan(w)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range strings.Fields(describeChanges(changes)) {
			name, _, _ := strings.Cut(f, "@")
			got = append(got, name)
		}
		if strings.Join(got, " ") != step.want {
			t.Errorf("rescan told %v, want %s", got, step.want)
		}
	}
}

func TestNamesADirectoryThatIsNotThere(t *testing.T) {
	s := NewSource("/nonexistent/config", slog.New(slog.DiscardHandler))
	err := s.Run(context.Background(), func([]model.Change) { t.Error("there is nothing to apply") })
	if err == nil || !strings.Contains(err.Error(), "--config-dir") {
		t.Errorf("got %v", err)
	}
}

// newSilentWatcher returns a watcher that nobody listens to.
func newSilentWatcher(t *testing.T) *fsnotify.Watcher {
	t.Helper()
	w, err := fsnotify.NewBufferedWatcher(1024)
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
