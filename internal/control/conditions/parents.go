package conditions

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/replica"
)

// parent is an entry of status.parents, in which the Gateway API has the conditions of a route or a policy by what it attaches to. Each
// entry belongs to the controller that it names.
type parent struct {
	ref        model.ParentRef
	controller string
	conditions []Condition
}

// parents works out what is to be said of an object's parents.
func parents(report []model.ParentConditions, version replica.Version) (out []parent) {
	for _, p := range report {
		at := parent{ref: p.Parent, controller: p.Controller}
		for _, c := range p.Conditions {
			at.conditions = append(at.conditions, told(c.Type, c, version))
		}
		out = append(out, at)
	}
	return out
}

// rawParents lists the entries of status.parents.
func rawParents(u *unstructured.Unstructured) (out []map[string]any) {
	list, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "parents")
	all, _ := list.([]any)
	for _, raw := range all {
		if p, ok := raw.(map[string]any); ok {
			out = append(out, p)
		}
	}
	return out
}

// readParents takes the entries of our controllers out of a status.
func readParents(u *unstructured.Unstructured, controllers []string) (out []parent) {
	for _, raw := range rawParents(u) {
		at := parent{controller: text(raw, "controllerName")}
		if !slices.Contains(controllers, at.controller) {
			continue
		}
		ref, _ := raw["parentRef"].(map[string]any)
		group, named := ref["group"].(string) // the empty one is that of Services
		if !named {
			group = gatewayv1.GroupName
		}
		at.ref = model.ParentRef{Group: group, Kind: cmp.Or(text(ref, "kind"), "Gateway"), Namespace: cmp.Or(text(ref, "namespace"), u.GetNamespace()),
			Name: text(ref, "name"), Section: text(ref, "sectionName"), Port: int32(number(ref["port"]))} //nolint:gosec // a port number
		list, _ := raw["conditions"].([]any)
		for _, c := range list {
			if c, ok := c.(map[string]any); ok {
				at.conditions = append(at.conditions, asCondition(c))
			}
		}
		out = append(out, at)
	}
	return out
}

// sameParents says whether two lists of parents say the same, whenever it came to be.
func sameParents(now, want []parent) bool {
	return slices.EqualFunc(now, want, func(a, b parent) bool {
		return a.ref == b.ref && a.controller == b.controller && same(a.conditions, b.conditions)
	})
}

// parentsSince gives the parents' conditions the times when they came to be.
func parentsSince(want, now []parent, at string) {
	for i, p := range want {
		var before []Condition
		if j := slices.IndexFunc(now, func(n parent) bool { return n.ref == p.ref && n.controller == p.controller }); j >= 0 {
			before = now[j].conditions
		}
		want[i].conditions = since(p.conditions, before, at)
	}
}

// parentsInto writes the entries of our controllers into a merge patch of a status, behind those of others, which stay as they are. It
// writes nothing if there are none of ours and there were none.
func parentsInto(status map[string]any, u *unstructured.Unstructured, want []parent, controllers []string) {
	list := []any{}
	ours := len(want) > 0
	for _, raw := range rawParents(u) {
		if slices.Contains(controllers, text(raw, "controllerName")) {
			ours = true
			continue
		}
		list = append(list, raw)
	}
	if !ours {
		return
	}
	for _, p := range want {
		ref := map[string]any{"group": p.ref.Group, "kind": p.ref.Kind, "namespace": p.ref.Namespace, "name": p.ref.Name}
		if p.ref.Section != "" {
			ref["sectionName"] = p.ref.Section
		}
		if p.ref.Port != 0 {
			ref["port"] = p.ref.Port
		}
		conditions := []any{}
		for _, c := range p.conditions {
			raw := map[string]any{}
			c.into(raw)
			conditions = append(conditions, raw)
		}
		list = append(list, map[string]any{"parentRef": ref, "controllerName": p.controller, "conditions": conditions})
	}
	status["parents"] = list
}
