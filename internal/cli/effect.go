package cli

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

// effectPatience bounds the wait for the control plane's opinion on what was applied; lateen status has it in any case.
const effectPatience = time.Second

// partial are the kinds of which a part may have no effect.
var partial = []string{"AuthorizationPolicy", "PeerAuthentication", "Service", "ServiceEntry", "WorkloadEntry", "Gateway"}

// analysed are the kinds of which it is told after they were applied what the analysis finds.
var analysed = append(slices.Clone(partial), "Namespace", requestAuthentication)

// requestAuthentication is a kind of which the findings alone are told: its conditions say of each object that tokens are not verified.
const requestAuthentication = "RequestAuthentication"

// judgedBeside are the kinds without which the others cannot be judged: a policy chooses the pods of a Deployment, and names accounts.
var judgedBeside = []string{"Namespace", "Deployment", "ServiceAccount"}

// warnPartial tells of the objects among the results that are not in force as they are written, or that can hardly be meant so.
func (cmds effects) warnPartial(ctx context.Context, result api.ApplyResult) {
	waiting, told := map[api.Key]bool{}, map[string]bool{}
	for _, r := range result.Results {
		if slices.Contains(analysed, r.Key.Kind) || slices.Contains(judgedBeside, r.Key.Kind) {
			waiting[r.Key] = true
		}
		if slices.Contains(analysed, r.Key.Kind) {
			told[r.Key.Kind] = true
		}
	}
	if len(told) == 0 {
		return
	}
	// Nothing is said of an object until the control plane has read this version of it, and of all that was applied with it.
	unjudged := maps.Clone(waiting)
	for deadline := time.Now().Add(effectPatience); len(unjudged) > 0 && time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollTime):
		}
		for _, kind := range kindsOf(unjudged) {
			// All of a kind at once: each question costs the control plane a list of everything.
			list, err := cmds.app.client().Get(ctx, api.GetRequest{Kind: kind, AllNamespaces: true})
			if err != nil {
				return
			}
			for _, object := range list.Items {
				if isJudged(object) {
					delete(unjudged, object.Key)
				}
			}
		}
	}
	objects := map[api.Key]api.Object{}
	for _, kind := range slices.Sorted(maps.Keys(told)) {
		list, err := cmds.app.client().Get(ctx, api.GetRequest{Kind: kind, AllNamespaces: true})
		if err != nil {
			return
		}
		for _, object := range list.Items {
			objects[object.Key] = object
		}
	}
	for _, r := range result.Results {
		if object, there := objects[r.Key]; there && waiting[r.Key] && !unjudged[r.Key] {
			if r.Key.Kind == requestAuthentication {
				object.Conditions = nil
			}
			cmds.tellJudgement(object, r.Warnings)
		}
	}
	if len(unjudged) == 0 {
		return
	}
	if status, err := cmds.app.client().Status(ctx); err == nil && !status.Control.Ready {
		cmds.app.warn("not in force yet: the control plane is not ready; lateen status%s says more", cmds.app.meshFlag())
	}
}

// doubtful says whether labels that were set on a namespace may not bring its pods into the mesh, which the control plane then tells.
func doubtful(labels map[string]*string) bool {
	if mode := labels[wellknown.DataplaneMode]; mode != nil && wellknown.UnknownMode(map[string]string{wellknown.DataplaneMode: *mode}) != "" {
		return true
	}
	return labels[wellknown.Injection] != nil
}

// isJudged says whether the control plane has read the present version of an object.
func isJudged(object api.Object) bool {
	state, _ := printer.State(object)
	return state != printer.StateUnknown || object.Judged && !slices.Contains(partial, object.Key.Kind)
}

// tellRehearsal prints for the objects of a dry run the same lines as apply prints for objects that it has applied.
func (cmds effects) tellRehearsal(result api.ApplyResult) {
	for _, r := range result.Results {
		object := api.Object{Key: r.Key, Conditions: r.Conditions, Findings: r.Findings}
		if !slices.Contains(partial, r.Key.Kind) {
			object.Conditions = nil // the results' own warnings say why a kind is ignored
		}
		cmds.tellJudgement(object, r.Warnings)
	}
	if result.Unasked != "" {
		cmds.unanswered(result.Unasked)
	}
}

// unanswered says that there is no judgement of the control plane.
func (cmds effects) unanswered(why string) {
	cmds.app.warn("not known: the control plane does not answer: %s", why)
}

// tellFindings prints the findings of the control plane's analysis about the objects with these keys. A control plane that does not answer is reported
// as a warning.
func (cmds effects) tellFindings(ctx context.Context, keys []api.Key) {
	if len(keys) == 0 {
		return
	}
	found, err := cmds.app.client().Analysis(ctx)
	if err != nil {
		cmds.unanswered(err.Error())
		return
	}
	for _, key := range keys {
		for _, f := range found {
			if f.Object == key && (f.Severity == api.FindingWarning || f.State != "") {
				cmds.tellFinding(f)
			}
		}
	}
}

// tellJudgement prints the control plane's findings and conditions about one object. Texts that are among the warnings already are left out.
func (cmds effects) tellJudgement(object api.Object, warnings []string) {
	for _, f := range object.Findings {
		if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, f.Message) }) {
			f.Object = object.Key
			cmds.tellFinding(f)
		}
	}
	state, reason := printer.State(object)
	if state != printer.StateLive && state != printer.StateUnknown && !printer.Covers(object.Findings, plain(reason)) {
		cmds.app.warn("%s: %s", object.Key, reason)
	}
}

// tellFinding writes a finding to standard error, with the remedy on a line of its own.
func (cmds effects) tellFinding(f api.Finding) {
	lead := cmds.app.Err.Warn("warning:")
	if f.Severity != api.FindingWarning {
		lead = cmds.app.Err.Faint("note:")
	}
	text := lead + " " + f.Object.String() + ": "
	if f.Field != "" {
		text += f.Field + ": "
	}
	cmds.tellLine(text + f.Message)
	if f.Fix != "" {
		cmds.tellLine("  fix: " + f.Fix)
	}
}

// tellLine writes a line to standard error, broken where a terminal ends.
func (cmds effects) tellLine(line string) {
	_, _ = io.WriteString(cmds.app.Stderr, strings.Join(term.Fold(cmds.app.addressed(line), term.Columns(cmds.app.Stderr), 2), "\n")+"\n") // the reader has left
}

func kindsOf(keys map[api.Key]bool) []string {
	kinds := map[string]bool{}
	for key := range keys {
		kinds[key.Kind] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}
