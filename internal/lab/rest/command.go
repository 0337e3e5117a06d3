package rest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// untilStopped is the duration of a run without an end, short of the longest that the generator takes.
const untilStopped = maxDuration

// tcpPayload is what Fortio sends over raw TCP where nothing else is asked for, in bytes: an echo of nothing is none.
const tcpPayload = 24

// Arguments is the generator's command line for a request, without the program and without its outputs. Every value stands
// behind its flag's equals sign: none can be taken for another flag.
func (r *Request) Arguments() []string {
	target, fields := r.reached()
	rate := max(r.QPS, 0) // 0 is a closed loop
	args := []string{
		"run", "--url=" + target, "--qps=" + strconv.FormatFloat(rate, 'f', -1, 64), "--connections=" + strconv.Itoa(r.Connections),
		"--arrivals=" + r.Arrivals, "--timeout=" + span(r.Timeout),
	}
	switch {
	case r.Exactly > 0:
		args = append(args, "--requests="+strconv.FormatInt(r.Exactly, 10))
	case r.Duration < 0:
		args = append(args, "--duration="+span(untilStopped), "--warmup="+span(r.Warmup))
	default:
		args = append(args, "--duration="+span(r.Duration), "--warmup="+span(r.Warmup))
	}
	if r.NoKeepalive {
		args = append(args, "--no-keepalive")
	} else if r.Reuse[1] > 0 {
		args = append(args, fmt.Sprintf("--requests-per-connection=%d:%d", r.Reuse[0], r.Reuse[1]))
	}
	if r.H2 {
		args = append(args, "--http2")
	}
	if r.InitialErrors {
		args = append(args, "--initial-errors")
	}
	if r.Insecure {
		args = append(args, "--insecure")
	}
	if r.Resolve.IsValid() && (r.Target.Scheme == "https" || r.Target.Scheme == "grpcs") {
		args = append(args, "--server-name="+r.Target.Hostname())
	}
	if r.Method != "" {
		args = append(args, "--method="+r.Method)
	}
	switch {
	case r.Payload != "":
		args = append(args, "--body="+r.Payload)
	case r.Runner == runnerTCP:
		args = append(args, "--body-size="+strconv.Itoa(tcpPayload))
	}
	args = append(args, "--fortio-resolution="+strconv.FormatFloat(r.Resolution, 'g', -1, 64))
	if len(r.Percentiles) > 0 {
		args = append(args, "--fortio-percentiles="+joined(r.Percentiles))
	}
	for _, field := range append(fields, r.Headers...) {
		args = append(args, "--header="+field)
	}
	return args
}

func joined(list []float64) string {
	parts := make([]string, len(list))
	for i, v := range list {
		parts[i] = strconv.FormatFloat(v, 'g', -1, 64)
	}
	return strings.Join(parts, ",")
}

// span writes a time as the generator reads it.
func span(d time.Duration) string {
	if d%time.Millisecond == 0 {
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	}
	return strconv.FormatInt(d.Microseconds(), 10) + "us"
}
