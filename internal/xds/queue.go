package xds

import "slices"

// queue holds names in the order in which they came, each once: a client may ask for one name as often as it likes.
type queue struct {
	names []string
	in    map[string]struct{}
}

func (q *queue) len() int { return len(q.names) }

func (q *queue) push(name string) {
	if _, has := q.in[name]; has {
		return
	}
	if q.in == nil {
		q.in = map[string]struct{}{}
	}
	q.in[name] = struct{}{}
	q.names = append(q.names, name)
}

// drop takes away the first n names.
func (q *queue) drop(n int) {
	for _, name := range q.names[:n] {
		delete(q.in, name)
	}
	q.names = q.names[n:]
}

// keep takes away the names for which wanted is false.
func (q *queue) keep(wanted func(string) bool) {
	q.names = slices.DeleteFunc(q.names, func(name string) bool {
		if wanted(name) {
			return false
		}
		delete(q.in, name)
		return true
	})
}
