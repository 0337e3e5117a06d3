package replica

import (
	"maps"

	wire "lateen.dev/lateen/internal/gen/replica"
	"lateen.dev/lateen/internal/model"
)

// Subscription gathers what changes of what this replica knows until it is taken. It never holds more than there is.
type Subscription struct {
	local *Local
	wake  chan struct{}
	news  news // the local's lock guards it
}

// Subscribe begins with all that is known.
func (l *Local) Subscribe() *Subscription {
	s := &Subscription{local: l, wake: make(chan struct{}, 1), news: newNews()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.follower[s] = struct{}{}
	for key := range l.known.objects {
		s.news.objects[key] = struct{}{}
	}
	for name := range l.known.proxies {
		s.news.proxies[name] = struct{}{}
	}
	nudge(s.wake)
	return s
}

// Close ends it.
func (s *Subscription) Close() {
	s.local.mu.Lock()
	defer s.local.mu.Unlock()
	delete(s.local.follower, s)
}

// Wake is readable when there may be something to take.
func (s *Subscription) Wake() <-chan struct{} { return s.wake }

// maxReport is how many objects and proxies one report tells of at most; one takes about 150 bytes.
const maxReport = 4096

// Take renders what is new, or nil if nothing is. It is complete unless more is left, which wakes again.
func (s *Subscription) Take() *wire.Report {
	s.local.mu.Lock()
	defer s.local.mu.Unlock()
	if s.news.empty() {
		return nil
	}
	some := newNews()
	for key := range s.news.objects {
		if len(some.objects) == maxReport {
			break
		}
		some.objects[key] = struct{}{}
		delete(s.news.objects, key)
	}
	for name := range s.news.proxies {
		if len(some.objects)+len(some.proxies) >= maxReport {
			break
		}
		some.proxies[name] = struct{}{}
		delete(s.news.proxies, name)
	}
	r := s.local.known.report(some)
	if r.Complete = s.news.empty(); !r.Complete {
		nudge(s.wake)
	}
	return r
}

// tell hands news to all who follow. The lock is held.
func (l *Local) tell(n news) {
	if n.empty() {
		return
	}
	for s := range l.follower {
		maps.Copy(s.news.objects, n.objects)
		maps.Copy(s.news.proxies, n.proxies)
		nudge(s.wake)
	}
}

// standing is how an object stands here.
func (l *Local) standing(key model.Key) (Standing, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.known.objects[key]
	return s, ok
}
