package analyse

import (
	"strings"
	"testing"
)

// A policy that allows only peers that no pod is now shuts its pods until there is one, however well it is spelt.
func TestAnALLOWOfPeersWithoutPodsRefusesAllUntilThereAreSome(t *testing.T) {
	const shut = "refuses-all warning refuses-all||refuses ALL connections to 1 pod (web-1) until an enrolled pod of "
	objects := world() + account("empty", "default") + namespace("plainns", "") + account("default", "one") + account("default", "three") + account("default", "two")
	deployment := "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: batch, namespace: default}\nspec: {selector: {matchLabels: {app: batch}}, template: {metadata: {labels: {app: batch}}, spec: {serviceAccountName: batch, containers: [{name: c, image: c}]}}}\n"
	tests := map[string]struct{ rules, also, want string }{
		"a namespace without accounts":   {`[{from: [{source: {namespaces: [plainns]}}]}]`, "", shut + "namespace plainns exists|\n"},
		"one with its default account":   {`[{from: [{source: {namespaces: [empty]}}]}]`, "", shut + "namespace empty exists|\n"},
		"an account":                     {`[{from: [{source: {principals: [cluster.local/ns/default/sa/batch]}}]}]`, "", shut + "service account default/batch exists|\n"},
		"a service account":              {`[{from: [{source: {serviceAccounts: [batch]}}]}]`, "", shut + "service account default/batch exists|\n"},
		"a pattern":                      {`[{from: [{source: {principals: ["*/sa/batch"]}}]}]`, "", shut + "service account default/batch exists|\n"},
		"several":                        {`[{from: [{source: {serviceAccounts: [batch, one, two, three]}}]}, {from: [{source: {namespaces: [empty]}}]}]`, "", shut + "namespace empty or service account default/batch or service account default/one or 2 more exists|\n"},
		"one without, one misspelt":      {`[{from: [{source: {serviceAccounts: [batch]}}]}, {from: [{source: {serviceAccounts: [cleint]}}]}]`, "", shut + "service account default/batch exists|\n"},
		"one without, one with pods":     {`[{from: [{source: {serviceAccounts: [batch]}}]}, {from: [{source: {serviceAccounts: [client]}}]}]`, "", ""},
		"with a rule that is dropped":    {`[{from: [{source: {serviceAccounts: [batch]}}]}, {to: [{operation: {methods: [GET]}}]}]`, "", "partly-enforced warning partial||node proxies cannot judge methods; rules of this ALLOW policy that use them are dropped, so it allows less than written. A waypoint is needed to enforce them|\n" + shut + "service account default/batch exists|\n"},
		"pods are not enrolled":          {`[{from: [{source: {namespaces: [plain]}}]}]`, account("plain", "default"), "refuses-all warning refuses-all||refuses ALL connections to 1 pod (web-1): no rule of it matches an identity of the mesh|\n"},
		"a Deployment is about to do so": {`[{from: [{source: {serviceAccounts: [batch]}}]}]`, deployment, ""},
		"one that is scaled to zero":     {`[{from: [{source: {serviceAccounts: [batch]}}]}]`, strings.Replace(deployment, "spec: {selector", "spec: {replicas: 0, selector", 1), shut + "service account default/batch exists|\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var about []Finding
			for _, f := range Analyse(input(t, mesh, objects, policy1(`{selector: {matchLabels: {app: web}}, rules: `+tt.rules+`}`), tt.also)) {
				if f.Object.Name == "p" && f.Field == "" {
					about = append(about, f)
				}
			}
			if got := said(about); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
	deny := said(Analyse(input(t, mesh, objects, policy1(`{action: DENY, rules: [{from: [{source: {serviceAccounts: [batch]}}]}]}`))))
	if want := "peer-without-pods info |spec.rules[0].from[0].source.serviceAccounts[0]|service account \"batch\" matches no identity now: there are no pods of it|\n"; deny != want {
		t.Errorf("a DENY for the pods to come: got\n%swant\n%s", deny, want)
	}
	other := strings.Replace(policy1(`{selector: {matchLabels: {app: web}}, rules: [{from: [{source: {serviceAccounts: [client]}}]}]}`), "name: p", "name: q", 1)
	got := said(Analyse(input(t, mesh, objects, other, policy1(`{selector: {matchLabels: {app: web}}, rules: [{from: [{source: {serviceAccounts: [batch]}}]}]}`))))
	if !strings.Contains(got, "allows-nothing warning partial||allows nothing beside what other ALLOW policies do until an enrolled pod of service account default/batch exists|") {
		t.Errorf("beside another policy: got\n%s", got)
	}
}
