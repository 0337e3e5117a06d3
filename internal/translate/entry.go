package translate

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingapi "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// EntryResource is the WDS name of one host of a ServiceEntry: "namespace/hostname".
func EntryResource(se *networkingv1.ServiceEntry, host string) string {
	return se.Namespace + "/" + host
}

// EntryHosts are the host names that a ServiceEntry declares, each once.
func EntryHosts(se *networkingv1.ServiceEntry) []string {
	var out []string
	for _, h := range se.Spec.Hosts {
		if h = strings.ToLower(h); !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

// AutoHosts are the hosts of a ServiceEntry that need virtual addresses because the entry gives none.
func AutoHosts(se *networkingv1.ServiceEntry) []string {
	if len(se.Spec.Addresses) > 0 || se.Spec.Resolution == networkingapi.ServiceEntry_NONE || strings.EqualFold(se.Labels[wellknown.EnableAutoallocateIP], "false") {
		return nil
	}
	return slices.DeleteFunc(EntryHosts(se), func(h string) bool {
		return strings.HasPrefix(h, "*") && se.Spec.Resolution != networkingapi.ServiceEntry_DYNAMIC_DNS
	})
}

// EntryInput is a ServiceEntry and what bears on it.
type EntryInput struct {
	Context
	Entry *networkingv1.ServiceEntry
	Auto  map[string][]netip.Addr // the addresses of AutoHosts
	// Wanting says of one of AutoHosts without addresses whether it is about to get some, and if not, why; nil where they are chosen at once.
	Wanting func(host string) (pending bool, denied string)
	// Lost are hosts that another object of the namespace declares with more right, and which object that is.
	Lost map[string]string
	// Canonical are the hosts for which the entry speaks in all namespaces that do not declare them themselves.
	Canonical map[string]bool
	// OfOthers says of hosts why they count in the entry's own namespace alone; empty or missing for all others.
	OfOthers map[string]string
	// Shared is what other entries declare as well.
	Shared []Shared
	// Gateway finds the entrance to a network, or nil.
	Gateway func(network string) *workload.GatewayAddress
}

// ServiceEntry translates a ServiceEntry into one service for each of its hosts.
func ServiceEntry(mesh Mesh, in EntryInput) ([]*workload.Service, []model.Condition) {
	se, v := in.Entry, newVerdict()
	visibility, published := EntryVisibility(se)
	if !published {
		return nil, []model.Condition{rejected("NotExported", `exportTo is "~": nobody can see it`)}
	}
	if visible := otherNamespaces(se.Spec.ExportTo, se.Namespace); len(visible) > 0 {
		v.note("UnsupportedValue", fmt.Sprintf("exportTo names namespaces (%s): node proxies tell apart everybody and the own namespace only, so everybody sees it", strings.Join(visible, ", ")))
	}
	addresses, bad := networkAddresses(mesh, se.Spec.Addresses)
	if bad != "" {
		return nil, []model.Condition{rejected("InvalidAddress", bad+" is neither an IP address nor a CIDR")}
	}
	addresses = in.keep(addresses, v)
	for _, shared := range in.Shared {
		shared.tell(se.Namespace, v)
	}
	extensions, err := entryExtensions(se)
	if err != nil {
		return nil, []model.Condition{rejected("UnsupportedValue", err.Error())}
	}
	b := in.bindService(se, visibility == workload.Service_NAMESPACE, v)
	for _, w := range Endpoints(mesh, se, EntryHosts(se), WorkloadInput{}) {
		in.occupied(w, v)
	}
	tellUnreachable(mesh, se.Spec.Endpoints, in.Gateway, v)
	lb := entryLoadBalancing(in, v)
	var ports []*workload.Port
	for _, p := range entryPorts(se) {
		ports = append(ports, &workload.Port{ServicePort: p.Number, TargetPort: cmp.Or(p.TargetPort, p.Number), AppProtocol: protocolNamed(p.Protocol)})
	}
	if len(ports) < len(se.Spec.Ports) {
		v.note("UnsupportedValue", "ports whose protocol is not TCP bypass the mesh")
	}
	if se.Spec.Resolution == networkingapi.ServiceEntry_DYNAMIC_DNS && b.waypoint == nil {
		v.note("WaypointRequired", "resolution DYNAMIC_DNS needs a waypoint, which resolves the host that each client names; without one the entry cannot be reached")
	}
	var out []*workload.Service
	wanting, pending := AutoHosts(se), 0
	for _, host := range EntryHosts(se) {
		if owner, lost := in.Lost[host]; lost {
			v.note("Conflicted", fmt.Sprintf("%s declares host %s of this namespace with more right", owner, host))
			continue
		}
		s := &workload.Service{
			Name: se.Name, Namespace: se.Namespace, Hostname: host,
			Addresses: addresses, Ports: ports, SubjectAltNames: se.Spec.SubjectAltNames,
			Waypoint: b.address(), WeightedWaypoints: b.weighted, IngressUseWaypoint: b.ingress,
			LoadBalancing: lb, Visibility: visibility, Canonical: in.Canonical[host],
			Extensions: extensions,
		}
		if why := in.OfOthers[host]; why != "" && visibility == workload.Service_PUBLIC {
			s.Visibility = workload.Service_NAMESPACE
			v.note("Conflicted", fmt.Sprintf("host %s counts in namespace %s only: %s; for clients of other namespaces declare another host", host, se.Namespace, why))
		}
		if auto := in.Auto[host]; len(addresses) == 0 && len(auto) > 0 {
			texts := make([]string, 0, len(auto))
			for _, a := range auto {
				s.Addresses = append(s.Addresses, &workload.NetworkAddress{Network: mesh.Network, Address: a.AsSlice()})
				texts = append(texts, a.String())
			}
			v.note("", fmt.Sprintf("%s has the virtual addresses %s", host, strings.Join(texts, " and ")))
		} else if slices.Contains(wanting, host) {
			soon, why := in.wants(host)
			if soon {
				pending++
			} else {
				v.note("NoAddress", fmt.Sprintf("%s has no virtual address: %s; give the entry spec.addresses", host, why))
			}
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, []model.Condition{rejected("Conflicted", strings.Join(v.notes, "; "))}
	}
	conditions := v.conditions()
	if pending > 0 {
		conditions[0].Status, conditions[0].Reason = model.Unknown, wellknown.ReasonAddressPending
		conditions[0].Message = fmt.Sprintf("virtual addresses of %d of its hosts are being written down; proxies are told of them then", pending)
	}
	return out, conditions
}

// wants says whether a host is about to get virtual addresses, and if not, why.
func (in *EntryInput) wants(host string) (pending bool, denied string) {
	if in.Wanting != nil {
		pending, denied = in.Wanting(host)
	}
	return pending, cmp.Or(denied, "none is free")
}

// EntryVisibility says who sees a ServiceEntry; published is false for one that nobody sees.
func EntryVisibility(se *networkingv1.ServiceEntry) (v workload.Service_Visibility, published bool) {
	return visibilityOf(se.Spec.ExportTo, se.Namespace)
}

// visibilityOf reads a list of namespaces that see an object: "*" is everybody, "." its own namespace, "~" nobody; none means everybody.
func visibilityOf(exportTo []string, namespace string) (v workload.Service_Visibility, published bool) {
	switch {
	case len(exportTo) == 0 || slices.Contains(exportTo, "*") || len(otherNamespaces(exportTo, namespace)) > 0:
		return workload.Service_PUBLIC, true
	case slices.Contains(exportTo, ".") || slices.Contains(exportTo, namespace):
		return workload.Service_NAMESPACE, true
	}
	return workload.Service_NAMESPACE, false
}

func otherNamespaces(exportTo []string, namespace string) []string {
	return slices.DeleteFunc(slices.Clone(exportTo), func(e string) bool {
		return e == "*" || e == "." || e == "~" || e == "" || e == namespace
	})
}

func entryLoadBalancing(in EntryInput, v *verdict) *workload.LoadBalancing {
	if in.Entry.Spec.Resolution == networkingapi.ServiceEntry_NONE {
		// The client's own destination is taken, so health has no say either.
		return &workload.LoadBalancing{Mode: workload.LoadBalancing_PASSTHROUGH, HealthPolicy: workload.LoadBalancing_ALLOW_ALL}
	}
	return nearby(trafficDistribution("", in.Entry.Annotations, in.annotations(), v))
}

// entryPorts are a ServiceEntry's ports that carry TCP.
func entryPorts(se *networkingv1.ServiceEntry) []*networkingapi.ServicePort {
	return slices.DeleteFunc(slices.Clone(se.Spec.Ports), func(p *networkingapi.ServicePort) bool {
		return strings.EqualFold(p.GetProtocol(), "UDP")
	})
}

// networkAddresses reads addresses and CIDRs, each once however often and in whatever form it is written; bad is the first that is neither.
func networkAddresses(mesh Mesh, texts []string) (out []*workload.NetworkAddress, bad string) {
	seen := map[netip.Prefix]bool{}
	for _, text := range texts {
		block, ok := ParseBlock(text)
		if !ok {
			return nil, text
		}
		if seen[block] {
			continue
		}
		seen[block] = true
		out = append(out, networkAddress(mesh.Network, block))
	}
	return out, ""
}

// networkAddress is a block as proxies are told it: an address alone has no length.
func networkAddress(network string, block netip.Prefix) *workload.NetworkAddress {
	a := &workload.NetworkAddress{Network: network, Address: block.Addr().AsSlice()}
	if !block.IsSingleIP() {
		bits := uint32(block.Bits())
		a.Length = &bits
	}
	return a
}

// ParseBlock reads an address or a CIDR in the one form that proxies know it by: IPv4 in IPv6 form is IPv4, bits beyond the length are 0,
// and an address is a block of its own.
func ParseBlock(text string) (netip.Prefix, bool) {
	block, err := netip.ParsePrefix(text)
	if err != nil {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, false
		}
		block = netip.PrefixFrom(addr, addr.BitLen())
	}
	const mapped = 96 // the bits before an IPv4 address in IPv6 form, RFC 4291 §2.5.5.2
	if block.Addr().Is4In6() && block.Bits() >= mapped {
		block = netip.PrefixFrom(block.Addr().Unmap(), block.Bits()-mapped)
	}
	return block.Masked(), true
}

// ImplicitEndpoints says whether a ServiceEntry's hosts are their own endpoints: names to be resolved, and nothing else is given.
func ImplicitEndpoints(se *networkingv1.ServiceEntry) bool {
	switch se.Spec.Resolution {
	case networkingapi.ServiceEntry_DNS, networkingapi.ServiceEntry_DNS_ROUND_ROBIN, networkingapi.ServiceEntry_DYNAMIC_DNS:
		return len(se.Spec.Endpoints) == 0 && se.Spec.WorkloadSelector == nil
	}
	return false
}

// Endpoints translates the endpoints that are written into a ServiceEntry, or that its hosts stand for. hosts are those of its hosts that
// are its own. in's Object is the entry; its Offers are ignored.
func Endpoints(mesh Mesh, se *networkingv1.ServiceEntry, hosts []string, in WorkloadInput) []*workload.Workload {
	if len(hosts) == 0 {
		return nil
	}
	var out []*workload.Workload
	names := newEndpointNames(mesh, se.Namespace, se.Name)
	add := func(e *networkingapi.WorkloadEntry, hosts []string, waypoints bool) {
		uid, first := names.of(e)
		if !first {
			return
		}
		var offers []Offer
		for _, h := range hosts {
			offers = append(offers, EntryOffer(se, h))
		}
		w := entryWorkload(mesh, e, offers, in)
		w.Uid, w.Name, w.Namespace = uid, se.Name, se.Namespace
		describe(w, se.Name, se.Labels)
		tunnel(w, se.Labels, se.Annotations)
		in.occupied(w, newVerdict()) // the entry is told as a service
		if waypoints {
			// An endpoint has labels of its own but no metadata.
			o := &networkingv1.WorkloadEntry{}
			o.Name, o.Namespace, o.Labels = se.Name, se.Namespace, e.Labels
			of := in.Context
			of.Decision = in.Decisions[uid]
			w.Waypoint, w.ApplicationTunnel = of.bindWorkload(o, newVerdict())
		}
		out = append(out, w)
	}
	if ImplicitEndpoints(se) {
		for _, h := range hosts {
			add(&networkingapi.WorkloadEntry{Address: h}, []string{h}, false)
		}
		return out
	}
	for _, e := range se.Spec.Endpoints {
		if mesh.reachable(e) { // the entry says of the others
			add(e, hosts, true)
		}
	}
	return out
}

// WorkloadEntry translates a WorkloadEntry. It speaks HBONE only if it says so by label or annotation.
func WorkloadEntry(mesh Mesh, we *networkingv1.WorkloadEntry, in WorkloadInput) (*workload.Workload, []model.Condition) {
	v := newVerdict()
	if !mesh.reachable(&we.Spec) {
		return nil, []model.Condition{rejected("NoAddress", "spec.address is no IP address and no host name, and spec.network names no other network, so node proxies cannot reach it; give it one of the three")}
	}
	w := entryWorkload(mesh, &we.Spec, in.Offers, in)
	labels := EntryLabels(we)
	w.Uid, w.Name, w.Namespace = mesh.WorkloadEntryResource(we.Namespace, we.Name), we.Name, we.Namespace
	describe(w, cmp.Or(we.Annotations[wellknown.AutoRegistrationGroup], labels[wellknown.ServiceWorkloadName], we.Name), labels)
	tunnel(w, labels, we.Annotations)
	in.occupied(w, v)
	o := we.DeepCopy()
	o.Labels = labels
	w.Waypoint, w.ApplicationTunnel = in.bindWorkload(o, v)
	if w.Network != mesh.Network && w.NetworkGateway == nil {
		v.note("NoNetworkGateway", fmt.Sprintf("it is on network %q and no Gateway leads there; add one of class %s with label %s", w.Network, remoteGatewayClass, wellknown.Network))
	}
	return w, v.conditions()
}

// EntryLabels are a WorkloadEntry's labels: those of its metadata count before those of its spec.
func EntryLabels(we *networkingv1.WorkloadEntry) map[string]string {
	if len(we.Spec.Labels) == 0 {
		return we.Labels
	}
	merged := maps.Clone(we.Spec.Labels)
	maps.Copy(merged, we.Labels)
	return merged
}

// entryWorkload is what WorkloadEntries and endpoints have in common.
func entryWorkload(mesh Mesh, e *networkingapi.WorkloadEntry, offers []Offer, in WorkloadInput) *workload.Workload {
	w := &workload.Workload{
		Network:               cmp.Or(e.Network, mesh.Network),
		ClusterId:             mesh.ClusterID,
		ServiceAccount:        e.ServiceAccount,
		TrustDomain:           mesh.trustDomain(),
		WorkloadType:          workload.WorkloadType_POD,
		AuthorizationPolicies: in.Policies,
		Status:                workload.WorkloadStatus_HEALTHY,
		Services:              onEntry(e, offers),
		Locality:              localityNamed(e.Locality),
	}
	if in.Gateway != nil && w.Network != mesh.Network {
		w.NetworkGateway = in.Gateway(w.Network)
	}
	if e.Weight > 0 {
		w.Capacity = wrapperspb.UInt32(e.Weight)
	}
	if addr, err := netip.ParseAddr(e.Address); err == nil {
		w.Addresses = [][]byte{addr.Unmap().AsSlice()}
	} else {
		w.Hostname = e.Address
	}
	return w
}

// localityNamed reads "region/zone/subzone".
func localityNamed(text string) *workload.Locality {
	parts := append(strings.SplitN(text, "/", 4), "", "", "")
	l := &workload.Locality{Region: parts[0], Zone: parts[1], Subzone: parts[2]}
	if l.Region == "" && l.Zone == "" && l.Subzone == "" {
		return nil
	}
	return l
}
