package translate

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"lateen.dev/lateen/internal/model"
)

// This file is about endpoints of EndpointSlices that name a pod by their targetRef, as a database's operator writes them for its leader. As in
// Istio the pod itself serves the Service then: peers expect its identity, in a tunnel. Other than in Istio the slice says on which ports,
// and only a pod of the slice's own namespace, at one of its own addresses, counts: whoever may write a slice of one namespace must not
// have another namespace's pods serve it. What names another is a plain address, as if it named none: so Knative leads a Service to its
// activator, and Multus to a pod's further networks.

func namesPod(e *discoveryv1.Endpoint) bool { return e.TargetRef != nil && e.TargetRef.Kind == "Pod" }

// inNamespace says whether the pod that an endpoint names is said to be of the slice's namespace.
func inNamespace(slice *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) bool {
	return e.TargetRef.Namespace == "" || e.TargetRef.Namespace == slice.Namespace
}

// SlicePods are the pods that a slice's endpoints name, with the places of those endpoints; whether each is what it is said to be is not asked.
func SlicePods(slice *discoveryv1.EndpointSlice) map[model.Key][]int {
	if _, ok := SliceService(slice); !ok {
		return nil
	}
	pods := map[model.Key][]int{}
	for i := range slice.Endpoints {
		if e := &slice.Endpoints[i]; namesPod(e) && inNamespace(slice, e) {
			key := model.PodKey(slice.Namespace, e.TargetRef.Name)
			pods[key] = append(pods[key], i)
		}
	}
	return pods
}

// SliceOffer is what a pod offers as an endpoint of a slice's Service; false if none of the slice's endpoints is that pod. places are those of
// the endpoints that name it, by SlicePods. An endpoint that is not ready is none, unless the Service wants those, too: whether the pod itself
// is ready, its status says.
func SliceOffer(mesh Mesh, slice *discoveryv1.EndpointSlice, places []int, svc *corev1.Service, pod *corev1.Pod) (Offer, bool) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return Offer{}, false
	}
	serves := slices.ContainsFunc(places, func(i int) bool {
		if i >= len(slice.Endpoints) {
			return false
		}
		e := &slice.Endpoints[i]
		ready := e.Conditions.Ready == nil || *e.Conditions.Ready || svc.Spec.PublishNotReadyAddresses
		if !ready || !namesPod(e) || e.TargetRef.Name != pod.Name {
			return false
		}
		why, _ := stranger(slice, e, pod)
		return why == ""
	})
	if !serves {
		return Offer{}, false
	}
	o := Offer{Host: mesh.ServiceResource(svc.Namespace, svc.Name)}
	for _, p := range slicePorts(slice, svc).Ports {
		o.ports = append(o.ports, offeredPort{number: p.ServicePort, target: p.TargetPort})
	}
	return o, true
}

// SamePlace says whether two versions of a pod, either of which may be nil, are the same to endpoints that name it.
func SamePlace(a, b *corev1.Pod) bool {
	return a != nil && b != nil && a.UID == b.UID && slices.Equal(OwnAddresses(a), OwnAddresses(b))
}

// Join adds to an offer the ports that another of the same Service has and it has not.
func (o *Offer) Join(other Offer) {
	for _, p := range other.ports {
		if !slices.ContainsFunc(o.ports, func(q offeredPort) bool { return p.number == q.number }) {
			o.ports = append(o.ports, p)
		}
	}
}

// stranger says why an endpoint that names a pod is not that pod; empty if it is. plain says that it is an address all the same: what it names is
// elsewhere rather than gone. pod is nil if it is not there.
func stranger(slice *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, pod *corev1.Pod) (why string, plain bool) {
	name := e.TargetRef.Name
	switch {
	case len(e.Addresses) == 0:
		return "has no address", false
	case !inNamespace(slice, e):
		return fmt.Sprintf("names pod %s of another namespace", e.TargetRef.Namespace+"/"+name), true
	case pod == nil:
		return fmt.Sprintf("names pod %s, which is not there", name), false
	case e.TargetRef.UID != "" && e.TargetRef.UID != pod.UID:
		return fmt.Sprintf("names a pod %s that is gone, by its uid", name), false
	}
	// Kubernetes knows one address each.
	addr, err := netip.ParseAddr(e.Addresses[0])
	if own := OwnAddresses(pod); err != nil || !slices.Contains(own, addr.Unmap()) {
		return fmt.Sprintf("names pod %s, which is not at address %.50q", name, e.Addresses[0]), len(own) > 0
	}
	return "", false
}

// strangers finds the endpoints that name a pod and are not that pod, and says of them what they are instead. plain are those that are addresses.
func strangers(slice *discoveryv1.EndpointSlice, pods func(name string) *corev1.Pod, v *verdict) (plain map[int]bool) {
	var none, addresses []string
	plain = map[int]bool{}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if !namesPod(e) {
			continue
		}
		var pod *corev1.Pod
		if inNamespace(slice, e) && pods != nil {
			pod = pods(e.TargetRef.Name)
		}
		why, isPlain := stranger(slice, e, pod)
		switch {
		case isPlain:
			plain[i] = true
			addresses = append(addresses, fmt.Sprintf("endpoints[%d] %s", i, why))
		case why != "":
			none = append(none, fmt.Sprintf("endpoints[%d] %s", i, why))
		}
	}
	if len(none) > 0 {
		v.note("NoPod", listed(none)+": such an endpoint serves nothing; name the pod that is at its address, or leave its targetRef out")
	}
	if len(addresses) > 0 {
		v.note("NoPod", listed(addresses)+": such an endpoint is a plain address, as if it named no pod")
	}
	return plain
}
