package rest

import "lateen.dev/lateen/internal/lab/stats"

// Progress is what the generator says each second of a run under way, in its own names.
type Progress struct {
	// Seconds since the run began.
	Seconds float64 `json:"t_s"`
	// Phase is warmup, measure, or drain when nothing is sent any more.
	Phase string `json:"phase"`
	// Answers came in the last second; AnswersTotal and FailedTotal count since the beginning.
	Answers      uint64 `json:"answers"`
	AnswersTotal uint64 `json:"answers_total"`
	FailedTotal  uint64 `json:"failed_total"`
	// Outstanding requests are due and have no answer.
	Outstanding uint64 `json:"outstanding"`
	// Response times of the last second's answers, in milliseconds. A percentile of too few answers is nil, and so is the longest
	// time where there was no answer.
	P50 *float64 `json:"p50_ms,omitempty"`
	P90 *float64 `json:"p90_ms,omitempty"`
	P99 *float64 `json:"p99_ms,omitempty"`
	Max *float64 `json:"max_ms,omitempty"`
}

// printable is the progress without the times that its answers do not bear. The generator says all of them.
func (p Progress) printable() Progress {
	for _, one := range []struct {
		q    float64
		time **float64
	}{{.5, &p.P50}, {.9, &p.P90}, {.99, &p.P99}} {
		if !stats.Printable(one.q, p.Answers) {
			*one.time = nil
		}
	}
	if p.Answers == 0 {
		p.Max = nil
	}
	return p
}
