package compile

import (
	"fmt"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
)

// victims has a Service, a headless one, and one that only the cluster's DNS knows.
const victims = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n" +
	"apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop}\nspec: {clusterIP: None, ports: [{port: 80}]}\n---\n" +
	"apiVersion: v1\nkind: Service\nmetadata: {name: extern, namespace: shop}\nspec: {type: ExternalName, externalName: www.example.org}\n---\n"

func TestAnEntryIsSeenByOthersOnlyForNamesThatAreNobodys(t *testing.T) {
	for host, private := range map[string]bool{
		"*.local": true, "*.cluster.local": true, "cluster.local": true, "*.svc.cluster.local": true, "any.cluster.local": true,
		"web.shop.svc.cluster.local": true, "*.shop.svc.cluster.local": true, "db-0.db.shop.svc.cluster.local": true,
		"web": true, "web.shop": true, "extern.shop": true, "*.shop": true, "db-0.db.shop": true, "*.db.shop": true, "x.extern.shop": true,
		"web.shop.svc": true, "*.svc": true, "*.shop.svc": true,
		"own.attic.svc.cluster.local": false, "*.attic.svc.cluster.local": false, "x.own.attic.svc.cluster.local": false,
		"example.com": false, "*.example.com": false, "*.com": false, "www.example.shop": false, "*.example.shop": false,
		"printer.local": false, "*.test.local": false, "web.shop.svc.clusterset.local": false, "web.shop.svc.mycluster.local": false,
	} {
		entry := serviceEntry("attic", "e", "01", fmt.Sprintf("hosts: [%q], resolution: STATIC, addresses: [192.0.2.1]", host))
		for _, order := range [][]string{{entry, victims}, {victims, entry}} {
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

func TestAnEntryIsSeenAgainWhenItsNameIsNobodysAnyMore(t *testing.T) {
	p := newPlane(t)
	p.put(victims + serviceEntry("attic", "e", "01", "hosts: [web.shop], resolution: STATIC, addresses: [192.0.2.1]"))
	p.remove(model.ServiceKey("shop", "db"), model.ServiceKey("shop", "extern"), model.NamespaceKey("shop"))
	if got := p.service("attic/web.shop"); got.GetVisibility() != workload.Service_PUBLIC || !got.GetCanonical() {
		t.Errorf("the entry is %v", got)
	}
	if said := p.said()[model.ServiceEntryKey("attic", "e")]; said.Reason != "Accepted" {
		t.Errorf("its author is told %v", said)
	}
}
