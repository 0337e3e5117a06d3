package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/stats"
)

// balance asks a plane in the middle of the measured time how its workers share the connections, if the scenario wants to know.
// The function that it returns waits for the answer.
func (s *session) balance(ctx context.Context, on running) func() (map[string]float64, error) {
	plane, can := on.Bench.(dataplanes.Balanced)
	if s.workers == 0 || !can {
		return func() (map[string]float64, error) { return nil, nil }
	}
	var shares map[string][]float64
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Sleep(ctx, time.Duration((s.warmup+s.seconds/2)*float64(time.Second)))
		if ctx.Err() == nil {
			shares, err = plane.Workers(ctx)
		}
	}()
	return func() (map[string]float64, error) {
		<-done
		if why := dataplanes.Uncounted(""); errors.As(err, &why) {
			note := fmt.Sprintf("%s: how its workers share connections is not known: %s", on.about.Name, why)
			if on.about.Kind != results.KindNone && !slices.Contains(s.uncounted, note) {
				s.uncounted = append(s.uncounted, note)
			}
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: ask for the workers' connections: %w", on.about.Name, err)
		}
		return shared(shares), nil
	}
}

// shared are the metrics of what each worker had; of a proxy without a connection there are none.
func shared(shares map[string][]float64) map[string]float64 {
	m := map[string]float64{}
	for direction, counts := range shares {
		total := 0.0
		for _, n := range counts {
			total += n
		}
		if total == 0 {
			continue
		}
		m[results.WorkerThreads(direction)] = float64(len(counts))
		m[results.WorkerConnections(direction)] = total
		m[results.WorkerImbalance(direction)] = slices.Max(counts) / (total / float64(len(counts)))
		m[results.WorkerChiSquare(direction)], _ = stats.ChiSquare(counts)
	}
	return m
}
