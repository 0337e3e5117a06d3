package waypoint

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Manifests are the objects as they are applied, in the order in which they need each other. They have no field that nobody has chosen, so
// that whoever applies them owns no more than that.
func (o Objects) Manifests() ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, object := range []any{o.ServiceAccount, o.Service, o.Budget, o.Autoscaler, o.Deployment} {
		if reflect.ValueOf(object).IsNil() {
			continue
		}
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("encode an object of a waypoint: %w", err)
		}
		delete(raw, "status")
		if object == any(o.Deployment) && o.Autoscaler != nil {
			// A caller that applies the object again would overwrite the autoscaler's number.
			unstructured.RemoveNestedField(raw, "spec", "replicas")
		}
		prune(raw)
		out = append(out, &unstructured.Unstructured{Object: raw})
	}
	return out, nil
}

// prune removes what the types write for fields that are not set: nulls, and empty objects. An empty object that means something, such as
// emptyDir, is a choice of its parent and stays.
func prune(m map[string]any) {
	for _, name := range []string{"creationTimestamp"} {
		if m[name] == nil {
			delete(m, name)
		}
	}
	for _, name := range []string{"strategy", "resources", "securityContext"} {
		if empty, is := m[name].(map[string]any); is && len(empty) == 0 {
			delete(m, name)
		}
	}
	for _, v := range m {
		switch v := v.(type) {
		case map[string]any:
			prune(v)
		case []any:
			for _, item := range v {
				if item, is := item.(map[string]any); is {
					prune(item)
				}
			}
		}
	}
}
