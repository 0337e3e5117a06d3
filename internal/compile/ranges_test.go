package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/model"
)

const podRange = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {podCIDRs: [10.244.1.0/24]}\nstatus: {addresses: [{type: InternalIP, address: 10.243.0.11}]}\n---\n"

// A narrow range is another way to write addresses down: whose they are, they stay.
func TestANarrowRangeTakesNothingOfOthers(t *testing.T) {
	const web = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}\n---\n"
	for name, tt := range map[string]struct {
		block, there, said string
		key                model.Key
	}{
		"a node":                          {"10.243.0.10/31", nodeOne, "Node n1", model.NodeKey("n1")},
		"a pod on a node's network":       {"10.243.0.8/30", hostPod("shop", "hdb-1"), "Pod shop/hdb-1", model.PodKey("shop", "hdb-1")},
		"such a pod of the own namespace": {"10.243.0.8/30", hostPod("attic", "hdb-1"), "Pod attic/hdb-1", model.PodKey("attic", "hdb-1")},
		"a pod":                           {"10.0.0.0/24", pod("shop", "web-1", "10.0.0.7", "web"), "Pod shop/web-1", model.PodKey("shop", "web-1")},
		"a Service":                       {"10.96.0.8/31", web, "Service shop/web", model.ServiceKey("shop", "web")},
		"a node, in IPv6 form":            {"::ffff:10.243.0.10/127", nodeOne, "Node n1", model.NodeKey("n1")},
	} {
		entry := serviceEntry("attic", "e", "01", fmt.Sprintf("hosts: [e.example.com], resolution: STATIC, addresses: [%q, 192.0.2.0/24]", tt.block))
		for _, order := range [][]string{{entry, tt.there}, {tt.there, entry}, {entry + tt.there}} {
			t.Run(name, func(t *testing.T) {
				p := newPlane(t)
				for _, text := range order {
					p.put(text)
				}
				if got := texts(p.service("attic/e.example.com")); !slices.Equal(got, []string{"192.0.2.0/24"}) {
					t.Errorf("the entry has %v", got)
				}
				if said := p.said()[model.ServiceEntryKey("attic", "e")]; said.Reason != "Conflicted" || !strings.Contains(said.Message, "addresses of "+tt.said) {
					t.Errorf("its author is told %v", said)
				}
				p.remove(tt.key)
				if got := texts(p.service("attic/e.example.com")); len(got) != 2 {
					t.Errorf("with nobody else there the entry has %v", got)
				}
				if said := p.said()[model.ServiceEntryKey("attic", "e")]; said.Reason != "Accepted" {
					t.Errorf("its author is still told %v", said)
				}
			})
		}
	}
}

func TestANarrowRangeMayBeAroundWhatIsOfItsOwnNamespace(t *testing.T) {
	p := newPlane(t)
	p.put(pod("attic", "own", "10.0.0.7", "own") + serviceEntry("attic", "e", "01", "hosts: [e.example.com], resolution: STATIC, addresses: [10.0.0.0/24]"))
	if got := texts(p.service("attic/e.example.com")); len(got) != 1 {
		t.Errorf("the entry has %v", got)
	}
}

// A wide range is for the world outside and stays; what is a node's or its pods' is not in it.
func TestAWideRangeIsWithoutNodesAndTheirPods(t *testing.T) {
	for _, block := range []string{"0.0.0.0/0", "10.0.0.0/8", "10.243.0.0/16", "10.244.0.0/16"} {
		entry := serviceEntry("attic", "e", "01", "hosts: [e.example.com], resolution: NONE, addresses: ["+block+", 10.243.0.12, 10.0.0.0/9]")
		for _, order := range [][]string{{entry, podRange + hostPod("shop", "h")}, {podRange + hostPod("shop", "h"), entry}} {
			p := newPlane(t)
			for _, text := range order {
				p.put(text)
			}
			holds := func(text string) (found int) {
				for _, at := range texts(p.service("attic/e.example.com")) {
					if b, err := netip.ParsePrefix(at); err == nil && b.Contains(netip.MustParseAddr(text)) {
						found++
					}
				}
				return found
			}
			for _, theirs := range []string{"10.243.0.11", "10.244.1.0", "10.244.1.77", "10.244.1.255"} {
				if holds(theirs) > 0 {
					t.Errorf("%s has %s: %v", block, theirs, texts(p.service("attic/e.example.com")))
				}
			}
			for _, free := range []string{"10.1.2.3", "10.243.9.9", "10.244.2.0", "93.184.216.34"} {
				if covered := netip.MustParsePrefix(block).Contains(netip.MustParseAddr(free)); covered && holds(free) == 0 {
					t.Errorf("%s lacks %s: %v", block, free, texts(p.service("attic/e.example.com")))
				}
			}
			if why := serviceRefusal(p.service("attic/e.example.com")); why != "" {
				t.Errorf("proxies refuse it: %s", why)
			}
			if said := p.said()[model.ServiceEntryKey("attic", "e")]; said.Reason != "Accepted" || !strings.Contains(said.Message, "range "+block+" is without the addresses of nodes") {
				t.Errorf("its author is told %v", said)
			}
			p.remove(model.NodeKey("n1"))
			if covered := netip.MustParsePrefix(block).Contains(netip.MustParseAddr("10.243.0.11")); covered && holds("10.243.0.11") > 0 {
				t.Errorf("%s has the address of a pod on the node's network", block)
			}
			p.remove(model.PodKey("shop", "h"))
			if got := texts(p.service("attic/e.example.com")); !slices.Equal(got, []string{block, "10.243.0.12", "10.0.0.0/9"}) {
				t.Errorf("without nodes it has %v", got)
			}
		}
	}
}

func TestAllOfARangeMayBeAnothers(t *testing.T) {
	p := newPlane(t)
	p.put(podRange + serviceEntry("attic", "pods", "01", "hosts: [p.example.com], resolution: STATIC, addresses: [10.244.1.64/26]") +
		serviceEntry("attic", "auto", "01", "hosts: [a.example.com], resolution: STATIC, addresses: [240.240.7.0/31]"))
	for name, want := range map[string]string{"pods": "Node n1 or pods there", "auto": "the mesh, which chooses"} {
		if got := texts(p.service("attic/" + name[:1] + ".example.com")); len(got) != 0 {
			t.Errorf("%s has %v", name, got)
		}
		if said := p.said()[model.ServiceEntryKey("attic", name)]; said.Reason != "Conflicted" || !strings.Contains(said.Message, want) {
			t.Errorf("the author of %s is told %v", name, said)
		}
	}
}

func TestBothAuthorsOfARangeAreTold(t *testing.T) {
	p := newPlane(t)
	old, young := model.ServiceEntryKey("shop", "old"), model.ServiceEntryKey("attic", "young")
	p.put(serviceEntry("attic", "young", "02", "hosts: [y.example.com], resolution: NONE, addresses: [198.51.0.0/16]"))
	p.put(serviceEntry("shop", "old", "01", "hosts: [o.example.com], resolution: NONE, addresses: [198.51.0.0/16]"))
	if said := p.said()[young]; said.Reason != "Conflicted" || !strings.Contains(said.Message, "range 198.51.0.0/16 is declared more than once") || !strings.Contains(said.Message, old.String()) {
		t.Errorf("the younger's author is told %v", said)
	}
	if said := p.said()[old]; said.Reason != "Accepted" || !strings.Contains(said.Message, young.String()) {
		t.Errorf("the older's author is told %v", said)
	}
	p.remove(old)
	if said := p.said()[young]; said.Reason != "Accepted" || strings.Contains(said.Message, "range") {
		t.Errorf("the only one's author is told %v", said)
	}
	p.remove(young)
	if len(p.arbiter.ranges.by)+len(p.arbiter.ranges.named)+len(p.arbiter.ranges.right) != 0 {
		t.Errorf("without entries the compiler keeps %v", p.arbiter.ranges)
	}
}

// Pods that come and go have nothing to do with wide ranges, and a second pod on a node's network changes nothing.
func TestAWideRangeIsLeftAloneByPods(t *testing.T) {
	p := newPlane(t)
	p.put(podRange + serviceEntry("attic", "e", "01", "hosts: [e.example.com], resolution: NONE, addresses: [0.0.0.0/0]"))
	before := p.compiled
	p.put(pod("shop", "web-1", "10.244.1.7", "web"))
	p.put(hostPod("shop", "h"))
	if got := p.compiled - before; got != 2 {
		t.Errorf("%d objects are compiled for two pods", got)
	}
}

// Of several nodes that leave nothing of a range the first is named, and then the next.
func TestANodeThatIsGoneIsNoLongerNamed(t *testing.T) {
	node := func(name string) string {
		return "apiVersion: v1\nkind: Node\nmetadata: {name: " + name + "}\nspec: {podCIDR: 10.8.0.0/16}\n---\n"
	}
	p := newPlane(t)
	key := model.ServiceEntryKey("attic", "e")
	p.put(node("a") + node("b") + serviceEntry("attic", "e", "01", "hosts: [e.example.com], resolution: NONE, addresses: [10.8.0.0/16]"))
	if said := p.said()[key]; !strings.Contains(said.Message, "Node a or pods there") {
		t.Errorf("its author is told %v", said)
	}
	p.remove(model.NodeKey("a"))
	if said := p.said()[key]; !strings.Contains(said.Message, "Node b or pods there") {
		t.Errorf("when a is gone its author is told %v", said)
	}
}
