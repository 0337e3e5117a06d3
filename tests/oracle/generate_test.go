package oracle

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	securityapi "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/gen/l7"
)

// The parts of requests.
var (
	destinations = []netip.AddrPort{
		netip.MustParseAddrPort("10.96.0.1:8080"), netip.MustParseAddrPort("10.96.0.2:9090"), netip.MustParseAddrPort("[fd00:96::1]:8080"),
		netip.MustParseAddrPort("10.96.0.1:9090"),
	}
	sources4   = []netip.Addr{netip.MustParseAddr("10.244.1.7"), netip.MustParseAddr("10.244.2.9")}
	sources6   = []netip.Addr{netip.MustParseAddr("fd00:244::7"), netip.MustParseAddr("fd00:244:1::9")}
	forwarders = []netip.Addr{{}, {}, netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8::9")}
	domains    = []string{ownDomain, ownDomain, ownDomain, aliasDomain, "other.example"}
	namespaces = []string{"shop", "shop", "shop-dev", "dev", "prod"}
	accounts   = []string{"web", "web", "api", "web-api", "web.v1", "webxv1"}
	names      = []string{"", "", "", "shop.example", "api.shop.example"}
	hosts      = []string{
		"shop.example", "shop.example", "Shop.Example", "shop.example:8080", "API.shop.example", "api.shop.example:80", "shop.example.",
		"10.96.0.1:8080", "[fd00:96::1]:8080", "[FD00:96:0::1]",
	}
	methods = []string{"GET", "GET", "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"}
	targets = []string{
		"/", "/admin", "/admin", "/admin/", "/admin/users", "/Admin", "/admin/users/7/roles", "/admin?x=/api", "/api/v1/items", "/api/v1/items?id=7",
		"/api/v2/items", "/api//v1", "//api/v1", "/api//../admin", "/api/v1/", "/api/.", "/api/..", "/api/./v1", "/api/../admin", "/../admin", "/api/%2e%2e/admin", "/api/%2E./admin",
		"/%61dmin", "/api%2Fv1", "/api%2fv1", `/api\v1`, `/api/..\admin`, "/api/v1;x=1", "/api/..;x=1/admin", "/files/a.txt", "/files/k=v",
		"/files/a%20b", "/files/a*b", "/files/a|b", `/files/a"b`, "/files/[a]", "/files/a%22b", "/files/{a}", "/%C3%A9", "/%c3%a9", "/api/..%2fadmin", "/api%5C..%2F/admin", "/%2fadmin", "/admin%2Fusers",
	}
	fieldNames  = []string{"x-a", "X-A", "x-a", "x-b", "x-tenant"}
	fieldValues = []string{"1", "2", "1,2", "", "tenant-1", "tenant-2", "é1"}
)

// templates are path templates that Istio admits.
var templates = []string{
	"/{*}", "/{**}", "/admin/{*}", "/admin/{**}", "/admin/{*}/{*}/roles", "/{*}/users", "/{**}/users", "/api/{*}/items", "/api/{**}", "/api/{**}/",
	"/api/{*}/{**}", "/files/{*}", "/{*}/{*}", "/{*}/v1/{**}",
}

// generator draws cases. Equal seeds give equal cases.
type generator struct {
	*rand.Rand
	// plain says that connections have no TLS of their own, and so no server name.
	plain bool
}

// requestsOfCase is how many requests there are for the policies of a case.
const requestsOfCase = 12

// cases draws cases.
func cases(seed uint64, count int, plain bool) (out []testCase) {
	g := generator{Rand: rand.New(rand.NewPCG(seed, 0)), plain: plain}
	for range count {
		out = append(out, g.testCase())
	}
	return out
}

func pick[T any](g generator, from []T) T { return from[g.IntN(len(from))] }

func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g generator) testCase() testCase {
	c := testCase{aliased: g.chance(30)}
	to := pick(g, destinations)
	for range requestsOfCase {
		c.requests = append(c.requests, g.request(to))
	}
	for n := range 1 + g.IntN(4) {
		c.policies = append(c.policies, g.policy(fmt.Sprintf("p%d", n), c.requests))
	}
	// The order in which policies are listed decides nothing.
	g.Shuffle(len(c.policies), func(a, b int) { c.policies[a], c.policies[b] = c.policies[b], c.policies[a] })
	return c
}

func (g generator) request(to netip.AddrPort) request {
	r := request{
		source: pick(g, sources4), destination: to, forwarded: pick(g, forwarders),
		method: pick(g, methods), target: pick(g, targets), host: pick(g, hosts),
	}
	if to.Addr().Is6() {
		r.source = pick(g, sources6)
	}
	if !g.plain {
		r.sni = pick(g, names)
	}
	if g.chance(80) {
		r.peer = &identity{pick(g, domains), pick(g, namespaces), pick(g, accounts)}
	}
	for range g.IntN(4) {
		r.fields = append(r.fields, field{pick(g, fieldNames), pick(g, fieldValues)})
	}
	return r
}

func (g generator) policy(name string, requests []request) *securityv1.AuthorizationPolicy {
	p := &securityv1.AuthorizationPolicy{}
	p.Namespace, p.Name = policyNamespace, name
	p.Spec.TargetRefs = []*typev1beta1.PolicyTargetReference{{Kind: "Service", Name: "web"}}
	p.Spec.Action = pick(g, []securityapi.AuthorizationPolicy_Action{
		securityapi.AuthorizationPolicy_ALLOW, securityapi.AuthorizationPolicy_ALLOW, securityapi.AuthorizationPolicy_ALLOW,
		securityapi.AuthorizationPolicy_DENY, securityapi.AuthorizationPolicy_DENY, securityapi.AuthorizationPolicy_AUDIT,
	})
	if g.chance(6) {
		p.Annotations = map[string]string{"istio.io/dry-run": "true"}
	}
	if g.chance(4) {
		return p
	}
	for range 1 + g.IntN(3) {
		p.Spec.Rules = append(p.Spec.Rules, g.rule(pick(g, requests)))
	}
	return p
}

// rule draws a rule that often matches the request.
func (g generator) rule(of request) *securityapi.Rule {
	r := &securityapi.Rule{}
	if g.chance(2) {
		return r
	}
	if g.chance(50) {
		for range 1 + g.IntN(2) {
			r.From = append(r.From, &securityapi.Rule_From{Source: g.source(of)})
		}
	}
	if len(r.From) == 0 || g.chance(50) {
		for range 1 + g.IntN(2) {
			r.To = append(r.To, &securityapi.Rule_To{Operation: g.operation(of)})
		}
	}
	if g.chance(30) {
		for range 1 + g.IntN(2) {
			r.When = append(r.When, g.condition(of))
		}
	}
	return r
}

func (g generator) source(of request) *securityapi.Source {
	s := &securityapi.Source{}
	if g.chance(2) {
		return s
	}
	usesAccounts := g.chance(20) // never beside principals and namespaces
	for range 1 + g.IntN(2) {
		switch n := g.IntN(8); {
		case n < 5 && usesAccounts:
			s.ServiceAccounts, s.NotServiceAccounts = g.lists(g.account(of.peer), g.account(g.somebody()))
		case n < 3:
			s.Principals, s.NotPrincipals = g.lists(g.principal(of.peer), g.principal(g.somebody()))
		case n < 5:
			s.Namespaces, s.NotNamespaces = g.lists(g.namespace(of.peer), g.namespace(g.somebody()))
		case n < 6:
			s.TrustDomains, s.NotTrustDomains = g.lists(g.trustDomain(of.peer), g.trustDomain(g.somebody()))
		case n < 7:
			s.IpBlocks, s.NotIpBlocks = g.lists(g.block(of.source), g.anyBlock())
		default:
			s.RemoteIpBlocks, s.NotRemoteIpBlocks = g.lists(g.block(of.client()), g.anyBlock())
		}
	}
	return s
}

func (g generator) operation(of request) *securityapi.Operation {
	o := &securityapi.Operation{}
	if g.chance(2) {
		return o
	}
	for range 1 + g.IntN(2) {
		switch n := g.IntN(10); {
		case n < 5:
			o.Paths, o.NotPaths = g.lists(g.path(of.target, of.level()), g.path(pick(g, targets), of.level()))
		case n < 7:
			o.Hosts, o.NotHosts = g.lists(g.host(of.host), g.host(pick(g, hosts)))
		case n < 9:
			o.Methods, o.NotMethods = g.lists(g.pattern(of.method), g.method())
		default:
			o.Ports, o.NotPorts = g.lists(strconv.Itoa(int(of.destination.Port())), g.port())
		}
	}
	return o
}

func (g generator) condition(of request) *securityapi.Condition {
	c := &securityapi.Condition{}
	put := func(key, derived, other string) { c.Key = key; c.Values, c.NotValues = g.lists(derived, other) }
	switch g.IntN(20) {
	default:
		name := pick(g, fieldNames)
		if repeated := g.repeated(of); repeated != "" && g.chance(50) {
			name = repeated
		}
		put("request.headers["+name+"]", g.pattern(g.value(of, name)), g.pattern(pick(g, fieldValues)))
	case 0:
		put("source.ip", g.block(of.source), g.anyBlock())
	case 1:
		put("remote.ip", g.block(of.client()), g.anyBlock())
	case 2:
		put("destination.ip", g.block(of.destination.Addr()), g.anyBlock())
	case 3:
		put("destination.port", strconv.Itoa(int(of.destination.Port())), g.port())
	case 4:
		put("source.namespace", g.namespace(of.peer), g.namespace(g.somebody()))
	case 5:
		put("source.principal", g.principal(of.peer), g.principal(g.somebody()))
	case 6:
		put("source.serviceAccount", g.account(of.peer), g.account(g.somebody()))
	case 7:
		put("source.trustDomain", g.trustDomain(of.peer), g.trustDomain(g.somebody()))
	case 8:
		put("connection.sni", g.pattern(of.sni), g.pattern(pick(g, names)))
	case 9:
		put("request.headers[host]", g.host(of.host), g.host(pick(g, hosts)))
	case 10:
		if g.chance(10) {
			put("request.colour", "red", "blue") // there is no such attribute
			return c
		}
		put("request.headers[x-a]", "*", "1")
	}
	return c
}

// repeated is the first name of which a request has several fields; empty if there is none.
func (g generator) repeated(of request) string {
	for _, f := range of.fields {
		if len(of.values(f.name)) > 1 {
			return f.name
		}
	}
	return ""
}

// value draws one of the values that a request has in fields of a name, or several fields joined; it is empty without any.
func (g generator) value(of request, name string) string {
	values := of.values(name)
	if len(values) == 0 {
		return ""
	}
	if len(values) > 1 && g.chance(60) {
		return strings.Join(values, pick(g, []string{",", ", "}))
	}
	return pick(g, values)
}

// lists draws the values of an attribute and those that it must not have: derived, which matches, is mostly among the first, and other is
// mostly among the second.
func (g generator) lists(derived, other string) (values, notValues []string) {
	first, second := derived, other
	if g.chance(20) {
		first = other
	}
	if g.chance(15) {
		second = derived
	}
	list := func(one string) []string {
		if g.chance(30) {
			both := []string{one, other}
			g.Shuffle(2, func(a, b int) { both[a], both[b] = both[b], both[a] })
			return both
		}
		return []string{one}
	}
	switch n := g.IntN(10); {
	case n < 6:
		return list(first), nil
	case n < 8:
		return nil, list(second)
	default:
		return list(first), list(second)
	}
}

// pattern draws a pattern that matches a text.
func (g generator) pattern(text string) string {
	runes := []rune(text)
	if len(runes) == 0 {
		return "*"
	}
	switch n := g.IntN(10); {
	case n < 5:
		return text
	case n < 7:
		return string(runes[:1+g.IntN(len(runes))]) + "*"
	case n < 9:
		return "*" + string(runes[g.IntN(len(runes)):])
	default:
		return "*"
	}
}

func (g generator) somebody() *identity {
	return &identity{pick(g, domains), pick(g, namespaces), pick(g, accounts)}
}

func (g generator) known(peer *identity) *identity {
	if peer == nil {
		return g.somebody()
	}
	return peer
}

func (g generator) principal(peer *identity) string {
	peer = g.known(peer)
	switch n := g.IntN(10); {
	case n < 2:
		return "*/" + peer.path()
	case n < 3:
		return peer.domain + "/ns/" + peer.namespace + "/*"
	case n < 4:
		return peer.domain + "/ns/" + peer.namespace + "/sa/*"
	}
	return g.pattern(peer.String())
}

func (g generator) namespace(peer *identity) string {
	if g.chance(3) {
		return "*sa"
	}
	return g.pattern(g.known(peer).namespace)
}

func (g generator) account(peer *identity) string {
	peer = g.known(peer)
	if peer.namespace == policyNamespace && g.chance(50) {
		return peer.account
	}
	return peer.namespace + "/" + peer.account
}

func (g generator) trustDomain(peer *identity) string { return g.pattern(g.known(peer).domain) }

// block draws a block of addresses with an address, which need not be its first one, or the address alone.
func (g generator) block(a netip.Addr) string {
	if g.chance(25) {
		return a.String()
	}
	p := netip.PrefixFrom(a, g.IntN(a.BitLen()+1))
	if g.chance(70) {
		p = p.Masked()
	}
	return p.String()
}

func (g generator) anyBlock() string {
	if g.chance(3) {
		return "10.0.0.0/99"
	}
	return g.block(pick(g, slices.Concat(sources4, sources6, forwarders[2:])))
}

func (g generator) port() string {
	if g.chance(5) {
		return "http"
	}
	return pick(g, []string{"80", "8080", "9090"})
}

func (g generator) method() string {
	if g.chance(10) {
		return "get"
	}
	return g.pattern(pick(g, methods))
}

func (g generator) host(host string) string {
	if g.chance(20) {
		host = strings.ToUpper(host)
	}
	return g.pattern(host)
}

// path draws a pattern of paths that mostly covers the path of a target.
func (g generator) path(target string, level l7.PathNormalization) string {
	if g.chance(25) {
		return pick(g, templates)
	}
	path := byTheText.normal(target, level)
	if g.chance(20) {
		path, _, _ = strings.Cut(target, "?") // as an author may copy it
	}
	if g.chance(20) {
		path = decoded(path) // as an application has it
	}
	return g.pattern(path)
}
