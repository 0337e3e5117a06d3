package cluster

import (
	"net/http"
	"sync/atomic"
	"time"
)

// skew is how far this replica's clock is ahead of the API server's, which is the one that all replicas share: every answer says what the time is
// there, to the second.
type skew struct {
	now   func() time.Time
	ahead atomic.Int64
}

// Ahead is what the last answer told.
func (s *skew) Ahead() time.Duration { return time.Duration(s.ahead.Load()) }

// watch has a transport's answers looked at.
func (s *skew) watch(next http.RoundTripper) http.RoundTripper { return dated{next, s} }

type dated struct {
	next http.RoundTripper
	skew *skew
}

// RoundTrip implements http.RoundTripper. The answer's time is between that of the question and that of its coming: an answer that was long
// under way tells of no skew.
func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := d.skew.now()
	answer, err := d.next.RoundTrip(r)
	if err != nil {
		return answer, err
	}
	if at, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		came := d.skew.now()
		switch {
		case at.After(came):
			d.skew.ahead.Store(int64(came.Sub(at)))
		case at.Add(time.Second).Before(asked): // the header's second has begun
			d.skew.ahead.Store(int64(asked.Sub(at.Add(time.Second))))
		default:
			d.skew.ahead.Store(0)
		}
	}
	return answer, nil
}

// WrappedRoundTripper lets client-go find what is below.
func (d dated) WrappedRoundTripper() http.RoundTripper { return d.next }
