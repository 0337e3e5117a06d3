package rest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// children are the processes that this one started and that are still there.
func children(t *testing.T) []string {
	t.Helper()
	var out []string
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("list the children: %v", err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		out = append(out, strings.Fields(string(text))...)
	}
	return out
}

const long = "/fortio/rest/run?url=http://127.0.0.1:4/&qps=10&t=10m&async=on&save=on"

// underWay waits until so many runs have said how they go: from then on they take an interrupt in order.
func underWay(t *testing.T, s *Server, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " runs are under way"), func() bool {
		said := 0
		for _, a := range s.runs.Active(0) {
			if a.Progress != nil {
				said++
			}
		}
		return said == n
	})
}

func TestRunsAreBounded(t *testing.T) {
	web, s := start(t, func(o *Options) { o.MaxRuns = 2 })
	for range 2 {
		if code, text := ask(t, "GET", web.URL+long, ""); code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
	}
	code, text := ask(t, "GET", web.URL+long, "")
	if e := decode[serverReply](t, text); code != http.StatusTooManyRequests || !e.Error || !strings.Contains(e.Exception, "2 are under way") {
		t.Errorf("a third: %d %s", code, text)
	}
	underWay(t, s, 2)
	ask(t, "GET", web.URL+"/fortio/rest/stop?runid=1&wait=on", "")
	if code, text := ask(t, "GET", web.URL+long, ""); code != http.StatusOK {
		t.Errorf("after one was stopped: %d %s", code, text)
	}
	if names, err := s.store.Names(); err != nil || len(names) != 1 || !strings.HasSuffix(names[0], "_1") {
		t.Errorf("stored: %v %v", names, err)
	}
}

func TestResultsAreBounded(t *testing.T) {
	web, _ := start(t, func(o *Options) { o.MaxResults = 2 })
	// One is stored, one will be: a third would be too many.
	ask(t, "GET", web.URL+"/fortio/rest/run?url=http://127.0.0.1:4/&qps=-1&n=3&save=on", "")
	ask(t, "GET", web.URL+long, "")
	code, text := ask(t, "GET", web.URL+long, "")
	if e := decode[serverReply](t, text); code != http.StatusBadRequest || !strings.Contains(e.Exception, "the limit is 2: delete some") {
		t.Errorf("a third: %d %s", code, text)
	}
	if code, _ := ask(t, "GET", web.URL+"/fortio/rest/run?url=http://127.0.0.1:4/&qps=-1&n=3", ""); code != http.StatusOK {
		t.Errorf("one that is not stored: %d", code)
	}
}

func TestAStopEndsTheChild(t *testing.T) {
	web, s := start(t, nil)
	ask(t, "GET", web.URL+long, "")
	underWay(t, s, 1)
	if n := len(children(t)); n != 1 {
		t.Errorf("%d children", n)
	}
	if _, text := ask(t, "GET", web.URL+"/api/active", ""); !strings.Contains(text, `"max_ms":2`) {
		t.Error(text)
	}
	_, text := ask(t, "GET", web.URL+"/fortio/rest/stop?runid=1&wait=on", "")
	if a := decode[asyncReply](t, text); a.Count != 1 || a.Message != "stopped" {
		t.Error(text)
	}
	if left := children(t); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAGeneratorThatDoesNotEndIsKilled(t *testing.T) {
	web, s := start(t, func(o *Options) { o.Generator.Patience = 100 * time.Millisecond })
	ask(t, "GET", web.URL+strings.Replace(long, "127.0.0.1:4", "stubborn.test", 1), "")
	underWay(t, s, 1)
	ask(t, "GET", web.URL+"/fortio/rest/stop?wait=on", "")
	if left := children(t); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestTheServersEndIsThatOfItsRunsWhichAreStored(t *testing.T) {
	dir := t.TempDir()
	s, err := New(Options{Generator: fake(t), Results: dir, Lab: dir, MaxRuns: 4, MaxResults: 9, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	base := "http://" + listener.Addr().String()
	ask(t, "GET", base+long, "")
	waited := make(chan string, 1)
	go func() {
		_, text := ask(t, "GET", base+"/fortio/rest/run?url=http://127.0.0.1:4/&qps=10&t=on&save=on&labels=waited", "")
		waited <- text
	}()
	underWay(t, s, 2)
	if n := len(children(t)); n != 2 {
		t.Errorf("%d children", n)
	}
	end()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the server does not end")
	}
	if left := children(t); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if text := <-waited; !strings.Contains(text, `"Labels": "waited"`) {
		t.Errorf("who waited got %s", text)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*.json")); err != nil || len(files) != 2 {
		t.Errorf("stored: %v %v", files, err)
	}
	if _, err := s.runs.Start(&Request{}); err == nil {
		t.Error("a run began after the end")
	}
}

func TestWhoLeavesARunThatIsNotStoredEndsIt(t *testing.T) {
	web, s := start(t, nil)
	for _, save := range []string{"off", "on"} {
		ctx, leave := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "GET", web.URL+"/fortio/rest/run?url=http://127.0.0.1:4/&qps=10&t=10m&save="+save, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			answer, err := http.DefaultClient.Do(r)
			if err == nil {
				answer.Body.Close()
			}
		}()
		eventually(t, "it runs", func() bool { return len(s.runs.Active(0)) == 1 })
		leave()
		if save == "off" {
			eventually(t, "it ends", func() bool { return len(s.runs.Active(0)) == 0 })
		}
	}
	time.Sleep(300 * time.Millisecond)
	if len(s.runs.Active(0)) != 1 {
		t.Error("a run that is to be stored ended with who began it")
	}
}

func TestAGeneratorThatFailsIsAnErrorWithItsReason(t *testing.T) {
	web, _ := start(t, nil)
	for target, want := range map[string]string{"http://nosuch.invalid/": "resolve nosuch.invalid: no such host", "http://silent.test/": "left no result: exit status 3"} {
		code, text := ask(t, "GET", web.URL+"/fortio/rest/run?n=1&url="+target, "")
		if e := decode[serverReply](t, text); code != http.StatusBadRequest || e.Message != "Aborting because of error" || !strings.Contains(e.Exception, want) {
			t.Errorf("%s: %d %s", target, code, text)
		}
	}
	ask(t, "GET", web.URL+"/fortio/rest/run?n=1&async=on&url=http://nosuch.invalid/", "")
	eventually(t, "the failure is told", func() bool {
		_, text := ask(t, "GET", web.URL+"/api/active", "")
		return strings.Count(text, "no such host") == 2 // with the one above
	})
}

func TestAWrongCommandLineIsToldByItsReason(t *testing.T) {
	said := "error: unexpected argument '--http9' found\n\nUsage: lateen-load run [OPTIONS]\n\nFor more information, try '--help'.\n"
	if got := follow(strings.NewReader(said), nil); got != "unexpected argument '--http9' found" {
		t.Error(got)
	}
	var seen []Progress
	said = "{\"t_s\": 1}\n{broken\nnote: x\n" + strings.Repeat("y", 3*maxLine) + "\nlateen-load: the end"
	if got := follow(strings.NewReader(said), func(p Progress) { seen = append(seen, p) }); got != "the end" || len(seen) != 1 || seen[0].Seconds != 1 {
		t.Error(got, seen)
	}
}

func TestRequestsThatOnlyLookDoNotBeginARun(t *testing.T) {
	web, s := start(t, nil)
	for _, method := range []string{"HEAD", "DELETE", "OPTIONS"} {
		if code, _ := ask(t, method, web.URL+long, ""); code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, code)
		}
	}
	if n := len(s.runs.Active(0)); n != 0 {
		t.Errorf("%d runs", n)
	}
	for _, id := range []string{"x", "-1", "1.5", "99999999999999999999"} {
		for _, act := range []string{"stop", "status"} {
			code, text := ask(t, "GET", fmt.Sprintf("%s/fortio/rest/%s?runid=%s", web.URL, act, id), "")
			if code != http.StatusBadRequest || !decode[serverReply](t, text).Error {
				t.Errorf("%s of %s: %d %s", act, id, code, text)
			}
		}
	}
	if code, text := ask(t, "POST", web.URL+"/fortio/rest/run", strings.Repeat("x", MaxBody+1)); code != http.StatusBadRequest || !strings.Contains(text, "body read error") {
		t.Errorf("a body without bounds: %d %.200s", code, text)
	}
}
