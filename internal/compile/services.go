package compile

import (
	"net/netip"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/translate"
)

// serviceCompiler compiles the services of Services and ServiceEntries.
type serviceCompiler struct {
	*facts
	out         *publisher
	gateways    *gateways
	places      *places
	arbiter     *arbiter
	allocator   *allocator
	hosts       *hosts
	names       *names
	assignments *Assignments
	index       *sourceIndex
	bindings    *bindings
	ties        *ties
	bound       map[model.Key]translate.Bound // how the services of an object are to be reached
	departed    *departed
}

// compile brings the services of one object up to date.
func (c *serviceCompiler) compile(b *batch, key model.Key) {
	published := map[string]bool{}
	var decision *translate.Decision
	decide := func(intent translate.Intent, ctx *translate.Context) {
		decision = c.ties.decide(b, objectName(key), key, intent, len(c.hosts.resources[key]) > 0, *ctx)
		if c.mesh.BindWaypoints != translate.BindAtOnce {
			ctx.Decision = decision
		}
	}
	publish := func(s *workload.Service) {
		name := s.Namespace + "/" + s.Hostname
		published[name] = true
		c.out.emit(b, resourcekind.Address, name, translate.ServiceAliases(s), nil, &workload.Address{Type: &workload.Address_Service{Service: s}}, key)
	}
	if key.Kind == "Service" {
		c.gateways.forget(key) // an entry also asks for its endpoints, and those questions stay
	}
	ctx := c.gateways.context(key)
	ctx.Holder = func(addr netip.Addr) string {
		if holder, held := c.places.holder(key, addr); held {
			return holder.String()
		}
		return ""
	}
	ctx.Part = func(block netip.Prefix) translate.Remains { return c.arbiter.part(key, block) }
	if svc, ok := c.store.Service(key); ok {
		decide(translate.ServiceIntent(svc, ctx), &ctx)
		s, conditions := translate.Service(c.mesh, svc, ctx)
		c.out.conditions(b, key, conditions)
		if s != nil {
			publish(s)
		}
	} else if se, ok := c.store.ServiceEntry(key); ok {
		in := translate.EntryInput{Context: ctx, Entry: se, Auto: c.allocator.autoAddresses(se, key), Lost: map[string]string{}, Canonical: map[string]bool{}, OfOthers: map[string]string{},
			Gateway: func(network string) *workload.GatewayAddress { return c.gateways.entrance(key, network) },
			Wanting: func(h string) (bool, string) { return c.assignments.wants(translate.EntryResource(se, h)) }}
		for _, h := range translate.EntryHosts(se) {
			if owner := c.hosts.owners[h][key.Namespace]; owner != key {
				in.Lost[h] = owner.String()
			}
			in.Canonical[h] = c.hosts.canonical[h] == key
			in.OfOthers[h] = c.names.ofOthers(h, key.Namespace)
		}
		in.Shared = c.arbiter.shared(se, key)
		decide(translate.EntryIntent(se, ctx), &in.Context)
		services, conditions := translate.ServiceEntry(c.mesh, in)
		c.out.conditions(b, key, conditions)
		for _, s := range services {
			publish(s)
		}
	} else {
		c.gateways.forget(key)
		c.ties.drop(objectName(key))
	}
	c.bind(b, key, published, decision)
	for name := range c.hosts.resources[key] {
		if published[name] {
			continue
		}
		// Unless another object speaks for it now, which says so itself.
		owner, ok := c.hosts.owner(name)
		if !ok || owner == key {
			b.remove(resourcekind.Address, name)
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
