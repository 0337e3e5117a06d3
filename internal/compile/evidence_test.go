package compile

import (
	"fmt"
	"testing"
)

func TestANodesOwnWordForItsRangesGivesItNothing(t *testing.T) {
	for name, forged := range map[string]placed{
		"a static pod":   {name: "forged", node: "n2", day: "08", address: "10.7.0.5", meta: staticPod},
		"a captured pod": {name: "forged", node: "n2", day: "08", address: "10.7.0.5", meta: capturedPod},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := nodeAt("n1", "01", "10.243.0.11", "") + nodeAt("n2", "02", "10.243.0.12", "0.0.0.0/0")
			victim := placed{name: "victim", node: "n1", day: "05", address: "10.7.0.5", meta: capturedPod}
			p := newPlane(t)
			p.put(nodes + victim.yaml() + forged.yaml())
			for i := range 8 {
				p.put(placed{name: fmt.Sprint("more", i), node: "n2", day: "08", address: fmt.Sprint("10.8.0.", i+1), meta: staticPod}.yaml())
			}
			p.stays(victim, "10.7.0.5", "Accepted")
			p.stays(forged, "", "Conflicted", "Pod shop/victim")
		})
	}
}

func TestAStaticPodHasNoOtherPodsAddress(t *testing.T) {
	nodes := nodeAt("n1", "01", "10.243.0.11", "") + nodeAt("n2", "02", "10.243.0.12", "")
	victim := placed{name: "victim", node: "n1", day: "05", address: "10.7.0.5", meta: capturedPod}
	forged := placed{name: "forged", node: "n2", day: "01", address: "10.7.0.5", meta: staticPod}
	inAnyOrder(t, []string{nodes, forged.yaml(), victim.yaml()}, func(p *plane) {
		p.stays(victim, "10.7.0.5", "Accepted")
		p.stays(forged, "", "Conflicted", "Pod shop/victim")
	})
}

func TestAPodAtItsOwnNodesAddress(t *testing.T) {
	fargate := placed{name: "fargate", node: "n1", day: "05", address: "10.7.0.5"}
	inAnyOrder(t, []string{nodeAt("n1", "01", "10.7.0.5", ""), fargate.yaml()}, func(p *plane) {
		p.stays(fargate, "10.7.0.5", "Accepted")
	})
}

func TestAPodThatEndsKeepsItsAddressAgainstAnotherNodes(t *testing.T) {
	nodes := nodeAt("n1", "01", "10.243.0.11", "10.244.1.0/24") + nodeAt("n2", "02", "10.243.0.12", "10.244.2.0/24")
	var others string
	for i := range 5 {
		others += placed{name: fmt.Sprint("other", i), node: "n1", address: fmt.Sprint("10.244.1.", 10+i)}.yaml()
	}
	victim := placed{name: "victim", node: "n1", day: "05", address: "10.244.1.5", meta: ", deletionTimestamp: 2026-01-09T00:00:00Z" + capturedPod}
	forged := placed{name: "forged", node: "n2", day: "06", address: "10.244.1.5"}
	inAnyOrder(t, []string{nodes, others, victim.yaml(), forged.yaml()}, func(p *plane) {
		p.stays(victim, "10.244.1.5", "Accepted")
		p.stays(forged, "", "Conflicted", "Pod shop/victim")
	})
}

func TestStaticPodsDoNotSayWhatIsUsual(t *testing.T) {
	nodes := nodeAt("n1", "01", "10.243.0.11", "10.244.1.0/24") + nodeAt("n2", "02", "10.243.0.12", "10.244.2.0/24")
	p := newPlane(t)
	p.put(nodes)
	for i := range 8 {
		p.put(placed{name: fmt.Sprint("in", i), node: "n1", address: fmt.Sprint("10.244.1.", 10+i)}.yaml())
	}
	for i := range 8 {
		static := placed{name: fmt.Sprint("x", i), node: "n2", address: fmt.Sprint("10.9.9.", i+1), meta: staticPod}
		p.put(static.yaml())
		p.stays(static, static.address, "Accepted") // people are not shown what a node makes up by the hundred
	}
	forged := placed{name: "forged", node: "n2", address: "10.243.0.11", meta: capturedPod}
	p.put(forged.yaml())
	p.stays(forged, "", "Conflicted", "Node n1")
}

// A node may say of thousands of pods that they are at virtual addresses: a change elsewhere does not compile them.
func TestPodsAtVirtualAddressesCostAChangeElsewhereNothing(t *testing.T) {
	p := newPlane(t)
	for i := range 100 {
		p.put(placed{name: fmt.Sprint("p", i), node: "n1", address: fmt.Sprint("240.240.9.", i+1), meta: staticPod}.yaml())
	}
	before := p.compiled
	p.put(webService)
	if got := p.compiled - before; got > 5 {
		t.Errorf("%d objects are compiled", got)
	}
}
