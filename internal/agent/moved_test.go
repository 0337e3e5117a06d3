package agent

import (
	"fmt"
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
