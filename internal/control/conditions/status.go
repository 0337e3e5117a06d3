package conditions

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// written is what is said of an object in its status by us.
type written struct {
	uid        string
	conditions []Condition
	parents    []parent
	gateway    *gatewayStatus // of a Gateway
}

// read takes the conditions of ours out of a status: those of our types, and of parents those that one of our controllers wrote. Others
// write what they like there: what does not read as a condition is none of ours.
func read(u *unstructured.Unstructured, types, controllers []string) written {
	out := written{uid: string(u.GetUID()), parents: readParents(u, controllers), gateway: readGateway(u)}
	for _, raw := range rawConditions(u) {
		c, ok := raw.(map[string]any)
		if !ok || !slices.Contains(types, text(c, "type")) {
			continue
		}
		out.conditions = append(out.conditions, asCondition(c))
	}
	return out
}

func asCondition(c map[string]any) Condition {
	return Condition{Type: text(c, "type"), Status: text(c, "status"), Reason: text(c, "reason"), Message: text(c, "message"),
		Generation: number(c["observedGeneration"]), Since: text(c, "lastTransitionTime")}
}

func rawConditions(u *unstructured.Unstructured) []any {
	list, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "conditions")
	conditions, _ := list.([]any)
	return conditions
}

func text(c map[string]any, field string) string {
	s, _ := c[field].(string)
	return s
}

// number reads a generation, which Istio's kinds may have as text.
func number(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

// says tells whether a status says what is wanted already.
func (now written) says(want wanted) bool {
	return same(now.conditions, want.conditions) && sameParents(now.parents, want.parents) && (want.gateway == nil || now.gateway != nil && now.gateway.same(want.gateway))
}

// same says whether two lists of conditions say the same.
func same(now []Condition, want []Condition) bool {
	if len(now) != len(want) {
		return false
	}
	for _, c := range want {
		if !slices.ContainsFunc(now, c.alike) {
			return false
		}
	}
	return true
}

// since gives each condition that is wanted the time when its status came to be: what it was before, if it was so before.
func since(want, now []Condition, at string) []Condition {
	out := slices.Clone(want)
	for i := range out {
		out[i].Since = at
		for _, c := range now {
			if c.Type == out[i].Type && c.Status == out[i].Status && c.Since != "" {
				out[i].Since = c.Since
			}
		}
	}
	return out
}

// patch is the merge patch that puts conditions in the place of those of ours. The list is written whole, since not every kind knows its
// entries by their types; the resource version has it refused if somebody else has written meanwhile.
func patch(u *unstructured.Unstructured, types, controllers []string, want []Condition, attached []parent, gateway *gatewayStatus) ([]byte, error) {
	list := []any{}
	left := map[string]Condition{}
	for _, c := range want {
		left[c.Type] = c
	}
	for _, raw := range rawConditions(u) {
		c, ok := raw.(map[string]any)
		if !ok || !slices.Contains(types, text(c, "type")) {
			list = append(list, raw) // another's
			continue
		}
		if next, ok := left[text(c, "type")]; ok {
			next.into(c)
			list = append(list, c)
			delete(left, next.Type)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		c := map[string]any{}
		left[name].into(c)
		list = append(list, c)
	}
	status := map[string]any{"conditions": list}
	gateway.into(status)
	parentsInto(status, u, attached, controllers)
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": u.GetResourceVersion(), "uid": string(u.GetUID())},
		"status":   status,
	})
	if err != nil {
		return nil, fmt.Errorf("encode a status: %w", err)
	}
	return data, nil
}

// into writes a condition into what stands in the status, where there may be more fields.
func (c Condition) into(raw map[string]any) {
	raw["type"], raw["status"], raw["reason"], raw["message"], raw["lastTransitionTime"] = c.Type, c.Status, c.Reason, c.Message, c.Since
	delete(raw, "observedGeneration")
	if c.Generation > 0 {
		raw["observedGeneration"] = c.Generation
	}
}
