package status

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/protobuf/encoding/protojson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/analyse"
	_ "lateen.dev/lateen/internal/gen/security" // so that dumped resources can be spelled out
	_ "lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/xds"
)

// Sources are what the pages are read from.
type Sources struct {
	Store    *model.Store
	Log      *resourcelog.Log
	Problems func() []files.Problem
	Clients  func() []xds.ClientState
	// Ready returns why the control plane is not ready, or nil.
	Ready func() error
	// Note is what readers of a ready control plane should know all the same; nil if there never is anything.
	Note    func() string
	Metrics *Metrics
	Version string
	// RootNamespace is where policies hold for the whole mesh.
	RootNamespace string
	// Together says of an object what the proxies of all replicas have of it; nil where there is one replica. What it returns is good for
	// one page.
	Together func(context.Context) func(*model.Object) (model.Condition, bool)
	// Refused are the objects of which the source has not taken the present version; nil where such a version is never stored.
	Refused func() []Refused
	// Replicas tells of all replicas and their proxies; nil where there is one.
	Replicas func(context.Context) any
	// Analyse finds objects that do not do what their author meant; nil finds none.
	Analyse func([]model.Entry) []analyse.Finding
	// Rehearse returns the objects, with their conditions, as they would be after changes; nil where nothing is rehearsed.
	Rehearse func([]model.Change) []model.Entry

	found *findings
}

// Refused is an object of which the present version is not taken, and what is said of that. One before it may be in force.
type Refused struct {
	Key        model.Key
	APIVersion string
	// Generation is the metadata.generation of the version that is not taken.
	Generation int64
	Conditions []model.Condition
}

// Object is one line of the objects page.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	File       string `json:"file"`
	Line       int    `json:"line"`
	Generation uint64 `json:"generation"`
	Digest     string `json:"digest"` // of the version that is in force
	// UID and Observed are the metadata.uid and metadata.generation of the version that the conditions are about; empty where nobody assigns them.
	UID        string            `json:"uid,omitempty"`
	Observed   int64             `json:"observedGeneration,omitempty"`
	Support    string            `json:"support"`
	Reason     string            `json:"reason,omitempty"`
	Conditions []model.Condition `json:"conditions"`
	Problems   []files.Problem   `json:"problems"`
	Findings   []analyse.Finding `json:"findings,omitempty"`
}

// Resource is one entry of the resources page.
type Resource struct {
	Type    string          `json:"type"`
	Name    string          `json:"name"`
	Version string          `json:"version"`
	Aliases []string        `json:"aliases,omitempty"`
	Content json.RawMessage `json:"content"`
}

// Handler serves the pages. It has no access control: listen on loopback.
func Handler(s Sources) http.Handler {
	s.found = &findings{}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Metrics.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if note := s.note(); note != "" {
			fmt.Fprintln(w, "ready; "+note)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		write(w, map[string]string{"version": s.Version})
	})
	mux.HandleFunc("GET /debug/mesh", func(w http.ResponseWriter, _ *http.Request) {
		write(w, map[string]string{"rootNamespace": s.RootNamespace})
	})
	mux.HandleFunc("GET /debug/objects", func(w http.ResponseWriter, r *http.Request) { write(w, s.objects(r.Context(), wanted(r.URL.Query()))) })
	mux.HandleFunc("GET /debug/problems", func(w http.ResponseWriter, _ *http.Request) {
		write(w, append([]files.Problem{}, s.Problems()...))
	})
	mux.HandleFunc("GET /debug/analysis", s.serveAnalysis)
	if s.Rehearse != nil {
		mux.HandleFunc("POST /debug/analysis", s.serveRehearsal)
	}
	mux.HandleFunc("GET /debug/clients", func(w http.ResponseWriter, _ *http.Request) {
		write(w, map[string]any{"generation": s.Log.Generation(), "clients": s.Clients()})
	})
	mux.HandleFunc("GET /debug/resources", func(w http.ResponseWriter, r *http.Request) { s.resources(w, r) })
	pages := "/metrics\n/ready\n/version\n/debug/mesh\n/debug/objects?kind=KIND&namespace=NAMESPACE&name=NAME\n/debug/problems\n/debug/analysis?kind=KIND&namespace=NAMESPACE&name=NAME (POST: documents, judged as if they were applied)\n/debug/clients\n/debug/resources?type=Address|Authorization"
	if s.Replicas != nil {
		pages += "\n/debug/replicas"
		mux.HandleFunc("GET /debug/replicas", func(w http.ResponseWriter, r *http.Request) { write(w, s.Replicas(r.Context())) })
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, pages) })
	return mux
}

func (s Sources) note() string {
	if s.Note == nil {
		return ""
	}
	return s.Note()
}

// question says which objects a request is about: kind, namespace and name narrow it down, as far as they are given.
type question struct{ kind, namespace, name string }

// wanted reads the question of a request.
func wanted(query url.Values) question {
	return question{query.Get("kind"), query.Get("namespace"), query.Get("name")}
}

// about reports whether the question is about an object.
func (q question) about(key model.Key) bool {
	return (q.kind == "" || strings.EqualFold(q.kind, key.Kind)) && (q.namespace == "" || q.namespace == key.Namespace) && (q.name == "" || q.name == key.Name)
}

// judged reports whether findings can be about the objects of the question.
func (q question) judged() bool { return q.kind == "" || analyse.Judges(q.kind) }

func (s Sources) objects(ctx context.Context, wanted question) []Object {
	problems := map[string][]files.Problem{}
	for _, p := range s.Problems() {
		problems[p.Object] = append(problems[p.Object], p)
	}
	// An object that is not in the log yet is not on its way to any proxy, whatever is said of it already. And an object of a generation that was in
	// the log before the refusals were read, and that is still the store's after, is the one that they are about: so these three stay in
	// this order.
	through := s.Log.Generation()
	var together func(*model.Object) (model.Condition, bool)
	if s.Together != nil {
		together = s.Together(ctx)
	}
	refused := Refusals(s.Clients(), through, s.Log.Get)
	notTaken := map[model.Key]Refused{}
	if s.Refused != nil {
		for _, r := range s.Refused() {
			notTaken[r.Key] = r
		}
	}
	var found map[model.Key][]analyse.Finding
	if wanted.judged() {
		found = byObject(s.analysis().Findings)
	}
	out := []Object{}
	for _, e := range s.Store.Entries() {
		o := e.Object
		if !wanted.about(o.Key) {
			continue
		}
		conditions := []model.Condition{}
		uid, observed := version(o)
		r, isRefused := notTaken[o.Key]
		delete(notTaken, o.Key)
		switch {
		case isRefused: // whatever is said of the version before
			conditions, observed = append(conditions, r.Conditions...), r.Generation
		case e.Generation <= through:
			for _, c := range e.Conditions {
				if c.Generation <= through {
					conditions = append(conditions, c)
				}
			}
			c, ok := refused[resourcelog.Source{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}]
			if all, told := s.of(o, together); told {
				c, ok = all, true
				c.Generation = e.Generation
			}
			if ok {
				conditions = append(conditions, c)
			}
		}
		out = append(out, Object{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, File: o.File, Line: o.Line,
			Generation: e.Generation, Digest: o.Digest(), UID: uid, Observed: observed, Support: o.Support.String(), Reason: o.Reason,
			Conditions: conditions, Problems: untold(problems[o.Key.String()], conditions), Findings: found[o.Key]})
	}
	// Of others nothing is in force.
	for _, key := range slices.SortedFunc(maps.Keys(notTaken), model.Key.Compare) {
		if r := notTaken[key]; wanted.about(key) {
			out = append(out, Object{APIVersion: r.APIVersion, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Observed: r.Generation,
				Conditions: r.Conditions, Problems: append([]files.Problem{}, problems[key.String()]...)})
		}
	}
	return out
}

// untold are the problems of an object without the warnings that say what one of its conditions says: those of an object that has no status in the
// cluster are among the problems as well.
func untold(problems []files.Problem, conditions []model.Condition) []files.Problem {
	return slices.DeleteFunc(append([]files.Problem{}, problems...), func(p files.Problem) bool {
		return p.Severity == files.Warning && slices.ContainsFunc(conditions, func(c model.Condition) bool { return c.Message == p.Message })
	})
}

// version is the version of an object that whoever stores it has given it.
func version(o *model.Object) (uid string, generation int64) {
	if m, ok := o.Value.(metav1.Object); ok {
		uid, generation = string(m.GetUID()), m.GetGeneration()
	}
	return uid, generation
}

func (s Sources) of(o *model.Object, together func(*model.Object) (model.Condition, bool)) (model.Condition, bool) {
	if together == nil {
		return model.Condition{}, false
	}
	return together(o)
}

// resources dumps one type, or all.
func (s Sources) resources(w http.ResponseWriter, r *http.Request) {
	wanted := r.URL.Query().Get("type")
	out := []Resource{}
	matched := wanted == ""
	for _, t := range s.Log.Types() {
		if wanted != "" && t != wanted && !strings.EqualFold(t[strings.LastIndexByte(t, '.')+1:], wanted) {
			continue
		}
		matched = true
		for _, res := range s.Log.Live(t) {
			decoded, err := res.Decode()
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			message, err := decoded.GetResource().UnmarshalNew()
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			content, err := protojson.Marshal(message)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			out = append(out, Resource{Type: t, Name: res.Name, Version: res.Version, Aliases: res.Aliases, Content: content})
		}
	}
	if !matched {
		http.Error(w, fmt.Sprintf("no type %q; there are %s", wanted, strings.Join(s.Log.Types(), ", ")), http.StatusNotFound)
		return
	}
	write(w, out)
}

func write(w http.ResponseWriter, v any) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(data, '\n')) // a reader that went away needs no answer
}
