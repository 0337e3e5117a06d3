package kube

import (
	"sync/atomic"
	"testing"

	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
)

// It is asked for by the uid that the runtime knows the pod by, and again until it is there.
func TestAPodHasTheCgroupOfItsProcesses(t *testing.T) {
	r := newRig(t, namespace("shop", ambient), pod("web", "u1"), pod("static", "u2", mirror(hash)), pod("strange", "u3"))
	want := map[string]redirect.Cgroup{"u1": {ID: 1, Level: 3, Root: "x"}, hash: {ID: 2, Level: 2, Root: "x"}}
	var there atomic.Bool
	r.opts.Cgroup = func(uid string) (redirect.Cgroup, bool) {
		c, known := want[uid]
		if !known || !there.Load() {
			return redirect.Cgroup{}, false
		}
		return c, true
	}
	r.run()
	for name, uid := range map[string]string{"web": "u1", "static": hash, "strange": "u3"} {
		if _, _, err := r.Born(t.Context(), r.birth(name, uid)); err != nil {
			t.Fatal(err)
		}
	}
	pods := r.await(t, "all", func(p map[string]source.Pod) bool {
		return p["web"].NetNS != "" && p["static"].NetNS != "" && p["strange"].NetNS != ""
	})
	for name, p := range pods {
		if p.Cgroup.Known() {
			t.Errorf("%s is in %+v", name, p.Cgroup)
		}
	}
	there.Store(true)
	r.change()
	pods = r.await(t, "their cgroups", func(p map[string]source.Pod) bool { return p["web"].Cgroup.Known() && p["static"].Cgroup.Known() })
	if pods["web"].Cgroup != want["u1"] || pods["static"].Cgroup != want[hash] || pods["strange"].Cgroup.Known() {
		t.Errorf("%+v", pods)
	}
}
