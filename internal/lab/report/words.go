package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/stats"
)

// none stands where a number was not measured or rests on too little.
const none = "–"

var roleNames = map[string]string{
	results.RoleGenerator: "generator",
	results.RoleApp:       "application",
	results.RoleProxies:   "proxies",
	results.RoleWaypoint:  "the waypoint alone",
	results.RoleAgent:     "node agent",
	results.RoleControl:   "control plane",
	results.RoleAll:       "whole path",
}

func roleName(role string) string {
	if name, ok := roleNames[role]; ok {
		return name
	}
	return role
}

var metricNames = map[string]string{
	results.ResponseAvg:  "avg",
	results.ResponseP50:  "P50",
	results.ResponseP75:  "P75",
	results.ResponseP90:  "P90",
	results.ResponseP99:  "P99",
	results.ResponseP999: "P99.9",
	results.ServiceP50:   "service time P50, ms",
	results.ServiceP90:   "service time P90, ms",
	results.ServiceP99:   "service time P99, ms",
	results.ConnectP50:   "connection set-up P50, ms",
	results.ConnectP99:   "connection set-up P99, ms",
	results.QPS:          "requests/s",
	results.Requests:     "requests",
	results.FailedShare:  "failed, share of requests",
	results.MBPerSecond:  "MB/s",

	results.HandshakesPerRequest: "TLS handshakes, per request",
}

// metricName says a metric in words, with its unit; an unknown one by its name.
func metricName(metric string) string { return clean(metricWords(metric)) }

func metricWords(metric string) string {
	if name, ok := metricNames[metric]; ok {
		return name
	}
	kind, rest, found := strings.Cut(metric, ".")
	if !found {
		return strings.ReplaceAll(metric, "_", " ")
	}
	role, part, _ := strings.Cut(rest, ".")
	role = roleName(role)
	switch kind {
	case "cpu_us_per_request":
		if part == "total" {
			return "CPU of " + role + ", µs/request"
		}
		return fmt.Sprintf("%s CPU of %s, µs/request", part, role)
	case "syscalls_per_request":
		if part == results.CallsAll {
			return "system calls of " + role + ", per request"
		}
		return fmt.Sprintf("%s of %s, per request", part, role)
	case "switches_per_request":
		return "sleeps of " + role + ", per request"
	case "delayed_acks_per_request":
		return "delayed ACKs at " + role + ", per request"
	case "worker_threads":
		return role + " workers"
	case "worker_connections":
		return fmt.Sprintf("connections of all %s workers", role)
	case "worker_max_over_mean":
		return fmt.Sprintf("fullest %s worker over the mean", role)
	case "worker_chi_square":
		return fmt.Sprintf("chi-square of the %s workers", role)
	case "pss_mib":
		return "memory of " + role + ", MiB (PSS)"
	}
	return strings.ReplaceAll(metric, "_", " ")
}

// number prints three digits, as the published tables do.
func number(v float64) string {
	size := math.Abs(v)
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return none
	case v == 0:
		return "0"
	case size >= 100:
		return minus(strconv.FormatFloat(v, 'f', 0, 64))
	case size >= 10:
		return minus(strconv.FormatFloat(v, 'f', 1, 64))
	case size >= 0.1:
		return minus(strconv.FormatFloat(v, 'f', 2, 64))
	case size >= 0.001:
		return minus(strconv.FormatFloat(v, 'f', 4, 64))
	}
	return minus(strconv.FormatFloat(v, 'g', 2, 64))
}

func minus(s string) string { return strings.ReplaceAll(s, "-", "−") }

// asFactors tells whether ratios read better as factors than as percentages.
func asFactors(ratios ...float64) bool {
	for _, r := range ratios {
		if r < 0.5 || r > 2 {
			return true
		}
	}
	return false
}

func change(ratio float64, factor bool) string {
	if factor {
		return "×" + number(ratio)
	}
	percent := 100 * (ratio - 1)
	if math.Abs(percent) < 0.05 {
		return "0.0 %"
	}
	return minus(fmt.Sprintf("%+.1f %%", percent))
}

// difference says a ratio and its interval: "−4.1 %" and "−6.0 % to −2.2 %", or "×0.03" and "×0.02 to ×0.04".
func difference(ratio, low, high float64) (estimate, interval string) {
	if !(ratio > 0) || math.IsInf(ratio, 0) {
		return none, none
	}
	factor := asFactors(ratio, low, high)
	return change(ratio, factor), change(low, factor) + " to " + change(high, factor)
}

// verdictDifference says a verdict's difference and interval: of ratios as difference does, of shares in hundredths, "+5.0 points". An
// interval over fewer rounds than a judgement needs is none.
func verdictDifference(c *results.Cell, v results.Verdict) (estimate, interval string) {
	estimate, interval = anyDifference(v)
	if few(c, v) {
		interval = none
	}
	return estimate, interval
}

// few says that a verdict rests on fewer rounds than one of so many metrics needs.
func few(c *results.Cell, v results.Verdict) bool {
	metrics := 0
	for _, other := range c.Verdicts {
		if other.Plane == v.Plane && other.Baseline == v.Baseline {
			metrics++
		}
	}
	return v.Pairs < stats.MinPairs(metrics)
}

func anyDifference(v results.Verdict) (estimate, interval string) {
	if !results.ByDifference(v.Metric) {
		return difference(v.Ratio, v.Low, v.High)
	}
	if v.Pairs == 0 {
		return none, none
	}
	points := func(x float64) string {
		if x == 0 {
			return "0 points"
		}
		return minus(fmt.Sprintf("%+.3g points", 100*x))
	}
	return points(v.Ratio), points(v.Low) + " to " + points(v.High)
}

// noiseText says a verdict's noise in the same way.
func noiseText(v results.Verdict) string {
	if !results.ByDifference(v.Metric) {
		return floorText(v.Floor)
	}
	if v.Floor > 0 {
		return fmt.Sprintf("±%.3g points", 100*v.Floor)
	}
	return none
}

// floorText says an A/A floor: "±3.1 %", or "×2.4" where it is that bad.
func floorText(floor float64) string {
	switch {
	case !(floor >= 1) || math.IsInf(floor, 0):
		return none
	case floor > 1.5:
		return "×" + number(floor)
	}
	return fmt.Sprintf("±%.1f %%", 100*(floor-1))
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// clean makes a document's text fit for one line anywhere: no control characters, which a terminal would obey, and none of
// Unicode's invisible ones that reorder text.
func clean(s string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		switch {
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0:
			return ' '
		case r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff, r == 0x061c:
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))), " ")
}
