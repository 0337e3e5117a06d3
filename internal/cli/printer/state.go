package printer

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

// The states that condense what the control plane says about an object.
const (
	StateLive        = "live"
	StatePartial     = "partial"     // in force, but not all that is written
	StateIneffective = "ineffective" // kept without effect
	StateRefused     = "refused"     // as it is written now; an earlier version, or its strictest reading, may be in force
	StateUnknown     = "unknown"     // nobody has said anything yet, or a proxy may refuse it
)

// The control plane's reasons for a condition without a but, and for one that is not true because the object is refused.
const (
	reasonInForce = "Accepted"
	reasonRefused = "Invalid"
)

// Refusal is why proxies do not use what was made of an object; empty if all do.
func Refusal(object api.Object) string {
	for _, c := range object.Conditions {
		if c.Type == wellknown.Programmed && c.Status == string(metav1.ConditionFalse) && !awaited(c) && !follows(c) {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// Doubt is why it is not known whether proxies use what was made of an object; empty if it is known.
func Doubt(object api.Object) string {
	for _, c := range object.Conditions {
		if doubtful(c) {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// awaited says that proxies have not answered for an object yet: nobody refuses it, and nothing is in doubt.
func awaited(c api.Condition) bool {
	return c.Type == wellknown.Programmed && (c.Reason == wellknown.ReasonAwaited || c.Reason == wellknown.ReasonNoProxies)
}

// follows says that proxies do not have an object as it is written because of what another condition of it says. The control plane leaves that in
// the cluster, and no proxy refuses anything.
func follows(c api.Condition) bool {
	return c.Reason == wellknown.ReasonNotAccepted || c.Reason == wellknown.ReasonStandIn
}

func doubtful(c api.Condition) bool {
	return !awaited(c) && c.Type == wellknown.Programmed && c.Status == string(metav1.ConditionUnknown)
}

// State condenses what the control plane says about an object into a word, and the reason if it is not simply live.
func State(object api.Object) (state, reason string) {
	if refusal := Refusal(object); refusal != "" {
		return StateRefused, refusal
	}
	state = StateUnknown
	waiting := ""
	for _, c := range object.Conditions {
		if c.Type == wellknown.Programmed {
			if awaited(c) {
				waiting = c.Message
			}
			continue // that the proxies have it is no but, and doubts come below
		}
		told := strings.TrimPrefix(c.Reason+": "+c.Message, ": ")
		switch {
		case c.Status == string(metav1.ConditionFalse):
			if c.Reason == reasonRefused {
				return StateRefused, told // which says what is in force meanwhile
			}
			return StateIneffective, told
		case c.Status != string(metav1.ConditionTrue):
		case c.Reason != "" && c.Reason != reasonInForce:
			state, reason = StatePartial, told
		case state == StateUnknown:
			state = StateLive
		}
	}
	for _, p := range object.Problems {
		if p.Refused() {
			return StateRefused, remark(p)
		}
	}
	if doubt := Doubt(object); doubt != "" {
		return StateUnknown, doubt
	}
	if waiting != "" {
		return StateUnknown, waiting
	}
	// A warning is about an object that was taken: it explains, and changes nothing of what the object does.
	if reason == "" && len(object.Problems) > 0 {
		reason = remark(object.Problems[0])
	}
	return state, reason
}

// remark is what is wrong, without the object that it is told beside.
func remark(p api.Problem) string {
	if p.Field == "" {
		return p.Message
	}
	return p.Field + ": " + p.Message
}
