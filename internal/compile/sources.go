package compile

import (
	"maps"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/translate"
)

// sources declares the kinds that are compiled. The objects of all other kinds only hear whether they have an effect.
var sources = []source{
	{
		group: "", kind: "Pod",
		feeds: []feed{feedLabels(podLabels), feedPodNames},
		edges: []edge{
			{to: workloadOutput, keys: self},
			{to: workloadOutput, keys: slicesOfPod, when: podMoved}, // a slice says which of its endpoints are pods
			{to: serviceOutput, keys: entriesShortForMoved},
			{to: gatewayOutput, keys: gatewaysOfPod, when: podTurnedReady},
		},
	},
	{
		group: "", kind: "Service",
		feeds: []feed{feedSelector(serviceSelector), feedServiceNames},
		edges: []edge{
			{to: serviceOutput, keys: self},
			{to: serviceOutput, keys: entriesShortForMoved},
			{to: workloadOutput, keys: chosen(serviceSelector)},
			{to: workloadOutput, keys: slicesOfService},
			{to: gatewayOutput, keys: gatewayOfService},
		},
	},
	{
		group: "", kind: "Node",
		edges: []edge{
			{to: workloadOutput, keys: podsOnNode},
			{to: nodeOutput, keys: self},
		},
	},
	{
		group: "", kind: "Namespace", accepted: true,
		feeds: []feed{feedNamespaceNames},
		edges: []edge{
			{to: serviceOutput, keys: entriesShortForMoved},
			{to: serviceOutput, keys: servicesOfNamespace, when: inheritedWishesChanged},
			{to: workloadOutput, keys: workloadsOfNamespace, when: inheritedWishesChanged},
		},
	},
	{
		group: model.NetworkGroup, kind: "ServiceEntry",
		feeds: []feed{feedSelector(entrySelector), feedLabels(serviceEntryLabels)},
		edges: []edge{
			{to: serviceOutput, keys: self},
			{to: workloadOutput, keys: self}, // its endpoints
			{to: workloadOutput, keys: chosen(entrySelector)},
		},
	},
	{
		group: model.NetworkGroup, kind: "WorkloadEntry",
		feeds: []feed{feedLabels(workloadEntryLabels)},
		edges: []edge{{to: workloadOutput, keys: self}},
	},
	{
		group: model.DiscoveryGroup, kind: "EndpointSlice", partial: true,
		feeds: []feed{feedSlicePods, feedServiceSlices},
		edges: []edge{
			{to: workloadOutput, keys: self},
			{to: workloadOutput, keys: podsOfSlice},
		},
	},
	{
		group: model.GatewayGroup, kind: "Gateway",
		edges: []edge{{to: gatewayOutput, keys: self}},
	},
	{
		group: model.GatewayGroup, kind: "GatewayClass", accepted: true,
		edges: []edge{
			{to: gatewayOutput, keys: gatewaysOfClass},
			{to: requestPolicyOutput, keys: policiesOfTarget},
		},
	},
	{
		group: model.SecurityGroup, kind: "AuthorizationPolicy",
		feeds: []feed{feedSelector(policySelector), feedTargets},
		edges: []edge{
			{to: policyOutput, keys: self},
			{to: requestPolicyOutput, keys: self},
			{to: workloadOutput, keys: chosen(policySelector)},
		},
	},
	{
		group: model.SecurityGroup, kind: "RequestAuthentication",
		feeds: []feed{feedTargets},
		edges: []edge{{to: requestPolicyOutput, keys: self}},
	},
	{
		group: "", kind: "ConfigMap", reads: isMeshConfig,
		edges: []edge{{to: meshOutput, keys: self}},
	},
	{
		group: model.SecurityGroup, kind: "PeerAuthentication",
		feeds: []feed{feedSelector(peerSelector)},
		edges: []edge{
			{to: peerOutput, keys: self},
			{to: workloadOutput, keys: chosen(peerScope)},
		},
	},
}

// sourceIndex holds the indices that the feeds of sources keep, so that a change costs no more than its dependents.
type sourceIndex struct {
	mesh      translate.Mesh
	store     *model.Store
	selection *model.Selection
	names     *names
	targets   targets
	slices    map[model.Key]map[model.Key]bool  // Service → EndpointSlices that are not made of its pods
	slicesOf  map[model.Key]map[model.Key][]int // Pod → those of them that name it, by their endpoints
}

func newSourceIndex(mesh translate.Mesh, store *model.Store) *sourceIndex {
	return &sourceIndex{mesh: mesh, store: store, selection: model.NewSelection(), names: newNames(mesh.DomainSuffix), targets: targets{},
		slices: map[model.Key]map[model.Key]bool{}, slicesOf: map[model.Key]map[model.Key][]int{}}
}

// isMeshConfig says whether an object is the ConfigMap of the mesh's settings.
func isMeshConfig(x *sourceIndex, key model.Key) bool { return key == x.mesh.ConfigKey() }

// self is the object's own key.
func self(_ *sourceIndex, ch model.Changed, stale marker) { stale.mark(ch.Key) }

// selector tells which workloads an object chooses: those of a namespace, all if it is empty, that have the labels. ok is false if it
// chooses none.
type selector func(x *sourceIndex, key model.Key, o *model.Object) (namespace string, labels map[string]string, ok bool)

// feedSelector keeps the index of selectors.
func feedSelector(of selector) feed {
	return func(x *sourceIndex, ch model.Changed) {
		if namespace, _, ok := of(x, ch.Key, ch.Old); ok {
			x.selection.DeleteSelector(ch.Key, namespace)
		}
		if namespace, labels, ok := of(x, ch.Key, ch.New); ok {
			x.selection.PutSelector(ch.Key, namespace, labels)
		}
	}
}

// chosen are the workloads that the object chooses now or chose before.
func chosen(of selector) func(*sourceIndex, model.Changed, marker) {
	return func(x *sourceIndex, ch model.Changed, stale marker) {
		for _, o := range [...]*model.Object{ch.Old, ch.New} {
			if namespace, labels, ok := of(x, ch.Key, o); ok {
				x.selection.Chosen(namespace, labels, stale.mark)
			}
		}
	}
}

func serviceSelector(_ *sourceIndex, key model.Key, o *model.Object) (string, map[string]string, bool) {
	svc, ok := valueOf[*corev1.Service](o)
	if !ok || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return "", nil, false
	}
	return key.Namespace, svc.Spec.Selector, len(svc.Spec.Selector) > 0
}

func entrySelector(_ *sourceIndex, key model.Key, o *model.Object) (string, map[string]string, bool) {
	se, ok := valueOf[*networkingv1.ServiceEntry](o)
	if !ok {
		return "", nil, false
	}
	labels := se.Spec.WorkloadSelector.GetLabels()
	return key.Namespace, labels, len(labels) > 0
}

// policySelector is that of a policy that workloads name. A policy of the root namespace chooses workloads of the whole mesh.
func policySelector(x *sourceIndex, key model.Key, o *model.Object) (string, map[string]string, bool) {
	policy, ok := valueOf[*securityv1.AuthorizationPolicy](o)
	if !ok || !translate.AttachedByName(policy) {
		return "", nil, false
	}
	namespace := key.Namespace
	if namespace == x.mesh.RootNamespace {
		namespace = ""
	}
	return namespace, policy.Spec.Selector.GetMatchLabels(), true
}

func peerSelector(_ *sourceIndex, key model.Key, o *model.Object) (string, map[string]string, bool) {
	pa, ok := valueOf[*securityv1.PeerAuthentication](o)
	if !ok || !translate.Selects(pa) {
		return "", nil, false
	}
	return key.Namespace, pa.Spec.Selector.MatchLabels, true
}

// peerScope chooses every workload that may inherit from a PeerAuthentication.
func peerScope(x *sourceIndex, key model.Key, o *model.Object) (string, map[string]string, bool) {
	pa, ok := valueOf[*securityv1.PeerAuthentication](o)
	switch {
	case !ok:
		return "", nil, false
	case translate.Selects(pa):
		return key.Namespace, pa.Spec.Selector.MatchLabels, true
	case key.Namespace == x.mesh.RootNamespace:
		return "", nil, true
	}
	return key.Namespace, nil, true
}

// feedLabels keeps the index of the labels by which selectors choose objects.
func feedLabels(of func(*model.Object) (map[string]string, bool)) feed {
	return func(x *sourceIndex, ch model.Changed) {
		if labels, ok := of(ch.New); ok {
			x.selection.Put(ch.Key, labels)
		} else {
			x.selection.Delete(ch.Key)
		}
	}
}

func podLabels(o *model.Object) (map[string]string, bool) {
	pod, ok := valueOf[*corev1.Pod](o)
	if !ok {
		return nil, false
	}
	return pod.Labels, true
}

func workloadEntryLabels(o *model.Object) (map[string]string, bool) {
	we, ok := valueOf[*networkingv1.WorkloadEntry](o)
	if !ok {
		return nil, false
	}
	return translate.EntryLabels(we), true
}

// serviceEntryLabels are the entry's own: by these policies choose its endpoints.
func serviceEntryLabels(o *model.Object) (map[string]string, bool) {
	se, ok := valueOf[*networkingv1.ServiceEntry](o)
	if !ok {
		return nil, false
	}
	return se.Labels, true
}

func podMoved(ch model.Changed) bool {
	before, _ := valueOf[*corev1.Pod](ch.Old)
	now, _ := valueOf[*corev1.Pod](ch.New)
	return !translate.SamePlace(before, now)
}

func podsOnNode(x *sourceIndex, ch model.Changed, stale marker) {
	for _, pod := range x.store.PodsOnNode(ch.Key.Name) {
		stale.mark(model.PodKey(pod.Namespace, pod.Name))
	}
}

func podTurnedReady(ch model.Changed) bool {
	before, had := valueOf[*corev1.Pod](ch.Old)
	now, has := valueOf[*corev1.Pod](ch.New)
	return (had && translate.PodReady(before)) != (has && translate.PodReady(now))
}

// gatewaysOfPod are the Gateways that are found under a Service which chooses the pod. No Service chooses a pod that is gone, and its label says
// whose it was.
func gatewaysOfPod(x *sourceIndex, ch model.Changed, stale marker) {
	if before, had := valueOf[*corev1.Pod](ch.Old); had {
		gateway := model.GatewayKey(ch.Key.Namespace, before.Labels[wellknown.GatewayName])
		if _, ok := x.store.Gateway(gateway); ok {
			stale.mark(gateway)
		}
	}
	for _, owner := range x.selection.ChosenBy(ch.Key) {
		if owner.Kind != "Service" {
			continue
		}
		gateway := model.GatewayKey(owner.Namespace, owner.Name)
		if _, ok := x.store.Gateway(gateway); ok {
			stale.mark(gateway)
		}
	}
}

// gatewayOfService is the Gateway of a Service's name: a waypoint may be found under that Service.
func gatewayOfService(x *sourceIndex, ch model.Changed, stale marker) {
	gateway := model.GatewayKey(ch.Key.Namespace, ch.Key.Name)
	if _, ok := x.store.Gateway(gateway); ok {
		stale.mark(gateway)
	}
}

func gatewaysOfClass(x *sourceIndex, ch model.Changed, stale marker) {
	for gateway, gw := range x.store.Gateways() {
		if string(gw.Spec.GatewayClassName) == ch.Key.Name {
			stale.mark(gateway)
		}
	}
}

// inheritedWishesChanged looks at a namespace's labels and annotations, from which its objects inherit wishes.
func inheritedWishesChanged(ch model.Changed) bool {
	var old, now corev1.Namespace
	if ns, ok := valueOf[*corev1.Namespace](ch.Old); ok {
		old = *ns
	}
	if ns, ok := valueOf[*corev1.Namespace](ch.New); ok {
		now = *ns
	}
	return !maps.Equal(old.Annotations, now.Annotations) || !maps.Equal(old.Labels, now.Labels)
}

func servicesOfNamespace(x *sourceIndex, ch model.Changed, stale marker) {
	for key := range x.store.Services() {
		if key.Namespace == ch.Key.Name {
			stale.mark(key)
		}
	}
	for key := range x.store.ServiceEntries() {
		if key.Namespace == ch.Key.Name {
			stale.mark(key)
		}
	}
}

func workloadsOfNamespace(x *sourceIndex, ch model.Changed, stale marker) {
	x.selection.Chosen(ch.Key.Name, nil, stale.mark)
}
