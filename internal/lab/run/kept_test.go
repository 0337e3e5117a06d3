package run

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

// behind is the report on a service that carries a share of 1000 requests a second over four connections for five seconds; the
// generator begins all the others afterwards, as it does until their time limit.
func behind(share float64) string {
	return fmt.Sprintf(`{"format":"lateen-load/1","measured_s":5,"config":{"connections":4,"streams":1},
	"counts":{"intended":5000,"unsent":0,"ok":5000,"failed":0},"rates":{"wanted_qps":1000,"achieved_qps":%g},"errors":{},
	"response_time":{"count":5000,"avg":2000,"p50":2000,"p75":2000,"p90":2000,"p99":2000,"histogram":"x"},
	"service_time":{"count":5000,"avg":%g,"p50":10,"p90":10,"p99":10},"lateness":{"count":5000,"p99":0.001},"connect_time":{"count":4}}`, 1000*share, 4/share)
}

// A rate that is only kept after its time is not kept, however patient the generator is.
func TestAServiceThatIsTooSlowForTheRateIsAFailure(t *testing.T) {
	for _, share := range []float64{0.2, 0.4, 0.6, 0.95} {
		w, stage, o := newWorld(t, oneCell(""))
		o.Rounds = 1
		w.answer = func(plane string, _ int) (string, error) {
			if plane == "lateen" {
				return behind(share), nil
			}
			return answered(1), nil
		}
		doc, err := Run(context.Background(), stage, o)
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Join(doc.Scenarios[0].Failures, "\n")
		if want := fmt.Sprintf("a, lateen: the server fell behind: %.3g %% of requests started on schedule", 100*(share+4.0/5000)); !strings.Contains(said, want) || strings.Contains(said, "none") {
			t.Errorf("failures %q, want %q", said, want)
		}
	}
}

// What was under way when the time was over was begun in time: a service far away keeps its rate.
func TestWhatIsUnderWayAtTheEndWasBegunInTime(t *testing.T) {
	for _, tt := range []struct {
		name                     string
		achieved, service, limit float64
		failed                   uint64
		connections              int
		kept                     bool
	}{
		{"all answered", 1000, 0.2, 0.99, 0, 4, true},
		{"200 ms away", 960, 200, 0.99, 0, 256, true},
		{"200 ms away, and too few connections", 80, 200, 0.99, 0, 16, false},
		{"a twentieth fails at once", 950, 0.2, 0.99, 250, 4, true},
		{"the machine halts for 80 ms at the end", 984, 0.2, 0.99, 0, 4, true},
		{"a twentieth is late", 950, 4, 0.99, 0, 4, false},
	} {
		var r report
		if err := json.Unmarshal([]byte(answered(1)), &r); err != nil {
			t.Fatal(err)
		}
		r.Rates.Achieved, r.Service.Avg, r.Config.Connections, r.Counts.Failed = tt.achieved, tt.service, tt.connections, tt.failed
		e := environment(procstat.Shares{}, r)
		if got := e[results.EnvKept]; (got >= tt.limit) != tt.kept {
			t.Errorf("%s: kept %v", tt.name, got)
		}
		// A generator at its limit is why: then the block says nothing of the plane.
		r.Generator.CPUShare = 0.97
		if got := rejected(environment(procstat.Shares{}, r), results.Gates{OtherCPU: 1, Steal: 1, Lateness: 10, Achieved: tt.limit}, scenario.Cell{}, nil); (len(got) == 0) != tt.kept {
			t.Errorf("%s, the generator at its limit: rejected %q", tt.name, got)
		}
	}
}
