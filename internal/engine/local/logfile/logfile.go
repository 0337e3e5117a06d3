// Package logfile keeps what processes write, in files of bounded size: a log and the one before it. What the lines mean
// and who reads them is the callers' business.
package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Suffix names the log before the current one.
const Suffix = ".1"

// pipeSize is how much a process can write before somebody must read, in bytes: it need not stall when the reader is late.
const pipeSize = 1 << 20

// File is a log. It is safe for concurrent use.
type File struct {
	path  string
	limit int64
	mode  os.FileMode

	mu    sync.Mutex
	file  *os.File // nil until the first write
	size  int64
	start int64 // position of the file's first byte in all that was ever written
	known bool  // the file was looked at once, so that start is right
	times times
	runs  []int64 // positions at which the last two runs of the process began, the older first
}

// New returns a log that goes on in a new file when it has reached limit bytes. It appends to what is there.
func New(path string, limit int64, mode os.FileMode) *File {
	return &File{path: path, limit: limit, mode: mode}
}

// Path is where the current file is.
func (l *File) Path() string { return l.path }

// Write implements io.Writer. A file ends with a whole line unless that line alone is as long as the limit.
func (l *File) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.open(); err != nil {
		return 0, err
	}
	if l.size+int64(len(p)) <= l.limit {
		return l.write(p)
	}
	cut := bytes.LastIndexByte(p, '\n') + 1
	if cut == 0 && l.size < 2*l.limit {
		return l.write(p)
	}
	n, err := l.write(p[:cut])
	if err != nil {
		return n, err
	}
	if err := l.rotate(); err != nil {
		return n, err
	}
	m, err := l.write(p[cut:])
	return n + m, err
}

// Close closes the file; a later write opens it again.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.close()
}

func (l *File) open() error {
	if l.file != nil {
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, l.mode)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	end := l.start + l.size
	l.file = f
	l.place(end, st.Size())
	return nil
}

// place notes the size of the current file, whose last byte is before position end. At first sight the file begins at position 0.
func (l *File) place(end, size int64) {
	if l.known {
		l.start = end - size
	}
	l.known, l.size = true, size
}

func (l *File) write(p []byte) (int, error) {
	n, err := l.file.Write(p)
	if n > 0 {
		l.times.add(l.start+l.size, now())
	}
	l.size += int64(n)
	return n, err
}

func (l *File) rotate() error {
	if err := l.close(); err != nil {
		return err
	}
	if err := os.Rename(l.path, l.path+Suffix); err != nil {
		return err
	}
	l.times.forget(l.start) // the file before this one is gone
	l.start, l.size = l.start+l.size, 0
	return l.open()
}

func (l *File) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// Pipe is the way from a process to its log.
type Pipe struct {
	// Writer is for the process: its stdout and stderr. The starter closes its own copy with Started.
	Writer *os.File
	reader *os.File
	done   chan struct{}

	mu   sync.Mutex
	last []byte // of what the process wrote, at most keptBytes
}

// keptBytes is how much of what a process wrote is remembered, apart from the log that it may share with others.
const keptBytes = 8 << 10

// Pipe opens a way into the log, whose writing end user uid may open again by its name in /dev. Everything that comes is
// read, also while the log cannot be written, so that nobody who writes has to wait.
func (l *File) Pipe(uid int) (*Pipe, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for a log: %w", err)
	}
	if err := w.Chown(uid, uid); err != nil {
		return nil, errors.Join(fmt.Errorf("hand over a log's pipe: %w", err), r.Close(), w.Close())
	}
	// Less room is no error: a limit of the machine's may forbid more.
	if raw, err := r.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
	p := &Pipe{Writer: w, reader: r, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer r.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := r.Read(buf)
			p.keep(buf[:n])
			_, _ = l.Write(buf[:n]) // a full disk or a removed directory costs the lines, not the process that wrote them
			if err != nil {
				return
			}
		}
	}()
	return p, nil
}

func (p *Pipe) keep(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = append(p.last, b...)
	if over := len(p.last) - keptBytes; over > 0 {
		p.last = append(p.last[:0], p.last[over:]...)
	}
}

// Reason is the line that most likely says why the process ended: the last one about an error, else the last one; empty if it wrote nothing.
func (p *Pipe) Reason() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	reason, found := "", false
	for line := range strings.Lines(string(p.last)) {
		line = strings.TrimSpace(line)
		about := strings.Contains(strings.ToLower(line), "error")
		if line != "" && (about || !found) {
			reason, found = line, about
		}
	}
	return reason
}

// Started is called when the process has its copy of the writing end, or will never get one.
func (p *Pipe) Started() { _ = p.Writer.Close() }

// Drain waits until all that was written is in the log: until every copy of the writing end is closed, but not longer
// than patience.
func (p *Pipe) Drain(patience time.Duration) {
	select {
	case <-p.done:
	case <-time.After(patience):
	}
}

// End is a Drain after which nothing more is read.
func (p *Pipe) End(patience time.Duration) {
	_ = p.reader.SetReadDeadline(time.Now().Add(patience)) // fails only if it is closed
	<-p.done
}

// Open opens what there is of a log for reading: the current file, and the one before if there is one.
func Open(path string) (current, before *os.File, err error) {
	if current, err = os.Open(path); err != nil {
		return nil, nil, err
	}
	before, err = os.Open(path + Suffix)
	if err != nil {
		return current, nil, nil
	}
	// The two files are the same if the log was rotated in between.
	a, errA := current.Stat()
	b, errB := before.Stat()
	if errA == nil && errB == nil && os.SameFile(a, b) {
		_ = before.Close()
		return current, nil, nil
	}
	return current, before, nil
}
