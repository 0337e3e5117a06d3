// Command echo is the application behind the tests' Services: it says who asked and which pod answered, counts, and logs
// every connection, so that a test can tell where a request arrived and from which address.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	listen := flag.String("http", ":8080", "address of the HTTP server")
	lines := flag.String("tcp", ":9000", "address of the TCP server, which answers every line with the same line")
	drain := flag.Duration("drain", 0, "how long to go on serving after SIGTERM, asking clients for new connections elsewhere")
	flag.Parse()
	terminated, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	s := &server{log: log, node: os.Getenv("NODE_NAME")}
	s.host, _ = os.Hostname()
	failed := make(chan error)
	go func() { failed <- s.serveLines(*lines) }()
	h := &http.Server{Addr: *listen, Handler: s, ConnState: s.observe, ReadHeaderTimeout: time.Minute}
	go func() { failed <- h.ListenAndServe() }()
	select {
	case err := <-failed:
		log.Error("cannot serve", "error", err)
		os.Exit(1)
	case <-terminated.Done():
	}
	// Everybody learns of a pod's end a little after it began: until then clients still come.
	h.SetKeepAlivesEnabled(false)
	time.Sleep(*drain)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	h.Shutdown(ctx)
}

type server struct {
	log        *slog.Logger
	host, node string

	requests, connections, open atomic.Int64
}

// ServeHTTP answers everything alike but /stats (the counts so far, not counting itself) and /ready (never counted). The
// query may ask for a status (status=503), a pause before the answer (delay=100ms) and a size of the body (size=1000).
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/ready":
		fmt.Fprintln(w, "ready")
		return
	case "/stats":
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]int64{"requests": s.requests.Load(), "connections": s.connections.Load(), "open": s.open.Load()})
		return
	}
	s.requests.Add(1)
	q := r.URL.Query()
	if d, err := time.ParseDuration(q.Get("delay")); err == nil {
		time.Sleep(d)
	}
	if code, err := strconv.Atoi(q.Get("status")); err == nil && code >= 200 && code < 600 {
		w.WriteHeader(code)
	}
	fmt.Fprintf(w, "host=%s node=%s from=%s method=%s path=%s\n", s.host, s.node, r.RemoteAddr, r.Method, r.URL.Path)
	if n, err := strconv.Atoi(q.Get("size")); err == nil && n > 0 && n <= 16<<20 {
		fmt.Fprintln(w, strings.Repeat("x", n))
	}
}

// observe counts and logs the connections of the HTTP server.
func (s *server) observe(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.opened(c, "http")
	case http.StateClosed, http.StateHijacked:
		s.open.Add(-1)
	}
}

func (s *server) opened(c net.Conn, protocol string) {
	s.connections.Add(1)
	s.open.Add(1)
	s.log.Info("connection", "protocol", protocol, "from", c.RemoteAddr().String(), "to", c.LocalAddr().String())
}

func (s *server) serveLines(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		s.opened(c, "tcp")
		go func() {
			defer s.open.Add(-1)
			defer c.Close()
			for in := bufio.NewScanner(c); in.Scan(); {
				if _, err := fmt.Fprintln(c, in.Text()); err != nil {
					return
				}
			}
		}()
	}
}
