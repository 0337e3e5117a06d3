package kube

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	k8stesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

// late has the watch of namespaces know none until it is told of one.
func (r *rig) late() *watch.FakeWatcher {
	r.client.PrependReactor("list", "namespaces", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.NamespaceList{}, nil
	})
	told := watch.NewFake()
	r.client.PrependWatchReactor("namespaces", k8stesting.DefaultWatchReactor(told, nil))
	return told
}

// next returns the first snapshot in which the pod is as wanted.
func (r *rig) next(t *testing.T, what string, ok func(source.Pod, source.Namespace) bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case s := <-r.snapshots:
			for _, p := range s.Pods {
				if p.Name == "web" && ok(p, s.Namespaces[p.Namespace]) {
					return
				}
			}
		case <-deadline:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// A pod that is answered as one of the mesh must not be taken for one outside: it would start in plain text.
func TestAPodThatIsBornBeforeItsNamespaceIsWatchedIsJudgedByTheAPIServer(t *testing.T) {
	read := namespace("shop", ambient)
	read.ResourceVersion = "5"
	r := newRig(t, read, pod("web", "u1"))
	told := r.late()
	r.run()
	r.await(t, "a first snapshot", func(p map[string]source.Pod) bool { return len(p) == 0 })
	if _, wanted, err := r.Born(t.Context(), r.birth("web", "u1")); err != nil || !wanted {
		t.Fatalf("wanted %v, %v", wanted, err)
	}
	r.next(t, "the pod with its network", func(p source.Pod, n source.Namespace) bool {
		if p.NetNS == "" {
			return false
		}
		if p.Unjudged || !source.Enrolled(p, n) {
			t.Errorf("a pod whose birth was answered as one of the mesh is delivered as unjudged %v, enrolled %v", p.Unjudged, source.Enrolled(p, n))
		}
		return true
	})
	// The watch's version counts as soon as it is no older.
	older, newer := namespace("shop", nil), namespace("shop", map[string]string{wellknown.DataplaneMode: "none"})
	older.ResourceVersion, newer.ResourceVersion = "4", "6"
	told.Add(older)
	r.next(t, "a snapshot behind an older namespace of the watch", func(p source.Pod, n source.Namespace) bool {
		if !source.Enrolled(p, n) {
			t.Error("an older namespace of the watch decides")
		}
		_, there, _ := r.namespaces.GetStore().GetByKey("shop")
		return there
	})
	told.Modify(newer)
	r.next(t, "the namespace of the watch", func(p source.Pod, n source.Namespace) bool { return !source.Enrolled(p, n) })
}

func TestAPodIsNotJudgedBeforeItsNamespaceIsKnown(t *testing.T) {
	captured := func(p *corev1.Pod) { p.Annotations = map[string]string{wellknown.Redirection: "enabled"} }
	r := newRig(t, namespace("shop", ambient), pod("web", "u1", captured), pod("out", "u2", captured, func(p *corev1.Pod) {
		p.Labels = map[string]string{wellknown.DataplaneMode: "none"}
	}))
	r.late()
	var answers atomic.Bool
	r.client.PrependReactor("get", "namespaces", func(k8stesting.Action) (bool, runtime.Object, error) {
		return !answers.Load(), nil, errors.New("connection refused")
	})
	r.run()
	pods := r.await(t, "the pods", func(p map[string]source.Pod) bool { return len(p) == 2 })
	if !pods["web"].Unjudged || pods["out"].Unjudged {
		t.Errorf("unjudged: %v by its namespace, %v by its own label", pods["web"].Unjudged, pods["out"].Unjudged)
	}
	answers.Store(true)
	r.next(t, "the namespace, which was asked for again", func(p source.Pod, n source.Namespace) bool { return !p.Unjudged && source.Enrolled(p, n) })
	// It is forgotten with the last of its pods.
	r.Source.mu.Lock()
	defer r.Source.mu.Unlock()
	if len(r.read) != 1 {
		t.Errorf("read: %v", r.read)
	}
	if r.namespacesLocked(nil); len(r.read) != 0 {
		t.Errorf("read without a pod: %v", r.read)
	}
}
