package meaning

import (
	"fmt"
	"maps"
	"slices"

	securityapi "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	"k8s.io/apimachinery/pkg/labels"

	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/translate"
)

// otherPorts stands for all ports that a PeerAuthentication does not name.
const otherPorts = 0

func (c *comparison) peers() {
	inNamespace := map[string][]*securityv1.PeerAuthentication{}
	for _, pa := range c.PeerAuthentications {
		inNamespace[pa.Namespace] = append(inNamespace[pa.Namespace], pa)
	}
	root := inNamespace[c.Settings.RootNamespace]
	c.meshWidePeers(root)
	for _, pa := range c.PeerAuthentications {
		switch {
		case !translate.Selects(pa):
		case pa.Namespace == c.Settings.RootNamespace:
			c.rootSelector(pa, root)
		default:
			c.portModes(pa, root, inNamespace[pa.Namespace])
		}
	}
}

func peerObject(pa *securityv1.PeerAuthentication) Object {
	return Object{Kind: "PeerAuthentication", Namespace: pa.Namespace, Name: pa.Name}
}

// unselecting are the PeerAuthentications that choose no workloads in particular; without `selector: {}` if bare.
func unselecting(all []*securityv1.PeerAuthentication, bare bool) []*securityv1.PeerAuthentication {
	return slices.DeleteFunc(slices.Clone(all), func(pa *securityv1.PeerAuthentication) bool {
		return translate.Selects(pa) || bare && pa.Spec.Selector != nil
	})
}

func (c *comparison) meshWidePeers(root []*securityv1.PeerAuthentication) {
	before, after := translate.Oldest(unselecting(root, true)), translate.Oldest(unselecting(root, false))
	if before == after {
		return
	}
	was, is := translate.Inherited(before, nil), translate.Inherited(after, nil)
	if was == is {
		return
	}
	d := Difference{Object: peerObject(after), Field: "spec.selector", Severity: AccessCloses, Keep: nothing,
		Then: "it is the mesh's: workloads of all namespaces refuse plaintext where theirs says nothing else"}
	if is != translate.Strict {
		d.Severity, d.Then = AccessOpens, "it is the mesh's: workloads of all namespaces accept plaintext where theirs says nothing else"
	}
	c.out.add("peer-root-empty-selector", d)
}

// rootSelector is about one that selects workloads of the root namespace itself.
func (c *comparison) rootSelector(pa *securityv1.PeerAuthentication, root []*securityv1.PeerAuthentication) {
	if pa.Spec.Selector.MatchLabels[wellknown.Selects] != "" {
		return
	}
	// Of the root namespace's own workloads Istio takes `selector: {}` as the mesh's, as this mesh does.
	inherited := translate.Inherited(translate.Oldest(unselecting(root, false)), nil)
	opens, closes := compareModes(pa, inherited, func(uint32) bool { return inherited == translate.Strict })
	if len(opens)+len(closes) == 0 {
		return
	}
	selected := 0
	for _, p := range c.Pods {
		if p.Namespace == pa.Namespace && labels.SelectorFromSet(pa.Spec.Selector.MatchLabels).Matches(labels.Set(p.Labels)) {
			selected++
		}
	}
	d := Difference{Object: peerObject(pa), Field: "spec.selector", Severity: AccessCloses, Keep: nothing,
		Then: fmt.Sprintf("the pods that it selects (%d now) obey it: %s", selected, modes(opens, closes))}
	if len(opens) > 0 {
		d.Severity = AccessOpens
	}
	c.out.add("peer-root-selector", d)
}

// portModes is about one that selects workloads of another namespace.
func (c *comparison) portModes(pa *securityv1.PeerAuthentication, root, own []*securityv1.PeerAuthentication) {
	mesh, namespace := translate.Oldest(unselecting(root, true)), translate.Oldest(unselecting(own, false))
	merged := translate.Oldest(unselecting(own, true))
	// The effect of the mesh's own object is reported at that object.
	inherited := translate.Inherited(mesh, namespace)
	before := ambientPeer{pa: pa, inherited: inherited == translate.Strict, namespace: merged, mesh: mesh}.strict()
	opens, closes := compareModes(pa, inherited, before)
	for _, side := range []struct {
		ports    []uint32
		severity Severity
	}{{opens, AccessOpens}, {closes, AccessCloses}} {
		disabled, others := []uint32{}, []uint32{}
		for _, port := range side.ports {
			if modeOf(pa.Spec.PortLevelMtls[port]) == securityapi.PeerAuthentication_MutualTLS_DISABLE {
				disabled = append(disabled, port)
			} else {
				others = append(others, port)
			}
		}
		keep := keptModes(pa, before)
		if len(disabled) > 0 {
			c.out.add("peer-disabled-port", Difference{Object: peerObject(pa), Field: "spec.portLevelMtls", Severity: side.severity, Keep: keep, Then: accepting(disabled, side.severity)})
		}
		if len(others) > 0 {
			c.out.add("peer-ports", Difference{Object: peerObject(pa), Field: "spec.portLevelMtls", Severity: side.severity, Keep: keep,
				Today: accepting(others, opposite(side.severity)), Then: accepting(others, side.severity)})
		}
	}
}

func opposite(s Severity) Severity {
	if s == AccessOpens {
		return AccessCloses
	}
	return AccessOpens
}

// accepting says what becomes of plaintext on ports.
func accepting(ports []uint32, s Severity) string {
	which := "port "
	if len(ports) > 1 {
		which = "ports "
	}
	for i, port := range ports {
		if i > 0 {
			which += ", "
		}
		if port == otherPorts {
			which += "that it does not name"
		} else {
			which += fmt.Sprint(port)
		}
	}
	verb := " refuse"
	if s == AccessOpens {
		verb = " accept"
	}
	if len(ports) == 1 {
		verb += "s"
	}
	return which + verb + " plaintext"
}

func modes(opens, closes []uint32) string {
	switch {
	case len(opens) == 0:
		return accepting(closes, AccessCloses)
	case len(closes) == 0:
		return accepting(opens, AccessOpens)
	}
	return accepting(opens, AccessOpens) + "; " + accepting(closes, AccessCloses)
}

// compareModes are the ports on which plaintext is accepted here and not there, and the reverse.
func compareModes(pa *securityv1.PeerAuthentication, inherited translate.Mode, before func(uint32) bool) (opens, closes []uint32) {
	demands := translate.Demands(pa, inherited)
	for _, port := range portsOf(pa) {
		switch was, is := before(port), demands(port); {
		case was && !is:
			opens = append(opens, port)
		case is && !was:
			closes = append(closes, port)
		}
	}
	return opens, closes
}

// portsOf are the ports that a PeerAuthentication names, and one that stands for all others.
func portsOf(pa *securityv1.PeerAuthentication) []uint32 {
	return append([]uint32{otherPorts}, slices.Sorted(maps.Keys(pa.Spec.PortLevelMtls))...)
}

// keptModes writes modes under which this mesh accepts plaintext where Istio does today.
func keptModes(pa *securityv1.PeerAuthentication, strict func(uint32) bool) []string {
	name := func(s bool) string {
		if s {
			return "STRICT"
		}
		return "PERMISSIVE"
	}
	lines := []string{"spec:", fmt.Sprintf("  mtls: {mode: %s}", name(strict(otherPorts))), "  portLevelMtls:"}
	for _, port := range portsOf(pa)[1:] {
		lines = append(lines, fmt.Sprintf("    %d: {mode: %s}", port, name(strict(port))))
	}
	return lines
}

func modeOf(m *securityapi.PeerAuthentication_MutualTLS) securityapi.PeerAuthentication_MutualTLS_Mode {
	return m.GetMode()
}

// ambientPeer is what Istio's ambient mode makes of a PeerAuthentication that selects workloads. istiod decides in two places whether a
// workload refuses plaintext: one lists the policies that the workload names, the other writes the policy for ports that differ. Where the
// two disagree the workload names a policy that does not exist, and a ztunnel passes over it.
type ambientPeer struct {
	pa *securityv1.PeerAuthentication
	// inherited says whether workloads of the namespace refuse plaintext without the object.
	inherited bool
	// namespace and mesh are what the written policy is merged with. One with `selector: {}` is none of them.
	namespace, mesh *securityv1.PeerAuthentication
}

// strict says whether plaintext is refused on a port today. One object can name all ports that there are, so each is looked at once.
func (a ambientPeer) strict() func(port uint32) bool {
	static, named := a.names()
	written := a.written()
	return func(port uint32) bool { return static || named && written(port) }
}

// names says which policies a workload names: the one that refuses plaintext on all ports, and that of the object.
func (a ambientPeer) names() (static, own bool) {
	has := func(modes ...securityapi.PeerAuthentication_MutualTLS_Mode) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(a.pa.Spec.PortLevelMtls)), func(m *securityapi.PeerAuthentication_MutualTLS) bool { return slices.Contains(modes, modeOf(m)) })
	}
	switch modeOf(a.pa.Spec.Mtls) {
	case securityapi.PeerAuthentication_MutualTLS_STRICT:
		exempt := has(securityapi.PeerAuthentication_MutualTLS_PERMISSIVE, securityapi.PeerAuthentication_MutualTLS_DISABLE)
		return !exempt, exempt
	case securityapi.PeerAuthentication_MutualTLS_PERMISSIVE, securityapi.PeerAuthentication_MutualTLS_DISABLE:
		return false, has(securityapi.PeerAuthentication_MutualTLS_STRICT)
	}
	if !a.inherited {
		return false, has(securityapi.PeerAuthentication_MutualTLS_STRICT)
	}
	// A port with DISABLE is not looked for here.
	exempt := has(securityapi.PeerAuthentication_MutualTLS_PERMISSIVE)
	return !exempt, exempt
}

// written says whether the object's own policy refuses plaintext on a port; where there is none it refuses nothing.
func (a ambientPeer) written() func(port uint32) bool {
	mode := modeOf(a.pa.Spec.Mtls)
	unset := mode == securityapi.PeerAuthentication_MutualTLS_UNSET
	says := func(pa *securityv1.PeerAuthentication, want securityapi.PeerAuthentication_MutualTLS_Mode) bool {
		return pa != nil && modeOf(pa.Spec.Mtls) == want
	}
	const strict = securityapi.PeerAuthentication_MutualTLS_STRICT
	silent := a.namespace == nil || says(a.namespace, securityapi.PeerAuthentication_MutualTLS_UNSET)
	// A STRICT port is taken for one that the parent's policy refuses already, under a STRICT mesh whatever the object's own mode is.
	byParent := mode == strict || unset && says(a.namespace, strict) || silent && says(a.mesh, strict)
	// A port is exempted under the object's own STRICT, and under the nearest parent's only.
	exempts := mode == strict || unset && (says(a.namespace, strict) || a.namespace == nil && says(a.mesh, strict))
	exempted, refused := map[uint32]bool{}, map[uint32]bool{}
	for p, m := range a.pa.Spec.PortLevelMtls {
		switch modeOf(m) {
		case strict:
			refused[p] = !byParent
		case securityapi.PeerAuthentication_MutualTLS_PERMISSIVE, securityapi.PeerAuthentication_MutualTLS_DISABLE:
			exempted[p] = true
		}
	}
	// Without a port that is to accept plaintext no policy of its own is written for the others.
	others := exempts && len(exempted) > 0
	return func(port uint32) bool { return refused[port] || others && !exempted[port] }
}
