package xds

import (
	"maps"
	"slices"
	"time"

	"lateen.dev/lateen/internal/resourcelog"
)

// builder collects one response within a budget of bytes.
type builder struct {
	response *Response
	budget   int
	size     int
}

// fits accounts for n bytes. The first entry always fits, or nothing would ever be sent.
func (b *builder) fits(n int) bool {
	if b.size > 0 && b.size+n > b.budget {
		return false
	}
	b.size += n
	return true
}

func (b *builder) add(r *resourcelog.Resource) bool {
	if !b.fits(len(r.Frame())) {
		return false
	}
	b.response.Resources = append(b.response.Resources, r)
	return true
}

func (b *builder) remove(name string) bool {
	if !b.fits(len(name) + 4) {
		return false
	}
	b.response.Removed = append(b.response.Removed, name)
	return true
}

// next builds the next response that the gates let through and makes it outstanding. It returns nil if there is nothing to say.
func (w *watch) next(resources, removals gate, budget int, now time.Time) *Response {
	b := &builder{response: &Response{Type: w.kind.TypeURL}, budget: budget}
	settled, current := w.settled, w.current

	// The order matters: a name that departed before this stream began may have come back, and the log says so last.
	departed := w.tellDeparted(b, removals)
	// Policies that must go may wait for Addresses that wait for policies: what is looked up, and what the log says, must not wait in turn.
	told := (departed || w.removals != nil) && w.tellLookups(b, resources) && departed
	var generation uint64
	var complete bool
	if told {
		generation, complete = w.tellLog(b, resources)
		if complete {
			settled = gate{open: true, through: generation}
			w.resumed.retained = nil
			if w.removals == nil || w.tellLate(b, removals) && w.tellRemovals(b, removals) {
				current = settled
			}
		}
	} else if w.removals != nil && w.lookups.len() == 0 {
		if generation, complete = w.tellLog(b, resources); complete {
			settled = gate{open: true, through: generation}
			w.resumed.retained = nil
		}
	}

	// A client that was told to expect more is told when there is no more.
	if b.size == 0 && w.answered && (!w.more || !complete) {
		w.settled, w.current = settled, current
		return nil
	}
	w.answered, w.more = true, !complete
	w.sent = current.through
	w.outstanding = &outstanding{at: now, resources: b.response.Resources, settled: settled, current: current}
	return b.response
}

// tellDeparted removes what the client kept over a reconnect and the mesh did not. It reports whether all was told.
func (w *watch) tellDeparted(b *builder, removals gate) bool {
	if len(w.resumed.departed) == 0 {
		return true
	}
	if !removals.covers(w.resumed.departedGeneration) {
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(w.resumed.departed)) {
		if w.get(name) != nil {
			delete(w.resumed.departed, name) // it is back, and from here on the log tells
			continue
		}
		if !b.remove(name) {
			return false
		}
		w.forget(name)
	}
	return true
}

// forget notes that the client no longer has a name.
func (w *watch) forget(name string) {
	delete(w.resumed.departed, name)
	delete(w.resumed.retained, name)
	delete(w.held, name)
	delete(w.given, name)
	delete(w.broad, name)
	delete(w.late, name)
	delete(w.complaints.refused, name)
}

// give sends a resource and notes what the client has of it now. It reports false if there is no room.
func (w *watch) give(b *builder, r *resourcelog.Resource) bool {
	if !b.add(r) {
		return false
	}
	delete(w.resumed.departed, r.Name)
	delete(w.resumed.retained, r.Name) // what the client had is no longer what it has
	delete(w.late, r.Name)
	delete(w.broad, r.Name)
	if r.Broad {
		w.broad[r.Name] = struct{}{}
	}
	if !w.wildcard {
		w.held[r.Name] = r.Version
	}
	if w.given != nil {
		w.given[r.Name] = struct{}{}
	}
	return true
}

// postpone says whether a resource must come late, and sees to it that it will.
func (w *watch) postpone(r *resourcelog.Resource) bool {
	if _, has := w.broad[r.Name]; !has || r.Broad {
		return false
	}
	w.late[r.Name] = struct{}{}
	return true
}

// tellLate sends what must be named to hold and took the place of something that held unnamed. It reports whether all was told.
func (w *watch) tellLate(b *builder, removals gate) bool {
	for _, name := range slices.Sorted(maps.Keys(w.late)) {
		r, generation := w.find(name)
		if r == nil || r.Broad {
			delete(w.late, name) // it changed once more, and the log tells
			continue
		}
		if !removals.covers(generation) || !w.give(b, r) {
			return false
		}
	}
	return true
}

// tellLookups answers for names that were just subscribed. It reports whether all was told.
func (w *watch) tellLookups(b *builder, resources gate) bool {
	if w.lookups.len() == 0 {
		return true
	}
	// What is looked up is of the present, so the gate must let the present through.
	if _, generation := w.log.Head(w.kind.TypeURL); !resources.covers(generation) {
		return false
	}
	for i, name := range w.lookups.names {
		found := w.lookup(name)
		if len(found) == 0 {
			// So the protocol says that there is no such resource.
			if !b.remove(name) {
				w.lookups.drop(i)
				return false
			}
			w.forget(name)
			continue
		}
		for _, r := range found {
			if version, has := w.held[r.Name]; has && version == r.Version || w.postpone(r) {
				continue
			}
			if !w.give(b, r) {
				// What was added is held by now; the rest of this name comes with the next response.
				w.lookups.drop(i)
				return false
			}
		}
	}
	w.lookups = queue{}
	return true
}

// tellLog sends what the log says after the cursor, and moves it.
func (w *watch) tellLog(b *builder, resources gate) (generation uint64, complete bool) {
	if !resources.open {
		return 0, false
	}
	position := w.cursor.Position()
	generation, complete = w.cursor.Read(resources.through, func(e resourcelog.Event) bool {
		told := true
		switch e = w.see(e); {
		case e.Resource != nil:
			told = w.tellResource(b, e.Resource)
		case w.removals == nil:
			told = w.tellRemoval(b, e)
		}
		if told {
			position = e.Position
		}
		return told
	})
	w.cursor.Seek(position)
	return generation, complete
}

// tellRemovals does the same for a type whose removals have a gate of their own. A gate holds up only what has to pass it:
// without a removal waiting the reading is complete, however closed the gate.
func (w *watch) tellRemovals(b *builder, removals gate) (complete bool) {
	position := w.removals.Position()
	_, complete = w.removals.Read(resourcelog.Forever, func(e resourcelog.Event) bool {
		if e = w.see(e); e.Resource == nil && (!removals.covers(e.Generation) || !w.tellRemoval(b, e)) {
			return false
		}
		position = e.Position
		return true
	})
	w.removals.Seek(position)
	return complete
}

func (w *watch) tellResource(b *builder, r *resourcelog.Resource) bool {
	delete(w.resumed.departed, r.Name) // it is back; if it goes again, the log tells
	if w.wildcard {
		if version, has := w.resumed.retained[r.Name]; has && version == r.Version {
			return true
		}
		return w.postpone(r) || w.give(b, r)
	}
	if !w.wants(r) || w.held[r.Name] == r.Version || w.postpone(r) {
		return true
	}
	_, has := w.held[r.Name]
	if !w.give(b, r) {
		return false
	}
	if !has {
		w.lookups.push(r.Name) // a service that appears brings workloads that were there before
	}
	return true
}

func (w *watch) tellRemoval(b *builder, e resourcelog.Event) bool {
	if _, has := w.given[e.Name]; !has && w.given != nil {
		return true
	}
	if w.wildcard {
		if e.Position <= w.resumed.catchUp {
			return true
		}
	} else if _, has := w.held[e.Name]; !has {
		return true
	}
	if !b.remove(e.Name) {
		return false
	}
	w.forget(e.Name)
	return true
}
