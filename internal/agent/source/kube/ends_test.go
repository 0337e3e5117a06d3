package kube

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/agent/cni"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
	"lateen.dev/lateen/internal/agent/source"
)

// part tells of the end of a sandbox. What should not wait fails a test that waits for ever.
func (r *rig) part(t *testing.T, q cni.Request) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r.Part(ctx, q)
}

// The runtime removes former sandboxes of a pod when it likes, also those from before the agent was there.
func TestTheEndOfAFormerSandboxIsNotThePods(t *testing.T) {
	for name, mounted := range map[string]bool{"mounted": true, "kept by its processes": false} {
		t.Run(name, func(t *testing.T) {
			inside := netnstest.Pod(t, netnstest.New(t), "pod", "10.244.1.20")
			r := newRig(t, namespace("shop", ambient), pod("web", longUID, at("10.244.1.20")))
			r.process(t, 800, inCgroup(longUID), inside)
			path := through(inside)
			if mounted {
				path = r.mount(t, "cni-1", inside)
			}
			r.run()
			r.await(t, "the pod's network", func(p map[string]source.Pod) bool { return p["web"].NetNS != "" })
			former := cni.Request{Op: cni.Del, Namespace: "shop", Name: "web", UID: longUID, Sandbox: "former"}
			r.part(t, former)
			former.NetNS = through(netnstest.New(t))
			r.part(t, former)
			if box, _ := r.boxes.get(longUID); box.Going || box.NetNS == "" {
				t.Errorf("the pod's own is going: %+v", box)
			}
			// Its own, which was found and has no name yet.
			own := former
			own.Sandbox, own.NetNS = "own", path
			done := make(chan struct{})
			go func() { defer close(done); r.part(t, own) }()
			r.await(t, "the pod has ended", func(p map[string]source.Pod) bool { return p["web"].Ended })
			if err := r.Report(t.Context(), longUID, source.Report{State: source.Parted}); err != nil {
				t.Fatal(err)
			}
			<-done
			if box, _ := r.boxes.get(longUID); !box.gone() || box.ID != "own" {
				t.Errorf("after its end: %+v", box)
			}
		})
	}
}

// The runtime may have unmounted a network before it says so.
func TestTheEndOfASandboxWithoutNetworkIsThePodsOnceItsOwnIsGone(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", longUID))
	inside := netnstest.New(t)
	path := r.mount(t, "cni-1", inside)
	if err := r.boxes.found(longUID, sandbox{NetNS: path, Device: inside.ID().Device, Inode: inside.ID().Inode}); err != nil {
		t.Fatal(err)
	}
	netnstest.Unmount(t, path)
	r.part(t, cni.Request{Op: cni.Del, Namespace: "shop", Name: "web", UID: longUID, Sandbox: "own"})
	if box, _ := r.boxes.get(longUID); !box.gone() {
		t.Errorf("after its end: %+v", box)
	}
}

// A pod can get a new sandbox while no agent looks.
func TestANetworkThatWasGoneIsLookedForByTheAgentThatFollows(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", longUID, at("10.244.1.20")))
	r.path = r.mount(t, "cni-1", r.net)
	r.run()
	q := r.birth("web", longUID)
	if _, _, err := r.Born(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	r.await(t, "the pod", func(p map[string]source.Pod) bool { return p["web"].NetNS != "" })
	done := make(chan struct{})
	go func() { defer close(done); r.part(t, q) }()
	r.await(t, "the pod has ended", func(p map[string]source.Pod) bool { return p["web"].Ended })
	if err := r.Report(t.Context(), longUID, source.Report{State: source.Parted}); err != nil {
		t.Fatal(err)
	}
	<-done
	r.end()
	inside := netnstest.Pod(t, netnstest.New(t), "pod", "10.244.1.20")
	r.process(t, 800, inCgroup(longUID), inside)
	r.starts(t)
	got := r.await(t, "the pod lives", func(p map[string]source.Pod) bool { return p["web"].NetNS != "" && !p["web"].Ended })["web"]
	if got.Network != inside.ID() {
		t.Errorf("its network is %s", got.NetNS)
	}
}

// CHECK may be about any sandbox of the pod.
func TestACheckChangesNothingThatIsKnown(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", "u1"))
	if _, _, err := r.Born(t.Context(), r.birth("web", "u1")); err != nil {
		t.Fatal(err)
	}
	check := r.birth("web", "u1")
	check.Op, check.Sandbox, check.NetNS = cni.Check, "former", through(netnstest.New(t))
	if _, wanted, err := r.Born(t.Context(), check); err != nil || !wanted {
		t.Fatal(wanted, err)
	}
	if box, _ := r.boxes.get("u1"); box.ID != "box-u1" || box.network() != r.net.ID() {
		t.Errorf("the pod's sandbox is %+v", box)
	}
}

// early says how many pods are known that the watch has not told of, and how many networks are.
func (r *rig) early(t *testing.T) (pods, boxes int) {
	t.Helper()
	r.Source.mu.Lock()
	defer r.Source.mu.Unlock()
	r.boxes.mu.Lock()
	defer r.boxes.mu.Unlock()
	return len(r.Source.early), len(r.boxes.byUID)
}

func (r *rig) forgets(t *testing.T, what string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		pods, boxes := r.early(t)
		if pods == 0 && boxes == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: after %v there are %d pods and %d networks still", what, patience, pods, boxes)
		}
		r.change()
		for len(r.snapshots) > 0 {
			<-r.snapshots
		}
	}
}

// The watch tells nothing of a pod that was born and deleted while it was down.
func TestAPodThatTheWatchNeverTellsOfIsForgotten(t *testing.T) {
	for name, tt := range map[string]func(*testing.T, *rig){
		"its sandbox goes": func(t *testing.T, r *rig) { r.part(t, r.birth("web", "u1")) },
		"a report does not reach it": func(t *testing.T, r *rig) {
			if err := r.Report(t.Context(), "u1", source.Report{State: source.Enabled}); err != source.ErrGone {
				t.Errorf("a report about a pod that is no more: %v", err)
			}
		},
		"nobody says anything": func(*testing.T, *rig) {},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, namespace("shop", ambient), pod("web", "u1"), pod("stays", "u2"))
			if name == "nobody says anything" {
				r.earlyTime = 20 * time.Millisecond
			}
			if _, _, err := r.Born(t.Context(), r.birth("web", "u1")); err != nil {
				t.Fatal(err)
			}
			if err := r.client.CoreV1().Pods("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			tt(t, r)
			r.run()
			r.forgets(t, "the pod")
		})
	}
}

// That the watch is slow is no reason to forget a pod that is there.
func TestAPodThatIsThereIsNotForgotten(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", "u1"))
	if _, _, err := r.Born(t.Context(), r.birth("web", "u1")); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if due := r.overdue(now); len(due) != 0 {
		t.Errorf("at once it is asked for: %v", due)
	}
	due := r.overdue(now.Add(earlyTime))
	if len(due) != 1 || r.isGone(t.Context(), due[0]) {
		t.Errorf("later: %v", due)
	}
	if again := r.overdue(now.Add(earlyTime)); len(again) != 0 {
		t.Errorf("it is asked for at every look: %v", again)
	}
	other := due[0].DeepCopy()
	other.UID = "older"
	if !r.isGone(t.Context(), other) {
		t.Error("another pod of its name is taken for it")
	}
}

// Part must wait for a pod that the watch has not told of, too.
func TestTheEndOfAnEarlyPodWaitsForTheAgent(t *testing.T) {
	r := newRig(t, namespace("shop", ambient))
	r.run()
	r.await(t, "a first snapshot", func(p map[string]source.Pod) bool { return len(p) == 0 })
	r.Source.mu.Lock()
	r.Source.early["u1"] = earlyPod{pod: pod("web", "u1"), since: time.Now()}
	r.Source.mu.Unlock()
	box, err := r.finder.boxOf(r.birth("web", "u1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.boxes.born("u1", box); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); r.part(t, r.birth("web", "u1")) }()
	r.await(t, "the pod has ended", func(p map[string]source.Pod) bool { return p["web"].Ended })
	select {
	case <-done:
		t.Error("its network goes before the agent says that it may")
	case <-time.After(50 * time.Millisecond):
	}
	if err := r.Report(t.Context(), "u1", source.Report{State: source.Parted}); err != nil {
		t.Fatal(err)
	}
	<-done
	r.forgets(t, "the pod")
}

// What the plugin is to know without an agent: namespaces, and the pods that are not what these say.
func TestThePluginIsToldOfPodsThatAreNotAsTheirNamespace(t *testing.T) {
	label := func(mode string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels = map[string]string{"istio.io/dataplane-mode": mode} }
	}
	in := func(namespace string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Namespace = namespace } }
	r := newRig(t, namespace("shop", ambient), namespace("plain", nil),
		pod("web", "u1"), pod("out", "u2", label("none")), pod("in", "u3", in("plain"), label("ambient")), pod("plain", "u4", in("plain")),
		pod("static", "u5", mirror(hash)),
		pod("over", "u6", label("none"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		pod("host", "u7", func(p *corev1.Pod) { p.Spec.HostNetwork = true }))
	r.run()
	r.await(t, "a first snapshot", func(map[string]source.Pod) bool { return true })
	r.mu.Lock()
	defer r.mu.Unlock()
	want := map[string]bool{"shop/out/u2": false, "plain/in/u3": true, "shop/static/" + hash: false}
	if len(r.known.Pods) != len(want) || len(r.known.EnrolledNamespaces) != 1 || r.known.EnrolledNamespaces[0] != "shop" {
		t.Errorf("known: %+v", r.known)
	}
	for key, wanted := range want {
		if got, there := r.known.Pods[key]; !there || got != wanted {
			t.Errorf("%s: %v, %v", key, got, there)
		}
	}
}

// A snapshot drops the networks of pods that are gone. A pod that is born while it is made is not one of them.
func TestASandboxThatIsMadeDuringASnapshotIsKept(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", "u1"))
	born := make(chan error, 1)
	var once sync.Once
	r.opts.Known = func(cni.State) {
		once.Do(func() {
			go func() {
				_, _, err := r.Born(t.Context(), r.birth("web", "u1"))
				born <- err
			}()
			// The birth may have to wait for this snapshot.
			for deadline := time.Now().Add(300 * time.Millisecond); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				if _, known := r.boxes.get("u1"); known {
					return
				}
			}
		})
	}
	// Not run: the watch has told of no pod.
	if err := r.namespaces.GetStore().Add(namespace("shop", ambient)); err != nil {
		t.Fatal(err)
	}
	r.Source.snapshot()
	if err := <-born; err != nil {
		t.Fatal(err)
	}
	if s, _ := r.Source.snapshot(); len(s.Pods) != 1 || s.Pods[0].NetNS != r.path {
		t.Errorf("the pod's network is lost: %+v", s.Pods)
	}
}
