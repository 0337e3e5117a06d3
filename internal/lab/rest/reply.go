package rest

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// serverReply is what Fortio's answers begin with; alone it is a refusal.
type serverReply struct {
	Error            bool   `json:"error,omitempty"`
	Message          string `json:"message,omitempty"`
	Exception        string `json:"exception,omitempty"`
	ExceptionDetails any    `json:"exceptionDetails,omitempty"`
}

// formReply refuses what a form has sent. Fortio's reply names the parser; a form has labels.
type formReply struct {
	serverReply
	// Key is the value that was refused, by its name in the request, and Advice says why in plain words.
	Key    string `json:"key,omitempty"`
	Advice string `json:"advice"`
}

// asyncReply answers the start of a run that nobody waits for, and a stop.
type asyncReply struct {
	serverReply
	RunID     int64
	Count     int
	ResultID  string
	ResultURL string
}

// statusReply lists runs under way by their number; one that is not there is null.
type statusReply struct {
	serverReply
	Statuses map[int64]*status
}

type status struct {
	RunID         int64
	State         State
	RunnerOptions *runnerOptions
}

// runnerOptions is Fortio's periodic.RunnerOptions.
type runnerOptions struct {
	RunType     string
	QPS         float64
	Duration    time.Duration
	NumThreads  int
	Percentiles []float64
	Resolution  float64
	Labels      string
	Exactly     int64
	Jitter      bool
	Uniform     bool
	RunID       int64
	Offset      time.Duration
	NoCatchUp   bool
	ID          string
}

func statusOf(a Active) *status {
	q := a.Request
	return &status{RunID: a.ID, State: a.State, RunnerOptions: &runnerOptions{
		RunType: q.RunType(), QPS: q.QPS, Duration: q.Duration, NumThreads: q.Connections, Percentiles: q.Percentiles, Resolution: q.Resolution, Labels: q.Labels,
		Exactly: q.Exactly, Jitter: q.Jitter, Uniform: q.Uniform, RunID: a.ID, NoCatchUp: q.NoCatchUp, ID: a.Name,
	}}
}

// reply writes an answer as JSON.
func reply(w http.ResponseWriter, code int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		code, text = http.StatusInternalServerError, []byte(`{"error":true,"message":"the answer cannot be written as JSON"}`)
		slog.Error("answer cannot be written", "error", err)
	}
	replyText(w, code, text)
}

func replyText(w http.ResponseWriter, code int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text) // who asked may have gone
}

// refuse answers with an error as Fortio writes it.
func refuse(w http.ResponseWriter, code int, err error) { reply(w, code, refusalReply(err)) }

// refuseForm answers a form with an error about one of its fields.
func refuseForm(w http.ResponseWriter, err error) {
	out := formReply{serverReply: refusalReply(err), Advice: err.Error()}
	var refusal *Refusal
	if errors.As(err, &refusal) && refusal.Key != "" {
		out.Key, out.Advice = refusal.Key, refusal.Advice
		if out.Advice == "" {
			out.Advice = refusal.Cause.Error()
		}
	}
	reply(w, codeOf(err), out)
}

func refusalReply(err error) serverReply {
	out := serverReply{Error: true, Message: err.Error()}
	var refusal *Refusal
	if errors.As(err, &refusal) {
		out.Message = refusal.Message
		if refusal.Cause != nil {
			out.Exception, out.ExceptionDetails = refusal.Cause.Error(), details(refusal.Cause)
		}
	}
	return out
}

// details are an error's fields, of which most have none that anyone else can see.
func details(err error) any {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return map[string]int64{"Offset": syntax.Offset}
	}
	return struct{}{}
}

// codeOf is the status that goes with an error.
func codeOf(err error) int {
	switch {
	case errors.Is(err, ErrBusy):
		return http.StatusTooManyRequests
	case errors.Is(err, ErrNoResult):
		return http.StatusNotFound
	}
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// resultURL is where a result can be fetched, as the one who asks reaches this server.
func resultURL(r *http.Request, name string) string {
	if name == "" {
		return ""
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return strings.Join([]string{scheme + "://" + r.Host, "fortio", "data", name + ".json"}, "/")
}
