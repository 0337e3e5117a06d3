package dataplanes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"lateen.dev/lateen/internal/lab/results"
)

// Balanced is a Bench whose proxies can be asked how their workers share the connections.
type Balanced interface {
	// Workers lists how many connections each worker has now, by direction: results.Outbound at the generator's proxy,
	// results.Inbound at the one on the other side. It may be called beside Exec. An Uncounted error says that nobody counts.
	Workers(ctx context.Context) (map[string][]float64, error)
}

// Uncounted is why a plane cannot say how its workers share connections.
type Uncounted string

// Error implements error.
func (u Uncounted) Error() string { return string(u) }

// workerThreads is the variable by which lateen's proxy and ztunnel learn how many workers to run.
const workerThreads = "ZTUNNEL_WORKER_THREADS"

// Workers implements Balanced by the gauge that lateen's proxies have.
func (b *LocalBench) Workers(ctx context.Context) (map[string][]float64, error) {
	switch b.plane.about.Kind {
	case results.KindNone:
		return nil, Uncounted("there are no proxies")
	case results.KindZtunnel:
		return nil, Uncounted("its connections are tasks, which any of its threads takes up in turn, and it counts none by thread")
	}
	status, err := b.client.Status(ctx)
	if err != nil {
		return nil, err
	}
	home := ""
	for _, p := range b.pods(status) {
		if b.generator(p.Namespace + "/" + p.Name + "/") {
			home = p.Node
		}
	}
	shares := map[string][]float64{}
	for _, n := range status.Nodes {
		page, err := b.client.ProxyMetrics(ctx, n.Name)
		if err != nil {
			return nil, fmt.Errorf("read the metrics of the proxy of %s: %w", n.Name, err)
		}
		workers, err := workerConnections(page)
		if err != nil {
			return nil, fmt.Errorf("read the metrics of the proxy of %s: %w", n.Name, err)
		}
		direction := results.Inbound
		if n.Name == home {
			direction = results.Outbound
		}
		keepBusier(shares, direction, workers)
	}
	return shares, nil
}

// keepBusier keeps the proxy with more connections where several have the same direction: balance is one proxy's own.
func keepBusier(shares map[string][]float64, direction string, workers []float64) {
	if sum(workers) >= sum(shares[direction]) {
		shares[direction] = workers
	}
}

func sum(list []float64) (total float64) {
	for _, v := range list {
		total += v
	}
	return total
}

// workerConnections reads the gauge of each worker, in the order of their numbers.
func workerConnections(page []byte) ([]float64, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return nil, err
	}
	type worker struct {
		number int
		has    float64
	}
	var list []worker
	for _, m := range families["lateen_worker_connections"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() != "worker" {
				continue
			}
			n, err := strconv.Atoi(l.GetValue())
			if err != nil {
				return nil, fmt.Errorf("worker %q is no number", l.GetValue())
			}
			list = append(list, worker{n, m.GetGauge().GetValue()})
		}
	}
	if len(list) == 0 {
		return nil, errors.New("there is no lateen_worker_connections")
	}
	slices.SortFunc(list, func(a, b worker) int { return a.number - b.number })
	var counts []float64
	for _, w := range list {
		counts = append(counts, w.has)
	}
	return counts, nil
}
