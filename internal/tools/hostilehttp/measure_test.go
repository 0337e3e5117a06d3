package main

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lateen.dev/lateen/internal/hostile/abuse"
)

// serve answers requests by a handler.
func serve(t *testing.T, by http.HandlerFunc) abuse.Dial {
	t.Helper()
	server := httptest.NewServer(by)
	t.Cleanup(server.Close)
	return func() (net.Conn, error) { return net.Dial("tcp", server.Listener.Addr().String()) }
}

func TestARoundCountsTheRequestThatIsOnItsWay(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	var requests, held atomic.Int64
	dial := serve(t, func(http.ResponseWriter, *http.Request) {
		if requests.Add(1) == 2 {
			began := time.Now()
			close(asked)
			<-release
			held.Store(int64(time.Since(began)))
		}
	})
	// The round ends while the server holds the second answer.
	served, err := (&beside{name: nobody}).round(dial, func() {
		<-asked
		time.AfterFunc(50*time.Millisecond, func() { close(release) })
	})
	if err != nil || len(served.Failed) > 0 {
		t.Fatalf("%v, %+v", err, served)
	}
	if p99 := served.Percentile(99); len(served.Times) < 2 || p99 < time.Duration(held.Load()) {
		t.Errorf("%d answers, p99 %v, and one was held for %v", len(served.Times), p99, time.Duration(held.Load()))
	}
}

func TestARoundEndsTheOtherClientsAndTellsTheirFailure(t *testing.T) {
	dial := serve(t, func(http.ResponseWriter, *http.Request) {})
	var began, ended atomic.Int64
	other := &beside{name: busy, run: func(stop <-chan struct{}) error {
		n := began.Add(1)
		<-stop
		ended.Add(1)
		if n == 1 {
			return errors.New("refused")
		}
		return nil
	}}
	_, err := other.round(dial, func() {})
	if err == nil || err.Error() != "refused" || ended.Load() != across {
		t.Errorf("%v, and %d of %d clients ended", err, ended.Load(), across)
	}
}

func TestOnlyAClientThatIsKnownIsPlayed(t *testing.T) {
	err := playAlone(options{play: "nobody knows it"}, strings.NewReader(""))
	if err == nil || !strings.Contains(err.Error(), "there is no client") {
		t.Error(err)
	}
}

func TestTheTableComparesWithTheClientThatUsesAllOfTheMachine(t *testing.T) {
	const ms = time.Millisecond
	rows := []*beside{
		{name: nobody, times: []time.Duration{2 * ms, ms}, p99: []time.Duration{2 * ms}},
		{name: full, times: []time.Duration{4 * ms, 2 * ms}, p99: []time.Duration{4 * ms}},
		{name: "pings", times: []time.Duration{ms, 10 * ms, 3 * ms, 2 * ms}, p99: []time.Duration{3 * ms, 10 * ms}},
	}
	_, got, _ := strings.Cut(table(rows), "|---|---|---|---|---|---|\n")
	want := `| nobody | 2 | 2.00 | 2.00 | 2.00–2.00 | 0.50 |
| a client that means no harm and uses all of the machine | 2 | 4.00 | 4.00 | 4.00–4.00 | 1.00 |
| pings | 4 | 3.00 | 10.00 | 3.00–10.00 | 2.50 |
`
	if got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	if columns := strings.Count(table(rows), "|"); columns != 7*5 {
		t.Errorf("%d bars", columns)
	}
}
