package resourcelog

import (
	"maps"
	"math"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// Forever is a generation that no log reaches.
const Forever = math.MaxUint64

// Change sets a resource of a type, or removes it when Resource is nil.
type Change struct {
	Type     string
	Name     string
	Resource *Resource
}

// Log holds one log per type; all of them share the generations. One goroutine appends; any number read.
type Log struct {
	now   func() time.Time
	kinds *Kinds

	mu         sync.RWMutex
	generation uint64
	types      map[string]*typeLog
	changed    chan struct{} // closed when something is appended
}

// typeLog is the log of one type. Every name has at most one entry that counts, its last.
type typeLog struct {
	entries []entry        // ascending by position
	last    map[string]int // name → index of its entry that counts
	live    int            // names that exist
	index   *nameIndex
	next    uint64 // position of the next entry; positions start at 1
	marks   []mark
	cursors map[*Cursor]struct{}
}

// entry is one event of the log.
type entry struct {
	position   uint64
	generation uint64
	name       string
	resource   *Resource // nil: the name was removed
	superseded bool
}

// mark remembers when a generation brought something new, for measuring how long it takes to arrive.
type mark struct {
	generation uint64
	at         time.Time
}

// keptMarks bounds the memory for marks; a client further behind than that is measured from the oldest kept.
const keptMarks = 1024

// New returns a log of the given kinds. now is the clock by which delays are measured.
func New(now func() time.Time, kinds *Kinds) *Log {
	l := &Log{now: now, kinds: kinds, types: map[string]*typeLog{}, changed: make(chan struct{})}
	for _, k := range kinds.All() {
		l.types[k.TypeURL] = &typeLog{last: map[string]int{}, index: newNameIndex(), next: 1, cursors: map[*Cursor]struct{}{}}
	}
	return l
}

// Kinds is the registry of the kinds that the log serves.
func (l *Log) Kinds() *Kinds { return l.kinds }

// Types lists the type URLs that the log serves, sorted by name.
func (l *Log) Types() []string { return slices.Sorted(maps.Keys(l.types)) }

// Append adds a generation, which must be greater than the last. Changes that change nothing are dropped; it
// reports how many were not.
func (l *Log) Append(generation uint64, changes []Change) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.generation = generation
	appended := 0
	for _, c := range changes {
		if t := l.types[c.Type]; t != nil && t.append(generation, c) {
			appended++
			if len(t.marks) == 0 || t.marks[len(t.marks)-1].generation != generation {
				if len(t.marks) == keptMarks {
					t.marks = slices.Delete(t.marks, 0, keptMarks/2)
				}
				t.marks = append(t.marks, mark{generation, l.now()})
			}
		}
	}
	for _, t := range l.types {
		t.compact()
	}
	if appended > 0 {
		close(l.changed)
		l.changed = make(chan struct{})
	}
	return appended
}

func (t *typeLog) append(generation uint64, c Change) bool {
	at, known := t.last[c.Name]
	var old *Resource
	if known {
		old = t.entries[at].resource
	}
	switch {
	case old == nil && c.Resource == nil:
		return false
	case old != nil && c.Resource != nil && old.Version == c.Resource.Version:
		if !slices.Equal(old.Sources, c.Resource.Sources) {
			// Another object says the same now: clients have nothing to hear, its author may.
			same := *old
			same.Sources = c.Resource.Sources
			t.entries[at].resource = &same
		}
		return false
	}
	if known {
		t.entries[at].superseded = true
		t.entries[at].resource = nil
	}
	if old != nil {
		t.index.remove(old)
		t.live--
	}
	if c.Resource != nil {
		t.index.add(c.Resource)
		t.live++
	}
	t.last[c.Name] = len(t.entries)
	t.entries = append(t.entries, entry{position: t.next, generation: generation, name: c.Name, resource: c.Resource})
	t.next++
	return true
}

// compact drops superseded entries, and removals that every cursor has passed, once they outnumber what is live.
func (t *typeLog) compact() {
	if len(t.entries) < 64 || len(t.entries) < 2*t.live {
		return
	}
	passed := t.next - 1
	for c := range t.cursors {
		passed = min(passed, c.position.Load())
	}
	kept := make([]entry, 0, t.live)
	for _, e := range t.entries {
		switch {
		case e.superseded:
		case e.resource == nil && e.position <= passed:
			delete(t.last, e.name)
		default:
			t.last[e.name] = len(kept)
			kept = append(kept, e)
		}
	}
	t.entries = kept
}

// Changed returns a channel that is closed at the next append that changes anything. Take it before reading: then nothing is missed.
func (l *Log) Changed() <-chan struct{} {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.changed
}

// Generation is the last one appended.
func (l *Log) Generation() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.generation
}

// Live returns all resources of a type, in log order.
func (l *Log) Live(typeURL string) []*Resource {
	l.mu.RLock()
	defer l.mu.RUnlock()
	t := l.types[typeURL]
	if t == nil {
		return nil
	}
	out := make([]*Resource, 0, t.live)
	for _, e := range t.entries {
		if e.resource != nil {
			out = append(out, e.resource)
		}
	}
	return out
}

// Len is the number of live resources of a type.
func (l *Log) Len(typeURL string) int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if t := l.types[typeURL]; t != nil {
		return t.live
	}
	return 0
}

// Get returns one live resource by its own name, or nil.
func (l *Log) Get(typeURL, name string) *Resource {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if t := l.types[typeURL]; t != nil {
		return t.get(name)
	}
	return nil
}

// Find returns one live resource by its own name and the generation that brought it, or nil.
func (l *Log) Find(typeURL, name string) (r *Resource, generation uint64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	t := l.types[typeURL]
	if t == nil {
		return nil, 0
	}
	at, ok := t.last[name]
	if !ok {
		return nil, 0
	}
	return t.entries[at].resource, t.entries[at].generation
}

func (t *typeLog) get(name string) *Resource {
	if at, ok := t.last[name]; ok {
		return t.entries[at].resource
	}
	return nil
}

// FirstAfter tells when the first generation after the given one changed a type; ok is false if none did.
func (l *Log) FirstAfter(typeURL string, generation uint64) (at time.Time, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	t := l.types[typeURL]
	if t == nil {
		return time.Time{}, false
	}
	i := sort.Search(len(t.marks), func(i int) bool { return t.marks[i].generation > generation })
	if i == len(t.marks) {
		return time.Time{}, false
	}
	return t.marks[i].at, true
}

// Cursor is a reader's position in the log of one type: it has read all entries up to and including it.
// While a cursor is open, no removal that lies ahead of it is forgotten.
type Cursor struct {
	log      *Log
	typeURL  string
	position atomic.Uint64
}

// Open returns a cursor at the beginning of a type's log.
func (l *Log) Open(typeURL string) *Cursor {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &Cursor{log: l, typeURL: typeURL}
	l.types[typeURL].cursors[c] = struct{}{}
	return c
}

// Close lets go of the log. Closing twice is harmless.
func (c *Cursor) Close() {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	delete(c.log.types[c.typeURL].cursors, c)
}

// Position is the last entry read.
func (c *Cursor) Position() uint64 { return c.position.Load() }

// Seek moves the cursor forward; it never goes back, because what it passed may be forgotten. Rewind is the exception.
func (c *Cursor) Seek(position uint64) {
	if position > c.position.Load() {
		c.position.Store(position)
	}
}

// Rewind goes back to the beginning. The reader must treat what follows as a first reading: removals it had passed may be gone.
func (c *Cursor) Rewind() { c.position.Store(0) }
