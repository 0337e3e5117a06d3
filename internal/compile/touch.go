package compile

import (
	"maps"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// touch finds what one changed object bears on, and keeps the selection in step.
func (c *Compiler) touch(b *batch, ch model.Changed) {
	key := ch.Key
	switch key.Group + "/" + key.Kind {
	case "/Pod":
		if pod, ok := valueOf[*corev1.Pod](ch.New); ok {
			c.selection.Put(key, pod.Labels)
		} else {
			c.selection.Delete(key)
		}
		c.touchNames(b, ch)
		b.workload(key)
		before, _ := valueOf[*corev1.Pod](ch.Old)
		now, _ := valueOf[*corev1.Pod](ch.New)
		if !translate.SamePlace(before, now) {
			for slice := range c.slicesOf[key] {
				b.workload(slice) // it says which of its endpoints are pods
			}
		}
	case "/Service":
		c.touchService(b, ch)
	case "/Node":
		for _, pod := range c.store.PodsOnNode(key.Name) {
			b.workload(model.PodKey(pod.Namespace, pod.Name))
		}
		b.nodes[key] = true
	case "/Namespace":
		c.touchNamespace(b, ch)
	case model.NetworkGroup + "/ServiceEntry":
		c.touchServiceEntry(b, ch)
	case model.NetworkGroup + "/WorkloadEntry":
		if we, ok := valueOf[*networkingv1.WorkloadEntry](ch.New); ok {
			c.selection.Put(key, translate.EntryLabels(we))
		} else {
			c.selection.Delete(key)
		}
		b.workload(key)
	case model.DiscoveryGroup + "/EndpointSlice":
		c.touchSlice(b, ch)
	case model.GatewayGroup + "/Gateway":
		b.gateways[key] = true
	case model.GatewayGroup + "/GatewayClass":
		for gateway, gw := range c.store.Gateways() {
			if string(gw.Spec.GatewayClassName) == key.Name {
				b.gateways[gateway] = true
			}
		}
		c.accept(key, b)
	case model.SecurityGroup + "/AuthorizationPolicy":
		c.touchPolicy(b, ch)
	case model.SecurityGroup + "/PeerAuthentication":
		c.touchPeerAuthentication(b, ch)
	default:
		switch {
		case ch.New != nil && ch.New.Support == model.Ineffective:
			c.conditions(b, key, []model.Condition{translate.NotImplemented(ch.New.Reason)})
		case ch.New != nil && ch.New.Support == model.Implemented:
			c.accept(key, b)
		}
	}
}

// reselect puts a selector in the place of another and touches the workloads of both. An empty one chooses nothing.
func (c *Compiler) reselect(b *batch, key model.Key, old, now map[string]string) {
	c.selection.DeleteSelector(key, key.Namespace)
	if len(old) > 0 {
		c.selection.Chosen(key.Namespace, old, b.workload)
	}
	if len(now) > 0 {
		c.selection.PutSelector(key, key.Namespace, now)
		c.selection.Chosen(key.Namespace, now, b.workload)
	}
}

func (c *Compiler) touchService(b *batch, ch model.Changed) {
	selector := func(o *model.Object) map[string]string {
		if svc, ok := valueOf[*corev1.Service](o); ok && svc.Spec.Type != corev1.ServiceTypeExternalName {
			return svc.Spec.Selector
		}
		return nil
	}
	c.reselect(b, ch.Key, selector(ch.Old), selector(ch.New))
	b.services[ch.Key] = true
	c.touchSlicesOf(b, ch.Key)
	c.touchNames(b, ch)
	// A waypoint may be found under the Service of its name.
	if gateway := model.GatewayKey(ch.Key.Namespace, ch.Key.Name); c.gateways.known(gateway) {
		b.gateways[gateway] = true
	}
}

func (c *Compiler) touchServiceEntry(b *batch, ch model.Changed) {
	key := ch.Key
	selector := func(o *model.Object) map[string]string {
		if se, ok := valueOf[*networkingv1.ServiceEntry](o); ok {
			return se.Spec.WorkloadSelector.GetLabels()
		}
		return nil
	}
	c.reselect(b, key, selector(ch.Old), selector(ch.New))
	// Policies choose its endpoints by the entry's own labels.
	if se, ok := valueOf[*networkingv1.ServiceEntry](ch.New); ok {
		c.selection.Put(key, se.Labels)
	} else {
		c.selection.Delete(key)
	}
	b.services[key] = true
	b.workload(key)
}

// touchNamespace looks at labels and annotations, which its objects inherit wishes from.
func (c *Compiler) touchNamespace(b *batch, ch model.Changed) {
	var old, now corev1.Namespace
	if ns, ok := valueOf[*corev1.Namespace](ch.Old); ok {
		old = *ns
	}
	if ns, ok := valueOf[*corev1.Namespace](ch.New); ok {
		now = *ns
	}
	c.accept(ch.Key, b)
	c.touchNames(b, ch)
	if maps.Equal(old.Annotations, now.Annotations) && maps.Equal(old.Labels, now.Labels) {
		return
	}
	namespace := ch.Key.Name
	for key := range c.store.Services() {
		if key.Namespace == namespace {
			b.services[key] = true
		}
	}
	for key := range c.store.ServiceEntries() {
		if key.Namespace == namespace {
			b.services[key] = true
		}
	}
	c.selection.Chosen(namespace, nil, b.workload)
}

func (c *Compiler) touchPolicy(b *batch, ch model.Changed) {
	key := ch.Key
	// A policy of the root namespace chooses workloads of the whole mesh.
	where := key.Namespace
	if where == c.mesh.RootNamespace {
		where = ""
	}
	if old, ok := valueOf[*securityv1.AuthorizationPolicy](ch.Old); ok && translate.AttachedByName(old) {
		c.selection.Chosen(where, old.Spec.Selector.GetMatchLabels(), b.workload)
		c.selection.DeleteSelector(key, where)
	}
	if policy, ok := valueOf[*securityv1.AuthorizationPolicy](ch.New); ok && translate.AttachedByName(policy) {
		c.selection.PutSelector(key, where, policy.Spec.Selector.GetMatchLabels())
		c.selection.Chosen(where, policy.Spec.Selector.GetMatchLabels(), b.workload)
	}
	b.policies[key] = true
}
