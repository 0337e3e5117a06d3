package rest

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"lateen.dev/lateen/internal/lab/report"
)

//go:embed page
var pageFiles embed.FS

// Options are what a server is made of.
type Options struct {
	Generator Generator
	// Results is the directory of runs, Lab that of the lab's.
	Results, Lab string
	// MaxRuns bounds the runs under way, MaxResults those that are stored.
	MaxRuns, MaxResults int
	// Hosts are names and addresses, besides localhost and its own, that the server may be asked for.
	Hosts []string
	// Token must be sent with every request where it is not empty.
	Token string
	// Version is the program's.
	Version string
	Now     func() time.Time
}

// Server answers requests. Close ends the runs that it began.
type Server struct {
	guard   guard
	runs    *Runs
	store   *Store
	lab     *LabResults
	version string
	now     func() time.Time
	limits  limits
	handler http.Handler
}

// New opens the directories; it starts nothing.
func New(o Options) (*Server, error) {
	var hosts []string
	for _, host := range o.Hosts {
		name, err := HostName(host)
		if err != nil {
			return nil, fmt.Errorf("host %q: %w", host, err)
		}
		hosts = append(hosts, name)
	}
	store, err := OpenStore(o.Results, o.MaxResults)
	if err != nil {
		return nil, err
	}
	s := &Server{store: store, lab: OpenLabResults(o.Lab), version: o.Version, now: o.Now, limits: usualLimits}
	s.runs = NewRuns(o.Generator, store, o.MaxRuns, o.Now)
	s.guard = guard{hosts: hosts, token: o.Token}
	s.handler = s.routes()
	return s, nil
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	data := func(pattern string, h http.HandlerFunc) { mux.HandleFunc(pattern, s.guard.wrap(false, h)) }
	page := func(pattern string, h http.HandlerFunc) { mux.HandleFunc(pattern, s.guard.wrap(true, h)) }

	data("/fortio/rest/run", s.guard.acts(s.fortioRun))
	data("/fortio/rest/status", s.fortioStatus)
	data("/fortio/rest/stop", s.guard.acts(s.fortioStop))
	data("GET /fortio/data/{$}", s.fortioIndex)
	data("GET /fortio/data/{file}", s.fortioData)

	data("GET /api/active", s.apiActive)
	data("GET /api/expect", s.apiExpect)
	data("GET /api/runs", s.apiRuns)
	data("POST /api/runs", s.apiStart)
	data("GET /api/runs/{id}", s.apiRun)
	data("GET /api/runs/{id}/report", s.apiReport)
	data("DELETE /api/runs/{id}", s.apiDelete)
	data("GET /api/compare", s.apiCompare)
	data("GET /api/lab", s.apiLab)
	data("GET /api/lab/{name}", s.apiLabRun)
	data("GET /api/lab-compare", s.apiLabCompare)
	data("GET /lab/{name}", s.labReport)
	data("GET /api/version", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"version": s.version})
	})

	// Logging in is no page, but nobody has the cookie yet.
	mux.HandleFunc("POST /api/login", s.guard.wrap(true, s.guard.login))
	page("GET /{$}", s.pageFile("index.html", "text/html; charset=utf-8"))
	page("GET /page/app.js", s.pageFile("app.js", "text/javascript; charset=utf-8"))
	page("GET /page/charts.js", s.pageFile("charts.js", "text/javascript; charset=utf-8"))
	page("GET /page/page.css", s.pageFile("page.css", "text/css; charset=utf-8"))
	page("GET /page/report.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write([]byte(report.Stylesheet()))
	})
	page("GET /fortio/{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusSeeOther) })
	data("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, &Refusal{Message: "not found", Cause: errors.New("there is no " + r.URL.Path)})
	})
	return mux
}

func (s *Server) pageFile(name, kind string) http.HandlerFunc {
	text, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic("the page's files are built in: " + err.Error())
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(text)
	}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close stops all runs, waits for them, and lets go of the directories.
func (s *Server) Close() error {
	s.runs.Close()
	return s.store.Close()
}

// Serve answers on a listener until ctx ends; then it stops all runs, lets their answers go out, and returns.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	room := newRoom(listener, s.limits.connections)
	web := &http.Server{
		Handler: s, ReadHeaderTimeout: s.limits.head, ReadTimeout: s.limits.request, WriteTimeout: s.limits.answer, IdleTimeout: s.limits.idle,
		MaxHeaderBytes: 256 << 10, ConnState: room.left,
	}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(room) }()
	select {
	case err := <-ended:
		return errors.Join(err, s.Close())
	case <-ctx.Done():
	}
	s.runs.Close()
	// The runs' answers go out; whoever does not read his is cut off.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := web.Shutdown(last); err != nil {
		_ = web.Close()
	}
	return s.Close()
}

// Loopback tells whether an address to listen on, HOST:PORT, can be reached from this machine alone.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func cutJSON(file string) (string, bool) {
	name, ok := strings.CutSuffix(file, ".json")
	return name, ok && validName(name)
}
