package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"lateen.dev/lateen/internal/model/wellknown"
)

const patience = 30 * time.Second

// engine serves what an engine serves on its unix socket.
func engine(t *testing.T, path string, handler http.Handler) *httptest.Server {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// stream answers a watch with what is written to it.
func stream(lines <-chan string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/agent/v1/pods" || r.URL.Query().Get("node") != "n 1" {
			http.Error(w, "unexpected "+r.URL.String(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for {
			select {
			case line, ok := <-lines:
				if !ok {
					return
				}
				fmt.Fprintln(w, line)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
}

type watcher struct {
	snapshots chan Snapshot
	mu        sync.Mutex
	connected []bool
}

func watch(t *testing.T, path string) *watcher {
	t.Helper()
	w := &watcher{snapshots: make(chan Snapshot, 16)}
	e := NewEngine(path, "n 1", slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		e.Run(ctx, func(s Snapshot) { w.snapshots <- s }, func(c bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.connected = append(w.connected, c)
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *watcher) next(t *testing.T) Snapshot {
	t.Helper()
	select {
	case s := <-w.snapshots:
		return s
	case <-time.After(patience):
		t.Fatal("no snapshot")
		return Snapshot{}
	}
}

const onePod = `{"pods":[{"uid":"u","namespace":"default","name":"a","serviceAccount":"sa","ip":"10.244.1.2","hostNetwork":false,` +
	`"labels":{"app":"a"},"annotations":{"ambient.istio.io/redirection":"enabled"},"netns":"/run/netns/u","terminating":true}],` +
	`"namespaces":{"default":{"labels":{"istio.io/dataplane-mode":"ambient"}}}}`

func TestDeliversEverySnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine.sock")
	lines := make(chan string, 4)
	engine(t, path, stream(lines))
	w := watch(t, path)
	lines <- onePod
	lines <- ""
	lines <- `{"pods":null}`
	want := Snapshot{
		Pods: []Pod{{
			UID: "u", Namespace: "default", Name: "a", ServiceAccount: "sa", IP: "10.244.1.2",
			Labels: map[string]string{"app": "a"}, Annotations: map[string]string{wellknown.Redirection: "enabled"},
			NetNS: "/run/netns/u", Terminating: true,
		}},
		Namespaces: map[string]Namespace{"default": {Labels: map[string]string{"istio.io/dataplane-mode": "ambient"}}},
	}
	if diff := cmp.Diff(want, w.next(t)); diff != "" {
		t.Errorf("the first snapshot:\n%s", diff)
	}
	if s := w.next(t); len(s.Pods) != 0 {
		t.Errorf("the second snapshot: %v", s)
	}
}

func TestWatchesAgainWhenTheEngineComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine.sock")
	w := watch(t, path)
	for range 2 {
		lines := make(chan string, 1)
		s := engine(t, path, stream(lines))
		lines <- onePod
		if got := w.next(t); len(got.Pods) != 1 {
			t.Errorf("got %v", got)
		}
		close(lines)
		s.CloseClientConnections()
		s.Close()
	}
	deadline := time.Now().Add(patience)
	for {
		w.mu.Lock()
		seen := fmt.Sprint(w.connected)
		w.mu.Unlock()
		if strings.Contains(seen, "true false") && strings.HasSuffix(seen, "false]") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("connections: %s", seen)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Half a snapshot, or none, must never read as "there are no pods any more".
func TestDeliversNothingOfABrokenSnapshot(t *testing.T) {
	for _, line := range []string{
		``, `{}`, `[]`, `null`, `{"pods":{}}`, `{"pods":[{"uid":"u"}]}`, `{"pods":[{"namespace":"n","name":"a"}]}`,
		`{"pods":[{"uid":"u","namespace":"n","name":"a"},{"uid":"u","namespace":"n","name":"b"}]}`, onePod[:len(onePod)-1],
	} {
		if s, err := decode([]byte(line)); err == nil {
			t.Errorf("%s: read as %v", line, s)
		}
	}
}

func TestReports(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine.sock")
	type call struct {
		method, path, body string
	}
	var got call
	answer := http.StatusNoContent
	engine(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = call{r.Method, r.URL.EscapedPath(), string(body)}
		w.WriteHeader(answer)
		if answer >= 400 {
			fmt.Fprintln(w, "the disk is full")
		}
	}))
	e := NewEngine(path, "n1", slog.New(slog.DiscardHandler))
	if err := e.Report(t.Context(), "a/b", Report{State: Disabled, Error: "no proxy"}); err != nil {
		t.Fatal(err)
	}
	want := call{http.MethodPut, "/agent/v1/pods/a%2Fb/redirection", `{"state":"disabled","error":"no proxy"}`}
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	answer = http.StatusNotFound
	if err := e.Report(t.Context(), "a", Report{State: Enabled}); !errors.Is(err, ErrGone) {
		t.Errorf("got %v", err)
	}
	answer = http.StatusInternalServerError
	if err := e.Report(t.Context(), "a", Report{State: Enabled}); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(onePod))
	f.Add([]byte(`{"pods":null,"namespaces":null}`))
	f.Add([]byte(`{"pods":[{"uid":"u","namespace":"n","name":"a","labels":null}]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decode(b)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, p := range s.Pods {
			if p.UID == "" || p.Name == "" || p.Namespace == "" || seen[p.UID] {
				t.Errorf("accepted %q", b)
			}
			seen[p.UID] = true
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if round, err := decode(again); err != nil || !cmp.Equal(s, round) {
			t.Errorf("%s became %s, %v", b, again, err)
		}
	})
}
