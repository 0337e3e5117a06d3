package run

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
	"lateen.dev/lateen/internal/lab/stats"
)

// command is the generator's command line for a load.
func command(l scenario.Load, seconds, warmup float64, seed uint64) []string {
	span := func(seconds float64) string {
		return strconv.FormatInt(time.Duration(seconds*float64(time.Second)).Milliseconds(), 10) + "ms"
	}
	c := []string{
		"lateen-load", "run", "--url", l.URL, "--qps", strconv.FormatFloat(*l.QPS, 'f', -1, 64), "--connections", strconv.Itoa(l.Connections),
		"--duration", span(seconds), "--warmup", span(warmup), "--seed", strconv.FormatUint(seed, 10),
		"--all-percentiles", "--json", "-", // a gate is P99 of the lateness, however short the block; what is told is decided here
	}
	if l.Arrivals != "" {
		c = append(c, "--arrivals", l.Arrivals)
	}
	if l.Keepalive != nil && !*l.Keepalive {
		c = append(c, "--no-keepalive")
	}
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		c = append(c, "--header", name+":"+l.Headers[name])
	}
	return append(c, l.Flags...)
}

// described is a load as the report has it.
func described(l scenario.Load, seconds, warmup float64) results.Load {
	r := results.Load{
		URL: l.URL, Protocol: "http/1.1", QPS: *l.QPS, Connections: l.Connections, Keepalive: l.Keepalive == nil || *l.Keepalive,
		Arrivals: l.Arrivals, Seconds: seconds, Warmup: warmup, Command: strings.Join(command(l, seconds, warmup, 1), " "),
	}
	if r.Arrivals == "" {
		r.Arrivals = "uniform"
	}
	switch scheme, _, _ := strings.Cut(l.URL, "://"); scheme {
	case "grpc", "grpcs":
		r.Protocol = "grpc"
	case "tcp":
		r.Protocol = "tcp"
	case "https":
		if http2(l) {
			r.Protocol = "h2" // if the server agrees
		}
	default:
		if http2(l) {
			r.Protocol = "h2c"
		}
	}
	return r
}

func http2(l scenario.Load) bool { return slices.Contains(l.Flags, "--http2") }

// times is a histogram of the generator's report, in milliseconds.
type times struct {
	Count     uint64  `json:"count"`
	Avg       float64 `json:"avg"`
	P50       float64 `json:"p50"`
	P75       float64 `json:"p75"`
	P90       float64 `json:"p90"`
	P99       float64 `json:"p99"`
	P999      float64 `json:"p99.9"`
	Histogram string  `json:"histogram"`
}

// report is what is used of the generator's report.
type report struct {
	Measured float64 `json:"measured_s"`
	Config   struct {
		Connections int `json:"connections"`
		Streams     int `json:"streams"`
	} `json:"config"`
	Counts struct {
		Intended uint64 `json:"intended"`
		Unsent   uint64 `json:"unsent"`
		OK       uint64 `json:"ok"`
		Failed   uint64 `json:"failed"`
		WarmupOK uint64 `json:"warmup_ok"`
		Content  uint64 `json:"content_bytes"`
	} `json:"counts"`
	Rates struct {
		Wanted   float64 `json:"wanted_qps"`
		Achieved float64 `json:"achieved_qps"`
	} `json:"rates"`
	Errors       map[string]uint64 `json:"errors"`
	WarmupErrors map[string]uint64 `json:"warmup_errors"`
	Response     times             `json:"response_time"`
	Service      times             `json:"service_time"`
	Lateness     times             `json:"lateness"`
	Connect      times             `json:"connect_time"`
	Interrupted  bool              `json:"interrupted"`
	Generator    struct {
		CPUShare  float64 `json:"cpu_share"`
		WaitShare float64 `json:"wait_share"`
	} `json:"generator"`
}

// requests counts every request that cost somebody something, warm-up included.
func (r report) requests() uint64 {
	n := r.Counts.OK + r.Counts.WarmupOK + r.Counts.Failed
	for _, count := range r.WarmupErrors {
		n += count
	}
	return n
}

// failures are the failed requests by kind, in words.
func (r report) failures() string {
	var parts []string
	for _, counts := range []map[string]uint64{r.Errors, r.WarmupErrors} {
		for _, kind := range slices.Sorted(maps.Keys(counts)) {
			parts = append(parts, fmt.Sprintf("%d %s", counts[kind], kind))
		}
	}
	return strings.Join(parts, ", ")
}

// metrics are the report's numbers by their names in the results; a percentile that rests on too few samples is left out.
func (r report) metrics() map[string]float64 {
	m := map[string]float64{results.Requests: float64(r.Counts.OK)}
	if total := r.Counts.OK + r.Counts.Failed; total > 0 {
		m[results.FailedShare] = float64(r.Counts.Failed) / float64(total)
	}
	if r.Measured > 0 {
		m[results.QPS] = r.Rates.Achieved
		m[results.MBPerSecond] = float64(r.Counts.Content) / r.Measured / 1e6
	}
	if r.Response.Count > 0 {
		m[results.ResponseAvg] = r.Response.Avg
	}
	for _, p := range []struct {
		name  string
		of    times
		q     float64
		value float64
	}{
		{results.ResponseP50, r.Response, .5, r.Response.P50},
		{results.ResponseP75, r.Response, .75, r.Response.P75},
		{results.ResponseP90, r.Response, .9, r.Response.P90},
		{results.ResponseP99, r.Response, .99, r.Response.P99},
		{results.ResponseP999, r.Response, .999, r.Response.P999},
		{results.ServiceP50, r.Service, .5, r.Service.P50},
		{results.ServiceP90, r.Service, .9, r.Service.P90},
		{results.ServiceP99, r.Service, .99, r.Service.P99},
		{results.ConnectP50, r.Connect, .5, r.Connect.P50},
		{results.ConnectP99, r.Connect, .99, r.Connect.P99},
	} {
		if stats.Printable(p.q, p.of.Count) {
			m[p.name] = p.value
		}
	}
	return m
}
