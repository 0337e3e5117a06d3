package isotope_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lateen.dev/lateen/internal/lab/isotope"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// act runs one service of a topology and returns its address.
func act(t *testing.T, topology, name string) string {
	t.Helper()
	h, err := isotope.NewHandler(parse(t, topology), name, 8, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func get(t *testing.T, url string, headers ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// callee is a service that is not ours and writes down what it is asked.
type callee struct {
	address   string
	mu        sync.Mutex
	headers   []http.Header
	bodies    []int
	remotes   map[string]bool
	now, most atomic.Int64
	wait      chan struct{} // a request waits until it is closed, if there is one
	status    int
}

func newCallee(t *testing.T) *callee {
	t.Helper()
	c := &callee{remotes: map[string]bool{}, status: http.StatusOK}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.address = l.Addr().String()
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n := c.now.Add(1)
		defer c.now.Add(-1)
		c.mu.Lock()
		if n > c.most.Load() {
			c.most.Store(n)
		}
		c.headers, c.bodies = append(c.headers, r.Header.Clone()), append(c.bodies, len(body))
		c.remotes[r.RemoteAddr] = true
		c.mu.Unlock()
		if c.wait != nil {
			select {
			case <-c.wait:
			case <-time.After(30 * time.Second):
			}
		}
		w.WriteHeader(c.status)
		fmt.Fprint(w, "as told")
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return c
}

func (c *callee) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.bodies)
}

func TestTheScriptIsCarriedOut(t *testing.T) {
	b := newCallee(t)
	a := act(t, fmt.Sprintf(`
services:
- name: a
  responseSize: 3000
  script:
  - call: {service: b, hostname: %q, size: 2k, extra-header: {x-extra: one}}
  - sleep: 30ms
  - call: {service: b, hostname: %q}
- name: b
`, b.address, b.address), "a")
	began := time.Now()
	code, body := get(t, "http://"+a+"/any/path", "x-request-id", "r1", "traceparent", "t1", "x-other", "stays here")
	if code != 200 || len(body) != 3000 {
		t.Errorf("answered %d with %d bytes", code, len(body))
	}
	if took := time.Since(began); took < 30*time.Millisecond {
		t.Errorf("it did not pause: %s", took)
	}
	if b.count() != 2 || b.bodies[0] != 2048 || b.bodies[1] != 0 {
		t.Fatalf("bodies of %v", b.bodies)
	}
	if h := b.headers[0]; h.Get("X-Extra") != "one" || h.Get("X-Request-Id") != "r1" || h.Get("Traceparent") != "t1" || h.Get("X-Other") != "" {
		t.Errorf("headers %v", h)
	}
	if len(b.remotes) != 1 {
		t.Errorf("two calls took %d connections", len(b.remotes))
	}
	_, metrics := get(t, "http://"+a+"/metrics")
	for _, want := range []string{
		"service_incoming_requests_total 1\n", `service_outgoing_requests_total{destination_service="` + b.address + `"} 2`,
		`service_outgoing_request_size_sum{destination_service="` + b.address + `"} 2048`,
		`service_response_size_sum{code="200"} 3000`, `service_request_duration_seconds_count{code="200"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in %s", want, metrics)
		}
	}
}

// The callee answers nobody before all three are there: calls one after the other would wait for ever.
func TestAListOfCommandsRunsAtTheSameTime(t *testing.T) {
	b := newCallee(t)
	b.wait = make(chan struct{})
	call := fmt.Sprintf("{call: {service: b, hostname: %q}}", b.address)
	a := act(t, "services:\n- name: a\n  script:\n  - ["+call+", "+call+", "+call+"]\n- name: b\n", "a")
	answered := make(chan int, 1)
	go func() {
		code, _ := get(t, "http://"+a+"/")
		answered <- code
	}()
	for deadline := time.Now().Add(20 * time.Second); b.now.Load() < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("only %d calls at the same time", b.now.Load())
			break
		}
	}
	close(b.wait)
	if code := <-answered; code != 200 {
		t.Errorf("answered %d", code)
	}
}

func TestWhatFailsIsToldToTheCaller(t *testing.T) {
	b := newCallee(t)
	b.status = http.StatusServiceUnavailable
	a := act(t, fmt.Sprintf("services:\n- name: a\n  script:\n  - [{call: {service: b, hostname: %q}}, {call: {service: b, hostname: \"127.0.0.1:1\"}}]\n- name: b\n", b.address), "a")
	code, body := get(t, "http://"+a+"/")
	if code != 500 || !strings.Contains(body, "call b: it answered 503") || !strings.Contains(body, "as told") || !strings.Contains(body, "refused") {
		t.Errorf("answered %d: %s", code, body)
	}
}

func TestErrorRateFailsItsShare(t *testing.T) {
	for rate, want := range map[string]string{
		"0": "2222222222", "0.1%": "2222222222", "25%": "2225222522", "40%": "2252522525", "50%": "2525252525", "70%": "2552552555", "75%": "2555255525", "100%": "5555555555",
	} {
		a := act(t, fmt.Sprintf("services: [{name: a, errorRate: %s}]", rate), "a")
		got := ""
		for range len(want) {
			code, _ := get(t, "http://"+a+"/")
			got += fmt.Sprint(code / 100)
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", rate, got, want)
		}
	}
}

func TestProbabilityIsAShareOfCalls(t *testing.T) {
	b := newCallee(t)
	a := act(t, fmt.Sprintf("services:\n- name: a\n  script: [%s]\n- name: b\n",
		strings.TrimSuffix(strings.Repeat(fmt.Sprintf("{call: {service: b, hostname: %q, probability: 20}},", b.address), 500), ",")), "a")
	if code, body := get(t, "http://"+a+"/"); code != 200 {
		t.Fatalf("%d: %s", code, body)
	}
	// 500 throws with 20 %: outside 50 to 150 once in 10^8.
	if n := b.count(); n < 50 || n > 150 {
		t.Errorf("%d of 500 calls at 20 %%", n)
	}
}

func TestAServiceThatCannotBeActedOutIsRefused(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	if _, err := isotope.NewHandler(parse(t, "services: [{name: a}]"), "b", 1, logger); err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("got %v", err)
	}
	if _, err := isotope.NewHandler(parse(t, "services: [{name: a, script: [{call: a}]}]"), "a", 1, logger); err == nil || !strings.Contains(err.Error(), "for ever") {
		t.Errorf("got %v", err)
	}
	if _, err := isotope.Load("", ""); err == nil || !strings.Contains(err.Error(), "CONFIG_PATH") {
		t.Errorf("got %v", err)
	}
}

// A large body is read though nobody needs it: the connection would be lost otherwise.
func TestALargeRequestKeepsItsConnection(t *testing.T) {
	a := act(t, "services: [{name: a}]", "a")
	client := &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	reused := false
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}
	for range 2 {
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), http.MethodGet, "http://"+a+"/", strings.NewReader(strings.Repeat("x", 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	if !reused {
		t.Error("the second request took another connection")
	}
}
