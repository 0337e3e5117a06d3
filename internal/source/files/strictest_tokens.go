package files

import (
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	securityapi "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	effectTokens = "a request with a token is refused where one of its rules, as far as they can be read, looks for one"
	// unreadIssuer stands for an issuer that cannot be read: no token is of it.
	unreadIssuer = "unreadable"
)

// strictestTokens reads a RequestAuthentication for waypoints. They verify no tokens yet, so each of its rules keeps requests out: without it
// a request with a token would pass as one without. A rule of which no place can be read looks where tokens usually are.
func strictestTokens(e *envelope) (metav1.Object, string) {
	o := &securityv1.RequestAuthentication{}
	copyMeta(&e.ObjectMeta, o)
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(e.Spec, &fields) != nil || !targets(fields) || given(fields, "selector") {
		return nil, ""
	}
	for _, name := range []string{"targetRef", "targetRefs"} {
		read := &securityapi.RequestAuthentication{}
		if given(fields, name) && only(name, fields[name], read) != nil {
			return nil, "" // nobody knows for whom it is
		}
		proto.Merge(&o.Spec, read)
	}
	var rules []json.RawMessage
	if given(fields, "jwtRules") && json.Unmarshal(fields["jwtRules"], &rules) != nil {
		rules = []json.RawMessage{nil}
	}
	for _, raw := range rules {
		o.Spec.JwtRules = append(o.Spec.JwtRules, readTokenRule(raw))
	}
	if len(rules) == 0 {
		return nil, "" // it looks for no token
	}
	return o, effectTokens
}

// given says whether a field is there and not null.
func given(fields map[string]json.RawMessage, name string) bool {
	raw, there := fields[name]
	return there && string(raw) != "null"
}

// readTokenRule reads the issuer of a rule, and the places where it looks for tokens.
func readTokenRule(raw json.RawMessage) *securityapi.JWTRule {
	rule := &securityapi.JWTRule{}
	if protojson.Unmarshal(raw, rule) != nil {
		rule.Reset()
		var fields map[string]json.RawMessage
		_ = json.Unmarshal(raw, &fields) // what is no object has no fields
		for _, name := range []string{"issuer", "fromHeaders", "fromParams", "fromCookies"} {
			read := &securityapi.JWTRule{}
			if given(fields, name) && only(name, fields[name], read) == nil {
				proto.Merge(rule, read)
			}
		}
	}
	if rule.Issuer == "" {
		rule.Issuer = unreadIssuer
	}
	rule.FromHeaders = slices.DeleteFunc(rule.FromHeaders, func(h *securityapi.JWTHeader) bool { return strings.TrimSpace(h.GetName()) == "" })
	return rule
}
