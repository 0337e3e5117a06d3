package report

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/stats"
)

// effect is what a plane does to no mesh in the sample: everything known beforehand.
type effect struct {
	latency, cpuProxies, reads, acks, p50 float64
}

// sample is a run with known effects: lateen costs 1.3 of the latency and 60 µs of its proxies, ztunnel 1.6 and 130 µs; the
// stalled server makes requests without a mesh and with ztunnel last 42 ms and with lateen 0.4 ms.
func sample(t testing.TB) *results.Results {
	t.Helper()
	var r results.Results
	if err := json.Unmarshal(sampleText(), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// sampleText is made once: its histograms take a second.
var sampleText = sync.OnceValue(func() []byte {
	text, err := json.Marshal(makeSample())
	if err != nil {
		panic(err)
	}
	return text
})

func makeSample() *results.Results {
	started := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	r := &results.Results{
		Format: results.Format, Name: "sample", Command: []string{"lateen", "lab", "run", "twopods-conn", "details-nagle", "--peer", "ztunnel=/opt/z tunnel"},
		Started: started, Ended: started.Add(42 * time.Minute), Gates: results.DefaultGates,
		Machine: results.Machine{Kernel: "6.18.44", CPU: "AMD EPYC", Cores: 2, MemoryMiB: 23552, CongestionControl: "cubic", Accounting: "CPU clocks of the processes; user and system by ticks", Lateen: "0.3.0"},
		Planes: []results.Plane{
			{Name: "none", Kind: results.KindNone}, {Name: "none-2", Kind: results.KindNone},
			{Name: "lateen", Kind: results.KindLateen, Version: "0.3.0", Settings: map[string]string{"workers": "1"}},
			{Name: "ztunnel", Kind: results.KindZtunnel, Path: "/opt/z tunnel", Version: "1.31", SHA256: "0123456789abcdef0123456789abcdef"},
			{Name: "cilium", Kind: results.KindCilium, NotRun: "needs a cluster and a kernel with WireGuard"},
		},
	}
	connections := results.Outcome{
		Scenario: "twopods-conn", Title: "Two pods, by connections", Answers: []string{"istio-1.18"},
		NotValid: []string{"absolute times; the published ones come from larger machines"},
	}
	random := rand.New(rand.NewPCG(7, 11))
	effects := map[string]effect{"none": {latency: 1}, "none-2": {latency: 1}, "lateen": {latency: 1.3, cpuProxies: 60}, "ztunnel": {latency: 1.6, cpuProxies: 130}}
	metrics := []string{results.ResponseP50, results.ResponseAvg, results.ResponseP90, cpuTotal(results.RoleAll)}
	for _, n := range []int{2, 4, 16, 64} {
		c := results.Cell{
			Name: fmt.Sprint(n, " connections"), Params: map[string]string{"connections": fmt.Sprint(n)},
			Load: results.Load{URL: "http://echo:8080/?size=1024", Protocol: "http/1.1", QPS: 1000, Connections: n, Keepalive: true, Arrivals: "uniform", Seconds: 10, Command: fmt.Sprintf("lateen-load run --url http://echo:8080/?size=1024 --connections %d", n)},
		}
		for round := 1; round <= 8; round++ {
			machine := 1 + 0.3*random.Float64()
			for _, p := range r.Planes[:4] {
				e := effects[p.Name]
				noise := func() float64 { return 1 + 0.02*(random.Float64()-0.5) }
				mid := 0.1 * math.Pow(float64(n), 0.15) * machine * e.latency * noise()
				b := results.Block{Plane: p.Name, Round: round, Seconds: 10, Started: started, Histogram: spread(random, mid, 1500), Metrics: map[string]float64{
					results.ResponseAvg: 1.1 * mid, results.ResponseP50: mid, results.ResponseP75: 1.2 * mid, results.ResponseP90: 1.4 * mid, results.QPS: 1000, results.Requests: 1500,
					cpuTotal(results.RoleGenerator): 30 * noise(), cpuTotal(results.RoleApp): 35 * noise(), results.SwitchesPerRequest(results.RoleApp): 1.5 * noise(),
				}}
				b.Metrics[cpuTotal(results.RoleAll)] = b.Metrics[cpuTotal(results.RoleGenerator)] + b.Metrics[cpuTotal(results.RoleApp)]
				if e.cpuProxies > 0 {
					own := e.cpuProxies * noise()
					b.Metrics[cpuTotal(results.RoleProxies)] = own
					b.Metrics[results.CPUPerRequest(results.RoleProxies, "system")] = 0.8 * own
					b.Metrics[results.CPUPerRequest(results.RoleProxies, "user")] = 0.2 * own
					b.Metrics[results.SwitchesPerRequest(results.RoleProxies)] = e.cpuProxies / 40
					b.Metrics[results.PSS(results.RoleProxies)] = 20 * noise()
					b.Metrics[cpuTotal(results.RoleAll)] += own
				}
				if n == 16 && p.Name == "ztunnel" && round%3 == 0 {
					b.Rejected = []string{"share stolen by the hypervisor 0.04, at most 0.01"}
				}
				c.Blocks = append(c.Blocks, b)
			}
		}
		judge(&c, metrics)
		connections.Cells = append(connections.Cells, c)
	}
	nagle := results.Outcome{Scenario: "details-nagle", Title: "A server that writes twice", Answers: []string{"ambient-1"}}
	stall := map[string]effect{"none": {reads: 2, acks: 0.99, p50: 42}, "none-2": {reads: 2, acks: 0.99, p50: 42}, "lateen": {reads: 1, acks: 0, p50: 0.4}, "ztunnel": {reads: 1, acks: 0.98, p50: 43}}
	load := results.Load{URL: "http://details:9080/details/0", Protocol: "http/1.1", QPS: 133.3, Connections: 4, Keepalive: true, Arrivals: "uniform", Seconds: 5, Command: "lateen-load run --url http://details:9080/details/0"}
	timed := results.Cell{Name: "without NODELAY, 30 ms", Load: load}
	counted := results.Cell{Name: "without NODELAY, 30 ms, counted", Load: load, Untimed: true}
	counted.Load.QPS = 100
	for round := 1; round <= 8; round++ {
		for _, p := range r.Planes[:4] {
			e := stall[p.Name]
			mid := e.p50 * (1 + 0.01*random.Float64())
			timed.Blocks = append(timed.Blocks, results.Block{Plane: p.Name, Round: round, Histogram: spread(random, mid, 400), Metrics: map[string]float64{
				results.ServiceP50: mid, results.ResponseP50: mid, results.ResponseAvg: mid, results.QPS: 133, results.DelayedACKsPerRequest(results.RoleGenerator): e.acks, results.DelayedACKsPerRequest(results.RoleApp): 0,
			}})
			if round == 1 {
				b := results.Block{Plane: p.Name, Round: 1, Metrics: map[string]float64{
					results.ResponseP999: 999, // a time under strace, which nobody may see
					results.SyscallsPerRequest(results.RoleGenerator, results.CallsReads): e.reads, results.SyscallsPerRequest(results.RoleGenerator, results.CallsAll): 2 + e.reads,
					results.SyscallsPerRequest(results.RoleApp, results.CallsWrites): 2, results.SyscallsPerRequest(results.RoleApp, results.CallsAll): 4,
				}}
				if p.Kind != results.KindNone {
					b.Metrics[results.SyscallsPerRequest(results.RoleProxies, results.CallsReads)] = 4
					b.Metrics[results.SyscallsPerRequest(results.RoleProxies, results.CallsWrites)] = 4.1
					b.Metrics[results.SyscallsPerRequest(results.RoleProxies, results.CallsAll)] = 14.5
				}
				counted.Blocks = append(counted.Blocks, b)
			}
		}
	}
	judge(&timed, []string{results.ServiceP50})
	nagle.Cells = []results.Cell{timed, counted}
	nagle.Facts = []results.Fact{{Plane: "lateen", Name: "first encrypted request", Value: 3.2, Unit: "s", Note: "from lateen up"}}
	r.Scenarios = []results.Outcome{connections, nagle}
	return r
}

func judge(c *results.Cell, metrics []string) {
	witness := &stats.Witness{Baseline: "none", Plane: "none-2"}
	c.Verdicts = stats.Judge(*c, "none", []string{"lateen", "ztunnel", "none-2"}, metrics, witness)
	c.Verdicts = append(c.Verdicts, stats.Judge(*c, "ztunnel", []string{"lateen"}, metrics, witness)...)
}

// spread is a histogram of n response times around a median, with a tail.
func spread(random *rand.Rand, mid float64, n int) string {
	values := make([]float64, n)
	for i := range values {
		values[i] = mid * math.Exp(0.25*random.NormFloat64()+0.5*math.Max(0, random.NormFloat64()-2))
	}
	return encoded(values...)
}
