package translate

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/model"
)

var requestMesh = Mesh{TrustDomain: "cluster.local", ClusterID: "Kubernetes", RootNamespace: "istio-system", DomainSuffix: "cluster.local"}

// someTargets are a Gateway of this mesh, one of another, a service that is bound and one that is not.
func someTargets() Targets {
	wp := &Waypoint{Namespace: "shop", Name: "wp", Traffic: trafficForServices, Identity: "shop/wp-account", class: lateenWaypointClass}
	canary := &Waypoint{Namespace: "shop", Name: "canary", Traffic: trafficForServices, Identity: "shop/canary", class: lateenWaypointClass}
	return Targets{
		Gateway: func(namespace, name string) (*Waypoint, string, bool) {
			switch namespace + "/" + name {
			case "shop/wp":
				return wp, lateenWaypointClass, true
			case "shop/foreign":
				return nil, IstioWaypointClass, true
			}
			return nil, "", false
		},
		Class: func(name string) ([]*Waypoint, bool) {
			if name != lateenWaypointClass {
				return nil, false
			}
			return []*Waypoint{canary, wp}, true
		},
		Service: func(kind, namespace, name string) (Bound, bool) {
			switch kind + " " + namespace + "/" + name {
			case "Service shop/web":
				return Bound{Hosts: []string{"shop/web.shop.svc.cluster.local"}, Decision: &Decision{Asked: "shop/wp", Gateways: []*Waypoint{wp, canary}}}, true
			case "Service shop/db":
				return Bound{Hosts: []string{"shop/db.shop.svc.cluster.local"}}, true
			case "Service shop/old":
				return Bound{Hosts: []string{"shop/old.shop.svc.cluster.local"}, Decision: &Decision{Asked: "shop/gone", Why: "is not there, or not served by this mesh's proxies"}}, true
			case "ServiceEntry shop/api":
				return Bound{Hosts: []string{"shop/a.example.com", "shop/b.example.com"}, Decision: &Decision{Asked: "shop/wp", Gateways: []*Waypoint{wp}}}, true
			}
			return Bound{}, false
		},
	}
}

const onGateway = "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: wp}]\n"

// wanted reads what a translation is to be, written in YAML; of the parents and targets of a Gateway it says nothing.
func wanted(t *testing.T, text string) []*l7.Rule {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out := &l7.Authorization{}
	if err := protojson.Unmarshal(data, out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out.Rules
}

func TestRequestRulesMeanWhatIstioMeans(t *testing.T) {
	for _, c := range []struct{ name, spec, said, want string }{
		{"no rule", "{}", "", "{}"},
		{"an empty rule", "rules: [{}]", "", "rules: [{}]"},
		{"every attribute of a source", `
rules:
- from:
  - source:
      principals: ["*", cluster.local/ns/a/sa/b, "x*", "*x"]
      notPrincipals: [z]
      requestPrincipals: ["https://issuer/*"]
      namespaces: [a, "b*"]
      notNamespaces: ["*c"]
      ipBlocks: [10.0.0.0/8, "::ffff:1.2.3.4"]
      notRemoteIpBlocks: ["fd00::/8"]
      trustDomains: ["*.example"]
  - source: {serviceAccounts: [web, other/web], notServiceAccounts: [db]}
`, "tokens are not verified yet", `
rules:
- from:
  - principals: [{present: true}, {exact: cluster.local/ns/a/sa/b}, {prefix: x}, {suffix: x}]
    notPrincipals: [{exact: z}]
    requestPrincipals: [{prefix: "https://issuer/"}]
    namespaces: [{exact: a}, {prefix: b}]
    notNamespaces: [{suffix: c}]
    ipBlocks: [{address: CgAAAA==, length: 8}, {address: AQIDBA==, length: 32}]
    notRemoteIpBlocks: [{address: /QAAAAAAAAAAAAAAAAAAAA==, length: 8}]
    trustDomains: [{suffix: .example}]
  - serviceAccounts: [{namespace: shop, name: web}, {namespace: other, name: web}]
    notServiceAccounts: [{namespace: shop, name: db}]
`},
		{"every attribute of an operation", `
rules:
- to:
  - operation:
      hosts: [a.example.com, "*.b.example"]
      notHosts: ["*"]
      ports: ["80"]
      notPorts: ["81"]
      methods: [GET, "P*"]
      notMethods: [PUT]
      paths: [/a, "/b/*", "*.html", "/c/{*}/d", "/e/{**}", "/f/{**}/"]
      notPaths: ["/g/{*}"]
`, "", `
rules:
- to:
  - hosts: [{exact: a.example.com}, {suffix: .b.example}]
    notHosts: [{present: true}]
    ports: [80]
    notPorts: [81]
    methods: [{exact: GET}, {prefix: P}]
    notMethods: [{exact: PUT}]
    paths: [{text: {exact: /a}}, {text: {prefix: /b/}}, {text: {suffix: .html}}, {template: "/c/{*}/d"}, {template: "/e/{**}"}, {template: "/f/{**}/"}]
    notPaths: [{template: "/g/{*}"}]
`},
		{"every key of a condition", `
action: DENY
rules:
- when:
  - {key: "request.headers[User-Agent]", values: ["curl*"], notValues: [x]}
  - {key: source.ip, values: [10.0.0.1]}
  - {key: source.namespace, values: [a]}
  - {key: source.principal, notValues: ["*"]}
  - {key: source.serviceAccount, values: [sa]}
  - {key: source.trustDomain, values: [x]}
  - {key: remote.ip, values: [10.0.0.0/8]}
  - {key: destination.ip, values: [10.0.0.2]}
  - {key: destination.port, values: ["443"]}
  - {key: connection.sni, values: [a.example]}
  - {key: request.auth.principal, values: [i/s]}
  - {key: request.auth.audiences, values: [a]}
  - {key: request.auth.presenter, values: [p]}
  - {key: "request.auth.claims[a][b]", values: [c]}
`, "tokens are not verified yet", `
rules:
- when:
  - {header: user-agent, values: [{text: {prefix: curl}}], notValues: [{text: {exact: x}}]}
  - {known: SOURCE_IP, values: [{block: {address: CgAAAQ==, length: 32}}]}
  - {known: SOURCE_NAMESPACE, values: [{text: {exact: a}}]}
  - {known: SOURCE_PRINCIPAL, notValues: [{text: {present: true}}]}
  - {known: SOURCE_SERVICE_ACCOUNT, values: [{serviceAccount: {namespace: shop, name: sa}}]}
  - {known: SOURCE_TRUST_DOMAIN, values: [{text: {exact: x}}]}
  - {known: REMOTE_IP, values: [{block: {address: CgAAAA==, length: 8}}]}
  - {known: DESTINATION_IP, values: [{block: {address: CgAAAg==, length: 32}}]}
  - {known: DESTINATION_PORT, values: [{port: 443}]}
  - {known: CONNECTION_SNI, values: [{text: {exact: a.example}}]}
  - {known: REQUEST_AUTH_PRINCIPAL, values: [{text: {exact: i/s}}]}
  - {known: REQUEST_AUTH_AUDIENCES, values: [{text: {exact: a}}]}
  - {known: REQUEST_AUTH_PRESENTER, values: [{text: {exact: p}}]}
  - {claim: {path: [a, b]}, values: [{text: {exact: c}}]}
`},
		{"an ALLOW rule with a value that is none allows nothing, and its neighbour goes on", `
rules:
- to: [{operation: {paths: [/a, "/b/{x}/{*}"]}}]
- to: [{operation: {methods: [GET]}}]
`, `paths "/b/{x}/{*}"; rules of this ALLOW policy with it are dropped`, "rules: [{to: [{methods: [{exact: GET}]}]}]"},
		{"a DENY rule is kept without the list of the value, so that it matches what is written", `
action: DENY
rules:
- to: [{operation: {paths: [/a, "/b/{x}/{*}"], methods: [GET]}}]
`, "it matches more than written", "rules: [{to: [{methods: [{exact: GET}]}]}]"},
		{"a negative list of a DENY rule is kept without the value", `
action: DENY
rules:
- to: [{operation: {notPaths: [/a, "/b/{x}/{*}"], methods: [GET]}}]
`, "it matches more than written", "rules: [{to: [{notPaths: [{text: {exact: /a}}], methods: [{exact: GET}]}]}]"},
		{"a star within a namespace stands for any text, which no proxy judges", `
action: DENY
rules:
- from: [{source: {namespaces: [team-*-dev, sandbox], notPrincipals: [a]}}]
  when: [{key: source.namespace, values: ["*-*", sandbox], notValues: [x]}]
`, "the other values of its list, so it matches more than written", "rules: [{from: [{notPrincipals: [{exact: a}]}], when: [{known: SOURCE_NAMESPACE, notValues: [{text: {exact: x}}]}]}]"},
		{"a rule of which nothing is left says so", `
action: DENY
rules:
- from: [{source: {namespaces: [team-*-dev, sandbox]}}]
`, "a rule of which nothing is left matches every request", "rules: [{}]"},
		{"and without a field of which nothing is left", `
action: DENY
rules:
- to: [{operation: {paths: ["/{**}/{*}"], methods: [GET]}}]
`, "it matches more than written", "rules: [{to: [{methods: [{exact: GET}]}]}]"},
		{"an operation of which nothing is left stands for every operation", `
action: DENY
rules:
- to: [{operation: {ports: ["80"]}}, {operation: {paths: ["no/{*}"]}}]
  from: [{source: {namespaces: [a]}}]
`, "it matches more than written", "rules: [{from: [{namespaces: [{exact: a}]}]}]"},
		{"and so does a source", `
action: AUDIT
rules:
- from: [{source: {namespaces: ["a*b"]}}]
`, `namespaces "a*b"`, "rules: [{}]"},
		{"a condition of which nothing is left is dropped", `
action: DENY
rules:
- when: [{key: "experimental.envoy.filters.a[b]", values: [c]}]
  to: [{operation: {methods: [GET]}}]
`, "experimental.envoy.filters.a[b]", "rules: [{to: [{methods: [{exact: GET}]}]}]"},
		{"a rule with an unknown key is dropped whatever the action", `
action: DENY
rules:
- when: [{key: request.colour, values: [red]}]
- to: [{operation: {methods: [GET]}}]
`, `there is no attribute "request.colour"`, "rules: [{to: [{methods: [{exact: GET}]}]}]"},
		{"an ALLOW rule with too many accounts is dropped", "rules: [{from: [{source: {serviceAccounts: [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r]}}]}]", "serviceAccounts with 17 values", "{}"},
		{"an account with a star is none", "rules: [{from: [{source: {serviceAccounts: ['a*']}}]}]", `serviceAccounts "a*"`, "{}"},
		{"the pseudo-header fields of a request", `
rules:
- when:
  - {key: "request.headers[:path]", values: ["/a?b=*"]}
  - {key: "request.headers[:authority]", values: [a.example.com]}
  - {key: "request.headers[:method]", notValues: [POST]}
  - {key: "request.headers[:scheme]", values: [http]}
`, "", `
rules:
- when:
  - {header: ":path", values: [{text: {prefix: "/a?b="}}]}
  - {header: ":authority", values: [{text: {exact: a.example.com}}]}
  - {header: ":method", notValues: [{text: {exact: POST}}]}
  - {header: ":scheme", values: [{text: {exact: http}}]}
`},
		{"a DENY of a path with its query", "action: DENY\nrules: [{when: [{key: 'request.headers[:path]', values: ['/admin?debug=1']}]}]", "", `rules: [{when: [{header: ":path", values: [{text: {exact: "/admin?debug=1"}}]}]}]`},
		{"a header whose name is none", "rules: [{when: [{key: 'request.headers[:status]', values: [x]}]}]", "request.headers[:status]", "{}"},
		{"a header whose name has a colon within", "rules: [{when: [{key: 'request.headers[a:path]', values: [x]}]}]", "request.headers[a:path]", "{}"},
		{"a provider is not called", "action: CUSTOM\nprovider: {name: opa}\nrules: [{to: [{operation: {paths: [/a]}}]}]", `provider "opa" is not called yet`, "rules: [{to: [{paths: [{text: {exact: /a}}]}]}]"},
		{"the local domain is the mesh's", "rules: [{from: [{source: {principals: [old/ns/a/sa/b]}}]}]", "", "rules: [{from: [{principals: [{exact: cluster.local/ns/a/sa/b}, {exact: old/ns/a/sa/b}]}]}]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := c.spec
			if spec == "{}" {
				spec = ""
			}
			mesh := requestMesh
			if strings.Contains(spec, "old/") {
				mesh.TrustDomainAliases = []string{"old"}
			}
			got, report := RequestAuthorization(mesh, policy(t, "shop", onGateway+spec), someTargets())
			want := &l7.Authorization{Rules: wanted(t, c.want)}
			if has := (&l7.Authorization{Rules: got.GetRules()}); !proto.Equal(has, want) {
				t.Errorf("got\n%s\nwant\n%s", protojson.Format(has), protojson.Format(want))
			}
			own := report.Conditions[0]
			if (own.Reason == "Accepted") != (c.said == "") || !strings.Contains(own.Message, c.said) {
				t.Errorf("it is said %s: %s", own.Reason, own.Message)
			}
		})
	}
}

func TestTemplatesOfPaths(t *testing.T) {
	for text, want := range map[string]bool{
		"/{*}": true, "/{**}": true, "/a/{*}/b/{**}": true, "/a/{**}/": true, "/{**}.m3u8": true, "/{**}/a/b": true, "/a/{*}.json": true, "/a%2F/{*}": true, "//{*}": true,
		"{*}": false, "a/{*}": false, "/{**}/{*}": false, "/{**}{**}": false, "/{*}.json/a": false, "/a{*}": false, "/{x}/{*}": false, "/{x=*}/{**}": false, "/*/{*}": false, "/{*}/*": false,
		"/a b/{*}": false, "/a%2/{*}": false, "/{*}?q": false, "/{*}#f": false, "/é/{*}": false, "/{**}{": false, "": false,
	} {
		if got := validTemplate(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestTargetsOfAPolicy(t *testing.T) {
	for _, c := range []struct {
		name, namespace, refs string
		targets, parents      string
		accepted, waypoint    string // status and reason
		said                  string
	}{
		{"a Gateway", "shop", "{group: gateway.networking.k8s.io, kind: Gateway, name: wp}", "gateway shop/wp", "shop/wp=shop/wp-account", "True Accepted", "True Accepted", "Gateway shop/wp"},
		{"a service with a canary", "shop", "{kind: Service, name: web}", "service shop/web.shop.svc.cluster.local", "shop/canary=shop/canary shop/wp=shop/wp-account", "True Accepted", "True Accepted", "shop/wp"},
		{"a service of group core", "shop", "{group: core, kind: Service, name: web}", "service shop/web.shop.svc.cluster.local", "shop/canary=shop/canary shop/wp=shop/wp-account", "True Accepted", "True Accepted", "shop/wp"},
		{"an entry of two hosts", "shop", "{group: networking.istio.io, kind: ServiceEntry, name: api}", "service shop/a.example.com service shop/b.example.com", "shop/wp=shop/wp-account", "True Accepted", "True Accepted", "shop/wp"},
		{"a class", "istio-system", "{group: gateway.networking.k8s.io, kind: GatewayClass, name: lateen-waypoint}", "gateway shop/canary gateway shop/wp", "shop/canary=shop/canary shop/wp=shop/wp-account", "True Accepted", "True Accepted", "2 Gateways"},
		{"a class, not of the root namespace", "shop", "{group: gateway.networking.k8s.io, kind: GatewayClass, name: lateen-waypoint}", "", "", "False Invalid", "False Invalid", "move the policy there"},
		{"a class of others", "istio-system", "{group: gateway.networking.k8s.io, kind: GatewayClass, name: istio}", "", "", "False Invalid", "False Invalid", "use lateen-waypoint"},
		{"a Gateway that is not there", "shop", "{group: gateway.networking.k8s.io, kind: Gateway, name: gone}", "", "", "False TargetNotFound", "False TargetNotFound", "there is no Gateway shop/gone"},
		{"a Gateway of another master", "shop", "{group: gateway.networking.k8s.io, kind: Gateway, name: foreign}", "", "", "False NotServed", "False NotServed", "class istio-waypoint"},
		{"a service that is not there", "shop", "{kind: Service, name: gone}", "", "", "False TargetNotFound", "False TargetNotFound", "there is no Service shop/gone"},
		{"a service without waypoint", "shop", "{kind: Service, name: db}", "", "", "False NotBound", "False NotBound", "label it"},
		{"a service whose waypoint is not there", "shop", "{kind: Service, name: old}", "", "", "False NotBound", "False NotBound", "go direct until it is bound"},
		{"another namespace", "shop", "{kind: Service, name: web, namespace: other}", "", "", "False Invalid", "False Invalid", "spec.targetRefs[0].namespace"},
		{"a kind to which nothing is attached", "shop", "{kind: Pod, name: web}", "", "", "False Invalid", "False Invalid", "use kind Gateway"},
		{"one that is good and one that is not", "shop", "{kind: Service, name: db}, {group: gateway.networking.k8s.io, kind: Gateway, name: wp}", "service shop/db.shop.svc.cluster.local gateway shop/wp", "shop/wp=shop/wp-account", "True Accepted", "True PartiallyInvalid", "Service shop/db"},
		{"a service that is there and one that is not", "shop", "{kind: Service, name: web}, {group: core, kind: Service, name: gone}", "service shop/web.shop.svc.cluster.local service shop/gone.shop.svc.cluster.local", "shop/canary=shop/canary shop/wp=shop/wp-account", "True Accepted", "True PartiallyInvalid", "there is no Service shop/gone"},
		{"a service that is named twice", "shop", "{kind: Service, name: gone}, {kind: Service, name: gone}, {kind: Service, name: web}", "service shop/gone.shop.svc.cluster.local service shop/web.shop.svc.cluster.local", "shop/canary=shop/canary shop/wp=shop/wp-account", "True Accepted", "True PartiallyInvalid", "there is no Service shop/gone"},
		{"a service that nobody can make", "shop", "{kind: Service, name: web}, {kind: Service, name: 'a/b'}", "service shop/web.shop.svc.cluster.local", "shop/canary=shop/canary shop/wp=shop/wp-account", "True Accepted", "True PartiallyInvalid", "there is no Service shop/a/b"},
		{"an entry that is not there, whose hosts nobody knows", "shop", "{kind: Service, name: web}, {group: networking.istio.io, kind: ServiceEntry, name: gone}", "service shop/web.shop.svc.cluster.local", "shop/canary=shop/canary shop/wp=shop/wp-account", "True Accepted", "True PartiallyInvalid", "there is no ServiceEntry shop/gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, report := RequestAuthorization(requestMesh, policy(t, c.namespace, "targetRefs: ["+c.refs+"]\nrules: [{}]"), someTargets())
			var targets, parents []string
			for _, target := range got.GetTargets() {
				switch target := target.Target.(type) {
				case *l7.Target_Gateway:
					targets = append(targets, "gateway "+target.Gateway)
				case *l7.Target_Service:
					targets = append(targets, "service "+target.Service)
				}
			}
			for _, p := range got.GetParents() {
				parents = append(parents, p.Gateway+"="+p.Identity)
			}
			if strings.Join(targets, " ") != c.targets || strings.Join(parents, " ") != c.parents {
				t.Errorf("for %v of %v", targets, parents)
			}
			say := func(x model.Condition) string { return string(x.Status) + " " + x.Reason }
			if len(report.Conditions) != 2 || say(report.Conditions[0]) != c.accepted || say(report.Conditions[1]) != c.waypoint || report.Conditions[1].Type != "WaypointAccepted" {
				t.Fatalf("it is said %+v", report.Conditions)
			}
			if !strings.Contains(report.Conditions[1].Message, c.said) {
				t.Errorf("it is said: %s", report.Conditions[1].Message)
			}
			if len(report.Parents()) == 0 || report.Parents()[0].Conditions[0].Type != "WaypointAccepted" {
				t.Errorf("of its parents it is said %+v", report.Parents())
			}
		})
	}
}

func authentication(t testing.TB, spec string) *securityv1.RequestAuthentication {
	t.Helper()
	ra := &securityv1.RequestAuthentication{}
	ra.Name, ra.Namespace = "jwt", "shop"
	data, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(data, &ra.Spec); err != nil {
		t.Fatalf("%v in %s", err, spec)
	}
	return ra
}

func TestPlacesOfTokens(t *testing.T) {
	got, report := RequestAuthentication(requestMesh, authentication(t, `
targetRefs: [{kind: Service, name: web}]
jwtRules:
- {issuer: a}
- {issuer: b, fromHeaders: [{name: X-Token, prefix: "T "}, {name: "a b"}], fromParams: [t], fromCookies: [c]}
`), someTargets())
	want := &l7.Authentication{Namespace: "shop", Name: "jwt", Parents: got.GetParents(), Targets: got.GetTargets(), Rules: []*l7.TokenRule{
		{Issuer: "a"}, {Issuer: "b", Fields: []*l7.TokenField{{Name: "x-token", Prefix: "T "}}, Params: []string{"t"}, Cookies: []string{"c"}}}}
	if !proto.Equal(got, want) || len(got.GetParents()) != 2 || len(got.GetTargets()) != 1 {
		t.Errorf("got %s", protojson.Format(got))
	}
	if c := report.Conditions[0]; c.Status != model.True || !strings.Contains(c.Message, "401") || !strings.Contains(c.Message, "not verified yet") || !strings.Contains(c.Message, `"a b"`) {
		t.Errorf("%+v", c)
	}
	got, report = RequestAuthentication(requestMesh, authentication(t, "jwtRules: [{issuer: a}]"), someTargets())
	if c := report.Conditions[0]; got != nil || c.Reason != "NotImplemented" || !strings.Contains(c.Message, "targetRefs") {
		t.Errorf("without targets: %v, %+v", got, c)
	}
}

// FuzzRequestAuthorization gives the translation whatever decodes as a policy: no panic; what comes out is small, encodes, and names what it is for;
// and an ALLOW policy never comes out with a rule that has lost a part.
func FuzzRequestAuthorization(f *testing.F) {
	for _, text := range []string{
		`{"action":"DENY","rules":[{"to":[{"operation":{"paths":["/a/{*}","/{**}/{*}"],"ports":["x"]}}],"when":[{"key":"request.headers[a]","values":["*"]},{"key":"x"}]}]}`,
		`{"rules":[{"from":[{"source":{"serviceAccounts":["a/b","*"],"trustDomains":["*x*"],"ipBlocks":["1.2.3.4/33"]}}]}]}`,
		`{"targetRef":{"kind":"Service","name":"web"},"action":"CUSTOM","provider":{"name":"x"},"rules":[{}]}`,
		`{"targetRefs":[{"group":"networking.istio.io","kind":"ServiceEntry","name":"api"},{"kind":"Service","name":"db","namespace":"x"}],"rules":[{"when":[{"key":"request.auth.claims[a][b]","notValues":["c"]}]}]}`,
	} {
		f.Add([]byte(text), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, gateway bool) {
		ap := &securityv1.AuthorizationPolicy{}
		ap.Name, ap.Namespace = "p", "shop"
		if protojson.Unmarshal(data, &ap.Spec) != nil {
			return
		}
		if gateway {
			ap.Spec.TargetRefs = append(ap.Spec.TargetRefs, policy(t, "shop", onGateway).Spec.TargetRefs...)
		}
		got, report := RequestAuthorization(requestMesh, ap, someTargets())
		if len(report.Conditions) != 2 {
			t.Fatalf("%+v", report.Conditions)
		}
		if got == nil {
			return
		}
		if _, err := proto.Marshal(got); err != nil {
			t.Fatal(err)
		}
		if len(got.Parents) == 0 || len(got.Targets) == 0 || len(got.Rules) > len(ap.Spec.Rules) {
			t.Errorf("%d parents, %d targets, %d rules of %d", len(got.Parents), len(got.Targets), len(got.Rules), len(ap.Spec.Rules))
		}
		if got.Action != l7.Action_ALLOW {
			return
		}
		for _, r := range got.Rules {
			written := false
			for _, w := range ap.Spec.Rules {
				written = written || len(w.GetFrom()) == len(r.From) && len(w.GetTo()) == len(r.To)
			}
			if !written {
				t.Errorf("a rule has lost a part: %s", r)
			}
		}
	})
}

// FuzzRequestAuthentication gives the translation whatever decodes as token rules: no panic; no rule is lost, and what comes out encodes, names what it is
// for, and looks into fields that a request can have.
func FuzzRequestAuthentication(f *testing.F) {
	for _, text := range []string{
		`{"jwtRules":[{"issuer":"a","fromHeaders":[{"name":"X-Token","prefix":"T "},{"name":"a b"}],"fromParams":["t",""],"fromCookies":["c;d"]}]}`,
		`{"targetRef":{"kind":"Service","name":"web"},"jwtRules":[{},{"jwksUri":"http://a","outputPayloadToHeader":"x","forwardOriginalToken":true}]}`,
		`{"targetRefs":[{"group":"networking.istio.io","kind":"ServiceEntry","name":"api"}],"jwtRules":[{"issuer":"b","audiences":["c"],"jwks":"{}"}]}`,
		`{"selector":{"matchLabels":{"a":"b"}},"targetRefs":[{"kind":"Service","name":"db","namespace":"x"}]}`,
	} {
		f.Add([]byte(text), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, gateway bool) {
		ra := &securityv1.RequestAuthentication{}
		ra.Name, ra.Namespace = "p", "shop"
		if protojson.Unmarshal(data, &ra.Spec) != nil {
			return
		}
		if gateway {
			ra.Spec.TargetRefs = append(ra.Spec.TargetRefs, policy(t, "shop", onGateway).Spec.TargetRefs...)
		}
		got, report := RequestAuthentication(requestMesh, ra, someTargets())
		if len(report.Conditions) == 0 {
			t.Fatal("nothing is said of it")
		}
		if got == nil {
			return
		}
		if _, err := proto.Marshal(got); err != nil {
			t.Fatal(err)
		}
		if len(got.Parents) == 0 || len(got.Targets) == 0 || len(got.Rules) != len(ra.Spec.JwtRules) {
			t.Errorf("%d parents, %d targets, %d rules of %d", len(got.Parents), len(got.Targets), len(got.Rules), len(ra.Spec.JwtRules))
		}
		for i, r := range got.Rules {
			written := ra.Spec.JwtRules[i]
			if len(r.Params) != len(written.GetFromParams()) || len(r.Cookies) != len(written.GetFromCookies()) || len(r.Fields) > len(written.GetFromHeaders()) {
				t.Errorf("a rule has lost a place: %s", r)
			}
			for _, field := range r.Fields {
				if !isToken(field.Name) || strings.ToLower(field.Name) != field.Name {
					t.Errorf("no request has a field %q", field.Name)
				}
			}
		}
	})
}
