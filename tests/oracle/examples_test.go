package oracle

import (
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	"sigs.k8s.io/yaml"
)

// The statements of Istio's API and examples like its own, about requests that the examples name. They hold in every reading.
func TestTheReferenceReadsTheExamplesOfTheAPI(t *testing.T) {
	const (
		readers = `
rules:
- from:
  - source: {principals: [cluster.local/ns/default/sa/sleep]}
  - source: {namespaces: [test]}
  to:
  - operation: {methods: [GET], paths: ["/info*"]}
  - operation: {methods: [POST], paths: [/data]}
  when:
  - {key: "request.headers[version]", values: [v1, v2]}
`
		devs    = "action: DENY\nrules: [{from: [{source: {namespaces: [dev]}}], to: [{operation: {methods: [POST]}}]}]"
		source  = "rules: [{from: [{source: {principals: ['*/sa/admin', '*/sa/dev'], namespaces: [prod, test], notIpBlocks: [203.0.113.4]}}]}]"
		hosts   = "rules: [{to: [{operation: {hosts: ['*.example.com'], methods: [GET, HEAD], notPaths: ['/admin*']}}]}]"
		paths   = "rules: [{to: [{operation: {paths: ['PATH']}}]}]"
		allowed = "allow shop/p"
	)
	a := func(namespace, account string) func(r *request) {
		return func(r *request) { r.peer = &identity{ownDomain, namespace, account} }
	}
	sends := func(method, target string) func(r *request) {
		return func(r *request) { r.method, r.target = method, target }
	}
	with := func(name, value string) func(r *request) {
		return func(r *request) { r.fields = append(r.fields, field{name, value}) }
	}
	on := func(host string) func(r *request) { return func(r *request) { r.host = host } }
	at := func(template string) string { return strings.ReplaceAll(paths, "PATH", template) }
	for _, c := range []struct {
		name, spec string
		of         []func(r *request)
		want       string
	}{
		{"no rule never matches", "{}", nil, "none"},
		{"an empty rule always matches", "rules: [{}]", nil, allowed},
		{"a DENY without rules never matches", "action: DENY", nil, "allow"},
		{"one source, one operation and all conditions match", readers, []func(*request){a("default", "sleep"), sends("GET", "/info/x"), with("version", "v2")}, allowed},
		{"the other source and operation", readers, []func(*request){a("test", "any"), sends("POST", "/data"), with("Version", "v1")}, allowed},
		{"a condition that does not hold", readers, []func(*request){a("test", "any"), sends("POST", "/data"), with("version", "v3")}, "none"},
		{"another path", readers, []func(*request){a("test", "any"), sends("POST", "/data/1"), with("version", "v1")}, "none"},
		{"nobody", readers, []func(*request){sends("POST", "/data"), with("version", "v1")}, "none"},
		{"a DENY of a namespace and a method", devs, []func(*request){a("dev", "x"), sends("POST", "/")}, "deny shop/p"},
		{"and of no other", devs, []func(*request){a("dev", "x"), sends("GET", "/")}, "allow"},
		{"the fields of a source", source, []func(*request){a("prod", "dev")}, allowed},
		{"of another namespace", source, []func(*request){a("shop", "dev")}, "none"},
		{"from an address that is excepted", source, []func(*request){a("prod", "dev"), func(r *request) { r.source = netip.MustParseAddr("203.0.113.4") }}, "none"},
		{"the fields of an operation", hosts, []func(*request){on("a.EXAMPLE.com"), sends("HEAD", "/x")}, allowed},
		{"a path that is excepted", hosts, []func(*request){on("a.example.com"), sends("HEAD", "/administrators")}, "none"},
		{"an exact text", at("/abc"), []func(*request){sends("GET", "/abc?d")}, allowed},
		{"a prefix is its own text, too", at("/abc*"), []func(*request){sends("GET", "/abc")}, allowed},
		{"a suffix", at("*abc"), []func(*request){sends("GET", "/xabc")}, allowed},
		{"{*} is one segment", at("/foo/{*}"), []func(*request){sends("GET", "/foo/bar")}, allowed},
		{"{*} is not two segments", at("/foo/{*}"), []func(*request){sends("GET", "/foo/bar/baz")}, "none"},
		{"{**} is a segment", at("/foo/{**}/"), []func(*request){sends("GET", "/foo/bar/")}, allowed},
		{"{**} is nothing", at("/foo/{**}/"), []func(*request){sends("GET", "/foo//")}, allowed},
		{"{**} leaves the text behind it", at("/foo/{**}/"), []func(*request){sends("GET", "/foo/bar")}, "none"},
		{"{*} before {**}", at("/foo/{*}/bar/{**}"), []func(*request){sends("GET", "/foo/buzz/bar/baz")}, allowed},
		{"{*} before {**}, which is nothing", at("/foo/{*}/bar/{**}"), []func(*request){sends("GET", "/foo/buzz/bar/")}, allowed},
		{"a path in disguise", at("/admin"), []func(*request){sends("GET", `/x/%2e%2E\%61dmin`)}, allowed},
		{"an account of the policy's namespace", "rules: [{from: [{source: {serviceAccounts: [web]}}]}]", []func(*request){a("shop", "web")}, allowed},
		{"and of no other", "rules: [{from: [{source: {serviceAccounts: [web]}}]}]", []func(*request){a("prod", "web")}, "none"},
		{"an exception holds for nobody", "rules: [{from: [{source: {notNamespaces: ['*']}}]}]", nil, allowed},
		{"a port that is none takes its ALLOW rule along", "rules: [{to: [{operation: {ports: ['8080', http]}}]}]", nil, "none"},
		{"a port that is none leaves a DENY rule wider", "action: DENY\nrules: [{to: [{operation: {ports: [http], methods: [GET]}}]}]", nil, "deny shop/p"},
		{"a key that there is not takes its rule along", "action: DENY\nrules: [{when: [{key: request.colour, values: [red]}]}]", nil, "allow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request{source: sources4[0], destination: destinations[0], method: "GET", target: "/", host: "shop.example"}
			for _, change := range c.of {
				change(&r)
			}
			p := &securityv1.AuthorizationPolicy{}
			p.Namespace, p.Name = policyNamespace, "p"
			data, err := yaml.YAMLToJSON([]byte(c.spec))
			if err != nil {
				t.Fatal(err)
			}
			if err := protojson.Unmarshal(data, &p.Spec); err != nil {
				t.Fatal(err)
			}
			one := testCase{policies: []*securityv1.AuthorizationPolicy{p}}
			for name, reading := range map[string]reading{"the text": byTheText, "ours": ours, "Istio's": istios} {
				if got, _ := reading.decide(one, r); got != c.want {
					t.Errorf("by %s it is %q, want %q", name, got, c.want)
				}
			}
		})
	}
}
