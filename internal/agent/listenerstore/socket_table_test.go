package listenerstore

import (
	"math/rand/v2"
	"testing"
)

// dup counts how often it was closed.
type dup struct{ closed int }

func (d *dup) Close() error { d.closed++; return nil }

func put(s *socketTable, proxy int, uid, name string, cookie uint64) *dup {
	d := &dup{}
	s.give(proxy, uid, held{name: name, inode: 7, cookie: cookie, socket: d})
	s.settle(proxy, uid)
	return d
}

func TestASocketIsClosedWhenItsOnlyProxyIsGone(t *testing.T) {
	s := newSocketTable(closeEach)
	s.join(1)
	d := put(s, 1, "a", "hbone", 10)
	s.leave(1)
	if d.closed != 1 || s.count() != 0 {
		t.Fatalf("closed %d times, %d held", d.closed, s.count())
	}
}

func TestASocketOutlivesAProxyWhoseSuccessorTookIt(t *testing.T) {
	s := newSocketTable(closeEach)
	s.join(1)
	d := put(s, 1, "a", "hbone", 10)
	s.join(2)
	if taken := s.take(2, "a", 7); len(taken) != 1 || taken[0].socket != d {
		t.Fatalf("taken %v", taken)
	}
	again := put(s, 2, "a", "hbone", 10) // it gives what it took
	if again.closed != 1 {
		t.Fatal("the second duplicate of one socket is not closed")
	}
	s.leave(1)
	if d.closed != 0 {
		t.Fatal("closed although the successor listens on it")
	}
	s.leave(2)
	if d.closed != 1 {
		t.Fatal("held although nobody listens on it")
	}
}

func TestASocketWaitsForAProxyThatHasComeAndNotAsked(t *testing.T) {
	s := newSocketTable(closeEach)
	s.join(1)
	d := put(s, 1, "a", "hbone", 10)
	s.join(2)
	s.leave(1) // killed
	if d.closed != 0 || len(s.take(2, "a", 7)) != 1 {
		t.Fatal("the successor finds nothing")
	}
	s.leave(2)
	if d.closed != 1 {
		t.Fatal("held although nobody listens on it")
	}

	s.join(3)
	d = put(s, 3, "a", "hbone", 11)
	s.join(4)
	s.leave(3)
	s.closeOrphans()
	if d.closed != 1 {
		t.Fatal("a socket waits for ever for a proxy that never asks")
	}
}

func TestASuccessorWithASocketOfItsOwnLeavesNoneBehindThatNobodyServes(t *testing.T) {
	s := newSocketTable(closeEach)
	s.join(1)
	old := put(s, 1, "a", "hbone", 10)
	s.join(2)
	s.take(2, "a", 7)
	fresh := put(s, 2, "a", "hbone", 11) // it could not use what it took
	s.leave(1)
	if old.closed != 1 || fresh.closed != 0 {
		t.Fatalf("old closed %d times, fresh %d", old.closed, fresh.closed)
	}
}

func TestSocketsOfAnotherNamespaceAreNotHandedOver(t *testing.T) {
	s := newSocketTable(closeEach)
	s.join(1)
	put(s, 1, "a", "hbone", 10)
	if taken := s.take(1, "a", 8); len(taken) != 0 {
		t.Fatalf("taken %v", taken)
	}
}

func TestAReleasedOrForgottenPodHasNothingHeld(t *testing.T) {
	s := newSocketTable(closeEach)
	s.join(1)
	s.join(2)
	a, b := put(s, 1, "a", "hbone", 10), put(s, 1, "b", "hbone", 11)
	s.release(1, "a")
	s.forget("b")
	if a.closed != 1 || b.closed != 1 || s.count() != 0 {
		t.Fatalf("closed %d and %d times, %d held", a.closed, b.closed, s.count())
	}
}

// Whatever proxies do: nothing is closed twice or leaked, and when all are gone nothing is held.
func TestNothingIsLeakedOrClosedTwice(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newSocketTable(closeEach)
		var dups []*dup
		next := 1
		var alive []int
		for range 60 {
			uid := string(rune('a' + r.IntN(3)))
			any := func() int { return alive[r.IntN(len(alive))] }
			switch n := r.IntN(10); {
			case n == 0 || len(alive) == 0:
				s.join(next)
				alive = append(alive, next)
				next++
			case n == 1:
				i := r.IntN(len(alive))
				s.leave(alive[i])
				alive = append(alive[:i], alive[i+1:]...)
			case n == 2:
				s.release(any(), uid)
			case n == 3:
				s.forget(uid)
			case n == 4:
				s.closeOrphans()
			case n < 7:
				s.take(any(), uid, 7)
			default:
				dups = append(dups, put(s, any(), uid, "s"+string(rune('0'+r.IntN(3))), r.Uint64N(6)))
			}
			open := 0
			for _, d := range dups {
				if d.closed > 1 {
					t.Fatalf("seed %d: closed twice", seed)
				}
				open += 1 - d.closed
			}
			if open != s.count() {
				t.Fatalf("seed %d: %d open, %d held", seed, open, s.count())
			}
			if len(alive) == 0 && s.count() != 0 {
				t.Fatalf("seed %d: %d held and no proxy", seed, s.count())
			}
		}
	}
}
