package translate

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
)

// SliceResource is the WDS name of an endpoint of an EndpointSlice.
func (m Mesh) SliceResource(namespace, name, address string) string {
	return m.ClusterID + "/discovery.k8s.io/EndpointSlice/" + namespace + "/" + name + "/" + address
}

// SliceService is the Service whose endpoints a slice lists; false if it lists none of anybody's, or only what the Service's pods say
// themselves.
func SliceService(slice *discoveryv1.EndpointSlice) (model.Key, bool) {
	name := slice.Labels[discoveryv1.LabelServiceName]
	if name == "" || slice.Labels[discoveryv1.LabelManagedBy] == model.EndpointSliceController {
		return model.Key{}, false
	}
	return model.ServiceKey(slice.Namespace, name), true
}

// EndpointSlice translates the endpoints that somebody else than the Service's selector gives it: those of the API server itself, of what
// runs outside the cluster, of what a controller looks after. svc is nil if the Service is not there; pods finds one of the slice's namespace,
// or nil.
//
// An endpoint that is the pod that it names is no workload here: the pod is one, and SliceOffer has it serve the Service. The others are plain addresses.
// Where a pod of the mesh is at one, proxies reach it as that pod, so nothing here claims to be it.
func EndpointSlice(mesh Mesh, slice *discoveryv1.EndpointSlice, svc *corev1.Service, pods func(name string) *corev1.Pod) ([]*workload.Workload, []model.Condition) {
	key, ok := SliceService(slice)
	switch {
	case !ok:
		return nil, []model.Condition{accepted()}
	case svc == nil:
		return nil, []model.Condition{rejected("NoService", fmt.Sprintf("there is no %s, which label %s names", key, discoveryv1.LabelServiceName))}
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, []model.Condition{rejected("UnsupportedValue", key.String()+" is of type ExternalName and has no endpoints")}
	case slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6:
		return nil, []model.Condition{rejected("UnsupportedValue", fmt.Sprintf("addressType %s is not supported: use IPv4 or IPv6, or a ServiceEntry with resolution DNS", slice.AddressType))}
	}
	v := newVerdict()
	plain := strangers(slice, pods, v)
	offered := map[string]*workload.PortList{mesh.ServiceResource(svc.Namespace, svc.Name): slicePorts(slice, svc)}
	var out []*workload.Workload
	seen := map[netip.Addr]bool{}
	for i, e := range slice.Endpoints {
		if namesPod(&e) && !plain[i] {
			continue
		}
		if len(e.Addresses) == 0 {
			continue // the API server lets none of these in
		}
		// All addresses of an endpoint are the same thing; Kubernetes knows one each.
		addr, err := netip.ParseAddr(e.Addresses[0])
		if err != nil || addr.Zone() != "" {
			v.note("InvalidAddress", fmt.Sprintf("endpoints[%d]: %q is not an IP address", i, e.Addresses[0]))
			continue
		}
		if addr = addr.Unmap(); seen[addr] {
			continue
		}
		seen[addr] = true
		w := &workload.Workload{
			Uid: mesh.SliceResource(slice.Namespace, slice.Name, addr.String()), Name: slice.Name, Namespace: slice.Namespace,
			Addresses: [][]byte{addr.AsSlice()}, Network: mesh.Network, TrustDomain: mesh.trustDomain(), ClusterId: mesh.ClusterID,
			WorkloadType: workload.WorkloadType_POD, Services: offered,
			// Whoever is at the address is not looked up by it: it may be a node with many programs, or a pod.
			NetworkMode: workload.NetworkMode_HOST_NETWORK,
		}
		describe(w, svc.Name, slice.Labels)
		if ready := e.Conditions.Ready; ready != nil && !*ready {
			w.Status = workload.WorkloadStatus_UNHEALTHY
		}
		if e.NodeName != nil {
			w.Node = *e.NodeName
		}
		if e.Zone != nil {
			w.Locality = &workload.Locality{Zone: *e.Zone}
		}
		out = append(out, w)
	}
	return out, v.conditions()
}

// slicePorts finds the Service's ports on the slice's endpoints: by name, as kube-proxy does.
func slicePorts(slice *discoveryv1.EndpointSlice, svc *corev1.Service) *workload.PortList {
	list := &workload.PortList{}
	for _, p := range tcpPorts(svc) {
		for _, q := range slice.Ports {
			name, tcp := "", true
			if q.Name != nil {
				name = *q.Name
			}
			if q.Protocol != nil {
				tcp = *q.Protocol == corev1.ProtocolTCP
			}
			if name == p.Name && tcp && q.Port != nil && *q.Port > 0 {
				list.Ports = append(list.Ports, &workload.Port{ServicePort: uint32(p.Port), TargetPort: uint32(*q.Port)})
				break
			}
		}
	}
	return list
}
