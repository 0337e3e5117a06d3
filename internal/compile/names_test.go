package compile

import (
	"fmt"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
)

// victims has a headless Service, one that only the cluster's DNS knows, and a namespace without any.
const victims = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n" +
	"apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop}\nspec: {clusterIP: None, ports: [{port: 80}]}\n---\n" +
	"apiVersion: v1\nkind: Service\nmetadata: {name: extern, namespace: shop}\nspec: {type: ExternalName, externalName: www.example.org}\n---\n" +
	"apiVersion: v1\nkind: Namespace\nmetadata: {name: dev}\n---\n"

func namedPod(namespace, name, service string) string {
	return strings.Replace(pod(namespace, name, "10.0.0.7", "db"), "spec: {", "spec: {hostname: "+name+", subdomain: "+service+", ", 1)
}

func TestAnEntryIsSeenByOthersOnlyForNamesThatAreNobodys(t *testing.T) {
	for host, private := range map[string]bool{
		"*.local": true, "*.cluster.local": true, "cluster.local": true, "*.svc.cluster.local": true, "any.cluster.local": true,
		"web.shop.svc.cluster.local": true, "*.shop.svc.cluster.local": true, "db-0.db.shop.svc.cluster.local": true,
		"web": true, "web.shop": false, "db.shop": true, "extern.shop": true, "*.shop": true, "db-0.db.shop": true, "*.db.shop": true, "x.extern.shop": true,
		"web.shop.svc": true, "*.svc": true, "*.shop.svc": true,
		"own.attic.svc.cluster.local": false, "*.attic.svc.cluster.local": false, "x.own.attic.svc.cluster.local": false,
		"example.com": false, "example.dev": false, "*.dev": false, "db-1.db": false, "x.db-0.db": false, "db-0.db": true, "*.db": true, "*.example.com": false, "*.com": false, "www.example.shop": false, "*.example.shop": false,
		"printer.local": false, "*.test.local": false, "web.shop.svc.clusterset.local": false, "web.shop.svc.mycluster.local": false,
	} {
		entry := serviceEntry("attic", "e", "01", fmt.Sprintf("hosts: [%q], resolution: STATIC, addresses: [192.0.2.1]", host))
		for _, order := range [][]string{{entry, victims + namedPod("shop", "db-0", "db")}, {namedPod("shop", "db-0", "db") + victims, entry}, {entry, namedPod("shop", "db-0", "db"), victims}} {
			p := newPlane(t)
			for _, text := range order {
				p.put(text)
			}
			s := p.service("attic/" + host)
			if got := s.GetVisibility() == workload.Service_NAMESPACE; got != private || s.GetCanonical() == private {
				t.Errorf("%s is kept to its namespace: %v, and canonical: %v", host, got, s.GetCanonical())
			}
			said := p.said()[model.ServiceEntryKey("attic", "e")]
			if private != (said.Reason == "Conflicted") || private != strings.Contains(said.Message, "host "+host+" counts in namespace attic only: it ") {
				t.Errorf("the author of %s is told %v", host, said)
			}
		}
	}
}

// What a namespace serves is its own as long as it is there: a Service may be replaced, and a pod start again.
func TestAnEntryIsSeenAgainWhenItsNameIsNobodysAnyMore(t *testing.T) {
	for _, host := range []string{"db.shop", "x.db.shop", "*.shop", "db-0.db", "*.db"} {
		p := newPlane(t)
		p.put(victims + namedPod("shop", "db-0", "db") + serviceEntry("attic", "e", "01", fmt.Sprintf("hosts: [%q], resolution: STATIC, addresses: [192.0.2.1]", host)))
		seen := func(want bool, when string) {
			t.Helper()
			got := p.service("attic/" + host)
			if (got.GetVisibility() == workload.Service_PUBLIC) != want || got.GetCanonical() != want {
				t.Errorf("%s, %s: the entry is %v", host, when, got)
			}
			if said := p.said()[model.ServiceEntryKey("attic", "e")]; (said.Reason == "Accepted") != want {
				t.Errorf("%s, %s: its author is told %v", host, when, said)
			}
		}
		seen(false, "while it is served")
		p.remove(model.PodKey("shop", "db-0"))
		seen(false, "without the pod")
		p.remove(model.ServiceKey("shop", "db"), model.ServiceKey("shop", "extern"))
		seen(false, "without Services")
		p.put(victims)
		seen(false, "with Services again")
		p.remove(model.NamespaceKey("shop"))
		seen(false, "without the namespace's object")
		p.remove(model.ServiceKey("shop", "db"), model.ServiceKey("shop", "extern"))
		seen(true, "without the namespace")
		p.put(victims + namedPod("shop", "db-0", "db"))
		seen(false, "with all of it again")
		p.remove(model.ServiceKey("shop", "db"), model.ServiceKey("shop", "extern"), model.NamespaceKey("shop"))
		seen(true, "with nothing but the pod")
		p.remove(model.PodKey("shop", "db-0"), model.NamespaceKey("dev"))
		if len(p.index.names.of) != 0 || len(p.index.names.pods) != 0 {
			t.Errorf("%s: with nothing served the compiler keeps %v and %v", host, p.index.names.of, p.index.names.pods)
		}
		p.remove(model.ServiceEntryKey("attic", "e"))
		if len(p.index.names.declared) != 0 {
			t.Errorf("%s: without entries the compiler keeps %v", host, p.index.names.declared)
		}
	}
}

// A namespace keeps a bounded number of names that it does not serve any more.
func TestNamesThatComeAndGoAreForgottenInTheEnd(t *testing.T) {
	p := newPlane(t)
	p.put(victims)
	for i := range maxGone + 10 {
		text := fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: shop}\nspec: {clusterIP: None, ports: [{port: 80}]}\n---\n", i)
		p.put(text + namedPod("shop", fmt.Sprint("p", i), "db"))
		p.remove(model.ServiceKey("shop", fmt.Sprint("s", i)), model.PodKey("shop", fmt.Sprint("p", i)))
	}
	if own := p.index.names.of["shop"]; own.gone != maxGone || len(own.services)+len(own.pods) != maxGone+2 || own.there != 2 {
		t.Errorf("it keeps %d Services and %d pods, of which %d are gone", len(own.services), len(own.pods), own.gone)
	}
}

// A mesh of 1,000 Services and 1,000 entries whose hosts end like a namespace: one change recompiles what it bears on.
func TestOneChangeRecompilesFewObjects(t *testing.T) {
	p := newPlane(t)
	text := "apiVersion: v1\nkind: Namespace\nmetadata: {name: com}\n---\n"
	service := func(name string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + ", namespace: com}\nspec: {clusterIP: None, ports: [{port: 80}]}\n---\n"
	}
	for i := range 1000 {
		text += service(fmt.Sprint("s", i)) + serviceEntry(fmt.Sprint("ns", i%20), fmt.Sprint("e", i), "01", fmt.Sprintf("hosts: [host%d.com, www.host%d.com], resolution: DNS", i, i))
	}
	p.put(text)
	for what, change := range map[string]func(){
		"a Service comes":                          func() { p.put(service("another")) },
		"a Service comes that has an entry's name": func() { p.put(service("host7")) },
		"a Service goes":                           func() { p.remove(model.ServiceKey("com", "s5")) },
		"a pod with a name comes":                  func() { p.put(namedPod("com", "p", "s6")) },
		"a namespace comes":                        func() { p.put("apiVersion: v1\nkind: Namespace\nmetadata: {name: org}\n") },
		"an entry comes":                           func() { p.put(serviceEntry("ns1", "new", "02", "hosts: [new.com], resolution: DNS")) },
	} {
		before := p.compiled
		change()
		if got := p.compiled - before; got > 3 {
			t.Errorf("when %s, %d objects are compiled", what, got)
		}
	}
}
