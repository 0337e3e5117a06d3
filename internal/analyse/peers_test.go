package analyse

import (
	"strings"
	"testing"
)

// aboutPeers are the findings about fields: those of the policy as a whole are left out.
func aboutPeers(t *testing.T, in *Input) string {
	t.Helper()
	var out []Finding
	for _, f := range Analyse(in) {
		if f.Field != "" {
			out = append(out, f)
		}
	}
	return said(out)
}

// Pods with hostNetwork and those of the mesh and the cluster have no identity that a label could give them.
func TestPeersThatCannotBeEnrolledGetNoLabelAsFix(t *testing.T) {
	const at, outside = "peer-not-enrolled warning partial|spec.rules[0].from[0].source.", ") cannot be enrolled, and their connections carry no identity"
	const fix = "|match their addresses with ipBlocks\n"
	objects := world() + namespace("istio-system", "") + namespace("kube-system", "") + namespace("hosts", "istio.io/dataplane-mode: ambient") +
		pod("istio-system", "istiod", "") + pod("kube-system", "dns", "") + pod("kube-system", "meshed", ", istio.io/dataplane-mode: ambient") +
		pod("hosts", "proxy", "", "hostNetwork: true, ") + pod("default", "agent", "", "hostNetwork: true, ")
	tests := map[string]struct{ source, want string }{
		"a system namespace":          {`namespaces: [istio-system]`, at + `namespaces[0]|namespace "istio-system" matches no identity: its pods (system namespace` + outside + fix},
		"an account of one":           {`principals: [cluster.local/ns/kube-system/sa/dns]`, at + `principals[0]|"cluster.local/ns/kube-system/sa/dns" matches no identity: its pods (system namespace` + outside + fix},
		"one that is enrolled there":  {`namespaces: [kube-system]`, ""},
		"hostNetwork":                 {`namespaces: [hosts]`, at + `namespaces[0]|namespace "hosts" matches no identity: its pods (hostNetwork` + outside + fix},
		"an account with hostNetwork": {`serviceAccounts: [agent]`, at + `serviceAccounts[0]|service account "agent" matches no identity: its pods (hostNetwork` + outside + fix},
		"others of the namespace":     {`namespaces: [default]`, ""},
		"all principals":              {`principals: ["*"]`, ""},
		"no principal":                {`notPrincipals: ["*"]`, ""},
		"all namespaces":              {`namespaces: ["*"]`, ""},
		"no namespace":                {`notNamespaces: ["*"]`, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := aboutPeers(t, input(t, mesh, objects, policy1(`{rules: [{from: [{source: {`+tt.source+`}}]}]}`))); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
	onlyOutside := namespace("istio-system", "") + pod("istio-system", "istiod", "")
	for _, all := range []string{`principals: ["*"]`, `notPrincipals: ["*"]`, `namespaces: ["*"]`} {
		if got := said(Analyse(input(t, mesh, onlyOutside+namespace("default", "istio.io/dataplane-mode: ambient")+pod("default", "host", "", "hostNetwork: true, "), policy1(`{action: DENY, rules: [{from: [{source: {`+all+`}}]}]}`)))); strings.Contains(got, "matches no identity") || strings.Contains(got, "no rule of it matches") {
			t.Errorf("%s where nobody has an identity: got\n%s", all, got)
		}
	}
	system := strings.Replace(policy1(`{}`), "namespace: default", "namespace: kube-public", 1)
	if got := said(Analyse(input(t, mesh, world()+namespace("kube-public", "")+pod("kube-public", "one", ""), system))); !strings.Contains(got, "|do not enrol it: namespace kube-public is of the mesh or the cluster\n") || strings.Contains(got, "lateen label") {
		t.Errorf("a policy in a system namespace: got\n%s", got)
	}
}

// A peer may be named under each alias of the trust domain. The account of the same name is no correction for one of another mesh.
func TestPatternsUnderAnAliasMatchAsTheOwnTrustDomainDoes(t *testing.T) {
	named := mesh
	named.TrustDomain, named.TrustDomainAliases = "shop.example", []string{"old.example"}
	for principal, known := range map[string]bool{"old.example/ns/default/sa/client": true, "old.example/*": true, "old.example/ns/default/*": true, "old.example/ns/default/sa/*": true,
		"old.example/ns/nowhere/*": false, "shop.example/ns/default/*": true, "*.example/ns/default/sa/client": true, "other.example/*": false} {
		for _, action := range []string{"ALLOW", "DENY"} {
			got := said(Analyse(input(t, named, world(), policy1(`{action: `+action+`, rules: [{from: [{source: {principals: ["`+principal+`"]}}]}]}`))))
			if (got == "") != known {
				t.Errorf("%s %s: got\n%s", action, principal, got)
			}
		}
	}
	got := aboutPeers(t, input(t, named, world(), policy1(`{rules: [{from: [{source: {principals: [other.example/ns/default/sa/client]}}]}]}`)))
	if want := `foreign-trust-domain warning partial|spec.rules[0].from[0].source.principals[0]|"other.example/ns/default/sa/client" matches no identity: the mesh's trust domain is "shop.example"|` + "\n"; got != want {
		t.Errorf("another mesh: got\n%swant\n%s", got, want)
	}
}
