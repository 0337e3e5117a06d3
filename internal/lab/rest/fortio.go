package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// body reads a request's body within its bounds.
func body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		return nil, &Refusal{Message: "body read error", Cause: err}
	}
	return text, nil
}

// request reads the run that an HTTP request asks for.
func request(w http.ResponseWriter, r *http.Request) (*Request, error) {
	text, err := body(w, r)
	if err != nil {
		return nil, err
	}
	return ParseRequest(r.URL.Query(), text)
}

// fortioRun is /fortio/rest/run: it answers with the run's result, or at once when async is on.
func (s *Server) fortioRun(w http.ResponseWriter, r *http.Request) {
	asked, err := request(w, r)
	if err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	asked.InitialErrors = true // Fortio's runs begin whatever the target is like
	run, err := s.runs.Start(asked)
	if err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	if asked.Async {
		reply(w, http.StatusOK, asyncReply{serverReply: serverReply{Message: "started"}, RunID: run.ID, Count: 1, ResultID: run.Name, ResultURL: resultURL(r, run.Name)})
		return
	}
	document, err := run.Wait(r.Context())
	s.answerNow(w)
	switch {
	case r.Context().Err() != nil:
		// Nobody would see a result that is not stored.
		if !asked.Save {
			s.runs.Stop(run.ID)
		}
	case err != nil:
		refuse(w, http.StatusBadRequest, &Refusal{Message: "Aborting because of error", Cause: err})
	default:
		replyText(w, http.StatusOK, document)
	}
}

// fortioStatus is /fortio/rest/status: of one run, or of all.
func (s *Server) fortioStatus(w http.ResponseWriter, r *http.Request) {
	id, err := values{query: r.URL.Query()}.runID()
	if err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	out := statusReply{}
	active := s.runs.Active(id)
	if id == 0 || len(active) > 0 {
		out.Statuses = map[int64]*status{}
	}
	for _, a := range active {
		out.Statuses[a.ID] = statusOf(a)
	}
	reply(w, http.StatusOK, out)
}

// fortioStop is /fortio/rest/stop: of one run, or of all; with wait it answers when the run has ended.
func (s *Server) fortioStop(w http.ResponseWriter, r *http.Request) {
	v := values{query: r.URL.Query()}
	id, err := v.runID()
	if err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	wait, err := v.text("wait")
	if err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	stopped := s.runs.Stop(id)
	out := asyncReply{serverReply: serverReply{Message: Stopping.String()}, RunID: id, Count: len(stopped)}
	if len(stopped) == 1 {
		out.ResultID, out.ResultURL = stopped[0].Name, resultURL(r, stopped[0].Name)
	}
	if wait != "" && wait != "off" && wait != "false" {
		for _, run := range stopped {
			if _, err := run.Wait(r.Context()); errors.Is(err, context.Canceled) && r.Context().Err() != nil {
				return
			}
		}
		s.answerNow(w)
		if len(stopped) == 1 {
			out.Message = Stopped.String()
		}
	}
	reply(w, http.StatusOK, out)
}

// fortioData is /fortio/data/ID.json: a stored result.
func (s *Server) fortioData(w http.ResponseWriter, r *http.Request) {
	name, ok := cutJSON(r.PathValue("file"))
	text, err := s.store.Document(name)
	if !ok || errors.Is(err, ErrNoResult) {
		http.NotFound(w, r)
		return
	}
	if err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	replyText(w, http.StatusOK, text)
}

// fortioIndex is /fortio/data/: links to the stored results.
func (s *Server) fortioIndex(w http.ResponseWriter, _ *http.Request) {
	names, err := s.store.Names()
	if err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=UTF-8")
	_, _ = io.WriteString(w, "<html><body><ul>\n")
	for _, name := range names { // letters, digits, - and _ alone
		_, _ = fmt.Fprintf(w, "<li><a href=\"%s.json\">%s</a>\n", name, name)
	}
	_, _ = io.WriteString(w, "</ul></body></html>")
}
