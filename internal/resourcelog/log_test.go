package resourcelog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/gen/workload"
)

func encode(t testing.TB, name, content string, aliases, parents []string) *Resource {
	t.Helper()
	r, err := Encode(AddressType, name, aliases, parents, &workload.Address{Type: &workload.Address_Service{Service: &workload.Service{Name: content}}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func set(t testing.TB, name, content string) Change {
	return Change{Type: AddressType, Name: name, Resource: encode(t, name, content, nil, nil)}
}

func unset(name string) Change { return Change{Type: AddressType, Name: name} }

// The kinds of the tests.
const (
	AddressType       = "type.googleapis.com/istio.workload.Address"
	AuthorizationType = "type.googleapis.com/istio.security.Authorization"
)

var testKinds = NewKinds(Kind{TypeURL: AddressType}, Kind{TypeURL: AuthorizationType})

func newLog() *Log { return New(time.Now, testKinds) }

func readAll(c *Cursor, through uint64) (events []Event, generation uint64, complete bool) {
	generation, complete = c.Read(through, func(e Event) bool {
		events = append(events, e)
		return true
	})
	return events, generation, complete
}

func TestEqualContentHasEqualVersion(t *testing.T) {
	ports := map[string]*workload.PortList{}
	for i := range 50 {
		ports[strconv.Itoa(i)] = &workload.PortList{}
	}
	w := &workload.Workload{Services: ports}
	first, err := Encode(AddressType, "n", nil, nil, w)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := Encode(AddressType, "n", nil, nil, proto.CloneOf(w))
		if err != nil {
			t.Fatal(err)
		}
		if again.Version != first.Version {
			t.Fatal("the order of a map's entries changed the version")
		}
	}
	if other := encode(t, "n", "other", nil, nil); other.Version == first.Version {
		t.Error("different content has the same version")
	}
}

func TestDecodesWhatItEncoded(t *testing.T) {
	r, err := encode(t, "ns/host", "content", []string{"/10.0.0.1"}, nil).Decode()
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.Resource.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	if r.Name != "ns/host" || r.Resource.TypeUrl != AddressType || m.(*workload.Address).GetService().GetName() != "content" || !slices.Equal(r.Aliases, []string{"/10.0.0.1"}) {
		t.Errorf("got %v", r)
	}
}

func TestAppendDropsWhatChangesNothing(t *testing.T) {
	l := newLog()
	changed := l.Changed()
	if n := l.Append(1, []Change{set(t, "a", "1"), unset("never-was")}); n != 1 {
		t.Errorf("%d entries, want 1", n)
	}
	select {
	case <-changed:
	default:
		t.Error("readers were not woken")
	}
	changed = l.Changed()
	if n := l.Append(2, []Change{set(t, "a", "1")}); n != 0 {
		t.Errorf("%d entries for the same content", n)
	}
	select {
	case <-changed:
		t.Error("readers were woken for nothing")
	default:
	}
	if l.Generation() != 2 {
		t.Errorf("generation %d: a batch without effect counts as well", l.Generation())
	}
}

func TestReadShowsOnlyTheLastWordOnAName(t *testing.T) {
	l := newLog()
	c := l.Open(AddressType)
	defer c.Close()
	l.Append(1, []Change{set(t, "a", "1"), set(t, "b", "1")})
	l.Append(2, []Change{set(t, "a", "2")})
	l.Append(3, []Change{unset("b")})
	events, generation, complete := readAll(c, Forever)
	if len(events) != 2 || events[0].Name != "a" || events[0].Resource == nil || events[1].Name != "b" || events[1].Resource != nil || generation != 3 || !complete {
		t.Errorf("read %v through %d (%v)", events, generation, complete)
	}
}

func TestReadStopsAtTheGenerationItMayShow(t *testing.T) {
	l := newLog()
	c := l.Open(AddressType)
	defer c.Close()
	l.Append(1, []Change{set(t, "a", "1")})
	l.Append(2, []Change{set(t, "b", "1")})
	events, _, complete := readAll(c, 1)
	if len(events) != 1 || complete {
		t.Errorf("read %v, complete %v", events, complete)
	}
	l.Append(3, nil)
	c.Seek(2)
	if events, generation, complete := readAll(c, 2); len(events) != 0 || !complete || generation != 3 {
		t.Errorf("with nothing withheld: %v through %d, complete %v; the reader knows all of generation 3", events, generation, complete)
	}
}

func TestRemovalsAreKeptForThoseWhoHaveNotSeenThem(t *testing.T) {
	l := newLog()
	slow := l.Open(AddressType)
	l.Append(1, []Change{set(t, "gone", "1")})
	events, _, _ := readAll(slow, Forever)
	slow.Seek(events[0].Position)
	l.Append(2, []Change{unset("gone")})
	for g := range uint64(500) {
		l.Append(3+g, []Change{set(t, "busy", fmt.Sprint(g))})
	}
	events, _, _ = readAll(slow, Forever)
	if len(events) != 2 || events[0].Name != "gone" {
		t.Fatalf("the slow reader sees %v; want the removal and the last of busy", events)
	}
	slow.Close()
	for g := range uint64(500) {
		l.Append(1000+g, []Change{set(t, "busy", fmt.Sprint(g))})
	}
	if n := len(l.types[AddressType].entries); n > 100 {
		t.Errorf("%d entries for one live name: the log is not compacted", n)
	}
	if _, kept := l.types[AddressType].last["gone"]; kept {
		t.Error("a removal that nobody waits for is kept")
	}
}

func TestLookupByNameAliasAndParent(t *testing.T) {
	l := newLog()
	l.Append(1, []Change{
		{AddressType, "svc", encode(t, "svc", "s", []string{"/10.96.0.1"}, nil)},
		{AddressType, "pod-1", encode(t, "pod-1", "1", []string{"/10.0.0.1"}, []string{"svc"})},
		{AddressType, "pod-2", encode(t, "pod-2", "2", []string{"/10.0.0.2"}, []string{"svc"})},
		{AddressType, "host-a", encode(t, "host-a", "3", []string{"/192.168.0.1"}, nil)},
		{AddressType, "host-b", encode(t, "host-b", "4", []string{"/192.168.0.1"}, nil)},
	})
	find := func(name string) (names []string) {
		for _, r := range l.Lookup(AddressType, name) {
			names = append(names, r.Name)
		}
		return names
	}
	for name, want := range map[string][]string{
		"svc": {"pod-1", "pod-2", "svc"}, "/10.96.0.1": {"pod-1", "pod-2", "svc"}, "/10.0.0.2": {"pod-2"},
		"/192.168.0.1": {"host-a", "host-b"}, "nothing": nil,
	} {
		if got := find(name); !slices.Equal(got, want) {
			t.Errorf("Lookup(%q) = %v, want %v", name, got, want)
		}
	}
	l.Append(2, []Change{{AddressType, "pod-1", encode(t, "pod-1", "1", []string{"/10.0.0.9"}, nil)}, unset("host-a")})
	// The same content under another alias is the same version, so it is dropped; real aliases are part of the content.
	l.Append(3, []Change{{AddressType, "pod-1", encode(t, "pod-1", "moved", []string{"/10.0.0.9"}, nil)}})
	for name, want := range map[string][]string{"svc": {"pod-2", "svc"}, "/10.0.0.1": nil, "/10.0.0.9": {"pod-1"}, "/192.168.0.1": {"host-b"}} {
		if got := find(name); !slices.Equal(got, want) {
			t.Errorf("after the change Lookup(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestFirstAfterMeasuresFromTheOldestUnseenChange(t *testing.T) {
	now := time.Unix(1000, 0)
	l := New(func() time.Time { return now }, testKinds)
	l.Append(1, []Change{set(t, "a", "1")})
	now = now.Add(time.Second)
	l.Append(2, nil)
	now = now.Add(time.Second)
	l.Append(3, []Change{set(t, "a", "2")})
	if at, ok := l.FirstAfter(AddressType, 0); !ok || !at.Equal(time.Unix(1000, 0)) {
		t.Errorf("after 0: %v %v", at, ok)
	}
	if at, ok := l.FirstAfter(AddressType, 1); !ok || !at.Equal(time.Unix(1002, 0)) {
		t.Errorf("after 1: %v %v", at, ok)
	}
	if _, ok := l.FirstAfter(AddressType, 3); ok {
		t.Error("after 3 there is nothing")
	}
}

// TestReadersAgreeWithTheLog follows a log with readers that read at random times and close and open at random.
func TestReadersAgreeWithTheLog(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 2))
		l := newLog()
		model := map[string]string{}
		type reader struct {
			cursor *Cursor
			state  map[string]string
		}
		var readers []*reader
		for g := uint64(1); g <= 1000; g++ {
			name := fmt.Sprint("n", rng.IntN(30))
			if rng.IntN(3) == 0 {
				delete(model, name)
				l.Append(g, []Change{unset(name)})
			} else {
				content := fmt.Sprint(rng.IntN(4))
				model[name] = encode(t, name, content, nil, nil).Version
				l.Append(g, []Change{set(t, name, content)})
			}
			if len(readers) < 5 && rng.IntN(50) == 0 {
				readers = append(readers, &reader{l.Open(AddressType), map[string]string{}})
			}
			for i, r := range readers {
				if rng.IntN(20) != 0 {
					continue
				}
				last := uint64(0)
				r.cursor.Read(Forever, func(e Event) bool {
					if e.Position <= last {
						t.Fatalf("positions go back: %d after %d", e.Position, last)
					}
					last = e.Position
					if e.Resource == nil {
						delete(r.state, e.Name)
					} else {
						r.state[e.Name] = e.Resource.Version
					}
					return true
				})
				r.cursor.Seek(last)
				if !maps.Equal(r.state, model) {
					t.Fatalf("seed %d, generation %d: reader %d has %v, want %v", seed, g, i, r.state, model)
				}
				if rng.IntN(10) == 0 {
					r.cursor.Close()
					readers = slices.Delete(readers, i, i+1)
					break
				}
			}
		}
		live := map[string]string{}
		for _, r := range l.Live(AddressType) {
			live[r.Name] = r.Version
		}
		if !maps.Equal(live, model) || l.Len(AddressType) != len(model) {
			t.Fatalf("seed %d: live %v, want %v", seed, live, model)
		}
	}
}

// Who made a resource may change without anything for clients to hear.
func TestAnotherSourceOfTheSameContentIsNoNews(t *testing.T) {
	l := newLog()
	of := func(generation uint64, kind string) int {
		r := encode(t, "a", "same", nil, nil)
		r.Sources = []Source{{Kind: kind, Namespace: "shop", Name: "web"}}
		return l.Append(generation, []Change{{AddressType, "a", r}})
	}
	if n := of(1, "ServiceEntry"); n != 1 {
		t.Fatalf("%d changes", n)
	}
	if n := of(2, "Service"); n != 0 {
		t.Errorf("%d changes for the same content", n)
	}
	if got := l.Get(AddressType, "a").Sources; len(got) != 1 || got[0].Kind != "Service" {
		t.Errorf("made of %v", got)
	}
}
