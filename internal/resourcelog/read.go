package resourcelog

import "sort"

// Event is one thing a reader has to know: a resource, or the removal of a name.
type Event struct {
	Position   uint64
	Generation uint64
	Name       string
	Resource   *Resource // nil: removed
}

// Head is the end of a type's log: the position of its last entry and the generation of the whole log.
func (l *Log) Head(typeURL string) (position, generation uint64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.types[typeURL].next - 1, l.generation
}

// Read calls visit for each entry that counts after the cursor, up to and including a generation, in order, until visit
// returns false. It does not move the cursor. It returns the log's generation, and whether the reader that took all it was shown
// is up to date with that. A reading that left anything out brings its reader to no generation at all: an entry that is missing
// may stand for an earlier one of the same name. visit must not call the log.
func (c *Cursor) Read(through uint64, visit func(Event) bool) (generation uint64, complete bool) {
	c.log.mu.RLock()
	defer c.log.mu.RUnlock()
	t := c.log.types[c.typeURL]
	from := c.position.Load()
	i := sort.Search(len(t.entries), func(i int) bool { return t.entries[i].position > from })
	for _, e := range t.entries[i:] {
		if e.superseded {
			continue
		}
		if e.generation > through || !visit(Event{Position: e.position, Generation: e.generation, Name: e.name, Resource: e.resource}) {
			return c.log.generation, false
		}
	}
	return c.log.generation, true
}
