package cluster

import (
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// places is where it is remembered whose a token is: of the mesh's own accounts in one place, of all others in one for each namespace, so that
// nobody pushes out what others need.
type places struct {
	isOwn func(account string) bool
	now   func() time.Time
	own   *cache.LRUExpireCache // digest → admission

	mu     sync.Mutex
	others *cache.LRUExpireCache // namespace → *cache.LRUExpireCache
}

func newPlaces(own func(account string) bool, now func() time.Time) *places {
	return &places{isOwn: own, now: now, own: cache.NewLRUExpireCacheWithClock(maxOwn, clock(now)), others: cache.NewLRUExpireCacheWithClock(maxNamespaces, clock(now))}
}

// of is the place of an account; nil if there is none and none is to be created.
func (p *places) of(account string, create bool) *cache.LRUExpireCache {
	if p.isOwn(account) {
		return p.own
	}
	namespace, _, _ := strings.Cut(account, "/")
	p.mu.Lock()
	defer p.mu.Unlock()
	if v, ok := p.others.Get(namespace); ok {
		return v.(*cache.LRUExpireCache)
	}
	if !create {
		return nil
	}
	place := cache.NewLRUExpireCacheWithClock(maxPerNamespace, clock(p.now))
	p.others.Add(namespace, place, longestToken)
	return place
}

// longestToken is longer than any token lasts of which more than a few are made.
const longestToken = 365 * 24 * time.Hour

func (p *places) get(account string, digest [sha256.Size]byte) (admission, bool) {
	place := p.of(account, false)
	if place == nil {
		return admission{}, false
	}
	v, ok := place.Get(digest)
	if !ok {
		return admission{}, false
	}
	return v.(admission), true
}

func (p *places) add(account string, digest [sha256.Size]byte, a admission, life time.Duration) {
	p.of(account, true).Add(digest, a, life)
}

func (p *places) remove(account string, digest [sha256.Size]byte) {
	if place := p.of(account, false); place != nil {
		place.Remove(digest)
	}
}
