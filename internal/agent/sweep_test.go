package agent

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
	"lateen.dev/lateen/internal/agent/redirect"
)

// leftNode is a node that is left: its folders, as a test fills them.
type leftNode struct {
	mounts, proc, boxes string
	processes           int
}

func newLeftNode(t *testing.T) *leftNode {
	t.Helper()
	dir := t.TempDir()
	n := &leftNode{mounts: filepath.Join(dir, "netns"), proc: filepath.Join(dir, "proc"), boxes: filepath.Join(dir, "boxes")}
	if err := errors.Join(os.Mkdir(n.mounts, 0o755), os.Mkdir(n.proc, 0o755)); err != nil {
		t.Fatal(err)
	}
	return n
}

// uidOf is a pod's, of a number.
func uidOf(pod int) string { return fmt.Sprintf("%08x-1111-2222-3333-444455556666", pod) }

// process makes a process of a pod, or of nobody's, 0, in a network.
func (n *leftNode) process(t *testing.T, pod int, path string) {
	t.Helper()
	n.processes++
	at, cgroup := filepath.Join(n.proc, fmt.Sprint(n.processes)), "0::/user.slice\n"
	if pod != 0 {
		cgroup = "0::/kubepods/pod" + uidOf(pod) + "/x\n"
	}
	err := errors.Join(os.MkdirAll(filepath.Join(at, "ns"), 0o755), os.WriteFile(filepath.Join(at, "cgroup"), []byte(cgroup), 0o644),
		os.Symlink(path, filepath.Join(at, "ns/net")))
	if err != nil {
		t.Fatal(err)
	}
}

func (n *leftNode) mount(t *testing.T, name string, ns *netns.Namespace) {
	t.Helper()
	if err := os.Symlink(through(ns), filepath.Join(n.mounts, name)); err != nil {
		t.Fatal(err)
	}
}

func (n *leftNode) sweep() swept { return newSweeper().sweep(n.mounts, n.proc, n.boxes) }

// redirected is a network with our rules.
func redirected(t *testing.T) *netns.Namespace {
	t.Helper()
	ns := netnstest.New(t)
	redirectIn(t, ns)
	return ns
}

func redirectIn(t *testing.T, ns *netns.Namespace) {
	t.Helper()
	if _, err := redirect.Apply(ns, redirect.Capturing, redirect.Settings{}); err != nil {
		t.Fatal(err)
	}
}

// elsewhere runs a program that says "ready" and then stays, in a network of its own.
func elsewhere(t *testing.T, flags uintptr, program ...string) *netns.Namespace {
	t.Helper()
	c := exec.Command(program[0], program[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags | syscall.CLONE_NEWNET, Setpgid: true}
	if flags&syscall.CLONE_NEWUSER != 0 {
		only := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
		c.SysProcAttr.UidMappings, c.SysProcAttr.GidMappings = only, only
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL); _ = c.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "ready") {
		t.Fatalf("%s said %q, %v", program[0], line, err)
	}
	ns, err := netns.Open(fmt.Sprintf("/proc/%d/ns/net", c.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

func stands(t *testing.T, what string, ns *netns.Namespace, want redirect.Mode) {
	t.Helper()
	if mode, err := redirect.Observe(ns); err != nil || mode != want {
		t.Errorf("%s: its network is %v, %v; want %v", what, mode, err, want)
	}
}

// What is left on a node that nobody releases pods on any more: where the runtime mounts networks, and where it does not.
func TestTheSweepFindsEveryPodsNetwork(t *testing.T) {
	n := newLeftNode(t)
	mounted, loose, foreign, noted := redirected(t), redirected(t), redirected(t), redirected(t)
	n.mount(t, "cni-1", mounted)
	if err := os.WriteFile(filepath.Join(n.mounts, "cni-0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.process(t, 1, through(mounted))
	n.process(t, 2, through(loose))
	n.process(t, 2, through(loose))
	n.process(t, 3, through(netnstest.New(t)))
	// Somebody else's on this machine.
	n.process(t, 0, through(foreign))
	// Where an agent was told of it, and no process is.
	at := filepath.Join(t.TempDir(), "cni-9")
	netnstest.Mount(t, noted, at)
	file := fmt.Sprintf(`{%q: {"netns": %q, "device": %d, "inode": %d}}`, uidOf(9), at, noted.ID().Device, noted.ID().Inode)
	if err := os.WriteFile(n.boxes, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := n.sweep(); got.failed != nil || got.count != 3 || len(got.stays) != 0 {
		t.Errorf("swept %+v; want 3", got)
	}
	stands(t, "mounted", mounted, redirect.Absent)
	stands(t, "of processes", loose, redirect.Absent)
	stands(t, "noted", noted, redirect.Absent)
	stands(t, "foreign", foreign, redirect.Capturing)
}

// What a tenant made is his: a network of users of its own, and, as a mesh within a pod has them, one beside the pod's.
func TestTheSweepLeavesAloneWhatAPodMadeItself(t *testing.T) {
	n := newLeftNode(t)
	mounted, nested, onNode := redirected(t), redirected(t), redirected(t)
	decoy := elsewhere(t, syscall.CLONE_NEWUSER, "sh", "-c", "ip link set lo up && echo ready; exec sleep 600")
	redirectIn(t, decoy)
	n.mount(t, "cni-1", mounted)
	n.process(t, 1, through(mounted))
	n.process(t, 1, through(nested))
	n.process(t, 1, through(decoy))
	own := redirected(t)
	n.process(t, 2, through(own))
	n.process(t, 2, through(decoy))
	// A mesh in a pod on the node's network.
	n.process(t, 3, "/proc/thread-self/ns/net")
	n.process(t, 3, through(onNode))
	if got := n.sweep(); got.failed != nil || got.count != 2 || len(got.stays) != 0 {
		t.Errorf("swept %+v; want 2", got)
	}
	stands(t, "the pod's", mounted, redirect.Absent)
	stands(t, "the other pod's", own, redirect.Absent)
	for what, ns := range map[string]*netns.Namespace{"nested": nested, "the tenant's": decoy, "in a pod on the node": onNode} {
		stands(t, what, ns, redirect.Capturing)
	}
}

// Whoever may do anything in a pod's network can have a table there that nobody else may change.
func TestANetworkThatCannotBeChangedHoldsUpNobody(t *testing.T) {
	n := newLeftNode(t)
	kept := elsewhere(t, 0, "sh", "-c", `{ echo 'add table inet lateen { flags owner; }'; echo 'add chain inet lateen redirect-inbound'; sleep 1; echo 'list tables'; sleep 600; } | `+
		`nft -i | sed -u 's/.*table inet lateen.*/ready/;t;d'`)
	other := redirected(t)
	n.mount(t, "cni-0", kept)
	n.mount(t, "cni-1", other)
	got := n.sweep()
	if got.failed != nil || got.count != 1 || len(got.stays) != 1 || !strings.Contains(got.stays[0], "cni-0: ") {
		t.Errorf("swept %+v; want 1, and cni-0 named", got)
	}
	stands(t, "the other", other, redirect.Absent)
}

// Nor does one that takes for ever, or many of them.
func TestTheSweepEnds(t *testing.T) {
	n := newLeftNode(t)
	for i := range 2 * sweptAtOnce {
		n.mount(t, fmt.Sprint("cni-", i), netnstest.New(t))
	}
	never := make(chan struct{})
	defer close(never)
	for _, s := range []sweeper{{limit: time.Hour, each: 50 * time.Millisecond}, {limit: 50 * time.Millisecond, each: 200 * time.Millisecond}} {
		s.bare = func(*netns.Namespace) (bool, error) { <-never; return true, nil }
		done := make(chan swept, 1)
		go func() { done <- s.sweep(n.mounts, n.proc, n.boxes) }()
		select {
		case got := <-done:
			if got.failed != nil || got.count != 0 || len(got.stays) != 2*sweptAtOnce {
				t.Errorf("swept %+v", got)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("it does not")
		}
	}
}

// That no network can be entered is the agent's own fault, and no pod is to be cut off for it.
func TestASweepThatCannotEnterNetworksHasFailed(t *testing.T) {
	n := newLeftNode(t)
	n.mount(t, "cni-0", netnstest.New(t))
	s := newSweeper()
	s.bare = func(ns *netns.Namespace) (bool, error) {
		ns.Close()
		return bare(ns)
	}
	if got := s.sweep(n.mounts, n.proc, n.boxes); got.failed == nil {
		t.Errorf("swept %+v", got)
	}
}
