package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"lateen.dev/lateen/internal/lab/generator"
	"lateen.dev/lateen/internal/lab/report"
	"lateen.dev/lateen/internal/lab/stats"
)

// Summary is a stored run in a line of a table. Times are milliseconds; a percentile that would rest on fewer than 100 slower
// answers is none of them and is named in Thin.
type Summary struct {
	ID          string             `json:"id"`
	Labels      string             `json:"labels"`
	Type        string             `json:"type"`
	URL         string             `json:"url"`
	Started     time.Time          `json:"started"`
	Wanted      string             `json:"wanted_qps"`
	Asked       string             `json:"asked"` // how long, or how many
	Seconds     float64            `json:"seconds"`
	QPS         float64            `json:"qps"`
	Connections int                `json:"connections"`
	Count       int64              `json:"count"`
	Failed      int64              `json:"failed"`
	Interrupted bool               `json:"interrupted,omitempty"`
	Times       map[string]float64 `json:"times"`
	Thin        []string           `json:"thin,omitempty"`
	// Ours is set where the generator's own report is stored too.
	Ours bool `json:"ours"`
}

// quantiles are the percentiles of a summary, with their names.
var quantiles = []struct {
	name string
	p    float64
}{{"p50", 50}, {"p75", 75}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9}}

// cached is a summary with the file that it is of.
type cached struct {
	size    int64
	changed time.Time
	summary *Summary
}

// Summary reads the essentials of a stored result.
func (s *Store) Summary(name string) (*Summary, error) {
	if !validName(name) {
		return nil, ErrNoResult
	}
	info, err := s.root.Lstat(name + ".json")
	if err != nil {
		return nil, ErrNoResult
	}
	s.mu.Lock()
	known, ok := s.summaries[name]
	s.mu.Unlock()
	if ok && known.size == info.Size() && known.changed.Equal(info.ModTime()) {
		return known.summary, nil
	}
	text, err := s.Document(name)
	if err != nil {
		return nil, err
	}
	d, err := readDocument(text)
	if err != nil {
		return nil, fmt.Errorf("result %s: %w", name, err)
	}
	out := d.summary(name)
	if text, err := s.Report(name); err == nil {
		own, err := generator.Read[ownReport](text)
		out.Ours, out.Interrupted = err == nil, own.Interrupted
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.summaries) > 2*s.most {
		clear(s.summaries)
	}
	s.summaries[name] = cached{info.Size(), info.ModTime(), out}
	return out, nil
}

// anyDocument is a result of Fortio of whatever kind.
type anyDocument struct {
	document
	URL, Destination string
}

func readDocument(text []byte) (*anyDocument, error) {
	var d anyDocument
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("not a result in Fortio's format: %w", err)
	}
	if d.DurationHistogram == nil {
		return nil, errors.New("not a result in Fortio's format: it has no DurationHistogram")
	}
	if d.ErrorsDurationHistogram == nil {
		d.ErrorsDurationHistogram = &histogram{}
	}
	if err := d.DurationHistogram.check(); err != nil {
		return nil, fmt.Errorf("not a result in Fortio's format: DurationHistogram: %w", err)
	}
	if !(d.ActualQPS >= 0 && d.ActualQPS < 1e12) {
		return nil, fmt.Errorf("not a result in Fortio's format: ActualQPS is %g", d.ActualQPS)
	}
	return &d, nil
}

// check refuses a histogram that no run can have: what others left is drawn only when it makes sense.
func (h *histogram) check() error {
	// longest is beyond every run, in seconds.
	const longest = 1e9
	// Means and percentiles are rounded: they may lie a little beside the values.
	const slack = 1e-3
	inside := func(v float64) bool { return v >= 0 && v <= longest }
	if h.Count < 0 || !inside(h.Min) || !inside(h.Avg) || !inside(h.Max) || h.Min > h.Max*(1+slack) {
		return fmt.Errorf("%d values from %g to %g s with a mean of %g s", h.Count, h.Min, h.Max, h.Avg)
	}
	before, share := 0.0, 0.0
	for i, b := range h.Data {
		if !inside(b.Start) || !inside(b.End) || b.Start > b.End || b.Start < before*(1-slack) || !(b.Percent >= share && b.Percent <= 100+slack) || b.Count < 0 {
			return fmt.Errorf("bucket %d goes from %g to %g s, up to %g %%", i, b.Start, b.End, b.Percent)
		}
		before, share = b.End, b.Percent
	}
	for _, p := range h.Percentiles {
		if !inside(p.Value) {
			return fmt.Errorf("P%g is %g s", p.Percentile, p.Value)
		}
	}
	return nil
}

func (d *anyDocument) summary(name string) *Summary {
	h := d.DurationHistogram
	out := &Summary{
		ID: name, Labels: d.Labels, Type: d.RunType, URL: d.URL, Started: d.StartTime, Wanted: d.RequestedQPS, Asked: d.RequestedDuration, Seconds: d.ActualDuration.Seconds(),
		QPS: d.ActualQPS, Connections: d.NumThreads, Count: h.Count, Failed: d.ErrorsDurationHistogram.Count, Times: map[string]float64{},
	}
	if out.URL == "" {
		out.URL = d.Destination
	}
	if h.Count <= out.Failed { // times of failures alone are not response times
		return out
	}
	out.Times["min"], out.Times["avg"], out.Times["max"] = 1000*h.Min, 1000*h.Avg, 1000*h.Max
	for _, q := range quantiles {
		if !stats.Printable(q.p/100, uint64(h.Count)) {
			out.Thin = append(out.Thin, q.name)
			continue
		}
		out.Times[q.name] = 1000 * h.at(q.p)
	}
	return out
}

// Series is a distribution for a graph.
type Series struct {
	Name  string             `json:"name"`
	Count int64              `json:"count"`
	Times map[string]float64 `json:"times"`
	// Curve has pairs of nines (-log10 of the share that is slower) and milliseconds, up to where 100 samples lie beyond.
	Curve [][2]float64 `json:"curve"`
	Bars  []Bar        `json:"bars"`
}

// Bar is the share of answers from From to To, in milliseconds; the last one has no end.
type Bar struct {
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Share float64 `json:"share"`
}

const (
	curveSteps = 120
	barCount   = 40
)

// seriesOf makes a distribution ready for a graph.
func seriesOf(name string, h *histogram) Series {
	d := anyDocument{document: document{DurationHistogram: h, ErrorsDurationHistogram: &histogram{}}}
	s := Series{Name: name, Count: h.Count, Times: d.summary("").Times, Curve: [][2]float64{}, Bars: []Bar{}}
	if h.Count <= 0 || len(h.Data) == 0 {
		return s
	}
	// With few samples the curve goes on to the last that has one beyond it: the page says how little it rests on.
	nines := math.Log10(float64(h.Count) / 100)
	if nines <= 0.3 {
		nines = math.Log10(float64(max(h.Count, 2)))
	}
	for step := 0; step <= curveSteps; step++ {
		at := nines * float64(step) / curveSteps
		s.Curve = append(s.Curve, [2]float64{at, 1000 * h.at(100*(1-math.Pow(10, -at)))})
	}
	low, high := h.Min, h.at(99)
	if !(high > low) {
		high = h.Max
	}
	if !(high > low) {
		s.Bars = append(s.Bars, Bar{1000 * low, 1000 * low, 1})
		return s
	}
	for i := range barCount {
		from := low + (high-low)*float64(i)/barCount
		to := low + (high-low)*float64(i+1)/barCount
		s.Bars = append(s.Bars, Bar{1000 * from, 1000 * to, h.below(to) - h.below(from)})
	}
	s.Bars[0].Share += h.below(low) // the smallest values lie on the edge
	return s
}

// below is the share of values up to v, linear within a bucket.
func (h *histogram) below(v float64) float64 {
	before := 0.0
	for _, b := range h.Data {
		if v < b.End {
			if v <= b.Start || b.End <= b.Start {
				return before / 100
			}
			return (before + (b.Percent-before)*(v-b.Start)/(b.End-b.Start)) / 100
		}
		before = b.Percent
	}
	return before / 100
}

// ownReport is what is shown of the generator's own report.
type ownReport struct {
	Measured    float64 `json:"measured_s"`
	Interrupted bool    `json:"interrupted"`
	Counts      struct {
		OK         uint64 `json:"ok"`
		Failed     uint64 `json:"failed"`
		Unsent     uint64 `json:"unsent"`
		Unanswered uint64 `json:"unanswered"`
		Opened     uint64 `json:"connections_opened"`
	} `json:"counts"`
	Status   map[string]uint64 `json:"status"`
	Errors   map[string]uint64 `json:"errors"`
	Response ownTimes          `json:"response_time"`
	Service  ownTimes          `json:"service_time"`
	Lateness ownTimes          `json:"lateness"`
	Connect  ownTimes          `json:"connect_time"`
}

type ownTimes struct {
	Count     int64   `json:"count"`
	Min       float64 `json:"min"`
	Avg       float64 `json:"avg"`
	Max       float64 `json:"max"`
	Histogram string  `json:"histogram"`
}

// p99 is that of all times in milliseconds, however few lie beyond: to judge by, not to tell. It is 0 where there are none.
func (t *ownTimes) p99() float64 {
	h, err := t.histogram()
	if err != nil || h.Count == 0 {
		return 0
	}
	return 1000 * h.at(99)
}

// histogram reads the generator's times into Fortio's form, in seconds and at full resolution.
func (t *ownTimes) histogram() (*histogram, error) {
	const perSecond = 1e9
	if t.Count == 0 || t.Histogram == "" {
		return &histogram{}, nil
	}
	from, err := report.DecodeHistogram(t.Histogram)
	if err != nil {
		return nil, err
	}
	h := &histogram{Count: from.TotalCount(), Min: t.Min / 1000, Max: t.Max / 1000, Avg: t.Avg / 1000}
	var seen int64
	for _, bar := range from.Distribution() {
		if bar.Count == 0 {
			continue
		}
		seen += bar.Count
		h.Data = append(h.Data, bucket{
			Start: math.Max(float64(bar.From)/perSecond, h.Min), End: math.Min(float64(bar.To)/perSecond, h.Max), Percent: 100 * float64(seen) / float64(h.Count), Count: bar.Count,
		})
	}
	return h, nil
}
