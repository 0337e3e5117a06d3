package kubelet

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/redirect"
)

// fakeRules are those of a node that is the test's.
type fakeRules struct {
	mu       sync.Mutex
	prober   redirect.Prober
	targets  []netip.AddrPort
	posed    int
	guarded  int
	bridged  int
	changed  bool
	err      error
	bridges  error
	failures int
	repairs  int
}

func (f *fakeRules) Pose(p redirect.Prober, targets []netip.AddrPort) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return false, f.err
	}
	changed := f.changed || !reflect.DeepEqual(f.prober, p)
	f.prober, f.targets, f.changed = p, targets, false
	f.posed++
	return changed, nil
}

func (f *fakeRules) Guard() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guarded++
	return f.guarded == 1, f.err
}

func (f *fakeRules) Bridges() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bridged++
	return f.bridged == 1, f.bridges
}

// await waits until a condition holds.
func (f *fakeRules) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		f.mu.Lock()
		ok := holds()
		f.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 15 s: %+v", what, f)
		}
	}
}

// log is what was said.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func keeping(t *testing.T, m *machine) (*Prober, *fakeRules, *log) {
	t.Helper()
	f, l := &fakeRules{}, &log{}
	count := func(n *int) func() {
		return func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			*n++
		}
	}
	p := New(Names, slog.New(slog.NewTextHandler(l, nil)), count(&f.failures), count(&f.repairs))
	p.proc, p.rules = m.proc, f
	return p, f, l
}

func start(t *testing.T, p *Prober) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func TestTheKubeletsRulesFollowIt(t *testing.T) {
	m := newMachine(t)
	first := m.cgroup("system.slice/kubelet.service")
	p, f, l := keeping(t, m)
	start(t, p)
	f.await(t, "nobody has the probe address before there is a kubelet", func() bool { return f.guarded > 0 && f.posed == 0 })
	if l.count("probes of captured pods are subject to policy") == 0 {
		t.Error("the log does not say that there is no kubelet")
	}

	m.run(program{pid: 10, comm: "kubelet", cgroup: service, started: 1})
	f.await(t, "the kubelet is known by its cgroup", func() bool { return reflect.DeepEqual(f.prober, redirect.ByCgroup(first, 2)) })

	target := netip.MustParseAddrPort("10.0.0.1:8080")
	p.Set([]netip.AddrPort{target})
	f.await(t, "the target", func() bool { return len(f.targets) == 1 && f.targets[0] == target })
	before := func() int { f.mu.Lock(); defer f.mu.Unlock(); return f.posed }()
	p.Set([]netip.AddrPort{target})
	if after := func() int { f.mu.Lock(); defer f.mu.Unlock(); return f.posed }(); after != before {
		t.Error("the same targets are written again")
	}

	// Another in its place, elsewhere.
	second := m.cgroup("kubelet.slice/new/kubelet.service")
	if err := os.RemoveAll(filepath.Join(m.proc, "10")); err != nil {
		t.Fatal(err)
	}
	m.run(program{pid: 11, comm: "kubelet", cgroup: "0::/kubelet.slice/new/kubelet.service\n", started: 2})
	f.await(t, "the other kubelet's cgroup", func() bool { return reflect.DeepEqual(f.prober, redirect.ByCgroup(second, 3)) && len(f.targets) == 1 })
	f.mu.Lock()
	if f.repairs != 0 || f.failures != 0 {
		t.Errorf("%d repairs and %d failures are counted of what was no damage", f.repairs, f.failures)
	}
	f.changed = true // somebody damages them
	f.mu.Unlock()
	p.Set(nil)
	f.await(t, "the repair is counted", func() bool { return f.repairs == 1 && len(f.targets) == 0 })
}

func TestWhatCannotBeWrittenIsTriedAgainAndSaidOnce(t *testing.T) {
	m := newMachine(t)
	m.cgroup("system.slice/kubelet.service")
	m.run(program{pid: 10, comm: "kubelet", cgroup: service, started: 1})
	p, f, l := keeping(t, m)
	f.err, f.bridges = errors.New("the kernel says no"), errors.New("no bridges here")
	start(t, p)
	f.await(t, "two attempts", func() bool { return f.failures >= 2 })
	if n := l.count("the kernel says no"); n != 1 {
		t.Errorf("said %d times", n)
	}
	f.mu.Lock()
	f.err = nil
	f.mu.Unlock()
	f.await(t, "written", func() bool { return f.posed > 0 && f.bridged > 0 })
	p.Set([]netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:8080")})
	f.await(t, "written again", func() bool { return f.bridged > 1 })
	if n := l.count("no bridges here"); n != 1 {
		t.Errorf("that bridges are not guarded is said %d times", n)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.targets) != 1 {
		t.Error("bridges that cannot be guarded keep probes from passing")
	}
}

// standing waits until the targets stand, or do not, and for nothing but to be told that they may.
func standing(t *testing.T, p *Prober, want bool, targets []netip.AddrPort) {
	t.Helper()
	for late := time.After(15 * time.Second); p.Stand(targets) != want; {
		select {
		case <-p.Changed():
		case <-late:
			t.Fatalf("%v: standing is not %v within 15 s", targets, want)
		}
	}
}

// A pod that is about to be captured waits until its probes will pass.
func TestWhatIsWrittenStands(t *testing.T) {
	m := newMachine(t)
	m.cgroup("system.slice/kubelet.service")
	m.run(program{pid: 10, comm: "kubelet", cgroup: service, started: 1})
	p, f, _ := keeping(t, m)
	one, other := netip.MustParseAddrPort("10.0.0.1:8080"), netip.MustParseAddrPort("10.0.0.2:8080")
	if p.Stand([]netip.AddrPort{one}) {
		t.Error("it stands before anything is written")
	}
	f.err = errors.New("somebody else changes the rules")
	start(t, p)
	f.await(t, "a failure", func() bool { return f.failures > 0 })
	p.Set([]netip.AddrPort{one})
	failures := func() int { f.mu.Lock(); defer f.mu.Unlock(); return f.failures }()
	f.await(t, "a failure with the target", func() bool { return f.failures > failures+1 })
	if p.Stand([]netip.AddrPort{one}) || !p.Stand(nil) {
		t.Error("what could not be written stands, or nothing does not")
	}
	f.mu.Lock()
	f.err = nil
	f.mu.Unlock()
	standing(t, p, true, []netip.AddrPort{one})
	if p.Stand([]netip.AddrPort{one, other}) {
		t.Error("what nobody has named stands")
	}
	p.Set([]netip.AddrPort{other})
	standing(t, p, true, []netip.AddrPort{other})
	if p.Stand([]netip.AddrPort{one}) {
		t.Error("what was taken away stands")
	}
}

// Where there is no kubelet, no pod waits for one.
func TestWithoutAKubeletNothingIsWaitedFor(t *testing.T) {
	m := newMachine(t)
	p, f, _ := keeping(t, m)
	one := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:8080")}
	p.Set(one)
	if p.Stand(one) {
		t.Error("nothing is waited for before it was looked for")
	}
	start(t, p)
	standing(t, p, true, one)
	m.cgroup("system.slice/kubelet.service")
	f.mu.Lock()
	f.err = errors.New("not yet")
	f.mu.Unlock()
	m.run(program{pid: 10, comm: "kubelet", cgroup: service, started: 1})
	standing(t, p, false, one)
	f.mu.Lock()
	f.err = nil
	f.mu.Unlock()
	standing(t, p, true, one)
}

// Whoever is told that something may have changed looks at all pods, so it is told once.
func TestThatThereIsStillNoKubeletIsNoNews(t *testing.T) {
	m := newMachine(t)
	p, _, _ := keeping(t, m)
	p.look()
	select {
	case <-p.Changed():
	default:
		t.Fatal("nobody is told that nothing is to be waited for")
	}
	p.look()
	select {
	case <-p.Changed():
		t.Error("it is told again")
	default:
	}
}

// An agent that starts does not know yet what is probed: it leaves what the last one knew, and then takes away what is probed no more.
func TestWhatIsProbedStaysUntilItIsKnown(t *testing.T) {
	m := newMachine(t)
	m.cgroup("system.slice/kubelet.service")
	m.run(program{pid: 10, comm: "kubelet", cgroup: service, started: 1})
	p, f, _ := keeping(t, m)
	start(t, p)
	f.await(t, "rules", func() bool { return f.posed > 0 })
	f.mu.Lock()
	if f.targets != nil {
		t.Errorf("before it is told anything it writes %v", f.targets)
	}
	f.mu.Unlock()
	p.Set(nil)
	f.await(t, "none", func() bool { return f.targets != nil && len(f.targets) == 0 })
}

// meddled are rules during whose writing something happens.
type meddled struct {
	*fakeRules
	happens func()
}

func (m meddled) Pose(p redirect.Prober, targets []netip.AddrPort) (bool, error) {
	m.happens()
	return m.fakeRules.Pose(p, targets)
}

// Who comes to be at an address that was taken away waits for rules of his own, whatever was written meanwhile.
func TestAnAddressThatWasTakenAwayStandsForNobody(t *testing.T) {
	one := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:8080")}
	p, f, _ := keeping(t, newMachine(t))
	p.known = process{PID: 10}
	p.Set(one)
	if p.keep(time.Now()); !p.Stand(one) {
		t.Fatal("what was written does not stand")
	}
	p.Set(nil)
	if p.Stand(one) {
		t.Error("what was taken away stands until the rules are written again")
	}
	p.Set(one)
	if p.Stand(one) {
		t.Error("what was taken away and is named again stands before it is written again")
	}
	p.rules = meddled{f, func() { p.Set(nil) }}
	if p.keep(time.Now()); p.Stand(one) {
		t.Error("what was taken away while it was written stands")
	}
}
