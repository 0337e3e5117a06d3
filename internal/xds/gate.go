package xds

import (
	"slices"
	"time"

	"lateen.dev/lateen/internal/resourcelog"
)

// gate is the generation through which something may be sent. While it is not open, nothing may be, not even of generation 0.
type gate struct {
	open    bool
	through uint64
}

var openGate = gate{open: true, through: resourcelog.Forever}

func (g gate) covers(generation uint64) bool { return g.open && generation <= g.through }

// and is the gate that lets through what both gates let through.
func (g gate) and(h gate) gate {
	if !g.open || !h.open {
		return gate{}
	}
	return gate{open: true, through: min(g.through, h.through)}
}

// gates returns the gates of a type's resources and of its removals, as its kind declares them.
func (s *Session) gates(w *watch, now time.Time) (resources, removals gate) {
	resources = openGate
	for _, before := range s.order {
		if before.kind.Order >= w.kind.Order {
			break
		}
		resources = resources.and(before.settled)
	}
	grace := now.Sub(w.since) < s.limits.TypeGrace
	if grace && !w.answered && s.namedKindMissing(w) {
		return gate{}, gate{}
	}
	if len(w.kind.RemovedAfter) == 0 {
		return resources, resources
	}
	removals = openGate
	for _, url := range w.kind.RemovedAfter {
		switch naming := s.watch[url]; {
		case naming != nil:
			removals = removals.and(naming.passed())
		case grace:
			return resources, gate{} // resources that the client kept may name what it must not lose yet
		}
	}
	return resources, removals
}

// passed is the generation through which nothing that the client has of a type is to change any more.
func (w *watch) passed() gate {
	// Where no resource has to change first, a removal of another kind comes with what else changes of that, not after it.
	if w.answered && w.outstanding == nil && w.lookups.len()+len(w.resumed.departed) == 0 {
		if generation, ok := w.upToDate(); ok {
			return gate{open: true, through: generation}
		}
	}
	return w.settled
}

// namedKindMissing says whether the client does not follow a kind that the type's resources may name.
func (s *Session) namedKindMissing(w *watch) bool {
	for _, k := range s.log.Kinds().All() {
		if k.Order >= w.kind.Order {
			return false
		}
		if k.Serves(w.caller) && slices.Contains(k.RemovedAfter, w.kind.TypeURL) && s.watch[k.TypeURL] == nil {
			return true
		}
	}
	return false
}

// partnerMissing says whether the client does not follow a kind that names this one, or that this one names.
func (s *Session) partnerMissing(w *watch) bool {
	return s.namedKindMissing(w) || slices.ContainsFunc(w.kind.RemovedAfter, func(url string) bool { return s.watch[url] == nil })
}
