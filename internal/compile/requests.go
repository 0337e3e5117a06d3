package compile

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/translate"
)

// requestCompiler compiles what proxies have that read requests: their Gateways, with the settings of the mesh, and the policies with targetRefs.
type requestCompiler struct {
	*facts
	out      *publisher
	index    *sourceIndex
	gateways *gateways
	services *serviceCompiler

	settings  translate.MeshSettings
	published map[model.Key]bool // policies and Gateways that have a resource
}

func newRequestCompiler(f *facts, out *publisher, index *sourceIndex, g *gateways, s *serviceCompiler) *requestCompiler {
	return &requestCompiler{facts: f, out: out, index: index, gateways: g, services: s, settings: translate.ReadMeshConfig(f.mesh, nil), published: map[model.Key]bool{}}
}

// settle reads the mesh's settings and touches those who depend on what has changed of them.
func (c *requestCompiler) settle(b *batch, key model.Key) {
	config, _ := c.store.ConfigMap(key)
	now := translate.ReadMeshConfig(c.mesh, config)
	if config != nil {
		c.out.conditions(b, key, now.Conditions)
	}
	before := c.settings
	c.settings = now
	if !proto.Equal(before.Settings, now.Settings) {
		for gateway := range c.gateways.served {
			b.mark(requestGatewayOutput, gateway)
		}
	}
	if !slices.Equal(before.Aliases(), now.Aliases()) {
		for _, policies := range c.index.targets {
			for policy := range policies {
				b.mark(requestPolicyOutput, policy)
			}
		}
	}
}

// Settings are the settings of the mesh in force, with what their author is told of them.
func (c *Compiler) Settings() translate.MeshSettings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests.settings
}

// compileGateway compiles a Gateway for its own proxies.
func (c *requestCompiler) compileGateway(b *batch, key model.Key) {
	name := key.Namespace + "/" + key.Name
	served := c.gateways.served[key]
	if served == nil {
		if c.published[key] {
			delete(c.published, key)
			b.remove(resourcekind.Gateway, name)
		}
		return
	}
	c.published[key] = true
	c.out.emit(b, resourcekind.Gateway, name, nil, nil, translate.RequestGateway(served, c.settings.Settings), key)
}

// compilePolicy compiles an AuthorizationPolicy or a RequestAuthentication with targetRefs.
func (c *requestCompiler) compilePolicy(b *batch, key model.Key) {
	name, kind := key.Namespace+"/"+key.Name, resourcekind.RequestAuthorization
	var message proto.Message
	if key.Kind == "RequestAuthentication" {
		kind = resourcekind.RequestAuthentication
		if ra, ok := c.store.RequestAuthentication(key); ok {
			policy, report := translate.RequestAuthentication(c.mesh, ra, c.targets())
			c.out.report(b, key, report)
			if policy != nil {
				message = policy
			}
		}
	} else if ap, ok := c.store.AuthorizationPolicy(key); ok && translate.Targeted(ap) {
		policy, report := translate.RequestAuthorization(c.settings.Mesh(c.mesh), ap, c.targets())
		c.out.report(b, key, report)
		if policy != nil {
			message = policy
		}
	}
	switch {
	case message != nil:
		c.published[key] = true
		c.out.emit(b, kind, name, nil, nil, message, key)
	case c.published[key]:
		delete(c.published, key)
		b.remove(kind, name)
	}
}

// targets is what policies may name.
func (c *requestCompiler) targets() translate.Targets {
	return translate.Targets{
		Gateway: func(namespace, name string) (*translate.Waypoint, string, bool) {
			key := model.GatewayKey(namespace, name)
			gw, exists := c.store.Gateway(key)
			if !exists {
				return nil, "", false
			}
			return c.gateways.served[key], string(gw.Spec.GatewayClassName), true
		},
		Class: func(name string) (served []*translate.Waypoint, waypoints bool) {
			class, _ := c.store.GatewayClass(name)
			if name != translate.IstioWaypointClass && !translate.ServesClass(c.mesh, name, class) {
				return nil, false
			}
			for _, w := range c.gateways.served {
				if slices.Contains(w.Classes(), name) {
					served = append(served, w)
				}
			}
			slices.SortFunc(served, func(a, b *translate.Waypoint) int { return strings.Compare(a.Ref(), b.Ref()) })
			return served, true
		},
		Service: func(kind, namespace, name string) (translate.Bound, bool) {
			key := model.ServiceKey(namespace, name)
			if kind == "ServiceEntry" {
				key = model.ServiceEntryKey(namespace, name)
			}
			of, ok := c.services.bound[key]
			of.Lost = c.services.departed.hosts(key)
			return of, ok
		},
	}
}

// bind publishes through which Gateways an object's services are to be reached, and touches the policies that name it if that is
// not as before.
func (c *serviceCompiler) bind(b *batch, key model.Key, services map[string]bool, decision *translate.Decision) {
	now := translate.Bound{Decision: decision}
	bindings := map[string]*l7.Binding{}
	for name := range services {
		now.Hosts = append(now.Hosts, name)
		if binding := translate.ServiceBinding(name, decision.Gateways, decision.Leaving); binding != nil {
			bindings[name] = binding
		}
	}
	slices.Sort(now.Hosts)
	c.bindings.publish(b, key, bindings)
	before, had := c.bound[key]
	has := len(now.Hosts) > 0
	c.depart(b, key, before.Hosts, now.Hosts, bindings)
	if has {
		c.bound[key] = now
	} else {
		delete(c.bound, key)
	}
	if had != has || !slices.Equal(before.Hosts, now.Hosts) || !before.Decision.Same(now.Decision) {
		c.index.policiesFor(key, func(policy model.Key) { b.mark(requestPolicyOutput, policy) })
	}
}

// depart keeps the hosts that a ServiceEntry has lost while policies name it. A host whose Binding is another object's by now is that one's. The
// host of a Service follows from its name.
func (c *serviceCompiler) depart(b *batch, key model.Key, before, now []string, bindings map[string]*l7.Binding) {
	for _, host := range now {
		if of := c.departed.holder[host]; of == key {
			c.departed.end(host)
		}
	}
	for host := range bindings {
		if of, had := c.departed.end(host); had && of != key {
			c.index.policiesFor(of, func(policy model.Key) { b.mark(requestPolicyOutput, policy) })
		}
	}
	if key.Kind != "ServiceEntry" || len(c.index.targets[key]) == 0 {
		return
	}
	// Those that are lost within a second expire together.
	until := c.ties.now().Add(leaveFor + time.Second).Truncate(time.Second)
	for _, host := range before {
		holder, bound := c.bindings.holder[host]
		if slices.Contains(now, host) || bound && holder != key {
			continue
		}
		c.departed.leave(host, key, until)
		c.ties.rouse()
	}
}
