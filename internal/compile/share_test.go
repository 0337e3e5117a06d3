package compile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
)

// entryOf is a ServiceEntry of a namespace with hosts that need virtual addresses.
func entryOf(namespace, name string, hosts int) string {
	var names []string
	for i := range hosts {
		names = append(names, fmt.Sprintf("%s-%d.example.com", name, i))
	}
	return serviceEntry(namespace, name, "01", "hosts: ["+strings.Join(names, ", ")+"], resolution: DNS")
}

// count is how many services of a namespace are kept in a store.
func (s *memoryStore) count(namespace string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for service := range s.kept {
		if strings.HasPrefix(service, namespace+"/") {
			n++
		}
	}
	return n
}

func TestANamespaceTakesNoMoreThanItLeaves(t *testing.T) {
	size := len("tenant/a-00.example.com") + addressesSize
	s := &memoryStore{}
	p := newPlaneWith(t, ShareAssignments(s, 100*size))
	for i := range 10 {
		p.put(entryOf("tenant", fmt.Sprint("a", i), 10))
	}
	had := s.count("tenant")
	if had < 19 || had > 20 {
		t.Errorf("one namespace alone has %d of 100 places, want a fifth", had)
	}
	full := model.ServiceEntryKey("tenant", "a9")
	if c := p.condition(full); c.Reason != "NoAddress" || !strings.Contains(c.Message, "its namespace has as many virtual addresses as it may") {
		t.Errorf("the author is told %+v", c)
	}
	// What is denied costs nothing any more: neither a write, nor a question.
	asked := s.updates
	p.put(entryOf("tenant", "more", 10))
	p.put(pod("tenant", "web-1", "10.0.0.9", "web"))
	if s.updates != asked {
		t.Error("the store is asked for what does not fit")
	}
	p.put(entryOf("small", "own", 3))
	if n := s.count("small"); n != 3 {
		t.Errorf("another namespace got %d of the 3 that it needs", n)
	}
	if c := p.condition(model.ServiceEntryKey("small", "own")); c.Status != model.True || c.Reason != "Accepted" {
		t.Errorf("its author is told %+v", c)
	}
	// When something is freed, as much of the rest as fits gets its turn.
	p.remove(model.ServiceEntryKey("tenant", "a0"))
	s.mu.Lock()
	maps.DeleteFunc(s.kept, func(service string, _ []netip.Addr) bool { return strings.HasPrefix(service, "tenant/a0-") })
	kept := maps.Clone(s.kept)
	s.mu.Unlock()
	p.Adopt(kept)
	if err := p.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.count("tenant"); n < had-2 || n > had {
		t.Errorf("after ten were freed of %d, %d are kept", had, n)
	}
}

// However many namespaces take what they can, one that comes later finds room, and nobody has more than is left.
func TestWhoComesLaterFindsRoom(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // a test
		r := quotaOf(100_000, nil)
		greedy := 1 + rng.IntN(12)
		for range 20_000 {
			service := fmt.Sprintf("n%d/%s", rng.IntN(greedy), strings.Repeat("x", rng.IntN(200)))
			if r.admits(service) {
				r.take(service)
			}
		}
		if r.used > r.all {
			t.Fatalf("seed %d: %d of %d bytes are used", seed, r.used, r.all)
		}
		left := r.all - r.used
		if float64(left) < 0.9*float64(r.all)*math.Pow(1-1.0/(share+1), float64(greedy)) || !r.admits("late/a.example.com") {
			t.Fatalf("seed %d: %d namespaces leave %d of %d bytes", seed, greedy, left, r.all)
		}
	}
}

func TestCompilingDoesNotWaitForTheStore(t *testing.T) {
	s := &memoryStore{}
	p := newPlaneWith(t, ShareAssignments(s, 1<<20))
	asked, answer := make(chan struct{}), make(chan struct{})
	s.between = func() { close(asked); <-answer }
	p.Apply(changes(t, entry("x")))
	select {
	case <-p.Wants():
	case <-time.After(15 * time.Second):
		t.Fatal("nobody is told that something is wanted")
	}
	if c := p.condition(model.ServiceEntryKey("shop", "x")); c.Status != model.Unknown || c.Reason != "AddressPending" {
		t.Errorf("meanwhile its author is told %+v", c)
	}
	kept := make(chan error)
	go func() { kept <- p.Keep(context.Background()) }()
	<-asked
	// The API server is slow; everything else goes on.
	done := make(chan struct{})
	go func() { p.Apply(changes(t, pod("shop", "web-1", "10.0.0.1", "web"))); close(done) }()
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		t.Fatal("a pod waits until the store has answered for a ServiceEntry")
	}
	if p.workload("shop", "web-1") == nil || p.service("shop/x.example.com") == nil || addressOf(p, "shop/x.example.com") != "[]" {
		t.Error("it is not published, or is published at addresses that are not kept")
	}
	close(answer)
	if err := <-kept; err != nil {
		t.Fatal(err)
	}
	if got := addressOf(p, "shop/x.example.com"); got == "[]" || got != fmt.Sprint(s.kept["shop/x.example.com"]) {
		t.Errorf("x is at %s", got)
	}
	if c := p.condition(model.ServiceEntryKey("shop", "x")); c.Status != model.True || c.Reason != "Accepted" {
		t.Errorf("its author is told %+v", c)
	}
}

func TestWhatTheStoreLostIsPutBack(t *testing.T) {
	s := &memoryStore{}
	a, b := newPlaneWith(t, ShareAssignments(s, 1<<20)), newPlaneWith(t, ShareAssignments(s, 1<<20))
	for _, p := range []*plane{a, b} {
		p.put(entry("x") + entry("yy"))
	}
	b.put(entry("only-b"))
	before := maps.Clone(s.kept)
	s.kept = nil
	for _, p := range []*plane{a, b} {
		p.Lost()
		if addressOf(p, "shop/x.example.com") != fmt.Sprint(before["shop/x.example.com"]) {
			t.Error("what is published changed because the store lost it")
		}
	}
	// What the first puts back, the second hears of before it has put back its own.
	if err := a.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Adopt(maps.Clone(s.kept))
	if got := addressOf(b, "shop/only-b.example.com"); got != fmt.Sprint(before["shop/only-b.example.com"]) {
		t.Errorf("only-b is at %s", got)
	}
	if err := b.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(s.kept) != fmt.Sprint(before) {
		t.Errorf("put back: %v\nbefore: %v", s.kept, before)
	}
	// What nobody needs any more is not put back.
	for _, name := range []string{"x", "yy", "only-b"} {
		b.remove(model.ServiceEntryKey("shop", name))
	}
	s.kept = nil
	b.Lost()
	if err := b.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Adopt(map[string][]netip.Addr{})
	if left := b.Unneeded(); len(left) != 0 || len(s.kept) != 0 {
		t.Errorf("of what is lost and not needed %v is remembered, %v kept", left, s.kept)
	}
}

func TestWhatIsReadBeforeTheFirstBatchIsInIt(t *testing.T) {
	s := &memoryStore{}
	a, b := newPlaneWith(t, ShareAssignments(s, 1<<20)), newPlaneWith(t, ShareAssignments(s, 1<<20))
	a.put(entry("x"))
	b.Adopt(maps.Clone(s.kept))
	b.Apply(changes(t, entry("x")))
	if got := addressOf(b, "shop/x.example.com"); got == "[]" || got != addressOf(a, "shop/x.example.com") || b.store.Generation() != 1 {
		t.Errorf("in the first batch, which is generation %d, x is at %s", b.store.Generation(), got)
	}
}

func TestReplicasNameABindingAlike(t *testing.T) {
	const chooses = "selector: {matchLabels: {app: %s}}, rules: [{}]"
	old, young := newPlaneWith(t, ShareAssignments(&memoryStore{}, 1<<20)), newPlaneWith(t, ShareAssignments(&memoryStore{}, 1<<20))
	web, db := pod("shop", "web-1", "10.0.0.1", "web"), pod("shop", "db-1", "10.0.0.2", "db")
	old.put(web + db + authorization("shop", "p", fmt.Sprintf(chooses, "web")))
	first := old.workload("shop", "web-1").AuthorizationPolicies
	old.put(authorization("shop", "p", fmt.Sprintf(chooses, "db")))
	young.put(web + db + authorization("shop", "p", fmt.Sprintf(chooses, "db")))
	a, b := old.workload("shop", "db-1").AuthorizationPolicies, young.workload("shop", "db-1").AuthorizationPolicies
	if len(a) != 1 || fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("the same binding is named %v and %v", a, b)
	}
	if len(first) != 1 || fmt.Sprint(first) == fmt.Sprint(b) {
		t.Errorf("two bindings are both named %v", first)
	}
	// What holds for everybody has its own name on all.
	young.put(authorization("shop", "everybody", "rules: [{}]"))
	if young.log.Get(resourcekind.Authorization, "shop/everybody") == nil {
		t.Error("a policy without a selector has lost its name")
	}
}

// An address that its owner asks for is given up although the store cannot be told of it yet: what is still kept there is not taken back.
func TestWhatWasTakenAwayIsNotTakenBack(t *testing.T) {
	s := &memoryStore{}
	p := newPlaneWith(t, ShareAssignments(s, 1<<20))
	p.put(entry("x"))
	taken := s.kept["shop/x.example.com"][0].String()
	s.err = errors.New("away")
	p.put(serviceEntry("shop", "c", "02", "hosts: [c.example.com], resolution: STATIC, addresses: ["+taken+"]"))
	p.Adopt(maps.Clone(s.kept))
	if got := addressOf(p, "shop/x.example.com"); got != "[]" {
		t.Errorf("x is at %s again, which c asks for", got)
	}
	s.err = nil
	if err := p.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := addressOf(p, "shop/x.example.com"); got == "[]" || strings.Contains(got, taken+" ") || got != fmt.Sprint(s.kept["shop/x.example.com"]) {
		t.Errorf("x is at %s", got)
	}
}
