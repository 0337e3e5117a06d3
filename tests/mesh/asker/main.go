// Command asker asks an HTTP server the same thing again and again and says of each failure when and how it failed. Fault
// tests run it in a pod's network: to tell a refusal from silence, and to hammer what a policy denies.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

type options struct {
	target, path string
	keep         bool
	workers      int
	every        time.Duration // between two requests of a worker
	duration     time.Duration
	timeout      time.Duration
}

// outcome is what became of one request.
type outcome string

const (
	served  outcome = "served"  // status 200, whole
	partial outcome = "partial" // some of an answer, or another status: the server was reached all the same
	refused outcome = "refused" // ECONNREFUSED
	reset   outcome = "reset"   // the connection was reset
	closed  outcome = "closed"  // the connection ended before the first byte
	silence outcome = "timeout"
	other   outcome = "other"
)

// result is what a whole run came to.
type result struct {
	Counts      map[outcome]int `json:"counts"`
	Failed      int             `json:"failed"`
	Connections int             `json:"connections"`
	// Why has one message for each kind of failure.
	Why map[outcome]string `json:"why,omitempty"`
}

// ledger adds outcomes up. Failures are written out at once.
type ledger struct {
	mu        sync.Mutex
	result    result
	failures  *bufio.Writer
	failureFD io.Closer
}

func main() {
	var o options
	mode := flag.String("mode", "new", "new: a connection for each request; keep: one for all of a worker's")
	flag.StringVar(&o.target, "target", "", "address and port")
	flag.StringVar(&o.path, "path", "/?size=77", "path and query")
	flag.IntVar(&o.workers, "workers", 4, "how many ask at the same time")
	rate := flag.Float64("rate", 100, "requests a second, of all workers together")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "how long")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Second, "when a request counts as lost in silence")
	log := flag.String("failures", "", "file for one line per failure: milliseconds since 1970, kind, which request of its connection, message")
	flag.Parse()
	if o.target == "" || *mode != "new" && *mode != "keep" || o.workers < 1 || *rate <= 0 {
		flag.Usage()
		os.Exit(64)
	}
	o.keep = *mode == "keep"
	o.every = time.Duration(float64(o.workers) / *rate * float64(time.Second))
	l := &ledger{result: result{Counts: map[outcome]int{}, Why: map[outcome]string{}}}
	if *log != "" {
		f, err := os.Create(*log)
		if err != nil {
			fmt.Fprintln(os.Stderr, "asker:", err)
			os.Exit(1)
		}
		l.failures, l.failureFD = bufio.NewWriter(f), f
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	var all sync.WaitGroup
	for i := range o.workers {
		all.Go(func() { work(ctx, o, l, time.Duration(i)*o.every/time.Duration(o.workers)) })
	}
	all.Wait()
	if err := l.finish(); err != nil {
		fmt.Fprintln(os.Stderr, "asker:", err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(l.result)
}

// work asks until ctx ends. A request that was begun is finished.
func work(ctx context.Context, o options, l *ledger, delay time.Duration) {
	var conn net.Conn
	var reader *bufio.Reader
	asked := 0 // on this connection
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	next := time.Now().Add(delay)
	for {
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return
		}
		// A request that took long is not made up for by a burst.
		if next = next.Add(o.every); next.Before(time.Now()) {
			next = time.Now()
		}
		deadline := time.Now().Add(o.timeout)
		if conn == nil {
			var err error
			if conn, err = (&net.Dialer{Deadline: deadline}).Dial("tcp", o.target); err != nil {
				l.note(classify(err), 0, err)
				conn = nil
				continue
			}
			l.opened()
			reader, asked = bufio.NewReader(conn), 0
		}
		_ = conn.SetDeadline(deadline)
		asked++
		what, err := ask(conn, reader, o)
		l.note(what, asked, err)
		if what != served || !o.keep {
			conn.Close()
			conn = nil
		}
	}
}

func ask(conn net.Conn, reader *bufio.Reader, o options) (outcome, error) {
	ending := "close"
	if o.keep {
		ending = "keep-alive"
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: %s\r\n\r\n", o.path, o.target, ending); err != nil {
		return classify(err), err
	}
	if _, err := reader.Peek(1); err != nil {
		return classify(err), err
	}
	answer, err := http.ReadResponse(reader, nil)
	if err != nil {
		return partial, err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return partial, err
	}
	if answer.StatusCode != http.StatusOK {
		return partial, errors.New(answer.Status)
	}
	return served, nil
}

func classify(err error) outcome {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return reset
	case errors.Is(err, io.EOF):
		return closed
	case errors.As(err, &timeout) && timeout.Timeout():
		return silence
	}
	return other
}

func (l *ledger) opened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.result.Connections++
}

// note adds an outcome up; asked is which of its connection's requests it was, from 1, or 0 if there was no connection.
func (l *ledger) note(what outcome, asked int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.result.Counts[what]++
	if what == served {
		return
	}
	l.result.Failed++
	l.result.Why[what] = err.Error()
	if l.failures != nil {
		fmt.Fprintf(l.failures, "%d %s request %d of its connection: %s\n", time.Now().UnixMilli(), what, asked, err)
		_ = l.failures.Flush() // finish says if it cannot be written
	}
}

// finish closes the file of failures.
func (l *ledger) finish() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failures == nil {
		return nil
	}
	return errors.Join(l.failures.Flush(), l.failureFD.Close())
}
