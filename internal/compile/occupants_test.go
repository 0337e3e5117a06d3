package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
)

// placed is a pod on a node, created on a day of January, with whatever else its metadata, spec and status say.
type placed struct {
	name, node, day, address       string
	meta, spec, status, annotation string
}

func (p placed) yaml() string {
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + p.name + ", namespace: shop"
	if p.day != "" {
		text += ", creationTimestamp: 2026-01-" + p.day + "T00:00:00Z"
	}
	var ips []string
	for _, ip := range strings.Split(p.address, " ") {
		ips = append(ips, fmt.Sprintf("{ip: %q}", ip))
	}
	return text + p.meta + "}\nspec: {nodeName: " + p.node + ", containers: [{name: c}]" + p.spec + "}\nstatus: {podIPs: [" + strings.Join(ips, ", ") + "]" + p.status + "}\n---\n"
}

func (p placed) key() model.Key { return model.PodKey("shop", p.name) }

const (
	capturedPod = ", annotations: {ambient.istio.io/redirection: enabled}"
	deleted     = ", deletionTimestamp: 2026-01-09T00:00:00Z, finalizers: [kept/here]"
	onHost      = ", hostNetwork: true"
	staticPod   = ", annotations: {kubernetes.io/config.mirror: x}"
)

// nodeAt is a node with addresses and, if not empty, the ranges of its pods.
func nodeAt(name, day, addresses, cidrs string) string {
	text := "apiVersion: v1\nkind: Node\nmetadata: {name: " + name + ", creationTimestamp: 2025-12-" + day + "T00:00:00Z}\nspec: {podCIDRs: [" + cidrs + "]}\nstatus: {addresses: ["
	for i, a := range strings.Split(addresses, " ") {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("{type: InternalIP, address: %q}", a)
	}
	return text + "]}\n---\n"
}

const webService = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9, \"fd00:96::9\"], ports: [{port: 80}]}\n---\n"

// at lists the addresses that proxies are told of for a pod.
func (p *plane) at(pod placed) (out []string) {
	p.t.Helper()
	for _, raw := range p.workload("shop", pod.name).GetAddresses() {
		addr, _ := netip.AddrFromSlice(raw)
		out = append(out, addr.String())
	}
	return out
}

// stays checks which addresses proxies are told of for a pod, and that its condition names what it must.
func (p *plane) stays(pod placed, addresses, reason string, named ...string) {
	p.t.Helper()
	if got := strings.Join(p.at(pod), " "); got != addresses {
		p.t.Errorf("proxies are told that %s is at %q, want %q", pod.name, got, addresses)
	}
	said := p.said()[pod.key()]
	if said.Reason != reason {
		p.t.Errorf("%s is told %+v, want reason %s", pod.name, said, reason)
	}
	listed := slices.ContainsFunc(p.Misplaced(), func(m Misplaced) bool { return m.Key == pod.key() && m.Message == said.Message })
	if remarkable := reason == "Conflicted" || reason == "OutsidePodCIDRs"; listed != remarkable {
		p.t.Errorf("%s is among what people are shown: %t, want %t", pod.name, listed, remarkable)
	}
	for _, part := range named {
		if !strings.Contains(said.Message, part) {
			p.t.Errorf("%s is told %q, which does not name %q", pod.name, said.Message, part)
		}
	}
}

// inAnyOrder runs a check after objects came one by one, in the reverse order, and at once.
func inAnyOrder(t *testing.T, texts []string, check func(p *plane)) {
	t.Helper()
	reversed := slices.Clone(texts)
	slices.Reverse(reversed)
	for name, order := range map[string][]string{"in order": texts, "reversed": reversed, "at once": {strings.Join(texts, "")}} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			for _, text := range order {
				p.put(text)
			}
			check(p)
		})
	}
}

func TestAPodThatClaimsAServicesAddressDoesNotGetIt(t *testing.T) {
	for name, forged := range map[string]placed{
		"plain":            {name: "a", node: "n2", address: "10.96.0.9"},
		"captured":         {name: "a", node: "n2", address: "10.96.0.9", meta: capturedPod},
		"on the network":   {name: "a", node: "n2", address: "10.96.0.9", spec: onHost},
		"in its range":     {name: "a", node: "wide", address: "10.96.0.9"},
		"older":            {name: "a", node: "n2", address: "10.96.0.9", day: "01"},
		"in IPv6 clothing": {name: "a", node: "n2", address: "::ffff:10.96.0.9"},
	} {
		t.Run(name, func(t *testing.T) {
			inAnyOrder(t, []string{nodeAt("wide", "01", "10.243.0.1", "10.0.0.0/8"), webService, forged.yaml()}, func(p *plane) {
				p.stays(forged, "", "Conflicted", "10.96.0.9", "Pod shop/a", "Service shop/web", forged.node, "delete the pod")
				if got := texts(p.service("shop/web.shop.svc.cluster.local")); !slices.Equal(got, []string{"10.96.0.9", "fd00:96::9"}) {
					p.t.Errorf("the Service has %v", got)
				}
				p.remove(model.ServiceKey("shop", "web"))
				p.stays(forged, "10.96.0.9", "Accepted")
			})
		})
	}
}

func TestAPodKeepsThoseOfItsAddressesThatAreItsOwn(t *testing.T) {
	forged := placed{name: "a", node: "n1", address: "10.244.1.5 fd00:96::9"}
	inAnyOrder(t, []string{webService, forged.yaml()}, func(p *plane) {
		p.stays(forged, "10.244.1.5", "Conflicted", "fd00:96::9", "Service shop/web")
	})
}

func TestAPodThatClaimsAChosenAddressDoesNotGetIt(t *testing.T) {
	for name, with := range map[string]func(t *testing.T) *plane{"alone": newPlaneAlone, "shared": newPlaneShared} {
		t.Run(name, func(t *testing.T) {
			p := with(t)
			p.put(serviceEntry("shop", "api", "02", "hosts: [api.example.com], resolution: DNS"))
			chosen := texts(p.service("shop/api.example.com"))
			if len(chosen) != 2 {
				t.Fatalf("the entry has %v", chosen)
			}
			forged := placed{name: "a", node: "n1", address: chosen[0], meta: capturedPod}
			p.put(forged.yaml())
			p.stays(forged, "", "Conflicted", chosen[0], "ServiceEntry shop/api")
			if got := texts(p.service("shop/api.example.com")); !slices.Equal(got, chosen) {
				t.Errorf("the entry has %v, had %v", got, chosen)
			}
			p.put(serviceEntry("shop", "api", "02", "hosts: [api.example.com], resolution: STATIC, addresses: [192.0.2.1]"))
			if name == "alone" {
				p.stays(forged, chosen[0], "Accepted")
			}
			p.remove(model.ServiceEntryKey("shop", "api"))
			p.stays(forged, chosen[0], "Accepted")
			// A pod that is there already is not given up for one that comes.
			p.put(serviceEntry("shop", "api", "02", "hosts: [api.example.com], resolution: DNS"))
			if got := texts(p.service("shop/api.example.com")); name == "alone" && (len(got) != 2 || slices.Contains(got, chosen[0])) {
				t.Errorf("the entry has %v, where a pod is", got)
			}
		})
	}
}

func newPlaneAlone(t *testing.T) *plane { return newPlane(t) }

func newPlaneShared(t *testing.T) *plane {
	return newPlaneWith(t, ShareAssignments(&memoryStore{}, 1<<20))
}

func TestAPodThatClaimsANodesAddressDoesNotGetIt(t *testing.T) {
	nodes := nodeAt("n1", "01", "10.243.0.11", "10.244.1.0/24") + nodeAt("n2", "02", "10.243.0.12", "10.244.2.0/24")
	for name, forged := range map[string]placed{
		"plain":                         {name: "a", node: "n2", address: "10.243.0.11"},
		"captured":                      {name: "a", node: "n2", address: "10.243.0.11", meta: capturedPod},
		"on another node's network":     {name: "a", node: "n2", address: "10.243.0.11", spec: onHost},
		"older than the node":           {name: "a", node: "n2", address: "10.243.0.11", meta: ", creationTimestamp: 2020-01-01T00:00:00Z"},
		"of the node, but not its host": {name: "a", node: "n1", address: "10.243.0.11"},
	} {
		t.Run(name, func(t *testing.T) {
			var others string
			for i := range 5 {
				others += placed{name: fmt.Sprint("other", i), node: "n1", address: fmt.Sprint("10.244.1.", 10+i)}.yaml()
			}
			inAnyOrder(t, []string{nodes, others, forged.yaml()}, func(p *plane) {
				p.stays(forged, "", "Conflicted", "10.243.0.11", "Node n1")
			})
		})
	}
	t.Run("a pod on its node's network", func(t *testing.T) {
		own := placed{name: "own", node: "n1", address: "10.243.0.11", spec: onHost}
		second := placed{name: "second", node: "n1", address: "10.243.0.11", spec: onHost}
		inAnyOrder(t, []string{nodes, own.yaml(), second.yaml()}, func(p *plane) {
			p.stays(own, "10.243.0.11", "Accepted")
			p.stays(second, "10.243.0.11", "Accepted")
			p.remove(model.NodeKey("n1")) // before its pods
			p.stays(own, "10.243.0.11", "Accepted")
			p.stays(second, "10.243.0.11", "Accepted")
		})
	})
}

func TestANodeThatClaimsWhatIsSomebodyElsesDoesNotGetIt(t *testing.T) {
	victim := placed{name: "victim", node: "n1", address: "10.244.1.5", meta: capturedPod}
	first := nodeAt("n1", "02", "10.243.0.11", "")
	for name, c := range map[string]struct{ claimed, owner string }{
		"a Service's":          {"10.96.0.9", "Service shop/web"},
		"an older node's":      {"10.243.0.11", "Node n1"},
		"a captured pod's":     {"10.244.1.5", "Pod shop/victim"},
		"a Service's, in IPv6": {"fd00:96::9", "Service shop/web"},
	} {
		t.Run(name, func(t *testing.T) {
			// It is named before the others, and has a pod on its network that says the same.
			node := nodeAt("a", "03", "10.243.0.12 "+c.claimed, "")
			witness := placed{name: "a", node: "a", address: c.claimed, day: "01", spec: onHost}
			inAnyOrder(t, []string{first, webService, victim.yaml(), node, witness.yaml()}, func(p *plane) {
				p.stays(victim, "10.244.1.5", "Accepted")
				p.stays(witness, "", "Conflicted", c.claimed, c.owner)
				said := p.said()[model.NodeKey("a")]
				if said.Reason != "Conflicted" || !strings.Contains(said.Message, "address "+c.claimed+" of Node a belongs to "+c.owner) || strings.Contains(said.Message, "10.243.0.12") {
					t.Errorf("the node is told %+v", said)
				}
				if said := p.said()[model.NodeKey("n1")]; said.Reason != "Accepted" {
					t.Errorf("the other node is told %+v", said)
				}
				if got := texts(p.service("shop/web.shop.svc.cluster.local")); len(got) != 2 {
					t.Errorf("the Service has %v", got)
				}
				if !slices.ContainsFunc(p.Misplaced(), func(m Misplaced) bool { return m.Key == model.NodeKey("a") && m.Message == said.Message }) {
					t.Errorf("people are shown %v", p.Misplaced())
				}
				p.put(nodeAt("a", "03", "10.243.0.12", ""))
				if said := p.said()[model.NodeKey("a")]; said.Reason != "Accepted" {
					t.Errorf("the node is still told %+v", said)
				}
			})
		})
	}
}

// A pod has its address before a node that was there earlier: or a hostile node could take any captured pod out of its tunnel.
func TestANodeOlderThanACapturedPodDoesNotGetItsAddress(t *testing.T) {
	victim := placed{name: "victim", node: "n1", day: "05", address: "10.244.1.5", meta: capturedPod}
	inAnyOrder(t, []string{nodeAt("a", "01", "10.243.0.12 10.244.1.5", ""), victim.yaml()}, func(p *plane) {
		p.stays(victim, "10.244.1.5", "Accepted")
	})
}

func TestOfTwoPodsWithOneAddressTheOlderHasIt(t *testing.T) {
	nodes := nodeAt("n1", "01", "10.243.0.11", "") + nodeAt("n2", "02", "10.243.0.12", "")
	older := placed{name: "zebra", node: "n1", day: "01", address: "10.244.1.5"}
	younger := placed{name: "attic", node: "n2", day: "02", address: "10.244.1.5", meta: capturedPod}
	inAnyOrder(t, []string{nodes, older.yaml(), younger.yaml()}, func(p *plane) {
		p.stays(older, "10.244.1.5", "Accepted")
		p.stays(younger, "", "Conflicted", "10.244.1.5", "Pod shop/attic", "Pod shop/zebra")
		p.remove(older.key())
		p.stays(younger, "10.244.1.5", "Accepted")
		p.put(older.yaml())
		p.stays(older, "10.244.1.5", "Accepted")
		p.stays(younger, "", "Conflicted")
	})
	t.Run("of one age", func(t *testing.T) {
		first := placed{name: "attic", node: "n1", day: "01", address: "10.244.1.5"}
		second := placed{name: "zebra", node: "n2", day: "01", address: "10.244.1.5"}
		inAnyOrder(t, []string{nodes, first.yaml(), second.yaml()}, func(p *plane) {
			p.stays(first, "10.244.1.5", "Accepted")
			p.stays(second, "", "Conflicted", "Pod shop/attic")
		})
	})
}

// A hostile kubelet may have pods that are older than the one whose address it wants, but no range with that address.
func TestAPodWithinItsNodesRangeHasTheAddressBeforeAnOlderOneOutside(t *testing.T) {
	nodes := nodeAt("n1", "01", "10.243.0.11", "10.244.1.0/24") + nodeAt("n2", "02", "10.243.0.12", "10.244.2.0/24")
	victim := placed{name: "victim", node: "n1", day: "05", address: "10.244.1.5"}
	forged := placed{name: "a", node: "n2", day: "01", address: "10.244.1.5", meta: capturedPod}
	inAnyOrder(t, []string{nodes, forged.yaml(), victim.yaml()}, func(p *plane) {
		p.stays(victim, "10.244.1.5", "Accepted")
		p.stays(forged, "", "Conflicted", "Pod shop/victim")
	})
}

// Kubernetes gives a pod's address away again at once, so that a successor has it while the old pod's object is still there.
func TestASuccessorHasTheAddressAtOnce(t *testing.T) {
	const silent = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, creationTimestamp: 2025-12-01T00:00:00Z}\nstatus: {conditions: [{type: Ready, status: Unknown}], addresses: [{type: InternalIP, address: 10.243.0.11}]}\n---\n"
	nodes := nodeAt("n1", "01", "10.243.0.11", "") + nodeAt("n2", "02", "10.243.0.12", "")
	old := placed{name: "a-old", node: "n1", day: "01", address: "10.244.1.5", meta: capturedPod, status: ", phase: Running"}
	successor := placed{name: "new", node: "n2", day: "05", address: "10.244.1.5", meta: capturedPod}
	with := func(change func(*placed)) string {
		after := old
		change(&after)
		return after.yaml()
	}
	for name, end := range map[string]string{
		"being deleted":       with(func(p *placed) { p.meta = ", deletionTimestamp: 2026-01-09T00:00:00Z" + capturedPod }),
		"failed":              with(func(p *placed) { p.status = ", phase: Failed" }),
		"succeeded":           with(func(p *placed) { p.status = ", phase: Succeeded" }),
		"of a silent node":    silent,
		"with a node removed": "",
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			p.put(nodes + old.yaml())
			p.stays(old, "10.244.1.5", "Accepted")
			if end == "" {
				p.remove(model.NodeKey("n1"))
			} else {
				p.put(end)
			}
			p.put(successor.yaml())
			p.stays(successor, "10.244.1.5", "Accepted")
			if len(p.at(old)) > 0 {
				t.Errorf("proxies are told that the old pod is there as well")
			}
			// The other way round: the successor came first, and its predecessor's end becomes known later.
			p = newPlane(t)
			p.put(nodes + old.yaml() + successor.yaml())
			p.stays(successor, "", "Conflicted", "Pod shop/a-old")
			if end == "" {
				p.remove(model.NodeKey("n1"))
			} else {
				p.put(end)
			}
			p.stays(successor, "10.244.1.5", "Accepted")
		})
	}
	t.Run("without a successor", func(t *testing.T) {
		p := newPlane(t)
		leaving := placed{name: "a-old", node: "n1", day: "01", address: "10.244.1.5", meta: ", deletionTimestamp: 2026-01-09T00:00:00Z"}
		p.put(nodes + leaving.yaml())
		p.stays(leaving, "10.244.1.5", "Accepted")
	})
}

func TestAPodOutsideOfItsNodesRangesIsToldWhereHardlyAnyIs(t *testing.T) {
	node := nodeAt("n1", "01", "10.243.0.11", "10.244.1.0/24, \"fd00:244:1::/64\"")
	inside := func(i int) placed {
		return placed{name: fmt.Sprint("in", i), node: "n1", address: fmt.Sprintf("10.244.1.%d fd00:244:1::%d", 10+i, 10+i)}
	}
	stranger := placed{name: "stranger", node: "n1", address: "10.9.9.9"}
	p := newPlane(t)
	p.put(stranger.yaml())
	p.stays(stranger, "10.9.9.9", "Accepted")
	p.put(node)
	p.stays(stranger, "10.9.9.9", "Accepted") // there is nobody to compare it with
	for i := range 4 {
		if i == 3 {
			p.stays(stranger, "10.9.9.9", "Accepted")
		}
		p.put(inside(i).yaml())
	}
	p.stays(stranger, "10.9.9.9", "OutsidePodCIDRs", "10.9.9.9", "Pod shop/stranger", "node n1", "10.244.1.0/24", "network plugin")
	for i := range 4 {
		p.stays(inside(i), strings.Join([]string{fmt.Sprint("10.244.1.", 10+i), fmt.Sprint("fd00:244:1::", 10+i)}, " "), "Accepted")
	}
	// One more outside, and it is no exception any more: nobody is told.
	second := placed{name: "second", node: "n1", address: "10.244.1.99 fd00:9::9"}
	p.put(second.yaml())
	p.stays(stranger, "10.9.9.9", "Accepted")
	p.stays(second, "10.244.1.99 fd00:9::9", "Accepted")
	p.remove(stranger.key())
	p.stays(second, "10.244.1.99 fd00:9::9", "OutsidePodCIDRs", "fd00:9::9")
	// Pods on the node's network and pods of a node without ranges have none to be in.
	for _, other := range []placed{{name: "host", node: "n1", address: "10.243.0.11", spec: onHost}, {name: "else", node: "n2", address: "10.8.0.1"}} {
		p.put(other.yaml())
		p.stays(other, other.address, "Accepted")
	}
	p.remove(model.NodeKey("n1"))
	p.stays(second, "10.244.1.99 fd00:9::9", "Accepted")
}

// A hostile kubelet writes the addresses of all pods of its node: what is usual is not told by them.
func TestOneNodesPodsDoNotSayWhatIsUsual(t *testing.T) {
	p := newPlane(t)
	p.put(nodeAt("n1", "01", "10.243.0.11", "10.244.1.0/24") + nodeAt("n2", "02", "10.243.0.12", "10.244.2.0/24"))
	for i := range 16 {
		p.put(placed{name: fmt.Sprint("in", i), node: "n1", address: fmt.Sprint("10.244.1.", 10+i)}.yaml())
	}
	for i := range 4 {
		stranger := placed{name: fmt.Sprint("x", i), node: "n2", address: fmt.Sprint("10.9.9.", i+1)}
		p.put(stranger.yaml())
		p.stays(stranger, stranger.address, "OutsidePodCIDRs")
	}
}

// The cost of one change grows neither with the number of pods nor with how many of them share their nodes' networks.
func TestWhatAClaimCostsDoesNotGrowWithTheMesh(t *testing.T) {
	costs := map[int][2]int{}
	for _, many := range []int{50, 1000} {
		p := newPlane(t)
		var all strings.Builder
		for n := range many / 10 {
			all.WriteString(nodeAt(fmt.Sprint("n", n), "01", fmt.Sprintf("10.243.%d.11", n), fmt.Sprintf("10.244.%d.0/24", n)))
			for i := range 10 {
				one := placed{name: fmt.Sprintf("p%d-%d", n, i), node: fmt.Sprint("n", n), day: "02", address: fmt.Sprintf("10.244.%d.%d", n, 10+i)}
				if i < 2 {
					one.address, one.spec = fmt.Sprintf("10.243.%d.11", n), onHost
				}
				all.WriteString(one.yaml())
			}
		}
		p.put(all.String() + webService)
		compiled, looked := p.compiled, p.places.looked
		for _, address := range []string{"10.244.1.15", "10.96.0.9", "10.243.1.11", "10.244.99.1"} {
			forged := placed{name: "a", node: "n0", day: "03", address: address}
			p.put(forged.yaml())
			p.put(placed{name: "a", node: "n0", day: "03", address: "10.244.0.99"}.yaml())
		}
		p.remove(model.PodKey("shop", "a"))
		costs[many] = [2]int{p.compiled - compiled, p.places.looked - looked}
	}
	if costs[50] != costs[1000] || costs[50][0] > 40 || costs[50][1] > 60 {
		t.Errorf("objects compiled and claims looked at: %v", costs)
	}
}

// An endpoint that its author puts into a tunnel stays in it at a Service's address that a pod or node claims: they are not there.
func TestAForgedAddressTakesNoEndpointOutOfItsTunnel(t *testing.T) {
	machine := "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: m, namespace: shop, annotations: {ambient.istio.io/redirection: enabled}}\nspec: {address: 10.96.0.9}\n---\n"
	inAnyOrder(t, []string{machine, webService, placed{name: "a", node: "n1", address: "10.96.0.9"}.yaml(), nodeAt("b", "01", "10.96.0.9", "")}, func(p *plane) {
		var a *workload.Address
		p.get(resourcekind.Address, mesh.WorkloadEntryResource("shop", "m"), func(v any) { a = v.(*workload.Address) })
		if got := a.GetWorkload().GetTunnelProtocol(); got != workload.TunnelProtocol_HBONE {
			p.t.Errorf("it speaks %v", got)
		}
	})
}
