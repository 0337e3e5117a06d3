package local

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// A process that was replaced may drain for hours; what follows a node's connections follows the one in its place.
func TestAWatchOfConnectionsEndsWhenItsProxyIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, `{"event":"watching"}`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // it drains and goes on to tell
	})}
	go func() { _ = proxy.Serve(listener) }()
	defer proxy.Close()
	d := newDaemon(slog.New(slog.DiscardHandler), nil, "proxy", "", nil, nil, "", "")
	nodes := nodeList{{name: "n1", admin: path, proxy: d}}
	engine := httptest.NewServer(func() http.Handler {
		m := http.NewServeMux()
		m.HandleFunc("GET /{node}", nodes.serveConnections)
		return m
	}())
	defer engine.Close()
	response, err := http.Get(engine.URL + "/n1?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page := bufio.NewReader(response.Body)
	if line, err := page.ReadString('\n'); err != nil || line != "{\"event\":\"watching\"}\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if pid := listens(context.Background(), path); pid != os.Getpid() {
		t.Fatalf("process %d listens, want %d", pid, os.Getpid())
	}
	over := make(chan struct{})
	moves := d.moves()
	go func() { defer close(over); d.handOver(path, os.Getpid(), nil) }()
	select {
	case <-moves:
		t.Fatal("the watch ends while the old process has the socket: who asks again would hear it again")
	default:
	}
	listener.Close() // the file goes with it
	<-over
	if _, err := io.ReadAll(page); err != nil {
		t.Errorf("the watch ends with %v", err)
	}
}
