package xds

import (
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
)

// onDemand opens Addresses without asking for any.
func onDemand(t *testing.T, w *world) *client {
	t.Helper()
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Address,
		ResourceNamesSubscribe: []string{"*"}, ResourceNamesUnsubscribe: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *client) subscribe(names ...string) {
	c.w.t.Helper()
	if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Address, ResourceNamesSubscribe: names}); err != nil {
		c.w.t.Fatal(err)
	}
}

func TestOnDemandClientGetsWhatItAsksForByAnyName(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("ns/web.svc", "10.96.0.1", 1), w.pod("uid-1", "10.0.0.1", 1, nil, "ns/web.svc"), w.pod("uid-2", "10.0.0.2", 1, nil, "ns/web.svc"),
		w.pod("uid-3", "10.0.0.3", 1, nil))
	c := onDemand(t, w)
	if got := c.settle(); len(got) != 2 {
		t.Fatalf("%d first responses, want an empty one for each type", len(got))
	}
	if n := len(c.state[resourcekind.Address]); n != 0 {
		t.Fatalf("%d addresses nobody asked for", n)
	}
	c.subscribe("/10.0.0.3")
	c.settle()
	if got := c.names(resourcekind.Address); !slices.Equal(got, []string{"uid-3"}) {
		t.Fatalf("by address: %v", got)
	}
	c.subscribe("/10.96.0.1") // a service brings its workloads
	c.settle()
	if got := c.names(resourcekind.Address); !slices.Equal(got, []string{"ns/web.svc", "uid-1", "uid-2", "uid-3"}) {
		t.Fatalf("by service address: %v", got)
	}
	w.apply(w.pod("uid-4", "10.0.0.4", 1, nil, "ns/web.svc"), w.pod("uid-5", "10.0.0.5", 1, nil), gone(resourcekind.Address, "uid-1"))
	c.settle()
	if got := c.names(resourcekind.Address); !slices.Equal(got, []string{"ns/web.svc", "uid-2", "uid-3", "uid-4"}) {
		t.Fatalf("after changes: %v", got)
	}
}

func TestOnDemandClientLearnsThatANameDoesNotExistAndLaterThatItDoes(t *testing.T) {
	w := newWorld(t)
	c := onDemand(t, w)
	c.settle()
	c.subscribe("/10.0.0.9")
	r := c.receive()
	if !slices.Equal(r.GetRemovedResources(), []string{"/10.0.0.9"}) {
		t.Fatalf("got %v, want the name reported as removed", r)
	}
	c.answer(resourcekind.Address, "")
	w.apply(w.pod("uid-9", "10.0.0.9", 1, nil))
	c.settle()
	if got := c.names(resourcekind.Address); !slices.Equal(got, []string{"uid-9"}) {
		t.Fatalf("got %v once it exists", got)
	}
}

func TestOnDemandClientStopsHearingOfWhatItUnsubscribed(t *testing.T) {
	w := newWorld(t)
	w.apply(w.pod("a", "10.0.0.1", 1, nil), w.pod("b", "10.0.0.2", 1, nil))
	c := onDemand(t, w)
	c.subscribe("a", "b")
	c.settle()
	if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Address, ResourceNamesUnsubscribe: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	w.apply(w.pod("a", "10.0.0.1", 2, nil), w.pod("b", "10.0.0.2", 2, nil))
	if r := c.receive(); !slices.Equal(resourceNames(r), []string{"b"}) {
		t.Fatalf("got %v, want b only", r)
	}
}

func TestAnsweringAgainForANameThatAClientAsksForAgain(t *testing.T) {
	w := newWorld(t)
	w.apply(w.pod("a", "10.0.0.1", 1, nil))
	c := onDemand(t, w)
	c.subscribe("a")
	c.settle()
	c.subscribe("a")
	if r := c.receive(); !slices.Equal(resourceNames(r), []string{"a"}) {
		t.Fatalf("got %v: a client that asks again has lost it", r)
	}
}

// at puts a workload on a node.
func at(node string, change resourcelog.Change) resourcelog.Change {
	change.Resource.Node = node
	return change
}

func TestOnDemandClientGetsItsOwnNodesPodsUnasked(t *testing.T) {
	w := newWorld(t)
	w.apply(at("n1", w.pod("own-1", "10.0.0.1", 1, nil)), at("n2", w.pod("other-1", "10.0.0.2", 1, nil)), w.pod("nowhere", "10.0.0.3", 1, nil))
	c := w.connect(DefaultLimits)
	c.session.Serves = "n1"
	demand := func() {
		t.Helper()
		c.follow(resourcekind.Authorization)
		versions := map[string]string{}
		for name, r := range c.state[resourcekind.Address] {
			versions[name] = r.Version
		}
		if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Address, ResourceNamesSubscribe: []string{"*"},
			ResourceNamesUnsubscribe: []string{"*"}, InitialResourceVersions: versions}); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(when string, want ...string) {
		t.Helper()
		c.settle()
		if got := c.names(resourcekind.Address); !slices.Equal(got, want) {
			t.Fatalf("%s: %v, want %v", when, got, want)
		}
	}
	demand()
	holds("at first", "own-1")
	w.apply(at("n1", w.pod("own-2", "10.0.0.4", 1, nil)), at("n2", w.pod("other-2", "10.0.0.5", 1, nil)))
	holds("after pods were born", "own-1", "own-2")
	c.subscribe("/10.0.0.2", "/10.0.0.4")
	if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Address, ResourceNamesUnsubscribe: []string{"/10.0.0.2", "/10.0.0.4"}}); err != nil {
		t.Fatal(err)
	}
	c.settle()
	delete(c.state[resourcekind.Address], "other-1") // a client drops by itself what it no longer asks for
	w.apply(at("n1", w.pod("own-2", "10.0.0.4", 2, nil)), at("n2", w.pod("other-1", "10.0.0.2", 2, nil)), gone(resourcekind.Address, "own-1"))
	holds("after a cancellation, a change and an end", "own-2")

	c.reconnect(DefaultLimits)
	c.session.Serves = "n1"
	w.apply(at("n1", w.pod("own-3", "10.0.0.6", 1, nil)))
	demand()
	for _, r := range c.settle() {
		if slices.Contains(resourceNames(r), "own-2") {
			t.Fatal("what the client kept was sent again")
		}
	}
	holds("after a reconnect", "own-2", "own-3")
}
