package isotope

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Variables of a service's environment.
const (
	// NameVariable says which service of the topology it is.
	NameVariable = "SERVICE_NAME"
	// PathVariable names the topology's file, as with isotope.
	PathVariable = "CONFIG_PATH"
	// GraphVariable is the topology itself, where there is no file.
	GraphVariable = "SERVICE_GRAPH"
)

const (
	healthPath  = "/health"
	metricsPath = "/metrics"
)

// Load finds the topology of a service's environment.
func Load(path, graph string) (*Topology, error) {
	switch {
	case path != "":
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the topology: %w", err)
		}
		t, err := Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return t, nil
	case graph != "":
		return Parse([]byte(graph))
	}
	return nil, fmt.Errorf("there is no topology: name its file in %s, or put it into %s", PathVariable, GraphVariable)
}

// forwarded are the headers that a service passes on from a request to those that it makes for it.
var forwarded = []string{
	"X-Request-Id", "X-B3-Traceid", "X-B3-Spanid", "X-B3-Parentspanid", "X-B3-Sampled", "X-B3-Flags", "X-Ot-Span-Context",
	"X-Datadog-Trace-Id", "X-Datadog-Parent-Id", "X-Datadog-Sampling-Priority", "Traceparent", "Tracestate", "X-Cloud-Trace-Context", "Grpc-Trace-Bin",
}

// Handler acts one service out.
type Handler struct {
	service  *Service
	requests atomic.Uint64
	answer   []byte
	payloads map[int64][]byte
	client   *http.Client
	metrics  *metrics
	logger   *slog.Logger
}

// NewHandler makes the service name of a topology. idle is how many connections are kept to each service that it calls.
func NewHandler(t *Topology, name string, idle int, logger *slog.Logger) (*Handler, error) {
	s := t.Find(name)
	if s == nil {
		return nil, fmt.Errorf("%s: there is no service %q in the topology", NameVariable, name)
	}
	if circle := t.Endless(); len(circle) > 0 {
		return nil, fmt.Errorf("service %s: script: a request would go round for ever: %s", circle[0], strings.Join(circle, " -> "))
	}
	h := &Handler{
		service: s, answer: noise(s.ResponseSize), payloads: map[int64][]byte{}, metrics: newMetrics(), logger: logger,
		// No proxy of the environment: what is called is a part of the graph.
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: idle, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
			DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext}},
	}
	for _, c := range s.calls() {
		if h.payloads[c.Size] == nil {
			h.payloads[c.Size] = noise(c.Size)
		}
	}
	return h, nil
}

// noise is a body that nothing can compress.
func noise(n int64) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // it never fails
	return b
}

// Close lets go of the connections to other services.
func (h *Handler) Close() { h.client.CloseIdleConnections() }

// Mux serves the script on every path but those of metrics and health.
func (h *Handler) Mux() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(metricsPath, h.metrics.handler())
	mux.HandleFunc(healthPath, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.Handle("/", h)
	return mux
}

// ServeHTTP carries the script out and answers.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	h.metrics.incoming.Inc()
	// A body that is left unread would cost its connection.
	_, _ = io.Copy(io.Discard, r.Body)
	status, body := http.StatusOK, h.answer
	if failing(h.requests.Add(1), h.service.ErrorRate) {
		status, body = http.StatusInternalServerError, []byte("simulated failure\n")
	} else if err := h.script(r.Context(), r.Header); err != nil {
		status, body = http.StatusInternalServerError, []byte(err.Error()+"\n")
		if r.Context().Err() == nil {
			h.logger.Warn("isotope: script failed", "service", h.service.Name, "error", err)
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		h.logger.Debug("isotope: caller gone", "service", h.service.Name, "error", err)
	}
	h.metrics.answered(status, len(body), time.Since(began))
}

// failing says whether the n-th request fails, n from 1 on: of any n requests the rate's share has, rounded down, and they are
// spread evenly.
func failing(n uint64, rate float64) bool {
	return math.Floor(float64(n)*rate) > math.Floor(float64(n-1)*rate)
}

func (h *Handler) script(ctx context.Context, from http.Header) error {
	for _, step := range h.service.Script {
		if len(step.Commands) == 1 {
			if err := h.command(ctx, step.Commands[0], from); err != nil {
				return err
			}
			continue
		}
		// All of a step are waited for, whatever becomes of one.
		errs := make([]error, len(step.Commands))
		var group sync.WaitGroup
		for i, c := range step.Commands {
			group.Go(func() { errs[i] = h.command(ctx, c, from) })
		}
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

func (h *Handler) command(ctx context.Context, c Command, from http.Header) error {
	if c.Call != nil {
		return h.call(ctx, c.Call, from)
	}
	timer := time.NewTimer(c.Sleep)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// longestComplaint bounds what of a failed call's answer is passed on, in bytes.
const longestComplaint = 4 << 10

func (h *Handler) call(ctx context.Context, c *Call, from http.Header) error {
	if !c.certain() && rand.IntN(100) >= c.Probability {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.Host, bytes.NewReader(h.payloads[c.Size]))
	if err != nil {
		return fmt.Errorf("call %s: %w", c.Service, err)
	}
	for name, value := range c.Headers {
		request.Header.Set(name, value)
		if http.CanonicalHeaderKey(name) == "Host" {
			request.Host = value
		}
	}
	for _, name := range forwarded {
		if values := from[name]; len(values) > 0 {
			request.Header[name] = values
		}
	}
	response, err := h.client.Do(request)
	if err != nil {
		return fmt.Errorf("call %s: %w", c.Service, err)
	}
	defer response.Body.Close()
	h.metrics.called(c.Host, c.Size)
	if response.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(response.Body, longestComplaint))
		_, _ = io.Copy(io.Discard, response.Body)
		return fmt.Errorf("call %s: it answered %s: %s", c.Service, response.Status, strings.TrimSpace(string(why)))
	}
	// Read to the end, so that the connection can be used again.
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("call %s: read its answer: %w", c.Service, err)
	}
	return nil
}

// patience is how long a service that is to end waits for the requests under way.
const patience = 2 * time.Second

// Serve answers on a listener until ctx ends.
func (h *Handler) Serve(ctx context.Context, l net.Listener) error {
	defer h.Close()
	server := &http.Server{Handler: h.Mux(), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close() // what is still under way has had its time
	}
	<-ended
	return nil
}
