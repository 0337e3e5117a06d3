package status

import (
	"io"
	"mime"
	"net/http"
	"sync"

	"lateen.dev/lateen/internal/analyse"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
)

// maxDocuments bounds what may be sent to be judged, in bytes.
const maxDocuments = 16 << 20

// rehearsals lets one request after the other be judged, from its first byte on: a rehearsal takes the memory of a start.
var rehearsals = make(chan struct{}, 1)

// Analysis is the analysis page.
type Analysis struct {
	Generation uint64            `json:"generation"`
	Findings   []analyse.Finding `json:"findings"`
}

// Rehearsal is what would be said of objects if they were applied.
type Rehearsal struct {
	Objects []Judgement `json:"objects"`
}

// Judgement is what is said of one object.
type Judgement struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Namespace  string            `json:"namespace,omitempty"`
	Name       string            `json:"name"`
	Conditions []model.Condition `json:"conditions"`
	Findings   []analyse.Finding `json:"findings"`
}

// findings keeps the findings of one generation: several pages show them, and an analysis reads every pod.
type findings struct {
	mu         sync.Mutex
	known      bool
	generation uint64
	list       []analyse.Finding
}

// analysis returns the findings about the present objects and the generation that they are of.
func (s Sources) analysis() Analysis {
	if s.Analyse == nil || s.found == nil {
		return Analysis{Findings: []analyse.Finding{}}
	}
	f := s.found
	f.mu.Lock()
	defer f.mu.Unlock()
	// The generation is read first: an object that comes meanwhile is looked at again with the next question.
	if now := s.Store.Generation(); !f.known || f.generation != now {
		f.list, f.generation, f.known = append([]analyse.Finding{}, s.Analyse(s.Store.Entries())...), now, true
	}
	return Analysis{Generation: f.generation, Findings: f.list}
}

// byObject sorts findings to the objects that they are about.
func byObject(list []analyse.Finding) map[model.Key][]analyse.Finding {
	out := map[model.Key][]analyse.Finding{}
	for _, f := range list {
		out[f.Object.Key()] = append(out[f.Object.Key()], f)
	}
	return out
}

func (s Sources) serveAnalysis(w http.ResponseWriter, r *http.Request) {
	page, wanted := s.analysis(), wanted(r.URL.Query())
	chosen := []analyse.Finding{}
	for _, f := range page.Findings {
		if wanted.about(f.Object.Key()) {
			chosen = append(chosen, f)
		}
	}
	page.Findings = chosen
	write(w, page)
}

// serveRehearsal judges the documents of a request, in YAML or JSON, as if they were applied to the present objects. It changes nothing.
func (s Sources) serveRehearsal(w http.ResponseWriter, r *http.Request) {
	// A page of another site can send a form or plain text through a user's port-forward, and nothing else without being asked first.
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind {
	case "application/yaml", "application/json":
	default:
		http.Error(w, "send the documents as application/yaml or application/json", http.StatusUnsupportedMediaType)
		return
	}
	select {
	case rehearsals <- struct{}{}:
		defer func() { <-rehearsals }()
	case <-r.Context().Done():
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDocuments))
	if err != nil {
		http.Error(w, "read the documents: "+err.Error(), http.StatusBadRequest)
		return
	}
	objects, problems := files.Decode("request", text)
	for _, p := range problems {
		if p.Severity == files.Refused {
			http.Error(w, p.Error(), http.StatusBadRequest)
			return
		}
	}
	changes := make([]model.Change, len(objects))
	for i := range objects {
		changes[i] = model.Change{Key: objects[i].Key, Object: &objects[i]}
	}
	entries := s.Rehearse(changes)
	found := byObject(s.Analyse(entries))
	after := make(map[model.Key]model.Entry, len(entries))
	for _, e := range entries {
		after[e.Object.Key] = e
	}
	out := Rehearsal{Objects: []Judgement{}}
	for _, o := range objects {
		out.Objects = append(out.Objects, Judgement{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
			Conditions: append([]model.Condition{}, after[o.Key].Conditions...), Findings: append([]analyse.Finding{}, found[o.Key]...)})
	}
	write(w, out)
}
