package run

import (
	"context"
	"fmt"
	"time"

	"lateen.dev/lateen/internal/lab/dataplanes"
)

// recordPoll is how often a log is looked at whose last lines are awaited.
const recordPoll = 200 * time.Millisecond

// unrecorded says what a plane has left out of the records of a block's requests; empty if it has left out nothing, or keeps none. counted is
// by how much its counters rose. A proxy that counts or logs less than another does less work for a request.
func (s *session) unrecorded(ctx context.Context, on running, since time.Time, requests, counted uint64) (string, error) {
	recorder, ok := on.Bench.(dataplanes.Recorder)
	if !ok {
		return "", nil
	}
	if counted < requests {
		return fmt.Sprintf("the proxy counted %d of %d requests", counted, requests), nil
	}
	for waited := time.Duration(0); ; waited += recordPoll {
		lines, err := recorder.Logged(ctx, since)
		if err != nil || lines >= requests {
			return "", err
		}
		if waited >= dataplanes.FlushTime {
			return fmt.Sprintf("the proxy logged %d of %d requests", lines, requests), nil
		}
		s.Sleep(ctx, recordPoll)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
	}
}
