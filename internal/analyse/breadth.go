package analyse

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/security"
)

// declaredPorts are the TCP ports that the containers of a pod declare; nil if they declare none.
func declaredPorts(spec *corev1.PodSpec) (ports []uint32) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for _, c := range containers {
			for _, p := range c.Ports {
				if cmp.Or(p.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP {
					ports = append(ports, uint32(p.ContainerPort))
				}
			}
		}
	}
	return ports
}

// declared reports whether one of some workloads declares a port, and whether all of them declare ports at all.
func declared(port uint32, by []*workload) (declares, known bool) {
	for _, w := range by {
		if len(w.ports) == 0 {
			return false, false
		}
		declares = declares || slices.Contains(w.ports, port)
	}
	return declares, len(by) > 0
}

// ports notes the ports of a policy's rules that no container of its pods declares.
func (a *analysis) ports(p *policy, in *scope) {
	for i, rule := range p.Spec.Rules {
		for j, to := range rule.GetTo() {
			a.undeclared(p, in, fmt.Sprintf("spec.rules[%d].to[%d].operation.ports", i, j), to.GetOperation().GetPorts())
		}
		for j, when := range rule.GetWhen() {
			if when.GetKey() == "destination.port" {
				a.undeclared(p, in, fmt.Sprintf("spec.rules[%d].when[%d].values", i, j), when.Values)
			}
		}
	}
}

func (a *analysis) undeclared(p *policy, in *scope, field string, ports []string) {
	for i, text := range ports {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			continue
		}
		if one, known := declared(uint32(port), in.enrolled); one || !known {
			continue
		}
		f := Finding{Code: UndeclaredPort, Severity: Info, Field: fmt.Sprintf("%s[%d]", field, i)}
		f.Message = fmt.Sprintf("no container of %s declares port %d", a.podText(&f, in.enrolled), port)
		a.add(p.key, f)
	}
}

// breadth is the set of IP versions of which a match, a clause or a rule takes every connection.
type breadth uint8

const (
	everyIPv4 breadth = 1 << iota
	everyIPv6
	everybody = everyIPv4 | everyIPv6
)

func (b breadth) String() string {
	return [...]string{"nobody in general", "every IPv4 address", "every IPv6 address", "everybody"}[b]
}

// broadest is the breadth of the broadest of some rules of a policy for workloads. It is zero if each rule names somebody in particular.
func broadest(rules []*security.Rule, to []*workload) (most breadth) {
	for _, r := range rules {
		of := everybody
		for _, c := range r.Clauses {
			var any breadth
			for _, m := range c.Matches {
				any |= breadthOf(m, to)
			}
			of &= any
		}
		most = max(most, of)
	}
	return most
}

// breadthOf judges a match with a single list. Two lists narrow each other, and are not judged.
func breadthOf(m *security.Match, to []*workload) (of breadth) {
	lists := []int{len(m.Namespaces), len(m.NotNamespaces), len(m.ServiceAccounts), len(m.NotServiceAccounts), len(m.Principals), len(m.NotPrincipals),
		len(m.SourceIps), len(m.NotSourceIps), len(m.DestinationIps), len(m.NotDestinationIps), len(m.DestinationPorts), len(m.NotDestinationPorts)}
	if len(slices.DeleteFunc(lists, func(n int) bool { return n == 0 })) != 1 {
		return 0
	}
	for _, port := range m.NotDestinationPorts {
		if one, known := declared(port, to); one || !known {
			return 0
		}
		of = everybody
	}
	for _, block := range slices.Concat(m.SourceIps, m.DestinationIps) {
		switch address, ok := netip.AddrFromSlice(block.Address); {
		case !ok || block.Length > 0:
		case address.Is4():
			of |= everyIPv4
		default:
			of |= everyIPv6
		}
	}
	return of
}

// ruleContradicts reports whether no connection fulfils a clause of a rule, because all its matches contradict themselves.
func ruleContradicts(r *security.Rule) bool {
	return slices.ContainsFunc(r.Clauses, func(c *security.Clause) bool {
		return len(c.Matches) > 0 && !slices.ContainsFunc(c.Matches, func(m *security.Match) bool { return !contradicts(m) })
	})
}

// contradicts reports whether a match excepts everything that it names. It finds exceptions that are broader than "*", than an address block,
// or the same as what is named; other patterns that cover each other are not found.
func contradicts(m *security.Match) bool {
	identity := len(m.Principals)+len(m.Namespaces)+len(m.ServiceAccounts) > 0
	return identity && (anybody(m.NotPrincipals) || anybody(m.NotNamespaces)) ||
		excepted(m.Principals, m.NotPrincipals, sameText) || excepted(m.Namespaces, m.NotNamespaces, sameText) ||
		excepted(m.ServiceAccounts, m.NotServiceAccounts, func(a, b *security.ServiceAccountMatch) bool {
			return a.Namespace == b.Namespace && a.ServiceAccount == b.ServiceAccount
		}) ||
		excepted(m.SourceIps, m.NotSourceIps, contains) || excepted(m.DestinationIps, m.NotDestinationIps, contains) ||
		excepted(m.DestinationPorts, m.NotDestinationPorts, func(a, b uint32) bool { return a == b })
}

// excepted reports whether a list is there and each of its values is covered by an exception.
func excepted[T any](named, but []T, covered func(named, by T) bool) bool {
	return len(named) > 0 && !slices.ContainsFunc(named, func(n T) bool {
		return !slices.ContainsFunc(but, func(b T) bool { return covered(n, b) })
	})
}

func sameText(a, b *security.StringMatch) bool { return a.String() == b.String() }

// contains reports whether the second block holds the first.
func contains(inner, outer *security.Address) bool {
	i, ok := netip.AddrFromSlice(inner.Address)
	o, also := netip.AddrFromSlice(outer.Address)
	return ok && also && i.BitLen() == o.BitLen() && outer.Length <= inner.Length && netip.PrefixFrom(o, int(outer.Length)).Contains(i)
}
