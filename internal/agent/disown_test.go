package agent

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/model/wellknown"
)

// counted is what a metric says.
func counted(t *testing.T, r *rig, name string) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.agent.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// A pod's cgroup can be found after its network. It is none of its exceptions, and that it is not found once more takes nothing back.
func TestThePodsCgroupGoesIntoItsRules(t *testing.T) {
	r := newRig(t)
	r.label(true)
	r.accept()
	r.did("put a", "complete", "apply capturing", "report enabled")
	own := redirect.Cgroup{ID: 7, Level: 3, Root: "/proc/1/ns/cgroup"}
	r.snapshot.Pods[0].Cgroup = own
	r.snapshot.Pods[0].Annotations = map[string]string{wellknown.Redirection: "enabled"}
	r.learn()
	r.step(time.Second)
	r.did("apply capturing")
	if r.settings.Own != own {
		t.Errorf("the rules are for %+v", r.settings.Own)
	}
	if got := counted(t, r, "lateen_agent_excepted_pods"); got != "0" {
		t.Errorf("%s pods have exceptions", got)
	}
	if got := counted(t, r, "lateen_agent_repairs_total"); got != "0" {
		t.Errorf("%s repairs", got)
	}
	r.snapshot.Pods[0].Cgroup = redirect.Cgroup{}
	r.learn()
	r.step(time.Minute)
	r.did()
	if r.settings.Own != own {
		t.Errorf("the rules are for %+v", r.settings.Own)
	}
	r.snapshot.Pods[0].Cgroup.ID = 8
	r.learn()
	r.step(time.Second)
	r.did("apply capturing")
}

func TestMarksOfAPodsOwnAreToldAndCounted(t *testing.T) {
	r := newRig(t)
	r.snapshot.Pods[0].Cgroup = redirect.Cgroup{ID: 7, Level: 3}
	r.label(true)
	r.accept()
	const metric = "lateen_agent_forged_marks_total"
	for _, c := range []struct {
		marked uint64
		damage bool
		want   string
	}{{0, false, "0"}, {3, false, "3"}, {3, false, "3"}, {5, false, "5"}, {6, true, "6"}, {2, false, "8"}} {
		r.mu.Lock()
		r.marked = c.marked
		if c.damage { // rules that are written anew count from the start
			r.mode = redirect.Draining
		}
		r.mu.Unlock()
		r.step(time.Minute)
		if got := counted(t, r, metric); got != c.want {
			t.Errorf("after %d: %s, want %s", c.marked, got, c.want)
		}
	}
}
