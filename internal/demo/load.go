package demo

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Load is a request to the load generator, run inside the client's pod.
type Load struct {
	URL         string
	QPS         int
	Connections int
	Duration    time.Duration
	Warmup      time.Duration
	// Fresh opens a connection for every request.
	Fresh bool
	Label string
}

// Command is the generator's command line.
func (l Load) Command() []string {
	command := []string{
		"lateen-load", "run", "--url", l.URL, "--qps", fmt.Sprint(l.QPS), "--connections", fmt.Sprint(l.Connections),
		"--duration", l.Duration.String(), "--warmup", l.Warmup.String(), "--json", "-",
		"--all-percentiles", // the table says how little a P99 rests on
		"--initial-errors",  // a policy that refuses every connection is a result
	}
	if l.Fresh {
		command = append(command, "--no-keepalive")
	}
	if l.Label != "" {
		command = append(command, "--name", l.Label)
	}
	return command
}

// Latency summarises response times from the intended start of each request, in milliseconds.
type Latency struct {
	Count uint64  `json:"count"`
	Avg   float64 `json:"avg"`
	P50   float64 `json:"p50"`
	P75   float64 `json:"p75"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// LoadResult is what the demonstration uses of the generator's JSON.
type LoadResult struct {
	Counts struct {
		OK       uint64 `json:"ok"`
		Failed   uint64 `json:"failed"`
		WarmupOK uint64 `json:"warmup_ok"`
		Opened   uint64 `json:"connections_opened"`
	} `json:"counts"`
	Rates struct {
		Wanted   float64 `json:"wanted_qps"`
		Achieved float64 `json:"achieved_qps"`
	} `json:"rates"`
	Errors       map[string]uint64 `json:"errors,omitempty"`
	WarmupErrors map[string]uint64 `json:"warmup_errors,omitempty"`
	ResponseTime Latency           `json:"response_time"`
	Lateness     Latency           `json:"lateness"`
	Interrupted  bool              `json:"interrupted"`
	Generator    struct {
		UserMicros   float64 `json:"user_us_per_request"`
		SystemMicros float64 `json:"system_us_per_request"`
	} `json:"generator"`
}

// Failures counts the failed requests, warm-up included.
func (r LoadResult) Failures() uint64 {
	n := r.Counts.Failed
	for _, count := range r.WarmupErrors {
		n += count
	}
	return n
}

// Requests counts every request that cost somebody something, warm-up included.
func (r LoadResult) Requests() uint64 { return r.Counts.OK + r.Counts.WarmupOK + r.Failures() }

// GeneratorNanos is the CPU time of the generator itself.
func (r LoadResult) GeneratorNanos() float64 {
	return (r.Generator.UserMicros + r.Generator.SystemMicros) * 1e3 * float64(r.Requests())
}

// ErrorText lists the failures by kind.
func (r LoadResult) ErrorText() string {
	kinds := map[string]uint64{}
	for _, counts := range []map[string]uint64{r.Errors, r.WarmupErrors} {
		for kind, n := range counts {
			kinds[kind] += n
		}
	}
	var parts []string
	for kind, n := range kinds {
		parts = append(parts, fmt.Sprintf("%d %s", n, kind))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
