package rest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"lateen.dev/lateen/internal/lab/report"
	"lateen.dev/lateen/internal/lab/results"
)

// LabResults are runs of the lab: directories with a results.json in one directory.
type LabResults struct {
	dir string

	mu    sync.Mutex
	known map[string]cachedLab
}

// labRun is a run of the lab in a line of a table.
type labRun struct {
	Name        string    `json:"name"`
	Started     time.Time `json:"started"`
	Seconds     float64   `json:"seconds"`
	Scenarios   []string  `json:"scenarios"`
	Planes      []string  `json:"planes"`
	Blocks      int       `json:"blocks"`
	Rejected    int       `json:"rejected"`
	Interrupted bool      `json:"interrupted,omitempty"`
	Error       string    `json:"error,omitempty"`
}

type cachedLab struct {
	size    int64
	changed time.Time
	line    labRun
}

const (
	// maxLabRuns bounds the list; older ones are left out.
	maxLabRuns = 200
	labFile    = "results.json"
)

// OpenLabResults looks at a directory, which need not be there yet.
func OpenLabResults(dir string) *LabResults {
	return &LabResults{dir: dir, known: map[string]cachedLab{}}
}

// validLabName tells whether a text can be the name of a run of the lab.
func validLabName(name string) bool {
	return name != "" && len(name) <= 128 && name[0] != '.' && name[0] != '-' && !strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
	})
}

// list reads the runs, newest first.
func (l *LabResults) list() ([]labRun, error) {
	root, err := os.OpenRoot(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return []labRun{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the lab's results: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list the lab's results: %w", err)
	}
	type found struct {
		name string
		info fs.FileInfo
	}
	var all []found
	for _, entry := range entries {
		if !entry.IsDir() || !validLabName(entry.Name()) {
			continue
		}
		if info, err := root.Lstat(entry.Name() + "/" + labFile); err == nil && info.Mode().IsRegular() {
			all = append(all, found{entry.Name(), info})
		}
	}
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(b.info.ModTime().Compare(a.info.ModTime()), strings.Compare(a.name, b.name))
	})
	out := []labRun{}
	for _, f := range all[:min(len(all), maxLabRuns)] {
		l.mu.Lock()
		known, ok := l.known[f.name]
		l.mu.Unlock()
		if !ok || known.size != f.info.Size() || !known.changed.Equal(f.info.ModTime()) {
			known = cachedLab{f.info.Size(), f.info.ModTime(), l.line(f.name)}
			l.mu.Lock()
			l.known[f.name] = known
			l.mu.Unlock()
		}
		out = append(out, known.line)
	}
	slices.SortStableFunc(out, func(a, b labRun) int { return b.Started.Compare(a.Started) })
	return out, nil
}

func (l *LabResults) line(name string) labRun {
	r, err := l.read(name)
	if err != nil {
		return labRun{Name: name, Error: err.Error(), Scenarios: []string{}, Planes: []string{}}
	}
	out := labRun{Name: name, Started: r.Started, Seconds: r.Ended.Sub(r.Started).Seconds(), Interrupted: r.Interrupted, Scenarios: []string{}, Planes: []string{}}
	for _, p := range r.Planes {
		out.Planes = append(out.Planes, p.Name)
	}
	for _, s := range r.Scenarios {
		out.Scenarios = append(out.Scenarios, s.Scenario)
		for _, c := range s.Cells {
			for i := range c.Blocks {
				out.Blocks++
				if !c.Blocks[i].Counted() {
					out.Rejected++
				}
			}
		}
	}
	return out
}

// read loads one run; its name never leads out of the directory.
func (l *LabResults) read(name string) (*results.Results, error) {
	if !validLabName(name) {
		return nil, ErrNoResult
	}
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		return nil, ErrNoResult
	}
	defer root.Close()
	f, err := root.Open(name + "/" + labFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoResult
	}
	if err != nil {
		return nil, fmt.Errorf("read the lab's results: %w", err)
	}
	defer f.Close()
	r, err := results.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("read %s/%s: %w", name, labFile, err)
	}
	return r, nil
}

// apiLab is GET /api/lab.
func (s *Server) apiLab(w http.ResponseWriter, _ *http.Request) {
	runs, err := s.lab.list()
	if err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	reply(w, http.StatusOK, map[string]any{"runs": runs, "directory": s.lab.dir})
}

// apiLabRun is GET /api/lab/{name}: its document.
func (s *Server) apiLabRun(w http.ResponseWriter, r *http.Request) {
	doc, err := s.lab.read(r.PathValue("name"))
	if err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	reply(w, http.StatusOK, doc)
}

// reportPolicy is for report pages: styles stand in them, and no script runs.
const reportPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"

// labReport is GET /lab/{name}: its report for people.
func (s *Server) labReport(w http.ResponseWriter, r *http.Request) {
	doc, err := s.lab.read(r.PathValue("name"))
	var page bytes.Buffer
	if err == nil {
		err = report.HTML(&page, doc)
	}
	if err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	w.Header().Set("Content-Security-Policy", reportPolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = page.WriteTo(w)
}

// apiLabCompare is GET /api/lab-compare?a=NAME&b=NAME: what `lateen lab compare` prints.
func (s *Server) apiLabCompare(w http.ResponseWriter, r *http.Request) {
	var docs [2]*results.Results
	for i, key := range []string{"a", "b"} {
		name := r.URL.Query().Get(key)
		if name == "" {
			refuse(w, http.StatusBadRequest, &Refusal{Message: "parsing " + key, Cause: errors.New("name two runs of the lab, as a=NAME&b=NAME")})
			return
		}
		doc, err := s.lab.read(name)
		if err != nil {
			refuse(w, codeOf(err), err)
			return
		}
		docs[i] = doc
	}
	var text bytes.Buffer
	if err := report.Compare(&text, docs[0], docs[1]); err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	w.Header().Set("Content-Type", "text/markdown; charset=utf-8")
	_, _ = text.WriteTo(w)
}
