package translate

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/gen/security"
)

// policy reads an AuthorizationPolicy's spec as the decoder does.
func policy(t testing.TB, namespace, spec string) *securityv1.AuthorizationPolicy {
	t.Helper()
	ap := &securityv1.AuthorizationPolicy{}
	ap.Name, ap.Namespace = "p", namespace
	data, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(data, &ap.Spec); err != nil {
		t.Fatalf("%v in %s", err, spec)
	}
	return ap
}

func TestAuthorization(t *testing.T) {
	for _, c := range []struct{ name, namespace, spec, reason, want string }{
		{"allows nothing without rules", "shop", "{}", "Accepted", "scope: NAMESPACE"},
		{"of the root namespace holds for the mesh", "istio-system", "{}", "Accepted", "namespace: istio-system\nscope: GLOBAL"},
		{"with a selector is attached by name", "shop", "selector: {matchLabels: {app: web}}", "Accepted", "scope: WORKLOAD_SELECTOR"},
		{"of the root namespace with a selector too", "istio-system", "selector: {matchLabels: {app: web}}", "Accepted", "namespace: istio-system\nscope: WORKLOAD_SELECTOR"},
		{"with an empty rule matches everything", "shop", "action: DENY\nrules: [{}]", "Accepted", "scope: NAMESPACE\naction: DENY\nrules: [{}]"},
		{"every attribute of a connection", "shop", `
rules:
- to: [{operation: {ports: ["80", "81"], notPorts: ["82"]}}]
  from:
  - source:
      principals: ["*", cluster.local/ns/a/sa/b, "cluster.local/*", "*/sa/c"]
      notPrincipals: [x]
      namespaces: [a]
      notNamespaces: [b]
      ipBlocks: [10.0.0.0/8, 1.2.3.4]
      notIpBlocks: ["fd00::/8"]
  - source: {serviceAccounts: [web, other/web], notServiceAccounts: [db]}
  when:
  - {key: source.ip, values: [10.0.0.1]}
  - {key: destination.ip, notValues: [10.0.0.2]}
  - {key: destination.port, values: ["90"], notValues: ["91"]}
  - {key: source.namespace, values: [ns]}
  - {key: source.principal, notValues: ["*"]}
  - {key: source.serviceAccount, values: [sa]}
`, "Accepted", `
scope: NAMESPACE
rules:
- clauses:
  - matches: [{destinationPorts: [80, 81], notDestinationPorts: [82]}]
  - matches:
    - principals: [{presence: {}}, {exact: cluster.local/ns/a/sa/b}, {prefix: cluster.local/}, {suffix: /sa/c}]
      notPrincipals: [{exact: x}]
      namespaces: [{exact: a}]
      notNamespaces: [{exact: b}]
      sourceIps: [{address: CgAAAA==, length: 8}, {address: AQIDBA==, length: 32}]
      notSourceIps: [{address: /QAAAAAAAAAAAAAAAAAAAA==, length: 8}]
    - serviceAccounts: [{namespace: shop, serviceAccount: web}, {namespace: other, serviceAccount: web}]
      notServiceAccounts: [{namespace: shop, serviceAccount: db}]
  - matches: [{sourceIps: [{address: CgAAAQ==, length: 32}]}]
  - matches: [{notDestinationIps: [{address: CgAAAg==, length: 32}]}]
  - matches: [{destinationPorts: [90], notDestinationPorts: [91]}]
  - matches: [{namespaces: [{exact: ns}]}]
  - matches: [{notPrincipals: [{presence: {}}]}]
  - matches: [{serviceAccounts: [{namespace: shop, serviceAccount: sa}]}]
`},
		{"an ALLOW rule with a request attribute allows nothing, its neighbour goes on", "shop", `
rules:
- to: [{operation: {ports: ["80"], methods: [GET]}}]
- from: [{source: {namespaces: [a]}}]
`, "UnsupportedValue", `
scope: NAMESPACE
rules: [{clauses: [{matches: [{namespaces: [{exact: a}]}]}]}]
`},
		{"an ALLOW policy of request attributes only still selects, and so denies", "shop", `
rules: [{when: [{key: "request.headers[x]", values: [v]}]}]
`, "UnsupportedValue", "scope: NAMESPACE"},
		{"a DENY rule ignores a request attribute beside a port", "shop", `
action: DENY
rules: [{to: [{operation: {ports: ["80"], methods: [GET]}}]}]
`, "UnsupportedValue", `
scope: NAMESPACE
action: DENY
rules: [{clauses: [{matches: [{destinationPorts: [80]}]}]}]
`},
		{"a DENY rule of request attributes only matches nothing, as in Istio", "shop", `
action: DENY
rules: [{to: [{operation: {methods: [DELETE]}}]}]
`, "UnsupportedValue", "scope: NAMESPACE\naction: DENY\nrules: [{clauses: [{matches: [{}]}]}]"},
		{"a DENY rule loses the alternative that cannot be judged, and all of it with a condition that cannot", "shop", `
action: DENY
rules:
- to: [{operation: {ports: ["80"]}}, {operation: {paths: [/admin]}}]
  from: [{source: {namespaces: [a]}}]
- from: [{source: {namespaces: [a]}}]
  when: [{key: "request.auth.claims[iss]", values: [x]}]
`, "UnsupportedValue", `
scope: NAMESPACE
action: DENY
rules:
- clauses: [{matches: [{destinationPorts: [80]}, {}]}, {matches: [{namespaces: [{exact: a}]}]}]
- clauses: [{matches: [{namespaces: [{exact: a}]}]}, {matches: [{}]}]
`},
		{"a port that is none makes an ALLOW rule allow nothing", "shop", `rules: [{to: [{operation: {ports: ["80", "x"]}}]}]`, "UnsupportedValue", "scope: NAMESPACE"},
		{"an excluded block that is none makes an ALLOW rule allow nothing", "shop", `rules: [{from: [{source: {namespaces: [a], notIpBlocks: [x]}}]}]`, "UnsupportedValue", "scope: NAMESPACE"},
		{"a port that is none leaves a DENY rule the others", "shop", "action: DENY\n" + `rules: [{to: [{operation: {ports: ["80", "x"]}}]}]`, "UnsupportedValue", "scope: NAMESPACE\naction: DENY\nrules: [{clauses: [{matches: [{destinationPorts: [80]}]}]}]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, conditions := Authorization(mesh, policy(t, c.namespace, c.spec))
			if len(conditions) != 1 || conditions[0].Reason != c.reason || conditions[0].Status != "True" {
				t.Errorf("conditions %v, want %s", conditions, c.reason)
			}
			diff(t, got, message(t, dedup("name: p\nnamespace: shop\n"+c.want), &security.Authorization{}))
		})
	}
}

func TestAuthorizationNamesWhatItCannotJudge(t *testing.T) {
	_, conditions := Authorization(mesh, policy(t, "shop", "rules: [{to: [{operation: {paths: [/a], hosts: [h]}}], from: [{source: {requestPrincipals: [r]}}]}]"))
	if m := conditions[0].Message; !strings.Contains(m, "hosts, paths, requestPrincipals") || !strings.Contains(m, "allows less") {
		t.Errorf("message %q", m)
	}
}

func TestAuthorizationLeavesToOthersWhatIsTheirs(t *testing.T) {
	for reason, spec := range map[string]string{
		"WaypointRequired": "targetRefs: [{kind: Service, name: web}]\nrules: [{}]",
		"UnsupportedValue": "action: AUDIT\nrules: [{}]",
	} {
		p := policy(t, "shop", spec)
		got, conditions := Authorization(mesh, p)
		if got != nil || conditions[0].Status != "False" || conditions[0].Reason != reason {
			t.Errorf("%s: %v, %v", spec, got, conditions)
		}
		if AttachedByName(p) {
			t.Errorf("%s is attached to workloads", spec)
		}
	}
}

func TestDryRunIsCarriedAlongAndAWrongValueEnforces(t *testing.T) {
	p := policy(t, "shop", "action: DENY\nrules: [{}]")
	p.Annotations = map[string]string{"istio.io/dry-run": "true"}
	if got, _ := Authorization(mesh, p); !got.GetDryRun() {
		t.Error("a dry run would be enforced")
	}
	p.Annotations["istio.io/dry-run"] = "no"
	got, conditions := Authorization(mesh, p)
	if got == nil || got.GetDryRun() || len(got.GetRules()) != 1 {
		t.Errorf("a word in an annotation switched the policy off: %v", got)
	}
	if !strings.Contains(conditions[0].Message, `"no"`) {
		t.Errorf("the condition does not name the value: %v", conditions)
	}
}

func TestADenyPolicySaysWhatIsLeftOfIt(t *testing.T) {
	for spec, want := range map[string]string{
		`rules: [{to: [{operation: {methods: [GET]}}]}]`:                                        "it denies nothing",
		`rules: [{to: [{operation: {methods: [GET], ports: ["80"]}}]}]`:                         "deny more than written",
		`rules: [{to: [{operation: {methods: [GET]}}]}, {from: [{source: {namespaces: [a]}}]}]`: "deny more than written",
		`rules: [{to: [{operation: {paths: [/x]}}], from: [{source: {namespaces: [a]}}]}]`:      "it denies nothing",
	} {
		_, conditions := Authorization(mesh, policy(t, "shop", "action: DENY\n"+spec))
		if len(conditions) != 1 || !strings.Contains(conditions[0].Message, want) {
			t.Errorf("%s: %v, want %q", spec, conditions, want)
		}
	}
}
