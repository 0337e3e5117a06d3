package kube

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
	"lateen.dev/lateen/internal/agent/source"
)

const (
	longUID = "0a1b2c3d-1111-2222-3333-444455556666"
	hash    = "0123456789abcdef0123456789abcdef"
)

func named(name, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[name] = value
	}
}

// mirror is what a kubelet, or whoever likes, makes of a static pod.
func mirror(hash string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		named(source.ConfigHash, hash)(p)
		named(source.ConfigMirror, hash)(p)
	}
}

func inCgroup(uid string) string { return "0::/kubepods/burstable/pod" + uid + "/abc\n" }

// Annotations are anybody's: no pod has another's network for what it says of itself.
func TestAnAnnotationGivesNobodyAnothersNetwork(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", longUID),
		pod("thief", "u2", at("10.244.1.66"), named(source.ConfigHash, longUID)),
		pod("mirror", "u3", at("10.244.1.67"), mirror(longUID)))
	r.process(t, 20, inCgroup(longUID), r.net)
	r.run()
	if _, _, err := r.Born(t.Context(), r.birth("web", longUID)); err != nil {
		t.Fatal(err)
	}
	pods := r.await(t, "the pod, and that nothing of the others is found", func(p map[string]source.Pod) bool {
		return p["web"].NetNS != "" && p["thief"].Lost != "" && p["mirror"].Lost != ""
	})
	for _, name := range []string{"thief", "mirror"} {
		if p := pods[name]; p.NetNS != "" || p.Held != nil || p.Network != (netns.ID{}) {
			t.Errorf("%s has the network of web: %+v", name, p)
		}
	}
}

// A static pod's uid is a mirror's annotation, and a mirror can be made by others than the kubelet.
func TestAStaticPodKeepsItsNetwork(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("static", "u1", mirror(hash), at("10.244.1.9")), pod("thief", "u2", mirror(hash), at("10.244.1.66")))
	r.run()
	if uid, _, err := r.Born(t.Context(), r.birth("static", hash)); err != nil || uid != "u1" {
		t.Fatal(uid, err)
	}
	pods := r.await(t, "both", func(p map[string]source.Pod) bool { return p["static"].NetNS != "" && p["thief"].Lost != "" })
	if p := pods["thief"]; p.NetNS != "" || p.Held != nil {
		t.Errorf("the thief has %q", p.NetNS)
	}
}

func TestAStaticPodThatRunsIsFoundUnlessTwoPoseAsIt(t *testing.T) {
	node := netnstest.New(t)
	inside := netnstest.Pod(t, node, "pod", "10.244.1.20")
	r := newRig(t, namespace("shop", ambient), pod("static", "u1", mirror(hash), at("10.244.1.20")), pod("nowhere", "u2", mirror(hash)))
	r.process(t, 20, inCgroup(hash), inside)
	r.run()
	// Only a pod that runs has an address.
	r.await(t, "the static pod", func(p map[string]source.Pod) bool { return p["static"].NetNS != "" })

	r = newRig(t, namespace("shop", ambient), pod("static", "u1", mirror(hash), at("10.244.1.20")), pod("other", "u2", mirror(hash), at("10.244.1.20")))
	r.process(t, 20, inCgroup(hash), inside)
	r.run()
	pods := r.await(t, "neither", func(p map[string]source.Pod) bool { return p["static"].Lost != "" && p["other"].Lost != "" })
	if pods["static"].NetNS != "" || pods["other"].NetNS != "" {
		t.Errorf("one of two has it: %+v", pods)
	}
}

// What runs in a pod makes a network of its own with the pod's address, and a process in it that comes first.
func TestADecoyIsNotTakenForAPodsNetwork(t *testing.T) {
	inside := netnstest.Pod(t, netnstest.New(t), "pod", "10.244.1.20")
	decoy := netnstest.Pod(t, netnstest.New(t), "pod", "10.244.1.20")
	r := newRig(t, namespace("shop", ambient), pod("web", longUID, at("10.244.1.20")))
	path := r.mount(t, "cni-1", inside)
	r.mount(t, "cni-0", netnstest.New(t)) // another pod's
	r.process(t, 800, inCgroup(longUID), inside)
	r.process(t, 1000, inCgroup(longUID), decoy)
	r.run()
	got := r.await(t, "the pod's network", func(p map[string]source.Pod) bool { return p["web"].NetNS != "" })["web"]
	if got.NetNS != path || got.Network != inside.ID() {
		t.Errorf("found %s, want what the runtime mounted, %s", got.NetNS, path)
	}
}

// Even if the pod's own has another address by now, as the API server will learn.
func TestADecoyIsNotTakenWhereTheRuntimeMountsNetworks(t *testing.T) {
	inside := netnstest.Pod(t, netnstest.New(t), "pod", "10.244.1.21")
	decoy := netnstest.Pod(t, netnstest.New(t), "pod", "10.244.1.20")
	r := newRig(t, namespace("shop", ambient), pod("web", longUID, at("10.244.1.20")))
	r.mount(t, "cni-1", inside)
	r.process(t, 800, inCgroup(longUID), inside)
	r.process(t, 1000, inCgroup(longUID), decoy)
	r.run()
	got := r.await(t, "why it was not found", func(p map[string]source.Pod) bool { return p["web"].Lost != "" })["web"]
	if got.NetNS != "" || !strings.Contains(got.Lost, "10.244.1.21") {
		t.Errorf("found %q, %s", got.NetNS, got.Lost)
	}
}

func TestWithoutMountsOnlyOneNetworkCanBeThePods(t *testing.T) {
	inside := netnstest.Pod(t, netnstest.New(t), "pod", "10.244.1.20")
	decoy := netnstest.Pod(t, netnstest.New(t), "pod", "10.244.1.20")
	r := newRig(t, namespace("shop", ambient), pod("web", longUID, at("10.244.1.20")))
	r.process(t, 800, inCgroup(longUID), inside)
	r.process(t, 1000, inCgroup(longUID), decoy)
	r.run()
	got := r.await(t, "why it was not found", func(p map[string]source.Pod) bool { return p["web"].Lost != "" })["web"]
	if got.NetNS != "" || !strings.Contains(got.Lost, "several networks") {
		t.Errorf("found %q, %s", got.NetNS, got.Lost)
	}
	// As many as one likes, so that the one is not looked at.
	r = newRig(t, namespace("shop", ambient), pod("web", longUID, at("10.244.1.20")))
	r.process(t, 1000, inCgroup(longUID), decoy)
	for i := range maxLoose {
		r.process(t, 2000+i, inCgroup(longUID), netnstest.New(t))
	}
	r.run()
	got = r.await(t, "why it was not found", func(p map[string]source.Pod) bool { return p["web"].Lost != "" })["web"]
	if got.NetNS != "" || !strings.Contains(got.Lost, "several networks") {
		t.Errorf("found %q, %s", got.NetNS, got.Lost)
	}
}

// Without any right a process can have a network of its own, within users of its own.
func TestANetworkOfUsersOfItsOwnIsNotAPods(t *testing.T) {
	decoy := madeItself(t)
	address(t, decoy, "10.244.1.20")
	r := newRig(t, namespace("shop", ambient), pod("web", longUID, at("10.244.1.20")))
	r.process(t, 1000, inCgroup(longUID), decoy)
	r.run()
	got := r.await(t, "why it was not found", func(p map[string]source.Pod) bool { return p["web"].Lost != "" })["web"]
	if got.NetNS != "" || !strings.Contains(got.Lost, "made itself") {
		t.Errorf("found %q, %s", got.NetNS, got.Lost)
	}
	// However many there are, they hide the pod's own from nobody: neither from who captures it nor from who takes the mesh off the node.
	inside := netnstest.Pod(t, netnstest.New(t), "pod", "10.244.1.20")
	for i := range maxLoose {
		r.process(t, 1001+i, inCgroup(longUID), madeItself(t))
	}
	r.process(t, 2000, inCgroup(longUID), inside)
	r.change()
	got = r.await(t, "the pod's network", func(p map[string]source.Pod) bool { return p["web"].Held != nil })["web"]
	if got.Network != inside.ID() {
		t.Errorf("found %v, %s", got.Network, got.Lost)
	}
	own, unseen, err := OwnNetworks(filepath.Join(r.dir, "proc"), filepath.Join(r.dir, "none"), filepath.Join(r.dir, "none"))
	for _, ns := range own {
		defer ns.Close()
	}
	if err != nil || len(unseen) > 0 || len(own) != 1 || own[0].ID() != inside.ID() {
		t.Errorf("the node's pods have %d networks of their own; not seen: %v, %v", len(own), unseen, err)
	}
}

// madeItself is a network as any process can make it.
func madeItself(t *testing.T) *netns.Namespace {
	t.Helper()
	c := exec.Command("sleep", "600")
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	made, err := netns.Open(fmt.Sprintf("/proc/%d/ns/net", c.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Close() })
	return made
}

// address gives the namespace's loopback addresses.
func address(t *testing.T, ns *netns.Namespace, addresses ...string) {
	t.Helper()
	netnstest.In(t, ns, func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, a := range addresses {
			if err := h.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(a), Mask: net.CIDRMask(32, 32)}}); err != nil {
				return err
			}
		}
		return nil
	})
}

// A network can have any number of addresses, and whoever runs there chooses them.
func TestWhatIsSaidOfANetworkIsShort(t *testing.T) {
	inside := netnstest.New(t)
	var many []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("10.99.%d.%d", i/256, i%256))
	}
	address(t, inside, many...)
	r := newRig(t, namespace("shop", ambient), pod("web", longUID, at("10.244.1.20")))
	r.process(t, 800, inCgroup(longUID), inside)
	r.run()
	got := r.await(t, "why it was not found", func(p map[string]source.Pod) bool { return p["web"].Lost != "" })["web"]
	if len(got.Lost) > 400 || !strings.Contains(got.Lost, " more") || !strings.Contains(got.Lost, "10.244.1.20") {
		t.Errorf("%d bytes: %.500s", len(got.Lost), got.Lost)
	}
	// The one that counts is the last of them.
	address(t, inside, "10.244.1.20")
	r.await(t, "the pod's network", func(p map[string]source.Pod) bool { return p["web"].NetNS != "" })
}

// A process ends, and its number is given to another, in another network.
func TestANetworkIsNotFollowedByAProcessNumber(t *testing.T) {
	inside := netnstest.Pod(t, netnstest.New(t), "pod", "10.244.1.20")
	r := newRig(t, namespace("shop", ambient), pod("web", longUID, at("10.244.1.20")))
	r.process(t, 800, inCgroup(longUID), inside)
	r.run()
	found := func(p map[string]source.Pod) bool { return p["web"].NetNS != "" }
	r.await(t, "the pod's network", found)
	link := filepath.Join(r.dir, "proc/800/ns/net")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(through(here(t)), link); err != nil {
		t.Fatal(err)
	}
	r.change()
	got := r.await(t, "the pod", found)["web"]
	again, err := got.Held.Clone()
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.ID() != inside.ID() || got.Network != inside.ID() {
		t.Error("what is held is not the network that was found")
	}
	// Nor by an agent that follows.
	r.starts(t)
	got = r.await(t, "that it is not found", func(p map[string]source.Pod) bool { return p["web"].Lost != "" })["web"]
	if got.NetNS != "" {
		t.Errorf("the agent that follows takes %s", got.NetNS)
	}
}

func TestANotedPathThatLeadsElsewhereIsNotFollowed(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", longUID, named("ambient.istio.io/redirection", "enabled")))
	r.path = r.mount(t, "cni-1", r.net)
	r.run()
	if _, _, err := r.Born(t.Context(), r.birth("web", longUID)); err != nil {
		t.Fatal(err)
	}
	r.await(t, "the pod", func(p map[string]source.Pod) bool { return p["web"].NetNS != "" })
	netnstest.Unmount(t, r.path)
	netnstest.Mount(t, netnstest.New(t), r.path)
	r.starts(t)
	got := r.await(t, "the pod, without", func(p map[string]source.Pod) bool { _, there := p["web"]; return there })["web"]
	if got.NetNS != "" {
		t.Errorf("the network is %+v", got)
	}
	// As an agent of before may have noted it.
	r.end()
	if err := os.WriteFile(filepath.Join(r.dir, "boxes"), []byte(`{"`+longUID+`":{"netns":"/proc/self/ns/net"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r.starts(t)
	got = r.await(t, "the pod, without", func(p map[string]source.Pod) bool { _, there := p["web"]; return there })["web"]
	if got.NetNS != "" {
		t.Errorf("the network is %+v", got)
	}
}

func TestTheNodesOwnNetworkIsNoPods(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", "u1"))
	r.path = through(here(t))
	if _, _, err := r.Born(t.Context(), r.birth("web", "u1")); err == nil || !strings.Contains(err.Error(), "the node's") {
		t.Errorf("a birth on the node's network: %v", err)
	}
	if _, known := r.boxes.get("u1"); known {
		t.Error("it is noted")
	}
}
