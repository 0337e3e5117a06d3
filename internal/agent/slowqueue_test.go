package agent

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Pods of one namespace hold no turns that another one needs, and a pod that is given another network is not told by its first
// one. This one's took long once, on a busy node.
func TestANamespaceWhosePodsHangHoldsUpNoOther(t *testing.T) {
	r, release := newTarpit()
	defer release()
	k := &slowOnce{tarpit: r, first: map[string]bool{}, name: map[*netns.Namespace]string{}, hang: make(chan struct{})}
	defer close(k.hang)
	a := r.start(t)
	if err := a.ask(t.Context(), func() {
		a.capturer.redirect, a.capturer.verify = k, 10*time.Millisecond
		a.capturer.networks.open = func(path string) (*netns.Namespace, error) {
			ns, err := netns.New()
			k.mu.Lock()
			defer k.mu.Unlock()
			k.name[ns] = path
			return ns, err
		}
	}); err != nil {
		t.Fatal(err)
	}
	s := podsOf(slowAtOnce, 2)
	s.Namespaces["theirs"] = s.Namespaces["default"]
	for i := range slowAtOnce {
		s.Pods[i].Namespace = "theirs"
	}
	r.deliver(s)
	r.await(t, "all are captured", func() bool { return len(r.reports) == len(s.Pods) })
	k.mu.Lock()
	k.hangs = true
	k.mu.Unlock()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		working := 0
		if err := a.ask(t.Context(), func() {
			for _, p := range a.pods {
				if p.Namespace == "theirs" && p.working {
					working++
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		if working == slowAtOnce {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d hang after 20 s", working)
		}
	}
	// One is to be plain, another's runtime made it a new network.
	s.Pods = slices.Clone(s.Pods)
	one, other := &s.Pods[slowAtOnce], &s.Pods[slowAtOnce+1]
	one.Labels = map[string]string{wellknown.DataplaneMode: "none"}
	other.Ended, other.NetNS = true, ""
	r.deliver(s)
	r.await(t, "the one is released", func() bool { return r.reports[one.UID] == source.Disabled })
	r.await(t, "the other has parted", func() bool { return r.reports[other.UID] == source.Parted })
	s.Pods = slices.Clone(s.Pods)
	other = &s.Pods[slowAtOnce+1]
	other.Ended, other.NetNS = false, "/again"
	r.deliver(s)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := a.Await(ctx, other.UID, "/again"); err != nil {
		t.Errorf("the pod that has another network: %v", err)
	}
}

// slowOnce is a kernel that takes long the first time in each network, and for ever later in those that hang.
type slowOnce struct {
	*tarpit
	mu    sync.Mutex
	name  map[*netns.Namespace]string
	first map[string]bool
	hangs bool
	hang  chan struct{}
}

func (k *slowOnce) Observe(*netns.Namespace) (redirect.Mode, error) { return redirect.Absent, nil }

func (k *slowOnce) Apply(ns *netns.Namespace, _ redirect.Mode, _ redirect.Settings) (bool, error) {
	k.mu.Lock()
	path := k.name[ns]
	again := k.first[path]
	k.first[path] = true
	hangs := k.hangs && strings.HasPrefix(path, "/stuck")
	k.mu.Unlock()
	switch {
	case hangs:
		<-k.hang
	case !again:
		time.Sleep(slow + 20*time.Millisecond)
	}
	return true, nil
}

func TestTurnsOfALane(t *testing.T) {
	l := slowQueue{}
	taken := func(namespace string) (n int) {
		for l.enter(namespace) {
			n++
		}
		return n
	}
	if n := taken("a"); n != slowAtOnce {
		t.Errorf("alone a namespace has %d turns", n)
	}
	if n, m := taken("b"), taken("c"); n != slowOwn || m != slowOwn {
		t.Errorf("others have %d and %d", n, m)
	}
	for range slowAtOnce {
		l.leave("a")
	}
	if n := taken("b"); n != 0 {
		t.Errorf("%d turns more than there are for all", n)
	}
	if n := taken("a"); n != slowOwn {
		t.Errorf("then the first has %d", n)
	}
}

// Whoever waits for a pod whose network takes long is told so: at its birth, in the status and, of one that runs, in an event.
func TestWhoWaitsForAPodThatTakesLongIsToldWhy(t *testing.T) {
	r, release := newTarpit()
	defer release()
	a := r.start(t)
	r.deliver(podsOf(1, 0))
	r.await(t, "the source hears of it", func() bool { return strings.Contains(r.errors["stuck0"], "takes long") })
	s, err := a.Status(t.Context())
	if err != nil || len(s.Pods) != 1 || !strings.Contains(s.Pods[0].Reason, "takes long") {
		t.Errorf("the status is %+v, %v", s, err)
	}
	if err := awaitsInVain(t, a, "stuck0", "/stuck0"); err == nil || !strings.Contains(err.Error(), "takes long") {
		t.Errorf("at birth: %v", err)
	}
	release()
	r.await(t, "it is captured in the end", func() bool { return r.reports["stuck0"] == source.Enabled })

	now := time.Unix(1000, 0)
	p := pod{waits: now}
	if got := p.why(now.Add(longWork)); !strings.Contains(got, "others of the namespace") {
		t.Errorf("without a turn: %q", got)
	}
	if got := p.why(now.Add(longWork / 2)); got != "" {
		t.Errorf("at first: %q", got)
	}
	p.work.took = time.Hour
	if p.anew(now); p.work.took != 0 || !p.waits.IsZero() {
		t.Errorf("with another network: %+v", p)
	}
}
