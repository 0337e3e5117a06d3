package rest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// fakeVariable makes this test binary a load generator, so that the tests start real processes and no load.
const fakeVariable = "LATEEN_TEST_GENERATOR"

func TestMain(m *testing.M) {
	if os.Getenv(fakeVariable) != "" {
		os.Exit(fakeGenerator(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// fake is the generator of the tests.
func fake(t *testing.T) Generator {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Generator{Path: self, Env: []string{fakeVariable + "=1"}}
}

// fakeGenerator writes what a run would have found, of which nothing happened. The target's host says how it goes: nosuch.invalid
// cannot be resolved, silent.test leaves nothing, stubborn.test ends for no interrupt.
func fakeGenerator(args []string) int {
	flags := map[string]string{}
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		flags[name] = value
	}
	target := flags["url"]
	switch {
	case strings.Contains(target, "nosuch.invalid"):
		fmt.Fprintln(os.Stderr, "lateen-load: resolve nosuch.invalid: no such host")
		return 1
	case strings.Contains(target, "silent.test"):
		return 3
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	rate, _ := strconv.ParseFloat(flags["qps"], 64)
	count, _ := strconv.ParseInt(flags["requests"], 10, 64)
	stopped := false
	if count == 0 {
		d, _ := time.ParseDuration(flags["duration"])
		count = int64(rate * d.Seconds())
		fmt.Fprintln(os.Stderr, `{"name":"run","t_s":1,"phase":"measure","answers":7,"answers_total":7,"failed_total":1,"outstanding":2,"p50_ms":1.5,"p90_ms":1.8,"p99_ms":2,"max_ms":2}`)
		end := time.After(min(d, 10*time.Minute))
	wait:
		for {
			select {
			case <-end:
				break wait
			case <-interrupted:
				if !strings.Contains(target, "stubborn.test") {
					count, stopped = 50, true
					break wait
				}
			}
		}
	}
	code, ok, failed := "200", count, int64(0)
	switch scheme, _, _ := strings.Cut(target, ":"); scheme {
	case "grpc", "grpcs":
		code = "SERVING"
	case "tcp":
		code = "OK"
	}
	if strings.Contains(target, "status=503") {
		code, ok, failed = "503", 0, count
	} else if strings.Contains(target, "127.0.0.1:1/") {
		code, ok, failed = "-1", 0, count
	}
	h := hdrhistogram.New(1, math.MaxInt64, 3)
	scale := 1.0
	if _, value, ok := strings.Cut(target, "scale="); ok {
		scale, _ = strconv.ParseFloat(value, 64)
	}
	for i := range count {
		_ = h.RecordValue(int64(1e6 * scale * fakeQuantile((float64(i)+.5)/float64(count))))
	}
	text, _ := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	ms := func(ns float64) float64 { return ns / 1e6 }
	times := map[string]any{
		"count": count, "min": ms(float64(h.Min())), "avg": ms(h.Mean()), "p99": ms(float64(h.ValueAtPercentile(99))), "max": ms(float64(h.Max())), "histogram": string(text),
	}
	report := map[string]any{
		"format": "lateen-load/1", "measured_s": 1.0, "interrupted": stopped, "counts": map[string]any{"ok": ok, "failed": failed},
		"response_time": times, "service_time": times, "lateness": map[string]any{"count": count, "p99": 0.01, "max": 0.02},
	}
	seconds := func(ns int64) float64 { return float64(ns) / 1e9 }
	durations := &histogram{Count: count, Min: seconds(h.Min()), Max: seconds(h.Max()), Avg: h.Mean() / 1e9, Data: []bucket{{Start: seconds(h.Min()), End: seconds(h.Max()), Percent: 100, Count: count}}}
	for part := range strings.SplitSeq(flags["fortio-percentiles"], ",") {
		if p, err := strconv.ParseFloat(part, 64); err == nil {
			durations.Percentiles = append(durations.Percentiles, percentile{p, seconds(h.ValueAtPercentile(p))})
		}
	}
	errors := &histogram{}
	if failed > 0 {
		errors = durations
	}
	document := map[string]any{
		"RunType": "HTTP", "StartTime": time.Now(), "ActualQPS": rate, "ActualDuration": time.Second, "Version": "lateen-load", "DurationHistogram": durations, "ErrorsDurationHistogram": errors,
		"RetCodes": map[string]int64{code: count}, "Sockets": []int{1}, "SocketCount": 1, "ConnectionStats": durations,
	}
	for file, value := range map[string]any{flags["json"]: report, flags["fortio-json"]: document} {
		text, _ := json.Marshal(value)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return 1
		}
	}
	if ok == 0 {
		fmt.Fprintln(os.Stderr, "lateen-load: no request was answered with success")
		return 1
	}
	return 0
}

// fakeQuantile is how long, in ms, answers of the fake take at a share of them: a half takes up to 0.4, a hundredth more than 1.26.
func fakeQuantile(q float64) float64 { return .4 * math.Pow(q/(1-q), .25) }

func TestTheFakesHistogramIsReadAsTheGeneratorsIs(t *testing.T) {
	h := hdrhistogram.New(1, math.MaxInt64, 3)
	for i := range int64(1000) {
		_ = h.RecordValue((i + 1) * 1_000_000)
	}
	text, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := base64.StdEncoding.DecodeString(string(text)); err != nil {
		t.Fatal(err)
	}
	times := ownTimes{Count: 1000, Min: 1, Avg: 500.5, Max: 1000, Histogram: string(text)}
	got, err := times.histogram()
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[float64]float64{50: .5, 90: .9, 99: .99} {
		if v := got.at(p); math.Abs(v-want) > .003*want {
			t.Errorf("P%g is %g s, want about %g", p, v, want)
		}
	}
}
