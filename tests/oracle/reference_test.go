package oracle

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	securityapi "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/gen/l7"
)

// reading is one way to read a policy. Its zero value follows the text of Istio's API, and takes MeshConfig's documentation of path
// normalisation by its word. Each field is a departure of an engine; docs/reference/policy-oracle.md has the reason of each.
type reading struct {
	// presentEmpty: "*" matches a header that is there and empty.
	presentEmpty bool
	// emptyAllowsNobody: in an ALLOW rule a source or an operation that says nothing matches nothing.
	emptyAllowsNobody bool
	// canonicalHosts: a host is compared in one form: without the dot at its end, and an IPv6 address as RFC 5952 writes it.
	canonicalHosts bool
	// foldedHostHeader: request.headers[host] is compared like hosts.
	foldedHostHeader bool
	// canonicalPatterns: a pattern of paths also matches with the escapes that canonical paths have.
	canonicalPatterns bool
	// decodedPaths: a pattern of paths that keeps requests out also matches what the path decodes to.
	decodedPaths bool
	// escapesAsTheyCame: escapes that are kept keep the case that the client wrote.
	escapesAsTheyCame bool
	// parametersOfDots: a segment of dots is one with parameters, too.
	parametersOfDots bool
	// fewBytes: the operators of templates stand for the bytes that Envoy lists.
	fewBytes bool
	// auditsInDryRun: an AUDIT policy in dry run audits.
	auditsInDryRun bool
	// cautiousFields: of several fields of a name each must pass the values of an ALLOW rule, and one is enough for other rules. What keeps
	// requests out also covers the fields joined with commas. Otherwise a value matches if one of the fields has it.
	cautiousFields bool
	// wholeLists: a rule of another action than ALLOW loses all of a list of values of which one cannot be read. Otherwise it loses that value.
	wholeLists bool
	// regexPeers: namespaces, and principals by their end, are regular expressions over the whole identity.
	regexPeers bool
}

// The readings of the engines.
var (
	byTheText = reading{}
	ours      = reading{presentEmpty: true, emptyAllowsNobody: true, canonicalHosts: true, foldedHostHeader: true, canonicalPatterns: true, decodedPaths: true, parametersOfDots: true, auditsInDryRun: true, cautiousFields: true, wholeLists: true}
	istios    = reading{presentEmpty: true, escapesAsTheyCame: true, parametersOfDots: true, fewBytes: true, regexPeers: true}
)

// judge reads one policy for one request.
type judge struct {
	reading
	domains []string
	action  securityapi.AuthorizationPolicy_Action
	request request
	path    string
}

// decide returns the decision in words, and the AUDIT policies that match.
func (m reading) decide(c testCase, r request) (verdict, audited string) {
	matches := map[securityapi.AuthorizationPolicy_Action][]string{}
	allows := false
	for _, p := range c.policies {
		action := p.Spec.Action
		if p.Annotations["istio.io/dry-run"] == "true" && !(m.auditsInDryRun && action == securityapi.AuthorizationPolicy_AUDIT) {
			continue
		}
		allows = allows || action == securityapi.AuthorizationPolicy_ALLOW
		j := judge{reading: m, domains: c.domains(), action: action, request: r, path: m.normal(r.target, r.level())}
		if j.policy(p) {
			matches[action] = append(matches[action], p.Namespace+"/"+p.Name)
		}
	}
	for _, names := range matches {
		slices.Sort(names)
	}
	audited = strings.Join(matches[securityapi.AuthorizationPolicy_AUDIT], " ")
	denied, allowed := matches[securityapi.AuthorizationPolicy_DENY], matches[securityapi.AuthorizationPolicy_ALLOW]
	switch {
	case len(denied) > 0:
		return "deny " + denied[0], audited
	case !allows:
		return "allow", audited
	case len(allowed) > 0:
		return "allow " + allowed[0], audited
	}
	return "none", audited
}

// isAllow says whether a decision lets the request pass.
func isAllow(verdict string) bool { return strings.HasPrefix(verdict, "allow") }

func (j judge) policy(p *securityv1.AuthorizationPolicy) bool {
	return slices.ContainsFunc(p.Spec.Rules, j.rule)
}

// rule says whether a rule matches: one of its sources, one of its operations, and all conditions. A rule with a key that there is not takes no
// part. Nor does an ALLOW rule with a value that cannot be read; rules of other actions do without the value, or without its list.
func (j judge) rule(rule *securityapi.Rule) bool {
	for _, w := range rule.GetWhen() {
		if j.condition(w) == nil {
			return false
		}
	}
	if j.action == securityapi.AuthorizationPolicy_ALLOW && !legible(rule) {
		return false
	}
	from, to := len(rule.GetFrom()) == 0, len(rule.GetTo()) == 0
	for _, f := range rule.GetFrom() {
		from = from || j.source(f.GetSource())
	}
	for _, t := range rule.GetTo() {
		to = to || j.operation(t.GetOperation())
	}
	when := true
	for _, w := range rule.GetWhen() {
		when = when && j.holds(w)
	}
	return from && to && when
}

func (j judge) source(s *securityapi.Source) bool {
	lists := [][]string{
		s.GetPrincipals(), s.GetNotPrincipals(), s.GetNamespaces(), s.GetNotNamespaces(), s.GetServiceAccounts(), s.GetNotServiceAccounts(),
		s.GetTrustDomains(), s.GetNotTrustDomains(), s.GetIpBlocks(), s.GetNotIpBlocks(), s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks(),
	}
	return !j.saysNothing(lists) &&
		j.lists(s.GetPrincipals(), s.GetNotPrincipals(), isText, j.principal) &&
		j.lists(s.GetNamespaces(), s.GetNotNamespaces(), isText, j.namespace) &&
		j.lists(s.GetServiceAccounts(), s.GetNotServiceAccounts(), isText, j.account) &&
		j.lists(s.GetTrustDomains(), s.GetNotTrustDomains(), isText, j.trustDomain) &&
		j.lists(s.GetIpBlocks(), s.GetNotIpBlocks(), isBlock, within(j.request.source)) &&
		j.lists(s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks(), isBlock, within(j.request.client()))
}

func (j judge) operation(o *securityapi.Operation) bool {
	lists := [][]string{
		o.GetHosts(), o.GetNotHosts(), o.GetPorts(), o.GetNotPorts(), o.GetMethods(), o.GetNotMethods(), o.GetPaths(), o.GetNotPaths(),
	}
	return !j.saysNothing(lists) &&
		j.lists(o.GetHosts(), o.GetNotHosts(), isText, j.host) &&
		j.lists(o.GetPorts(), o.GetNotPorts(), isPort, j.port) &&
		j.lists(o.GetMethods(), o.GetNotMethods(), isText, func(v string) bool { return match(v, j.request.method) }) &&
		j.lists(o.GetPaths(), nil, isText, j.covers(j.action != securityapi.AuthorizationPolicy_ALLOW)) &&
		j.lists(nil, o.GetNotPaths(), isText, j.covers(j.action == securityapi.AuthorizationPolicy_ALLOW))
}

// holds says whether a condition holds.
func (j judge) holds(c *securityapi.Condition) bool {
	name, isHeader := strings.CutPrefix(c.GetKey(), "request.headers[")
	values := j.request.values(strings.TrimSuffix(name, "]"))
	if !j.cautiousFields || !isHeader || len(values) < 2 {
		return j.lists(c.GetValues(), c.GetNotValues(), form(c.GetKey()), j.condition(c))
	}
	passes := func(c *securityapi.Condition, value string) bool {
		one := j
		one.request.fields = []field{{strings.TrimSuffix(name, "]"), value}}
		return one.lists(c.GetValues(), c.GetNotValues(), form(c.GetKey()), one.condition(c))
	}
	passed := 0
	for _, v := range values {
		if passes(c, v) {
			passed++
		}
	}
	joined := []string{strings.Join(values, ","), strings.Join(values, ", ")}
	if j.action == securityapi.AuthorizationPolicy_ALLOW {
		exceptions := &securityapi.Condition{Key: c.GetKey(), NotValues: c.GetNotValues()}
		return passed == len(values) && passes(exceptions, joined[0]) && passes(exceptions, joined[1])
	}
	return passed > 0 || len(c.GetValues()) > 0 && (passes(c, joined[0]) || passes(c, joined[1]))
}

// condition returns the comparison of one value of a condition; nil if there is no such attribute.
func (j judge) condition(c *securityapi.Condition) func(string) bool {
	if name, ok := strings.CutPrefix(c.GetKey(), "request.headers["); ok {
		name = strings.TrimSuffix(name, "]")
		return func(v string) bool { return j.header(name, v) }
	}
	return map[string]func(string) bool{
		"source.ip":             within(j.request.source),
		"remote.ip":             within(j.request.client()),
		"source.namespace":      j.namespace,
		"source.principal":      j.principal,
		"source.serviceAccount": j.account,
		"source.trustDomain":    j.trustDomain,
		"destination.ip":        within(j.request.destination.Addr()),
		"destination.port":      j.port,
		"connection.sni":        func(v string) bool { return match(v, j.request.sni) },
	}[c.GetKey()]
}

// lists says whether one of the values matches, if there are any, and none of the others. Values that cannot be read are left out, or take their
// list along.
func (j judge) lists(values, notValues []string, isValue, is func(string) bool) bool {
	legible := func(all []string) (kept []string) {
		for _, v := range all {
			if isValue(v) {
				kept = append(kept, v)
			}
		}
		return kept
	}
	if kept := legible(values); len(kept) == len(values) || !j.wholeLists {
		values = kept
	} else {
		values = nil
	}
	notValues = legible(notValues)
	return (len(values) == 0 || slices.ContainsFunc(values, is)) && !slices.ContainsFunc(notValues, is)
}

// saysNothing says whether a source or operation matches nothing because it has no value.
func (j judge) saysNothing(lists [][]string) bool {
	return j.emptyAllowsNobody && j.action == securityapi.AuthorizationPolicy_ALLOW && len(slices.Concat(lists...)) == 0
}

// legible says whether all values of a rule can be read.
func legible(rule *securityapi.Rule) bool {
	all := func(is func(string) bool, lists ...[]string) bool {
		return !slices.ContainsFunc(slices.Concat(lists...), func(v string) bool { return !is(v) })
	}
	ok := true
	for _, f := range rule.GetFrom() {
		s := f.GetSource()
		ok = ok && all(isBlock, s.GetIpBlocks(), s.GetNotIpBlocks(), s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks())
	}
	for _, t := range rule.GetTo() {
		ok = ok && all(isPort, t.GetOperation().GetPorts(), t.GetOperation().GetNotPorts())
	}
	for _, w := range rule.GetWhen() {
		ok = ok && all(form(w.GetKey()), w.GetValues(), w.GetNotValues())
	}
	return ok
}

// form says which values of a condition can be read.
func form(key string) func(string) bool {
	switch key {
	case "source.ip", "remote.ip", "destination.ip":
		return isBlock
	case "destination.port":
		return isPort
	}
	return isText
}

func isText(string) bool { return true }

func isPort(v string) bool {
	_, err := strconv.ParseUint(v, 10, 16)
	return err == nil
}

func isBlock(v string) bool { return block(v).IsValid() }

// block reads an address or a block of addresses; the result is not valid if it is neither.
func block(v string) netip.Prefix {
	if p, err := netip.ParsePrefix(v); err == nil {
		return p
	}
	a, err := netip.ParseAddr(v)
	if err != nil {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, a.BitLen())
}

func within(a netip.Addr) func(string) bool {
	return func(v string) bool { return block(v).Contains(a) }
}

// match reads "*" for any text that is not empty, "*x" for an end, "x*" for a beginning, and all else for the whole text.
func match(pattern, text string) bool {
	switch {
	case pattern == "*":
		return text != ""
	case strings.HasPrefix(pattern, "*"):
		return strings.HasSuffix(text, pattern[1:])
	case strings.HasSuffix(pattern, "*"):
		return strings.HasPrefix(text, pattern[:len(pattern)-1])
	}
	return text == pattern
}

func (j judge) port(v string) bool { return v == strconv.Itoa(int(j.request.destination.Port())) }

// principal matches a peer. A principal that is written out and names a trust domain of the mesh means the same peer of all of them.
func (j judge) principal(v string) bool {
	peer := j.request.peer
	if peer == nil {
		return false
	}
	if j.isPrincipal(v, peer.String()) {
		return true
	}
	domain, path, _ := strings.Cut(v, "/")
	isWrittenOut := strings.Count(v, "/") == 4 && domain != "*"
	names := func(d string) bool { return match(domain, d) }
	return isWrittenOut && slices.ContainsFunc(j.domains, names) && slices.Contains(j.domains, peer.domain) && match(path, peer.path())
}

func (j judge) isPrincipal(v, principal string) bool {
	if end, ok := strings.CutPrefix(v, "*"); ok && end != "" && j.regexPeers {
		return whole("spiffe://.*" + end).MatchString("spiffe://" + principal)
	}
	return match(v, principal)
}

func (j judge) namespace(v string) bool {
	peer := j.request.peer
	if peer == nil {
		return false
	}
	if j.regexPeers {
		return whole(".*/ns/" + strings.ReplaceAll(v, "*", ".*") + "/.*").MatchString("spiffe://" + peer.String())
	}
	return match(v, peer.namespace)
}

// account reads "namespace/name", and "name" for the namespace of the policy.
func (j judge) account(v string) bool {
	if !strings.Contains(v, "/") {
		v = policyNamespace + "/" + v
	}
	peer := j.request.peer
	return peer != nil && v == peer.namespace+"/"+peer.account
}

// trustDomain matches a peer's trust domain. A whole name of the mesh's means all of them.
func (j judge) trustDomain(v string) bool {
	peer := j.request.peer
	if peer == nil {
		return false
	}
	return match(v, peer.domain) || slices.Contains(j.domains, v) && slices.Contains(j.domains, peer.domain)
}

func (j judge) host(v string) bool {
	if j.presentEmpty && v == "*" {
		return true
	}
	return match(strings.ToLower(v), strings.ToLower(j.oneHost()))
}

// oneHost is the host in the form in which it is compared.
func (j judge) oneHost() string {
	host := j.request.host
	if !j.canonicalHosts {
		return host
	}
	if strings.HasPrefix(host, "[") {
		inside, port, _ := strings.Cut(host[1:], "]")
		if a, err := netip.ParseAddr(inside); err == nil {
			return "[" + a.String() + "]" + port
		}
	}
	name, port, hasPort := strings.Cut(host, ":")
	name = strings.TrimSuffix(name, ".")
	if hasPort {
		name += ":" + port
	}
	return name
}

// header compares the fields of a name: one of them must match.
func (j judge) header(name, v string) bool {
	if strings.EqualFold(name, "host") {
		if j.foldedHostHeader {
			return j.host(v)
		}
		return match(v, j.request.host)
	}
	return slices.ContainsFunc(j.request.values(name), func(value string) bool { return v == "*" && j.presentEmpty || match(v, value) })
}

// covers says whether a pattern of paths covers the path, and if keepsOut is set, what the path decodes to.
func (j judge) covers(keepsOut bool) func(v string) bool {
	return func(v string) bool {
		is, other := match, canonical(v)
		if strings.Contains(v, "{*}") || strings.Contains(v, "{**}") {
			is, other = func(v, path string) bool { return j.template(v).MatchString(path) }, canonicalTemplate(v)
		}
		path := decoded(j.path)
		return is(v, j.path) || j.canonicalPatterns && is(other, j.path) ||
			keepsOut && j.decodedPaths && (is(v, path) || is(decoded(v), path))
	}
}

// decoded is a text without escapes.
func decoded(text string) string {
	return escape.ReplaceAllStringFunc(text, func(e string) string {
		code, _ := strconv.ParseUint(e[1:], 16, 8)
		return string([]byte{byte(code)})
	})
}

// template is a path template: {*} stands for one segment or a part of it, {**} for anything.
func (j judge) template(v string) *regexp.Regexp {
	segment, rest := `[^/]+`, `.*`
	if j.fewBytes {
		const bytes = `a-zA-Z0-9\-._~%!$&'()+,;:@=*`
		segment, rest = "["+bytes+"]+", "["+bytes+"/]*"
	}
	text := regexp.QuoteMeta(v)
	text = strings.ReplaceAll(text, regexp.QuoteMeta("{**}"), rest)
	return whole(strings.ReplaceAll(text, regexp.QuoteMeta("{*}"), segment))
}

// whole is an expression over the whole text.
func whole(expression string) *regexp.Regexp {
	return regexp.MustCompile(`(?s)\A(?:` + expression + `)\z`)
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// inPattern are escapes that may be cut off by the end of a beginning, and characters that no path has.
var inPattern = regexp.MustCompile("%[0-9A-Fa-f]{1,2}|[\"<>^`{|}]|[^!-~]")

// canonical is a pattern that is no template with the escapes that canonical paths have.
func canonical(pattern string) string {
	return inPattern.ReplaceAllStringFunc(pattern, func(part string) string {
		if part[0] != '%' {
			return url.PathEscape(part)
		}
		if unreserved := decoded(part); whole(`[A-Za-z0-9._~-]`).MatchString(unreserved) {
			return unreserved
		}
		return strings.ToUpper(part)
	})
}

// canonicalTemplate is a template with the escapes that canonical paths have. Its operators stay.
func canonicalTemplate(v string) string {
	return regexp.MustCompile(`[^{*}]+`).ReplaceAllStringFunc(v, canonical)
}

// normal is the path of a target: without the query, a backslash is a slash, and normalised as RFC 3986 §6.2.2 has it. Above level BASE
// slashes are merged at the end, and with DECODE_AND_MERGE_SLASHES escaped ones are slashes to begin with.
func (m reading) normal(target string, level l7.PathNormalization) string {
	path, _, _ := strings.Cut(target, "?")
	if level == l7.PathNormalization_DECODE_AND_MERGE_SLASHES {
		path = regexp.MustCompile(`%(2[fF]|5[cC])`).ReplaceAllString(path, "/")
	}
	path = strings.ReplaceAll(path, `\`, "/")
	path = escape.ReplaceAllStringFunc(path, func(e string) string {
		code, _ := strconv.ParseUint(e[1:], 16, 8)
		if c := byte(code); strings.IndexByte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~", c) >= 0 {
			return string(rune(c))
		}
		if m.escapesAsTheyCame {
			return e
		}
		return strings.ToUpper(e)
	})
	// Bytes that no path has are escaped.
	path = regexp.MustCompile("[\"<>^`{|}]").ReplaceAllStringFunc(path, func(b string) string { return fmt.Sprintf("%%%02X", b[0]) })
	var out []string
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, segment := range segments {
		name := segment
		if m.parametersOfDots {
			name, _, _ = strings.Cut(segment, ";")
		}
		switch name {
		default:
			out = append(out, segment)
			continue
		case "..":
			out = out[:max(len(out)-1, 0)]
		case ".":
		}
		if i == len(segments)-1 {
			out = append(out, "") // what remains is a folder
		}
	}
	path = "/" + strings.Join(out, "/")
	if level != l7.PathNormalization_BASE {
		path = regexp.MustCompile("/+").ReplaceAllString(path, "/")
	}
	return path
}
