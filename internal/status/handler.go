package status

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/protobuf/encoding/protojson"

	_ "lateen.dev/lateen/internal/gen/security" // so that dumped resources can be spelled out
	_ "lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/log"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/xds"
)

// Sources are what the pages are read from.
type Sources struct {
	Store    *model.Store
	Log      *log.Log
	Problems func() []files.Problem
	Clients  func() []xds.ClientState
	// Ready returns why the control plane is not ready, or nil.
	Ready   func() error
	Metrics *Metrics
	Version string
}

// Object is one line of the objects page.
type Object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Namespace  string            `json:"namespace,omitempty"`
	Name       string            `json:"name"`
	File       string            `json:"file"`
	Line       int               `json:"line"`
	Generation uint64            `json:"generation"`
	Support    string            `json:"support"`
	Reason     string            `json:"reason,omitempty"`
	Conditions []model.Condition `json:"conditions"`
	Problems   []files.Problem   `json:"problems"`
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
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Metrics.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		write(w, map[string]string{"version": s.Version})
	})
	mux.HandleFunc("GET /debug/objects", func(w http.ResponseWriter, _ *http.Request) { write(w, s.objects()) })
	mux.HandleFunc("GET /debug/problems", func(w http.ResponseWriter, _ *http.Request) {
		write(w, append([]files.Problem{}, s.Problems()...))
	})
	mux.HandleFunc("GET /debug/clients", func(w http.ResponseWriter, _ *http.Request) {
		write(w, map[string]any{"generation": s.Log.Generation(), "clients": s.Clients()})
	})
	mux.HandleFunc("GET /debug/resources", func(w http.ResponseWriter, r *http.Request) { s.resources(w, r) })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "/metrics\n/ready\n/version\n/debug/objects\n/debug/problems\n/debug/clients\n/debug/resources?type=Address|Authorization")
	})
	return mux
}

func (s Sources) objects() []Object {
	problems := map[string][]files.Problem{}
	for _, p := range s.Problems() {
		problems[p.Object] = append(problems[p.Object], p)
	}
	refused := refusals(s.Clients(), s.Log.Generation(), s.Log.Get)
	out := []Object{}
	for _, e := range s.Store.Entries() {
		o := e.Object
		conditions := append([]model.Condition{}, e.Conditions...)
		if c, ok := refused[log.Source{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}]; ok {
			conditions = append(conditions, c)
		}
		out = append(out, Object{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, File: o.File, Line: o.Line,
			Generation: e.Generation, Support: o.Support.String(), Reason: o.Reason,
			Conditions: conditions, Problems: append([]files.Problem{}, problems[o.Key.String()]...)})
	}
	return out
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
