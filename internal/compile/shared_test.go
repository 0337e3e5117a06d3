package compile

import (
	"strings"
	"testing"

	"lateen.dev/lateen/internal/model"
)

// told fails the test if an entry's author is not told this.
func (p *plane) told(namespace, name, reason string, words ...string) {
	p.t.Helper()
	c := p.said()[model.ServiceEntryKey(namespace, name)]
	if c.Reason != reason {
		p.t.Errorf("%s/%s is told %+v, want %s", namespace, name, c, reason)
	}
	for _, word := range words {
		if !strings.Contains(c.Message, word) {
			p.t.Errorf("%s/%s is told %q, without %q", namespace, name, c.Message, word)
		}
	}
}

// TestBothAreToldWhoseAddressCounts follows two entries through all that can change between them: each keeps its address, for its own
// namespace, and knows who counts elsewhere.
func TestBothAreToldWhoseAddressCounts(t *testing.T) {
	const spec = ", resolution: STATIC, addresses: [192.0.2.1]"
	old := func(more string) string {
		return serviceEntry("shop", "old", "01", "hosts: [old.example.com]"+spec+more)
	}
	p := newPlane(t)
	p.put(old(""))
	p.told("shop", "old", "Accepted", "the object is accepted as it is written")
	p.put(serviceEntry("attic", "young", "02", "hosts: [young.example.com]"+spec))
	p.told("shop", "old", "Accepted", "address 192.0.2.1 is declared more than once", "in namespace shop this entry counts",
		"in their own namespaces ServiceEntry attic/young", "in all others this entry, the oldest")
	p.told("attic", "young", "Conflicted", "in namespace attic this entry counts", "in all others ServiceEntry shop/old")
	for _, name := range []string{"shop/old.example.com", "attic/young.example.com"} {
		if got := texts(p.service(name)); len(got) != 1 {
			t.Errorf("%s has %v", name, got)
		}
	}
	// One that keeps to itself counts nowhere else.
	p.put(old(", exportTo: [.]"))
	p.told("shop", "old", "Conflicted", "in all others ServiceEntry attic/young")
	p.told("attic", "young", "Accepted", "in all others this entry")
	// Made anew it is the younger.
	p.put(serviceEntry("shop", "old", "03", "hosts: [old.example.com]"+spec))
	p.told("shop", "old", "Conflicted", "in all others ServiceEntry attic/young")
	p.told("attic", "young", "Accepted", "in all others this entry")
	p.remove(model.ServiceEntryKey("attic", "young"))
	p.told("shop", "old", "Accepted", "the object is accepted as it is written")
}

func TestOfTwoEntriesOfOneNamespaceTheYoungerIsToldThatItsAddressDoesNotCount(t *testing.T) {
	p := newPlane(t)
	p.put(serviceEntry("shop", "b", "01", "hosts: [b.example.com], resolution: STATIC, addresses: [192.0.2.1]"))
	p.put(serviceEntry("shop", "a", "02", "hosts: [a.example.com], resolution: STATIC, addresses: [192.0.2.1]"))
	p.told("shop", "a", "Conflicted", "in namespace shop ServiceEntry shop/b counts")
	p.told("shop", "b", "Accepted", "in namespace shop this entry counts")
	// What was created in the same second goes by name.
	p.put(serviceEntry("shop", "b", "02", "hosts: [b.example.com], resolution: STATIC, addresses: [192.0.2.1]"))
	p.told("shop", "b", "Conflicted", "in namespace shop ServiceEntry shop/a counts")
}

func TestBothAreToldWhoSpeaksForAHost(t *testing.T) {
	p := newPlane(t)
	p.put(serviceEntry("shop", "young", "02", "hosts: [api.example.com], resolution: DNS"))
	p.put(serviceEntry("attic", "old", "01", "hosts: [api.example.com], resolution: DNS"))
	p.told("shop", "young", "Conflicted", "host api.example.com is declared more than once", "in namespace shop this entry counts", "in all others ServiceEntry attic/old")
	p.told("attic", "old", "Accepted", "in their own namespaces ServiceEntry shop/young", "in all others this entry")
	p.remove(model.ServiceEntryKey("attic", "old"))
	p.told("shop", "young", "Accepted")
	if c := p.said()[model.ServiceEntryKey("shop", "young")]; strings.Contains(c.Message, "more than once") {
		t.Errorf("alone it is told %v", c)
	}
}

// A name of many does not make a message without end.
func TestManyClaimantsAreCounted(t *testing.T) {
	p := newPlane(t)
	for _, ns := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		p.put(serviceEntry(ns, "x", "02", "hosts: [api.example.com], resolution: DNS"))
	}
	p.told("a", "x", "Accepted", "and 2 more")
}
