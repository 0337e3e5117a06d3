package rest

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// serve answers on an address of its own until the test ends.
func serve(t *testing.T, change func(*limits)) string {
	t.Helper()
	s, err := New(Options{Generator: fake(t), Results: t.TempDir(), Lab: t.TempDir(), MaxRuns: 4, MaxResults: 100, Version: "test", Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	change(&s.limits)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// dial opens a connection that gives up after the tests' patience.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestARefusedCallerIsAnsweredAndLetGoWhateverHeStillOwes(t *testing.T) {
	address := serve(t, func(l *limits) { l.request, l.idle = time.Hour, time.Hour })
	const owed = "\r\nContent-Length: 1000"
	for _, fields := range []string{"Host: evil.example", "Host: evil.example" + owed, "Host: " + address + "\r\nOrigin: http://evil.example" + owed, "Host: 0.0.0.0" + owed} {
		conn := dial(t, address)
		if _, err := io.WriteString(conn, "POST /api/runs HTTP/1.1\r\n"+fields+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		from := bufio.NewReader(conn)
		answer, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatalf("%q: no answer: %v", fields, err)
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusForbidden || !answer.Close || !strings.Contains(string(text), "forbidden") {
			t.Errorf("%q: %d %s %v", fields, answer.StatusCode, text, err)
		}
		if _, err := from.ReadByte(); err != io.EOF {
			t.Errorf("%q: the connection goes on: %v", fields, err)
		}
	}
}

// There is a single place: whoever came first and does nothing with it must lose it.
func TestNobodyKeepsAPlaceForNothing(t *testing.T) {
	const fields = "Host: localhost\r\n"
	for what, sent := range map[string]string{
		"silence":              "",
		"half a head":          "GET / HT",
		"a body that is owed":  "POST /api/runs HTTP/1.1\r\n" + fields + "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
		"one that nobody asks": "GET /api/runs HTTP/1.1\r\n" + fields + "Content-Length: 1000\r\n\r\n",
		"idleness":             "GET /api/runs HTTP/1.1\r\n" + fields + "\r\n",
		"answers never taken":  strings.Repeat("GET /page/app.js HTTP/1.1\r\n"+fields+"\r\n", 4000),
	} {
		t.Run(what, func(t *testing.T) {
			address := serve(t, func(l *limits) {
				*l = limits{head: time.Second, request: time.Second, answer: time.Second, idle: time.Second, connections: 1}
			})
			held := dial(t, address)
			go func() { _, _ = io.WriteString(held, sent) }() // fails when the server has enough of it
			client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
			eventually(t, "somebody else is answered", func() bool {
				answer, err := client.Get("http://" + address + "/api/version")
				if err != nil {
					return false
				}
				return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
			})
		})
	}
}

func TestTheWaitForARunOutlastsTheLimits(t *testing.T) {
	address := serve(t, func(l *limits) {
		l.head, l.request, l.answer, l.idle = 4*time.Second, 4*time.Second, 4*time.Second, 4*time.Second
	})
	const query = "/fortio/rest/run?url=http://127.0.0.1:4/&t=6s"
	if code, text := ask(t, "GET", "http://"+address+query, ""); code != http.StatusOK || !strings.Contains(text, "DurationHistogram") {
		t.Errorf("GET: %d %s", code, text)
	}
	if code, text := ask(t, "POST", "http://"+address+"/fortio/rest/run", `{"url": "http://127.0.0.1:4/", "t": "6s"}`, "Content-Type: application/json"); code != http.StatusOK || !strings.Contains(text, "DurationHistogram") {
		t.Errorf("POST: %d %s", code, text)
	}
}

func TestAnotherConnectionWaitsForAPlace(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := newRoom(listener, 1)
	for range 2 {
		dial(t, listener.Addr().String())
	}
	first, err := r.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	var left atomic.Bool
	second := make(chan bool, 1)
	go func() {
		conn, err := r.Accept()
		second <- err == nil && left.Load()
		if err == nil {
			_ = conn.Close()
		}
	}()
	time.Sleep(200 * time.Millisecond) // for an Accept that does not wait
	left.Store(true)
	r.left(first, http.StateIdle)
	r.left(first, http.StateClosed)
	if !<-second {
		t.Error("the second was accepted while the first was there, or never")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.Accept(); err == nil {
		t.Error("a connection after the end")
	}
}
