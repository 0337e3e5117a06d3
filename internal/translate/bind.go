package translate

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model/wellknown"
)

// noWaypoint is the value by which an object or a namespace chooses no waypoint.
const noWaypoint = "none"

// Waypoints finds a waypoint by namespace and name; nil if there is none that can be reached.
type Waypoints func(namespace, name string) *Waypoint

// Context is what an object's surroundings say about it.
type Context struct {
	Namespace *corev1.Namespace // nil if unknown
	Waypoints Waypoints
	// Servers finds the Gateways that this mesh's own proxies serve, whether they can be reached or not; see Served.
	Servers Waypoints
	// Holder names the object with the better right to an address; empty if there is none. Set for Services, ServiceEntries and pods only.
	Holder func(netip.Addr) string
	// Part returns the blocks of a range that an entry may use, or the owner of the addresses because of which it has none. Set for entries
	// only.
	Part func(netip.Prefix) Remains
	// Decision says which waypoint the object's Address names; nil where each is named as soon as it can be found.
	Decision *Decision
	// Occupant names the node or pod that is at an address of a network; empty if none is. Nil where nothing is known.
	Occupant func(network string, addr netip.Addr) string
}

// occupied removes the tunnel of an endpoint whose address is that of a node or pod. That node or pod declares itself how it is reached.
func (c Context) occupied(w *workload.Workload, v *verdict) {
	if w.TunnelProtocol != workload.TunnelProtocol_HBONE || c.Occupant == nil {
		return
	}
	for _, raw := range w.Addresses {
		addr, _ := netip.AddrFromSlice(raw)
		if occupant := c.Occupant(w.Network, addr); occupant != "" {
			w.TunnelProtocol, w.NativeTunnel = workload.TunnelProtocol_NONE, false
			v.note("Conflicted", fmt.Sprintf("address %s belongs to %s, which says itself how it is reached: the tunnel has no effect; use another address, or remove %s and %s",
				addr, occupant, wellknown.Redirection, wellknown.Tunnel))
			return
		}
	}
}

// keep returns the addresses and the parts of ranges that have no other owner.
func (c Context) keep(addresses []*workload.NetworkAddress, v *verdict) (kept []*workload.NetworkAddress) {
	seen := map[netip.Prefix]bool{} // parts of one range may be others of the same entry
	for _, a := range addresses {
		addr, _ := netip.AddrFromSlice(a.Address)
		if a.Length != nil {
			for _, block := range c.partOf(netip.PrefixFrom(addr, int(*a.Length)), v) {
				if !seen[block] {
					seen[block] = true
					kept = append(kept, networkAddress(a.Network, block))
				}
			}
			continue
		}
		if c.Holder != nil {
			if holder := c.Holder(addr); holder != "" {
				v.note("Conflicted", fmt.Sprintf("address %s belongs to %s and stays with it; use another", addr, holder))
				continue
			}
		}
		seen[netip.PrefixFrom(addr, addr.BitLen())] = true
		kept = append(kept, a)
	}
	return kept
}

// partOf returns the blocks of a range that have no other owner.
func (c Context) partOf(block netip.Prefix, v *verdict) []netip.Prefix {
	if c.Part == nil {
		return []netip.Prefix{block}
	}
	left := c.Part(block)
	switch {
	case left.Holder != "":
		v.note("Conflicted", fmt.Sprintf("range %s has no effect: in it are addresses of %s, which stay there; use ranges beside them", block, left.Holder))
	case left.Around > mostAround:
		v.note("RangeReduced", fmt.Sprintf("range %s is without the addresses of nodes and their pods, %s of it, and without %s of it around those, since it would fall into too many parts: connections there go past the entry; use ranges beside them",
			block, percent(left.Theirs), percent(left.Around)))
	case left.Theirs > 0:
		v.note("", fmt.Sprintf("range %s is without the addresses of nodes and their pods, with some around those %s of it", block, percent(left.Theirs+left.Around)))
	}
	return left.Blocks
}

// percent writes a part of a whole.
func percent(part float64) string { return strconv.FormatFloat(100*part, 'g', 2, 64) + " %" }

func (c Context) find(namespace, name string) *Waypoint {
	if c.Waypoints == nil {
		return nil
	}
	return c.Waypoints(namespace, name)
}

// Server finds a Gateway that this mesh's own proxies serve by its reference, "namespace/name"; nil if there is none.
func (c Context) Server(ref string) *Waypoint {
	namespace, name, _ := strings.Cut(ref, "/")
	if c.Servers == nil {
		return nil
	}
	return c.Servers(namespace, name)
}

// Gateway finds a Gateway by its reference, whoever serves it; nil if there is none that can be reached or that this mesh's proxies serve.
func (c Context) Gateway(ref string) *Waypoint {
	if w := c.Server(ref); w != nil {
		return w
	}
	namespace, name, _ := strings.Cut(ref, "/")
	return c.find(namespace, name)
}

func (c Context) labels() map[string]string {
	if c.Namespace == nil {
		return nil
	}
	return c.Namespace.Labels
}

func (c Context) annotations() map[string]string {
	if c.Namespace == nil {
		return nil
	}
	return c.Namespace.Annotations
}

// enrolled says whether the pods of the namespace are of the mesh unless they say otherwise.
func (c Context) enrolled() bool { return wellknown.Enrols(c.labels()) }

// bound is the result of an object's choice of a waypoint.
type bound struct {
	waypoint *Waypoint
	weighted []*workload.WeightedWaypoint
	ingress  bool
}

func (b bound) address() *workload.GatewayAddress {
	if b.waypoint == nil {
		return nil
	}
	return b.waypoint.Address
}

// wish reads a choice of waypoint. none is the choice of no waypoint, which ends the search; so does an empty name, as in Istio.
func wish(labels map[string]string, namespace string) (ns, name string, none bool) {
	name, ok := labels[wellknown.UseWaypoint]
	switch {
	case !ok:
		return "", "", false
	case name == "" || name == noWaypoint:
		return "", "", true
	}
	if other, ok := labels[wellknown.UseWaypointNamespace]; ok {
		namespace = other
	}
	return namespace, name, false
}

// choose finds the waypoint that an object chooses, else the one that its namespace chooses. A chosen waypoint that cannot be used counts
// as none, as in Istio: connections then go straight to their destination, and only node proxies enforce policies. The object's conditions
// say so.
func (c Context) choose(o metav1.Object, v *verdict) (w *Waypoint, own bool) {
	ns, name, none := wish(o.GetLabels(), o.GetNamespace())
	own = name != ""
	if label, ok := o.GetLabels()[wellknown.UseWaypoint]; ok && label == "" {
		// An author who lost the name in a template learns it by this.
		v.note("", fmt.Sprintf("label %s is empty, so connections go without a waypoint, as with %q", wellknown.UseWaypoint, noWaypoint))
	}
	if !none && !own {
		ns, name, none = wish(c.labels(), o.GetNamespace())
	}
	if none || name == "" {
		return nil, own
	}
	w = c.find(ns, name)
	switch {
	case w == nil:
		v.note("WaypointIsNotReady", fmt.Sprintf("waypoint %s/%s is not ready; until it is, connections go without it and L7 policy does not hold", ns, name))
		return nil, own
	case !w.allows(o.GetNamespace(), c.Namespace):
		v.note("AttachmentDenied", fmt.Sprintf("waypoint %s does not admit namespace %s, so connections go without it; let its listener's allowedRoutes do so", w.Ref(), o.GetNamespace()))
		return nil, own
	}
	return w, own
}

// bindService finds the waypoint of a service. A private service must not be seen by other namespaces, so it cannot use their waypoints.
func (c Context) bindService(o metav1.Object, private bool, v *verdict) bound {
	switch o.GetLabels()[wellknown.GatewayManaged] {
	case managedByMesh, managedByEastWest:
		return bound{} // it is a waypoint or a gateway itself
	}
	if c.Decision != nil {
		w := c.decided(o, true, v)
		if w == nil {
			return bound{}
		}
		b := bound{waypoint: w, ingress: c.ingress(o)}
		if w.Ref() == c.Decision.Asked {
			b.weighted = c.weighted(o, w, v)
		}
		return b
	}
	w, _ := c.choose(o, v)
	switch {
	case w == nil:
		return bound{}
	case w.Traffic != trafficForServices && w.Traffic != trafficForEverything:
		v.note("UnsupportedTrafficType", fmt.Sprintf("waypoint %s does not take traffic for services, so connections go without it; set its label %s to service or all", w.Ref(), wellknown.WaypointFor))
		return bound{}
	case private && w.Namespace != o.GetNamespace():
		v.note("CrossNamespaceWaypointForbidden", fmt.Sprintf("it is exported to its own namespace only, so it cannot use waypoint %s", w.Ref()))
		return bound{}
	case isOwn(o, w):
		return bound{} // the waypoint's own service
	}
	b := bound{waypoint: w, ingress: c.ingress(o)}
	b.weighted = c.weighted(o, w, v)
	v.bound = w.Ref()
	return b
}

// isOwn says whether a service is the one under which a waypoint is found.
func isOwn(o metav1.Object, w *Waypoint) bool {
	return o.GetNamespace() == w.Namespace && (o.GetName() == w.Name || o.GetLabels()[wellknown.GatewayName] == w.Name)
}

// ingress reports whether gateways, too, send connections to the service through its waypoint.
func (c Context) ingress(o metav1.Object) bool {
	text, ok := o.GetLabels()[wellknown.IngressUseWaypoint]
	if !ok {
		text = c.labels()[wellknown.IngressUseWaypoint]
	}
	use, err := strconv.ParseBool(text)
	return err == nil && use
}

// weighted shares a service's connections between its waypoint and a canary. The canary is declared where the waypoint is.
func (c Context) weighted(o metav1.Object, primary *Waypoint, v *verdict) []*workload.WeightedWaypoint {
	namespace, name, annotations := c.canaryWish(o)
	if name == "" {
		return nil
	}
	ref := namespace + "/" + name
	if ref == primary.Ref() {
		v.note("CanarySameAsPrimary", fmt.Sprintf("canary waypoint %s is the waypoint itself and ignored; name another in label %s", ref, wellknown.UseWaypointCanary))
		return nil
	}
	weight := uint64(0)
	if text, ok := annotations[wellknown.UseWaypointCanaryWeight]; ok {
		var err error
		if weight, err = strconv.ParseUint(text, 10, 32); err != nil || weight > 100 {
			v.note("CanaryInvalidWeight", fmt.Sprintf("annotation %s is %q, so canary waypoint %s is ignored; use a number from 0 to 100", wellknown.UseWaypointCanaryWeight, text, ref))
			return nil
		}
	}
	canary := c.find(namespace, name)
	switch {
	case canary == nil:
		v.note("WaypointIsNotReady", fmt.Sprintf("canary waypoint %s is not ready, so all connections use waypoint %s", ref, primary.Ref()))
		return nil
	case !canary.allows(o.GetNamespace(), c.Namespace):
		v.note("AttachmentDenied", fmt.Sprintf("canary waypoint %s does not admit namespace %s and is ignored; let its listener's allowedRoutes do so", ref, o.GetNamespace()))
		return nil
	case c.Decision != nil && !c.Decision.Canary:
		v.note(reasonNotReady, fmt.Sprintf("canary waypoint %s has not acknowledged it yet, so all connections use waypoint %s", ref, primary.Ref()))
		return nil
	case canary.Traffic != trafficForServices && canary.Traffic != trafficForEverything:
		v.note("UnsupportedTrafficType", fmt.Sprintf("canary waypoint %s does not take traffic for services and is ignored; set its label %s to service or all", ref, wellknown.WaypointFor))
		return nil
	}
	return []*workload.WeightedWaypoint{
		{Destination: primary.Address, Weight: uint32(100 - weight)},
		{Destination: canary.Address, Weight: uint32(weight)},
	}
}

// canaryWish reads the choice of a canary: of the object if that chooses the waypoint, else of its namespace as well. name is empty without one.
func (c Context) canaryWish(o metav1.Object) (namespace, name string, annotations map[string]string) {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if _, name, _ := wish(labels, o.GetNamespace()); name == "" {
		if _, ok := labels[wellknown.UseWaypointCanary]; !ok {
			labels = c.labels()
		}
		if _, ok := annotations[wellknown.UseWaypointCanaryWeight]; !ok {
			annotations = c.annotations()
		}
	}
	namespace = o.GetNamespace()
	if other, ok := labels[wellknown.UseWaypointCanaryNS]; ok {
		namespace = other
	}
	if name = labels[wellknown.UseWaypointCanary]; name == noWaypoint {
		name = ""
	}
	return namespace, name, annotations
}

// bindWorkload finds the waypoint of connections to a workload's own address. For an instance of a waypoint it returns how the instance
// takes inbound connections.
func (c Context) bindWorkload(o metav1.Object, v *verdict) (*workload.GatewayAddress, *workload.ApplicationTunnel) {
	if name := o.GetLabels()[wellknown.GatewayName]; name != "" {
		if w := c.find(o.GetNamespace(), name); w != nil {
			return nil, w.Tunnel
		}
	}
	if c.Decision != nil {
		if w := c.decided(o, c.Decision.Own, v); w != nil {
			return w.Address, nil
		}
		return nil, nil
	}
	w, own := c.choose(o, v)
	switch {
	case w == nil:
		return nil, nil
	case w.Traffic == trafficForWorkloads || w.Traffic == trafficForEverything:
		v.bound = w.Ref()
		return w.Address, nil
	case own:
		v.note("UnsupportedTrafficType", fmt.Sprintf("waypoint %s does not take traffic for workloads, so connections go without it; set its label %s to workload or all", w.Ref(), wellknown.WaypointFor))
	}
	return nil, nil
}
