package files

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	securityapi "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/model"
)

// Strictest reads of a policy that Served refuses what can be read of it, such that it lets in nobody whom its author may have meant to
// keep out. It is what stands in for the policy where no earlier version is known: one that vanished at a restart would open the mesh.
// effect says how the policy is read; value is nil for other kinds, and for a policy that no proxy enforces whatever else it says: one that names
// what cannot be read, or with an action that its proxies do not have.
func Strictest(key model.Key, raw []byte) (value metav1.Object, effect string) {
	if key.Group != securityGroup {
		return nil, ""
	}
	var e envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, "" // the API server holds nothing of which metadata cannot be read
	}
	switch key.Kind {
	case "AuthorizationPolicy":
		return strictestAuthorization(&e)
	case "PeerAuthentication":
		return strictestPeers(&e)
	case "RequestAuthentication":
		return strictestTokens(&e)
	}
	return nil, ""
}

// Effects of policies that are read strictly, for their authors.
const (
	effectAllow = "it allows what those of its rules allow that can be read, and nothing else"
	effectDeny  = "it denies what its rules deny without what cannot be read of them, which is more"
	effectNone  = "it denies nobody, since nothing of its rules is known here"
	effectPeers = "what cannot be read of it counts as STRICT"
	effectOpen  = "what can be read of it counts, and opens nothing that is STRICT without it"
)

// policyFields are those of an AuthorizationPolicy's spec that are understood. Another one may say anything of the whole: beside it nothing is
// allowed, and what the rules deny is denied.
var policyFields = []string{"selector", "targetRef", "targetRefs", "rules", "action", "provider"}

func strictestAuthorization(e *envelope) (metav1.Object, string) {
	o := &securityv1.AuthorizationPolicy{}
	copyMeta(&e.ObjectMeta, o)
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(e.Spec, &fields); err != nil && len(e.Spec) > 0 {
		return nil, ""
	}
	// What is null is not given.
	for name, raw := range fields {
		if string(raw) == "null" {
			delete(fields, name)
		}
	}
	if raw, given := fields["action"]; given && only("action", raw, &o.Spec) != nil {
		return nil, ""
	}
	selector, selects := fields["selector"]
	if !selects && targets(fields) {
		return strictestTargeted(o, fields)
	}
	if o.Spec.Action != securityapi.AuthorizationPolicy_ALLOW && o.Spec.Action != securityapi.AuthorizationPolicy_DENY {
		return nil, ""
	}
	whole, scope, lost := true, "", false
	if selects {
		var nobody bool
		if o.Spec.Selector, whole, nobody = readSelector(selector); nobody {
			return nil, ""
		}
		lost = !whole && len(o.Spec.Selector.MatchLabels) == 0 && laterSelector(selector)
	}
	if !whole {
		scope = ", for " + chosen(e.Namespace, o.Spec.Selector)
	}
	return o, strictestRules(&o.Spec, fields, whole, lost) + scope
}

// strictestTargeted reads a policy for waypoints. Of one that names what cannot be read nobody knows for whom it is.
func strictestTargeted(o *securityv1.AuthorizationPolicy, fields map[string]json.RawMessage) (metav1.Object, string) {
	if o.Spec.Action == securityapi.AuthorizationPolicy_AUDIT {
		return nil, "" // it keeps nobody out
	}
	for _, name := range []string{"targetRef", "targetRefs", "provider"} {
		raw, given := fields[name]
		if !given {
			continue
		}
		read := &securityapi.AuthorizationPolicy{}
		if only(name, raw, read) != nil && name != "provider" {
			return nil, ""
		}
		proto.Merge(&o.Spec, read)
	}
	return o, strictestRules(&o.Spec, fields, true, false) + ", for what its targetRefs name"
}

// strictestRules reads the rules of a policy into its spec and says what that makes of it. whole says that all of its selector is read, unchosen
// that nothing of it is known here.
func strictestRules(spec *securityapi.AuthorizationPolicy, fields map[string]json.RawMessage, whole, unchosen bool) (effect string) {
	var rules []json.RawMessage
	unread := fields["rules"] != nil && json.Unmarshal(fields["rules"], &rules) != nil
	var later []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(policyFields, name) {
			later = append(later, name)
		}
	}
	denies := spec.Action != securityapi.AuthorizationPolicy_ALLOW
	switch {
	case unread && denies:
		spec.Rules = []*securityapi.Rule{{}}
		return "it denies everything, since its rules cannot be read"
	case denies:
		left := strictestDenials(spec, rules, unchosen || fields["selector"] == nil && len(later) > 0)
		return deniedBy(spec.Rules, left, later)
	case unread || len(later) > 0:
		return "it allows nothing, since more of it cannot be read than single rules"
	case !whole:
		// Of the workloads that it chooses beyond those that are meant, it must not open any that other policies close.
		return "it allows nothing, since not all of its selector can be read"
	}
	for _, raw := range rules {
		if rule := readRule(raw); rule != nil {
			spec.Rules = append(spec.Rules, rule)
		}
	}
	return effectAllow
}

// chosen says in words which workloads a selector chooses of which part could not be read.
func chosen(namespace string, selector *typev1beta1.WorkloadSelector) string {
	labels := selector.GetMatchLabels()
	if len(labels) == 0 {
		return fmt.Sprintf("every workload of namespace %s (of the mesh if that is its root namespace)", namespace)
	}
	var terms []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		terms = append(terms, k+"="+labels[k])
	}
	return fmt.Sprintf("the workloads of namespace %s (of the mesh if that is its root namespace) that the rest of its selector chooses, %s", namespace, strings.Join(terms, ","))
}

// only reads one field of a message.
func only(name string, raw json.RawMessage, into proto.Message) error {
	text, err := json.Marshal(map[string]json.RawMessage{name: raw})
	if err != nil {
		return err
	}
	return protojson.Unmarshal(text, into)
}

// targets says whether a policy names what it is for, as a list of which no entry is given does not.
func targets(fields map[string]json.RawMessage) bool {
	var refs []json.RawMessage
	if json.Unmarshal(fields["targetRefs"], &refs) == nil && len(refs) > 0 {
		return true
	}
	var ref map[string]json.RawMessage
	return json.Unmarshal(fields["targetRef"], &ref) == nil
}

// readSelector reads a selector as far as it can be: what is left out of it would choose fewer. whole says that nothing is. nobody says that it
// has a label that no workload can have: that is read, in every version of the kind, and whatever else the selector says it chooses nobody.
func readSelector(raw json.RawMessage) (_ *typev1beta1.WorkloadSelector, whole, nobody bool) {
	var strict securityapi.AuthorizationPolicy
	if only("selector", raw, &strict) == nil {
		given := strict.Selector.GetMatchLabels()
		return &typev1beta1.WorkloadSelector{MatchLabels: given}, true, len(checkLabels("", given)) > 0
	}
	var loose struct {
		MatchLabels map[string]any `json:"matchLabels"`
	}
	_ = json.Unmarshal(raw, &loose) // what is not read chooses everything
	read := map[string]string{}
	for k, v := range loose.MatchLabels {
		if text, ok := v.(string); ok {
			read[k] = text
		}
	}
	return &typev1beta1.WorkloadSelector{MatchLabels: read}, false, len(checkLabels("", read)) > 0
}

// laterSelector says whether all that cannot be read of a selector are fields that are not known here.
func laterSelector(raw json.RawMessage) bool {
	return (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, &typev1beta1.WorkloadSelector{}) == nil
}

// strictestPeers reads a PeerAuthentication. One of which no label of the selector can be read has a selector without labels, which no other
// has: it is about every workload of its namespace, whatever else counts for these.
func strictestPeers(e *envelope) (metav1.Object, string) {
	const strict = securityapi.PeerAuthentication_MutualTLS_STRICT
	o := &securityv1.PeerAuthentication{}
	copyMeta(&e.ObjectMeta, o)
	read := protojson.Unmarshal(e.Spec, &o.Spec) == nil
	if !read {
		o.Spec.Reset()
	}
	var fields struct {
		Selector json.RawMessage `json:"selector"`
	}
	_ = json.Unmarshal(e.Spec, &fields) // without a selector it is about its namespace
	whole := true
	o.Spec.Selector = nil
	if len(fields.Selector) > 0 && string(fields.Selector) != "null" {
		var nobody bool
		switch o.Spec.Selector, whole, nobody = readSelector(fields.Selector); {
		case nobody:
			return nil, ""
		case whole && len(o.Spec.Selector.MatchLabels) == 0:
			o.Spec.Selector = nil
		}
	}
	selects := len(o.Spec.GetSelector().GetMatchLabels()) > 0
	// A mode that has no name, as one that is a number may not, is not read.
	closes := func(tls *securityapi.PeerAuthentication_MutualTLS) bool {
		return tls.GetMode() == strict || !knownMode(tls.GetMode())
	}
	closed := !read || closes(o.Spec.GetMtls())
	for port, tls := range o.Spec.PortLevelMtls {
		if selects && port >= 1 && port <= 65535 {
			if closes(tls) {
				tls.Mode = strict
			}
			continue
		}
		// Ports cannot differ where no workloads are chosen, and one that is none may be any.
		closed = closed || closes(tls)
		delete(o.Spec.PortLevelMtls, port)
	}
	if !closed {
		return o, effectOpen
	}
	o.Spec.Mtls = &securityapi.PeerAuthentication_MutualTLS{Mode: strict}
	switch {
	case whole:
		return o, effectPeers
	case selects:
		return o, effectPeers + ", for the workloads that the rest of its selector chooses"
	}
	return o, effectPeers + ", for all workloads of namespace " + e.Namespace
}
