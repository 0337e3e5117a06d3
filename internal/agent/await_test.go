package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/cni"
	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

// runs lets the rig's agent live by the real clock.
func (r *rig) runs(t *testing.T) {
	t.Helper()
	r.agent.capturer.grace, r.agent.capturer.poll = time.Millisecond, time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { r.agent.Run(ctx) })
	t.Cleanup(func() { cancel(); all.Wait() })
}

// enrolledPod is what the source says once the pod is born and enrolled.
func (r *rig) enrolledPod() source.Snapshot {
	s := r.snapshot
	s.Namespaces = map[string]source.Namespace{"default": {Labels: map[string]string{wellknown.DataplaneMode: "ambient"}}}
	return s
}

// awaitsInVain is what Await says when its time ends while the agent waits for the pod, however late the agent is.
func awaitsInVain(t *testing.T, a *Agent, uid, path string) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.Await(ctx, uid, path) }()
	eventually(t, "the pod is waited for", func() error {
		waiting := 0
		if err := a.ask(t.Context(), func() { waiting = len(a.waiting) }); err != nil || waiting != 1 {
			return fmt.Errorf("%d wait, %v", waiting, err)
		}
		return nil
	})
	select {
	case err := <-done:
		t.Errorf("it does not wait: %v", err)
		return err
	default:
	}
	cancel()
	return <-done
}

func TestABirthWaitsForTheCapture(t *testing.T) {
	r := newRig(t)
	r.accepted[unit] = true
	r.runs(t)
	done := make(chan error, 1)
	go func() { done <- r.agent.Await(t.Context(), unit, "/run/netns/a") }()
	select {
	case err := <-done:
		t.Fatalf("it does not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	// In another network the pod is another one.
	other := r.enrolledPod()
	other.Pods = []source.Pod{other.Pods[0]}
	other.Pods[0].NetNS = "/run/netns/before"
	r.agent.deliver(other)
	select {
	case err := <-done:
		t.Fatalf("the capture of an older sandbox is taken for it: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	r.agent.deliver(r.enrolledPod())
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	_ = r.agent.ask(t.Context(), func() {
		if r.mode != redirect.Capturing {
			t.Errorf("the pod starts while its network is %v", r.mode)
		}
	})
}

func TestABirthThatCannotBeCapturedSaysWhy(t *testing.T) {
	r := newRig(t)
	r.runs(t)
	r.agent.deliver(r.enrolledPod())
	eventually(t, "the pod waits for the proxy", func() error {
		if _, reason, err := r.agent.Captured(t.Context(), unit); err != nil || !strings.Contains(reason, "waiting for the node proxy") {
			return fmt.Errorf("%q, %v", reason, err)
		}
		return nil
	})
	if err := awaitsInVain(t, r.agent, unit, "/run/netns/a"); err == nil || !strings.Contains(err.Error(), "waiting for the node proxy") {
		t.Errorf("got %v", err)
	}
	_ = r.agent.ask(t.Context(), func() {
		if len(r.agent.waiting) != 0 {
			t.Error("it is waited for still")
		}
	})
}

func TestAPodThatIsNotWantedIsNotWaitedFor(t *testing.T) {
	r := newRig(t)
	r.runs(t)
	r.agent.deliver(r.snapshot)
	if err := r.agent.Await(t.Context(), unit, "/run/netns/a"); err != nil {
		t.Error(err)
	}
}

// born is a nursery.
type born struct {
	wanted bool
	err    error
}

func (b born) Born(context.Context, cni.Request) (string, bool, error) { return "u", b.wanted, b.err }
func (b born) Part(context.Context, cni.Request)                       {}

type captor struct{ err error }

func (c captor) Await(context.Context, string, string) error { return c.err }
func (c captor) Captured(context.Context, string) (bool, string, error) {
	return c.err == nil, "its reason", nil
}

func TestAnswersToThePlugin(t *testing.T) {
	for name, tt := range map[string]struct {
		born
		captor
		working bool
		want    cni.Verdict
	}{
		"outside":      {born{}, captor{errors.New("never asked")}, false, cni.Outside},
		"unknown":      {born{err: errors.New("the API server is away")}, captor{}, false, cni.Unknown},
		"captured":     {born{wanted: true}, captor{}, true, cni.Done},
		"not captured": {born{wanted: true}, captor{errors.New("no proxy")}, true, cni.Failed},
	} {
		working := false
		got := cniHandler{nursery: tt.born, agent: tt.captor, limit: time.Minute}.Add(t.Context(), cni.Request{}, func() { working = true })
		if got.Verdict != tt.want || working != tt.working {
			t.Errorf("%s: %v, working %v", name, got, working)
		}
		if tt.want == cni.Done || tt.want == cni.Failed {
			continue
		}
		if check := (cniHandler{nursery: tt.born, agent: tt.captor}).Check(t.Context(), cni.Request{}); check.Verdict != tt.want {
			t.Errorf("%s: CHECK says %v", name, check)
		}
	}
}

// When the mesh leaves, every pod is released as a user would release it, and none is captured any more.
func TestLeavingReleasesEveryPod(t *testing.T) {
	r := newRig(t)
	r.accepted[unit] = true
	r.runs(t)
	r.agent.deliver(r.enrolledPod())
	if err := r.agent.Await(t.Context(), unit, "/run/netns/a"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	if err := r.agent.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	r.agent.deliver(r.enrolledPod())
	if err := r.agent.Await(ctx, unit, "/run/netns/a"); err != nil {
		t.Fatal(err)
	}
	_ = r.agent.ask(ctx, func() {
		p := r.agent.pods[unit]
		if r.mode != redirect.Absent || p.state != Plain || p.told.State != source.Disabled {
			t.Errorf("left: rules %v, state %v, the engine was told %v", r.mode, p.state, p.told)
		}
	})
}

// A captured pod whose network cannot be found for now is kept by the proxy.
func TestACapturedPodWithoutKnownNetworkIsKept(t *testing.T) {
	r := newRig(t)
	r.mode = redirect.Capturing
	r.snapshot.Pods[0].NetNS = ""
	r.snapshot.Pods[0].Annotations = map[string]string{wellknown.Redirection: "enabled"}
	r.label(true)
	r.did("put a", "complete")
	r.snapshot.Pods[0].NetNS = "/run/netns/a"
	r.accepted[unit] = true
	r.step(time.Minute)
	r.learn()
	r.is(Captured, "")
}

// The runtime may make a pod another sandbox when the first one died.
func TestAPodThatEndedCanBeBornAgain(t *testing.T) {
	r := newRig(t)
	r.accepted[unit] = true
	r.label(true)
	r.is(Captured, "")
	r.snapshot.Pods[0].Ended = true
	r.learn()
	if !r.pod().parted {
		t.Fatal("the pod has not parted")
	}
	r.snapshot.Pods[0].NetNS = ""
	r.learn()
	// Another network, without rules.
	ns := netnstest.New(t)
	var path string
	_ = ns.WithFD(func(fd int) error { path = fmt.Sprintf("/proc/self/fd/%d", fd); return nil })
	r.snapshot.Pods[0].Ended, r.snapshot.Pods[0].NetNS = false, path
	r.agent.capturer.networks.open = netns.Open
	r.mode = redirect.Absent
	r.accepted[unit] = true
	r.learn()
	if p := r.pod(); p.parted || p.state != Captured {
		t.Errorf("born again it is %v, parted %v", p.state, p.parted)
	}
}

// probes are those of a node whose rules are the test's.
type probes struct {
	told    []string
	calls   int
	stand   map[netip.AddrPort]bool
	changed chan struct{}
}

// probed are the rig's pod's probes; it has one.
func (r *rig) probed() *probes {
	p := &probes{stand: map[netip.AddrPort]bool{}, changed: make(chan struct{}, 1)}
	r.agent.capturer.probes = p
	r.snapshot.Pods[0].Probed = []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:8080")}
	return p
}

func (p *probes) Set(all []netip.AddrPort) {
	p.calls++
	p.told = nil
	for _, a := range all {
		p.told = append(p.told, a.String())
	}
}

func (p *probes) Stand(all []netip.AddrPort) bool {
	return !slices.ContainsFunc(all, func(a netip.AddrPort) bool { return !p.stand[a] })
}

func (p *probes) Changed() <-chan struct{} { return p.changed }

// Captured pods are told to the prober, and before that those that are to be.
func TestTheProberLearnsOfPodsInTheMesh(t *testing.T) {
	r := newRig(t)
	p := r.probed()
	at := r.snapshot.Pods[0].Probed
	r.snapshot.Pods[0].Probed = nil
	r.settle()
	if p.calls != 0 {
		t.Errorf("told %v before anything is known", p.told)
	}
	r.learn()
	if p.calls == 0 {
		t.Error("not told that nothing is probed, which an earlier agent may have known otherwise")
	}
	r.snapshot.Pods[0].Probed = at
	r.learn()
	if len(p.told) != 0 {
		t.Errorf("a pod outside the mesh: %v", p.told)
	}
	r.label(true)
	if strings.Join(p.told, ",") != "10.0.0.1:8080" {
		t.Errorf("a pod that is to be captured: %v", p.told)
	}
	p.stand[r.snapshot.Pods[0].Probed[0]] = true
	r.accept()
	r.is(Captured, "")
	if strings.Join(p.told, ",") != "10.0.0.1:8080" {
		t.Errorf("a captured pod: %v", p.told)
	}
	r.label(false)
	r.settle()
	if len(p.told) != 0 {
		t.Errorf("a released pod: %v", p.told)
	}
}

// A probe that comes before the rules for it would be refused where a policy wants to know who comes.
func TestAPodIsCapturedOnceItsProbesWillPass(t *testing.T) {
	r := newRig(t)
	p := r.probed()
	r.accepted[unit] = true
	r.label(true)
	r.is(Pending, "kubelet's probes")
	r.step(time.Second)
	r.is(Pending, "kubelet's probes")
	p.stand[r.snapshot.Pods[0].Probed[0]] = true
	r.settle()
	r.is(Captured, "")
}

// Rules that cannot be written keep no pod from the mesh.
func TestAPodDoesNotWaitForItsProbesForLong(t *testing.T) {
	r := newRig(t)
	r.probed()
	r.accepted[unit] = true
	r.label(true)
	r.step(probesTime - time.Nanosecond)
	r.is(Pending, "kubelet's probes")
	r.step(time.Nanosecond)
	r.is(Captured, "")
}

// A pod that waits is looked at when the rules stand, and not later.
func TestTheRulesForProbesWakeTheAgent(t *testing.T) {
	r := newRig(t)
	p := r.probed()
	p.stand[r.snapshot.Pods[0].Probed[0]] = false
	r.accepted[unit] = true
	r.runs(t)
	// As one whose work takes long it is looked at only when something has happened.
	r.agent.slow = 0
	r.agent.deliver(r.enrolledPod())
	eventually(t, "the pod waits", func() error {
		if _, reason, err := r.agent.Captured(t.Context(), unit); err != nil || !strings.Contains(reason, "kubelet's probes") {
			return fmt.Errorf("%q, %v", reason, err)
		}
		return nil
	})
	_ = r.agent.ask(t.Context(), func() { r.agent.pods[unit].probesBy = time.Now().Add(time.Hour) })
	_ = r.agent.ask(t.Context(), func() { p.stand[r.snapshot.Pods[0].Probed[0]] = true })
	p.changed <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	if err := r.agent.Await(ctx, unit, "/run/netns/a"); err != nil {
		t.Fatal(err)
	}
}

// A new agent takes the probes of pods that the last one captured for wanted before it has looked at them.
func TestProbesOfPodsFromBeforeAreNotForgotten(t *testing.T) {
	r := newRig(t)
	p := r.probed()
	r.mode = redirect.Capturing
	r.viewErr = errKernel // it cannot be looked at yet
	r.snapshot.Pods[0].Annotations = map[string]string{wellknown.Redirection: "enabled"}
	r.label(true)
	if strings.Join(p.told, ",") != "10.0.0.1:8080" {
		t.Errorf("told %v", p.told)
	}
}

// unjudgedPod is what the source says of a pod whose namespace it does not know yet.
func (r *rig) unjudgedPod() source.Snapshot {
	s := r.snapshot
	s.Pods = slices.Clone(s.Pods)
	s.Pods[0].Unjudged = true
	s.Namespaces = nil
	return s
}

func TestABirthWaitsForThePodsNamespace(t *testing.T) {
	r := newRig(t)
	r.accepted[unit] = true
	r.runs(t)
	r.agent.deliver(r.unjudgedPod())
	eventually(t, "the pod is not as its owner wants it", func() error {
		if ok, reason, err := r.agent.Captured(t.Context(), unit); err != nil || ok || !strings.Contains(reason, "namespace") {
			return fmt.Errorf("%v, %q, %v", ok, reason, err)
		}
		return nil
	})
	if err := awaitsInVain(t, r.agent, unit, "/run/netns/a"); err == nil || !strings.Contains(err.Error(), "namespace") {
		t.Fatalf("a pod that cannot be judged starts: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- r.agent.Await(t.Context(), unit, "/run/netns/a") }()
	r.agent.deliver(r.enrolledPod())
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	_ = r.agent.ask(t.Context(), func() {
		if r.mode != redirect.Capturing {
			t.Errorf("the pod starts while its network is %v", r.mode)
		}
	})
}

func TestACapturedPodIsNotReleasedWhileItsNamespaceIsUnknown(t *testing.T) {
	for name, of := range map[string]struct{ again, unwritten bool }{
		"the agent that captured it":                       {},
		"the agent that follows":                           {again: true},
		"the agent that follows one which wrote no report": {again: true, unwritten: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.label(true)
			r.accept()
			if r.is(Captured, ""); of.again {
				r.start()
			}
			r.events = nil
			r.accepted[unit] = true
			known := r.snapshot
			r.snapshot = r.unjudgedPod()
			if of.unwritten {
				r.snapshot.Pods[0].Annotations = nil
			}
			r.learn()
			r.accept()
			r.is(Captured, "")
			if r.mode != redirect.Capturing {
				t.Errorf("its network is %v", r.mode)
			}
			r.snapshot = known
			r.label(false)
			r.is(Releasing, "other proxies not updated yet")
		})
	}
}
