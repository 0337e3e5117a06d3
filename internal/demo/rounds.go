package demo

import (
	"fmt"
	"math"
	"slices"
)

// Block is one measured stretch: one target, with or without the mesh.
type Block struct {
	Target string     `json:"target"`
	Round  int        `json:"round"` // pairs of one block without and one with the mesh, from 1
	Mesh   bool       `json:"mesh"`
	Load   LoadResult `json:"load"`
	// ProxyCPUMicros is the CPU time of all node proxies per request of this block, in microseconds. It is absent if a
	// proxy restarted meanwhile.
	ProxyCPUMicros *float64 `json:"proxyCPUMicros,omitempty"`
	// OtherCPU is the share of the machine, from 0 to 1, that programs outside of the demonstration used meanwhile. It
	// is absent if it could not be measured.
	OtherCPU *float64 `json:"otherCPU,omitempty"`
	// Meshed is how many connections of this block the destination's proxy verified.
	Meshed uint64 `json:"meshedConnections"`
	// Fault says why the block's numbers must not be used; it is empty for a good block.
	Fault string `json:"fault,omitempty"`
}

// Order returns which blocks have the mesh, for the given number of pairs: none first, then alternating which side of
// a pair leads (ABBA), so that a slow drift of the machine hurts both sides alike.
func Order(pairs int) []bool {
	var order []bool
	for i := range pairs {
		meshFirst := i%2 == 1
		order = append(order, meshFirst, !meshFirst)
	}
	return order
}

// mostLateness is how late, in milliseconds at P99, the load generator may be by its own fault: more means that something
// else kept it from running, and what it measured says little about the mesh.
const mostLateness = 5

// judge fills in a block's fault. Every reason was fixed before any result was seen, and none looks at the response times.
func (b *Block) judge() {
	switch {
	case b.Load.Requests() == 0:
		b.Fault = "no request was sent"
	case b.Load.Failures() > 0:
		b.Fault = "requests failed: " + b.Load.ErrorText()
	case b.Load.Interrupted:
		b.Fault = "it was interrupted"
	case b.Load.Rates.Wanted > 0 && b.Load.Rates.Achieved < 0.99*b.Load.Rates.Wanted:
		b.Fault = "less than 99 % of the wanted rate was reached"
	case b.Load.Lateness.P99 > mostLateness:
		b.Fault = fmt.Sprintf("the load generator itself was late by %s ms at P99; the machine was busy with something else", milliseconds(b.Load.Lateness.P99))
	case b.Mesh && b.Meshed == 0:
		b.Fault = "no connection went through the mesh"
	case !b.Mesh && b.Meshed > 0:
		b.Fault = "connections went through the mesh"
	}
}

// measures are the columns of the table that have a difference.
var measures = []struct {
	Name string
	Of   func(Latency) float64
}{
	{"avg", func(l Latency) float64 { return l.Avg }},
	{"P50", func(l Latency) float64 { return l.P50 }},
	{"P75", func(l Latency) float64 { return l.P75 }},
	{"P90", func(l Latency) float64 { return l.P90 }},
	{"P99", func(l Latency) float64 { return l.P99 }},
}

// Comparison is the result for one target over its good rounds.
type Comparison struct {
	Target string  `json:"target"`
	Pairs  int     `json:"pairs"` // rounds of which both blocks are good
	None   Latency `json:"none"`  // medians over the rounds
	Mesh   Latency `json:"mesh"`
	// Verdicts are by measure.
	Verdicts map[string]Verdict `json:"verdicts"`
	// ProxyCPUMicros is the median of the mesh's blocks; absent if no block has it.
	ProxyCPUMicros *float64 `json:"proxyCPUMicros,omitempty"`
	// MostOtherCPU is the largest OtherCPU of the rounds that count.
	MostOtherCPU float64 `json:"mostOtherCPU"`
}

// Compare sums up the blocks of one target. A round counts only if both of its blocks are good.
func Compare(target string, blocks []Block) Comparison {
	c := Comparison{Target: target, Verdicts: map[string]Verdict{}}
	none, mesh := map[int]Block{}, map[int]Block{}
	for _, b := range blocks {
		switch {
		case b.Target != target || b.Fault != "":
		case b.Mesh:
			mesh[b.Round] = b
		default:
			none[b.Round] = b
		}
	}
	var n, m []Latency
	var cpu []float64
	for round, b := range none {
		with, ok := mesh[round]
		if !ok {
			continue
		}
		n, m = append(n, b.Load.ResponseTime), append(m, with.Load.ResponseTime)
		if with.ProxyCPUMicros != nil {
			cpu = append(cpu, *with.ProxyCPUMicros)
		}
		for _, share := range []*float64{b.OtherCPU, with.OtherCPU} {
			if share != nil {
				c.MostOtherCPU = max(c.MostOtherCPU, *share)
			}
		}
	}
	c.Pairs = len(n)
	c.None, c.Mesh = medians(n), medians(m)
	for _, measure := range measures {
		c.Verdicts[measure.Name] = separate(n, m, measure.Of)
	}
	if len(cpu) > 0 {
		median := median(cpu)
		c.ProxyCPUMicros = &median
	}
	return c
}

func medians(list []Latency) Latency {
	of := func(f func(Latency) float64) float64 {
		values := make([]float64, len(list))
		for i, l := range list {
			values[i] = f(l)
		}
		return median(values)
	}
	l := Latency{
		Avg: of(func(l Latency) float64 { return l.Avg }), P50: of(func(l Latency) float64 { return l.P50 }),
		P75: of(func(l Latency) float64 { return l.P75 }), P90: of(func(l Latency) float64 { return l.P90 }),
		P99: of(func(l Latency) float64 { return l.P99 }), Max: of(func(l Latency) float64 { return l.Max }),
	}
	for _, x := range list {
		l.Count += x.Count
	}
	return l
}

// median of nothing is zero; callers look at the number of pairs first.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Verdict says how the mesh compares in one measure.
type Verdict string

// The verdicts.
const (
	Faster  Verdict = "faster"  // every round with the mesh was faster than every round without
	Slower  Verdict = "slower"  // the reverse
	Unclear Verdict = "unclear" // the two sides overlap, or there is a single round
)

// leastPairs is how many rounds a verdict needs.
const leastPairs = 2

// separate looks only at the order of the rounds, so that one wild round can blur a verdict but not make one.
func separate(none, mesh []Latency, of func(Latency) float64) Verdict {
	if len(none) < leastPairs {
		return Unclear
	}
	noneLow, noneHigh := limits(none, of)
	meshLow, meshHigh := limits(mesh, of)
	switch {
	case meshHigh < noneLow:
		return Faster
	case meshLow > noneHigh:
		return Slower
	}
	return Unclear
}

func limits(list []Latency, of func(Latency) float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, l := range list {
		low, high = min(low, of(l)), max(high, of(l))
	}
	return low, high
}

// Difference is the mesh's median minus the other, in milliseconds.
func (c Comparison) Difference(measure string) float64 {
	for _, m := range measures {
		if m.Name == measure {
			return m.Of(c.Mesh) - m.Of(c.None)
		}
	}
	return 0
}

// percent is a change in percent of before; a change from zero has none.
func percent(before, after float64) (float64, bool) {
	if before <= 0 {
		return 0, false
	}
	return (after - before) / before * 100, true
}
