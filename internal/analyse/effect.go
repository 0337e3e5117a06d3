package analyse

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/spelling"
	"lateen.dev/lateen/internal/translate"
)

// namedPods is how many pods a message names, and listedPods how many a finding lists.
const (
	namedPods  = 3
	listedPods = 20
)

// authorization judges an AuthorizationPolicy as a whole and then by its rules.
func (a *analysis) authorization(p *policy) {
	if translate.Targeted(p.AuthorizationPolicy) {
		a.peers(p) // what waypoints make of it, its conditions say
		a.paths(p)
		return
	}
	if p.translated == nil {
		a.add(p.key, Finding{Code: Unsupported, Severity: Warning, State: Ineffective, Message: p.condition.Message})
		return
	}
	if p.translated.DryRun {
		a.add(p.key, Finding{Code: PolicyDryRun, Severity: Info, State: DryRun, Message: "dry run only: not enforced",
			Fix: "remove the annotation " + wellknown.DryRun + " to enforce it"})
	}
	a.unclearDryRun(p)
	a.peers(p)
	namespace, selector := where(a.Mesh, p.key), p.Spec.Selector.GetMatchLabels()
	if p.translated.Scope == security.Scope_NAMESPACE {
		namespace = p.Namespace
	}
	in := a.chosen(namespace, selector)
	if a.reaches(p.key, in, namespace, selector) {
		a.effect(p, in)
		a.ports(p, in)
	}
}

// effect judges the rules of a policy together: whether they allow or deny anything, and to which pods.
func (a *analysis) effect(p *policy, in *scope) {
	allow := p.translated.Action == security.Action_ALLOW
	judgedInPart := p.condition.Reason != translate.Accepted().Reason
	refuses, denies := "refuses", "denies"
	if p.translated.DryRun {
		refuses, denies = "would refuse", "would deny"
	}
	because := "no rule of it matches an identity of the mesh"
	if slices.ContainsFunc(p.translated.Rules, ruleContradicts) {
		because = "a rule of it excepts everything that it names"
	}
	switch {
	case len(p.Spec.Rules) == 0:
		because = "it has no rules"
	case judgedInPart:
		because = p.condition.Message
	}
	switch {
	case allow && p.peers != present:
		f := Finding{Code: RefusesAll, Severity: Warning, State: RefusingAll}
		if len(p.Spec.Rules) == 0 {
			f.Severity, f.State = Info, "" // the usual way to refuse all connections but those that other policies allow
		}
		shut := a.unallowed(in)
		f.Message = fmt.Sprintf("%s ALL connections to %s", refuses, a.podText(&f, shut))
		if len(shut) == 0 {
			f.Code, f.Message = AllowsNothing, "allows nothing beside what other ALLOW policies do"
			if f.State != "" {
				f.State = Partial
			}
		}
		if p.peers == planned {
			f.Message += " until an enrolled pod of " + either(p.soon) + " exists"
		} else {
			f.Message += ": " + because
		}
		a.add(p.key, f)
		if p.peers == planned && judgedInPart {
			a.add(p.key, Finding{Code: PartlyEnforced, Severity: Warning, State: Partial, Message: p.condition.Message})
		}
	case !allow && len(p.Spec.Rules) == 0:
		a.add(p.key, Finding{Code: DeniesNothing, Severity: Warning, State: Ineffective, Message: "a DENY policy without rules never matches and denies nothing", Fix: "add a rule; one empty rule ({}) denies everything"})
	case !allow && p.peers == absent && judgedInPart && !slices.ContainsFunc(p.translated.Rules, translate.CanMatch):
		a.add(p.key, Finding{Code: DeniesNothing, Severity: Warning, State: Ineffective, Message: because}) // which says so
	case !allow && p.peers == absent:
		a.add(p.key, Finding{Code: DeniesNothing, Severity: Warning, State: Ineffective, Message: denies + " nothing: " + because})
	case !allow && broadest(p.translated.Rules, in.enrolled) != 0:
		f := Finding{Code: DeniesAll, Severity: Info}
		f.Message = fmt.Sprintf("%s ALL connections to %s: a rule of it matches %s", denies, a.podText(&f, in.enrolled), broadest(p.translated.Rules, in.enrolled))
		a.add(p.key, f)
	case judgedInPart:
		a.add(p.key, Finding{Code: PartlyEnforced, Severity: Warning, State: Partial, Message: p.condition.Message})
	}
}

// peerAuthentication judges which pods a PeerAuthentication is enforced for. Its conditions tell of its modes.
func (a *analysis) peerAuthentication(pa *securityv1.PeerAuthentication) {
	key := model.Key{Group: model.SecurityGroup, Kind: "PeerAuthentication", Namespace: pa.Namespace, Name: pa.Name}
	namespace := pa.Namespace
	if !translate.Selects(pa) && namespace == a.Mesh.RootNamespace {
		namespace = ""
	}
	selector := pa.Spec.GetSelector().GetMatchLabels()
	a.reaches(key, a.chosen(namespace, selector), namespace, selector)
}

// reaches says whether a policy is enforced for anybody, and notes for whom it is not.
func (a *analysis) reaches(about model.Key, in *scope, namespace string, selector map[string]string) bool {
	f := Finding{Severity: Warning, State: Ineffective}
	switch {
	case len(in.enrolled) > 0 && len(pods(in.others)) > 0 && namespace != "":
		f.Code, f.Severity, f.State = NotEnforced, Info, ""
		f.Message = "not enforced for " + a.podText(&f, in.others) + ": not enrolled"
		a.add(about, f)
		return true
	case len(in.enrolled) > 0:
		return true
	case len(in.others) > 0:
		f.Code = NotEnforced
		f.Message = "enforced for nobody: it is about " + a.podText(&f, in.others) + " alone, and none of them is enrolled"
		f.Fix = a.enrol(in.others)
	case namespace != "" && a.namespaces[namespace] == nil && len(a.namespaces) > 0:
		f.Code, f.Message = NamespaceMissing, fmt.Sprintf("enforced for nobody: there is no namespace %q", namespace)
		if near := spelling.Nearest(namespace, slices.Sorted(maps.Keys(a.namespaces))); near != "" {
			f.Fix = "did you mean " + near + "?"
		}
	case namespace != "" && a.crowded[namespace] == 0:
		f.Code, f.Message = NamespaceWithoutPods, "enforced for nobody: namespace "+namespace+" has no pods"
	case len(selector) > 0:
		f.Code, f.Field = SelectsNoPod, "spec.selector.matchLabels"
		f.Message = "selects 0 pods: none " + within(namespace) + " has the labels " + labelText(selector)
		f.Fix = a.nearestLabels(namespace, selector)
	default:
		return false // a mesh without pods
	}
	a.add(about, f)
	return false
}

func within(namespace string) string {
	if namespace == "" {
		return "in the mesh"
	}
	return "in namespace " + namespace
}

// enrol says how workloads are enrolled, if they can be.
func (a *analysis) enrol(list []*workload) string {
	namespaces := map[string]bool{}
	for _, w := range list {
		if w.outside == "" {
			namespaces[w.key.Namespace] = true
		}
	}
	switch {
	case slices.ContainsFunc(list, func(w *workload) bool { return w.outside == systemNamespace }) && len(namespaces) == 0:
		return "do not enrol it: namespace " + list[0].key.Namespace + " is of the mesh or the cluster"
	case len(namespaces) == 0:
		return "pods with hostNetwork and static pods cannot be enrolled: give them a network and an account of their own"
	case len(namespaces) > 1:
		return "enrol their namespaces: lateen label namespace NAMESPACE " + wellknown.DataplaneMode + "=" + ambient
	}
	return "enrol them: lateen label namespace " + slices.Sorted(maps.Keys(namespaces))[0] + " " + wellknown.DataplaneMode + "=" + ambient
}

// nearestLabels proposes another value, or another key, for the labels of a selector that nothing has.
func (a *analysis) nearestLabels(namespace string, selector map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		keys, all := map[string]bool{}, map[string]bool{}
		for ns, byKey := range a.labels {
			if namespace != "" && ns != namespace {
				continue
			}
			for k := range byKey {
				keys[k] = true
			}
			maps.Copy(all, byKey[key])
		}
		switch {
		case all[selector[key]]:
		case len(all) > 0:
			if near := spelling.Nearest(selector[key], slices.Sorted(maps.Keys(all))); near != "" {
				return "did you mean " + key + ": " + near + "?"
			}
		default:
			if near := spelling.Nearest(key, slices.Sorted(maps.Keys(keys))); near != "" {
				return "did you mean " + near + ": " + selector[key] + "?"
			}
		}
	}
	return ""
}

func labelText(labels map[string]string) string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, k+"="+labels[k])
	}
	return strings.Join(pairs, ",")
}

// podText names the first pods among workloads, and lists more of them in the finding. Workloads without pods are named by their own kind.
func (a *analysis) podText(f *Finding, list []*workload) string {
	real := pods(list)
	if len(real) == 0 {
		var names []string
		for _, w := range list[:min(len(list), namedPods)] {
			names = append(names, strings.ToLower(w.key.Kind)+"/"+w.key.Name)
		}
		return "the pods of " + more(names, len(list))
	}
	var names []string
	for _, w := range real[:min(len(real), listedPods)] {
		f.Pods = append(f.Pods, w.key.Namespace+"/"+w.key.Name)
	}
	f.MorePods = len(real) - len(f.Pods)
	one := !slices.ContainsFunc(real, func(w *workload) bool { return w.key.Namespace != real[0].key.Namespace })
	for _, w := range real[:min(len(real), namedPods)] {
		name := w.key.Name
		if !one {
			name = w.key.Namespace + "/" + name
		}
		names = append(names, name)
	}
	noun := " pods ("
	if len(real) == 1 {
		noun = " pod ("
	}
	return strconv.Itoa(len(real)) + noun + more(names, len(real)) + ")"
}

// either names the first of several alternatives.
func either(names []string) string {
	text := strings.Join(names[:min(len(names), namedPods)], " or ")
	if others := len(names) - namedPods; others > 0 {
		text += fmt.Sprintf(" or %d more", others)
	}
	return text
}

func more(names []string, all int) string {
	text := strings.Join(names, ", ")
	if all > len(names) {
		text += fmt.Sprintf(" and %d more", all-len(names))
	}
	return text
}
