package conditions

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// parents are those of an object's status as "controller namespace/name/section:port: Type=Status/Reason@generation, …".
func (r *rig) parents(key model.Key) string {
	o, err := r.client.Tracker().Get(resource[key.Kind], key.Namespace, key.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	var lines []string
	for _, p := range rawParents(o.(*unstructured.Unstructured)) {
		ref := p["parentRef"].(map[string]any)
		line := fmt.Sprintf("%v %v/%v/%v:%d:", p["controllerName"], ref["namespace"], ref["name"], text(ref, "sectionName"), number(ref["port"]))
		for _, raw := range p["conditions"].([]any) {
			c := raw.(map[string]any)
			line += fmt.Sprintf(" %v=%v/%v@%d", c["type"], c["status"], c["reason"], number(c["observedGeneration"]))
			if c["message"] == "" || c["lastTransitionTime"] == "" {
				r.t.Errorf("%v", c)
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

func TestParentsHaveConditionsOfTheirOwn(t *testing.T) {
	r := newRig(t)
	const ours = wellknown.LateenWaypointController
	key := model.Key{Group: model.NetworkGroup, Kind: "ServiceEntry", Namespace: "shop", Name: "se"}
	attached := func(name, section string, port int32, status model.Status, reason string) model.ParentConditions {
		return model.ParentConditions{Parent: model.ParentRef{Group: model.GatewayGroup, Kind: "Gateway", Namespace: "shop", Name: name, Section: section, Port: port}, Controller: ours,
			Conditions: []model.Condition{
				{Type: "Accepted", Status: status, Reason: reason, Message: "so it is"},
				{Type: "ResolvedRefs", Status: model.True, Reason: "ResolvedRefs", Message: "all are there"},
			}}
	}
	put := func(generation int64, parents ...model.ParentConditions) {
		r.t.Helper()
		r.put(key, "u1", generation, &networkingv1.ServiceEntry{}, nil, inForce)
		r.store.SetReport(key, model.Report{Conditions: []model.Condition{inForce}, Parts: &model.Parts{Parents: parents}})
	}
	theirs := map[string]any{"parents": []any{map[string]any{"controllerName": "example.com/other", "parentRef": map[string]any{"namespace": "far", "name": "g"},
		"conditions": []any{map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "theirs", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": int64(1)}}}}}
	const other = "example.com/other far/g/:0: Accepted=True/Accepted@1"
	r.put(key, "u1", 1, nil, theirs)
	put(1, attached("a", "web", 0, model.True, "Accepted"), attached("b", "", 8080, model.False, "NoMatchingParent"))
	r.lead()
	comes := func(want string) {
		t.Helper()
		r.eventually("parents are "+want, func() bool { return r.parents(key) == want })
	}
	comes(other + "; " + ours + " shop/a/web:0: Accepted=True/Accepted@1 ResolvedRefs=True/ResolvedRefs@1; " + ours + " shop/b/:8080: Accepted=False/NoMatchingParent@1 ResolvedRefs=True/ResolvedRefs@1")
	r.idle()
	writes := r.writes.Load()
	r.writer.Changed([]model.Key{key}, true)
	r.idle()
	if n := r.writes.Load() - writes; n != 0 {
		t.Errorf("%d writes although nothing is new", n)
	}
	put(2, attached("b", "", 8080, model.True, "Accepted"))
	comes(other + "; " + ours + " shop/b/:8080: Accepted=True/Accepted@2 ResolvedRefs=True/ResolvedRefs@2")
	put(3)
	comes(other)
}

func TestAConditionOfAParentKeepsItsTime(t *testing.T) {
	ref := model.ParentRef{Name: "a"}
	now := []parent{{ref: ref, conditions: []Condition{{Type: "Accepted", Status: "True", Since: "before"}, {Type: "ResolvedRefs", Status: "False", Since: "before"}}}}
	want := []parent{
		{ref: model.ParentRef{Name: "b"}, conditions: []Condition{{Type: "Accepted", Status: "True"}}},
		{ref: ref, conditions: []Condition{{Type: "Accepted", Status: "True", Reason: "other"}, {Type: "ResolvedRefs", Status: "True"}}},
	}
	parentsSince(want, now, "now")
	if a, b := want[1].conditions[0].Since, want[1].conditions[1].Since; a != "before" || b != "now" || want[0].conditions[0].Since != "now" {
		t.Errorf("%+v", want)
	}
}
