package files

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	securityapi "istio.io/api/security/v1beta1"

	"lateen.dev/lateen/internal/model/wellknown"
)

func labelSet(l map[string]string) labels.Set { return labels.Set(l) }

func checkPeerAuthentication(o metav1.Object) []fault {
	pa := o.(*securityv1.PeerAuthentication)
	faults := checkLabels("spec.selector.matchLabels", pa.Spec.GetSelector().GetMatchLabels())
	if len(pa.Spec.PortLevelMtls) > 0 && len(pa.Spec.GetSelector().GetMatchLabels()) == 0 {
		faults = append(faults, fault{field: "spec.portLevelMtls", message: "port-level modes need a selector", fix: "add spec.selector.matchLabels"})
	}
	if mode := pa.Spec.GetMtls().GetMode(); !knownMode(mode) {
		faults = append(faults, unknownMode("spec.mtls.mode", mode))
	}
	for _, port := range slices.Sorted(maps.Keys(pa.Spec.PortLevelMtls)) {
		if mode := pa.Spec.PortLevelMtls[port].GetMode(); !knownMode(mode) {
			faults = append(faults, unknownMode(fmt.Sprintf("spec.portLevelMtls.%d.mode", port), mode))
		}
		if port < 1 || port > 65535 {
			faults = append(faults, fault{field: fmt.Sprintf("spec.portLevelMtls.%d", port), message: fmt.Sprintf("port %d is out of range", port), fix: "use 1 to 65535"})
		}
	}
	return faults
}

// knownMode says whether a mode has a name. One that was given as a number may have none, and would count as if none were given.
func knownMode(mode securityapi.PeerAuthentication_MutualTLS_Mode) bool {
	_, known := securityapi.PeerAuthentication_MutualTLS_Mode_name[int32(mode)]
	return known
}

func unknownMode(field string, mode securityapi.PeerAuthentication_MutualTLS_Mode) fault {
	return fault{field: field, message: fmt.Sprintf("unknown mode %d", mode), fix: "use one of UNSET, DISABLE, PERMISSIVE, STRICT"}
}

// checkAuthorizationPolicy refuses what Istio's own validation refuses: a rule that its author cannot have meant.
func checkAuthorizationPolicy(o metav1.Object) []fault {
	ap := o.(*securityv1.AuthorizationPolicy)
	spec := &ap.Spec
	faults := checkLabels("spec.selector.matchLabels", spec.GetSelector().GetMatchLabels())
	if spec.Selector != nil && (spec.TargetRef != nil || len(spec.TargetRefs) > 0) { //nolint:staticcheck // targetRef is still accepted
		faults = append(faults, fault{field: "spec.selector", message: "both a selector and a target are given", fix: "keep one of selector and targetRefs"})
	}
	if _, known := securityapi.AuthorizationPolicy_Action_name[int32(spec.Action)]; !known {
		faults = append(faults, fault{field: "spec.action", message: fmt.Sprintf("unknown action %d", spec.Action), fix: "use one of ALLOW, DENY, AUDIT, CUSTOM"})
	}
	switch spec.Action {
	case securityapi.AuthorizationPolicy_CUSTOM:
		if spec.GetProvider().GetName() == "" {
			faults = append(faults, fault{field: "spec.provider", message: "action CUSTOM needs a provider", fix: "name one in spec.provider.name"})
		}
	default:
		if spec.GetProvider() != nil {
			faults = append(faults, fault{field: "spec.provider", message: "a provider goes with action CUSTOM only", fix: "remove the field"})
		}
	}
	if spec.Action == securityapi.AuthorizationPolicy_DENY && len(spec.Rules) == 0 {
		faults = append(faults, fault{severity: Warning, field: "spec.rules", message: "a DENY policy without rules never matches and denies nothing",
			fix: "add a rule; one empty rule ({}) denies everything"})
	}
	if v := ap.Annotations[wellknown.DryRun]; v != "" {
		if _, err := strconv.ParseBool(v); err != nil {
			// Refused, a policy would be missing from a control plane that starts with it. It is taken as if the annotation were not there.
			faults = append(faults, fault{severity: Warning, field: "metadata.annotations[istio.io/dry-run]", message: fmt.Sprintf("%.100q is neither true nor false and counts as false", v), fix: `use "true" to have the policy report only, else "false"`})
		}
	}
	for i, rule := range spec.Rules {
		faults = append(faults, checkRule(fmt.Sprintf("spec.rules[%d]", i), rule)...)
	}
	return faults
}

func checkRule(path string, rule *securityapi.Rule) []fault {
	if rule == nil {
		return []fault{{field: path, message: "the rule is null", fix: "write {} for a rule that matches everything"}}
	}
	var faults []fault
	for i, from := range rule.From {
		faults = append(faults, checkSource(fmt.Sprintf("%s.from[%d].source", path, i), from.GetSource())...)
	}
	for i, to := range rule.To {
		faults = append(faults, checkOperation(fmt.Sprintf("%s.to[%d].operation", path, i), to.GetOperation())...)
	}
	for i, when := range rule.When {
		faults = append(faults, checkCondition(fmt.Sprintf("%s.when[%d]", path, i), when)...)
	}
	return faults
}

// checkRulesWritten refuses lists of sources and operations that are given and empty, or null. Decoded, they are as if they were not there, and
// the rule admits everybody.
func checkRulesWritten(spec []byte) []fault {
	var fields struct {
		Rules []json.RawMessage `json:"rules"`
	}
	_ = json.Unmarshal(spec, &fields) // it was decoded before
	var faults tally
	for i, rule := range fields.Rules {
		for _, f := range checkRuleWritten(fmt.Sprintf("spec.rules[%d]", i), rule) {
			faults.add(f)
		}
	}
	return faults.all()
}

func checkRuleWritten(path string, rule []byte) (faults []fault) {
	var lists map[string]json.RawMessage
	_ = json.Unmarshal(rule, &lists)
	for _, l := range []struct{ name, one string }{{"from", "source"}, {"to", "operation"}} {
		raw, given := lists[l.name]
		var entries []json.RawMessage
		if given && json.Unmarshal(raw, &entries) == nil && len(entries) == 0 {
			faults = append(faults, fault{field: path + "." + l.name, message: "the list is empty", fix: "remove it, or name one " + l.one + " at least"})
		}
	}
	return faults
}

// valueList is one repeated string field of a rule.
type valueList struct {
	name   string
	values []string
	valid  func(string) bool // nil: any text
	fix    string
}

// checkLists judges the fields of one source or operation, of which at least one must be given.
func checkLists(path, what string, lists []valueList) []fault {
	var faults tally
	given := false
	for _, l := range lists {
		for i, v := range l.values {
			given = true
			if v != "" && (l.valid == nil || l.valid(v)) || faults.full() {
				continue
			}
			f := fault{field: fmt.Sprintf("%s.%s[%d]", path, l.name, i), message: "the value is empty", fix: "write a value, or remove the entry"}
			if v != "" {
				f.message, f.fix = fmt.Sprintf("%.100q is not valid here", v), l.fix
			}
			faults.add(f)
		}
	}
	if !given {
		faults.add(fault{field: path, message: "the " + what + " names nothing", fix: "give at least one field, or leave the " + what + " out"})
	}
	return faults.all()
}

const (
	fixIP   = "write an address or a CIDR, such as 10.0.0.1 or 10.0.0.0/8"
	fixPort = "write a port number from 1 to 65535"
	fixSA   = "write NAME or NAMESPACE/NAME"

	fixDomain = "write a trust domain, at most with one star, first or last, that stands for any text"
)

func checkSource(path string, s *securityapi.Source) []fault {
	faults := checkLists(path, "source", []valueList{
		{"principals", s.GetPrincipals(), nil, ""}, {"notPrincipals", s.GetNotPrincipals(), nil, ""},
		{"requestPrincipals", s.GetRequestPrincipals(), nil, ""}, {"notRequestPrincipals", s.GetNotRequestPrincipals(), nil, ""},
		{"namespaces", s.GetNamespaces(), nil, ""}, {"notNamespaces", s.GetNotNamespaces(), nil, ""},
		{"serviceAccounts", s.GetServiceAccounts(), validServiceAccount, fixSA}, {"notServiceAccounts", s.GetNotServiceAccounts(), validServiceAccount, fixSA},
		{"ipBlocks", s.GetIpBlocks(), validBlock, fixIP}, {"notIpBlocks", s.GetNotIpBlocks(), validBlock, fixIP},
		{"remoteIpBlocks", s.GetRemoteIpBlocks(), validBlock, fixIP}, {"notRemoteIpBlocks", s.GetNotRemoteIpBlocks(), validBlock, fixIP},
		{"trustDomains", s.GetTrustDomains(), validTrustDomain, fixDomain}, {"notTrustDomains", s.GetNotTrustDomains(), validTrustDomain, fixDomain},
	})
	var stars tally
	for _, l := range []valueList{{name: "principals", values: s.GetPrincipals()}, {name: "notPrincipals", values: s.GetNotPrincipals()},
		{name: "namespaces", values: s.GetNamespaces()}, {name: "notNamespaces", values: s.GetNotNamespaces()}} {
		for i, v := range l.values {
			effect := "another one in %.100q stands for itself and matches nobody"
			if strings.HasSuffix(l.name, "amespaces") {
				effect = "node proxies take another one in %.100q for itself, and waypoints judge no list of namespaces with one"
			}
			if literalStar(v) && !stars.full() {
				stars.add(fault{severity: Warning, field: fmt.Sprintf("%s.%s[%d]", path, l.name, i),
					message: "only one star, first or last, stands for any text; " + fmt.Sprintf(effect, v),
					fix:     "write several values, or use namespaces or serviceAccounts"})
			}
		}
	}
	faults = append(faults, stars.all()...)
	accounts := len(s.GetServiceAccounts()) + len(s.GetNotServiceAccounts())
	others := len(s.GetPrincipals()) + len(s.GetNotPrincipals()) + len(s.GetNamespaces()) + len(s.GetNotNamespaces())
	if accounts > 0 && others > 0 {
		faults = append(faults, fault{field: path + ".serviceAccounts", message: "service accounts cannot be combined with principals or namespaces",
			fix: "use one of the two"})
	}
	return faults
}

func checkOperation(path string, op *securityapi.Operation) []fault {
	return checkLists(path, "operation", []valueList{
		{"hosts", op.GetHosts(), nil, ""}, {"notHosts", op.GetNotHosts(), nil, ""},
		{"ports", op.GetPorts(), validPort, fixPort}, {"notPorts", op.GetNotPorts(), validPort, fixPort},
		{"methods", op.GetMethods(), nil, ""}, {"notMethods", op.GetNotMethods(), nil, ""},
		{"paths", op.GetPaths(), nil, ""}, {"notPaths", op.GetNotPaths(), nil, ""},
	})
}

// attributes are the keys that Istio has for conditions; those that end in a bracket take a name and another bracket.
var attributes = []string{"source.ip", "source.namespace", "source.principal", "source.serviceAccount", "source.trustDomain", "remote.ip", "destination.ip", "destination.port",
	"connection.sni", "request.headers[", "request.auth.principal", "request.auth.audiences", "request.auth.presenter", "request.auth.claims[",
	"experimental.envoy.filters."}

func knownAttribute(key string) bool {
	return slices.ContainsFunc(attributes, func(known string) bool {
		switch known[len(known)-1] {
		case '[':
			return strings.HasPrefix(key, known) && strings.HasSuffix(key, "]") && len(key) > len(known)+1
		case '.':
			return strings.HasPrefix(key, known) && len(key) > len(known)
		}
		return key == known
	})
}

func checkCondition(path string, c *securityapi.Condition) []fault {
	if c.GetKey() == "" {
		return []fault{{field: path + ".key", message: "the key is missing", fix: "name an attribute, such as source.namespace"}}
	}
	if !knownAttribute(c.GetKey()) {
		return []fault{{field: path + ".key", message: fmt.Sprintf("there is no attribute %.100q", c.GetKey()), fix: "use one of " + strings.Join(attributes, ", ")}}
	}
	var valid func(string) bool
	fix := ""
	switch c.GetKey() {
	case "source.ip", "destination.ip", "remote.ip":
		valid, fix = validBlock, fixIP
	case "destination.port":
		valid, fix = validPort, fixPort
	case "source.serviceAccount":
		valid, fix = validServiceAccount, fixSA
	case "source.trustDomain":
		valid, fix = validPattern, fixDomain
	}
	return checkLists(path, "condition", []valueList{{"values", c.GetValues(), valid, fix}, {"notValues", c.GetNotValues(), valid, fix}})
}

// literalStar says whether a pattern has a star that is none.
func literalStar(v string) bool {
	if rest, first := strings.CutPrefix(v, "*"); first {
		return strings.Contains(rest, "*")
	}
	return strings.Contains(strings.TrimSuffix(v, "*"), "*")
}

func validBlock(s string) bool {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Zone() == ""
	}
	_, err := netip.ParsePrefix(s)
	return err == nil
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// validTrustDomain is what Istio lets a source name: a pattern in which no principal goes on.
func validTrustDomain(s string) bool { return validPattern(s) && !strings.Contains(s, "/") }

// validPattern says whether a star, if there is one, stands for any text.
func validPattern(s string) bool { return !literalStar(s) }

func validServiceAccount(s string) bool {
	namespace, name, qualified := strings.Cut(s, "/")
	if !qualified {
		return s != "*"
	}
	return namespace != "" && name != "" && !strings.Contains(name, "/") && !strings.Contains(s, "*")
}
