package rest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
)

// Store keeps results in a directory that `fortio report` opens as well: ID.json is Fortio's document, and lateen/ID.json the
// generator's own report.
type Store struct {
	root *os.Root
	most int

	mu        sync.Mutex
	summaries map[string]cached
}

// ours is the folder of the generator's own reports; Fortio passes folders over.
const ours = "lateen"

// ErrNoResult says that there is no such result.
var ErrNoResult = errors.New("there is no such result")

// OpenStore opens a directory for at most so many results; it is made if it is not there.
func OpenStore(dir string, most int) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open the directory of results: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the directory of results: %w", err)
	}
	if err := root.Mkdir(ours, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, errors.Join(fmt.Errorf("open the directory of results: %w", err), root.Close())
	}
	return &Store{root: root, most: most, summaries: map[string]cached{}}, nil
}

// Close lets go of the directory.
func (s *Store) Close() error { return s.root.Close() }

// validName tells whether a text can be the identifier of a result. Nothing else becomes part of a path.
func validName(name string) bool {
	return name != "" && len(name) <= 128 && name[0] != '-' && !strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	})
}

// Names lists the results, newest first.
func (s *Store) Names() ([]string, error) {
	dir, err := s.root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("list the results: %w", err)
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("list the results: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), ".json"); ok && entry.Type().IsRegular() && validName(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names, nil
}

// Room refuses when so many more results would be too many.
func (s *Store) Room(more int) error {
	names, err := s.Names()
	if err != nil {
		return err
	}
	if len(names)+more > s.most {
		return fmt.Errorf("%d results are stored and the limit is %d: delete some, or raise --max-results", len(names), s.most)
	}
	return nil
}

// Has tells whether a result is stored.
func (s *Store) Has(name string) bool {
	_, err := s.root.Lstat(name + ".json")
	return err == nil
}

// Save stores a result; nobody sees half of it.
func (s *Store) Save(name string, document, report []byte) error {
	if !validName(name) {
		return fmt.Errorf("store the result: %q is no identifier", name)
	}
	if s.Has(name) {
		return fmt.Errorf("store the result: %s is there already", name)
	}
	if report != nil {
		if err := s.write(ours+"/"+name+".json", report); err != nil {
			return err
		}
	}
	return s.write(name+".json", document)
}

func (s *Store) write(path string, text []byte) error {
	part := path + ".part"
	err := s.root.WriteFile(part, text, 0o644)
	if err == nil {
		err = s.root.Rename(part, path)
	}
	if err != nil {
		return fmt.Errorf("store the result: %w", errors.Join(err, ignoreMissing(s.root.Remove(part))))
	}
	return nil
}

// Document is a result as Fortio has it.
func (s *Store) Document(name string) ([]byte, error) { return s.read(name, name+".json") }

// Report is the generator's own report of a result; results of other programs have none.
func (s *Store) Report(name string) ([]byte, error) { return s.read(name, ours+"/"+name+".json") }

func (s *Store) read(name, path string) ([]byte, error) {
	if !validName(name) {
		return nil, ErrNoResult
	}
	f, err := s.root.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoResult
	}
	if err != nil {
		return nil, fmt.Errorf("read result %s: %w", name, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, ErrNoResult
	}
	text, err := io.ReadAll(io.LimitReader(f, maxResult+1))
	if err == nil && len(text) > maxResult {
		err = fmt.Errorf("more than %d MiB", maxResult>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("read result %s: %w", name, err)
	}
	return text, nil
}

// Delete removes a result.
func (s *Store) Delete(name string) error {
	if !validName(name) || !s.Has(name) {
		return ErrNoResult
	}
	if err := errors.Join(s.root.Remove(name+".json"), ignoreMissing(s.root.Remove(ours+"/"+name+".json"))); err != nil {
		return fmt.Errorf("delete result %s: %w", name, err)
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
