package logfile

import (
	"slices"
	"time"
)

const (
	// resolution is the least time between two marks: writes that follow faster count as one.
	resolution = time.Millisecond
	// maxMarks bounds the marks of one log: 16 bytes each. Every second one goes when there are more.
	maxMarks = 1 << 16
)

// now is the clock of the marks.
var now = time.Now

// times knows when the bytes of a log were written, by marks at the positions where writes began.
type times struct {
	marks []mark // by position
}

// mark says that what follows a position was written at a time or later.
type mark struct {
	at    int64 // position
	nanos int64 // since 1970
}

// add notes that a write begins at a position.
func (t *times) add(at int64, when time.Time) {
	nanos := when.UnixNano()
	if n := len(t.marks); n > 0 {
		// A clock that was set back does not make later lines older.
		nanos = max(nanos, t.marks[n-1].nanos)
		if nanos-t.marks[n-1].nanos < int64(resolution) {
			return
		}
	}
	if len(t.marks) >= maxMarks {
		kept := t.marks[:0]
		for i := 0; i < len(t.marks); i += 2 {
			kept = append(kept, t.marks[i])
		}
		t.marks = kept
	}
	t.marks = append(t.marks, mark{at, nanos})
}

// forget drops the marks of what was written before a position.
func (t *times) forget(before int64) {
	i, found := slices.BinarySearchFunc(t.marks, before, func(m mark, at int64) int { return int(min(max(m.at-at, -1), 1)) })
	if !found && i > 0 {
		i-- // the write that goes on at the position
	}
	t.marks = slices.Delete(t.marks, 0, i)
}

// of returns the time at which the byte at a position was written; zero if no mark is known.
func (t *times) of(at int64) time.Time {
	i, found := slices.BinarySearchFunc(t.marks, at, func(m mark, at int64) int { return int(min(max(m.at-at, -1), 1)) })
	if !found && i > 0 {
		i--
	}
	if i == len(t.marks) {
		return time.Time{}
	}
	return time.Unix(0, t.marks[i].nanos)
}

// from returns the position of the first write at or after a time; false if there was none.
func (t *times) from(when time.Time) (int64, bool) {
	i, _ := slices.BinarySearchFunc(t.marks, when.UnixNano(), func(m mark, nanos int64) int { return int(min(max(m.nanos-nanos, -1), 1)) })
	if i == len(t.marks) {
		return 0, false
	}
	return t.marks[i].at, true
}
