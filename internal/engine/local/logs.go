package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/logfile"
)

// followPoll is how often a followed log is looked at.
const followPoll = 50 * time.Millisecond

// serveLogs sends the log of a container.
func (a *podAccess) serveLogs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a.state.mu.Lock()
	p, _, err := a.targetSteered(r.Context(), q.Get("namespace"), q.Get("target"))
	var c *container
	if err == nil {
		c, err = p.containerOf(q.Get("container"))
	}
	again := err == nil && c.waiting == crashLoop
	a.state.mu.Unlock()
	if err != nil {
		fail(w, err)
		return
	}
	s := logSource{log: c.log, done: p.done}
	s.previous = func() (from, to int64, err error) {
		// Between two runs the one that has ended is the previous one.
		from, to, ok := c.log.Run(!again)
		if !ok {
			return 0, 0, &api.Error{Code: http.StatusBadRequest, Message: fmt.Sprintf("container %s of pod %s has no previous run: it was not restarted", c.spec.Name, p.id.name), Fix: "leave out --previous"}
		}
		return from, to, nil
	}
	s.serve(w, r)
}

// serveDaemonLog sends the log of a part of the mesh.
func serveDaemonLog(w http.ResponseWriter, r *http.Request, d *daemon) {
	if d == nil {
		fail(w, &api.Error{Code: http.StatusConflict, Message: "this part of the mesh was not started yet", Fix: "try again when the mesh is up"})
		return
	}
	logSource{log: d.output, previous: func() (int64, int64, error) {
		return 0, 0, &api.Error{Code: http.StatusBadRequest, Message: "the parts of the mesh have one log over all their runs", Fix: "leave out --previous"}
	}}.serve(w, r)
}

// logSource is a log that can be asked for.
type logSource struct {
	log      *logfile.File
	done     <-chan struct{}                    // closed when nothing more is written; nil for never
	previous func() (from, to int64, err error) // the part that the previous run wrote
}

// logRequest is how much of a log is asked for.
type logRequest struct {
	follow, previous, timestamps bool
	tail                         int       // last lines; 0 is all
	since                        time.Time // zero is all
}

func readLogRequest(q url.Values) (logRequest, error) {
	r := logRequest{follow: q.Get("follow") == "true", previous: q.Get("previous") == "true", timestamps: q.Get("timestamps") == "true"}
	var err error
	if s := q.Get("tail"); s != "" {
		if r.tail, err = strconv.Atoi(s); err != nil || r.tail < 0 {
			return r, &api.Error{Code: http.StatusBadRequest, Message: "tail " + s + " is not a number of lines"}
		}
	}
	if s := q.Get("since"); s != "" {
		if r.since, err = time.Parse(time.RFC3339Nano, s); err != nil {
			return r, &api.Error{Code: http.StatusBadRequest, Message: "since " + s + " is not a time as in RFC 3339"}
		}
	}
	return r, nil
}

// serve sends the part of the log that is asked for, and with follow what is added until the client goes or done is closed.
func (s logSource) serve(w http.ResponseWriter, r *http.Request) {
	request, err := readLogRequest(r.URL.Query())
	if err != nil {
		fail(w, err)
		return
	}
	log, err := s.open(r.Context(), request)
	if errors.Is(err, fs.ErrNotExist) {
		return // nothing was written yet
	} else if err != nil {
		fail(w, err)
		return
	}
	defer log.Close()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := io.Writer(w)
	if request.timestamps {
		out = &stamping{w: w, log: s.log, at: log.At(), begun: true}
	}
	flush := http.NewResponseController(w)
	if _, err := io.Copy(out, log); err != nil {
		return
	}
	for request.follow && !request.previous && flush.Flush() == nil {
		ended := false
		select {
		case <-r.Context().Done():
			return
		case <-s.done:
			ended = true
		case <-time.After(followPoll):
		}
		if _, err := io.Copy(out, log); err != nil || ended {
			return
		}
	}
}

// open returns a reader at the first byte of what is asked for; with follow it waits until there is a log.
func (s logSource) open(ctx context.Context, request logRequest) (*logfile.Reader, error) {
	from, to := int64(0), int64(-1)
	if request.previous {
		var err error
		if from, to, err = s.previous(); err != nil {
			return nil, err
		}
	}
	log, err := s.await(ctx, request.follow)
	if err != nil {
		return nil, err
	}
	if request.previous {
		err = log.Between(from, to)
	}
	if err == nil && !request.since.IsZero() {
		err = log.Since(request.since)
	}
	if err == nil && request.tail > 0 {
		err = log.Tail(request.tail)
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return log, nil
}

func (s logSource) await(ctx context.Context, wait bool) (*logfile.Reader, error) {
	for {
		log, err := s.log.Reader()
		if !wait || !errors.Is(err, fs.ErrNotExist) {
			return log, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-s.done:
			return nil, err
		case <-time.After(followPoll):
		}
	}
}

// stamping writes a log with the time of each line in front, as kubectl logs --timestamps does.
type stamping struct {
	w     io.Writer
	log   *logfile.File
	at    int64 // position of the next byte
	begun bool  // the next byte begins a line
}

// Write implements io.Writer.
func (s *stamping) Write(p []byte) (int, error) {
	var out bytes.Buffer
	for rest := p; len(rest) > 0; {
		if s.begun {
			if at := s.log.Time(s.at); !at.IsZero() {
				out.WriteString(at.UTC().Format("2006-01-02T15:04:05.000000000Z07:00 "))
			}
		}
		line := rest
		end := bytes.IndexByte(rest, '\n')
		if s.begun = end >= 0; s.begun {
			line = rest[:end+1]
		}
		out.Write(line)
		s.at += int64(len(line))
		rest = rest[len(line):]
	}
	if _, err := s.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}
