package xds

import (
	"slices"

	"lateen.dev/lateen/internal/resourcelog"
)

// The watch reads the log through the methods below. Of a kind with an audience they leave out what the caller may not have, so that it
// looks like a resource that does not exist.

// see returns an event of the log as the caller may see it. A resource that the caller may not have is a removal.
func (w *watch) see(e resourcelog.Event) resourcelog.Event {
	if e.Resource != nil && !w.kind.Admits(w.caller, e.Resource) {
		e.Resource = nil
	}
	return e
}

// get returns one live resource, or nil.
func (w *watch) get(name string) *resourcelog.Resource {
	r, _ := w.find(name)
	return r
}

// find returns one live resource and the generation that brought it, or nil.
func (w *watch) find(name string) (r *resourcelog.Resource, generation uint64) {
	r, generation = w.log.Find(w.kind.TypeURL, name)
	if r == nil || !w.kind.Admits(w.caller, r) {
		return nil, 0
	}
	return r, generation
}

// lookup returns what a client that asked for a name needs.
func (w *watch) lookup(name string) []*resourcelog.Resource {
	found := w.log.Lookup(w.kind.TypeURL, name)
	if w.kind.Audience == nil {
		return found
	}
	return slices.DeleteFunc(found, func(r *resourcelog.Resource) bool { return !w.kind.Admits(w.caller, r) })
}

// onNode names what the proxy of the watch's node needs without asking for it, sorted.
func (w *watch) onNode() []string {
	names := w.log.OnNode(w.kind.TypeURL, w.node)
	if w.kind.Audience == nil {
		return names
	}
	return slices.DeleteFunc(names, func(name string) bool { return w.get(name) == nil })
}
