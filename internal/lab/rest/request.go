package rest

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of what one request may ask for.
const (
	// MaxBody bounds the body of a request to this server, in bytes.
	MaxBody        = 1 << 20
	maxPayload     = 64 << 10 // bytes; a command line's argument takes twice that
	maxHeaders     = 64
	maxLabels      = 512 // bytes
	maxPercentiles = 32
	maxConnections = 10_000
	maxRate        = 1e6
	leastRate      = 0.001
	leastWidth     = 1e-9 // seconds of a histogram's bucket
	mostWidth      = 100
	maxRequests    = 1_000_000_000
	maxDuration    = 365 * 24 * time.Hour
)

// Fortio's defaults, where a request says nothing.
const (
	defaultRate        = 8
	defaultDuration    = 5 * time.Second
	defaultConnections = 4
	defaultTimeout     = 3 * time.Second
	defaultResolution  = 0.001
)

var defaultPercentiles = []float64{50, 75, 90, 99, 99.9}

// Runners of a request: what is spoken to the target.
const (
	runnerHTTP = "http"
	runnerGRPC = "grpc"
	runnerTCP  = "tcp"
)

// Request is a run as it was asked for, checked; times that were left out are Fortio's defaults.
type Request struct {
	Async, Save bool
	Runner      string
	Labels      string
	Percentiles []float64
	Resolution  float64
	// InitialErrors lets the run begin where no connection to the target can be made: it is a result then, not an error.
	InitialErrors bool
	GRPC          GRPC
	Pace
	Destination
	Message
	Echoed
}

// Pace is how many requests a run sends, and when.
type Pace struct {
	// QPS is requests per second; negative means the maximum rate, a closed loop.
	QPS float64
	// Duration is how long to send; negative means until stopped. It does not count where Exactly is given.
	Duration time.Duration
	Exactly  int64
	// Warmup is how long to send before that, unmeasured: a key of our own.
	Warmup time.Duration
	// Arrivals is uniform, poisson or jitter.
	Arrivals string
}

// Destination is where requests go, and over which connections.
type Destination struct {
	// URL is as it was given; Target has its scheme and the address to resolve to.
	URL          string
	Target       *url.URL
	Resolve      netip.Addr
	H2, Insecure bool
	Connections  int
	// Reuse bounds the requests per connection; zero leaves connections open.
	Reuse       [2]int
	NoKeepalive bool
	Timeout     time.Duration
}

// Message is what each request holds.
type Message struct {
	Headers []string
	Method  string
	Payload string
}

// Echoed are keys that the result repeats and that do nothing here: requests never wait for slow ones, there is one client, and
// errors are counted by kind.
type Echoed struct {
	Jitter, Uniform, NoCatchUp, LogErrors, StdClient, SequentialWarmup bool
}

// GRPC is what only a gRPC run has.
type GRPC struct {
	Secure, Ping bool
	PingDelay    time.Duration
	Service      string
}

// ParseRequest reads a run's keys from a query and a JSON body. What it refuses is a *Refusal.
func ParseRequest(query url.Values, body []byte) (*Request, error) {
	v, err := readValues(query, body)
	if err != nil {
		return nil, err
	}
	p := parser{v: v}
	r := &Request{}
	// The first key that is refused is the one that is reported, so their order here is that of the reports.
	r.URL, r.Runner, r.Async, r.Save = strings.TrimSpace(p.text("url")), p.text("runner"), p.flag("async"), p.flag("save")
	r.Labels, r.Payload, r.Method = p.bounded("labels", maxLabels), p.bounded("payload", maxPayload), p.text("X")
	r.QPS, r.Resolution = p.number("qps", 0, -maxRate, maxRate), p.number("r", 0, 0, mostWidth)
	r.Connections, r.Exactly = int(p.count("c", maxConnections)), p.count("n", maxRequests)
	r.Timeout, r.Warmup = p.duration("timeout", defaultTimeout), p.duration("warmup", 0)
	r.Echoed = Echoed{Jitter: p.flag("jitter"), Uniform: p.flag("uniform"), NoCatchUp: p.flag("nocatchup"), LogErrors: p.flag("log-errors"),
		StdClient: p.flag("stdclient"), SequentialWarmup: p.flag("sequential-warmup")}
	r.H2, r.Insecure = p.flag("h2"), p.flag("https-insecure")
	r.GRPC = GRPC{Secure: p.flag("grpc-secure"), Ping: p.flag("ping"), PingDelay: p.duration("grpc-ping-delay", 0), Service: p.text("healthservice")}
	p.keep(func() error {
		if r.QPS > 0 && r.QPS < leastRate {
			return refusef("qps", "%g: write at least %g, or -1 for the maximum rate", r.QPS, leastRate)
		}
		if r.Resolution > 0 && r.Resolution < leastWidth {
			return refusef("r", "%g: write at least %g seconds", r.Resolution, leastWidth)
		}
		return nil
	})
	p.keep(func() error { return r.setTarget() })
	p.keep(func() error { return r.setDuration(p.text("t")) })
	p.keep(func() error { return r.setPercentiles(p.text("p"), v.query.Has("p")) })
	p.keep(func() error { return r.setArrivals(p.text("arrivals")) })
	p.keep(func() error { return r.setReuse(p.text("connection-reuse")) })
	p.keep(func() error { return r.setResolve(p.text("resolve")) })
	p.keep(func() (err error) { r.Headers, err = v.headers(); return err })
	p.keep(func() error { return r.setConnectionField() })
	p.keep(func() error { return r.checkMethod() })
	p.keep(func() error { return r.checkProtocol() })
	if p.err != nil {
		return nil, p.err
	}
	r.defaults()
	return r, nil
}

// parser reads keys until one is refused.
type parser struct {
	v   values
	err error
}

func (p *parser) keep(f func() error) {
	if p.err == nil {
		p.err = f()
	}
}

func (p *parser) text(key string) string { return p.bounded(key, maxValue) }

func (p *parser) bounded(key string, most int) (out string) {
	p.keep(func() (err error) { out, err = p.v.bounded(key, most); return err })
	return out
}

func (p *parser) flag(key string) (out bool) {
	p.keep(func() (err error) { out, err = p.v.flag(key); return err })
	return out
}

func (p *parser) number(key string, absent, least, most float64) (out float64) {
	p.keep(func() (err error) { out, err = p.v.number(key, absent, least, most); return err })
	return out
}

func (p *parser) count(key string, most int64) (out int64) {
	p.keep(func() (err error) { out, err = p.v.count(key, most); return err })
	return out
}

func (p *parser) duration(key string, absent time.Duration) time.Duration {
	out := absent
	text := strings.TrimSpace(p.text(key))
	p.keep(func() error {
		if text == "" {
			return nil
		}
		d, err := time.ParseDuration(text)
		switch {
		case err != nil:
			return refuseTime(key, key, text, err)
		case d < 0 || d > maxDuration:
			return refusef(key, "%s: write a time from 0s to a year", text)
		case d > 0 || absent == 0:
			out = d
		}
		return nil
	})
	return out
}

// defaults fills in what was left out.
func (r *Request) defaults() {
	if r.QPS == 0 {
		r.QPS = defaultRate
	} else if r.QPS < 0 {
		r.QPS = -1
	}
	if r.Connections == 0 {
		r.Connections = defaultConnections
	}
	if r.Resolution == 0 {
		r.Resolution = defaultResolution
	}
	if r.Duration == 0 {
		r.Duration = defaultDuration
	}
}

// setDuration reads t: a time, or on for a run that goes on until it is stopped.
func (r *Request) setDuration(text string) error {
	if text == "" {
		return nil
	}
	if text == "on" {
		r.Duration = -1
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return refuseTime("t", "duration", text, err)
	}
	if d < 0 || d > maxDuration {
		return refuseTime("t", "duration", text, fmt.Errorf("%s: write a time from 0s to a year, or on to go on until stopped", text))
	}
	r.Duration = d
	return nil
}

// setPercentiles reads p. As in Fortio a query that names the key without a value asks for none.
func (r *Request) setPercentiles(text string, named bool) error {
	r.Percentiles = []float64{}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		p, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return refusef("p", "%q is not a number", part)
		}
		if !(p > 0 && p < 100) {
			return refusef("p", "percentile %g must be > 0 and < 100", p)
		}
		r.Percentiles = append(r.Percentiles, p)
	}
	if len(r.Percentiles) > maxPercentiles {
		return refusef("p", "%d percentiles; at most %d are taken", len(r.Percentiles), maxPercentiles)
	}
	if len(r.Percentiles) == 0 && !named {
		r.Percentiles = slices.Clone(defaultPercentiles)
	}
	return nil
}

func (r *Request) setArrivals(text string) error {
	switch text {
	case "":
		r.Arrivals = "uniform"
		if r.Jitter {
			r.Arrivals = "jitter"
		}
	case "uniform", "poisson", "jitter":
		if r.Jitter && text != "jitter" {
			return refusef("arrivals", "%s beside jitter=on: ask for one of them", text)
		}
		r.Arrivals = text
	default:
		return refusef("arrivals", "%q: write uniform, poisson or jitter", text)
	}
	return nil
}

// setReuse reads the bounds of requests per connection: MIN:MAX, or one number for both.
func (r *Request) setReuse(text string) error {
	if text == "" {
		return nil
	}
	low, high, two := strings.Cut(text, ":")
	if !two {
		high = low
	}
	for i, part := range []string{low, high} {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > 1e9 {
			return refusef("connection-reuse", "%q: write MIN:MAX, two numbers of requests per connection", text)
		}
		r.Reuse[i] = n
	}
	if r.Reuse[0] > r.Reuse[1] {
		r.Reuse[0], r.Reuse[1] = r.Reuse[1], r.Reuse[0]
	}
	if r.Reuse[0] == 0 && r.Reuse[1] > 0 {
		r.Reuse[0] = 1
	}
	return nil
}

// setConnectionField turns a field that the generator sets itself into the setting that has the same effect.
func (r *Request) setConnectionField() error {
	var kept []string
	for _, field := range r.Headers {
		name, value, ok := strings.Cut(field, ":")
		name = strings.TrimSpace(name)
		if !ok {
			return refusef("headers", "invalid extra header '%s', expecting Key: Value", field)
		}
		if !isToken(name) {
			return refusef("headers", "%q is not a field's name", name)
		}
		if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			return refusef("headers", "the value of %s has control characters", name)
		}
		value = strings.TrimSpace(value)
		switch strings.ToLower(name) {
		case "connection":
			switch strings.ToLower(value) {
			case "close":
				r.NoKeepalive = true
			case "keep-alive":
			default:
				return refusef("headers", "Connection: %s: only close and keep-alive are taken", value)
			}
		case "content-length", "transfer-encoding":
			return refusef("headers", "%s follows from the payload and cannot be set", name)
		case "user-agent":
			if value != "" {
				kept = append(kept, name+": "+value)
			}
		default:
			kept = append(kept, name+": "+value)
		}
	}
	r.Headers = kept
	return nil
}

func (r *Request) checkMethod() error {
	if r.Method != "" && (!isToken(r.Method) || len(r.Method) > 32) {
		return refusef("X", "%q is not a method: write for example PUT", r.Method)
	}
	return nil
}

// isToken tells whether a text can be a field's name or a method (RFC 9110, section 5.6.2).
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c))
	})
}

// RunType is what Fortio calls the kind of run.
func (r *Request) RunType() string {
	switch {
	case r.Runner == runnerTCP:
		return "TCP"
	case r.Runner == runnerHTTP:
		return "HTTP"
	case r.Target.Path == "":
		return "GRPC Ping"
	case r.Target.Path == healthMethod:
		return "GRPC Health for ''"
	}
	return "Custom GRPC Method " + strings.Trim(r.Target.Path, "/")
}
