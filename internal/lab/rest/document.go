package rest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// document is what every result of Fortio has (its periodic.RunnerResults), in Fortio's order.
type document struct {
	RunType                 string
	Labels                  string
	StartTime               time.Time
	RequestedQPS            string
	RequestedDuration       string
	ActualQPS               float64
	ActualDuration          time.Duration
	NumThreads              int
	Version                 string
	DurationHistogram       *histogram
	ErrorsDurationHistogram *histogram
	Exactly                 int64
	Jitter                  bool
	Uniform                 bool
	NoCatchUp               bool
	RunID                   int64
	AccessLoggerInfo        string
	ID                      string
	// ResponseLabel is what Fortio's page calls the times; its own results have none.
	ResponseLabel string `json:",omitempty"`
}

// histogram is Fortio's stats.HistogramData; durations are seconds.
type histogram struct {
	Count       int64
	Min         float64
	Max         float64
	Sum         float64
	Avg         float64
	StdDev      float64
	Data        []bucket
	Percentiles []percentile `json:",omitempty"`
}

type bucket struct {
	Start   float64
	End     float64
	Percent float64 // of all values, up to End
	Count   int64
}

type percentile struct {
	Percentile float64
	Value      float64
}

// httpDocument is Fortio's fhttp.HTTPRunnerResults. The order of its fields, and of those that it embeds, is that of Fortio's JSON.
type httpDocument struct {
	document
	RetCodes   map[string]int64
	IPCountMap map[string]int64
	tlsOptions
	UnixDomainSocket string
	httpOptions
	Sizes           *histogram
	HeaderSizes     *histogram
	Sockets         []int64
	SocketCount     int64
	ConnectionStats *histogram
	AbortOn         int
}

// tlsOptions is Fortio's fhttp.TLSOptions.
type tlsOptions struct {
	Insecure bool
	MTLS     bool
	CACert   string
	Cert     string
	Key      string
}

// httpOptions is Fortio's fhttp.HTTPOptions, but for its TLS options.
type httpOptions struct {
	URL               string
	NumConnections    int
	Compression       bool
	DisableFastClient bool
	HTTP10            bool
	H2                bool
	DisableKeepAlive  bool
	AllowHalfClose    bool
	FollowRedirects   bool
	Resolve           string
	HTTPReqTimeOut    time.Duration
	UserCredentials   string
	ContentType       string
	Payload           []byte
	MethodOverride    string
	LogErrors         bool
	SequentialWarmup  bool
	ConnReuseRange    [2]int
	NoResolveEachConn bool
	Offset            time.Duration
	Resolution        float64
}

// grpcDocument is Fortio's fgrpc.GRPCRunnerResults.
type grpcDocument struct {
	document
	RetCodes    map[string]int64
	Destination string
	Streams     int
	Ping        bool
	Metadata    map[string][]string
}

// tcpDocument is Fortio's tcprunner.RunnerResults.
type tcpDocument struct {
	document
	Destination      string
	Payload          []byte
	UnixDomainSocket string
	ReqTimeout       time.Duration
	RetCodes         map[string]int64
	SocketCount      int64
	BytesSent        int64
	BytesReceived    int64
}

// fortioDocument completes what the generator wrote in Fortio's format by what only the request knows.
func fortioDocument(text []byte, run *Run) ([]byte, error) {
	var whole any
	var common *document
	q := run.Request
	unreadable := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("read the generator's result in Fortio's format: %w", err)
	}
	switch q.Runner {
	case runnerGRPC:
		d := &grpcDocument{}
		if err := json.Unmarshal(text, d); err != nil {
			return unreadable(err)
		}
		d.Destination, d.Ping, d.Streams = q.URL, q.GRPC.Ping, max(d.Streams, 1)
		if len(d.Metadata) == 0 {
			d.Metadata = nil
		}
		whole, common = d, &d.document
	case runnerTCP:
		d := &tcpDocument{}
		if err := json.Unmarshal(text, d); err != nil {
			return unreadable(err)
		}
		d.Destination, d.Payload, d.ReqTimeout = q.URL, []byte(q.Payload), q.Timeout
		// An answer is what was sent.
		d.BytesSent = d.RetCodes["OK"] * int64(cmp.Or(len(q.Payload), tcpPayload))
		whole, common = d, &d.document
	default:
		d := &httpDocument{}
		if err := json.Unmarshal(text, d); err != nil {
			return unreadable(err)
		}
		d.echo(q)
		whole, common = d, &d.document
	}
	if common.DurationHistogram == nil {
		return unreadable(fmt.Errorf("it has no DurationHistogram"))
	}
	common.complete(run)
	out, err := json.MarshalIndent(whole, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the result in Fortio's format: %w", err)
	}
	return out, nil
}

// complete writes who the run is and what was asked for.
func (d *document) complete(run *Run) {
	q := run.Request
	d.RunType, d.Labels, d.RunID, d.ID = q.RunType(), q.Labels, run.ID, run.Name
	d.RequestedQPS, d.RequestedDuration = "max", q.Duration.String()
	if q.QPS > 0 {
		d.RequestedQPS = strconv.FormatFloat(q.QPS, 'g', -1, 64)
	}
	switch {
	case q.Exactly > 0:
		d.RequestedDuration = fmt.Sprintf("exactly %d calls", q.Exactly)
	case q.Duration < 0:
		d.RequestedDuration = "until stop"
	}
	d.NumThreads, d.Exactly, d.Jitter, d.Uniform, d.NoCatchUp = q.Connections, q.Exactly, q.Jitter, q.Uniform, q.NoCatchUp
	if d.ErrorsDurationHistogram == nil {
		d.ErrorsDurationHistogram = &histogram{}
	}
	// The generator was told which percentiles; of none it was not.
	if len(q.Percentiles) == 0 {
		d.DurationHistogram.Percentiles, d.ErrorsDurationHistogram.Percentiles = nil, nil
	}
}

// echo writes the settings that Fortio repeats in its result.
func (d *httpDocument) echo(q *Request) {
	d.URL, d.Insecure, d.H2, d.DisableKeepAlive = q.URL, q.Insecure, q.H2, q.NoKeepalive
	d.NumConnections, d.HTTPReqTimeOut, d.Payload, d.MethodOverride = 1, q.Timeout, []byte(q.Payload), q.Method
	d.LogErrors, d.SequentialWarmup, d.DisableFastClient, d.ConnReuseRange = q.LogErrors, q.SequentialWarmup, q.StdClient, q.Reuse
	d.Resolution, d.Resolve = q.Resolution, ""
	if q.Resolve.IsValid() {
		d.Resolve = q.Resolve.String()
	}
	for _, h := range []**histogram{&d.Sizes, &d.HeaderSizes, &d.ConnectionStats} {
		if *h == nil {
			*h = &histogram{}
		}
	}
	if d.RetCodes == nil {
		d.RetCodes = map[string]int64{}
	}
	if d.IPCountMap == nil {
		d.IPCountMap = map[string]int64{}
	}
	if len(q.Percentiles) == 0 {
		d.ConnectionStats.Percentiles = nil
	}
}

// at is the value at a percentile (0 to 100): as it is listed, or else linear within a bucket, and the smallest value has a share of its own.
func (h *histogram) at(p float64) float64 {
	for _, listed := range h.Percentiles {
		if listed.Percentile == p {
			return listed.Value
		}
	}
	before := 100 / float64(max(h.Count, 1))
	if p <= before {
		return h.Min
	}
	for _, b := range h.Data {
		if p <= b.Percent {
			return b.Start + (p-before)/(b.Percent-before)*(b.End-b.Start)
		}
		before = b.Percent
	}
	return h.Max
}
