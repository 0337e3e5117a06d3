package meaning

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// variable is one of istiod's that alters what objects mean.
type variable struct {
	// standard is istiod's own default in ambient mode; with it nothing changes.
	standard    string
	severity    Severity
	refuses     bool
	today, then string
	keep        []string
}

// istiodVariables are those that this mesh does not have, by name. Those of waypoints, sidecars and gateways alone are none of them.
var istiodVariables = map[string]variable{
	"PILOT_ENABLE_AMBIENT": {standard: "true", severity: AccessOpens, refuses: true,
		today: "ambient mode is off: pods are protected by sidecars alone", then: "sidecars are configured by nobody, and new pods get none"},
	"PILOT_AUTO_ALLOW_WAYPOINT_POLICY": {standard: "false", severity: AccessOpens, refuses: true,
		today: "a workload behind a waypoint accepts connections from the waypoint alone, where no ALLOW policy says otherwise", then: "it accepts them from anybody, also past the waypoint",
		keep: []string{"# an AuthorizationPolicy for each such workload", "spec:", "  selector: {matchLabels: {app: WORKLOAD}}", "  rules:", "  - from:", "    - source: {serviceAccounts: [NAMESPACE/WAYPOINT]}"}},
	"PILOT_ENABLE_IP_AUTOALLOCATE": {standard: "true", severity: RouteChanges,
		today: "ServiceEntries without spec.addresses get no virtual address", then: "they get one, and clients that resolve their hosts connect to it",
		keep: []string{"metadata:", "  labels: {networking.istio.io/enable-autoallocate-ip: \"false\"}"}},
	"PILOT_ENABLE_SERVICEENTRY_SELECT_PODS": {standard: "true", severity: RouteChanges,
		today: "a ServiceEntry with a workloadSelector chooses no pods", then: "it chooses them"},
	"PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES": {standard: "true", severity: RouteChanges,
		today: "a Service chooses no WorkloadEntries", then: "it chooses them"},
	"AMBIENT_ENABLE_MULTI_NETWORK": {standard: "false", severity: RouteChanges,
		today: "Services of other clusters and networks are reached through their gateways", then: "those of this cluster alone are known"},
	"ISTIO_WATCH_NAMESPACE": {severity: AccessCloses, refuses: true,
		today: "istiod looks into one namespace", then: "objects of all namespaces are in force"},
	"PILOT_IGNORE_RESOURCES": {severity: AccessCloses, refuses: true,
		today: "istiod passes over objects of the named kinds", then: "they are in force"},
	"PILOT_INCLUDE_RESOURCES": {severity: AccessCloses, refuses: true,
		today: "istiod reads objects of the named kinds although others are passed over", then: "all kinds that this mesh knows are read"},
	"ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES": {standard: "false", severity: NotServed,
		today: "waypoints enforce policies with a selector as well", then: "no control plane configures Istio's waypoints any more"},
	"MAX_WORKLOAD_CERT_TTL": {standard: "2160h0m0s", severity: NameChanges,
		today: "certificates live no longer than this", then: "they live as long as control.certificates.ttl says", keep: []string{"--set control.certificates.ttl=VALUE"}},
	"SHARED_MESH_CONFIG": {severity: RouteChanges,
		today: "a second ConfigMap has settings of the mesh", then: "it is not read, and its fields are not judged here"},
}

// ztunnelVariables are those whose other value takes something from the mesh that access depends on.
var ztunnelVariables = map[string]variable{
	"CRL_PATH": {severity: AccessOpens,
		today: "peers with a revoked certificate are refused", then: "they are accepted: the chart mounts no revocation lists into the node proxy"},
	"TLS12_ENABLED":              {standard: "false", severity: AccessCloses, today: "peers with TLS 1.2 are accepted", then: "they are refused: TLS 1.3 alone is spoken"},
	"ENABLE_ORIG_SRC":            {standard: "true", severity: NameChanges, today: "applications see the proxy's address", then: "they see the client's"},
	"UNSTABLE_ENABLE_SOCKS5":     {standard: "false", severity: RouteChanges, today: "ztunnels offer SOCKS5", then: "nobody does"},
	"PROXY_MODE":                 {standard: "shared", severity: RouteChanges, today: "a ztunnel serves one workload", then: "a node proxy serves all pods of its node"},
	"ENABLE_PROXY":               {standard: "true", severity: RouteChanges, today: "ztunnels answer DNS alone", then: "node proxies carry connections"},
	"ISTIO_META_DNS_CAPTURE":     {standard: "true", severity: RouteChanges, today: "ztunnels answer no DNS questions", then: "node proxies do", keep: []string{"--set agent.dnsCapture=false"}},
	"PROXY_CONFIG":               {severity: NameChanges, today: "it has settings of the ztunnels", then: "it is not read; the settings have variables of their own"},
	"COMPLIANCE_POLICY":          {severity: NameChanges, today: "it restricts how tunnels are encrypted", then: "no restriction but TLS 1.3", keep: []string{"--set node.env.COMPLIANCE_POLICY=VALUE"}},
	"XDS_ON_DEMAND":              {standard: "false", severity: NameChanges, today: "ztunnels ask for what they need", then: "node proxies are told of all", keep: []string{"--set node.env.XDS_ON_DEMAND=VALUE"}},
	"IPV6_ENABLED":               {standard: "true", severity: RouteChanges, today: "pods' IPv6 is not served", then: "it is", keep: []string{"--set node.env.IPV6_ENABLED=VALUE"}},
	"NETWORK":                    {severity: RouteChanges, today: "the nodes are on a network with a name", then: "they are on that of mesh.network", keep: []string{"--set mesh.network=VALUE"}},
	"PREFERED_SERVICE_NAMESPACE": {severity: RouteChanges, today: "the named namespace's service is preferred where several declare a host", then: "none is", keep: []string{"--set node.env.PREFERED_SERVICE_NAMESPACE=VALUE"}},
}

// adopted are variables of ztunnels that the node proxies know by the same name and form; a user who set one most likely wants it kept.
var adopted = []string{
	"SECRET_TTL", "POOL_MAX_STREAMS_PER_CONNECTION", "POOL_UNUSED_RELEASE_TIMEOUT", "HTTP2_STREAM_WINDOW_SIZE", "HTTP2_CONNECTION_WINDOW_SIZE", "HTTP2_FRAME_SIZE",
	"CONNECTION_TERMINATION_DEADLINE", "KEEPALIVE_ENABLED", "KEEPALIVE_TIME", "KEEPALIVE_INTERVAL", "KEEPALIVE_RETRIES", "USER_TIMEOUT_ENABLED", "ZTUNNEL_WORKER_THREADS",
}

// controlEnv says whether a switch of istiod is on anywhere.
func (c *comparison) controlEnv(name string) bool {
	return slices.ContainsFunc(c.Control, func(p Program) bool {
		on, err := strconv.ParseBool(p.Env[name])
		return err == nil && on
	})
}

// The rules of variables.
const (
	ofIstiod  = "istiod-variable"
	ofZtunnel = "ztunnel-variable"
)

// environments compares the environment variables of istiods and ztunnels with what this mesh does.
type environments struct {
	control, proxies []Program
	settings         Settings
	report           *Report
}

func (e environments) compare() {
	for _, p := range e.control {
		e.hidden(p, istiodVariables)
		// Off is its own default, beside which it has no other.
		if _, hidden := p.Hidden["PILOT_ENABLE_AMBIENT"]; !hidden && p.Env["PILOT_ENABLE_AMBIENT"] == "" {
			e.variable(ofIstiod, p, "PILOT_ENABLE_AMBIENT", "", istiodVariables["PILOT_ENABLE_AMBIENT"])
		}
		for _, name := range slices.Sorted(maps.Keys(p.Env)) {
			if v, known := istiodVariables[name]; known && !means(p.Env[name], v.standard) {
				e.variable(ofIstiod, p, name, p.Env[name], v)
			}
		}
		if id := p.Env["CLUSTER_ID"]; id != "" && id != e.settings.ClusterID {
			e.report.add("cluster-id", Difference{Object: p.Object, Field: "env.CLUSTER_ID", Today: "workloads' ids and telemetry name cluster " + id,
				Then: "they name cluster " + e.settings.ClusterID, Keep: []string{"--set mesh.clusterID=" + id}})
		}
		e.ranges(p)
	}
	for _, p := range e.proxies {
		e.hidden(p, ztunnelVariables)
		for _, name := range slices.Sorted(maps.Keys(p.Env)) {
			e.proxyVariable(p, name, p.Env[name])
		}
	}
}

// hidden says which variables that matter have a value that is not to be seen.
func (e environments) hidden(p Program, known map[string]variable) {
	for name, where := range p.Hidden {
		if _, matters := known[name]; matters {
			e.report.Unread = append(e.report.Unread, fmt.Sprintf("%s of %s stands in %s, so it is not judged", name, p.Object, where))
		}
	}
}

// means compares values of a variable; switches are written in several ways.
func means(value, standard string) bool {
	a, errA := strconv.ParseBool(value)
	b, errB := strconv.ParseBool(standard)
	return value == "" || value == standard || errA == nil && errB == nil && a == b
}

func (e environments) variable(rule string, p Program, name, value string, v variable) {
	d := Difference{Object: p.Object, Field: "env." + name, Severity: v.severity, Today: v.today, Then: v.then, Refuses: v.refuses}
	if value != "" {
		d.Today = "its value is " + short(value) + ": " + v.today
	}
	for _, line := range v.keep {
		d.Keep = append(d.Keep, strings.ReplaceAll(line, "VALUE", value))
	}
	e.report.add(rule, d)
}

// ranges is about virtual addresses out of ranges of the operator's own: entries are told one by one, and those to come by this.
func (e environments) ranges(p Program) {
	for i, name := range []string{"PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX"} {
		if value := p.Env[name]; value != "" && value != virtual[i].String() {
			e.variable(ofIstiod, p, name, value, variable{severity: RouteChanges, today: "virtual addresses of ServiceEntries are of this range", then: "they are of " + virtual[i].String()})
		}
	}
}

func (e environments) proxyVariable(p Program, name, value string) {
	if have, ok := e.settings.ProxyEnv[name]; ok && have == value {
		return
	}
	v, known := ztunnelVariables[name]
	switch {
	case name == "NETWORK" && value == e.settings.Network, name == "ISTIO_META_DNS_CAPTURE" && !e.settings.DNSCapture && means(value, "false"):
	case known && !means(value, v.standard):
		e.variable(ofZtunnel, p, name, value, v)
	case slices.Contains(adopted, name):
		e.variable(ofZtunnel, p, name, value, variable{severity: NameChanges, today: "the ztunnels go by it", then: "the node proxies go by their own default", keep: []string{"--set node.env." + name + "=VALUE"}})
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
