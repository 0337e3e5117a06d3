package translate

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Labels and annotations by which objects ask for a waypoint and Gateways say what they are. The names and their meaning are Istio's.
const (
	hbonePort            = 15008
	hboneListener        = "HBONE"
	remoteGatewayClass   = "istio-remote"
	eastWestGatewayClass = "istio-east-west"
	trafficForServices   = "service"
	trafficForWorkloads  = "workload"
	trafficForEverything = "all"
	trafficForNothing    = "none"
	managedByMesh        = "istio.io-mesh-controller"
	managedByEastWest    = "istio.io-eastwest-controller"
)

// waypointClasses are the GatewayClasses that need no object to be known as waypoints.
var waypointClasses = []string{IstioWaypointClass, lateenWaypointClass}

// Waypoint is a proxy that connections to others pass through, as a Gateway declares it.
type Waypoint struct {
	Namespace, Name string
	// Address is where node proxies find it.
	Address *workload.GatewayAddress
	// Traffic is what it takes: "service", "workload", "all" or "none".
	Traffic string
	// Tunnel says how the waypoint's own pods take what is tunnelled to them; nil for those that speak HBONE.
	Tunnel *workload.ApplicationTunnel
	// Identity is the "namespace/serviceaccount" of its proxies, if this mesh's proxies serve it; see Served.
	Identity string

	class    string // the same
	from     gatewayv1.FromNamespaces
	selector labels.Selector
}

// Ref is the waypoint's name as labels and messages have it: "namespace/name".
func (w *Waypoint) Ref() string { return w.Namespace + "/" + w.Name }

// allows says whether objects of a namespace may be bound to the waypoint.
func (w *Waypoint) allows(namespace string, ns *corev1.Namespace) bool {
	switch w.from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSelector:
		return ns != nil && w.selector != nil && w.selector.Matches(labels.Set(ns.Labels))
	case gatewayv1.NamespacesFromNone:
		return false
	}
	return w.Namespace == namespace
}

// IsWaypointClass says whether Gateways of a class are waypoints, whatever else they say; class may be nil.
func IsWaypointClass(name string, class *gatewayv1.GatewayClass) bool {
	if slices.Contains(waypointClasses, name) {
		return true
	}
	return class != nil && (class.Spec.ControllerName == wellknown.MeshController || class.Spec.ControllerName == wellknown.LateenWaypointController)
}

// Gateway translates a Gateway into the waypoint that it declares, if it is one and can be reached. class is its GatewayClass or nil, own
// the Service of the Gateway's name or nil. As in Istio any Gateway that has an address can serve as a waypoint.
func Gateway(mesh Mesh, gw *gatewayv1.Gateway, class *gatewayv1.GatewayClass, own *corev1.Service) (*Waypoint, []model.Condition) {
	isWaypoint := IsWaypointClass(string(gw.Spec.GatewayClassName), class)
	v := newVerdict()
	address := gatewayAddress(mesh, gw, "")
	if isWaypoint && (address == nil || address.GetHostname().GetHostname() == OwnAddress(mesh, gw)) {
		// In the status it may stand because the mesh itself has written it there; what counts is the Service.
		if address = gatewayAddress(mesh, gw, OwnAddress(mesh, gw)); own != nil {
			address = &workload.GatewayAddress{
				Destination:   &workload.GatewayAddress_Hostname{Hostname: &workload.NamespacedHostname{Namespace: gw.Namespace, Hostname: OwnAddress(mesh, gw)}},
				HboneMtlsPort: hbonePort,
			}
		}
	}
	switch {
	case NetworkGateways(mesh, gw) != nil:
		v.note("", "it is the way to network "+gw.Labels[wellknown.Network])
	case gw.Labels[wellknown.Network] != "" && gw.Spec.GatewayClassName == eastWestGatewayClass:
		return nil, []model.Condition{rejected("UnsupportedValue", "it is an entrance to this network, and this mesh has one network; gateways to others have class "+remoteGatewayClass)}
	case !isWaypoint && gw.Spec.GatewayClassName != remoteGatewayClass && address == nil:
		return nil, []model.Condition{rejected("NotImplemented", fmt.Sprintf("Gateway of class %s has no effect: this mesh has waypoints, of class %s, and no gateways for traffic from outside yet",
			gw.Spec.GatewayClassName, strings.Join(waypointClasses, " or ")))}
	}
	if address == nil {
		if gw.Spec.GatewayClassName == remoteGatewayClass {
			return nil, v.conditions()
		}
		return nil, []model.Condition{rejected("AddressNotAssigned", fmt.Sprintf("no address: status.addresses is empty and there is no Service %s/%s; what uses this waypoint is reached without it until then",
			gw.Namespace, gw.Name))}
	}
	w := declared(gw, class, v)
	w.Address = address
	if isWaypoint && boundListener(gw, w.Tunnel) == nil {
		v.note("UnsupportedValue", fmt.Sprintf("no listener has protocol %s and port %d; node proxies use that port all the same, and only objects of namespace %s may be bound", hboneListener, hbonePort, gw.Namespace))
	}
	return w, v.conditions()
}

// declared is the waypoint that a Gateway declares, without the address at which it is found.
func declared(gw *gatewayv1.Gateway, class *gatewayv1.GatewayClass, v *verdict) *Waypoint {
	w := &Waypoint{Namespace: gw.Namespace, Name: gw.Name, Traffic: trafficForServices}
	if class != nil && class.Labels[wellknown.WaypointFor] != "" {
		w.Traffic = class.Labels[wellknown.WaypointFor]
	}
	if t := gw.Labels[wellknown.WaypointFor]; t != "" {
		w.Traffic = t
	}
	if !slices.Contains([]string{trafficForServices, trafficForWorkloads, trafficForEverything, trafficForNothing}, w.Traffic) {
		v.note("UnsupportedValue", fmt.Sprintf("label %s is %q, so nothing can use it; use service, workload, all or none", wellknown.WaypointFor, w.Traffic))
	}
	var problem string
	if w.Tunnel, problem = binding(gw, class); problem != "" {
		v.note("UnsupportedValue", problem)
	}
	listener := boundListener(gw, w.Tunnel)
	w.from, w.selector = gatewayv1.NamespacesFromSame, nil
	if listener != nil && listener.AllowedRoutes != nil && listener.AllowedRoutes.Namespaces != nil {
		n := listener.AllowedRoutes.Namespaces
		if n.From != nil {
			w.from = *n.From
		}
		if selector, err := metav1.LabelSelectorAsSelector(n.Selector); err != nil {
			v.note("UnsupportedValue", fmt.Sprintf("listener %s: allowedRoutes.namespaces.selector: %v; it chooses no namespace", listener.Name, err))
		} else {
			w.selector = selector
		}
	}
	return w
}

// SameWaypoint says whether two are the same to all who use them; either may be nil.
func SameWaypoint(a, b *Waypoint) bool {
	if a == nil || b == nil {
		return a == b
	}
	return SameServer(a, b) && proto.Equal(a.Address, b.Address) && proto.Equal(a.Tunnel, b.Tunnel)
}

// Programmed says whether nobody says of a Gateway that it is not programmed. Who runs none by a controller writes no condition.
func Programmed(gw *gatewayv1.Gateway) bool {
	return !slices.ContainsFunc(gw.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == string(gatewayv1.GatewayConditionProgrammed) && c.Status != metav1.ConditionTrue
	})
}

// OwnAddress is the host name of the Service that bears a Gateway's name.
func OwnAddress(mesh Mesh, gw *gatewayv1.Gateway) string {
	return mesh.ServiceHost(gw.Namespace, gw.Name)
}

// gatewayAddress prefers host names, but for one: a service's addresses may change, and it may have several.
func gatewayAddress(mesh Mesh, gw *gatewayv1.Gateway, but string) *workload.GatewayAddress {
	for _, a := range gw.Status.Addresses {
		if a.Type != nil && *a.Type == gatewayv1.HostnameAddressType && a.Value != but {
			return &workload.GatewayAddress{
				Destination:   &workload.GatewayAddress_Hostname{Hostname: &workload.NamespacedHostname{Namespace: gw.Namespace, Hostname: a.Value}},
				HboneMtlsPort: hbonePort,
			}
		}
	}
	for _, a := range gw.Status.Addresses {
		// The API's default type is IPAddress.
		if a.Type != nil && *a.Type != gatewayv1.IPAddressType {
			continue
		}
		if ip, err := netip.ParseAddr(a.Value); err == nil {
			return &workload.GatewayAddress{
				Destination:   &workload.GatewayAddress_Address{Address: &workload.NetworkAddress{Network: mesh.Network, Address: ip.Unmap().AsSlice()}},
				HboneMtlsPort: hbonePort,
			}
		}
	}
	return nil
}

// binding reads how a waypoint's pods take inbound connections: "PROTOCOL" or "PROTOCOL/PORT", on the Gateway or on its class.
func binding(gw *gatewayv1.Gateway, class *gatewayv1.GatewayClass) (tunnel *workload.ApplicationTunnel, problem string) {
	v, ok := gw.Annotations[wellknown.WaypointInboundBinding]
	if !ok && class != nil {
		v, ok = class.Annotations[wellknown.WaypointInboundBinding]
	}
	if !ok {
		return nil, ""
	}
	name, portText, hasPort := strings.Cut(v, "/")
	protocol, known := map[string]workload.ApplicationTunnel_Protocol{"NONE": workload.ApplicationTunnel_NONE, "PROXY": workload.ApplicationTunnel_PROXY}[name]
	if !known {
		return nil, fmt.Sprintf("annotation %s is %q and ignored; use NONE or PROXY, with /PORT if need be", wellknown.WaypointInboundBinding, v)
	}
	tunnel = &workload.ApplicationTunnel{Protocol: protocol}
	if hasPort {
		port, err := strconv.ParseUint(portText, 10, 16)
		if err != nil || port == 0 {
			return nil, fmt.Sprintf("annotation %s is %q and ignored: its port is not a number from 1 to 65535", wellknown.WaypointInboundBinding, v)
		}
		tunnel.Port = uint32(port)
	}
	return tunnel, ""
}

// boundListener is the listener whose allowedRoutes count: the one that the binding means, else the HBONE listener.
func boundListener(gw *gatewayv1.Gateway, tunnel *workload.ApplicationTunnel) *gatewayv1.Listener {
	for i := range gw.Spec.Listeners {
		l := &gw.Spec.Listeners[i]
		switch {
		case tunnel == nil:
		case tunnel.Port != 0 && uint32(l.Port) == tunnel.Port, tunnel.Port == 0 && tunnel.Protocol == workload.ApplicationTunnel_PROXY && l.Protocol == wellknown.ProxyProtocol:
			return l
		}
	}
	for i := range gw.Spec.Listeners {
		if l := &gw.Spec.Listeners[i]; l.Protocol == hboneListener && l.Port == hbonePort {
			return l
		}
	}
	return nil
}

// NetworkGateway is an entrance to another network.
type NetworkGateway struct {
	Network string
	// Workload is what node proxies must know of the gateway to dial it.
	Workload *workload.Workload
	// Address is how workloads of the network name it.
	Address *workload.GatewayAddress
}

// NetworkGateways lists the entrances to another network that a Gateway declares, one for each of its addresses, or nil if it declares none.
// Without an address yet it is an empty list.
func NetworkGateways(mesh Mesh, gw *gatewayv1.Gateway) []NetworkGateway {
	network := gw.Labels[wellknown.Network]
	remote := gw.Spec.GatewayClassName == remoteGatewayClass || gw.Spec.GatewayClassName == eastWestGatewayClass && network != mesh.Network
	if network == "" || !remote {
		return nil
	}
	at := slices.IndexFunc(gw.Spec.Listeners, func(l gatewayv1.Listener) bool { return l.Protocol == hboneListener })
	if at < 0 {
		return nil
	}
	port := uint32(gw.Spec.Listeners[at].Port)
	account := GatewayAccount(gw)
	out := []NetworkGateway{}
	addresses := gw.Status.Addresses
	if len(addresses) == 0 {
		// Of a gateway that somebody else runs, the addresses are the user's to write.
		for _, a := range gw.Spec.Addresses {
			addresses = append(addresses, gatewayv1.GatewayStatusAddress{Type: a.Type, Value: a.Value})
		}
	}
	for _, a := range addresses {
		uid := fmt.Sprintf("NetworkGateway/%s/%s/%s/%s/%d", network, gw.Namespace, gw.Name, a.Value, port)
		g := NetworkGateway{Network: network,
			Workload: &workload.Workload{Uid: uid, Name: uid, Namespace: gw.Namespace, ServiceAccount: account, Network: network, TrustDomain: mesh.trustDomain()},
			Address:  &workload.GatewayAddress{HboneMtlsPort: port}}
		if ip, err := netip.ParseAddr(a.Value); err == nil {
			g.Workload.Addresses = [][]byte{ip.Unmap().AsSlice()}
			g.Address.Destination = &workload.GatewayAddress_Address{Address: &workload.NetworkAddress{Network: network, Address: ip.Unmap().AsSlice()}}
		} else {
			g.Workload.Hostname = a.Value
			g.Address.Destination = &workload.GatewayAddress_Hostname{Hostname: &workload.NamespacedHostname{Namespace: gw.Namespace, Hostname: a.Value}}
		}
		out = append(out, g)
	}
	return out
}
