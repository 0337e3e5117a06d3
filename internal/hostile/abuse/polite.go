package abuse

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"lateen.dev/lateen/internal/hostile/cases"
)

// Polite is a client that sends a request every 20 milliseconds, by turns on a kept and on a new connection.
type Polite struct {
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex
	times  []time.Duration
	failed []string
}

// Served is what a polite client got.
type Served struct {
	Answered int
	// Failed are the requests that were not answered by 200.
	Failed []string
	P50    time.Duration
	P99    time.Duration
}

// Begin starts a polite client.
func Begin(dial Dial) *Polite {
	p := &Polite{stop: make(chan struct{}), done: make(chan struct{})}
	by := func(context.Context, string, string) (net.Conn, error) { return dial() }
	kept := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: by}}
	fresh := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: by, DisableKeepAlives: true}}
	go func() {
		defer close(p.done)
		defer kept.CloseIdleConnections()
		for n := 0; ; n++ {
			select {
			case <-p.stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			p.ask([]*http.Client{kept, fresh}[n%2])
		}
	}()
	return p
}

func (p *Polite) ask(by *http.Client) {
	began := time.Now()
	answer, err := by.Get("http://" + cases.Host + "/polite")
	problem := ""
	switch {
	case err != nil:
		problem = err.Error()
	case answer.StatusCode != http.StatusOK:
		problem = answer.Status
	}
	if err == nil {
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if problem != "" {
		p.failed = append(p.failed, problem)
		return
	}
	p.times = append(p.times, time.Since(began))
}

// Lap returns what the client got since it began or since the last lap.
func (p *Polite) Lap() Served {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Served{Answered: len(p.times), Failed: p.failed}
	if n := len(p.times); n > 0 {
		slices.Sort(p.times)
		s.P50, s.P99 = p.times[n/2], p.times[min(n-1, n*99/100)]
	}
	p.times, p.failed = nil, nil
	return s
}

// End stops the client.
func (p *Polite) End() {
	close(p.stop)
	<-p.done
}
