package meaning

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/translate"
)

// virtual are the ranges in which this mesh keeps the virtual addresses that Istio gave.
var virtual = []netip.Prefix{netip.MustParsePrefix("240.240.0.0/16"), netip.MustParsePrefix("2001:2::/48")}

// The visibilities of an entry, by the names that MeshConfig has for them.
const (
	visiblePublic    = "PUBLIC"
	visibleNamespace = "NAMESPACE"
	visibleNone      = "NONE"
)

func entryObject(se *networkingv1.ServiceEntry) Object {
	return Object{Kind: "ServiceEntry", Namespace: se.Namespace, Name: se.Name}
}

func (c *comparison) entries() {
	for _, se := range c.ServiceEntries {
		c.visible(se)
		c.addresses(se)
	}
}

// rank orders visibilities by how many see an entry.
func rank(visibility string) int {
	return slices.Index([]string{visibleNone, visibleNamespace, visiblePublic}, visibility)
}

// visible compares who sees an entry: by MeshConfig today, by its own exportTo then.
func (c *comparison) visible(se *networkingv1.ServiceEntry) {
	before := visiblePublic
	for _, m := range c.mesh {
		if policy, ok := m.fields["serviceEntryVisibility"].(map[string]any); ok {
			before = visibilityIn(policy, c.labelsOf(se.Namespace))
		}
	}
	after := visibleNone
	if v, published := translate.EntryVisibility(se); published {
		after = visiblePublic
		if v == workload.Service_NAMESPACE {
			after = visibleNamespace
		}
	}
	d := Difference{Object: entryObject(se), Field: "spec.exportTo", Then: seenBy(after, se.Namespace), Keep: exportedTo(before)}
	switch {
	case rank(after) > rank(before):
		d.Today = seenBy(before, se.Namespace) + ", by meshConfig.serviceEntryVisibility"
		c.out.add("entry-visibility", d)
	case rank(after) < rank(before):
		d.Today = seenBy(before, se.Namespace) + "; exportTo is not looked at"
		c.out.add("entry-export-to", d)
	}
}

func seenBy(visibility, namespace string) string {
	switch visibility {
	case visibleNone:
		return "nobody sees the entry"
	case visibleNamespace:
		return fmt.Sprintf("clients of namespace %s alone see the entry", namespace)
	}
	return "clients of all namespaces see the entry"
}

func exportedTo(visibility string) []string {
	to := map[string]string{visibleNone: "~", visibleNamespace: ".", visiblePublic: "*"}[visibility]
	return []string{"spec:", fmt.Sprintf("  exportTo: [%q]", to)}
}

func (c *comparison) labelsOf(namespace string) map[string]string {
	if ns := c.namespaces[namespace]; ns != nil {
		return ns.Labels
	}
	return nil
}

// visibilityIn is what MeshConfig's serviceEntryVisibility says of a namespace: the first policy of which all rules match, else the default.
func visibilityIn(config map[string]any, namespace map[string]string) string {
	named := func(fields map[string]any, keys ...string) string {
		for _, key := range keys {
			if text, ok := fields[key].(string); ok && rank(text) >= 0 {
				return text
			}
		}
		return visiblePublic
	}
	policies, _ := config["policies"].([]any)
	for _, one := range policies {
		policy, _ := one.(map[string]any)
		rules, _ := either(policy, "matchingRules", "matching_rules").([]any)
		if !slices.ContainsFunc(rules, func(rule any) bool { return !ruleMatches(rule, namespace) }) {
			return named(policy, "visibility")
		}
	}
	return named(config, "defaultVisibility", "default_visibility")
}

func either(fields map[string]any, names ...string) any {
	for _, name := range names {
		if v, ok := fields[name]; ok {
			return v
		}
	}
	return nil
}

// ruleMatches is false for a rule that cannot be read, as in Istio.
func ruleMatches(rule any, namespace map[string]string) bool {
	fields, _ := rule.(map[string]any)
	written := either(fields, "namespaceSelector", "namespace_selector")
	if written == nil {
		return false
	}
	selector, err := selectorOf(written)
	return err == nil && selector.Matches(labels.Set(namespace))
}

// visibility is about the field of MeshConfig itself, which bears on entries that are yet to be made.
func (c *comparison) visibility(m meshConfig, value any) {
	config, _ := value.(map[string]any)
	policies, _ := config["policies"].([]any)
	if len(policies) == 0 && visibilityIn(config, nil) == visiblePublic {
		return
	}
	c.out.add("meshconfig-visibility", Difference{Object: m.Object, Field: "meshConfig.serviceEntryVisibility", Refuses: true, Today: "it says which namespaces see the hosts of a ServiceEntry; its value is " + short(value)})
}

// addresses finds virtual addresses that this mesh will not keep.
func (c *comparison) addresses(se *networkingv1.ServiceEntry) {
	auto := translate.AutoHosts(se)
	var given, lost []string
	for _, a := range se.Status.GetAddresses() {
		addr, err := netip.ParseAddr(a.GetValue())
		if err != nil || !slices.Contains(auto, strings.ToLower(a.GetHost())) {
			continue
		}
		given = append(given, a.GetValue())
		if !slices.ContainsFunc(virtual, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			lost = append(lost, a.GetHost()+" "+a.GetValue())
		}
	}
	if len(lost) == 0 {
		return
	}
	slices.Sort(given)
	d := Difference{Object: entryObject(se), Field: "status.addresses", Keep: []string{"spec:", fmt.Sprintf("  addresses: [%s]", strings.Join(quoted(slices.Compact(given)), ", "))}}
	if len(auto) > 1 {
		d.Keep = []string{"# give each host an entry of its own with spec.addresses"}
	}
	d.name(lost)
	c.out.add("entry-address", d)
}

func quoted(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = fmt.Sprintf("%q", t)
	}
	return out
}

// serviceExports is about the annotation by which a Service is kept to its namespace, which ambient mode does not look at.
func (c *comparison) serviceExports() {
	for _, s := range c.Services {
		v, published := translate.ServiceVisibility(s)
		after := visibleNamespace
		switch {
		case !published:
			after = visibleNone
		case v == workload.Service_PUBLIC:
			continue
		}
		c.out.add("service-export-to", Difference{Object: Object{Kind: "Service", Namespace: s.Namespace, Name: s.Name}, Field: "metadata.annotations." + wellknown.ExportTo,
			Then: strings.ReplaceAll(seenBy(after, s.Namespace), "the entry", "the Service") + " in the mesh"})
	}
}

// udpPorts finds ports that carry UDP alone, which Istio offers as if they carried TCP.
func (c *comparison) udpPorts() {
	var services, entries []string
	for _, s := range c.Services {
		tcp, udp := map[int32]bool{}, map[int32]bool{}
		for _, p := range s.Spec.Ports {
			switch p.Protocol {
			case corev1.ProtocolUDP:
				udp[p.Port] = true
			case corev1.ProtocolTCP, "":
				tcp[p.Port] = true
			}
		}
		if s.Spec.Type != corev1.ServiceTypeExternalName && anyBut(udp, tcp) {
			services = append(services, s.Namespace+"/"+s.Name)
		}
	}
	for _, se := range c.ServiceEntries {
		tcp, udp := map[uint32]bool{}, map[uint32]bool{}
		for _, p := range se.Spec.Ports {
			if strings.EqualFold(p.GetProtocol(), "UDP") {
				udp[p.Number] = true
			} else {
				tcp[p.Number] = true
			}
		}
		if anyBut(udp, tcp) {
			entries = append(entries, se.Namespace+"/"+se.Name)
		}
	}
	for _, of := range []struct {
		kind, field string
		objects     []string
	}{{"Service", "spec.ports[].protocol", services}, {"ServiceEntry", "spec.ports[].protocol", entries}} {
		if len(of.objects) > 0 {
			d := Difference{Object: Object{Kind: of.kind}, Field: of.field}
			d.name(of.objects)
			c.out.add("udp-ports", d)
		}
	}
}

// anyBut says whether a set has a member that the other has not.
func anyBut[T comparable](set, without map[T]bool) bool {
	for member := range set {
		if !without[member] {
			return true
		}
	}
	return false
}
