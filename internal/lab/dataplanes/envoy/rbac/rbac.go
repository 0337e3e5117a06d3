// Package rbac compiles AuthorizationPolicies to the configuration of Envoy's RBAC filter, as istiod does for a waypoint's services.
package rbac

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	securityapi "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/model/wellknown"
)

// object is a JSON object of Envoy's configuration.
type object = map[string]any

// PeerPrincipal is the filter state in which Istio's waypoints keep the peer's SPIFFE identity.
const PeerPrincipal = "io.istio.peer_principal"

// errRule says that a rule takes no part.
var errRule = errors.New("the rule takes no part")

// terms are the words for a tree of comparisons: Envoy has two kinds of them, with words of their own.
type terms struct{ and, or, list, not string }

var (
	permissions = terms{"and_rules", "or_rules", "rules", "not_rule"}
	principals  = terms{"and_ids", "or_ids", "ids", "not_id"}
)

func (w terms) set(word string, of []object) object { return object{word: object{w.list: of}} }

func (w terms) all(of []object) object {
	if len(of) == 0 {
		of = []object{{"any": true}}
	}
	return w.set(w.and, of)
}

// Filter returns the configuration of one action's filter, as an object of Envoy's message RBAC. It is nil if none of the policies has
// the action. Policies in dry run take no part. domains are the names of the mesh's trust domain, its aliases among them.
func Filter(policies []*securityv1.AuthorizationPolicy, action securityapi.AuthorizationPolicy_Action, domains []string) map[string]any {
	made, enforced := object{}, false
	for _, p := range policies {
		if p.Spec.Action != action || p.Annotations[wellknown.DryRun] == "true" {
			continue
		}
		enforced = true
		for i, rule := range p.Spec.Rules {
			m := ruleMaker{action: action, namespace: p.Namespace, domains: domains}
			if one, err := m.rule(rule); err == nil {
				made[fmt.Sprintf("ns[%s]-policy[%s]-rule[%d]", p.Namespace, p.Name, i)] = one
			}
		}
		if len(p.Spec.Rules) == 0 {
			never := func(not string) []object { return []object{{not: object{"any": true}}} }
			made[fmt.Sprintf("ns[%s]-policy[%s]-rule[0]", p.Namespace, p.Name)] = object{
				"permissions": never(permissions.not), "principals": never(principals.not),
			}
		}
	}
	if !enforced {
		return nil
	}
	name := action.String()
	if action == securityapi.AuthorizationPolicy_AUDIT {
		name = "LOG" // Envoy's word for it
	}
	return object{"rules": object{"action": name, "policies": made}}
}

// ruleMaker makes Envoy's policies of the rules of one action.
type ruleMaker struct {
	action    securityapi.AuthorizationPolicy_Action
	namespace string // the policy's
	domains   []string
	failed    bool // a value of an ALLOW rule could not be read
}

// comparison makes the comparison with one value.
type comparison func(value string) (object, error)

// rule makes a policy of a rule. Conditions are part of each alternative.
func (m *ruleMaker) rule(rule *securityapi.Rule) (object, error) {
	var permitted, identified []object
	for _, w := range rule.GetWhen() {
		key := w.GetKey()
		values, notValues := w.GetValues(), w.GetNotValues()
		if name, ok := strings.CutPrefix(key, "request.headers["); ok {
			identified = append(identified, m.lists(principals, values, notValues, header(strings.TrimSuffix(name, "]"), false))...)
			continue
		}
		switch key {
		case "destination.ip":
			permitted = append(permitted, m.lists(permissions, values, notValues, cidr("destination_ip"))...)
		case "destination.port":
			permitted = append(permitted, m.lists(permissions, values, notValues, port)...)
		case "connection.sni":
			permitted = append(permitted, m.lists(permissions, values, notValues, func(v string) (object, error) {
				return object{"requested_server_name": text(v, "")}, nil
			})...)
		case "source.ip":
			identified = append(identified, m.lists(principals, values, notValues, cidr("direct_remote_ip"))...)
		case "remote.ip":
			identified = append(identified, m.lists(principals, values, notValues, cidr("remote_ip"))...)
		case "source.namespace":
			identified = append(identified, m.lists(principals, values, notValues, namespace)...)
		case "source.principal":
			identified = append(identified, m.lists(principals, m.expanded(values), m.expanded(notValues), principal)...)
		case "source.serviceAccount":
			identified = append(identified, m.lists(principals, values, notValues, m.account)...)
		case "source.trustDomain":
			identified = append(identified, m.lists(principals, m.means(values), m.means(notValues), trustDomain)...)
		default:
			return nil, errRule
		}
	}
	var from, to []object
	for _, f := range rule.GetFrom() {
		s := f.GetSource()
		from = append(from, principals.all(slices.Concat(
			m.lists(principals, m.expanded(s.GetPrincipals()), m.expanded(s.GetNotPrincipals()), principal),
			m.lists(principals, s.GetNamespaces(), s.GetNotNamespaces(), namespace),
			m.lists(principals, s.GetServiceAccounts(), s.GetNotServiceAccounts(), m.account),
			m.lists(principals, m.means(s.GetTrustDomains()), m.means(s.GetNotTrustDomains()), trustDomain),
			m.lists(principals, s.GetIpBlocks(), s.GetNotIpBlocks(), cidr("direct_remote_ip")),
			m.lists(principals, s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks(), cidr("remote_ip")),
			identified)))
	}
	if len(from) == 0 {
		from = []object{principals.all(identified)}
	}
	for _, t := range rule.GetTo() {
		o := t.GetOperation()
		to = append(to, permissions.all(slices.Concat(
			m.lists(permissions, o.GetHosts(), o.GetNotHosts(), header(":authority", true)),
			m.lists(permissions, o.GetMethods(), o.GetNotMethods(), header(":method", false)),
			m.lists(permissions, o.GetPaths(), o.GetNotPaths(), path),
			m.lists(permissions, o.GetPorts(), o.GetNotPorts(), port),
			permitted)))
	}
	if len(to) == 0 {
		to = []object{permissions.all(permitted)}
	}
	if m.failed {
		return nil, errRule
	}
	return object{"permissions": to, "principals": from}, nil
}

// lists makes what one attribute must be and must not be. A value that cannot be read fails an ALLOW rule, and is left out of others.
func (m *ruleMaker) lists(w terms, values, notValues []string, one comparison) (out []object) {
	readable := func(values []string) (made []object) {
		for _, v := range values {
			o, err := one(v)
			if err != nil {
				m.failed = m.failed || m.action == securityapi.AuthorizationPolicy_ALLOW
				continue
			}
			made = append(made, o)
		}
		return made
	}
	if made := readable(values); len(made) > 0 {
		out = append(out, w.set(w.or, made))
	}
	if made := readable(notValues); len(made) > 0 {
		out = append(out, object{w.not: w.set(w.or, made)})
	}
	return out
}

// expanded writes out the principals that name a trust domain of the mesh: each stands for those of all its trust domains.
func (m *ruleMaker) expanded(values []string) (out []string) {
	for _, v := range values {
		domain, path, _ := strings.Cut(v, "/")
		names := func(d string) bool { return matches(domain, d) }
		if strings.Count(v, "/") != 4 || domain == "*" || !slices.ContainsFunc(m.domains, names) {
			out = append(out, v)
			continue
		}
		for _, d := range m.domains {
			if names(d) {
				out = append(out, v)
			} else {
				out = append(out, d+"/"+path)
			}
		}
	}
	return out
}

// matches compares a text with a pattern that may begin or end with an asterisk.
func matches(pattern, text string) bool {
	switch {
	case pattern == "*":
		return text != ""
	case strings.HasPrefix(pattern, "*"):
		return strings.HasSuffix(text, pattern[1:])
	case strings.HasSuffix(pattern, "*"):
		return strings.HasPrefix(text, pattern[:len(pattern)-1])
	}
	return pattern == text
}

// means writes out the trust domains that are the mesh's.
func (m *ruleMaker) means(values []string) (out []string) {
	for _, v := range values {
		if slices.Contains(m.domains, v) {
			out = append(out, m.domains...)
		} else {
			out = append(out, v)
		}
	}
	return out
}

func expression(text string) object { return object{"safe_regex": object{"regex": text}} }

// text is the matcher of a pattern. With a prefix, a pattern of an end is a regular expression, in which nothing is quoted.
func text(v, prefix string) object {
	switch {
	case v == "*":
		return expression(".+")
	case strings.HasPrefix(v, "*") && prefix != "":
		return expression(prefix + ".*" + v[1:])
	case strings.HasPrefix(v, "*"):
		return object{"suffix": v[1:]}
	case strings.HasSuffix(v, "*"):
		return object{"prefix": prefix + v[:len(v)-1]}
	}
	return object{"exact": prefix + v}
}

// peer compares the identity that the filter state has.
func peer(matcher object) (object, error) {
	return object{"filter_state": object{"key": PeerPrincipal, "string_match": matcher}}, nil
}

func principal(v string) (object, error) { return peer(text(v, "spiffe://")) }

func namespace(v string) (object, error) {
	return peer(expression(".*/ns/" + strings.ReplaceAll(v, "*", ".*") + "/.*"))
}

// account compares the peer with a service account, of the policy's namespace unless the value names one.
func (m *ruleMaker) account(v string) (object, error) {
	ns, name, ok := strings.Cut(v, "/")
	if !ok {
		ns, name = m.namespace, v
	}
	return peer(expression("spiffe://.+/ns/" + regexp.QuoteMeta(ns) + "/(.+/|)sa/" + regexp.QuoteMeta(name) + "(/.+)?"))
}

func trustDomain(v string) (object, error) {
	return peer(expression("spiffe://" + strings.ReplaceAll(regexp.QuoteMeta(v), `\*`, "[^/]*") + "/.*"))
}

func cidr(field string) comparison {
	return func(v string) (object, error) {
		b, err := netip.ParsePrefix(v)
		if err != nil {
			a, err := netip.ParseAddr(v)
			if err != nil {
				return nil, err
			}
			b = netip.PrefixFrom(a, a.BitLen())
		}
		return object{field: object{"address_prefix": b.Addr().String(), "prefix_len": b.Bits()}}, nil
	}
}

func port(v string) (object, error) {
	n, err := strconv.ParseUint(v, 10, 16)
	return object{"destination_port": n}, err
}

// header compares a field, or the method or host.
func header(name string, ignoreCase bool) comparison {
	return func(v string) (object, error) {
		if v == "*" {
			return object{"header": object{"name": name, "present_match": true}}, nil
		}
		matcher := text(v, "")
		if ignoreCase {
			matcher["ignore_case"] = true
		}
		return object{"header": object{"name": name, "string_match": matcher}}, nil
	}
}

func path(v string) (object, error) {
	if strings.Contains(v, "{*}") || strings.Contains(v, "{**}") {
		return object{"uri_template": object{
			"name": "uri-template",
			"typed_config": object{
				"@type":         "type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig",
				"path_template": strings.NewReplacer("{*}", "*", "{**}", "**").Replace(v),
			},
		}}, nil
	}
	return object{"url_path": object{"path": text(v, "")}}, nil
}
