package rest

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
	// Response times of the last second's answers, in milliseconds.
	P50 float64 `json:"p50_ms"`
	P90 float64 `json:"p90_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}
