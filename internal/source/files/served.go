package files

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"google.golang.org/protobuf/encoding/protojson"

	"lateen.dev/lateen/internal/model"
)

// Served reads one object as an API server hands it out and holds it to the same rules as one from a file; value is nil if any refuses it.
// What an API server judges itself is not judged again: names, labels, the kinds of Kubernetes. A field that is not known here comes of a
// later version of its kind, and is remarked upon; but of a policy each field may narrow whom it admits, so there it is refused.
func Served(key model.Key, raw []byte) (value metav1.Object, problems []Problem) {
	k, known := kinds[groupKind{key.Group, key.Kind}]
	if !known {
		return nil, []Problem{{Object: key.String(), Message: "the kind is not known here", key: key}}
	}
	value, faults := k.decodeServed(raw)
	if value != nil && k.check != nil && !refused(faults) {
		faults = append(faults, k.check(value)...)
	}
	for _, f := range fewest(faults) {
		problems = append(problems, Problem{Severity: f.severity, Object: key.String(), Field: f.field, Message: f.message, Fix: f.fix, key: key}.clipped())
	}
	if refused(faults) {
		return nil, problems
	}
	return value, problems
}

const unknownField = "unknown field"

func (k kind) decodeServed(raw []byte) (metav1.Object, []fault) {
	value, faults := k.decode(raw)
	later := false
	for i := range faults {
		if !strings.HasPrefix(faults[i].message, unknownField) {
			continue
		}
		faults[i].fix = "it comes of a later version of the kind: upgrade the mesh, or remove the field"
		if k.group != securityGroup {
			faults[i].severity, later = Warning, true
		}
	}
	if !later || k.istio == nil || refused(faults) {
		return value, faults
	}
	// The decoder of Istio's kinds stopped at the field.
	var e envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, []fault{jsonFault(raw, err)}
	}
	o, spec := k.istio()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(e.Spec, spec); err != nil {
		return nil, []fault{{field: "spec", message: err.Error(), fix: "correct the value"}}
	}
	copyMeta(&e.ObjectMeta, o)
	return o, faults
}
