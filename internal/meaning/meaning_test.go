package meaning

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
)

// standard is an Istio as its charts install it in ambient mode.
func standard() *Cluster {
	return &Cluster{
		Settings: Settings{TrustDomain: "cluster.local", RootNamespace: "istio-system", ClusterID: "Kubernetes", DNSCapture: true},
		MeshConfigs: []MeshConfig{{Object: Object{"ConfigMap", "istio-system", "istio"}, Networks: "networks: {}", Mesh: `
trustDomain: cluster.local
rootNamespace: istio-system
enablePrometheusMerge: true
defaultProviders: {metrics: [prometheus]}
defaultConfig: {discoveryAddress: "istiod.istio-system.svc:15012", image: {imageType: distroless}, proxyMetadata: {ISTIO_META_ENABLE_HBONE: "true"}}
serviceScopeConfigs: [{scope: GLOBAL, servicesSelector: {matchExpressions: [{key: istio.io/global, operator: In, values: ["true"]}]}}]
`}},
		Control: []Program{{Object: Object{"Deployment", "istio-system", "istiod"}, Env: map[string]string{
			"REVISION": "default", "PILOT_ENABLE_AMBIENT": "true", "CLUSTER_ID": "Kubernetes", "PILOT_ENABLE_ANALYSIS": "false", "CA_TRUSTED_NODE_ACCOUNTS": "istio-system/ztunnel"}}},
		Proxies: []Program{{Object: Object{"DaemonSet", "istio-system", "ztunnel"}, Image: "docker.io/istio/ztunnel:1.30.3-distroless", Env: map[string]string{
			"CA_ADDRESS": "istiod.istio-system.svc:15012", "RUST_LOG": "info", "INPOD_ENABLED": "true", "ISTIO_META_ENABLE_HBONE": "true", "TERMINATION_GRACE_PERIOD_SECONDS": "30"}}},
	}
}

// with puts objects, written in YAML, into a cluster.
func with(t *testing.T, c *Cluster, text string) *Cluster {
	t.Helper()
	for _, doc := range strings.Split(text, "\n---\n") {
		raw, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		var of struct{ Kind string }
		if err := json.Unmarshal(raw, &of); err != nil {
			t.Fatal(err)
		}
		switch of.Kind {
		case "AuthorizationPolicy":
			c.AuthorizationPolicies = append(c.AuthorizationPolicies, read[securityv1.AuthorizationPolicy](t, raw))
		case "PeerAuthentication":
			c.PeerAuthentications = append(c.PeerAuthentications, read[securityv1.PeerAuthentication](t, raw))
		case "ServiceEntry":
			c.ServiceEntries = append(c.ServiceEntries, read[networkingv1.ServiceEntry](t, raw))
		case "Namespace":
			c.Namespaces = append(c.Namespaces, read[corev1.Namespace](t, raw))
		case "Pod":
			c.Pods = append(c.Pods, read[corev1.Pod](t, raw))
		case "Service":
			c.Services = append(c.Services, read[corev1.Service](t, raw))
		case "Gateway":
			c.Gateways = append(c.Gateways, read[gatewayv1.Gateway](t, raw))
		case "GatewayClass":
			c.GatewayClasses = append(c.GatewayClasses, read[gatewayv1.GatewayClass](t, raw))
		default:
			t.Fatalf("kind %q", of.Kind)
		}
	}
	return c
}

func read[T any](t *testing.T, raw []byte) *T {
	t.Helper()
	o := new(T)
	if err := json.Unmarshal(raw, o); err != nil {
		t.Fatal(err)
	}
	return o
}

// line is a difference in short.
func line(d Difference) string {
	s := fmt.Sprintf("%s %s: %s", d.Rule, d.Object, d.Severity)
	if d.Refuses {
		s += " refuses"
	}
	return s
}

func lines(r Report) []string {
	var out []string
	for _, d := range r.Differences {
		out = append(out, line(d))
	}
	slices.Sort(out)
	return out
}

const allowAll = `
kind: AuthorizationPolicy
metadata: {name: other, namespace: shop}
spec: {rules: [{from: [{source: {namespaces: [a]}}]}]}
---
`

const rootStrict = `
kind: PeerAuthentication
metadata: {name: mesh, namespace: istio-system, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {mtls: {mode: STRICT}}
---
`

// A waypoint of Istio's class without an address in its status, and one with.
const (
	addressless = "kind: Gateway\nmetadata: {name: w, namespace: shop}\nspec: {gatewayClassName: istio-waypoint, listeners: [{name: mesh, port: 15008, protocol: HBONE}]}"
	addressed   = addressless + "\nstatus: {addresses: [{value: 10.0.0.1}]}"
)

// webBehind is a Service that asks for a waypoint.
func webBehind(waypoint string) string {
	return "kind: Service\nmetadata: {name: web, namespace: shop, labels: {istio.io/use-waypoint: " + waypoint + "}}\nspec: {ports: [{port: 80}]}"
}

// unread is a caller who may not list a resource.
func unread(resource string) func(*Cluster) {
	return func(c *Cluster) { c.Unread = []string{resource + ": forbidden, so no difference about them is known"} }
}

func atOnce(c *Cluster) { c.Settings.BindAtOnce = true }

func policy(spec string) string {
	return "kind: AuthorizationPolicy\nmetadata: {name: p, namespace: shop}\nspec: " + spec
}

func mesh(text string) func(*Cluster) {
	return func(c *Cluster) {
		var fields, more map[string]any
		if err := errors.Join(yaml.Unmarshal([]byte(c.MeshConfigs[0].Mesh), &fields), yaml.Unmarshal([]byte(text), &more)); err != nil {
			panic(err)
		}
		for name, value := range more {
			delete(fields, camel(name))
			fields[name] = value
		}
		merged, err := yaml.Marshal(fields)
		if err != nil {
			panic(err)
		}
		c.MeshConfigs[0].Mesh = string(merged)
	}
}

func env(name, value string) func(*Cluster) {
	return func(c *Cluster) { c.Control[0].Env[name] = value }
}

func proxyEnv(name, value string) func(*Cluster) {
	return func(c *Cluster) { c.Proxies[0].Env[name] = value }
}

// acme has both meshes use a trust domain of another name.
func acme(c *Cluster) {
	mesh("trustDomain: acme.example\n")(c)
	c.Settings.TrustDomain = "acme.example"
}

const ap, pa = " AuthorizationPolicy shop/p: ", " PeerAuthentication shop/p: "

// cases are clusters by what differs in them. TestEveryRuleHasACase holds the list to Rules.
var cases = []struct {
	name    string
	objects string
	change  func(*Cluster)
	want    []string
	// same is the rule that the case proves to mean the same.
	same string
}{
	{name: "an Istio as its charts install it"},
	{name: "an empty selector on ALLOW", objects: policy("{selector: {}, rules: [{}]}"), want: []string{"authorization-empty-selector" + ap + "accessCloses"}},
	{name: "an empty selector on DENY", objects: policy("{selector: {}, action: DENY, rules: [{}]}"), want: []string{"authorization-empty-selector" + ap + "accessCloses"}},
	{name: "an empty selector on ALLOW beside another", objects: allowAll + policy("{selector: {}, rules: [{}]}"), want: []string{"authorization-empty-selector" + ap + "accessOpens"}},
	{name: "an empty selector in dry run", objects: "kind: AuthorizationPolicy\nmetadata: {name: p, namespace: shop, annotations: {istio.io/dry-run: 'true'}}\nspec: {selector: {}}", want: []string{"authorization-dry-run" + ap + "nameChanges"}},
	{name: "an empty list of labels", objects: policy("{selector: {matchLabels: {}}, rules: [{}]}"), same: "authorization-empty-labels"},
	{name: "a selector in the root namespace", objects: "kind: AuthorizationPolicy\nmetadata: {name: p, namespace: istio-system}\nspec: {selector: {matchLabels: {app: a}}, rules: [{}]}", same: "authorization-root-selector"},
	{name: "ALLOW by namespace and trust domain", objects: policy("{rules: [{from: [{source: {trustDomains: [x], namespaces: [b]}}]}]}"), want: []string{"authorization-trust-domains" + ap + "accessCloses"}},
	{name: "ALLOW by trust domain alone", objects: policy("{rules: [{from: [{source: {notTrustDomains: [x]}}]}]}"), want: []string{"authorization-trust-domains" + ap + "accessOpens"}},
	{name: "DENY by namespace and trust domain", objects: policy("{action: DENY, rules: [{from: [{source: {notTrustDomains: [x], namespaces: [b]}}]}]}"), want: []string{"authorization-trust-domains" + ap + "accessOpens"}},
	{name: "DENY by trust domain alone", objects: policy("{action: DENY, rules: [{from: [{source: {notTrustDomains: [cluster.local]}}]}]}"), want: []string{"authorization-trust-domains" + ap + "accessCloses"}},
	{name: "DENY by trust domain or namespace", objects: policy("{action: DENY, rules: [{from: [{source: {trustDomains: [x]}}, {source: {namespaces: [b]}}]}]}"), want: []string{"authorization-trust-domains" + ap + "accessCloses"}},
	{name: "ALLOW by trust domain with methods", objects: policy("{rules: [{from: [{source: {trustDomains: [x], namespaces: [b]}}], to: [{operation: {methods: [GET]}}]}]}")},
	{name: "ALLOW when trust domain", objects: policy("{rules: [{when: [{key: source.trustDomain, values: [x]}]}]}"), want: []string{"authorization-when-trust-domain" + ap + "accessOpens"}},
	{name: "DENY when trust domain", objects: policy("{action: DENY, rules: [{when: [{key: source.trustDomain, notValues: [x]}]}]}"), want: []string{"authorization-when-trust-domain" + ap + "accessCloses"}},
	{name: "ALLOW when service account", objects: policy("{rules: [{when: [{key: source.serviceAccount, values: [b/x]}]}]}"), want: []string{"authorization-when-service-account" + ap + "accessOpens"}},
	{name: "DENY when service account", objects: policy("{action: DENY, rules: [{when: [{key: source.serviceAccount, values: [b/x]}]}]}"), want: []string{"authorization-when-service-account" + ap + "accessCloses"}},
	{name: "DENY when service account and a header", objects: policy("{action: DENY, rules: [{when: [{key: source.serviceAccount, values: [b/x]}, {key: 'request.headers[x]', values: [z]}]}]}")},
	{name: "ALLOW with both attributes of a source", objects: policy("{rules: [{from: [{source: {trustDomains: [x], namespaces: [b]}}], when: [{key: source.serviceAccount, values: [b/x]}]}]}"),
		want: []string{"authorization-trust-domains" + ap + "accessOpens", "authorization-when-service-account" + ap + "accessOpens"}},
	{name: "ALLOW by how a trust domain ends, which node proxies cannot judge", objects: policy("{rules: [{from: [{source: {trustDomains: ['*.x'], namespaces: [b]}}, {source: {namespaces: [c]}}]}]}"), want: []string{"authorization-trust-domains" + ap + "accessCloses"}},
	{name: "and by nothing else", objects: policy("{rules: [{from: [{source: {notTrustDomains: ['*.x']}}]}, {when: [{key: source.trustDomain, values: ['*.x', x]}]}]}")},
	{name: "DENY by how a trust domain ends", objects: policy("{action: DENY, rules: [{from: [{source: {trustDomains: ['*.x', x], namespaces: [b]}}]}, {when: [{key: source.trustDomain, values: ['*.x']}]}]}")},
	{name: "DENY by those that can be judged", objects: policy("{action: DENY, rules: [{from: [{source: {trustDomains: ['*.x', x]}}]}]}"), want: []string{"authorization-trust-domains" + ap + "accessCloses"}},
	{name: "the local domain in a mesh of another name", change: acme, objects: policy("{rules: [{from: [{source: {principals: [cluster.local/ns/b/sa/x]}}]}]}"), want: []string{"authorization-principals" + ap + "accessOpens"}},
	{name: "the local domain in a condition", change: acme, objects: policy("{action: DENY, rules: [{when: [{key: source.principal, values: [cluster.local/ns/b/sa/x]}]}]}"), want: []string{"authorization-principals" + ap + "accessCloses"}},
	{name: "the local domain excepted", change: acme, objects: policy("{action: DENY, rules: [{from: [{source: {notPrincipals: [cluster.local/ns/b/sa/x]}}]}]}"), want: []string{"authorization-principals" + ap + "accessOpens"}},
	{name: "the mesh's own name, and a pattern", change: acme, objects: policy("{rules: [{from: [{source: {principals: [acme.example/ns/b/sa/x, '*/ns/b/sa/x']}}]}]}")},
	{name: "an alias", change: func(c *Cluster) { c.Settings.TrustDomainAliases = []string{"old.example"} }, objects: policy("{rules: [{from: [{source: {principals: [old.example/ns/b/sa/x]}}]}]}"), want: []string{"authorization-principals" + ap + "accessOpens"}},
	{name: "DENY with methods", objects: policy("{action: DENY, rules: [{to: [{operation: {methods: [GET], ports: ['80']}}]}]}"), same: "authorization-deny-http"},
	{name: "CUSTOM", objects: policy("{action: CUSTOM, provider: {name: x}, rules: [{}]}"), same: "authorization-audit-custom"},
	{name: "dry run", objects: "kind: AuthorizationPolicy\nmetadata: {name: p, namespace: shop, annotations: {istio.io/dry-run: 'true'}}\nspec: {}", want: []string{"authorization-dry-run" + ap + "nameChanges"}},
	{name: "dry run, known to istiod", change: env("AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY", "true"), objects: "kind: AuthorizationPolicy\nmetadata: {name: p, namespace: shop, annotations: {istio.io/dry-run: 'true'}}\nspec: {}"},
	{name: "dry run with an old ztunnel", change: func(c *Cluster) { c.Proxies[0].Image = "registry:5000/ztunnel:1.28.1" }, objects: "kind: AuthorizationPolicy\nmetadata: {name: p, namespace: shop, annotations: {istio.io/dry-run: 'true'}}\nspec: {}",
		want: []string{"authorization-dry-run" + ap + "nameChanges", "authorization-dry-run-enforced" + ap + "accessCloses"}},
	{name: "dry run with a ztunnel of no known version", change: func(c *Cluster) { c.Proxies[0].Image = "ztunnel:1.latest" }, objects: "kind: AuthorizationPolicy\nmetadata: {name: p, namespace: shop, annotations: {istio.io/dry-run: 'true'}}\nspec: {}",
		want: []string{"authorization-dry-run" + ap + "nameChanges"}},
	{name: "targetRefs", objects: policy("{targetRefs: [{kind: Service, name: a}], action: DENY, rules: [{to: [{operation: {methods: [GET]}}]}]}"), same: "authorization-waypoint"},
	{name: "targetRefs with a gateway", objects: policy("{targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}]}") + "\n---\nkind: Gateway\nmetadata: {name: edge, namespace: shop}\nspec: {gatewayClassName: istio}",
		want: []string{"authorization-gateway" + ap + "notServed", "gateway-ingress Gateway shop/edge: notServed"}},
	{name: "targetRefs with a waypoint", objects: policy("{targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: w}]}") + "\n---\nkind: Gateway\nmetadata: {name: w, namespace: shop}\nspec: {gatewayClassName: lateen-waypoint}"},
	{name: "targetRefs with classes", objects: policy("{targetRefs: [{group: gateway.networking.k8s.io, kind: GatewayClass, name: istio-waypoint}]}")},
	{name: "targetRefs with the class of gateways", objects: policy("{targetRefs: [{group: gateway.networking.k8s.io, kind: GatewayClass, name: istio}]}"), want: []string{"authorization-gateway" + ap + "notServed"}},

	{name: "STRICT with a selector in the root namespace", objects: "kind: PeerAuthentication\nmetadata: {name: p, namespace: istio-system}\nspec: {selector: {matchLabels: {app: a}}, mtls: {mode: STRICT}}",
		want: []string{"peer-root-selector PeerAuthentication istio-system/p: accessCloses"}},
	{name: "PERMISSIVE with a selector in the root namespace", objects: rootStrict + "kind: PeerAuthentication\nmetadata: {name: p, namespace: istio-system}\nspec: {selector: {matchLabels: {app: a}}, mtls: {mode: PERMISSIVE}}",
		want: []string{"peer-root-selector PeerAuthentication istio-system/p: accessOpens"}},
	{name: "what is inherited anyhow", objects: rootStrict + "kind: PeerAuthentication\nmetadata: {name: p, namespace: istio-system}\nspec: {selector: {matchLabels: {app: a}}, mtls: {mode: STRICT}}"},
	{name: "an empty selector in the root namespace", objects: "kind: PeerAuthentication\nmetadata: {name: p, namespace: istio-system}\nspec: {selector: {}, mtls: {mode: STRICT}}",
		want: []string{"peer-root-empty-selector PeerAuthentication istio-system/p: accessCloses"}},
	{name: "an older empty selector beside a STRICT mesh", objects: rootStrict + "kind: PeerAuthentication\nmetadata: {name: p, namespace: istio-system, creationTimestamp: '2025-01-01T00:00:00Z'}\nspec: {selector: {}, mtls: {mode: PERMISSIVE}}",
		want: []string{"peer-root-empty-selector PeerAuthentication istio-system/p: accessOpens"}},
	{name: "an empty selector of a namespace", objects: "kind: PeerAuthentication\nmetadata: {name: p, namespace: shop}\nspec: {selector: {}, mtls: {mode: STRICT}}"},
	{name: "a DISABLE port under STRICT", objects: rootStrict + "kind: PeerAuthentication\nmetadata: {name: p, namespace: shop}\nspec: {selector: {matchLabels: {app: a}}, portLevelMtls: {8080: {mode: DISABLE}}}",
		want: []string{"peer-disabled-port" + pa + "accessOpens"}},
	{name: "a PERMISSIVE port under STRICT", objects: rootStrict + "kind: PeerAuthentication\nmetadata: {name: p, namespace: shop}\nspec: {selector: {matchLabels: {app: a}}, portLevelMtls: {8080: {mode: PERMISSIVE}}}"},
	{name: "DISABLE", objects: rootStrict + "kind: PeerAuthentication\nmetadata: {name: p, namespace: shop}\nspec: {selector: {matchLabels: {app: a}}, mtls: {mode: DISABLE}}", same: "peer-disable"},
	{name: "a STRICT port of a PERMISSIVE workload under a STRICT mesh", objects: rootStrict + "kind: PeerAuthentication\nmetadata: {name: p, namespace: shop}\nspec: {selector: {matchLabels: {app: a}}, mtls: {mode: PERMISSIVE}, portLevelMtls: {8080: {mode: STRICT}}}",
		want: []string{"peer-ports" + pa + "accessCloses"}},
	{name: "a STRICT port of a PERMISSIVE workload", objects: "kind: PeerAuthentication\nmetadata: {name: p, namespace: shop}\nspec: {selector: {matchLabels: {app: a}}, mtls: {mode: PERMISSIVE}, portLevelMtls: {8080: {mode: STRICT}}}"},
	{name: "an exempted port under a namespace without a mode in a STRICT mesh", objects: rootStrict + "kind: PeerAuthentication\nmetadata: {name: ns, namespace: shop}\nspec: {}\n---\nkind: PeerAuthentication\nmetadata: {name: p, namespace: shop}\nspec: {selector: {matchLabels: {app: a}}, portLevelMtls: {8080: {mode: PERMISSIVE}}}",
		want: []string{"peer-ports" + pa + "accessCloses"}},
	{name: "a STRICT workload with an exempted port", objects: "kind: PeerAuthentication\nmetadata: {name: p, namespace: shop}\nspec: {selector: {matchLabels: {app: a}}, mtls: {mode: STRICT}, portLevelMtls: {8080: {mode: DISABLE}, 9090: {mode: STRICT}}}"},

	{name: "a refused policy", change: func(c *Cluster) {
		c.Refused = []Refusal{{Object: Object{"AuthorizationPolicy", "shop", "p"}, Field: "spec.rules", Message: "no", Effect: "it denies all"}, {Object: Object{"ServiceEntry", "shop", "e"}, Message: "no"}}
	}, want: []string{"object-refused" + ap + "accessCloses", "object-refused ServiceEntry shop/e: routeChanges"}},

	{name: "another trust domain", change: mesh("trustDomain: acme.example\n"), want: []string{"meshconfig-trust-domain ConfigMap istio-system/istio: accessCloses refuses"}},
	{name: "another trust domain that this mesh has, too", change: func(c *Cluster) { mesh("trust_domain: acme.example\n")(c); c.Settings.TrustDomain = "acme.example" }},
	{name: "no trust domain, and another here", change: func(c *Cluster) { c.MeshConfigs[0].Mesh = ""; c.Settings.TrustDomain = "acme.example" }, want: []string{"meshconfig-trust-domain ConfigMap istio-system/istio: accessCloses refuses"}},
	{name: "another root namespace", change: mesh("rootNamespace: root\n"), want: []string{"meshconfig-root-namespace ConfigMap istio-system/istio: accessOpens refuses"}},
	{name: "namespaces that istiod does not look into", change: mesh("discoverySelectors: [{matchLabels: {mesh: 'yes'}}]\n"), objects: "kind: Namespace\nmetadata: {name: shop}", want: []string{"meshconfig-discovery-selectors ConfigMap istio-system/istio: accessCloses refuses"}},
	{name: "selectors that leave no namespace out", change: mesh("discoverySelectors: [{matchLabels: {mesh: 'yes'}}]\n"), objects: "kind: Namespace\nmetadata: {name: shop, labels: {mesh: 'yes'}}", want: []string{"meshconfig-discovery-selectors ConfigMap istio-system/istio: routeChanges"}},
	{name: "visibility by namespace", change: mesh("serviceEntryVisibility: {defaultVisibility: NAMESPACE, policies: [{visibility: PUBLIC, matchingRules: [{namespaceSelector: {matchLabels: {shared: 'yes'}}}]}]}\n"),
		objects: "kind: ServiceEntry\nmetadata: {name: e, namespace: shop}\nspec: {hosts: [a.example]}\n---\nkind: ServiceEntry\nmetadata: {name: e, namespace: common}\nspec: {hosts: [b.example]}\n---\nkind: Namespace\nmetadata: {name: common, labels: {shared: 'yes'}}\n---\nkind: ServiceEntry\nmetadata: {name: own, namespace: shop}\nspec: {hosts: [a.example], exportTo: [.]}",
		want:    []string{"entry-visibility ServiceEntry shop/e: accessOpens", "meshconfig-visibility ConfigMap istio-system/istio: accessOpens refuses"}},
	{name: "other sources", change: mesh("configSources: [{address: 'fs:///etc/istio/more'}]\n"), want: []string{"meshconfig-config-sources ConfigMap istio-system/istio: accessOpens refuses"}},
	{name: "the API server named as source", change: mesh("configSources: [{address: 'k8s://'}]\n")},
	{name: "scopes with several networks", change: env("AMBIENT_ENABLE_MULTI_NETWORK", "true"), want: []string{"istiod-variable Deployment istio-system/istiod: routeChanges", "meshconfig-scopes ConfigMap istio-system/istio: routeChanges"}},
	{name: "networks", change: func(c *Cluster) { c.MeshConfigs[0].Networks = "networks: {far: {}}" }, want: []string{"mesh-networks ConfigMap istio-system/istio: routeChanges"}},
	{name: "fields that waypoints of this mesh go by", same: "meshconfig-honoured",
		change: mesh("outboundTrafficPolicy: {mode: ALLOW_ANY}\naccessLogFile: /dev/stdout\naccess_log_encoding: JSON\npathNormalization: {normalization: BASE}\ntrustDomainAliases: [old]\nconnectTimeout: 3s\n")},
	{name: "a registry that nobody leaves", change: mesh("outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n"), want: []string{"meshconfig-outbound ConfigMap istio-system/istio: accessOpens"}},
	{name: "hosts that are resolved", change: mesh("outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}\n"), want: []string{"meshconfig-unserved ConfigMap istio-system/istio: notServed"}},
	{name: "fields that sidecars read", change: mesh("enableAutoMtls: false\ninboundTrafficPolicy: {mode: LOCALHOST}\nextensionProviders: [{name: z, zipkin: {service: z, port: 1}}]\n"),
		want: []string{"meshconfig-unserved ConfigMap istio-system/istio: notServed", "meshconfig-unserved ConfigMap istio-system/istio: notServed", "meshconfig-unserved ConfigMap istio-system/istio: notServed"}},
	{name: "roots of others", change: mesh("caCertificates: [{pem: x}]\n"), want: []string{"meshconfig-access ConfigMap istio-system/istio: accessCloses refuses"}},
	{name: "versions of TLS", change: mesh("meshMTLS: {minProtocolVersion: TLSV1_3}\ntlsDefaults: {minProtocolVersion: TLSV1_3}\n"),
		want: []string{"meshconfig-access ConfigMap istio-system/istio: accessOpens refuses", "meshconfig-access ConfigMap istio-system/istio: accessOpens refuses"}},
	{name: "a provider of decisions", change: mesh("extensionProviders: [{name: opa, envoyExtAuthzGrpc: {service: opa, port: 1}}]\n"), want: []string{"meshconfig-access ConfigMap istio-system/istio: accessCloses refuses"}},
	{name: "a field of a proxy's configuration", change: mesh("defaultConfig: {holdApplicationUntilProxyStarts: true}\n"), want: []string{"meshconfig-unserved ConfigMap istio-system/istio: notServed"}},
	{name: "a field that is not known", change: mesh("brandNew: 1\n"), want: []string{"meshconfig-unknown ConfigMap istio-system/istio: notServed"}},

	{name: "waypoints alone are admitted", change: env("PILOT_AUTO_ALLOW_WAYPOINT_POLICY", "true"), want: []string{"istiod-variable Deployment istio-system/istiod: accessOpens refuses"}},
	{name: "no ambient mode", change: func(c *Cluster) { delete(c.Control[0].Env, "PILOT_ENABLE_AMBIENT") }, want: []string{"istiod-variable Deployment istio-system/istiod: accessOpens refuses"}},
	{name: "ranges of one's own", change: env("PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", "100.64.0.0/16"), want: []string{"istiod-variable Deployment istio-system/istiod: routeChanges"}},
	{name: "a variable at its default", change: env("PILOT_ENABLE_IP_AUTOALLOCATE", "1")},
	{name: "another cluster's name", change: env("CLUSTER_ID", "east"), want: []string{"cluster-id Deployment istio-system/istiod: nameChanges"}},
	{name: "revocation lists", change: proxyEnv("CRL_PATH", "/crl.pem"), want: []string{"ztunnel-variable DaemonSet istio-system/ztunnel: accessOpens"}},
	{name: "a variable that proxies of both know", change: proxyEnv("KEEPALIVE_TIME", "60s"), want: []string{"ztunnel-variable DaemonSet istio-system/ztunnel: nameChanges"}},
	{name: "a variable that node proxies are given, too", change: func(c *Cluster) {
		proxyEnv("KEEPALIVE_TIME", "60s")(c)
		c.Settings.ProxyEnv = map[string]string{"KEEPALIVE_TIME": "60s"}
	}},

	{name: "an entry of its own namespace", objects: "kind: ServiceEntry\nmetadata: {name: e, namespace: shop}\nspec: {hosts: [a.example], exportTo: [.]}", want: []string{"entry-export-to ServiceEntry shop/e: routeChanges"}},
	{name: "an entry of everybody", objects: "kind: ServiceEntry\nmetadata: {name: e, namespace: shop}\nspec: {hosts: [a.example], exportTo: ['*']}"},
	{name: "a Service of its own namespace", objects: "kind: Service\nmetadata: {name: s, namespace: shop, annotations: {networking.istio.io/exportTo: .}}", want: []string{"service-export-to Service shop/s: routeChanges"}},
	{name: "an address out of range", objects: "kind: ServiceEntry\nmetadata: {name: e, namespace: shop}\nspec: {hosts: [a.example], resolution: DNS}\nstatus: {addresses: [{host: a.example, value: 100.64.0.1}, {host: a.example, value: '2001:2::1'}]}", want: []string{"entry-address ServiceEntry shop/e: routeChanges"}},
	{name: "addresses in range", objects: "kind: ServiceEntry\nmetadata: {name: e, namespace: shop}\nspec: {hosts: [a.example], resolution: DNS}\nstatus: {addresses: [{host: a.example, value: 240.240.0.1}]}", same: "entry-address-kept"},
	{name: "UDP alone", objects: "kind: Service\nmetadata: {name: statsd, namespace: shop}\nspec: {ports: [{port: 8125, protocol: UDP}]}", want: []string{"udp-ports Service: routeChanges"}},
	{name: "UDP beside TCP", objects: "kind: Service\nmetadata: {name: dns, namespace: kube-system}\nspec: {ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]}"},

	{name: "a waypoint", objects: "kind: Gateway\nmetadata: {name: w, namespace: shop}\nspec: {gatewayClassName: istio-waypoint}\nstatus: {addresses: [{value: 10.0.0.1}]}", want: []string{"gateway-waypoint Gateway shop/w: routeChanges"}},
	{name: "a waypoint without an address that nothing asks for", objects: addressless + "\n---\n" + webBehind("other") + "\n---\nkind: Pod\nmetadata: {name: web-1, namespace: shop, labels: {istio.io/use-waypoint: w}}",
		want: []string{"gateway-waypoint Gateway shop/w: routeChanges", "use-waypoint-unusable Service shop/web: accessCloses"}},
	{name: "a waypoint without an address that somebody may ask for", change: unread("pods"), objects: addressless, want: []string{"gateway-unready Gateway shop/w: accessCloses", "gateway-waypoint Gateway shop/w: routeChanges"}},
	{name: "a waypoint that could not be read", change: unread("gateways.gateway.networking.k8s.io"), objects: webBehind("w")},
	{name: "a waypoint whose class could not be read", change: unread("gatewayclasses.gateway.networking.k8s.io"), objects: webBehind("w")},
	{name: "a waypoint that may admit the namespace, which could not be read", change: unread("namespaces"), objects: webBehind("w")},
	{name: "a waypoint that is not there, beside what could not be read", change: unread("authorizationpolicies.security.istio.io"), objects: webBehind("w"), want: []string{"use-waypoint-unusable Service shop/web: accessCloses"}},
	{name: "a waypoint without an address", objects: addressless + "\n---\n" + webBehind("w"), want: []string{"gateway-unready Gateway shop/w: accessCloses", "gateway-waypoint Gateway shop/w: routeChanges"}},
	{name: "a waypoint without an address that has a Service", objects: addressless + "\n---\n" + webBehind("w") + "\n---\nkind: Service\nmetadata: {name: w, namespace: shop}",
		want: []string{"gateway-unready Gateway shop/w: accessCloses", "gateway-waypoint Gateway shop/w: routeChanges"}},
	{name: "a waypoint without an address that binds at once", change: atOnce, objects: addressless + "\n---\n" + webBehind("w"), want: []string{"gateway-waypoint Gateway shop/w: routeChanges"}},
	{name: "a waypoint without an address that has a Service and binds at once", change: atOnce, objects: addressless + "\n---\n" + webBehind("w") + "\n---\nkind: Service\nmetadata: {name: w, namespace: shop}",
		want: []string{"gateway-unready Gateway shop/w: routeChanges", "gateway-waypoint Gateway shop/w: routeChanges"}},
	{name: "a waypoint without an address that takes nothing", objects: strings.Replace(addressless, "namespace: shop", "namespace: shop, labels: {istio.io/waypoint-for: none}", 1), want: []string{"gateway-waypoint Gateway shop/w: routeChanges"}},
	// Behind a waypoint with an address and no ready pod, connections fail in both.
	{name: "a waypoint that is used", objects: addressed + "\n---\n" + webBehind("w"), want: []string{"gateway-waypoint Gateway shop/w: routeChanges"}},
	{name: "a waypoint that is not there", objects: webBehind("w"), want: []string{"use-waypoint-unusable Service shop/web: accessCloses"}},
	{name: "a waypoint that is not there and binds at once", change: atOnce, objects: webBehind("w")},
	{name: "a waypoint of another namespace that does not admit it", objects: strings.Replace(addressed, "namespace: shop", "namespace: bank", 1) + "\n---\n" + webBehind("w, istio.io/use-waypoint-namespace: bank"),
		want: []string{"gateway-waypoint Gateway bank/w: routeChanges", "use-waypoint-unusable Service shop/web: accessCloses"}},
	{name: "a namespace's waypoint that is not there", objects: "kind: Namespace\nmetadata: {name: shop, labels: {istio.io/use-waypoint: w}}\n---\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {ports: [{port: 80}]}\n---\n" +
		"kind: Service\nmetadata: {name: db, namespace: shop}\nspec: {ports: [{port: 80}]}\n---\nkind: Pod\nmetadata: {name: web-1, namespace: shop}", want: []string{"use-waypoint-unusable Namespace shop: accessCloses"}},
	{name: "a pod's own waypoint that is not there", objects: "kind: Pod\nmetadata: {name: web-1, namespace: shop, labels: {istio.io/use-waypoint: w}}\n---\nkind: Pod\nmetadata: {name: web-2, namespace: shop, labels: {istio.io/use-waypoint: w}}",
		want: []string{"use-waypoint-unusable Pod shop: accessCloses"}},
	{name: "a waypoint that takes other traffic", objects: addressed + "\n---\nkind: Pod\nmetadata: {name: web-1, namespace: shop, labels: {istio.io/use-waypoint: w}}", want: []string{"gateway-waypoint Gateway shop/w: routeChanges"}},
	{name: "a gateway by its controller", objects: "kind: Gateway\nmetadata: {name: g, namespace: shop}\nspec: {gatewayClassName: ours}\n---\nkind: GatewayClass\nmetadata: {name: ours}\nspec: {controllerName: istio.io/gateway-controller}", want: []string{"gateway-ingress Gateway shop/g: notServed"}},
	{name: "somebody else's gateway", objects: "kind: Gateway\nmetadata: {name: g, namespace: shop}\nspec: {gatewayClassName: nginx}"},
	{name: "an entrance for other clusters", objects: "kind: Gateway\nmetadata: {name: g, namespace: shop}\nspec: {gatewayClassName: istio-east-west}", want: []string{"gateway-network Gateway shop/g: notServed"}},
	{name: "use-waypoint without a name", objects: "kind: Service\nmetadata: {name: s, namespace: shop, labels: {istio.io/use-waypoint: ''}}", same: "use-waypoint-empty"},

	{name: "injection", objects: "kind: Namespace\nmetadata: {name: shop, labels: {istio-injection: enabled}}", want: []string{"namespace-injection Namespace shop: accessOpens"}},
	{name: "a revision, and ambient", objects: "kind: Namespace\nmetadata: {name: shop, labels: {istio.io/rev: stable, istio.io/dataplane-mode: ambient}}"},
	{name: "a pod with a sidecar", objects: "kind: Namespace\nmetadata: {name: shop}\n---\nkind: Pod\nmetadata: {name: a, namespace: shop, annotations: {sidecar.istio.io/status: '{}'}}", want: []string{"namespace-injection Namespace shop: accessOpens", "pod-sidecar Namespace shop: notServed"}},
	{name: "a pod with a sidecar in an ambient namespace", objects: "kind: Namespace\nmetadata: {name: shop, labels: {istio.io/dataplane-mode: ambient}}\n---\nkind: Pod\nmetadata: {name: a, namespace: shop, annotations: {sidecar.istio.io/status: '{}'}}",
		want: []string{"pod-sidecar Namespace shop: notServed", "pod-sidecar-captured Namespace shop: accessCloses"}},
	{name: "captured by another selector", objects: "kind: Pod\nmetadata: {name: a, namespace: shop, annotations: {ambient.istio.io/redirection: enabled}}", want: []string{"pod-leaves Namespace shop: accessOpens"}},
	{name: "labelled and not captured", objects: "kind: Pod\nmetadata: {name: a, namespace: shop, labels: {istio.io/dataplane-mode: ambient}}\nstatus: {phase: Running}", want: []string{"pod-joins Namespace shop: accessCloses"}},
	{name: "on the node's network", objects: "kind: Pod\nmetadata: {name: a, namespace: shop, labels: {istio.io/dataplane-mode: ambient}}\nspec: {hostNetwork: true}\nstatus: {phase: Running}"},
	{name: "static and captured", objects: "kind: Pod\nmetadata: {name: a, namespace: shop, labels: {istio.io/dataplane-mode: ambient}, annotations: {ambient.istio.io/redirection: enabled, kubernetes.io/config.mirror: x}}\nstatus: {phase: Running}", want: []string{"pod-static Namespace shop: accessOpens"}},
	{name: "static and not captured", objects: "kind: Pod\nmetadata: {name: a, namespace: shop, labels: {istio.io/dataplane-mode: ambient}, annotations: {kubernetes.io/config.mirror: x}}\nstatus: {phase: Running}"},
	{name: "captured by its label", objects: "kind: Pod\nmetadata: {name: a, namespace: shop, labels: {istio.io/dataplane-mode: ambient}, annotations: {ambient.istio.io/redirection: enabled}}\nstatus: {phase: Running}"},

	{name: "kinds that nobody acts on", change: func(c *Cluster) {
		c.Unserved = []Object{{"VirtualService", "shop", "a"}, {"VirtualService", "shop", "b"}, {"Telemetry", "shop", "t"}}
	}, want: []string{"kind-unserved Telemetry: notServed", "kind-unserved VirtualService: notServed"}},
	{name: "tokens", change: func(c *Cluster) { c.Unserved = []Object{{"RequestAuthentication", "shop", "a"}} }, want: []string{"request-authentication RequestAuthentication: accessCloses"}},
	{name: "another cluster", change: func(c *Cluster) { c.RemoteClusters = []Object{{"Secret", "istio-system", "east"}} }, want: []string{"remote-cluster Secret istio-system/east: routeChanges"}},
}

func TestDifferences(t *testing.T) {
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			c := standard()
			if x.objects != "" {
				with(t, c, x.objects)
			}
			if x.change != nil {
				x.change(c)
			}
			r := Compare(c)
			if got := lines(r); !slices.Equal(got, x.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(x.want, "\n  "))
			}
			if !slices.Equal(r.Unread, c.Unread) {
				t.Errorf("not judged: %v", r.Unread)
			}
			for _, d := range r.Differences {
				if d.Today == "" || d.Then == "" || d.Today == d.Then {
					t.Errorf("%s: today %q, then %q", line(d), d.Today, d.Then)
				}
				rule := ruleNamed(d.Rule)
				if !slices.Contains(rule.Severities, d.Severity) {
					t.Errorf("%s: the page says of the rule %v", line(d), rule.Severities)
				}
				if d.Refuses && !rule.Refuses && d.Rule != ofIstiod {
					t.Errorf("%s: the page does not say that it refuses", line(d))
				}
			}
		})
	}
}

// A rule that no case gives would be on the page and in no report.
func TestEveryRuleHasACase(t *testing.T) {
	for _, r := range Rules {
		covered := slices.ContainsFunc(cases, func(x struct {
			name    string
			objects string
			change  func(*Cluster)
			want    []string
			same    string
		}) bool {
			return x.same == r.ID || slices.ContainsFunc(x.want, func(w string) bool { return strings.HasPrefix(w, r.ID+" ") })
		})
		if !covered {
			t.Errorf("rule %s has no case", r.ID)
		}
	}
}

func TestAnImagesTagThatNamesNoVersionIsNone(t *testing.T) {
	for image, want := range map[string]int{"ztunnel:1.28.3": 28, "registry:5000/istio/ztunnel:1.29-alpha": 29, "ztunnel:1.x": -1, "ztunnel:1.": -1, "ztunnel": -1, "": -1} {
		minor, known := istioMinor(image)
		if known != (want >= 0) || known && minor != want {
			t.Errorf("%q: %d, %v", image, minor, known)
		}
	}
}

// Waypoints are deployed and configured by this mesh: no text may say of what they read that Istio's go on with it.
func TestNoRuleSaysThatIstiosWaypointsGoOn(t *testing.T) {
	for _, r := range Rules {
		if strings.Contains(r.Then, "waypoints, sidecars") || strings.Contains(r.Then, "Istio's waypoints") {
			t.Errorf("%s: %s", r.ID, r.Then)
		}
	}
}
