package logfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Begin notes that what is written from now on comes from another run of the process.
func (l *File) Begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = append(l.runs, l.start+l.size)
	if len(l.runs) > 2 {
		l.runs = l.runs[1:]
	}
}

// Run is the part of the log that the last run wrote, or the run before the last one: from a position up to another, which is -1
// while the run may go on. It is false if there was no such run.
func (l *File) Run(before bool) (from, to int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.runs)
	switch {
	case before && n == 2:
		return l.runs[0], l.runs[1], true
	case !before && n > 0:
		return l.runs[n-1], -1, true
	}
	return 0, 0, false
}

// Time is when the byte at a position was written, as far as is known; zero if nothing is. It is exact to a millisecond unless
// the log has more than 65,536 writes.
func (l *File) Time(position int64) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.times.of(position)
}

// since returns the position of the first write at or after a time, or the end of the log.
func (l *File) since(when time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.times.from(when); ok {
		return at
	}
	return l.start + l.size
}

// Reader reads a log from a position to its present end, from one file into the next. It is not safe for concurrent use.
type Reader struct {
	log    *File
	file   *os.File
	start  int64 // position of the file's first byte
	at     int64 // position of the next byte
	to     int64 // position of the end, -1 for none
	closed bool  // nothing more comes into the file
}

// Reader opens what there is of the log. It fails with fs.ErrNotExist while nothing was written.
func (l *File) Reader() (*Reader, error) {
	r := &Reader{log: l, to: -1}
	if err := r.seek(0); err != nil {
		return nil, err
	}
	return r, nil
}

// Close closes the file that is read.
func (r *Reader) Close() error { return r.file.Close() }

// At returns the position of the next byte.
func (r *Reader) At() int64 { return r.at }

// Between limits the reader to the bytes between two positions; a second position of -1 means no end.
func (r *Reader) Between(from, to int64) error {
	r.to = to
	return r.seek(from)
}

// Since moves the reader to the first line that begins at or after a time, unless it is further already.
func (r *Reader) Since(when time.Time) error {
	at := r.log.since(when)
	if at <= r.at {
		return nil
	}
	// The write may have ended a line that began before.
	if err := r.seek(at - 1); err != nil {
		return err
	}
	if r.at == at-1 {
		return r.discard(1)
	}
	return nil
}

// Tail goes on to the last n lines, the last of which may still grow.
func (r *Reader) Tail(n int) error {
	// Two passes instead of steps backwards: logs are bounded.
	begin, lines := r.at, 0
	if err := r.eachLine(func(int) bool { lines++; return true }); err != nil {
		return err
	}
	if err := r.seek(begin); err != nil {
		return err
	}
	return r.discard(lines - n)
}

// discard goes on behind n lines.
func (r *Reader) discard(n int) error {
	at := r.at
	if n > 0 {
		if err := r.eachLine(func(length int) bool {
			at += int64(length)
			n--
			return n > 0
		}); err != nil {
			return err
		}
	}
	return r.seek(at)
}

// eachLine passes the lengths of lines on until it is told to stop.
func (r *Reader) eachLine(line func(length int) bool) error {
	b := bufio.NewReaderSize(r, 64<<10)
	length := 0
	for {
		part, err := b.ReadSlice('\n')
		length += len(part)
		switch {
		case err == nil:
			if !line(length) {
				return nil
			}
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

// Read implements io.Reader. After io.EOF it may be called again: the log may have grown.
func (r *Reader) Read(p []byte) (int, error) {
	for {
		if r.to >= 0 {
			if r.at >= r.to {
				return 0, io.EOF
			}
			p = p[:min(int64(len(p)), r.to-r.at)]
		}
		n, err := r.file.Read(p)
		if n > 0 || err != nil && !errors.Is(err, io.EOF) {
			r.at += int64(n)
			return n, err
		}
		// The cases are in this order, because bytes that were written before the rotation are in this file.
		switch {
		case r.closed:
			if err := r.seek(r.at); err != nil {
				return 0, err
			}
		case r.log.left(r.start):
			r.closed = true
		default:
			return 0, io.EOF
		}
	}
}

// left says whether the log has gone on in another file than the one that begins at a position.
func (l *File) left(start int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start != start
}

// seek opens the file that has a position, or the first one that there is after it.
func (r *Reader) seek(position int64) error {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	current, before, err := Open(l.path)
	if err != nil {
		return err
	}
	st, err := current.Stat()
	if err != nil {
		return fmt.Errorf("read a log: %w", err)
	}
	if l.file == nil {
		l.place(l.start+l.size, st.Size())
	}
	file, start := current, l.start
	if before != nil {
		st, err := before.Stat()
		if err != nil {
			return errors.Join(fmt.Errorf("read a log: %w", err), current.Close(), before.Close())
		}
		if position < l.start {
			file, start = before, l.start-st.Size()
			_ = current.Close()
		} else {
			_ = before.Close()
		}
	}
	if r.file != nil {
		_ = r.file.Close()
	}
	r.file, r.start, r.at, r.closed = file, start, max(position, start), start != l.start
	if _, err := file.Seek(r.at-start, io.SeekStart); err != nil {
		return fmt.Errorf("read a log: %w", err)
	}
	return nil
}
