package conditions

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lateen.dev/lateen/internal/model/wellknown"
)

// FuzzStatus gives the reader of a status whatever an API server may hold: no panic, and nothing of others counts as ours. A patch that says
// what is said already changes nothing, and leaves the parents of others.
func FuzzStatus(f *testing.F) {
	for _, text := range []string{
		`{"kind":"Gateway","status":{"conditions":[{"type":"Accepted","status":"True","observedGeneration":"7"}],"addresses":[{"value":"a"},1],"listeners":[{"name":"x","attachedRoutes":1,"conditions":[null,{"type":"Accepted"}]}]}}`,
		`{"kind":"ServiceEntry","metadata":{"namespace":"shop"},"status":{"parents":[{"controllerName":"` + wellknown.LateenWaypointController + `","parentRef":{"group":"","kind":"Service","port":1e9},"conditions":[{}]},{"controllerName":"b"}]}}`,
		`{"status":{"conditions":{"a":1},"parents":"b"}}`,
		`{"status":[],"metadata":1}`,
	} {
		f.Add([]byte(text))
	}
	types, controllers := []string{accepted, programmed}, []string{wellknown.LateenWaypointController}
	f.Fuzz(func(t *testing.T, data []byte) {
		u := &unstructured.Unstructured{}
		if json.Unmarshal(data, &u.Object) != nil {
			return
		}
		now := read(u, types, controllers)
		for _, c := range now.conditions {
			if c.Type != accepted && c.Type != programmed {
				t.Errorf("%q is none of ours", c.Type)
			}
		}
		for _, p := range now.parents {
			if p.controller != wellknown.LateenWaypointController {
				t.Errorf("%q is none of ours", p.controller)
			}
		}
		// The first patch leaves out what was said twice.
		once := patched(t, u, types, controllers)
		said := read(once, types, controllers)
		if then := read(patched(t, once, types, controllers), types, controllers); !same(then.conditions, said.conditions) || !sameParents(then.parents, said.parents) {
			t.Errorf("of %s it is said %+v, then %+v", data, said, then)
		}
		if theirs, left := len(rawParents(u))-len(now.parents), len(rawParents(once))-len(said.parents); len(now.parents) > 0 && theirs != left {
			t.Errorf("of %s, %d parents of others were left of %d", data, left, theirs)
		}
	})
}

// patched is the object with a patch of its status that says what is said.
func patched(t *testing.T, u *unstructured.Unstructured, types, controllers []string) *unstructured.Unstructured {
	now := read(u, types, controllers)
	merged, err := patch(u.DeepCopy(), types, controllers, now.conditions, now.parents, now.gateway)
	if err != nil {
		t.Fatal(err)
	}
	var status struct{ Status map[string]any }
	if err := json.Unmarshal(merged, &status); err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: map[string]any{"kind": u.Object["kind"], "metadata": u.Object["metadata"], "status": status.Status}}
}
