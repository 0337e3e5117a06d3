package longrun

import "time"

// Run is one run of a part, to its end.
type Run struct {
	// At is the end of the run in UTC, to the minute.
	At time.Time
	// Commit names the commit that ran.
	Commit string
	// Files is the digest of the files that the part tested.
	Files string
	// Took is a number of whole seconds.
	Took time.Duration
	// Passed, Failed and Skipped count checks.
	Passed, Failed, Skipped int
}

// Record is what is kept of a part.
type Record struct {
	// Passed is the last run that passed, and Failed the last run if that failed. Both are zero if there is none.
	Passed, Failed Run
	// Finding names the input on which a fuzz target failed in the run Failed.
	Finding string
	// Fuzzed is how long the target was fuzzed without a finding since the files became those of the run Passed.
	Fuzzed time.Duration
}

// Book has the record of each part that ever ran, by the part's name.
type Book map[string]Record

// Outcome is a run and its result.
type Outcome struct {
	Run
	OK bool
	// Fuzzed is how long a target was fuzzed without a finding.
	Fuzzed time.Duration
	// Finding names the input on which the target failed.
	Finding string
}

// After returns the record with one more run. A finding stays open as long as the files are those in which it was found: fuzzing finds
// an input by chance, so that a later run without it proves nothing.
func (r Record) After(o Outcome) Record {
	open := r.Finding != "" && r.Failed.Files == o.Files
	switch {
	case !o.OK:
		finding := o.Finding
		if finding == "" && open {
			finding = r.Finding
		}
		r.Failed, r.Finding = o.Run, finding
	default:
		if r.Passed.Files != o.Files {
			r.Fuzzed = 0
		}
		r.Passed = o.Run
		r.Fuzzed += o.Fuzzed
		if !open {
			r.Failed, r.Finding = Run{}, ""
		}
	}
	return r
}

// ended is the end of the last run, or the zero time if there was none.
func (r Record) ended() time.Time {
	if r.Failed.At.After(r.Passed.At) {
		return r.Failed.At
	}
	return r.Passed.At
}

// failed says whether the last run failed, or whether a finding is open.
func (r Record) failed() bool { return !r.Failed.At.IsZero() }

// passed says whether any run passed.
func (r Record) passed() bool { return !r.Passed.At.IsZero() }

// fuzzed is how long the target was fuzzed without a finding since its files became what they are now.
func (r Record) fuzzed(now Part) time.Duration {
	if r.Passed.Files != now.Files {
		return 0
	}
	return r.Fuzzed
}
