package compile

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"lateen.dev/lateen/internal/model"
)

func TestARestartForgetsNoBindingAndMakesNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "assignments.json")
	open := func() *Assignments {
		a, err := LoadAssignments(path, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	p := newBindingPlane(t, open())
	p.put(serviceWith("web", "") + waypointOf("wp", "10.96.0.9"))
	p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	q := newBindingPlane(t, open())
	q.Apply(p.everything())
	q.want("a restart while it waits", "direct")
	q.acknowledge("wp")
	q.want("acknowledged after the restart", "wp")
	r := newBindingPlane(t, open())
	r.Apply(slices.DeleteFunc(q.everything(), func(ch model.Change) bool { return ch.Key.Kind == "Gateway" }))
	r.want("a restart without the Gateway", "wp")
	s := newBindingPlane(t, open())
	s.Apply(q.everything())
	s.want("a restart with it", "wp")
	s.told("a restart with it", "True", "") // or each restart would write the status of every service
	s.now = s.now.Add(assumeFor)
	s.settle()
	s.told("nobody has acknowledged it for long", "False WaypointIsNotReady", "its connections are refused")
}

func TestWhatCannotBeWrittenDownIsNotDone(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	a, _ := LoadAssignments(filepath.Join(folder, "assignments.json"), time.Now())
	p := newBindingPlane(t, a)
	p.put(serviceWith("web", "") + waypointOf("wp", "10.96.0.9"))
	p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if again := p.acknowledge("wp"); !again {
		t.Error("it is not tried again")
	}
	p.want("acknowledged and not written down", "direct")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	p.now = p.now.Add(leastBackoff)
	p.acknowledge("wp")
	p.want("written down", "wp")
}

func TestControlPlanesMoveABindingTogether(t *testing.T) {
	shared := &memoryStore{}
	here, there := newBindingPlane(t, ShareAssignments(shared, 1<<20)), newBindingPlane(t, ShareAssignments(shared, 1<<20))
	both := func(text string) {
		here.put(text)
		there.put(text)
	}
	both(serviceWith("web", "") + waypointOf("wp", "10.96.0.9"))
	both(serviceWith("web", "istio.io/use-waypoint: wp"))
	if _, ok := shared.waiting["Service shop/web"]; !ok {
		t.Fatalf("it is not written down that it waits: %v", shared.waiting)
	}
	hear := func(p *bindingPlane) { p.AdoptWaiting(shared.waitingNow()) }
	hear(here)
	hear(there)
	here.want("before", "direct")
	there.want("before", "direct")
	// The waypoint is connected to one of them.
	there.acknowledge("wp")
	there.want("acknowledged and not written down", "direct")
	if err := there.Keep(context.Background()); err != nil {
		t.Fatal(err)
	}
	there.want("written down", "wp")
	here.want("not heard of", "direct")
	hear(here)
	here.want("heard of", "wp")
	// One that writes it down late, since it heard of the label last, is corrected.
	late := newBindingPlane(t, ShareAssignments(shared, 1<<20))
	late.put(serviceWith("web", "") + waypointOf("wp", "10.96.0.9"))
	late.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	late.want("late", "wp")
	// Without the store nothing moves.
	shared.err = context.DeadlineExceeded
	both(serviceWith("web", "istio.io/use-waypoint: other") + waypointOf("other", "10.96.0.11"))
	there.acknowledge("other")
	there.want("the store is away", "wp")
}

func TestAControlPlaneThatLagsMovesNobodyTooEarly(t *testing.T) {
	type replicas struct {
		*memoryStore
		here, there *bindingPlane
	}
	setUp := func(t *testing.T, label string) replicas {
		r := replicas{memoryStore: &memoryStore{}}
		r.here, r.there = newBindingPlane(t, ShareAssignments(r.memoryStore, 1<<20)), newBindingPlane(t, ShareAssignments(r.memoryStore, 1<<20))
		for _, p := range []*bindingPlane{r.here, r.there} {
			p.put(serviceWith("web", label) + waypointOf("wp", "10.96.0.9") + waypointOf("next", "10.96.0.10"))
			p.acknowledge("wp")
		}
		return r
	}
	exchange := func(t *testing.T, r replicas, planes ...*bindingPlane) {
		t.Helper()
		for range 3 {
			for _, p := range planes {
				if err := p.Keep(context.Background()); err != nil {
					t.Fatal(err)
				}
				p.AdoptWaiting(r.waitingNow())
			}
		}
	}
	t.Run("that has not heard of a label", func(t *testing.T) {
		r := setUp(t, "")
		r.here.put(serviceWith("web", "istio.io/use-waypoint: wp"))
		r.there.AdoptWaiting(r.waitingNow())
		r.there.put(serviceWith("web", "unrelated: label"))
		exchange(t, r, r.there, r.here)
		r.here.want("before it was acknowledged", "direct")
	})
	t.Run("that has not heard of another label", func(t *testing.T) {
		r := setUp(t, "istio.io/use-waypoint: wp")
		r.here.put(serviceWith("web", "istio.io/use-waypoint: next"))
		exchange(t, r, r.there, r.here)
		r.here.want("before the next was acknowledged", "wp")
		if got := r.waiting["Service shop/web"]; got != "shop/wp shop/next" {
			t.Errorf("it is remembered that %q", got)
		}
	})
	t.Run("with what it is about to write", func(t *testing.T) {
		r := setUp(t, "")
		r.here.put(serviceWith("web", "istio.io/use-waypoint: wp"))
		r.err = context.DeadlineExceeded
		r.here.acknowledge("wp")
		r.here.put(serviceWith("web", "istio.io/use-waypoint: next"))
		r.err = nil
		exchange(t, r, r.here)
		r.here.want("the label is another meanwhile", "direct")
	})
	t.Run("with a label that was away for a moment", func(t *testing.T) {
		r := setUp(t, "")
		r.here.put(serviceWith("web", "istio.io/use-waypoint: wp"))
		r.err = context.DeadlineExceeded
		r.here.put(serviceWith("web", ""))
		r.here.put(serviceWith("web", "istio.io/use-waypoint: wp"))
		r.err = nil
		exchange(t, r, r.here)
		r.here.want("before it was acknowledged", "direct")
		r.here.acknowledge("wp")
		exchange(t, r, r.here)
		r.here.want("acknowledged", "wp")
	})
	t.Run("with what is remembered of an earlier binding", func(t *testing.T) {
		r := setUp(t, "")
		r.here.put(serviceWith("web", "istio.io/use-waypoint: wp"))
		r.here.acknowledge("wp")
		exchange(t, r, r.here)
		r.here.want("acknowledged", "wp")
		r.err = context.DeadlineExceeded
		r.here.put(serviceWith("web", ""))
		r.here.put(serviceWith("web", "istio.io/use-waypoint: wp"))
		r.here.AdoptWaiting(r.waitingNow())
		r.here.want("the memory is late", "direct")
		r.err = nil
		exchange(t, r, r.here)
		r.here.want("before it was acknowledged again", "direct")
		if got := r.waiting["Service shop/web"]; got != " shop/wp" {
			t.Errorf("it is remembered that %q", got)
		}
	})
	t.Run("after the memory was lost", func(t *testing.T) {
		r := setUp(t, "")
		r.here.put(serviceWith("web", "istio.io/use-waypoint: wp"))
		r.waiting = nil
		exchange(t, r, r.here)
		r.here.want("before it was acknowledged", "direct")
		if len(r.waiting) != 1 {
			t.Errorf("it is remembered: %v", r.waiting)
		}
	})
}

func TestWhatAnotherControlPlaneHasHeardCountsInTheCondition(t *testing.T) {
	shared := &memoryStore{}
	here, there := newBindingPlane(t, ShareAssignments(shared, 1<<20)), newBindingPlane(t, ShareAssignments(shared, 1<<20))
	for _, p := range []*bindingPlane{here, there} {
		p.put(serviceWith("web", "") + waypointOf("wp", "10.96.0.9"))
		p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	}
	there.acknowledge("wp")
	if err := there.Keep(context.Background()); err != nil {
		t.Fatal(err)
	}
	here.AdoptWaiting(shared.waitingNow())
	here.told("acknowledged there", "True", "connections go through waypoint shop/wp")
	if got := here.Arrived(); !slices.Equal(got, []string{"Service shop/web"}) {
		t.Errorf("of %v nobody needs %v", shared.waiting, got)
	}
}

func TestProxiesThatAreConnectedElsewhereDoNotMakeABindingUnready(t *testing.T) {
	for name, c := range map[string]struct {
		proxies []GatewayProxy
		status  string
	}{
		"none is connected here": {nil, "True"},
		"one here lags":          {[]GatewayProxy{{Gateway: "shop/wp", Identity: "shop/wp"}}, "False"},
	} {
		p := newBindingPlane(t, ShareAssignments(&memoryStore{}, 1<<20))
		p.put(serviceWith("web", "istio.io/use-waypoint: wp") + waypointOf("wp", "10.96.0.9"))
		p.now = p.now.Add(assumeFor)
		p.settle(c.proxies...)
		p.told(name, c.status, "")
	}
}

func TestAMemoryThatCannotBeWrittenIsTriedAgainWithPauses(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	a, _ := LoadAssignments(filepath.Join(folder, "assignments.json"), time.Now())
	p := newBindingPlane(t, a)
	p.put(serviceWith("web", "") + waypointOf("wp", "10.96.0.9"))
	p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	proxies := func() []GatewayProxy { return []GatewayProxy{p.proxy("wp", p.log.Generation())} }
	var pauses []time.Duration
	for range 7 {
		_, at := p.Settle(proxies)
		if _, again := p.Settle(proxies); !again.Equal(at) {
			t.Errorf("it is tried again before %s: %s", at, again)
		}
		pauses = append(pauses, at.Sub(p.now))
		p.now = at
	}
	want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second}
	if !slices.Equal(pauses, want) {
		t.Errorf("it is tried again after %v, want %v", pauses, want)
	}
	p.want("not written", "direct")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	p.Settle(proxies)
	p.want("written", "wp")
}

// A control plane that starts knows of an object with such a line that it went to a waypoint once. It may have gone to that of a later label since.
func TestALineOfAnEarlierLabelHasNoConnectionsGoThere(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"it went to the waypoint of an earlier label": {"shop/wp shop/wp bound", "next"},
		"it went to the waypoint":                     {"shop/next shop/next bound", "next"},
		"it waits and goes direct":                    {" shop/next", "direct"},
		"it waits and goes through another one":       {"shop/wp shop/next", "wp"},
		"it was let go by an earlier version":         {LetGo(" shop/next"), "next"},
		"it was let go to another one":                {LetGo(" shop/wp"), "next"},
	} {
		t.Run(name, func(t *testing.T) {
			shared := &memoryStore{waiting: map[string]string{"Service shop/web": c.line}}
			p := newBindingPlane(t, ShareAssignments(shared, 1<<20))
			p.AdoptWaiting(shared.waitingNow())
			p.put(serviceWith("web", "istio.io/use-waypoint: next") + waypointOf("wp", "10.96.0.9") + waypointOf("next", "10.96.0.10"))
			p.want("after the start", c.want)
		})
	}
}

// A later version may add words to a line. What they are about stays so while the object asks for the same waypoint.
func TestWordsOfALaterVersionStayInTheirLine(t *testing.T) {
	shared := &memoryStore{}
	p := newBindingPlane(t, ShareAssignments(shared, 1<<20))
	p.put(serviceWith("web", "") + waypointOf("wp", "10.96.0.9") + waypointOf("next", "10.96.0.10"))
	p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	write := func(line string) {
		shared.mu.Lock()
		shared.waiting = map[string]string{"Service shop/web": line}
		shared.mu.Unlock()
		p.AdoptWaiting(shared.waitingNow())
	}
	keep := func(want string) {
		t.Helper()
		if err := p.Keep(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := shared.waitingNow()["Service shop/web"]; got != want {
			t.Errorf("it is remembered that %q, want %q", got, want)
		}
	}
	write(" shop/wp paced until=7")
	p.want("with words that mean nothing here", "direct")
	p.put(serviceWith("web", "istio.io/use-waypoint: wp, unrelated: label"))
	keep(" shop/wp paced until=7")
	p.acknowledge("wp")
	keep("shop/wp shop/wp bound paced until=7")
	p.want("acknowledged", "wp")
	p.put(serviceWith("web", "istio.io/use-waypoint: next"))
	keep("shop/wp shop/next")
	// A word may stand before the one that is known.
	write("shop/next shop/next until=7 bound")
	p.want("another control plane has heard that it may go", "next")
}

// Control planes of several versions use one file one after the other.
func TestAnotherVersionReadsTheFileAndLosesNothingOfIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "assignments.json")
	const later = `{"addresses": {}, "policies": {}, "waiting": {"Service shop/web": "shop/wp shop/next until=7"}, "pace": {"Service shop/web": [1, 2]}}`
	if err := os.WriteFile(path, []byte(later), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() *Assignments {
		a, err := LoadAssignments(path, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	p := newBindingPlane(t, open())
	p.put(serviceWith("web", "istio.io/use-waypoint: next") + serviceWith("db", "") + waypointOf("wp", "10.96.0.9") + waypointOf("next", "10.96.0.10"))
	p.want("as the later version left it", "wp")
	p.put(serviceWith("db", "istio.io/use-waypoint: next"))
	// The first version reads a line as the way alone, and later ones find what they wrote.
	var kept struct {
		Waiting map[string]string
		Pace    map[string][]int
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(kept.Waiting, map[string]string{"Service shop/web": "shop/wp", "Service shop/db": ""}) || !slices.Equal(kept.Pace["Service shop/web"], []int{1, 2}) {
		t.Errorf("the file has %s", data)
	}
	q := newBindingPlane(t, open())
	q.Apply(p.everything())
	q.want("after a restart", "wp")
	q.acknowledge("next")
	q.want("acknowledged", "next")
	if a := open(); len(a.Waiting) != 0 || len(a.others) != 1 {
		t.Errorf("it is remembered: %v, %v", a.Waiting, a.others)
	}
}
