package meaning

// Rule is one way in which something means something else here, or in which it means the same although one may doubt it. The reference page
// about the take-over is made of Rules.
type Rule struct {
	ID string
	// On is the kind of object and the field.
	On string
	// Today is what Istio's ambient mode does, Then what this mesh does.
	Today, Then string
	// Severities are those that a difference can have; none says that both mean the same.
	Severities []Severity
	// Keep are the lines that keep today's meaning where the object does not matter for them, and Advice says it on the page where it does.
	Keep   []string
	Advice string
	// Refuses says that the take-over is refused until the difference is gone or accepted.
	Refuses bool
}

const (
	unservedToday = "waypoints, sidecars and gateways of Istio act on it"
	unservedThen  = "waypoints of this mesh do not read it; sidecars and gateways of Istio go on with what istiod told them last, and a pod of theirs that starts anew gets no configuration"
)

func sev(s ...Severity) []Severity { return s }

// Rules are all rules, in the order of the page.
var Rules = []Rule{
	{ID: "authorization-empty-selector", On: "AuthorizationPolicy, `spec.selector: {}`", Severities: sev(AccessOpens, AccessCloses),
		Today: "it is attached to no workload, so it has no effect", Then: "it holds for all workloads of its namespace; in the root namespace, of the mesh", Advice: "give it a selector that chooses nothing, or delete it"},
	{ID: "authorization-empty-labels", On: "AuthorizationPolicy, `spec.selector: {matchLabels: {}}`", Today: "it holds for all workloads of its namespace; in the root namespace, of the mesh", Then: "the same"},
	{ID: "authorization-root-selector", On: "AuthorizationPolicy of the root namespace with a selector", Today: "it holds for the workloads of all namespaces that it selects", Then: "the same"},
	{ID: "authorization-trust-domains", On: "AuthorizationPolicy, `source.trustDomains` and `notTrustDomains`", Severities: sev(AccessOpens, AccessCloses),
		Today: "the ztunnels pass over it", Then: "the node proxies judge it by the trust domain of the peer's identity", Advice: "remove the field; or the source, if nothing else is in it"},
	{ID: "authorization-when-trust-domain", On: "AuthorizationPolicy, `when` with key `source.trustDomain`", Severities: sev(AccessOpens, AccessCloses),
		Today: "an ALLOW rule with it is dropped, a DENY rule denies nothing", Then: "the node proxies judge it", Advice: "remove the rule"},
	{ID: "authorization-when-service-account", On: "AuthorizationPolicy, `when` with key `source.serviceAccount`", Severities: sev(AccessOpens, AccessCloses),
		Today: "an ALLOW rule with it is dropped, a DENY rule denies nothing", Then: "the node proxies judge it", Advice: "remove the rule"},
	{ID: "authorization-principals", On: "AuthorizationPolicy, principals that name `cluster.local` in a mesh of another trust domain, or one of `mesh.trustDomainAliases`", Severities: sev(AccessOpens, AccessCloses),
		Today: "the ztunnels compare the text: it means peers of that very name", Then: "it means the mesh's own peers as well", Keep: []string{"# remove it, unless it should mean them"}},
	{ID: "authorization-deny-http", On: "AuthorizationPolicy, DENY rules with methods, paths, hosts, request principals or headers", Today: "the ztunnels enforce the rule without them; what keeps no other attribute denies nothing", Then: "the same"},
	{ID: "authorization-audit-custom", On: "AuthorizationPolicy, actions AUDIT and CUSTOM without `targetRefs`", Today: "the ztunnels do not enforce it", Then: "the same"},
	{ID: "authorization-dry-run", On: "AuthorizationPolicy, annotation `istio.io/dry-run: \"true\"`", Severities: sev(NameChanges),
		Today: "istiod does not send it to ztunnels", Then: "nothing is enforced; the node proxies log and count what it would decide", Keep: []string{"# delete the policy"}},
	{ID: "authorization-dry-run-enforced", On: "the same, with ztunnels before 1.29", Severities: sev(AccessCloses),
		Today: "istiod does not send it to ztunnels", Then: "from the change of control planes until the ztunnels are gone they enforce it", Keep: []string{"# delete the policy until Istio is gone"}},
	{ID: "authorization-gateway", On: "AuthorizationPolicy, `spec.targetRefs` with a Gateway or a class that is no waypoint's", Severities: sev(NotServed),
		Today: "a gateway of Istio enforces it", Then: "that gateway goes on with what istiod told it last: a change of the policy has no effect, and node proxies do not enforce it",
		Keep: []string{"# for attributes of connections, replace spec.targetRefs:", "spec:", "  selector: {matchLabels: {app: WORKLOAD}}"}},
	{ID: "authorization-waypoint", On: "AuthorizationPolicy, `spec.targetRefs` with Services and waypoints", Today: "waypoints enforce it", Then: "the same, of the waypoints that this mesh runs"},
	{ID: "request-authentication", On: "RequestAuthentication", Severities: sev(AccessCloses),
		Today: "waypoints, sidecars and gateways of Istio verify tokens by it", Then: "waypoints of this mesh verify no tokens yet: they refuse a request with a token where a rule looks for it",
		Keep: []string{}},

	{ID: "peer-root-selector", On: "PeerAuthentication of the root namespace with a selector", Severities: sev(AccessOpens, AccessCloses),
		Today: "ambient mode passes over it", Then: "the pods of the root namespace that it selects obey it", Advice: "give it a selector that chooses nothing, or delete it"},
	{ID: "peer-root-empty-selector", On: "PeerAuthentication of the root namespace, `spec.selector: {}`", Severities: sev(AccessOpens, AccessCloses),
		Today: "it holds for the root namespace alone", Then: "it is the mesh's", Advice: "give it a selector that chooses nothing, or delete it"},
	{ID: "peer-disabled-port", On: "PeerAuthentication with a selector and no mode, a port with `DISABLE` under an inherited `STRICT`", Severities: sev(AccessOpens, AccessCloses),
		Today: "the port refuses plaintext like all others", Then: "the port accepts plaintext", Advice: "write the modes that hold today; the list has them"},
	{ID: "peer-ports", On: "PeerAuthentication with a selector and `portLevelMtls`, where istiod's two readings of it disagree", Severities: sev(AccessOpens, AccessCloses),
		Today: "the workloads name a policy that istiod does not write, and ports that should refuse plaintext accept it", Then: "each port has the mode that is written, or inherited", Advice: "write the modes that hold today; the list has them"},
	{ID: "peer-disable", On: "PeerAuthentication, `mtls.mode: DISABLE`", Today: "the ztunnels treat it as PERMISSIVE", Then: "the same"},

	{ID: "object-refused", On: "any object that this mesh refuses as it is written", Severities: sev(AccessCloses, RouteChanges),
		Today: "istiod takes it, or leaves out what it cannot read", Then: "it is refused, and its condition says why; a policy is in force in its strictest reading", Advice: "correct the field that is named"},

	{ID: "meshconfig-trust-domain", On: "MeshConfig `trustDomain`, other than `mesh.trustDomain`", Severities: sev(AccessCloses), Refuses: true,
		Today: "identities are of this trust domain", Then: "identities are of another, which no policy means", Advice: "`--set mesh.trustDomain=VALUE`"},
	{ID: "meshconfig-root-namespace", On: "MeshConfig `rootNamespace`, other than `mesh.rootNamespace`", Severities: sev(AccessOpens), Refuses: true,
		Today: "policies of this namespace hold for the whole mesh", Then: "those of another namespace do", Advice: "`--set mesh.rootNamespace=VALUE`"},
	{ID: "meshconfig-discovery-selectors", On: "MeshConfig `discoverySelectors`", Severities: sev(AccessCloses, RouteChanges), Refuses: true,
		Today: "istiod does not look into these namespaces: their policies hold for nobody, and their Services are not of the mesh", Then: "all namespaces are looked into, and their policies hold",
		Keep: []string{"# delete the mesh's objects of these namespaces, and on each namespace:", "metadata:", "  labels: {istio.io/dataplane-mode: none}"}},
	{ID: "meshconfig-visibility", On: "MeshConfig `serviceEntryVisibility`", Severities: sev(AccessOpens), Refuses: true,
		Today: "it says which namespaces see the hosts of a ServiceEntry", Then: "spec.exportTo of each entry says it, and an entry without one is seen everywhere",
		Keep: []string{"# on each ServiceEntry that is kept to its namespace:", "spec:", "  exportTo: [\".\"]"}},
	{ID: "meshconfig-config-sources", On: "MeshConfig `configSources`", Severities: sev(AccessOpens), Refuses: true,
		Today: "istiod reads objects, policies among them, from other sources than the API server", Then: "the API server is read alone", Keep: []string{"# apply those objects to the cluster"}},
	{ID: "meshconfig-scopes", On: "MeshConfig `serviceScopeConfigs`, with several networks", Severities: sev(RouteChanges),
		Today: "it says which Services other clusters reach", Then: "each cluster has its own Services alone", Keep: []string{}},
	{ID: "mesh-networks", On: "`meshNetworks` beside the MeshConfig", Severities: sev(RouteChanges),
		Today: "it says how other networks are reached", Then: "Gateways of class istio-remote with label topology.istio.io/network say it", Keep: []string{"# a Gateway of class istio-remote for each network"}},
	{ID: "meshconfig-access", On: "MeshConfig `caCertificates`, `meshMTLS`, `tlsDefaults`, and `extensionProviders` that decide about requests", Severities: sev(AccessCloses, AccessOpens), Refuses: true,
		Today: "proxies of Istio admit peers or requests by it", Then: "no proxy goes by it: peers are admitted by the mesh's own root and TLS of at least 1.2, and waypoints of this mesh refuse requests for which a CUSTOM policy matches",
		Keep: []string{"# none: accept the difference by the field's name"}},
	{ID: "meshconfig-outbound", On: "MeshConfig `outboundTrafficPolicy`, `mode: REGISTRY_ONLY`", Severities: sev(AccessOpens),
		Today: "sidecars of Istio refuse connections to hosts that the mesh does not know; ztunnels let them pass", Then: "no proxy of this mesh refuses them: a pod whose sidecar goes reaches every host",
		Keep: []string{"# a NetworkPolicy with policyTypes [Egress] for the pods that are to reach known destinations alone"}},
	{ID: "meshconfig-honoured", On: "MeshConfig `accessLogEncoding`, `accessLogFile`, `accessLogFormat`, `connectTimeout`, `defaultHttpRetryPolicy`, `pathNormalization`, `trustDomainAliases`",
		Today: "waypoints go by it", Then: "the same, of the waypoints that this mesh runs, for as long as the ConfigMap is there"},
	{ID: "meshconfig-unserved", On: "all other fields of MeshConfig, with another value than Istio's own", Severities: sev(NotServed), Today: unservedToday, Then: unservedThen, Keep: []string{}},
	{ID: "meshconfig-unknown", On: "a field of MeshConfig that this program does not know", Severities: sev(NotServed),
		Today: "a newer Istio acts on it", Then: "nobody acts on it; see in Istio's documentation what it decides", Keep: []string{}},

	{ID: "istiod-variable", On: "istiod's environment: the variables below", Severities: sev(AccessOpens, AccessCloses, RouteChanges, NotServed, NameChanges), Today: "istiod goes by it", Then: "this mesh has no such setting", Keep: []string{}},
	{ID: "cluster-id", On: "istiod's environment, `CLUSTER_ID`, other than `mesh.clusterID`", Severities: sev(NameChanges),
		Today: "workloads' ids and telemetry name this cluster", Then: "they name another", Advice: "`--set mesh.clusterID=VALUE`"},
	{ID: "ztunnel-variable", On: "ztunnel's environment: the variables below", Severities: sev(AccessOpens, AccessCloses, RouteChanges, NameChanges), Today: "the ztunnels go by it", Then: "the node proxies do not", Keep: []string{}},

	{ID: "entry-visibility", On: "ServiceEntry that `serviceEntryVisibility` keeps to its namespace, or from everybody", Severities: sev(AccessOpens),
		Today: "clients of its namespace alone see it, or nobody", Then: "spec.exportTo says who sees it", Advice: "`exportTo: [\".\"]`, or `[\"~\"]`"},
	{ID: "entry-export-to", On: "ServiceEntry, `spec.exportTo` with `.` or `~` alone", Severities: sev(RouteChanges),
		Today: "ambient mode does not look at it: clients of all namespaces see the entry", Then: "clients of its namespace see the entry, or nobody; others resolve its hosts as without it", Advice: "`exportTo: [\"*\"]`"},
	{ID: "service-export-to", On: "Service, annotation `networking.istio.io/exportTo` with `.` or `~` alone", Severities: sev(RouteChanges),
		Today: "ambient mode does not look at it: clients of all namespaces see the Service", Then: "clients of its namespace see it in the mesh, or nobody; for others it is no part of the mesh",
		Keep: []string{"metadata:", "  annotations: {networking.istio.io/exportTo: \"*\"}"}},
	{ID: "entry-address", On: "ServiceEntry, `status.addresses` out of 240.240.0.0/16 and 2001:2::/48", Severities: sev(RouteChanges),
		Today: "its hosts have these virtual addresses", Then: "they get others; clients that keep the old ones reach nobody", Advice: "write the addresses into `spec.addresses`"},
	{ID: "entry-address-kept", On: "ServiceEntry, `status.addresses` within these ranges", Today: "its hosts have these virtual addresses", Then: "the same, if they are free"},
	{ID: "udp-ports", On: "Service and ServiceEntry, ports with UDP alone", Severities: sev(RouteChanges),
		Today: "ztunnels carry TCP connections to them", Then: "TCP connections to them pass by the mesh; UDP does so in both", Keep: []string{"# a port with protocol TCP of the same number, if anybody uses it"}},

	{ID: "gateway-waypoint", On: "Gateway of Istio's class for waypoints", Severities: sev(RouteChanges),
		Today: "istiod makes and configures its pods", Then: "once istiod is gone the deployer adopts what istiod made for it and replaces its pods by this mesh's, unless the values `deployer.enabled` or `deployer.namespaces` leave it out", Keep: []string{"# to do without it: metadata.labels istio.io/use-waypoint: none on what uses it"}},
	{ID: "gateway-unready", On: "Gateway of Istio's class for waypoints without `status.addresses` that something asks for", Severities: sev(AccessCloses, RouteChanges),
		Today:  "the waypoint counts as not ready, and connections go without it",
		Then:   "connections to what asks for it go through it, and are refused until its proxies have acknowledged; with `waypoint.bind: at-once` they go through it once it has a Service",
		Advice: "the Gateway's label `istio.io/waypoint-for: none`"},
	{ID: "use-waypoint-unusable", On: "label `istio.io/use-waypoint` with a waypoint that is not there, or that does not admit the namespace", Severities: sev(AccessCloses),
		Today: "connections go without a waypoint", Then: "connections are refused until the waypoint can be used; with `waypoint.bind: at-once` they go without it",
		Keep: []string{"metadata:", "  labels: {istio.io/use-waypoint: none}"}},
	{ID: "gateway-ingress", On: "Gateway of class `istio`", Severities: sev(NotServed),
		Today: "istiod makes and configures its pods", Then: "its pods go on with what istiod told them last, and new ones get no configuration", Keep: []string{}},
	{ID: "gateway-network", On: "Gateway of class `istio-east-west`", Severities: sev(NotServed),
		Today: "it is an entrance to this network for other clusters", Then: "its pods go on with what istiod told them last; this mesh has no such entrances", Keep: []string{}},
	{ID: "use-waypoint-empty", On: "label `istio.io/use-waypoint: \"\"`", Today: "it ends the search for a waypoint: none is used", Then: "the same"},

	{ID: "namespace-injection", On: "Namespace with `istio-injection: enabled`, `istio.io/rev` or pods with sidecars, and not ambient", Severities: sev(AccessOpens),
		Today: "new pods get a sidecar, which enforces policies", Then: "new pods get none and are not captured: nobody enforces policies for them, and what they send is plaintext"},
	{ID: "pod-sidecar", On: "pods with a sidecar (annotation `sidecar.istio.io/status`)", Severities: sev(NotServed),
		Today: "istiod configures their sidecars", Then: "the sidecars go on with what istiod told them last; their certificates are renewed",
		Keep: []string{"# start the pods anew without sidecars, in ambient mode, before the take-over"}},
	{ID: "pod-sidecar-captured", On: "pods with a sidecar that are labelled `ambient`, or whose namespace is", Severities: sev(AccessCloses),
		Today: "istio-cni leaves a pod with a sidecar alone", Then: "the agent captures it, and two proxies take the same connections",
		Keep: []string{"# in the pods' template:", "metadata:", "  labels: {istio.io/dataplane-mode: none}"}},
	{ID: "pod-leaves", On: "pods that Istio captured by other selectors than the label", Severities: sev(AccessOpens),
		Today: "ztunnels enforce policies for them", Then: "they are released: nobody enforces policies for them, and what they send is plaintext", Keep: captured},
	{ID: "pod-static", On: "static pods that Istio captured", Severities: sev(AccessOpens),
		Today: "ztunnels enforce policies for them", Then: "they are released, since this mesh gives static pods no identity: nobody enforces policies for them, and what they send is plaintext", Keep: []string{"# run it by a DaemonSet, or another object of the API server"}},
	{ID: "pod-joins", On: "running pods with the label that Istio has not captured", Severities: sev(AccessCloses),
		Today: "they are outside the mesh", Then: "they are captured: policies and PeerAuthentications hold for them", Keep: []string{"# in the pods' template:", "metadata:", "  labels: {istio.io/dataplane-mode: none}"}},

	{ID: "kind-unserved", On: "VirtualService, DestinationRule, Gateway (Istio's), Sidecar, EnvoyFilter, WasmPlugin, TrafficExtension, Telemetry, ProxyConfig, WorkloadGroup, and routes of the Gateway API", Severities: sev(NotServed),
		Today: unservedToday, Then: unservedThen, Keep: []string{}},
	{ID: "remote-cluster", On: "Secret with label `istio/multiCluster: \"true\"`", Severities: sev(RouteChanges),
		Today: "istiod knows the workloads of another cluster by it", Then: "this cluster's are known alone", Keep: []string{}},
}

func ruleNamed(id string) Rule {
	for _, r := range Rules {
		if r.ID == id {
			return r
		}
	}
	panic("meaning: there is no rule " + id) // a test has every rule given
}

// Variable is a row of the page about variables.
type Variable struct {
	Of, Name, Today, Then string
	Severity              Severity
	Refuses               bool
}

// Variables are those of istiod and of ztunnels that are judged, by name.
func Variables() []Variable {
	var all []Variable
	for _, of := range []struct {
		name  string
		known map[string]variable
	}{{"istiod", istiodVariables}, {"ztunnel", ztunnelVariables}} {
		for _, name := range sortedKeys(of.known) {
			v := of.known[name]
			all = append(all, Variable{Of: of.name, Name: name, Today: v.today, Then: v.then, Severity: v.severity, Refuses: v.refuses})
		}
	}
	return all
}

// Adopted are variables of ztunnels that the node proxies know by the same name.
func Adopted() []string { return adopted }
