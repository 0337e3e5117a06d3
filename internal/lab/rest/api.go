package rest

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"lateen.dev/lateen/internal/lab/generator"
)

// activeRun is a run under way as the page shows it.
type activeRun struct {
	RunID     int64     `json:"runid"`
	ID        string    `json:"id"`
	State     string    `json:"state"`
	URL       string    `json:"url"`
	Labels    string    `json:"labels"`
	Started   time.Time `json:"started"`
	Wanted    float64   `json:"wanted_qps"` // negative: the maximum rate
	Exactly   int64     `json:"exactly,omitempty"`
	Saved     bool      `json:"saved"`
	Elapsed   float64   `json:"elapsed_s"`
	Expected  float64   `json:"expected_s,omitempty"` // absent where no time ends the run
	*Progress `json:"progress,omitempty"`
}

func (s *Server) activeRuns() []activeRun {
	out := []activeRun{}
	for _, a := range s.runs.Active(0) {
		q := a.Request
		one := activeRun{
			RunID: a.ID, ID: a.Name, State: a.State.String(), URL: q.URL, Labels: q.Labels, Started: a.Started, Wanted: q.QPS, Exactly: q.Exactly, Saved: q.Save,
			Elapsed: s.now().Sub(a.Started).Seconds(), Progress: a.Progress,
		}
		if q.Exactly == 0 && q.Duration > 0 {
			one.Expected = (q.Warmup + q.Duration).Seconds()
		}
		out = append(out, one)
	}
	return out
}

// apiActive is GET /api/active: the runs under way, and the last that came to nothing.
func (s *Server) apiActive(w http.ResponseWriter, _ *http.Request) {
	failures := s.runs.Failures()
	if failures == nil {
		failures = []Failure{}
	}
	reply(w, http.StatusOK, map[string]any{"active": s.activeRuns(), "failures": failures})
}

// apiStart is POST /api/runs: a run that is stored. Its keys are those of Fortio's, in JSON.
func (s *Server) apiStart(w http.ResponseWriter, r *http.Request) {
	asked, err := request(w, r)
	if err == nil {
		asked.Async, asked.Save = true, true
		var run *Run
		if run, err = s.runs.Start(asked); err == nil {
			w.Header().Set("Location", "/api/runs/"+run.Name)
			reply(w, http.StatusCreated, map[string]any{"runid": run.ID, "id": run.Name})
			return
		}
	}
	refuseForm(w, err)
}

// apiRuns is GET /api/runs: the stored results, newest first. One that cannot be read is listed with the reason.
func (s *Server) apiRuns(w http.ResponseWriter, _ *http.Request) {
	names, err := s.store.Names()
	if err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	runs, unread := []*Summary{}, []map[string]string{}
	for _, name := range names {
		summary, err := s.store.Summary(name)
		switch {
		case errors.Is(err, ErrNoResult): // deleted meanwhile
		case err != nil:
			unread = append(unread, map[string]string{"id": name, "error": err.Error()})
		default:
			runs = append(runs, summary)
		}
	}
	reply(w, http.StatusOK, map[string]any{"runs": runs, "unread": unread, "limit": s.store.most})
}

// stored is a stored result, ready for graphs.
type stored struct {
	Summary  *Summary          `json:"summary"`
	Series   []Series          `json:"series"`
	Status   map[string]uint64 `json:"status,omitempty"`
	Errors   map[string]uint64 `json:"errors,omitempty"`
	Warnings []string          `json:"warnings"`
}

func (s *Server) stored(name string) (*stored, error) {
	summary, err := s.store.Summary(name)
	if err != nil {
		return nil, err
	}
	out := &stored{Summary: summary, Warnings: []string{}}
	text, err := s.store.Report(name)
	if errors.Is(err, ErrNoResult) {
		return s.storedElsewhere(out)
	}
	var own ownReport
	if err == nil {
		own, err = generator.Read[ownReport](text)
	}
	if err != nil {
		return nil, fmt.Errorf("read the report of %s: %w", name, err)
	}
	for _, t := range []struct {
		name string
		of   *ownTimes
	}{{"response time", &own.Response}, {"service time", &own.Service}} {
		h, err := t.of.histogram()
		if err != nil {
			return nil, fmt.Errorf("read the report of %s: %w", name, err)
		}
		if h.Count > 0 && own.Counts.OK > 0 { // times of failures alone are not response times
			out.Series = append(out.Series, seriesOf(t.name, h))
		}
	}
	out.Status, out.Errors = own.Status, own.Errors
	out.warn(&own)
	return out, nil
}

// storedElsewhere shows a result that another program left in the directory.
func (s *Server) storedElsewhere(out *stored) (*stored, error) {
	text, err := s.store.Document(out.Summary.ID)
	if err != nil {
		return nil, err
	}
	d, err := readDocument(text)
	if err != nil {
		return nil, fmt.Errorf("result %s: %w", out.Summary.ID, err)
	}
	out.Series = []Series{seriesOf("duration", d.DurationHistogram)}
	out.Warnings = append(out.Warnings, "This result is another program's. Fortio counts from when a request was sent, so time in its own queue is missing, and its buckets blur what lies within them.")
	return out, nil
}

// warn says what a reader must know before he trusts the numbers.
func (o *stored) warn(own *ownReport) {
	say := func(format string, args ...any) { o.Warnings = append(o.Warnings, fmt.Sprintf(format, args...)) }
	if o.Summary.Interrupted {
		say("The run was stopped after %.1f s.", own.Measured)
	}
	if own.Counts.Failed > 0 {
		say("%d requests failed; their times are not in these numbers.", own.Counts.Failed)
	}
	if waiting := own.Counts.Unsent + own.Counts.Unanswered; waiting > 0 {
		say("%d requests were not sent or not answered when the run ended.", waiting)
	}
	if late := own.Lateness.p99(); late > 0.1*own.Response.p99() {
		say("The generator's own lateness (P99 %.3g ms) is more than a tenth of the response time's: compare service times too.", late)
	}
	if n := own.Response.Count; n > 0 && n < 10_000 {
		say("%d answers are too few for a P99: fewer than 100 of them lie beyond it.", n)
	}
}

// apiRun is GET /api/runs/{id}.
func (s *Server) apiRun(w http.ResponseWriter, r *http.Request) {
	out, err := s.stored(r.PathValue("id"))
	if err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	reply(w, http.StatusOK, out)
}

// apiReport is GET /api/runs/{id}/report: the generator's own report.
func (s *Server) apiReport(w http.ResponseWriter, r *http.Request) {
	text, err := s.store.Report(r.PathValue("id"))
	if err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	replyText(w, http.StatusOK, text)
}

// apiDelete is DELETE /api/runs/{id}.
func (s *Server) apiDelete(w http.ResponseWriter, r *http.Request) {
	if err := s.store.Delete(r.PathValue("id")); err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// maxCompared bounds a comparison.
const maxCompared = 50

// compared is one run of a comparison; ratios are to the first, of what both tell.
type compared struct {
	Summary *Summary           `json:"summary"`
	Ratios  map[string]float64 `json:"ratios"`
	Series  []Series           `json:"series"`
}

// apiCompare is GET /api/compare?id=A&id=B...
func (s *Server) apiCompare(w http.ResponseWriter, r *http.Request) {
	ids := r.URL.Query()["id"]
	if len(ids) < 2 || len(ids) > maxCompared {
		err := &Refusal{Message: "parsing id", Cause: fmt.Errorf("%d runs: name from 2 to %d, as id=A&id=B", len(ids), maxCompared)}
		refuse(w, http.StatusBadRequest, err)
		return
	}
	rows := []compared{}
	for _, id := range ids {
		one, err := s.stored(id)
		if err != nil {
			refuse(w, codeOf(err), err)
			return
		}
		row := compared{Summary: one.Summary, Series: one.Series, Ratios: map[string]float64{}}
		base := one.Summary
		if len(rows) > 0 {
			base = rows[0].Summary
		}
		for name, v := range one.Summary.Times {
			if b := base.Times[name]; b > 0 {
				row.Ratios[name] = v / b
			}
		}
		if base.QPS > 0 {
			row.Ratios["qps"] = one.Summary.QPS / base.QPS
		}
		rows = append(rows, row)
	}
	reply(w, http.StatusOK, map[string]any{"runs": rows})
}
