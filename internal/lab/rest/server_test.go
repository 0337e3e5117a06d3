package rest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const patience = 30 * time.Second

// start serves the interface with the fake generator; change alters the options.
func start(t *testing.T, change func(*Options)) (*httptest.Server, *Server) {
	t.Helper()
	o := Options{Generator: fake(t), Results: t.TempDir(), Lab: t.TempDir(), MaxRuns: 4, MaxResults: 100, Version: "test", Now: time.Now}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(func() {
		s.runs.Close()
		web.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return web, s
}

// ask returns the status and the answer of a request.
func ask(t *testing.T, method, url, body string, fields ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %v: %s", patience, what)
}

// A session recorded with Fortio's own server gets the same answers here, as far as what was asked determines them.
func TestASessionRecordedWithFortioPassesUnchanged(t *testing.T) {
	web, _ := start(t, nil)
	want, err := os.ReadFile("testdata/fortio/expected.txt")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "testdata/fortio/script.sh", web.URL, "http://127.0.0.1:4")
	var problems strings.Builder
	cmd.Stderr = &problems
	got, err := cmd.Output()
	if err != nil {
		t.Fatalf("script.sh: %v %s", err, problems.String())
	}
	wanted, found := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
	if len(wanted) != len(found) {
		t.Errorf("%d lines, Fortio has %d", len(found), len(wanted))
	}
	for i := range min(len(wanted), len(found)) {
		if wanted[i] != found[i] {
			t.Errorf("line %d:\n got %s\nwant %s", i+1, found[i], wanted[i])
		}
	}
}
