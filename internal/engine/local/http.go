package local

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// maxRequest bounds the body of a request, in bytes.
const maxRequest = 64 << 20

// handler is everything that can be asked over the engine's socket.
func (e *Engine) handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /v1/version", e.serveVersion)
	m.HandleFunc("POST /v1/apply", asks(e.objects.serveApply))
	m.HandleFunc("POST /v1/delete", asks(e.objects.serveDelete))
	m.HandleFunc("POST /v1/patch", asks(func(_ context.Context, r api.PatchRequest) (any, error) { return e.objects.patch(r) }))
	m.HandleFunc("GET /v1/objects", answers(e.objects.serve))
	m.HandleFunc("GET /v1/status", answers(func(r *http.Request) (any, error) { return e.observer.status(r.Context()), nil }))
	m.HandleFunc("GET /v1/usage", answers(func(*http.Request) (any, error) { return e.observer.usage(), nil }))
	m.HandleFunc("GET /v1/logs", e.access.serveLogs)
	m.HandleFunc("POST /v1/exec", e.access.serveExec)
	m.HandleFunc("POST /v1/connect", e.access.serveConnect)
	m.HandleFunc("GET /v1/capture", answers(e.capturer.serve))
	m.HandleFunc("GET /v1/capture.pcap", e.capturer.servePcap)
	m.HandleFunc("POST /v1/down", e.serveDown)
	m.HandleFunc("GET /v1/nodes/{node}/proxy/metrics", e.state.nodes.servePage(func(ctx context.Context, n *node, _ *http.Request) ([]byte, error) {
		return n.askProxy(ctx, proxyMetrics, "/metrics")
	}))
	m.HandleFunc("GET /v1/nodes/{node}/proxy/config_dump", e.state.nodes.servePage(func(ctx context.Context, n *node, _ *http.Request) ([]byte, error) {
		return n.askProxy(ctx, proxyAdmin, "/config_dump")
	}))
	m.HandleFunc("GET /v1/nodes/{node}/proxy/pods", e.state.nodes.servePage(func(ctx context.Context, n *node, _ *http.Request) ([]byte, error) {
		return n.askProxy(ctx, proxyAdmin, "/pods")
	}))
	m.HandleFunc("POST /v1/nodes/{node}/proxy/logging", e.state.nodes.servePage(func(ctx context.Context, n *node, r *http.Request) ([]byte, error) {
		return n.tellProxy(ctx, "/logging?"+r.URL.RawQuery)
	}))
	m.HandleFunc("GET /v1/nodes/{node}/proxy/connections", e.state.nodes.serveConnections)
	m.HandleFunc("GET /v1/pods/{namespace}/{pod}/proxy/connections", e.access.serveConnections)
	m.HandleFunc("POST /v1/nodes/{node}/proxy/replace", e.replacer.serve)
	m.HandleFunc("GET /v1/nodes/{node}/agent/status", e.state.nodes.servePage(func(ctx context.Context, n *node, _ *http.Request) ([]byte, error) {
		return fetchUnix(ctx, e.dir.agentSocket(n.name), "/v1/status")
	}))
	m.HandleFunc("GET /v1/nodes/{node}/proxy/log", e.state.nodes.serveLog(func(n *node) *daemon { return n.proxy }))
	m.HandleFunc("GET /v1/nodes/{node}/agent/log", e.state.nodes.serveLog(func(n *node) *daemon { return n.agent }))
	m.HandleFunc("GET /v1/control/log", func(w http.ResponseWriter, r *http.Request) { serveDaemonLog(w, r, e.daemons.control) })
	m.HandleFunc("POST /v1/ca/rotate", asks(func(context.Context, struct{}) (any, error) { return struct{}{}, e.ca.rotate() }))
	m.HandleFunc("GET /v1/control/{page...}", serveControl)
	m.HandleFunc("GET /agent/v1/pods", e.feed.serve)
	m.HandleFunc("PUT /agent/v1/pods/{uid}/redirection", e.feed.serveRedirection)
	return m
}

func (e *Engine) serveVersion(w http.ResponseWriter, _ *http.Request) {
	v := api.Version{Mesh: e.opts.Mesh, Version: e.opts.Version, PID: e.host.pid, Started: e.started}
	for _, n := range e.state.nodes {
		v.Nodes = append(v.Nodes, n.name)
	}
	writeJSON(w, http.StatusOK, v)
}

func (e *Engine) serveDown(w http.ResponseWriter, r *http.Request) {
	enc := json.NewEncoder(w)
	flush := http.NewResponseController(w)
	done := make(chan struct{})
	progress := func(ev api.Event) {
		_ = enc.Encode(ev) // the asker may be gone; the mesh ends all the same
		_ = flush.Flush()
		if ev.Phase == "engine" {
			close(done)
		}
	}
	select {
	case e.shutdown <- progress:
		<-done
	case <-r.Context().Done():
	case <-time.After(5 * time.Second):
		fail(w, &api.Error{Code: http.StatusConflict, Message: "the mesh is not up yet or is being ended already", Fix: "try again"})
	}
}

func serveControl(w http.ResponseWriter, r *http.Request) {
	path := "/" + r.PathValue("page")
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	b, err := fetchControl(r.Context(), path)
	if err != nil {
		fail(w, &api.Error{Code: http.StatusBadGateway, Message: "ask the control plane: " + err.Error(), Fix: "see `lateen status`"})
		return
	}
	_, _ = w.Write(b)
}

// asks makes a handler of a function that answers a request in JSON.
func asks[R any](act func(context.Context, R) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in R
		if err := readJSON(w, r, &in); err != nil {
			fail(w, err)
			return
		}
		out, err := act(r.Context(), in)
		if err != nil {
			fail(w, err)
			return
		}
		writeJSON(w, http.StatusOK, out)
	}
}

// answers makes a handler of a function of the URL alone.
func answers(act func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := act(r)
		if err != nil {
			fail(w, err)
			return
		}
		writeJSON(w, http.StatusOK, out)
	}
}

func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(into); err != nil {
		return &api.Error{Code: http.StatusBadRequest, Message: "read the request: " + err.Error()}
	}
	return nil
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, err error) {
	var e *api.Error
	if !errors.As(err, &e) {
		e = &api.Error{Code: http.StatusBadRequest, Message: err.Error()}
	}
	writeJSON(w, e.Code, e)
}
