package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/agent/apiserver/apiservertest"
	"lateen.dev/lateen/internal/agent/cni"
	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

const patience = 15 * time.Second

var ambient = map[string]string{wellknown.DataplaneMode: "ambient", "other": "x"}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func pod(name, uid string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid), Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName: "n1", ServiceAccountName: "web",
			Containers: []corev1.Container{{
				Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http")}}},
				LivenessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9090), Host: "10.0.0.1"}}},
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func at(ip string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.PodIP, p.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	}
}

// rig is a source of a node with a fake API server and a /proc of its own.
type rig struct {
	*Source
	client    *fake.Clientset
	dir       string
	snapshots chan source.Snapshot
	net       *netns.Namespace // of the pod whose birth is told
	path      string           // to it
	mu        sync.Mutex
	known     cni.State
	connected []bool
	run       func()
	end       func()
}

func newRig(t *testing.T, objects ...runtime.Object) *rig {
	t.Helper()
	r := &rig{client: fake.NewClientset(objects...), dir: t.TempDir(), snapshots: make(chan source.Snapshot, 64)}
	for _, d := range []string{"proc", "netns"} {
		if err := os.Mkdir(filepath.Join(r.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.net = netnstest.New(t)
	r.path = through(r.net)
	r.again(t)
	return r
}

// through is a path to an open namespace.
func through(ns *netns.Namespace) (path string) {
	_ = ns.WithFD(func(fd int) error { path = fmt.Sprintf("/proc/self/fd/%d", fd); return nil })
	return path
}

// process makes one in the node's /proc: its links lead to namespaces that are open here.
func (r *rig) process(t *testing.T, pid int, cgroup string, ns *netns.Namespace) {
	t.Helper()
	dir := filepath.Join(r.dir, "proc", fmt.Sprint(pid))
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "ns"), 0o755), os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup), 0o644),
		os.Symlink(through(ns), filepath.Join(dir, "ns/net"))); err != nil {
		t.Fatal(err)
	}
}

// mount makes a namespace a file of the runtime's.
func (r *rig) mount(t *testing.T, name string, ns *netns.Namespace) (path string) {
	t.Helper()
	path = filepath.Join(r.dir, "netns", name)
	netnstest.Mount(t, ns, path)
	return path
}

// here is the test's own network, which is the node's. Not by /proc/self: that is the first thread, which may have ended in
// another namespace.
func here(t *testing.T) *netns.Namespace {
	t.Helper()
	ns, err := netns.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

// again makes a source as an agent that follows does.
func (r *rig) again(t *testing.T) {
	t.Helper()
	s, err := New(apiservertest.Over(r.client), Options{
		Node: "n1", Own: "lateen-system", File: filepath.Join(r.dir, "boxes"), Proc: filepath.Join(r.dir, "proc"), Mounts: filepath.Join(r.dir, "netns"),
		Log: slog.New(slog.DiscardHandler), Known: func(s cni.State) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.known = s
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Source = s
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	r.run = func() {
		all.Go(func() {
			s.Run(ctx, func(s source.Snapshot) { r.snapshots <- s }, func(c bool) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.connected = append(r.connected, c)
			})
		})
	}
	r.end = func() { cancel(); all.Wait() }
	t.Cleanup(func() { r.end() })
}

// await returns the first snapshot that is as wanted.
func (r *rig) await(t *testing.T, what string, ok func(map[string]source.Pod) bool) map[string]source.Pod {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case s := <-r.snapshots:
			pods := map[string]source.Pod{}
			for _, p := range s.Pods {
				pods[p.Name] = p
			}
			if ok(pods) {
				return pods
			}
		case <-deadline:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func (r *rig) birth(name, uid string) cni.Request {
	return cni.Request{Op: cni.Add, Namespace: "shop", Name: name, UID: uid, Sandbox: "box-" + uid, NetNS: r.path, Addresses: []string{"10.244.1.9"}}
}

func TestAPodIsKnownAtItsBirth(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), namespace("other", nil), pod("web", "u1", func(p *corev1.Pod) {
		p.Annotations = map[string]string{wellknown.ExcludeInboundPorts: "9", "big": "x"}
	}))
	r.run()
	r.await(t, "a first snapshot", func(p map[string]source.Pod) bool { return len(p) == 0 })
	uid, wanted, err := r.Born(t.Context(), r.birth("web", "u1"))
	if err != nil || !wanted || uid != "u1" {
		t.Fatalf("born: %q, wanted %v, %v", uid, wanted, err)
	}
	got := r.await(t, "the pod has its network", func(p map[string]source.Pod) bool { return p["web"].NetNS != "" })["web"]
	want := source.Pod{
		UID: "u1", Namespace: "shop", Name: "web", ServiceAccount: "web", IP: "10.244.1.9", NetNS: r.path, Network: r.net.ID(),
		Annotations: map[string]string{wellknown.ExcludeInboundPorts: "9"}, Probed: []netip.AddrPort{netip.MustParseAddrPort("10.244.1.9:8080")},
	}
	if got.Held == nil || got.Held.ID() != r.net.ID() {
		t.Errorf("nothing is mounted at its path, and what is held is %v", got.Held)
	}
	got.Held = nil
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("the pod:\n%s", diff)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.known.EnrolledNamespaces, []string{"shop"}) {
		t.Errorf("enrolled namespaces: %v", r.known.EnrolledNamespaces)
	}
}

// A request may have waited for the agent longer than the runtime waited for its answer.
func TestTheNetworkOfASandboxThatIsGoneIsNotNoted(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", "u1"))
	r.run()
	if _, _, err := r.Born(t.Context(), r.birth("web", "u1")); err != nil {
		t.Fatal(err)
	}
	late := r.birth("web", "u1")
	late.Sandbox, late.NetNS = "older", filepath.Join(r.dir, "gone")
	if _, _, err := r.Born(t.Context(), late); err == nil {
		t.Error("a network that is gone is taken for the pod's")
	}
	if box, _ := r.boxes.get("u1"); box.ID != "box-u1" {
		t.Errorf("the pod's sandbox is %q", box.ID)
	}
}

// The runtime can be faster than the watch.
func TestAPodThatTheWatchHasNotToldOfIsAskedFor(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", "u1"), pod("out", "u2", func(p *corev1.Pod) {
		p.Labels = map[string]string{wellknown.DataplaneMode: "none"}
	}))
	// Not run: it has no watches yet.
	if _, wanted, err := r.Born(t.Context(), r.birth("web", "u1")); err != nil || !wanted {
		t.Errorf("wanted %v, %v", wanted, err)
	}
	if _, wanted, err := r.Born(t.Context(), r.birth("out", "u2")); err != nil || wanted {
		t.Errorf("a pod that stays out: wanted %v, %v", wanted, err)
	}
	if _, _, err := r.Born(t.Context(), r.birth("web", "older")); err == nil {
		t.Error("another pod of that name is taken for it")
	}
	if _, _, err := r.Born(t.Context(), r.birth("nobody", "u9")); err == nil {
		t.Error("a pod that is not there is known")
	}
}

func TestTheMeshsOwnPartsAreNeverEnrolled(t *testing.T) {
	labels := map[string]string{wellknown.PartOf: "lateen", wellknown.Component: "node"}
	r := newRig(t, namespace("shop", ambient), namespace("lateen-system", ambient),
		pod("proxy", "u1", func(p *corev1.Pod) { p.Namespace, p.Labels = "lateen-system", labels }),
		pod("poser", "u2", func(p *corev1.Pod) { p.Labels = labels }),
		pod("host", "u3", func(p *corev1.Pod) { p.Spec.HostNetwork = true }))
	for name, want := range map[string]bool{"proxy": false, "poser": true, "host": false} {
		q := r.birth(name, map[string]string{"proxy": "u1", "poser": "u2", "host": "u3"}[name])
		if name == "proxy" {
			q.Namespace = "lateen-system"
		}
		if _, wanted, err := r.Born(t.Context(), q); err != nil || wanted != want {
			t.Errorf("%s: wanted %v, %v; want %v", name, wanted, err, want)
		}
	}
}

// An agent that was away finds the networks of pods that run, and of those only the right ones.
func TestNetworksOfRunningPodsAreFound(t *testing.T) {
	const uid = "0a1b2c3d-1111-2222-3333-444455556666"
	node := netnstest.New(t)
	inside := netnstest.Pod(t, node, "pod", "10.244.1.20")
	r := newRig(t, namespace("shop", ambient),
		pod("web", uid, at("10.244.1.20")),
		pod("liar", "0a1b2c3d-1111-2222-3333-444455557777", at("10.244.1.99")),
		pod("young", "0a1b2c3d-1111-2222-3333-444455558888"),
		pod("done", "0a1b2c3d-1111-2222-3333-444455559999", at("10.244.1.20"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
	r.process(t, 7, "0::/kubepods/burstable/pod"+uid+"/abc\n", here(t)) // on the node's network
	r.process(t, 8, "4:memory:/kubepods.slice/kubepods-pod"+strings.ReplaceAll(uid, "-", "_")+".slice/cri-1.scope\n0::/\n", inside)
	// It has made itself a cgroup that is called like another pod's, below its own.
	r.process(t, 9, "0::/kubepods/pod0a1b2c3d-1111-2222-3333-444455557777/x/pod"+uid+"\n", node)
	r.run()
	pods := r.await(t, "the pod's network", func(p map[string]source.Pod) bool { return p["web"].NetNS != "" && p["liar"].Lost != "" })
	if want := filepath.Join(r.dir, "proc/8/ns/net"); pods["web"].NetNS != want {
		t.Errorf("the network is %s, want %s", pods["web"].NetNS, want)
	}
	if l := pods["liar"]; l.NetNS != "" || !strings.Contains(l.Lost, "10.244.1.99") {
		t.Errorf("a pod whose processes have no network with its address: %q, %q", l.NetNS, l.Lost)
	}
	for _, name := range []string{"young", "done"} {
		if _, there := pods[name]; there {
			t.Errorf("%s has no network and is delivered", name)
		}
	}
}

// A captured pod whose network cannot be found is not forgotten: the proxy is to keep it.
func TestACapturedPodIsDeliveredWhateverHappens(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", "0a1b2c3d-1111-2222-3333-444455556666", func(p *corev1.Pod) {
		p.Annotations = map[string]string{wellknown.Redirection: "enabled"}
	}))
	r.run()
	r.await(t, "the pod", func(p map[string]source.Pod) bool { _, there := p["web"]; return there })
}

func TestANetworkOutlivesTheAgent(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", "u1"))
	r.path = r.mount(t, "cni-1", r.net)
	r.run()
	if _, _, err := r.Born(t.Context(), r.birth("web", "u1")); err != nil {
		t.Fatal(err)
	}
	r.starts(t)
	r.await(t, "the network that an earlier agent was told of", func(p map[string]source.Pod) bool {
		return p["web"].NetNS == r.path && p["web"].Network == r.net.ID()
	})
}

// starts has another agent follow.
func (r *rig) starts(t *testing.T) {
	t.Helper()
	r.end()
	for len(r.snapshots) > 0 {
		<-r.snapshots
	}
	r.again(t)
	r.run()
}

// The network of a pod goes when nothing of the mesh is open in it any more.
func TestTheEndOfASandboxWaitsForTheAgent(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", "u1"))
	r.run()
	q := r.birth("web", "u1")
	if _, _, err := r.Born(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	r.await(t, "the pod", func(p map[string]source.Pod) bool { return p["web"].NetNS != "" })
	other := q
	other.Sandbox = "an older one"
	r.Part(t.Context(), other) // at once
	done := make(chan struct{})
	go func() { defer close(done); r.Part(t.Context(), q) }()
	r.await(t, "the pod has ended", func(p map[string]source.Pod) bool { return p["web"].Ended })
	select {
	case <-done:
		t.Fatal("the network goes before the agent says that it may")
	case <-time.After(50 * time.Millisecond):
	}
	if err := r.Report(t.Context(), "u1", source.Report{State: source.Parted}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the network waits for ever")
	}
	// Its object stays a while. It has ended for good, unless the runtime makes it another sandbox.
	r.await(t, "the pod without network", func(p map[string]source.Pod) bool { return p["web"].NetNS == "" && p["web"].Ended })
	next := r.birth("web", "u1")
	next.Sandbox = "box-2"
	if _, _, err := r.Born(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	r.await(t, "the pod lives again", func(p map[string]source.Pod) bool { return p["web"].NetNS != "" && !p["web"].Ended })
}

func TestAReportIsAnAnnotationAndItsReasonAnEvent(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", "u1"))
	r.run()
	if _, _, err := r.Born(t.Context(), r.birth("web", "u1")); err != nil {
		t.Fatal(err)
	}
	r.await(t, "the pod", func(p map[string]source.Pod) bool { return p["web"].NetNS != "" })
	report := func(rep source.Report) {
		t.Helper()
		if err := r.Report(t.Context(), "u1", rep); err != nil {
			t.Fatal(err)
		}
	}
	annotation := func() string {
		p, err := r.client.CoreV1().Pods("shop").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p.Annotations[wellknown.Redirection]
	}
	report(source.Report{State: source.Disabled, Error: "no node proxy is connected"})
	report(source.Report{State: source.Disabled, Error: "no node proxy is connected"})
	if n := r.patches(); n != 0 {
		t.Errorf("%d patches although nothing is to be written", n)
	}
	report(source.Report{State: source.Enabled})
	if got := annotation(); got != "enabled" {
		t.Errorf("captured: the annotation is %q", got)
	}
	report(source.Report{State: source.Disabled})
	if got := annotation(); got != "" {
		t.Errorf("released: the annotation is %q", got)
	}
	events, err := r.client.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) != 1 {
		t.Fatalf("events: %v, %v", events, err)
	}
	e := events.Items[0]
	if e.Reason != reasonFailed || e.Type != "Warning" || e.InvolvedObject.UID != "u1" || !strings.Contains(e.Message, "no node proxy is connected") {
		t.Errorf("the event: %+v", e)
	}
	if err := r.Report(t.Context(), "nobody", source.Report{State: source.Enabled}); !errors.Is(err, source.ErrGone) {
		t.Errorf("a report of a pod that is gone: %v", err)
	}
}

func (r *rig) patches() (n int) {
	for _, a := range r.client.Actions() {
		if p, ok := a.(k8stesting.PatchAction); ok {
			if p.GetSubresource() != "status" {
				return -1
			}
			n++
		}
	}
	return n
}

// What the agent does not read is not kept.
func TestPodsAreTrimmed(t *testing.T) {
	p := pod("web", "u1", at("10.0.0.9"), func(p *corev1.Pod) {
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
		p.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", 1000)}
		p.Spec.Volumes = []corev1.Volume{{Name: "v"}}
		p.Spec.InitContainers = []corev1.Container{{StartupProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 7000}}}}}
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8081)}}}
	})
	o, err := trimPod(p)
	if err != nil {
		t.Fatal(err)
	}
	got := o.(*corev1.Pod)
	if got.ManagedFields != nil || got.Annotations != nil || got.Labels != nil || got.Spec.Volumes != nil || got.Spec.Containers[0].Image != "" {
		t.Errorf("kept: %+v", got)
	}
	var ports []int32
	for _, c := range got.Spec.Containers[0].Ports {
		ports = append(ports, c.ContainerPort)
	}
	if !slices.Equal(ports, []int32{7000, 8080, 8081}) {
		t.Errorf("ports that the kubelet connects to: %v", ports)
	}
}

func TestPodOf(t *testing.T) {
	const uid = "0a1b2c3d-1111-2222-3333-444455556666"
	for cgroups, want := range map[string]string{
		"0::/kubepods/besteffort/pod" + uid + "/abc\n": uid,
		"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-containerd-x.scope\n": uid,
		"5:pids:/kubepods/pod0123456789abcdef0123456789abcdef/x\n0::/\n":                                                                             "0123456789abcdef0123456789abcdef",
		"5:pids:/kubepods/pod" + uid + "/x\n4:cpu:/kubepods/pod" + strings.Replace(uid, "6666", "7777", 1) + "/x\n":                                  "",
		// A pod calls a cgroup below its own like another pod's.
		"0::/kubepods/pod" + uid + "/x/pod" + strings.Replace(uid, "6666", "7777", 1) + "/y\n": uid,
		"0::/system.slice/kubelet.service\n":                                                   "", "": "", "0::/podman/x\n": "",
	} {
		if got, ok := podOf(cgroups); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", cgroups, got, ok, want)
		}
	}
}

// A DaemonSet that is replaced pod by pod is there all the time.
func TestOnlyADaemonSetThatGoesIsAnUninstallation(t *testing.T) {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "lateen-system", Name: "lateen-agent", UID: "d1"}}
	client := fake.NewClientset(set)
	i := NewInstallation(apiservertest.Over(client), "lateen-system", "lateen-agent", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { i.Run(ctx) })
	defer func() { cancel(); all.Wait() }()
	await := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: not within %v", what, patience)
			}
		}
	}
	await("the DaemonSet is seen", func() bool { i.mu.Lock(); defer i.mu.Unlock(); return i.seen == "d1" })
	if i.Over(ctx) || i.Leaving(ctx) {
		t.Error("a replaced agent takes the mesh off its node")
	}
	// The API server does not answer: what cannot be told is no.
	refuse := errors.New("connection refused")
	client.PrependReactor("get", "daemonsets", func(k8stesting.Action) (bool, runtime.Object, error) { return refuse != nil, nil, refuse })
	set = set.DeepCopy()
	set.Annotations = map[string]string{wellknown.Uninstall: "true"}
	if i.Over(ctx) || i.Leaving(ctx) {
		t.Error("an agent without API server takes the mesh off its node")
	}
	refuse = nil
	if _, err := client.AppsV1().DaemonSets("lateen-system").Update(ctx, set, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-i.Asked():
	case <-time.After(patience):
		t.Fatal("the annotation asks for nothing")
	}
	// The agent that follows, in the same pod perhaps, captures nothing before it has heard of that.
	if !i.Leaving(ctx) {
		t.Error("an agent that begins anew captures what was released")
	}
	if err := client.AppsV1().DaemonSets("lateen-system").Delete(ctx, "lateen-agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await("the uninstallation is known", func() bool { return i.Over(ctx) })
	// Its rights may go first.
	await("the watch has told of it", func() bool { i.mu.Lock(); defer i.mu.Unlock(); return i.gone })
	refuse = errors.New("forbidden")
	if !i.Over(ctx) {
		t.Error("without its rights the agent forgets that its DaemonSet is gone")
	}
}
