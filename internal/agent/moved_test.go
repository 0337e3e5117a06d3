package agent

import (
	"fmt"
	"slices"
	"testing"

	"lateen.dev/lateen/internal/agent/netns"
)

// forgotten is a ListenerStore that records the uids that it was told to forget.
type forgotten []string

func (f *forgotten) Forget(uid string)  { *f = append(*f, uid) }
func (f *forgotten) Terminating(string) {}

func TestWhatIsKeptInANamespaceGoesWhenThePodGetsAnother(t *testing.T) {
	r := newRig(t)
	kept := &forgotten{}
	r.agent.listenerStore, r.agent.capturer.networks.open = kept, netns.Open
	r.accepted[unit] = true
	path := func() string {
		ns, err := netns.New()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ns.Close() })
		var path string
		if err := ns.WithFD(func(fd int) error { path = fmt.Sprintf("/proc/self/fd/%d", fd); return nil }); err != nil {
			t.Fatal(err)
		}
		return path
	}
	r.snapshot.Pods[0].NetNS = path()
	r.snapshot.Namespaces["default"].Labels["istio.io/dataplane-mode"] = "ambient"
	r.agent.learn(r.snapshot, r.now)
	if len(*kept) != 0 || r.agent.pods[unit].ns == nil {
		t.Fatalf("forgotten %v, holds %v", *kept, r.agent.pods[unit].ns)
	}
	r.agent.learn(r.snapshot, r.now)
	if len(*kept) != 0 {
		t.Fatalf("the same namespace is forgotten: %v", *kept)
	}
	r.snapshot.Pods[0].NetNS = path()
	r.agent.learn(r.snapshot, r.now)
	if len(*kept) != 1 || (*kept)[0] != unit {
		t.Errorf("forgotten %v, want %s", *kept, unit)
	}
}

// endings records the pods whose end the proxies are told of.
type endings []string

func (e *endings) Forget(string)          {}
func (e *endings) Terminating(uid string) { *e = append(*e, uid) }

// Peers leave the tunnels of a pod that is being deleted while its network is there, whoever hears of the deletion.
func TestTheEndOfACapturedPodIsToldOnceByAnyAgent(t *testing.T) {
	for name, again := range map[string]bool{"the agent that captured it": false, "the agent that follows": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.label(true)
			r.accept()
			if r.is(Captured, ""); again {
				r.start()
				r.accepted[unit] = true
			}
			var told endings
			r.agent.listenerStore = &told
			r.snapshot.Pods[0].Terminating = true
			r.learn()
			r.is(Captured, "")
			for range 2 {
				if !slices.Equal(told, []string{unit}) {
					t.Errorf("the proxies are told of the end of %v", told)
				}
				r.learn()
			}
		})
	}
}

func TestTheEndOfAPlainPodIsToldToNobody(t *testing.T) {
	r := newRig(t)
	var told endings
	r.agent.listenerStore = &told
	r.snapshot.Pods[0].Terminating = true
	r.learn()
	if len(told) != 0 {
		t.Errorf("the proxies are told of the end of %v", told)
	}
}
