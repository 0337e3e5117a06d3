package agent

import (
	"encoding/json"
	"net/http"
	"strings"
)

// StatusHandler answers GET /v1/status, and what HealthHandler answers: on the agent's own socket nobody else can.
func (a *Agent) StatusHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", a.HealthHandler())
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		s, err := a.Status(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s)
	})
	return mux
}

// HealthHandler answers /metrics and /ready. The agent is ready once it has worked through a first snapshot of the
// node's pods, and has captured those that an Istio holds whose place it takes; it stays so while the engine or the proxy is away, since
// captured pods do not depend on them.
func (a *Agent) HealthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics.Handler())
	ready := func(w http.ResponseWriter, _ *http.Request) {
		if !a.ready.Load() {
			http.Error(w, "waiting for the engine's first list of pods", http.StatusServiceUnavailable)
			return
		}
		if held := a.held.Load(); held != nil {
			http.Error(w, "waiting to capture pods that Istio holds: "+strings.Join(*held, ", "), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	}
	mux.HandleFunc("GET /ready", ready)
	mux.HandleFunc("GET /healthz/ready", ready)
	return mux
}
