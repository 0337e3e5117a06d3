package agent

import (
	"math/rand/v2"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

// watched checks at every change of the rules what must hold at that moment.
type watched struct{ *rig }

func (w watched) Apply(ns *netns.Namespace, mode redirect.Mode, s redirect.Settings) (bool, error) {
	before := w.mode
	changed, err := w.rig.Apply(ns, mode, s)
	if err != nil {
		return changed, err
	}
	p := w.pod()
	switch {
	case mode == redirect.Capturing && before != redirect.Capturing && !w.Status(unit).Accepted && p.state != Captured:
		w.t.Error("redirected to a proxy that does not listen")
	case mode == redirect.Absent && w.carried > 0:
		w.t.Error("removed what meshed connections need")
	case mode == redirect.Absent && before == redirect.Capturing:
		w.t.Error("removed everything at once")
	case mode != redirect.Capturing && p.want:
		w.t.Error("released a pod that is enrolled")
	}
	return changed, nil
}

// Whatever happens in whatever order, nothing forbidden happens on the way, and in the end the pod is what its labels
// say.
func TestAnyHistoryEndsWhereTheLabelsSay(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 7))
		r := newRig(t)
		r.agent.capturer.redirect = watched{r}
		enrol := false
		history := []string{}
		do := func(what string, act func()) {
			history = append(history, what)
			act()
			r.settle()
		}
		for range 40 {
			switch random.IntN(11) {
			case 0, 1:
				enrol = !enrol
				do("label", func() { r.label(enrol) })
			case 2, 3:
				do("accept", func() { r.accepted[unit] = r.put[unit].UID != "" })
			case 4:
				do("proxy away or back", func() { r.connected, r.accepted = !r.connected, map[string]bool{} })
			case 5:
				do("rules fail or work", func() {
					if r.applyErr == nil {
						r.applyErr = errKernel
					} else {
						r.applyErr = nil
					}
				})
			case 6:
				do("connections", func() { r.carried = random.IntN(3) })
			case 7:
				do("proxy holds on or lets go", func() { r.known = !r.known })
			case 8:
				do("agent starts again", func() {
					r.start()
					r.agent.capturer.redirect = watched{r}
					r.learn()
				})
			case 9:
				do("reports fail or work", func() {
					if r.reportErr == nil {
						r.reportErr = errKernel
					} else {
						r.reportErr = nil
					}
				})
			}
			r.step(time.Duration(random.IntN(3000)) * time.Millisecond)
		}
		// Everything works again, and time passes.
		r.applyErr, r.reportErr, r.connected, r.known, r.carried = nil, nil, true, false, 0
		r.label(enrol)
		for range 40 {
			r.accepted[unit] = r.put[unit].UID != ""
			r.step(time.Second)
		}
		r.learn()
		want, mode, reported := Plain, redirect.Absent, source.Disabled
		if enrol {
			want, mode, reported = Captured, redirect.Capturing, source.Enabled
		}
		says := r.snapshot.Pods[0].Annotations[wellknown.Redirection]
		if p := r.pod(); p.state != want || r.mode != mode || says != string(reported) && (enrol || says != "") {
			t.Errorf("seed %d: %s (%s), rules %v, reported %q; want %s after %v", seed, p.state, p.reason, r.mode, says, want, history)
		}
		if _, put := r.put[unit]; put != enrol {
			t.Errorf("seed %d: handed to the proxy: %v, enrolled: %v", seed, put, enrol)
		}
		if t.Failed() {
			t.Fatalf("seed %d: %v", seed, history)
		}
	}
}
