package printer

import (
	"slices"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
)

// The states that the control plane's analysis and the engine give.
const (
	StateDryRun     = "dry-run"     // the policy reports, and enforces nothing
	StateRefusesAll = "refuses-all" // in force, and lets nobody connect, which its author can hardly mean
	StateIgnored    = "ignored"     // nothing acts on objects of the kind
)

// graver is the order in which findings decide about the state of an object.
var graver = []string{StateDryRun, StateIneffective, StateRefusesAll, StatePartial}

// Effect is the state of an object by its conditions and by the findings of the analysis. The reason is empty if the object is simply live.
func Effect(object api.Object) (state, reason string) {
	state, reason = State(object)
	switch {
	case state == StateRefused || state == StateUnknown && len(object.Conditions) > 0:
		return state, reason
	case object.Ignored != "":
		return StateIgnored, object.Ignored
	case state == StateIneffective:
		return state, reason
	}
	for _, s := range graver {
		if slices.ContainsFunc(object.Findings, func(f api.Finding) bool { return f.State == s }) {
			return s, Reasons(object.Findings)
		}
	}
	if reason == "" {
		reason = Reasons(object.Findings)
	}
	return state, reason
}

// Reasons writes findings on one line, without the fields that they are about. The findings that change nothing are left out if there are others.
func Reasons(findings []api.Finding) string {
	grave := slices.ContainsFunc(findings, weighty)
	var said []string
	for _, f := range findings {
		if weighty(f) || !grave {
			text := f.Message
			if f.Fix != "" {
				text += " (" + f.Fix + ")"
			}
			said = append(said, text)
		}
	}
	return strings.Join(said, "; ")
}

// weighty says whether a finding is more than information.
func weighty(f api.Finding) bool { return f.Severity == api.FindingWarning || f.State != "" }

// Covers says whether findings contain every sentence of a condition's message.
func Covers(findings []api.Finding, message string) bool {
	for sentence := range strings.SplitSeq(message, ". ") {
		if sentence == "" || !slices.ContainsFunc(findings, func(f api.Finding) bool { return strings.Contains(f.Message, sentence) }) {
			return false
		}
	}
	return true
}
