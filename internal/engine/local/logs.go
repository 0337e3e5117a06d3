package local

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// followPoll is how often a followed log is looked at.
const followPoll = 50 * time.Millisecond

func (e *Engine) serveLogs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	e.mu.Lock()
	p, _, err := e.target(q.Get("namespace"), q.Get("target"))
	var c *container
	if err == nil {
		c, err = p.containerOf(q.Get("container"))
	}
	e.mu.Unlock()
	if err != nil {
		fail(w, err)
		return
	}
	serveLog(w, r, c.logPath, p.done)
}

// serveLog sends a log: all of it or its last lines, and with follow what is added until the asker goes or done is closed.
func serveLog(w http.ResponseWriter, r *http.Request, path string, done <-chan struct{}) {
	q := r.URL.Query()
	lines := 0
	if s := q.Get("tail"); s != "" {
		var err error
		if lines, err = strconv.Atoi(s); err != nil || lines < 0 {
			fail(w, &api.Error{Code: http.StatusBadRequest, Message: "tail " + s + " is not a number of lines"})
			return
		}
	}
	follow := q.Get("follow") == "true"
	f, err := openLog(r.Context(), path, follow, done)
	if errors.Is(err, fs.ErrNotExist) {
		return // nothing was written yet
	} else if err != nil {
		fail(w, err)
		return
	}
	defer f.Close()
	if lines > 0 {
		if err := seekLastLines(f, lines); err != nil {
			fail(w, err)
			return
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	flush := http.NewResponseController(w)
	for {
		if _, err := io.Copy(w, f); err != nil {
			return
		}
		if !follow || flush.Flush() != nil {
			return
		}
		// A log that was cut goes on at its new start.
		if at, err := f.Seek(0, io.SeekCurrent); err == nil {
			if st, err := f.Stat(); err == nil && st.Size() < at {
				_, _ = f.Seek(0, io.SeekStart)
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-done:
			_, _ = io.Copy(w, f)
			return
		case <-time.After(followPoll):
		}
	}
}

// openLog opens a log; with wait it waits until there is one.
func openLog(ctx context.Context, path string, wait bool, done <-chan struct{}) (*os.File, error) {
	for {
		f, err := os.Open(path)
		if !wait || !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-done:
			return nil, err
		case <-time.After(followPoll):
		}
	}
}

// seekLastLines moves to the start of the last n lines.
func seekLastLines(f io.ReadSeeker, n int) error {
	// Two passes over the file instead of clever steps backwards: logs are bounded.
	count := 0
	if err := eachLine(f, func(int) { count++ }); err != nil {
		return err
	}
	skip := max(count-n, 0)
	var at int64
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	i := 0
	if err := eachLine(f, func(length int) {
		if i < skip {
			at += int64(length)
		}
		i++
	}); err != nil {
		return err
	}
	_, err := f.Seek(at, io.SeekStart)
	return err
}

func eachLine(r io.Reader, line func(length int)) error {
	b := bufio.NewReaderSize(r, 64<<10)
	length := 0
	for {
		part, err := b.ReadSlice('\n')
		length += len(part)
		switch {
		case err == nil:
			line(length)
			length = 0
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			if length > 0 {
				line(length)
			}
			return nil
		default:
			return err
		}
	}
}
