package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"lateen.dev/lateen/internal/model"
)

const (
	// rescanEvery bounds how long a change can stay unseen that the kernel did not report.
	rescanEvery = 10 * time.Second
	// writeGrace is how long objects may be missing from a file that is being written in place before they are taken for deleted.
	writeGrace = 100 * time.Millisecond
	// maxFile is the largest file that is read, in bytes: more is no configuration that a person or a tool means.
	maxFile = 64 << 20
)

// Source follows a directory of manifests.
type Source struct {
	dir    string
	logger *slog.Logger
	rescan time.Duration

	files   map[string]fileStamp
	recheck map[string]time.Time // files to read again although nothing may happen to them
	folders map[string]bool      // those that are watched
	links   links
	catalog *catalog

	mu       sync.Mutex
	problems []Problem
}

// fileStamp tells whether a file changed since it was read.
type fileStamp struct {
	inode uint64
	size  int64
	mtime time.Time
}

// NewSource returns a source of all *.yaml, *.yml and *.json files under dir. Files and folders whose names start with a dot are not read:
// they are what editors and atomic writers leave for a moment.
func NewSource(dir string, logger *slog.Logger) *Source {
	return &Source{dir: filepath.Clean(dir), logger: logger, rescan: rescanEvery, files: map[string]fileStamp{}, recheck: map[string]time.Time{},
		folders: map[string]bool{}, links: newLinks(), catalog: newCatalog()}
}

// Problems lists what is wrong with the files now, by file and line.
func (s *Source) Problems() []Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.problems)
}

// Run hands the directory's objects to apply, all at once at first (also when there are none) and then every change as it
// happens, until ctx ends. It calls apply from one goroutine. It fails if the directory cannot be watched.
func (s *Source) Run(ctx context.Context, apply func([]model.Change)) error {
	watcher, err := fsnotify.NewBufferedWatcher(1024)
	if err != nil {
		return fmt.Errorf("watch %s: %w; fs.inotify.max_user_instances may be too low", s.dir, err)
	}
	defer watcher.Close() //nolint:errcheck // nothing is lost
	if info, err := os.Stat(s.dir); err != nil || !info.IsDir() {
		return fmt.Errorf("read %s: it is not a directory; create it or correct --config-dir", s.dir)
	}
	changes, err := s.scan(watcher)
	if err != nil {
		return err
	}
	s.publish()
	apply(changes)

	rescan := time.NewTicker(s.rescan)
	defer rescan.Stop()
	for {
		var changes []model.Change
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-watcher.Events:
			if !ok {
				return errors.New("the file watcher ended")
			}
			changes = s.take(watcher, event)
		case err := <-watcher.Errors:
			// Most often an overflow: events were lost, so look at everything.
			s.logger.Warn("files: reading the whole directory again", "error", err)
			if changes, err = s.scan(watcher); err != nil {
				s.logger.Error("files: the directory cannot be read; what was read stays live", "error", err)
			}
		case <-rescan.C:
			if changes, err = s.scan(watcher); err != nil {
				s.logger.Error("files: the directory cannot be read; what was read stays live", "error", err)
			}
		case <-s.nextRecheck():
			changes = s.readDue(time.Now())
		}
		s.publish()
		if len(changes) > 0 {
			apply(changes)
		}
	}
}

// take handles an event and all that arrived with it, as one batch.
func (s *Source) take(watcher *fsnotify.Watcher, event fsnotify.Event) []model.Change {
	touched := map[string]bool{event.Name: true}
	for more := true; more; {
		select {
		case e := <-watcher.Events:
			touched[e.Name] = true
		default:
			more = false
		}
	}
	var changes []model.Change
	for path := range touched {
		if s.meansMore(path) {
			scanned, err := s.scan(watcher)
			if err != nil {
				s.logger.Error("files: the directory cannot be read; what was read stays live", "error", err)
			}
			return scanned
		}
	}
	paths := make([]string, 0, len(touched))
	for path := range touched {
		if isManifest(path) {
			paths = append(paths, path)
		}
		paths = append(paths, s.links.passing(path)...)
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	for _, path := range paths {
		changes = append(changes, s.read(path, true)...)
	}
	return changes
}

// meansMore says whether an event at a path may concern files that nobody knows yet, or all of a folder: a folder brings its files and
// takes them along, whatever its name is. What an atomic writer leaves for a moment, a hidden file, concerns only the links that pass it:
// to read the whole directory for each would make every change as expensive as all objects.
func (s *Source) meansMore(path string) bool {
	if s.folders[path] {
		return true
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return !hidden(path) && !isManifest(path)
	case hidden(path):
		return !info.Mode().IsRegular()
	case info.Mode()&fs.ModeSymlink != 0:
		if info, err = os.Stat(path); err != nil {
			return !isManifest(path)
		}
	}
	return info.IsDir()
}

func hidden(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") }

func isManifest(path string) bool {
	if hidden(path) {
		return false
	}
	switch filepath.Ext(path) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// scan reads every file that changed since it was last read and forgets those that are gone.
func (s *Source) scan(watcher *fsnotify.Watcher) ([]model.Change, error) {
	seen, folders := map[string]bool{}, map[string]bool{}
	var paths []string
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && errors.Is(err, fs.ErrNotExist) && path != s.dir:
			return nil // it went while we looked
		case err != nil:
			return err
		case path != s.dir && hidden(path) && d.IsDir():
			return filepath.SkipDir
		case d.IsDir():
			folders[path] = true
			// Watching a folder twice is harmless.
			if err := watcher.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("watch %s: %w; fs.inotify.max_user_watches may be too low", path, err)
			}
		case isManifest(path):
			seen[path] = true
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("scan %s: %w", s.dir, err)
	}
	s.folders = folders
	var changes []model.Change
	for _, path := range paths {
		changes = append(changes, s.read(path, false)...)
	}
	for link := range s.links.trails {
		if !seen[link] {
			s.links.set(link, nil)
		}
	}
	for path := range s.files {
		if !seen[path] {
			changes = append(changes, s.forget(path)...)
		}
	}
	return changes, nil
}

// read takes in one file; unless forced, only if it looks changed.
func (s *Source) read(path string, force bool) []model.Change {
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		s.links.set(path, trail(s.dir, path)) // also of a link to nothing: what it names may come
		info, err = os.Stat(path)
	} else {
		s.links.set(path, nil)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return s.forget(path)
	}
	old, known := s.files[path]
	var stamp fileStamp
	var data []byte
	if err == nil {
		stamp = stampOf(info)
		if known && stamp == old && !force {
			return nil
		}
		if err = refuse(info); err == nil {
			data, err = load(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return s.forget(path)
		}
	}
	if err != nil {
		// Not readable is not gone: what was read stays live.
		s.files[path] = fileStamp{}
		problem := Problem{File: path, Message: err.Error(), Fix: "make the file readable"}
		if refusal := (*unfit)(nil); errors.As(err, &refusal) {
			problem.Fix = refusal.fix
		}
		return s.catalog.set(path, nil, []Problem{problem}, true)
	}
	s.files[path] = stamp
	objects, problems := Decode(path, data)
	// A file that keeps its inode is written in place, and we may see it cut short. What is there counts at once; what is
	// missing gets the time that a writer needs.
	if known && stamp.inode == old.inode && s.shrinks(path, objects) {
		due, waiting := s.recheck[path]
		if now := time.Now(); !waiting || stamp != old || now.Before(due) {
			if !waiting || stamp != old {
				s.recheck[path] = now.Add(writeGrace)
			}
			return s.catalog.set(path, objects, problems, true)
		}
	}
	delete(s.recheck, path)
	return s.catalog.set(path, objects, problems, false)
}

// shrinks says whether a file lost objects.
func (s *Source) shrinks(path string, objects []Object) bool {
	state := s.catalog.files[path]
	if state == nil {
		return false
	}
	return slices.ContainsFunc(state.objects, func(o *Object) bool {
		return !slices.ContainsFunc(objects, func(n Object) bool { return n.Key == o.Key })
	})
}

func (s *Source) forget(path string) []model.Change {
	delete(s.files, path)
	delete(s.recheck, path)
	return s.catalog.remove(path)
}

func stampOf(info fs.FileInfo) fileStamp {
	stamp := fileStamp{size: info.Size(), mtime: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		stamp.inode = sys.Ino
	}
	return stamp
}

func (s *Source) nextRecheck() <-chan time.Time {
	var first time.Time
	for _, at := range s.recheck {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	if first.IsZero() {
		return nil
	}
	return time.After(time.Until(first))
}

func (s *Source) readDue(now time.Time) []model.Change {
	var changes []model.Change
	for path, at := range s.recheck {
		if !at.After(now) {
			changes = append(changes, s.read(path, true)...)
		}
	}
	return changes
}

// publish makes the present problems visible and logs those that are new.
func (s *Source) publish() {
	problems := s.catalog.problems()
	s.mu.Lock()
	old := s.problems
	s.problems = problems
	s.mu.Unlock()
	known := make(map[string]bool, len(old))
	for _, p := range old {
		known[p.Error()] = true
	}
	for _, p := range problems {
		if known[p.Error()] {
			continue
		}
		level := slog.LevelError
		if p.Severity == Warning {
			level = slog.LevelWarn
		}
		s.logger.Log(context.Background(), level, "files: "+p.Error(), "file", p.File, "line", p.Line, "object", p.Object, "field", p.Field)
	}
}
