package local

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/logfile"
)

// followPoll is how often a followed log is looked at.
const followPoll = 50 * time.Millisecond

func (e *Engine) serveLogs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	e.mu.Lock()
	p, _, err := e.targetSteered(r.Context(), q.Get("namespace"), q.Get("target"))
	var c *container
	if err == nil {
		c, err = p.containerOf(q.Get("container"))
	}
	e.mu.Unlock()
	if err != nil {
		fail(w, err)
		return
	}
	serveLog(w, r, c.log.Path(), p.done)
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
	f, before, err := openLog(r.Context(), path, follow, done)
	if errors.Is(err, fs.ErrNotExist) {
		return // nothing was written yet
	} else if err != nil {
		fail(w, err)
		return
	}
	defer func() { f.Close() }()
	parts := []io.ReadSeeker{f}
	if before != nil {
		defer before.Close()
		parts = []io.ReadSeeker{before, f}
	}
	if lines > 0 {
		if err := seekLastLines(lines, parts...); err != nil {
			fail(w, err)
			return
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	flush := http.NewResponseController(w)
	for _, part := range parts {
		if _, err := io.Copy(w, part); err != nil {
			return
		}
	}
	for follow && flush.Flush() == nil {
		ended := false
		select {
		case <-r.Context().Done():
			return
		case <-done:
			ended = true
		case <-time.After(followPoll):
		}
		// In this order: what is written before it goes on in the next file is in this one.
		next := logfile.Next(path, f)
		if _, err := io.Copy(w, f); err != nil {
			return
		}
		if next != nil {
			f.Close()
			f = next
			if _, err := io.Copy(w, f); err != nil {
				return
			}
		}
		if ended {
			return
		}
	}
}

// openLog opens a log and the file before it, if any; with wait it waits until there is a log.
func openLog(ctx context.Context, path string, wait bool, done <-chan struct{}) (current, before *os.File, err error) {
	for {
		current, before, err = logfile.Open(path)
		if !wait || !errors.Is(err, fs.ErrNotExist) {
			return current, before, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, err
		case <-done:
			return nil, nil, err
		case <-time.After(followPoll):
		}
	}
}

// seekLastLines moves to the start of the last n lines of files that follow each other, the last of which may still grow.
func seekLastLines(n int, files ...io.ReadSeeker) error {
	// Two passes over a file instead of clever steps backwards: logs are bounded.
	for _, f := range slices.Backward(files) {
		count := 0
		if err := eachLine(f, func(int) { count++ }); err != nil {
			return err
		}
		skip := max(count-n, 0)
		n -= count - skip
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
		if _, err := f.Seek(at, io.SeekStart); err != nil {
			return err
		}
	}
	return nil
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
