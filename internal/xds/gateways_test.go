package xds

import (
	"maps"
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
)

// l7Kinds are the kinds that a waypoint asks for by its Gateway's name.
var l7Kinds = []string{resourcekind.RequestAuthorization, resourcekind.RequestAuthentication, resourcekind.Gateway, resourcekind.Binding}

func parentsOf(gateways ...string) (parents []*l7.Parent) {
	for _, g := range gateways {
		parents = append(parents, &l7.Parent{Gateway: g, Identity: g + "-account"})
	}
	return parents
}

// encoded is a change of a kind as the compiler makes it, with what the kind keeps of it.
func (w *world) encoded(typeURL, name string, gateways ...string) resourcelog.Change {
	w.t.Helper()
	kind := w.log.Kinds().Of(typeURL)
	var r *resourcelog.Resource
	var err error
	switch typeURL {
	case resourcekind.RequestAuthorization:
		r, err = kind.Encode(name, nil, nil, &l7.Authorization{Parents: parentsOf(gateways...)})
	case resourcekind.RequestAuthentication:
		r, err = kind.Encode(name, nil, nil, &l7.Authentication{Parents: parentsOf(gateways...)})
	case resourcekind.Gateway:
		r, err = kind.Encode(name, nil, nil, &l7.Gateway{Identity: gateways[0] + "-account"})
	default:
		r, err = kind.Encode(name, nil, nil, &l7.Binding{Parents: parentsOf(gateways...)})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return resourcelog.Change{Type: typeURL, Name: name, Resource: r}
}

// waypoint connects a proxy of an identity that follows what waypoints follow, the L7 kinds by the names given.
func (w *world) waypoint(identity string, role resourcelog.Role, names ...string) *client {
	w.t.Helper()
	c := w.connect(DefaultLimits)
	c.session.Caller = resourcelog.Caller{Identity: identity, Role: role}
	for _, typeURL := range l7Kinds {
		c.state[typeURL] = map[string]*discovery.Resource{}
		if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names}); err != nil {
			w.t.Fatal(err)
		}
	}
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	return c
}

func (c *client) rest() {
	c.w.t.Helper()
	for range 1000 {
		for typeURL := range c.state {
			c.answer(typeURL, "")
		}
		if c.receive() == nil {
			return
		}
	}
	c.w.t.Fatal("the conversation does not come to rest")
}

// has lists what a client has of the L7 kinds.
func (c *client) has() (names []string) {
	for _, typeURL := range l7Kinds {
		for _, name := range slices.Sorted(maps.Keys(c.state[typeURL])) {
			names = append(names, c.w.log.Kinds().Label(typeURL)+" "+name)
		}
	}
	return names
}

func twoGateways(t *testing.T) *world {
	w := newWorld(t)
	w.apply(w.encoded(resourcekind.Gateway, "shop/wp", "shop/wp"), w.encoded(resourcekind.Gateway, "bank/wp", "bank/wp"),
		w.encoded(resourcekind.RequestAuthorization, "shop/p", "shop/wp"), w.encoded(resourcekind.RequestAuthorization, "bank/p", "bank/wp"),
		w.encoded(resourcekind.RequestAuthorization, "istio-system/p", "shop/wp", "bank/wp"),
		w.encoded(resourcekind.RequestAuthentication, "bank/jwt", "bank/wp"),
		w.encoded(resourcekind.Binding, "shop/web.shop", "shop/wp"), w.encoded(resourcekind.Binding, "bank/vault.bank", "bank/wp"))
	return w
}

var ofShop = []string{"l7_authorization istio-system/p", "l7_authorization shop/p", "l7_gateway shop/wp", "l7_binding shop/web.shop"}

func TestAWaypointHasTheResourcesOfItsOwnGateway(t *testing.T) {
	w := twoGateways(t)
	c := w.waypoint("shop/wp-account", resourcelog.RoleWaypoint, "shop/wp")
	defer c.session.Close()
	c.rest()
	if got := c.has(); !slices.Equal(got, ofShop) {
		t.Errorf("it has %v, want %v", got, ofShop)
	}
	// What comes to be for the Gateway later arrives, and what is no longer for it goes.
	w.apply(w.encoded(resourcekind.RequestAuthorization, "bank/p", "shop/wp"), w.encoded(resourcekind.RequestAuthorization, "shop/p", "bank/wp"), w.encoded(resourcekind.Binding, "shop/db.shop", "shop/wp"),
		gone(resourcekind.Binding, "shop/web.shop"))
	c.rest()
	want := []string{"l7_authorization bank/p", "l7_authorization istio-system/p", "l7_gateway shop/wp", "l7_binding shop/db.shop"}
	if got := c.has(); !slices.Equal(got, want) {
		t.Errorf("it has %v, want %v", got, want)
	}
}

func TestWhoAsksForAnotherGatewaysResourcesGetsNone(t *testing.T) {
	w := twoGateways(t)
	for name, x := range map[string]struct {
		identity string
		role     resourcelog.Role
		names    []string
		want     []string
	}{
		"another Gateway's by its name":    {"shop/wp-account", resourcelog.RoleWaypoint, []string{"bank/wp"}, []string{"l7_authorization istio-system/p"}},
		"another Gateway's by their names": {"shop/wp-account", resourcelog.RoleWaypoint, []string{"bank/p", "bank/jwt", "bank/vault.bank"}, nil},
		"everything":                       {"shop/wp-account", resourcelog.RoleWaypoint, []string{"*"}, ofShop},
		"everything, of no Gateway":        {"shop/other", resourcelog.RoleWaypoint, []string{"*"}, nil},
		"everything, without identity":     {"", resourcelog.RoleWaypoint, []string{"*"}, nil},
		"everything, as a node proxy":      {"shop/wp-account", resourcelog.RoleNode, []string{"*"}, nil},
		"its own, as a node proxy":         {"shop/wp-account", resourcelog.RoleNode, []string{"shop/wp"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := w.waypoint(x.identity, x.role, x.names...)
			defer c.session.Close()
			c.rest()
			if got := c.has(); !slices.Equal(got, x.want) {
				t.Errorf("it has %v, want %v", got, x.want)
			}
		})
	}
}

// A policy is there before the service that it is for, and goes after it.
func TestAWaypointHasAPolicyForAsLongAsItsService(t *testing.T) {
	w := newWorld(t)
	w.apply(w.encoded(resourcekind.Gateway, "shop/wp", "shop/wp"), w.encoded(resourcekind.Binding, "shop/web.shop", "shop/wp"), w.encoded(resourcekind.RequestAuthorization, "shop/p", "shop/wp"))
	c := w.waypoint("shop/wp-account", resourcelog.RoleWaypoint, "shop/wp")
	defer c.session.Close()
	without := func(step string) {
		for range 1000 {
			for typeURL := range c.state {
				c.answer(typeURL, "")
			}
			r := c.receive()
			if r == nil {
				return
			}
			if len(c.state[resourcekind.Binding]) > 0 && len(c.state[resourcekind.RequestAuthorization]) == 0 {
				t.Fatalf("%s: it has the Binding, and not the policy", step)
			}
		}
	}
	without("at first")
	w.apply(gone(resourcekind.RequestAuthorization, "shop/p"), gone(resourcekind.Binding, "shop/web.shop"))
	without("as both go")
	if got := c.has(); !slices.Equal(got, []string{"l7_gateway shop/wp"}) {
		t.Errorf("it has %v", got)
	}
}

// A node proxy never asks for the Bindings that Addresses go after: it gets its Addresses at once.
func TestANodeProxyDoesNotWaitForKindsOfWaypoints(t *testing.T) {
	w := twoGateways(t)
	c := w.connect(DefaultLimits)
	defer c.session.Close()
	c.session.Caller.Role = resourcelog.RoleNode
	w.apply(w.service("s", "10.0.0.1", 1))
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	if wait := c.session.Wait(w.now); wait != 0 {
		t.Errorf("the session waits %s", wait)
	}
	if got := len(c.settle()); got != 2 {
		t.Errorf("%d responses, want one of each type", got)
	}
}

// A policy that is no longer for a Gateway goes after the Bindings, and they come after the policies: a proxy that comes back with it gets both.
func TestAPolicyThatDepartedHoldsUpNothingElse(t *testing.T) {
	w := twoGateways(t)
	c := w.connect(DefaultLimits)
	defer c.session.Close()
	c.session.Caller = resourcelog.Caller{Identity: "shop/wp-account", Role: resourcelog.RoleWaypoint}
	for _, typeURL := range l7Kinds {
		c.state[typeURL] = map[string]*discovery.Resource{}
		request := &discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: []string{"shop/wp"}}
		if typeURL == resourcekind.RequestAuthorization {
			request.InitialResourceVersions = map[string]string{"shop/left": "v"}
			c.state[typeURL]["shop/left"] = nil
		}
		if err := c.send(request); err != nil {
			t.Fatal(err)
		}
	}
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	c.rest()
	if got := c.has(); !slices.Equal(got, ofShop) {
		t.Errorf("it has %v, want %v", got, ofShop)
	}
	for _, s := range c.session.States() {
		if s.AckedGeneration < w.log.Generation() {
			t.Errorf("%s is acknowledged through %d of %d", s.Type, s.AckedGeneration, w.log.Generation())
		}
	}
}
