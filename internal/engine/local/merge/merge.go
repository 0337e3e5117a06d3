// Package merge combines versions of an object as JSON: what apply does with a new version of a manifest, and what a patch does.
// It knows nothing of kinds; lists are values and are replaced whole.
package merge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// Object is a JSON object, decoded.
type Object = map[string]any

// Parse decodes a JSON object and keeps its numbers as they are written.
func Parse(b []byte) (Object, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var o Object
	if err := dec.Decode(&o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, fmt.Errorf("want a JSON object, have null")
	}
	return o, nil
}

// Apply is what becomes of live when a manifest whose former version was last now says next: next's fields are set, fields
// that last had and next has not are removed, and fields that neither names stay (such as a label set by hand). Inputs are not changed.
func Apply(last, live, next Object) Object {
	out := Object{}
	for k, v := range live {
		_, had := last[k]
		_, has := next[k]
		if !had || has {
			out[k] = v
		}
	}
	for k, v := range next {
		nextChild, ok := v.(Object)
		liveChild, liveOK := live[k].(Object)
		if ok && liveOK {
			lastChild, _ := last[k].(Object)
			out[k] = Apply(lastChild, liveChild, nextChild)
			continue
		}
		out[k] = v
	}
	return out
}

// Patch applies a JSON merge patch (RFC 7386). Inputs are not changed.
func Patch(live, patch Object) Object {
	out := Object{}
	for k, v := range live {
		out[k] = v
	}
	for k, v := range patch {
		child, isObject := v.(Object)
		switch {
		case v == nil:
			delete(out, k)
		case isObject:
			liveChild, _ := out[k].(Object)
			out[k] = Patch(liveChild, child)
		default:
			out[k] = v
		}
	}
	return out
}

// Equal compares two objects.
func Equal(a, b Object) bool { return reflect.DeepEqual(a, b) }

// Set returns a copy of o with the field at path set, making the objects on the way.
func Set(o Object, value any, path ...string) Object {
	patch := Object{path[len(path)-1]: value}
	for i := len(path) - 2; i >= 0; i-- {
		patch = Object{path[i]: patch}
	}
	return Patch(o, patch)
}

// Get reads the field at path.
func Get(o Object, path ...string) (any, bool) {
	var v any = o
	for _, p := range path {
		m, ok := v.(Object)
		if !ok {
			return nil, false
		}
		if v, ok = m[p]; !ok {
			return nil, false
		}
	}
	return v, true
}
