package dataplanes

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

func TestWorkersAreReadInTheOrderOfTheirNumbers(t *testing.T) {
	got, err := workerConnections([]byte("# TYPE lateen_worker_connections gauge\nlateen_worker_connections{worker=\"10\"} 7\n" +
		"lateen_worker_connections{worker=\"2\"} 5\nlateen_worker_connections{worker=\"0\"} 0\n"))
	if err != nil || !slices.Equal(got, []float64{0, 5, 7}) {
		t.Errorf("got %v, %v", got, err)
	}
	for page, want := range map[string]string{
		"": "there is no lateen_worker_connections",
		"# TYPE lateen_worker_connections gauge\nlateen_worker_connections{worker=\"x\"} 7\n": `worker "x"`,
		"{": "",
	} {
		if got, err := workerConnections([]byte(page)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, error %v does not say %q", page, got, err, want)
		}
	}
}

func TestOfSeveralProxiesTheBusiestOneCounts(t *testing.T) {
	shares := map[string][]float64{}
	for _, workers := range [][]float64{{0, 0}, {3, 1}, {2, 1}} {
		keepBusier(shares, results.Inbound, workers)
	}
	if !slices.Equal(shares[results.Inbound], []float64{3, 1}) {
		t.Errorf("got %v", shares)
	}
}

func TestPlanesThatCountNoWorkersSayWhy(t *testing.T) {
	for kind, want := range map[string]string{results.KindNone: "no proxies", results.KindZtunnel: "counts none by thread"} {
		b := &LocalBench{plane: &Local{about: results.Plane{Kind: kind}}}
		_, err := b.Workers(t.Context())
		if why := Uncounted(""); !errors.As(err, &why) || !strings.Contains(string(why), want) {
			t.Errorf("%s: %v does not say %q", kind, err, want)
		}
	}
}
