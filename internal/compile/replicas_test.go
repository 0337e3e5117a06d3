package compile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"lateen.dev/lateen/internal/model"
)

// memoryStore is an AssignmentStore in memory. Between its read and its write, another control plane may write.
type memoryStore struct {
	mu      sync.Mutex
	kept    map[string][]netip.Addr
	waiting map[string]string
	version int
	err     error
	between func()
	updates int
}

// waitingNow is what a watch tells of.
func (s *memoryStore) waitingNow() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		return map[string]string{}
	}
	return maps.Clone(s.waiting)
}

func (s *memoryStore) UpdateWaiting(_ context.Context, change func(map[string]string) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	kept := maps.Clone(s.waiting)
	if kept == nil {
		kept = map[string]string{}
	}
	if change(kept) {
		s.waiting = kept
	}
	return nil
}

func (s *memoryStore) Update(_ context.Context, change func(map[string][]netip.Addr) bool) error {
	for {
		s.mu.Lock()
		s.updates++
		if s.err != nil {
			defer s.mu.Unlock()
			return s.err
		}
		kept, version, between := maps.Clone(s.kept), s.version, s.between
		s.between = nil
		s.mu.Unlock()
		if kept == nil {
			kept = map[string][]netip.Addr{}
		}
		if !change(kept) {
			return nil
		}
		if between != nil {
			between()
		}
		s.mu.Lock()
		if s.version == version {
			s.kept, s.version = kept, version+1
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
	}
}

func addressOf(p *plane, name string) string {
	var out []netip.Addr
	for _, a := range p.service(name).GetAddresses() {
		ip, _ := netip.AddrFromSlice(a.Address)
		out = append(out, ip)
	}
	return fmt.Sprint(out)
}

func entry(name string) string {
	return serviceEntry("shop", name, "01", "hosts: ["+name+".example.com], resolution: DNS")
}

func TestReplicasPublishOneChoice(t *testing.T) {
	s := &memoryStore{}
	a, b := newPlaneWith(t, ShareAssignments(s, 1<<20)), newPlaneWith(t, ShareAssignments(s, 1<<20))
	// What x would choose is another's by the time that b writes.
	other := newPlane(t)
	other.put(entry("x"))
	want := other.assignments.Addresses["shop/x.example.com"]
	s.kept = map[string][]netip.Addr{"shop/first.example.com": want}
	a.put(entry("x"))
	b.put(entry("x") + entry("first"))
	if x := addressOf(a, "shop/x.example.com"); x != addressOf(b, "shop/x.example.com") || x == "[]" || x == fmt.Sprint(want) {
		t.Errorf("x is at %s and %s", x, addressOf(b, "shop/x.example.com"))
	}
	if got := addressOf(b, "shop/first.example.com"); got != fmt.Sprint(want) {
		t.Errorf("first is at %s, not at %s", got, want)
	}
	s.between = func() { b.put(entry("yy")) }
	a.put(entry("z") + entry("yy"))
	for _, name := range []string{"shop/yy.example.com", "shop/z.example.com"} {
		b.put(entry("z"))
		if x := addressOf(a, name); x != addressOf(b, name) || x == "[]" || x != fmt.Sprint(s.kept[name]) {
			t.Errorf("%s is at %s and %s", name, x, addressOf(b, name))
		}
	}
}

func TestWhatCannotBeKeptIsNotPublished(t *testing.T) {
	s := &memoryStore{}
	p := newPlaneWith(t, ShareAssignments(s, 1<<20))
	p.put(entry("old"))
	old := addressOf(p, "shop/old.example.com")
	s.err = errors.New("away")
	p.put(entry("new"))
	p.put(entry("newer"))
	if p.service("shop/new.example.com") == nil || addressOf(p, "shop/new.example.com") != "[]" || addressOf(p, "shop/newer.example.com") != "[]" {
		t.Errorf("published without being kept: %s", addressOf(p, "shop/new.example.com"))
	}
	if got := addressOf(p, "shop/old.example.com"); got != old || old == "[]" {
		t.Errorf("what had an address has %s", got)
	}
	s.err = nil
	if err := p.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shop/new.example.com", "shop/newer.example.com"} {
		if got := addressOf(p, name); got == "[]" || got != fmt.Sprint(s.kept[name]) {
			t.Errorf("%s is at %s afterwards", name, got)
		}
	}
}

func TestAnothersChoiceIsTakenOver(t *testing.T) {
	s := &memoryStore{}
	p := newPlaneWith(t, ShareAssignments(s, 1<<20))
	p.put(entry("x"))
	moved := []netip.Addr{netip.MustParseAddr("240.240.9.9")}
	p.Adopt(map[string][]netip.Addr{"shop/x.example.com": moved, "shop/gone.example.com": {netip.MustParseAddr("240.240.9.10")}})
	if got := addressOf(p, "shop/x.example.com"); got != fmt.Sprint(moved) {
		t.Errorf("x is at %s", got)
	}
	if got := p.Unneeded(); !slices.Equal(got, []string{"shop/gone.example.com"}) {
		t.Errorf("unneeded: %v", got)
	}
	p.remove(model.ServiceEntryKey("shop", "x"))
	if got := p.Unneeded(); len(got) != 2 {
		t.Errorf("unneeded: %v", got)
	}
	p.put(entry("x"))
	if got := addressOf(p, "shop/x.example.com"); got != fmt.Sprint(moved) {
		t.Errorf("after it was gone x is at %s", got)
	}
}

func TestAnAddressThatItsOwnerAsksForIsGivenUpEverywhere(t *testing.T) {
	s := &memoryStore{}
	a, b := newPlaneWith(t, ShareAssignments(s, 1<<20)), newPlaneWith(t, ShareAssignments(s, 1<<20))
	a.put(entry("x"))
	b.put(entry("x"))
	taken := a.assignments.Addresses["shop/x.example.com"][0].String()
	claim := serviceEntry("shop", "c", "02", "hosts: [c.example.com], resolution: STATIC, addresses: ["+taken+"]")
	a.put(claim)
	b.put(claim)
	x := addressOf(a, "shop/x.example.com")
	if x != addressOf(b, "shop/x.example.com") || x == "[]" || strings.Contains(x, taken+" ") || addressOf(a, "shop/c.example.com") != "["+taken+"]" || x != fmt.Sprint(s.kept["shop/x.example.com"]) {
		t.Errorf("x is at %s and %s, c at %s", x, addressOf(b, "shop/x.example.com"), addressOf(a, "shop/c.example.com"))
	}
}

// However events reach replicas, in whatever order and with whatever losses of the store between, none publishes what is not kept, and two
// never publish different addresses.
func TestReplicasAgreeWhateverHappens(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		s := &memoryStore{}
		var all [3]*plane
		for i := range all {
			all[i] = newPlaneWith(t, ShareAssignments(s, 1<<20))
		}
		check := func() {
			t.Helper()
			for i := range 12 {
				name := fmt.Sprintf("shop/e%d.example.com", i)
				for _, p := range all {
					if p.service(name) == nil {
						continue
					}
					if x := addressOf(p, name); x != "[]" && x != fmt.Sprint(s.kept[name]) {
						t.Fatalf("seed %d: %s is published at %s and kept at %v", seed, name, x, s.kept[name])
					}
				}
			}
		}
		for range 40 {
			p, name := all[r.IntN(3)], fmt.Sprintf("e%d", r.IntN(12))
			switch r.IntN(6) {
			case 0:
				p.remove(model.ServiceEntryKey("shop", name))
			case 1:
				s.err = nil
				_ = p.Keep(t.Context())
			case 2:
				s.err = errors.New("away")
			default:
				p.put(entry(name))
			}
			check()
		}
		s.err = nil
		for _, p := range all {
			_ = p.Keep(t.Context())
			for i := range 12 {
				p.put(entry(fmt.Sprintf("e%d", i)))
			}
		}
		check()
		for i := range 12 {
			name := fmt.Sprintf("shop/e%d.example.com", i)
			if addressOf(all[0], name) == "[]" || addressOf(all[0], name) != addressOf(all[2], name) {
				t.Fatalf("seed %d: %s has no address", seed, name)
			}
		}
	}
}
