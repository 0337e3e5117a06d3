package local

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/engine/local/merge"
	"lateen.dev/lateen/internal/model"
)

// address gives a service its families and cluster IPs: those it asks for, those it has, or free ones.
func (s *store) address(key model.Key, old *stored, live merge.Object) (merge.Object, error) {
	if t, _ := merge.Get(live, "spec", "type"); t == string(corev1.ServiceTypeExternalName) {
		return live, nil
	}
	families, policy, err := s.familiesOf(key, live)
	if err != nil {
		return nil, err
	}
	var had []string
	if old != nil {
		had = clusterIPs(old.Value.(*corev1.Service))
	}
	asked := askedIPs(live)
	// A service of the first family that now gets a second one keeps what it has.
	for i, ip := range asked {
		if i < len(had) && ip != had[i] {
			return nil, fmt.Errorf("%s: spec.clusterIP is %s and cannot change to %s; delete the service first", key, had[i], ip)
		}
	}
	ips := asked
	if len(had) > len(ips) {
		ips = had
	}
	if len(ips) > 0 && ips[0] == corev1.ClusterIPNone {
		ips = ips[:1]
	} else {
		ips = slices.Clone(ips[:min(len(ips), len(families))])
		for _, f := range families[len(ips):] {
			free, err := s.freeAddress(f)
			if err != nil {
				return nil, err
			}
			ips = append(ips, free.String())
		}
		for i, ip := range ips {
			if i < len(had) {
				continue
			}
			if err := s.checkAddress(key, ip, families[i]); err != nil {
				return nil, err
			}
		}
	}
	live = merge.Set(live, ips[0], "spec", "clusterIP")
	live = merge.Set(live, anys(ips), "spec", "clusterIPs")
	var names []string
	for _, f := range families {
		names = append(names, f.Name)
	}
	live = merge.Set(live, anys(names), "spec", "ipFamilies")
	return merge.Set(live, string(policy), "spec", "ipFamilyPolicy"), nil
}

// familiesOf works out a service's families from its spec and the mesh's, as Kubernetes does.
func (s *store) familiesOf(key model.Key, live merge.Object) ([]*fabric.Family, corev1.IPFamilyPolicy, error) {
	var families []*fabric.Family
	value, _ := merge.Get(live, "spec", "ipFamilies")
	list, _ := value.([]any)
	for _, name := range list {
		i := slices.IndexFunc(s.families, func(f *fabric.Family) bool { return f.Name == name })
		switch {
		case i < 0:
			return nil, "", fmt.Errorf("%s: spec.ipFamilies: the mesh has no %v; leave it out, or start the mesh with --ip-families dual", key, name)
		case slices.Contains(families, s.families[i]):
			return nil, "", fmt.Errorf("%s: spec.ipFamilies: %v is there twice; name each family once", key, name)
		}
		families = append(families, s.families[i])
	}
	given, _ := merge.Get(live, "spec", "ipFamilyPolicy")
	policy := corev1.IPFamilyPolicySingleStack
	switch text, _ := given.(string); corev1.IPFamilyPolicy(text) {
	case "":
		if len(families) > 1 {
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
	case corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack:
		policy = corev1.IPFamilyPolicy(text)
	default:
		return nil, "", fmt.Errorf("%s: spec.ipFamilyPolicy: %q is unknown; use SingleStack, PreferDualStack or RequireDualStack", key, text)
	}
	if len(families) == 0 {
		families = s.families[:1:1]
	}
	switch {
	case policy == corev1.IPFamilyPolicySingleStack:
		families = families[:1]
	case len(s.families) < 2 && policy == corev1.IPFamilyPolicyRequireDualStack:
		return nil, "", fmt.Errorf("%s: spec.ipFamilyPolicy: RequireDualStack: the mesh has %s alone; start it with --ip-families dual", key, s.families[0].Name)
	default:
		for _, f := range s.families {
			if !slices.Contains(families, f) {
				families = append(families, f)
			}
		}
	}
	return families, policy, nil
}

// askedIPs are the cluster IPs that a spec names; spec.clusterIP is the first of them.
func askedIPs(live merge.Object) []string {
	first, _ := merge.Get(live, "spec", "clusterIP")
	value, _ := merge.Get(live, "spec", "clusterIPs")
	list, _ := value.([]any)
	var ips []string
	for _, v := range list {
		text, _ := v.(string)
		ips = append(ips, text)
	}
	switch text, _ := first.(string); {
	case text == "":
	case len(ips) == 0:
		ips = []string{text}
	default:
		ips[0] = text // a manifest in which the two differ has been refused; here the list is from before
	}
	return ips
}

func clusterIPs(s *corev1.Service) []string {
	if len(s.Spec.ClusterIPs) > 0 {
		return s.Spec.ClusterIPs
	}
	if s.Spec.ClusterIP != "" {
		return []string{s.Spec.ClusterIP}
	}
	return nil
}

func anys(texts []string) []any {
	var out []any
	for _, t := range texts {
		out = append(out, t)
	}
	return out
}

func (s *store) checkAddress(key model.Key, ip string, f *fabric.Family) error {
	addr, err := netip.ParseAddr(ip)
	if err != nil || !f.ServiceCIDR.Contains(addr) {
		return fmt.Errorf("%s: spec.clusterIP %s is not in %s; leave it out to get a free one", key, ip, f.ServiceCIDR)
	}
	if reserved(addr) {
		return fmt.Errorf("%s: spec.clusterIP %s is reserved for the mesh itself; leave it out to get a free one", key, ip)
	}
	for _, o := range s.list("Service") {
		if o.Key != key && slices.Contains(clusterIPs(o.Value.(*corev1.Service)), addr.String()) {
			return fmt.Errorf("%s: spec.clusterIP %s belongs to %s already; leave it out to get a free one", key, ip, o.Key)
		}
	}
	return nil
}

// reserved addresses are the network's own, the API server's in a cluster, and the resolver's.
func reserved(a netip.Addr) bool {
	f := fabric.FamilyOf(a)
	return a == f.ServiceCIDR.Addr() || a == f.ServiceCIDR.Addr().Next() || a == f.DNSIP
}

// freeAddress is the lowest address of a family that no service has.
func (s *store) freeAddress(f *fabric.Family) (netip.Addr, error) {
	used := map[string]bool{}
	for _, o := range s.list("Service") {
		for _, ip := range clusterIPs(o.Value.(*corev1.Service)) {
			used[strings.ToLower(ip)] = true
		}
	}
	for a := f.ServiceCIDR.Addr(); f.ServiceCIDR.Contains(a); a = a.Next() {
		if !used[a.String()] && !reserved(a) {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("all addresses of %s are in use; delete services", f.ServiceCIDR)
}
