package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

func through(ns *netns.Namespace) (path string) {
	_ = ns.WithFD(func(fd int) error { path = fmt.Sprintf("/proc/self/fd/%d", fd); return nil })
	return path
}

// inKernel is a rig whose rules are the kernel's, with a captured pod in the network.
func inKernel(t *testing.T, ns *netns.Namespace) *rig {
	t.Helper()
	r := newRig(t)
	r.agent.capturer.networks.open, r.agent.capturer.redirect = netns.Open, kernel{}
	r.accepted[unit] = true
	r.snapshot.Pods[0].NetNS = through(ns)
	r.label(true)
	r.is(Captured, "")
	return r
}

func (r *rig) stays(ns *netns.Namespace) {
	r.t.Helper()
	for range 10 {
		r.step(3 * time.Second)
		if mode, err := redirect.Observe(ns); err != nil || mode != redirect.Capturing {
			r.t.Fatalf("the captured pod's network is %v, %v", mode, err)
		}
	}
	r.is(Captured, "")
}

// Whoever is told of a pod may be told wrongly. A network is one pod's.
func TestANetworkIsNoTwoPods(t *testing.T) {
	victim := netnstest.Pod(t, netnstest.New(t), "pod", "10.244.1.20")
	r := inKernel(t, victim)
	other := filepath.Join(t.TempDir(), "net")
	if err := os.Symlink(through(victim), other); err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{through(victim), other} {
		r.accepted["u2"] = true
		for _, annotations := range []map[string]string{{}, {wellknown.Redirection: "enabled"}} {
			for _, namespace := range []string{"evil", "default"} {
				thief := source.Pod{UID: "u2", Namespace: namespace, Name: "thief", NetNS: path, Network: victim.ID(), Annotations: annotations}
				r.snapshot.Pods = append(r.snapshot.Pods[:1:1], thief)
				r.learn()
				r.stays(victim)
				if p := r.agent.pods["u2"]; p.ns != nil || p.state == Captured {
					t.Errorf("path %d: the thief is %s and holds %v", i, p.state, p.ns)
				}
				r.snapshot.Pods = r.snapshot.Pods[:1]
				r.learn()
				r.stays(victim)
			}
		}
	}
}

// An agent that starts does not know whose it is.
func TestANetworkThatTwoPodsAreSaidToHaveIsNeithers(t *testing.T) {
	ns := netnstest.New(t)
	r := newRig(t)
	r.agent.capturer.networks.open = netns.Open
	r.accepted[unit], r.accepted["u2"] = true, true
	r.snapshot.Pods[0].NetNS, r.snapshot.Pods[0].Network = through(ns), ns.ID()
	thief := r.snapshot.Pods[0]
	thief.UID, thief.Name = "u2", "b"
	r.snapshot.Pods = append(r.snapshot.Pods, thief)
	r.label(true)
	for uid, p := range r.agent.pods {
		if p.ns != nil || p.state == Captured || !strings.Contains(p.reason, "another pod's") {
			t.Errorf("%s is %s: %s", uid, p.state, p.reason)
		}
	}
	r.snapshot.Pods = r.snapshot.Pods[:1]
	r.learn()
	r.step(time.Minute)
	r.is(Captured, "")
}

// Rules in the node's own network would end it.
func TestTheNodesOwnNetworkIsNeverCaptured(t *testing.T) {
	node := netnstest.New(t)
	r := newRig(t)
	r.agent.capturer.networks = newNetworks(map[netns.ID]bool{node.ID(): true})
	r.accepted[unit] = true
	r.snapshot.Pods[0].NetNS = through(node)
	r.label(true)
	r.step(time.Minute)
	r.is(Plain, "the node's own")
	if r.mode != redirect.Absent {
		t.Errorf("the node's network is %v", r.mode)
	}
	// Nor does a captured pod go there.
	own := netnstest.New(t)
	r.snapshot.Pods[0].NetNS = through(own)
	r.learn()
	r.step(time.Minute)
	r.is(Captured, "")
	r.snapshot.Pods[0].NetNS = through(node)
	r.learn()
	r.step(time.Minute)
	if p := r.pod(); p.state != Captured || p.ns.ID() != own.ID() {
		t.Errorf("it is %s: %s", p.state, p.reason)
	}
	if len(ownNetworks()) == 0 {
		t.Error("the agent does not know its own network")
	}
}

// A path through /proc leads wherever the process is that has the number now.
func TestAPathThatLeadsElsewhereIsNotFollowed(t *testing.T) {
	own, other := netnstest.New(t), netnstest.New(t)
	r := newRig(t)
	r.agent.capturer.networks.open, r.agent.capturer.redirect = netns.Open, kernel{}
	r.accepted[unit] = true
	path := filepath.Join(t.TempDir(), "net")
	lead := func(ns *netns.Namespace) {
		_ = os.Remove(path)
		if err := os.Symlink(through(ns), path); err != nil {
			t.Fatal(err)
		}
	}
	lead(other)
	r.snapshot.Pods[0].NetNS, r.snapshot.Pods[0].Network = path, own.ID()
	r.label(true)
	r.step(time.Minute)
	r.is(Plain, "another network")
	lead(own)
	r.learn()
	r.step(time.Minute)
	r.is(Captured, "")
	lead(other)
	r.learn()
	r.stays(own)
	if mode, err := redirect.Observe(other); err != nil || mode != redirect.Absent {
		t.Errorf("the other network is %v, %v", mode, err)
	}
	// One that is held open needs no path.
	held, err := other.Clone()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	r.snapshot.Pods[0].NetNS, r.snapshot.Pods[0].Network, r.snapshot.Pods[0].Held = "/nowhere", other.ID(), held
	r.learn()
	r.step(time.Minute)
	r.stays(other)
}

// The next pod that gets the network, as a mirror whose object is made anew, is not kept from it.
func TestANetworkThatIsLetGoCanBeAnothers(t *testing.T) {
	ns := netnstest.New(t)
	r := inKernel(t, ns)
	next := r.snapshot.Pods[0]
	next.UID = "u2"
	r.accepted["u2"] = true
	r.snapshot.Pods = []source.Pod{next}
	r.learn()
	if p := r.agent.pods["u2"]; p.state != Captured || p.ns == nil {
		t.Errorf("the pod is %s: %s", p.state, p.reason)
	}
	if mode, err := redirect.Observe(ns); err != nil || mode != redirect.Capturing {
		t.Errorf("its network is %v, %v", mode, err)
	}
}
