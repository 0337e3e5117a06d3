package model

import "sync"

// Feed gathers the keys of objects that came, changed or went, or of which something else is said, until they are taken. A key stands in
// it once however often its object changed, so it never holds more than there are objects.
type Feed struct {
	wants func(Key) bool
	wake  chan struct{}

	mu   sync.Mutex
	keys map[Key]struct{}
}

// Follow returns a feed of the objects that are wanted, which begins with all there are. It lives as long as the store.
func (s *Store) Follow(wants func(Key) bool) *Feed {
	f := &Feed{wants: wants, wake: make(chan struct{}, 1), keys: map[Key]struct{}{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds = append(s.feeds, f)
	for key := range s.entries {
		f.put(key)
	}
	return f
}

// Wake is readable when there may be something to take.
func (f *Feed) Wake() <-chan struct{} { return f.wake }

// Take empties the feed.
func (f *Feed) Take() map[Key]struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.keys
	f.keys = map[Key]struct{}{}
	return taken
}

func (f *Feed) put(key Key) {
	if !f.wants(key) {
		return
	}
	f.mu.Lock()
	f.keys[key] = struct{}{}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default: // it is awake already
	}
}

// tell puts a key into all feeds. The store's lock is held.
func (s *Store) tell(key Key) {
	for _, f := range s.feeds {
		f.put(key)
	}
}
