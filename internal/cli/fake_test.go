package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/check"
	"lateen.dev/lateen/internal/engine/api"
)

var update = flag.Bool("update", false, "write the golden files anew")

var now = time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC)

// fakeEngine answers on a unix socket as an engine does and remembers what it was asked.
type fakeEngine struct {
	t        *testing.T
	socket   string
	objects  []api.Object
	status   api.Status
	dump     string   // the configuration of each node's proxy
	clients  string   // a waypoint's page of connections
	declared string   // the control plane's page of resources
	asked    []string // method, path and body of each request
	problems []api.Problem
	findings []api.Finding      // of the control plane's analysis; nil if it does not answer
	rehearse string             // why a dry run is not judged
	hangs    bool               // a look at the mesh gets no answer
	unasked  string             // why the control plane says nothing of objects
	looking  func()             // called before each look at the mesh is answered
	results  []api.ObjectResult // of apply, after the usual ones
	ca       []api.CAStatus     // one answer after the other, the last for good
	root     string             // the mesh's root namespace; empty if the control plane does not name it
	empty    bool               // apply finds no objects
	exec     func(api.ExecRequest, io.Reader) (stdout, stderr string, code int)
	echo     bool // connections are echoed
	applied  func(api.ApplyRequest) api.ApplyResult
	// refuseApply is the answer to apply in place of all others.
	refuseApply *api.Error
	patched     func(api.PatchRequest) *api.Error // a refusal of a patch
	present     func() []api.Object               // in place of objects, asked each time

	started []StartOptions
	stopped []string
	fail    error // of Start and Stop

	meshes   []string              // on this machine
	silent   []string              // those of them whose engine does not answer
	alive    []string              // those of them whose engine's process runs
	guarded  []string              // those of them that answer root alone
	variable map[string]string     // the environment
	logless  map[string]*api.Error // targets whose log is refused
	missing  *api.Error            // the answer to everything that the fake does not know; nil: it has a page for each
}

func newFake(t *testing.T) *fakeEngine {
	t.Helper()
	f := &fakeEngine{t: t, socket: filepath.Join(t.TempDir(), "engine.sock"), meshes: []string{"default", "mixed"}, silent: []string{"mixed"}}
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: f.handler()}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return f
}

func (f *fakeEngine) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, value any) {
		if err := json.NewEncoder(w).Encode(value); err != nil {
			f.t.Error(err)
		}
	}
	mux.HandleFunc("GET /v1/version", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, api.Version{Mesh: "default", Version: "1.2.3", Nodes: []string{"n1", "n2"}})
	})
	mux.HandleFunc("GET /v1/objects", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		list := api.ObjectList{Unasked: f.unasked}
		objects := f.objects
		if f.present != nil {
			objects = f.present()
		}
		for _, o := range objects {
			kind, known := api.LookupKind(q.Get("kind"))
			if !known {
				kind.Name = q.Get("kind")
			}
			if o.Key.Kind == kind.Name && (q.Get("name") == "" || q.Get("name") == o.Key.Name) &&
				(o.Key.Namespace == "" || q.Get("all") == "true" || o.Key.Namespace == q.Get("namespace")) {
				if q.Get("owners") != "true" {
					o.Owners = nil
				}
				list.Items = append(list.Items, o)
			}
		}
		if q.Get("name") != "" && len(list.Items) == 0 {
			w.WriteHeader(http.StatusNotFound)
			answer(w, api.Error{Code: http.StatusNotFound, Message: q.Get("kind") + " " + q.Get("name") + " not found", Fix: "lateen get " + q.Get("kind") + " lists them"})
			return
		}
		answer(w, list)
	})
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		if f.hangs {
			<-r.Context().Done()
			return
		}
		if f.looking != nil {
			f.looking()
		}
		answer(w, f.status)
	})
	mux.HandleFunc("POST /v1/apply", func(w http.ResponseWriter, r *http.Request) {
		if f.refuseApply != nil {
			w.WriteHeader(f.refuseApply.Code)
			answer(w, f.refuseApply)
			return
		}
		if f.applied != nil {
			var request api.ApplyRequest
			if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
				f.t.Error(err)
			}
			answer(w, f.applied(request))
			return
		}
		if f.empty {
			answer(w, api.ApplyResult{})
			return
		}
		answer(w, api.ApplyResult{Problems: f.problems, Unasked: f.rehearse, Results: append([]api.ObjectResult{
			{Key: api.Key{Kind: "Service", Namespace: "default", Name: "details"}, Action: api.Created},
			{Key: api.Key{Kind: "VirtualService", Namespace: "default", Name: "vs"}, Action: api.Configured, Warnings: []string{"this kind has no effect yet"}},
		}, f.results...)})
	})
	mux.HandleFunc("POST /v1/delete", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, api.ApplyResult{Results: []api.ObjectResult{{Key: api.Key{Kind: "Pod", Namespace: "default", Name: "a"}, Action: api.Deleted}}})
	})
	mux.HandleFunc("POST /v1/patch", func(w http.ResponseWriter, r *http.Request) {
		var request api.PatchRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			f.t.Error(err)
		}
		if f.patched != nil {
			if refusal := f.patched(request); refusal != nil {
				w.WriteHeader(refusal.Code)
				answer(w, refusal)
				return
			}
		}
		answer(w, api.ObjectResult{Key: request.Key, Action: api.Configured})
	})
	for _, log := range []string{"GET /v1/logs", "GET /v1/nodes/{node}/proxy/log", "GET /v1/nodes/{node}/agent/log", "GET /v1/control/log"} {
		mux.HandleFunc(log, func(w http.ResponseWriter, r *http.Request) {
			if refusal, refused := f.logless[r.URL.Query().Get("target")]; refused {
				w.WriteHeader(refusal.Code)
				answer(w, refusal)
				return
			}
			_, _ = fmt.Fprintln(w, r.URL.Path)
		})
	}
	mux.HandleFunc("GET /v1/control/debug/resources", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "["+f.declared+"]")
	})
	mux.HandleFunc("GET /v1/nodes/{node}/proxy/config_dump", func(w http.ResponseWriter, r *http.Request) {
		if !slices.ContainsFunc(f.status.Nodes, func(n api.NodeState) bool { return n.Name == r.PathValue("node") }) {
			w.WriteHeader(http.StatusNotFound)
			answer(w, api.Error{Message: "there is no node " + r.PathValue("node"), Fix: "list them with `lateen get nodes`"})
			return
		}
		_, _ = io.WriteString(w, f.dump)
	})
	mux.HandleFunc("GET /v1/pods/{namespace}/{pod}/proxy/connections", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, f.clients)
	})
	mux.HandleFunc("GET /v1/control/debug/analysis", func(w http.ResponseWriter, _ *http.Request) {
		if f.findings == nil {
			w.WriteHeader(http.StatusBadGateway)
			answer(w, api.Error{Message: "ask the control plane: connection refused"})
			return
		}
		answer(w, map[string]any{"findings": f.findings})
	})
	mux.HandleFunc("GET /v1/control/debug/mesh", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]string{"rootNamespace": f.root})
	})
	mux.HandleFunc("GET /v1/control/debug/ca", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, f.ca[0])
		f.ca = f.ca[min(1, len(f.ca)-1):]
	})
	mux.HandleFunc("POST /v1/ca/rotate", func(w http.ResponseWriter, _ *http.Request) {
		if f.fail != nil {
			w.WriteHeader(http.StatusConflict)
			answer(w, api.Error{Message: f.fail.Error(), Fix: "wait"})
			return
		}
		answer(w, struct{}{})
	})
	mux.HandleFunc("POST /v1/exec", func(w http.ResponseWriter, r *http.Request) {
		var request api.ExecRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			f.t.Error(err)
		}
		conn := f.upgrade(w)
		defer func() { _ = conn.Close() }()
		stdin := &bytes.Buffer{}
		for request.Stdin {
			kind, payload, err := api.ReadFrame(conn)
			if err != nil || kind == api.FrameStdinEOF {
				break
			}
			stdin.Write(payload)
		}
		stdout, stderr, code := f.exec(request, stdin)
		ended := api.Exit{Code: code}
		if code == 126 || code == 127 {
			ended.Error, stderr = stderr, ""
		}
		exit, err := json.Marshal(ended)
		err = errors.Join(err, api.WriteFrame(conn, api.FrameStdout, []byte(stdout)), api.WriteFrame(conn, api.FrameStderr, []byte(stderr)),
			api.WriteFrame(conn, api.FrameExit, exit))
		if err != nil {
			f.t.Error(err)
		}
	})
	mux.HandleFunc("POST /v1/connect", func(w http.ResponseWriter, _ *http.Request) {
		if !f.echo {
			w.WriteHeader(http.StatusNotFound)
			answer(w, api.Error{Message: "service default/nowhere not found"})
			return
		}
		conn := f.upgrade(w)
		defer func() { _ = conn.Close() }()
		_, _ = io.Copy(conn, conn)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			f.t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if _, pattern := mux.Handler(r); f.missing != nil && (pattern == "" || strings.HasSuffix(pattern, "/logs") || strings.HasSuffix(pattern, "/exec")) {
			w.WriteHeader(http.StatusNotFound)
			answer(w, f.missing)
			return
		}
		f.asked = append(f.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
		mux.ServeHTTP(w, r)
	})
}

func (f *fakeEngine) upgrade(w http.ResponseWriter) net.Conn {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lateen-stream\r\n\r\n"); err != nil {
		f.t.Error(err)
	}
	return conn
}

// Start implements Engine.
func (f *fakeEngine) Start(_ context.Context, o StartOptions, progress func(api.Event)) error {
	f.started = append(f.started, o)
	progress(api.Event{Phase: "control", State: api.EventStarted, Message: "start the control plane"})
	if f.fail != nil {
		progress(api.Event{Phase: "control", State: api.EventFailed, Message: "the control plane did not start", Log: []string{"port taken"}})
		return f.fail
	}
	progress(api.Event{Phase: "control", State: api.EventDone, Message: "control plane ready"})
	return nil
}

// Stop implements Engine.
func (f *fakeEngine) Stop(_ context.Context, mesh string, progress func(api.Event)) error {
	f.stopped = append(f.stopped, mesh)
	progress(api.Event{Phase: "pods", State: api.EventDone, Message: "pods ended"})
	return f.fail
}

// Alive implements Engine.
func (f *fakeEngine) Alive(mesh string) bool { return slices.Contains(f.alive, mesh) }

// result is what one command line did.
type result struct {
	code           int
	stdout, stderr string
}

func (f *fakeEngine) run(stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := Run(f.t.Context(), f.env(strings.NewReader(stdin), &stdout, &stderr), args)
	return result{code, stdout.String(), stderr.String()}
}

// waits runs a wait that is over soon. Where a busy machine left it no time for a look it has more.
func (f *fakeEngine) waits(timeout string, args ...string) result {
	f.t.Helper()
	r := f.run("", append([]string{"wait", "--timeout", timeout}, args...)...)
	if strings.Contains(r.stderr, "did not say in that time") {
		r = f.run("", append([]string{"wait", "--timeout", "20s"}, args...)...)
	}
	return r
}

// env is the environment of a command on the fake's machine.
func (f *fakeEngine) env(stdin io.Reader, stdout, stderr io.Writer) Env {
	return Env{
		Stdin: stdin, Stdout: stdout, Stderr: stderr,
		Connect: f.connect,
		Engine:  f, System: noMachine{}, Meshes: func() []string { return f.meshes },
		Getwd:  func() (string, error) { return "/srv", nil },
		Getenv: func(name string) string { return f.variable[name] },
		Now:    func() time.Time { return now },
	}
}

// connect reaches the fake's socket as the mesh of any name, except as one that is silent.
func (f *fakeEngine) connect(mesh string) *api.Client {
	if slices.Contains(f.silent, mesh) {
		return api.NewAt(mesh, f.socket+".none")
	}
	if slices.Contains(f.guarded, mesh) {
		return api.NewOver(mesh, func(context.Context) (net.Conn, error) {
			return nil, &api.Error{Code: http.StatusForbidden, Message: "the engine of mesh " + mesh + " answers root alone", Fix: "run the command with sudo"}
		})
	}
	return api.NewAt(mesh, f.socket)
}

// askedFor reports whether a request begins with a text.
func (f *fakeEngine) askedFor(prefix string) bool {
	return slices.ContainsFunc(f.asked, func(s string) bool { return strings.HasPrefix(s, prefix) })
}

// noMachine lacks everything that can be missing.
type noMachine struct{}

func (noMachine) EffectiveUID() int { return 1000 }
func (noMachine) Output(_ context.Context, command []string) (string, error) {
	return "", fmt.Errorf("%s: %w", command[0], check.ErrNotFound)
}
func (noMachine) AvailableMemoryMiB() (uint64, error)                    { return 4096, nil }
func (noMachine) FreeDiskMiB() (uint64, string, error)                   { return 20000, "/srv", nil }
func (noMachine) ProgramDir() (string, error)                            { return "/opt/bin", nil }
func (noMachine) IsExecutable(string) bool                               { return true }
func (noMachine) ProbeKernel(context.Context, check.KernelFeature) error { return nil }

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}
