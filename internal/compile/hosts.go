package compile

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
	"lateen.dev/lateen/internal/wirekind"
)

// hosts holds which object speaks for which host name: several may declare one.
type hosts struct {
	declared  map[model.Key][]string          // object → hosts
	claims    map[string]map[model.Key]bool   // host → objects
	owners    map[string]map[string]model.Key // host → namespace → the object that speaks for it there
	canonical map[string]model.Key            // host → the object that speaks for it everywhere else
	resources map[model.Key]map[string]bool   // object → names of its resources in the log
}

func newHosts() hosts {
	return hosts{declared: map[model.Key][]string{}, claims: map[string]map[model.Key]bool{}, owners: map[string]map[string]model.Key{},
		canonical: map[string]model.Key{}, resources: map[model.Key]map[string]bool{}}
}

// owner is the object that speaks for a host in a namespace, by the wire name "namespace/host".
func (h *hosts) owner(name string) (model.Key, bool) {
	namespace, host, _ := strings.Cut(name, "/")
	key, ok := h.owners[host][namespace]
	return key, ok
}

// speaks says whether an object speaks for a host in its namespace.
func (h *hosts) speaks(key model.Key, host string) bool { return h.owners[host][key.Namespace] == key }

// claim is one object's claim to a host.
type claim struct {
	key       model.Key
	created   time.Time
	published bool // anybody sees it
	public    bool // other namespaces may
	stake     stake
}

func (x claim) isService() bool { return x.key.Kind == "Service" }

func (x claim) equal(y claim) bool {
	return x.key == y.key && x.public == y.public && x.published == y.published && x.stake == y.stake && x.created.Equal(y.created)
}

// before orders claims by right: a Service before ServiceEntries, then the older, then by name.
func (x claim) before(y claim) bool {
	switch {
	case x.isService() != y.isService():
		return x.isService()
	case !x.created.Equal(y.created):
		return x.created.Before(y.created)
	}
	return x.key.Compare(y.key) < 0
}

// declares lists the hosts that an object declares now.
func (c *Compiler) declares(key model.Key) []string {
	if svc, ok := c.store.Service(key); ok && svc.Spec.Type != corev1.ServiceTypeExternalName {
		if _, published := translate.ServiceVisibility(svc); !published {
			return nil // what nobody sees speaks for nothing
		}
		return []string{c.mesh.ServiceHost(svc.Namespace, svc.Name)}
	}
	if se, ok := c.store.ServiceEntry(key); ok {
		if _, published := translate.EntryVisibility(se); published {
			return translate.EntryHosts(se)
		}
	}
	return nil
}

// settleHosts finds who speaks for the hosts of the services that the batch touches, and touches those who gain or lose one.
func (c *Compiler) settleHosts(b *batch) {
	touched := map[string]bool{}
	for key := range b.stale[serviceOutput] {
		for _, h := range c.hosts.declared[key] {
			delete(c.hosts.claims[h], key)
			touched[h] = true
			c.names.retract(key, h)
		}
		now := c.declares(key)
		if key.Kind == "ServiceEntry" {
			c.noteInherited(key)
		}
		for _, h := range now {
			if c.hosts.claims[h] == nil {
				c.hosts.claims[h] = map[model.Key]bool{}
			}
			c.hosts.claims[h][key] = true
			touched[h] = true
			if key.Kind == "ServiceEntry" {
				c.names.declare(key, h)
			}
		}
		if len(now) == 0 {
			delete(c.hosts.declared, key)
		} else {
			c.hosts.declared[key] = now
		}
	}
	for h := range touched {
		c.settleHost(b, h)
	}
	for _, key := range slices.SortedFunc(maps.Keys(b.stale[serviceOutput]), model.Key.Compare) {
		c.settleAddresses(b, key)
	}
}

// settleHost follows Istio's rule: in a namespace a Service speaks for a host before ServiceEntries and an older entry before others; for
// namespaces that do not declare the host a Service speaks, else the oldest entry that others may see.
func (c *Compiler) settleHost(b *batch, host string) {
	best := map[string]claim{}
	for key := range c.hosts.claims[host] {
		x := c.claim(key)
		x.public = x.public && (x.isService() || c.nameOfOthers(host, key.Namespace) == "")
		if y, ok := best[key.Namespace]; !ok || x.before(y) {
			best[key.Namespace] = x
		}
	}
	var canonical *claim
	for _, x := range best {
		if (x.isService() || x.public) && (canonical == nil || x.before(*canonical)) {
			canonical = &x
		}
	}
	old := c.hosts.canonical[host]
	var now model.Key
	if canonical != nil {
		now = canonical.key
	}
	changed := old != now
	if changed {
		c.retouch(b, old, now)
	}
	if canonical == nil {
		delete(c.hosts.canonical, host)
	} else {
		c.hosts.canonical[host] = now
	}
	owners := c.hosts.owners[host]
	for namespace, owner := range owners {
		if x, ok := best[namespace]; !ok || x.key != owner {
			delete(owners, namespace)
			c.retouch(b, owner)
			for _, addr := range c.assignments.Addresses[namespace+"/"+host] {
				for key := range c.asks.by[addr].all {
					b.mark(serviceOutput, key)
				}
			}
			changed = true
		}
	}
	for namespace, x := range best {
		if _, ok := owners[namespace]; !ok {
			if owners == nil {
				owners = map[string]model.Key{}
			}
			owners[namespace] = x.key
			c.retouch(b, x.key)
			changed = true
		}
	}
	if c.hosts.owners[host] = owners; len(owners) == 0 {
		delete(c.hosts.owners, host)
	}
	if changed {
		// Each says who speaks for the host in its namespace and elsewhere.
		for key := range c.hosts.claims[host] {
			b.mark(serviceOutput, key)
		}
	}
	if len(c.hosts.claims[host]) == 0 {
		delete(c.hosts.claims, host)
	}
}

func (c *Compiler) claim(key model.Key) claim {
	if svc, ok := c.store.Service(key); ok {
		return claim{key: key, created: svc.CreationTimestamp.Time, published: true, public: true}
	}
	if se, ok := c.store.ServiceEntry(key); ok {
		visibility, published := translate.EntryVisibility(se)
		return claim{key: key, created: se.CreationTimestamp.Time, published: published, public: visibility == workload.Service_PUBLIC}
	}
	if pod, ok := c.store.Pod(key); ok {
		return claim{key: key, created: pod.CreationTimestamp.Time, stake: c.stake(pod)}
	}
	if node, ok := c.store.Node(key.Name); ok && key.Kind == "Node" {
		return claim{key: key, created: node.CreationTimestamp.Time}
	}
	return claim{key: key}
}

// retouch has services compiled again, and the workloads that serve them.
func (c *Compiler) retouch(b *batch, keys ...model.Key) {
	for _, key := range keys {
		if key == (model.Key{}) {
			continue
		}
		b.mark(serviceOutput, key)
		if svc, ok := c.store.Service(key); ok && len(svc.Spec.Selector) > 0 {
			c.selection.Chosen(key.Namespace, svc.Spec.Selector, b.workload)
		}
		if se, ok := c.store.ServiceEntry(key); ok {
			b.workload(key)
			if selector := se.Spec.WorkloadSelector.GetLabels(); len(selector) > 0 {
				c.selection.Chosen(key.Namespace, selector, b.workload)
			}
		}
	}
}

// settleAddresses chooses virtual addresses for the hosts of a ServiceEntry that need them, and gives back those that are no longer needed.
func (c *Compiler) settleAddresses(b *batch, key model.Key) {
	for _, addr := range c.asks.named[key] {
		if !autoPrefix4.Contains(addr) && !autoPrefix6.Contains(addr) {
			continue
		}
		if _, lost := c.holder(key, addr); lost {
			continue
		}
		// What its author asks for goes before what was chosen for the own namespace; the other gets a new one.
		if service, evicted := c.assignments.evict(addr); evicted {
			if owner, ok := c.hosts.owner(service); ok {
				b.mark(serviceOutput, owner)
			}
		}
	}
}

// used says whether an address is not to be chosen for anybody: an entry asks for it as its own, or a pod or node says that it is there.
func (c *Compiler) used(addr netip.Addr) bool {
	return !c.asks.by[addr].empty() || !c.claims.by[addr].empty()
}

// autoAddresses are the virtual addresses of a ServiceEntry's hosts that need them.
func (c *Compiler) autoAddresses(se *networkingv1.ServiceEntry, key model.Key) map[string][]netip.Addr {
	wanted := translate.AutoHosts(se)
	out := map[string][]netip.Addr{}
	for _, h := range translate.EntryHosts(se) {
		name := translate.EntryResource(se, h)
		if !c.hosts.speaks(key, h) {
			continue
		}
		if slices.Contains(wanted, h) {
			out[h] = c.assignments.addresses(name, func(prefix netip.Prefix) (netip.Addr, bool) { return c.virtualAddress(name, prefix, c.used) })
		} else {
			c.assignments.release(name)
		}
	}
	return out
}

func (c *Compiler) compileService(b *batch, key model.Key) {
	published := map[string]bool{}
	publish := func(s *workload.Service) {
		name := s.Namespace + "/" + s.Hostname
		published[name] = true
		c.emit(b, wirekind.Address, name, translate.ServiceAliases(s), nil, &workload.Address{Type: &workload.Address_Service{Service: s}}, key)
	}
	if key.Kind == "Service" {
		c.gateways.forget(key) // an entry also asks for its endpoints, and those questions stay
	}
	ctx := c.context(key)
	ctx.Holder = func(addr netip.Addr) string {
		if holder, held := c.holder(key, addr); held {
			return holder.String()
		}
		return ""
	}
	ctx.Part = func(block netip.Prefix) translate.Remains { return c.part(key, block) }
	if svc, ok := c.store.Service(key); ok {
		s, conditions := translate.Service(c.mesh, svc, ctx)
		c.conditions(b, key, conditions)
		if s != nil {
			publish(s)
		}
	} else if se, ok := c.store.ServiceEntry(key); ok {
		in := translate.EntryInput{Context: ctx, Entry: se, Auto: c.autoAddresses(se, key), Lost: map[string]string{}, Canonical: map[string]bool{}, OfOthers: map[string]string{},
			Gateway: func(network string) *workload.GatewayAddress { return c.entrance(key, network) },
			Wanting: func(h string) (bool, string) { return c.assignments.wants(translate.EntryResource(se, h)) }}
		for _, h := range translate.EntryHosts(se) {
			if owner := c.hosts.owners[h][key.Namespace]; owner != key {
				in.Lost[h] = owner.String()
			}
			in.Canonical[h] = c.hosts.canonical[h] == key
			in.OfOthers[h] = c.nameOfOthers(h, key.Namespace)
		}
		in.Shared = c.shared(se, key)
		services, conditions := translate.ServiceEntry(c.mesh, in)
		c.conditions(b, key, conditions)
		for _, s := range services {
			publish(s)
		}
	} else {
		c.gateways.forget(key)
	}
	for name := range c.hosts.resources[key] {
		if published[name] {
			continue
		}
		// Unless another object speaks for it now, which says so itself.
		owner, ok := c.hosts.owner(name)
		if !ok || owner == key {
			b.remove(wirekind.Address, name)
		}
		if !ok {
			c.assignments.release(name)
		}
	}
	if len(published) == 0 {
		delete(c.hosts.resources, key)
	} else {
		c.hosts.resources[key] = published
	}
}
