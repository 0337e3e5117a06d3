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

// Polite is a client that sends one request at a time, by turns on a kept and on a new connection.
type Polite struct {
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex
	times  []time.Duration
	failed []string
}

// Served is what a polite client got.
type Served struct {
	// Failed are the requests that were not answered by 200.
	Failed []string
	// Times of the answered requests, the shortest first.
	Times []time.Duration
}

// Percentile is the time within which so many hundredths of the requests were answered. Without requests it is zero.
func (s Served) Percentile(hundredths int) time.Duration {
	if len(s.Times) == 0 {
		return 0
	}
	return s.Times[min(len(s.Times)-1, len(s.Times)*hundredths/100)]
}

// Begin starts a polite client, which pauses before each request.
func Begin(dial Dial, pause time.Duration) *Polite {
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
			case <-time.After(pause):
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
	slices.Sort(p.times)
	s := Served{Failed: p.failed, Times: p.times}
	p.times, p.failed = nil, nil
	return s
}

// End stops the client.
func (p *Polite) End() {
	close(p.stop)
	<-p.done
}
