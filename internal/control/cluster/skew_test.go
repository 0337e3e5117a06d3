package cluster

import (
	"net/http"
	"testing"
	"time"
)

// answering answers with a date, after a while.
type answering struct {
	r    *skewRig
	date string
	took time.Duration
}

type skewRig struct{ now time.Time }

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	a.r.now = a.r.now.Add(a.took)
	return &http.Response{Header: http.Header{"Date": {a.date}}}, nil
}

func TestTheClockIsComparedWithTheAPIServers(t *testing.T) {
	for name, c := range map[string]struct {
		server, took, least, most time.Duration
		date                      string
	}{
		"alike":                {server: 0},
		"within the second":    {server: -900 * time.Millisecond},
		"a slow answer":        {server: 5 * time.Second, took: 10 * time.Second},
		"hours ahead":          {server: -3 * time.Hour, least: 3*time.Hour - time.Second, most: 3 * time.Hour},
		"hours behind":         {server: 3 * time.Hour, least: -3 * time.Hour, most: -3*time.Hour + time.Second},
		"no date is no skew":   {date: "yesterday"},
		"an early slow answer": {server: -time.Hour, took: time.Minute, least: time.Hour - time.Minute, most: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			r := &skewRig{now: start}
			s := &skew{now: func() time.Time { return r.now }}
			date := c.date
			if date == "" {
				date = start.Add(c.server).UTC().Format(http.TimeFormat)
			}
			if _, err := s.watch(answering{r, date, c.took}).RoundTrip(&http.Request{}); err != nil {
				t.Fatal(err)
			}
			if got := s.Ahead(); got < c.least || got > c.most {
				t.Errorf("ahead %s, want %s to %s", got, c.least, c.most)
			}
		})
	}
}
