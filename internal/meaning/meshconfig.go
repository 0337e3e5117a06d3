package meaning

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/meshconfig"
)

// meshConfig is one MeshConfig that was read: fields by their JSON names.
type meshConfig struct {
	Object
	fields   map[string]any
	networks map[string]any
}

// istioDefaults are those of fields that this mesh has a setting for.
var istioDefaults = map[string]string{"trustDomain": "cluster.local", "rootNamespace": "istio-system"}

// readMesh reads the MeshConfigs, and says which cannot be.
func (c *comparison) readMesh() {
	for _, m := range c.MeshConfigs {
		read := meshConfig{Object: m.Object}
		var err error
		if read.fields, err = fieldsOf(m.Mesh); err != nil {
			c.out.Unread = append(c.out.Unread, fmt.Sprintf("the MeshConfig of %s is no YAML (%v), so no field of it is judged", m.Object, err))
			continue
		}
		networks, err := fieldsOf(m.Networks)
		if err != nil {
			c.out.Unread = append(c.out.Unread, fmt.Sprintf("meshNetworks of %s is no YAML (%v), so it is not judged", m.Object, err))
		}
		read.networks, _ = networks["networks"].(map[string]any)
		for name, standard := range istioDefaults {
			if read.fields[name] == nil {
				read.fields[name] = standard
			}
		}
		c.mesh = append(c.mesh, read)
	}
}

// fieldsOf reads YAML. Istio takes both names that a field of a protocol buffer has: rootNamespace and root_namespace.
func fieldsOf(text string) (map[string]any, error) {
	var raw map[string]any
	if err := yaml.Unmarshal([]byte(text), &raw); err != nil {
		return nil, err
	}
	out := make(map[string]any, len(raw))
	for name, value := range raw {
		out[camel(name)] = value
	}
	return out, nil
}

// camel makes the JSON name of a field of its other one.
func camel(name string) string {
	parts := strings.Split(name, "_")
	for i, p := range parts {
		if i > 0 && p != "" {
			parts[i] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "")
}

// stance is what comes of a field of MeshConfig.
type stance struct {
	// standard are values that change nothing: Istio's own default and what its charts write.
	standard []any
	// judge is for a field that bears on node proxies; nil for one that waypoints, sidecars and gateways alone act on.
	judge func(c *comparison, m meshConfig, value any)
	// honoured says that the waypoints of this mesh go by it.
	honoured bool
}

// stances are the fields of MeshConfig. A test holds them to the protocol buffer, so that none is forgotten.
func stances() map[string]stance {
	only := func(standard ...any) stance { return stance{standard: standard} }
	all := map[string]stance{
		"trustDomain":            {judge: (*comparison).trustDomain},
		"rootNamespace":          {judge: (*comparison).rootNamespace},
		"discoverySelectors":     {standard: []any{[]any{}}, judge: (*comparison).discoverySelectors},
		"serviceEntryVisibility": {judge: (*comparison).visibility},
		"configSources":          {standard: []any{[]any{}}, judge: (*comparison).configSources},
		"serviceScopeConfigs":    {standard: []any{[]any{}}, judge: (*comparison).scopes},
		"defaultConfig":          {judge: (*comparison).proxyConfig},

		"proxyListenPort": only(15001.0), "proxyInboundListenPort": only(15006.0), "proxyHttpPort": only(0.0),
		"hboneIdleTimeout": only(), "h2UpgradePolicy": only("DO_NOT_UPGRADE"), "protocolDetectionTimeout": only("0s"), "tcpKeepalive": only(),
		"ingressClass": only("istio"), "ingressService": only("istio-ingressgateway"), "ingressControllerMode": only("STRICT"), "ingressSelector": only(""),
		"enableTracing":               only(true),
		"enableEnvoyAccessLogService": only(false), "disableEnvoyListenerLog": only(false),
		"inboundTrafficPolicy":   only(map[string]any{"mode": "PASSTHROUGH"}),
		"enableAutoMtls":         only(true),
		"defaultServiceExportTo": only([]any{"*"}), "defaultVirtualServiceExportTo": only([]any{"*"}), "defaultDestinationRuleExportTo": only([]any{"*"}),
		"localityLbSetting": only(map[string]any{"enabled": true}), "zoneAwareLbSetting": only(), "dnsRefreshRate": only("60s"),
		"inboundClusterStatName": only(""), "outboundClusterStatName": only(""), "certificates": only([]any{}), "serviceSettings": only([]any{}),
		"enablePrometheusMerge": only(true), "verifyCertificateAtClient": only(), "ca": only(),
		"defaultProviders":     only(map[string]any{}, map[string]any{"metrics": []any{"prometheus"}}),
		"defaultTrafficPolicy": only(),

		"caCertificates":        {standard: []any{[]any{}}, judge: decides("caCertificates", AccessCloses)},
		"meshMTLS":              {judge: decides("meshMTLS", AccessOpens)},
		"tlsDefaults":           {judge: decides("tlsDefaults", AccessOpens)},
		"extensionProviders":    {standard: []any{[]any{}}, judge: (*comparison).providers},
		"outboundTrafficPolicy": {standard: []any{map[string]any{}, map[string]any{"mode": "ALLOW_ANY"}}, judge: func(c *comparison, m meshConfig, value any) { c.out.add(m.outbound(value)) }},
	}
	for _, name := range meshconfig.Honoured {
		all[name] = stance{honoured: true}
	}
	return all
}

// decides judges a field that decides access, and that nobody goes by any more.
func decides(name string, severity Severity) func(*comparison, meshConfig, any) {
	return func(c *comparison, m meshConfig, value any) {
		d := m.difference(name, value)
		d.Today, d.Severity, d.Refuses = "its value is "+short(value)+", and proxies of Istio admit peers by it", severity, true
		c.out.add("meshconfig-access", d)
	}
}

// outbound is what comes of outboundTrafficPolicy: the refusal of hosts that the mesh does not know, and what else the field may ask for.
func (m meshConfig) outbound(value any) (rule string, d Difference) {
	policy, _ := value.(map[string]any)
	if policy["mode"] != "REGISTRY_ONLY" && policy["mode"] != 0.0 {
		return "meshconfig-unserved", m.difference("outboundTrafficPolicy", value)
	}
	return "meshconfig-outbound", Difference{Object: m.Object, Field: "meshConfig.outboundTrafficPolicy.mode"}
}

// providers finds those that decide about requests of CUSTOM policies.
func (c *comparison) providers(m meshConfig, value any) {
	list, _ := value.([]any)
	deciding := slices.ContainsFunc(list, func(one any) bool {
		provider, _ := one.(map[string]any)
		return slices.ContainsFunc(slices.Collect(maps.Keys(provider)), func(field string) bool { return strings.HasPrefix(camel(field), "envoyExtAuthz") })
	})
	if deciding {
		decides("extensionProviders", AccessCloses)(c, m, value)
		return
	}
	c.out.add("meshconfig-unserved", m.difference("extensionProviders", value))
}

// meshSettings judges each field that is set.
func (c *comparison) meshSettings() {
	known := stances()
	for _, m := range c.mesh {
		for _, name := range slices.Sorted(maps.Keys(m.fields)) {
			value := m.fields[name]
			s, ok := known[name]
			switch {
			case value == nil || s.honoured || slices.ContainsFunc(s.standard, func(v any) bool { return reflect.DeepEqual(v, value) }):
			case !ok:
				c.out.add("meshconfig-unknown", m.difference(name, value))
			case s.judge != nil:
				s.judge(c, m, value)
			default:
				c.out.add("meshconfig-unserved", m.difference(name, value))
			}
		}
		if len(m.networks) > 0 {
			d := Difference{Object: m.Object, Field: "meshNetworks"}
			d.name(slices.Collect(maps.Keys(m.networks)))
			c.out.add("mesh-networks", d)
		}
	}
}

// difference is about one field of a MeshConfig; today's text names the value, if it is short.
func (m meshConfig) difference(field string, value any) Difference {
	return Difference{Object: m.Object, Field: "meshConfig." + field, Today: "its value is " + short(value) + "; " + unservedToday}
}

// mostText is how much of a value is shown.
const mostText = 60

// short is a value in one line.
func short(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "not to be shown"
	}
	if runes := []rune(string(text)); len(runes) > mostText {
		return string(runes[:mostText-1]) + "…"
	}
	return string(text)
}

func (c *comparison) trustDomain(m meshConfig, value any) {
	if domain, _ := value.(string); domain != "" && domain != c.Settings.TrustDomain {
		c.out.add("meshconfig-trust-domain", Difference{Object: m.Object, Field: "meshConfig.trustDomain", Refuses: true,
			Today: fmt.Sprintf("identities are of trust domain %s", domain), Then: fmt.Sprintf("identities are of trust domain %s, which no policy and no running proxy means", c.Settings.TrustDomain),
			Keep: []string{"--set mesh.trustDomain=" + domain}})
	}
}

func (c *comparison) rootNamespace(m meshConfig, value any) {
	if root, _ := value.(string); root != "" && root != c.Settings.RootNamespace {
		c.out.add("meshconfig-root-namespace", Difference{Object: m.Object, Field: "meshConfig.rootNamespace", Refuses: true,
			Today: fmt.Sprintf("policies of namespace %s hold for the whole mesh", root), Then: fmt.Sprintf("those of namespace %s do", c.Settings.RootNamespace),
			Keep: []string{"--set mesh.rootNamespace=" + root}})
	}
}

// selectorOf reads a label selector of MeshConfig, which is written as Kubernetes' own.
func selectorOf(value any) (labels.Selector, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var s metav1.LabelSelector
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	return metav1.LabelSelectorAsSelector(&s)
}

// discoverySelectors finds the namespaces that istiod does not look into.
func (c *comparison) discoverySelectors(m meshConfig, value any) {
	list, _ := value.([]any)
	var selectors []labels.Selector
	for _, one := range list {
		s, err := selectorOf(one)
		if err != nil {
			c.out.Unread = append(c.out.Unread, fmt.Sprintf("meshConfig.discoverySelectors of %s cannot be read (%v), so which namespaces it leaves out is not known", m.Object, err))
			return
		}
		selectors = append(selectors, s)
	}
	var left []string
	for _, ns := range c.Namespaces {
		if !slices.ContainsFunc(selectors, func(s labels.Selector) bool { return s.Matches(labels.Set(ns.Labels)) }) {
			left = append(left, ns.Name)
		}
	}
	d := Difference{Object: m.Object, Field: "meshConfig.discoverySelectors", Refuses: true}
	if len(left) == 0 {
		d.Refuses, d.Severity = false, RouteChanges
		d.Today = "istiod looks into the namespaces that it selects; these are all at present"
	}
	d.name(left)
	c.out.add("meshconfig-discovery-selectors", d)
}

func (c *comparison) configSources(m meshConfig, value any) {
	list, _ := value.([]any)
	elsewhere := slices.ContainsFunc(list, func(one any) bool {
		source, _ := one.(map[string]any)
		address, _ := source["address"].(string)
		return !strings.HasPrefix(address, "k8s://")
	})
	if elsewhere {
		c.out.add("meshconfig-config-sources", Difference{Object: m.Object, Field: "meshConfig.configSources", Refuses: true})
	}
}

// scopes matter where istiod knows several networks; else they have no effect today.
func (c *comparison) scopes(m meshConfig, _ any) {
	if c.controlEnv("AMBIENT_ENABLE_MULTI_NETWORK") {
		c.out.add("meshconfig-scopes", Difference{Object: m.Object, Field: "meshConfig.serviceScopeConfigs"})
	}
}

// standardProxyConfig are the fields of a ProxyConfig that Istio's charts write, and proxyMetadata with what the ambient profile has there.
var standardProxyConfig = map[string]func(any) bool{
	"discoveryAddress": func(any) bool { return true },
	"meshId":           func(any) bool { return true },
	"image":            func(any) bool { return true },
	"proxyMetadata": func(value any) bool {
		metadata, ok := value.(map[string]any)
		return ok && (len(metadata) == 0 || len(metadata) == 1 && metadata["ISTIO_META_ENABLE_HBONE"] != nil)
	},
}

func (c *comparison) proxyConfig(m meshConfig, value any) {
	fields, _ := value.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if standard := standardProxyConfig[camel(name)]; standard == nil || !standard(fields[name]) {
			c.out.add("meshconfig-unserved", m.difference("defaultConfig."+camel(name), fields[name]))
		}
	}
}
