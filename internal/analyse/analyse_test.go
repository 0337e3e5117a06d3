package analyse

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/translate"
)

var mesh = translate.Mesh{TrustDomain: "cluster.local", RootNamespace: "istio-system", DomainSuffix: "cluster.local", ClusterID: "Kubernetes"}

// input reads YAML as the control plane does.
func input(t *testing.T, mesh translate.Mesh, documents ...string) *Input {
	t.Helper()
	store := model.NewStore()
	var changes []model.Change
	for _, d := range documents {
		objects, problems := files.Decode("test.yaml", []byte(d))
		for _, p := range problems {
			if p.Severity == files.Refused {
				t.Fatalf("%s\n%v", d, p)
			}
		}
		for _, o := range objects {
			changes = append(changes, model.Change{Key: o.Key, Object: &o})
		}
	}
	store.Apply(changes)
	return Read(mesh, store.Entries())
}

func namespace(name, labels string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {%s}}\n", name, labels)
}

func account(ns, name string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %s, namespace: %s}\n", name, ns)
}

func pod(ns, app, labels string, spec ...string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s-1, namespace: %s, labels: {app: %s%s}}\nspec: {serviceAccountName: %s, %scontainers: [{name: c, image: c}]}\n",
		app, ns, app, labels, app, strings.Join(spec, ""))
}

func policy1(spec string) string {
	return "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p, namespace: default}\nspec: " + spec + "\n"
}

// world is two enrolled pods in default, one in the namespace plain that is not enrolled, and an account that nothing runs as.
func world() string {
	return namespace("default", "istio.io/dataplane-mode: ambient") + namespace("plain", "") + namespace("empty", "istio.io/dataplane-mode: ambient") +
		account("default", "client") + account("default", "web") + account("default", "batch") + account("plain", "stranger") +
		pod("default", "client", "") + pod("default", "web", "") + pod("plain", "stranger", "")
}

// said writes findings one a line: code, severity, state, field, message and fix.
func said(found []Finding) string {
	var b strings.Builder
	for _, f := range found {
		if !Judges(f.Object.Kind) {
			panic(f.Object.Kind + " is not among the kinds that findings are declared to be about")
		}
		fmt.Fprintf(&b, "%s %s %s|%s|%s|%s\n", f.Code, f.Severity, f.State, f.Field, f.Message, f.Fix)
	}
	return b.String()
}

func TestRulesThatMatchNobodyAreTold(t *testing.T) {
	const source = "spec.rules[0].from[0].source."
	const denied = "denies-nothing warning ineffective||denies nothing: no rule of it matches an identity of the mesh|\n"
	tests := map[string]struct{ source, want string }{
		"an account that is there":      {`principals: ["cluster.local/ns/default/sa/client"]`, ""},
		"any identity":                  {`principals: ["*"]`, ""},
		"a pattern that matches":        {`principals: ["*/sa/client"]`, ""},
		"a prefix that matches":         {`principals: ["cluster.local/ns/default/*"]`, ""},
		"a namespace that is there":     {`namespaces: [default]`, ""},
		"a service account":             {`serviceAccounts: [client, default/web]`, ""},
		"addresses need no identity":    {`ipBlocks: ["10.0.0.0/8"]`, ""},
		"all but one that is there":     {`notPrincipals: ["cluster.local/ns/default/sa/client"]`, ""},
		"a scheme":                      {`principals: ["spiffe://cluster.local/ns/default/sa/client"]`, denied + `principal-scheme warning partial|` + source + `principals[0]|"spiffe://cluster.local/ns/default/sa/client" matches no identity: principals have no scheme|leave out spiffe://: write cluster.local/ns/default/sa/client` + "\n"},
		"another trust domain":          {`principals: ["other.mesh/ns/default/sa/client"]`, denied + `foreign-trust-domain warning partial|` + source + `principals[0]|"other.mesh/ns/default/sa/client" matches no identity: the mesh's trust domain is "cluster.local"|` + "\n"},
		"a misspelt account":            {`principals: ["cluster.local/ns/default/sa/cleint"]`, denied + `unknown-service-account warning partial|` + source + `principals[0]|"cluster.local/ns/default/sa/cleint" matches no identity: namespace default has no service account "cleint"|did you mean cluster.local/ns/default/sa/client?` + "\n"},
		"a misspelt namespace":          {`principals: ["cluster.local/ns/defualt/sa/client"]`, denied + `unknown-namespace warning partial|` + source + `principals[0]|"cluster.local/ns/defualt/sa/client" matches no identity: there is no namespace "defualt"|did you mean cluster.local/ns/default/sa/client?` + "\n"},
		"no principal at all":           {`principals: ["default/client"]`, denied + `principal-form warning partial|` + source + `principals[0]|"default/client" matches no identity: it is not written as a principal|write cluster.local/ns/NAMESPACE/sa/ACCOUNT` + "\n"},
		"a pattern that matches none":   {`principals: ["*/sa/nobody"]`, denied + `unmatched-pattern warning partial|` + source + `principals[0]|"*/sa/nobody" matches no identity|principals are written as cluster.local/ns/NAMESPACE/sa/ACCOUNT` + "\n"},
		"one good, one bad":             {`principals: ["cluster.local/ns/default/sa/client", "cluster.local/ns/default/sa/wbe"]`, `unknown-service-account warning partial|` + source + `principals[1]|"cluster.local/ns/default/sa/wbe" matches no identity: namespace default has no service account "wbe"|did you mean cluster.local/ns/default/sa/web?` + "\n"},
		"each matches, and none both":   {`{principals: ["cluster.local/ns/default/sa/client"], namespaces: [empty]}`, denied + `peer-without-pods info |` + source + `namespaces[0]|namespace "empty" matches no identity now: there are no pods of it|` + "\n"},
		"a namespace that is not":       {`namespaces: [defaults]`, denied + `unknown-namespace warning partial|` + source + `namespaces[0]|"defaults" matches no identity: there is no namespace "defaults"|did you mean default?` + "\n"},
		"a misspelt service account":    {`serviceAccounts: [cleint]`, denied + `unknown-service-account warning partial|` + source + `serviceAccounts[0]|"cleint" matches no identity: namespace default has no service account "cleint"|did you mean client?` + "\n"},
		"an account without pods":       {`principals: ["cluster.local/ns/default/sa/batch"]`, `peer-without-pods info |` + source + `principals[0]|"cluster.local/ns/default/sa/batch" matches no identity now: there are no pods of it|` + "\n"},
		"pods that are not enrolled":    {`principals: ["cluster.local/ns/plain/sa/stranger"]`, denied + `peer-not-enrolled warning partial|` + source + `principals[0]|"cluster.local/ns/plain/sa/stranger" matches no identity: its pods are not enrolled, and connect without one|enrol them: lateen label namespace plain istio.io/dataplane-mode=ambient` + "\n"},
		"an exception that is nobody's": {`notPrincipals: ["cluster.local/ns/default/sa/cleint"]`, `unknown-service-account warning partial|` + source + `notPrincipals[0]|"cluster.local/ns/default/sa/cleint" matches no identity: namespace default has no service account "cleint"; so it excepts nobody|did you mean cluster.local/ns/default/sa/client?` + "\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			spec := strings.Trim(tt.source, "{}")
			got := said(Analyse(input(t, mesh, world(), policy1(`{action: DENY, rules: [{from: [{source: {`+spec+`}}]}]}`))))
			if got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}

func TestConditionsOfARuleAreLookedAtAsWell(t *testing.T) {
	got := said(Analyse(input(t, mesh, world(), policy1(`{action: DENY, rules: [{when: [{key: source.principal, values: ["spiffe://cluster.local/ns/default/sa/client"]}, {key: source.namespace, notValues: [nowhere]}]}]}`))))
	for _, want := range []string{"principal-scheme warning partial|spec.rules[0].when[0].values[0]|", "unknown-namespace warning partial|spec.rules[0].when[1].notValues[0]|", "denies-nothing"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing from\n%s", want, got)
		}
	}
}

// A directory of objects may hold no Namespace: then nothing is known of their existence.
func TestWithoutNamespacesNoneIsCalledMissing(t *testing.T) {
	got := said(Analyse(input(t, mesh, pod("default", "web", ", istio.io/dataplane-mode: ambient"), policy1(`{action: DENY, rules: [{from: [{source: {namespaces: [shop]}}]}]}`))))
	if !strings.Contains(got, `"shop" matches no identity: no pod of namespace "shop" has one|`) || strings.Contains(got, "there is no namespace") {
		t.Errorf("got\n%s", got)
	}
}

// In a mesh with aliases a principal may name any of them, and cluster.local.
func TestAliasesOfTheTrustDomainAreTheMeshs(t *testing.T) {
	named := mesh
	named.TrustDomain, named.TrustDomainAliases = "shop.example", []string{"old.example"}
	for domain, known := range map[string]bool{"shop.example": true, "old.example": true, "cluster.local": true, "other.example": false} {
		got := Analyse(input(t, named, world(), policy1(`{action: DENY, rules: [{from: [{source: {principals: ["`+domain+`/ns/default/sa/client"]}}]}]}`)))
		if (len(got) == 0) != known {
			t.Errorf("%s: %s", domain, said(got))
		}
	}
}

func TestThePodsThatAPolicyIsAboutAreTold(t *testing.T) {
	allow := `rules: [{from: [{source: {principals: ["*"]}}]}]`
	tests := map[string]struct {
		at, spec string // metadata and spec
		want     string
	}{
		"they are there":       {"namespace: default", `{selector: {matchLabels: {app: web}}, ` + allow + `}`, ""},
		"a misspelt value":     {"namespace: default", `{selector: {matchLabels: {app: wbe}}, ` + allow + `}`, "selects-no-pod warning ineffective|spec.selector.matchLabels|selects 0 pods: none in namespace default has the labels app=wbe|did you mean app: web?\n"},
		"a misspelt key":       {"namespace: default", `{selector: {matchLabels: {ap: web}}, ` + allow + `}`, "selects-no-pod warning ineffective|spec.selector.matchLabels|selects 0 pods: none in namespace default has the labels ap=web|did you mean app: web?\n"},
		"of another":           {"namespace: default", `{selector: {matchLabels: {app: stranger}}, ` + allow + `}`, "selects-no-pod warning ineffective|spec.selector.matchLabels|selects 0 pods: none in namespace default has the labels app=stranger|\n"},
		"of the whole mesh":    {"namespace: istio-system", `{selector: {matchLabels: {app: web}}, ` + allow + `}`, ""},
		"no pods":              {"namespace: empty", `{` + allow + `}`, "namespace-without-pods warning ineffective||enforced for nobody: namespace empty has no pods|\n"},
		"no namespace":         {"namespace: defualt", `{` + allow + `}`, "namespace-missing warning ineffective||enforced for nobody: there is no namespace \"defualt\"|did you mean default?\n"},
		"none is enrolled":     {"namespace: plain", `{` + allow + `}`, "not-enforced warning ineffective||enforced for nobody: it is about 1 pod (stranger-1) alone, and none of them is enrolled|enrol them: lateen label namespace plain istio.io/dataplane-mode=ambient\n"},
		"dry run":              {`namespace: default, annotations: {istio.io/dry-run: "true"}`, `{` + allow + `}`, "dry-run info dry-run||dry run only: not enforced|remove the annotation istio.io/dry-run to enforce it\n"},
		"not for node proxies": {"namespace: default", `{action: AUDIT, rules: [{}]}`, "unsupported warning ineffective||node proxies do not support action AUDIT; the policy is not enforced|\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p, " + tt.at + "}\nspec: " + tt.spec + "\n"
			if got := said(Analyse(input(t, mesh, world(), p))); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
	strict := "---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: p, namespace: default}\nspec: {selector: {matchLabels: {app: wbe}}, mtls: {mode: STRICT}}\n"
	if got, want := said(Analyse(input(t, mesh, world(), strict))), "selects-no-pod warning ineffective|spec.selector.matchLabels|selects 0 pods: none in namespace default has the labels app=wbe|did you mean app: web?\n"; got != want {
		t.Errorf("a PeerAuthentication: got\n%swant\n%s", got, want)
	}
	some := namespace("mixed", "istio.io/dataplane-mode: ambient") + pod("mixed", "in", "") + pod("mixed", "out", ", istio.io/dataplane-mode: none") + pod("mixed", "host", "", "hostNetwork: true, ")
	strict = strings.NewReplacer("namespace: default", "namespace: mixed", "selector: {matchLabels: {app: wbe}}, ", "").Replace(strict)
	if got, want := said(Analyse(input(t, mesh, some, strict))), "not-enforced info ||not enforced for 2 pods (host-1, out-1): not enrolled|\n"; got != want {
		t.Errorf("some are not enrolled: got\n%swant\n%s", got, want)
	}
}

func TestPoliciesThatLetNobodyConnectNameThePods(t *testing.T) {
	const dropped = "node proxies cannot judge methods; rules of this ALLOW policy that use them are dropped, so it allows less than written. A waypoint is needed to enforce them"
	const good = "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: q, namespace: default}\nspec: {selector: {matchLabels: {app: web}}, rules: [{from: [{source: {principals: [\"*\"]}}]}]}\n"
	tests := map[string]struct{ spec, also, want string }{
		"its only rule is dropped":  {`{rules: [{to: [{operation: {methods: [GET]}}]}]}`, "", "refuses-all warning refuses-all||refuses ALL connections to 2 pods (client-1, web-1): " + dropped + "|\n"},
		"one rule is left":          {`{rules: [{to: [{operation: {methods: [GET]}}]}, {from: [{source: {principals: ["*"]}}]}]}`, "", "partly-enforced warning partial||" + dropped + "|\n"},
		"another policy allows one": {`{rules: [{to: [{operation: {methods: [GET]}}]}]}`, good, "refuses-all warning refuses-all||refuses ALL connections to 1 pod (client-1): " + dropped + "|\n"},
		"another policy allows all": {`{selector: {matchLabels: {app: web}}, rules: [{to: [{operation: {methods: [GET]}}]}]}`, good, "allows-nothing warning partial||allows nothing beside what other ALLOW policies do: " + dropped + "|\n"},
		"no rules":                  {`{}`, "", "refuses-all info ||refuses ALL connections to 2 pods (client-1, web-1): it has no rules|\n"},
		"no rule matches anybody":   {`{selector: {matchLabels: {app: web}}, rules: [{from: [{source: {serviceAccounts: [nobody]}}]}]}`, "", "refuses-all warning refuses-all||refuses ALL connections to 1 pod (web-1): no rule of it matches an identity of the mesh|\n"},
		"a DENY of everybody":       {`{action: DENY, rules: [{}]}`, "", "denies-all info ||denies ALL connections to 2 pods (client-1, web-1): a rule of it matches everybody|\n"},
		"a DENY of all addresses":   {`{action: DENY, rules: [{from: [{source: {ipBlocks: ["0.0.0.0/0", "::/0"]}}]}]}`, "", "denies-all info ||denies ALL connections to 2 pods (client-1, web-1): a rule of it matches everybody|\n"},
		"a DENY of all IPv4":        {`{action: DENY, rules: [{from: [{source: {ipBlocks: ["0.0.0.0/0"]}}]}]}`, "", "denies-all info ||denies ALL connections to 2 pods (client-1, web-1): a rule of it matches every IPv4 address|\n"},
		"a DENY of half of IPv4":    {`{action: DENY, rules: [{from: [{source: {ipBlocks: ["0.0.0.0/1"]}}]}]}`, "", ""},
		"a DENY of a peer anywhere": {`{action: DENY, rules: [{from: [{source: {ipBlocks: ["0.0.0.0/0"], serviceAccounts: [client]}}]}]}`, "", ""},
		"it excepts all it names":   {`{rules: [{from: [{source: {principals: ["*"], notPrincipals: ["*"]}}]}]}`, "", "refuses-all warning refuses-all||refuses ALL connections to 2 pods (client-1, web-1): a rule of it excepts everything that it names|\n"},
		"it excepts its addresses":  {`{rules: [{from: [{source: {ipBlocks: ["10.0.0.0/8"], notIpBlocks: ["0.0.0.0/0"]}}]}]}`, "", "refuses-all warning refuses-all||refuses ALL connections to 2 pods (client-1, web-1): a rule of it excepts everything that it names|\n"},
		"it excepts one of two":     {`{rules: [{from: [{source: {ipBlocks: ["10.0.0.0/8", "11.0.0.0/8"], notIpBlocks: ["10.0.0.0/7"]}}]}, {from: [{source: {ipBlocks: ["10.0.0.0/8", "12.0.0.0/8"], notIpBlocks: ["10.0.0.0/8"]}}]}]}`, "", ""},
		"anonymous peers alone":     {`{action: DENY, rules: [{from: [{source: {notPrincipals: ["*"]}}]}]}`, "", ""},
		"a DENY without rules":      {`{action: DENY}`, "", "denies-nothing warning ineffective||a DENY policy without rules never matches and denies nothing|add a rule; one empty rule ({}) denies everything\n"},
		"a DENY of what is dropped": {`{action: DENY, rules: [{to: [{operation: {methods: [GET]}}]}]}`, "", "denies-nothing warning ineffective||node proxies cannot judge methods; without them nothing is left that this DENY policy could match, so it denies nothing. A waypoint is needed to enforce them|\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var about []Finding
			for _, f := range Analyse(input(t, mesh, world(), policy1(tt.spec), tt.also)) {
				if f.Object.Name == "p" && f.Field == "" {
					about = append(about, f)
				}
			}
			if got := said(about); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}

func TestPortsThatNoContainerDeclaresAreNamed(t *testing.T) {
	declares := func(app, ports string) string {
		return strings.Replace(pod("ported", app, ""), "image: c", "image: c, ports: ["+ports+"]", 1)
	}
	with := func(documents ...string) string {
		return namespace("ported", "istio.io/dataplane-mode: ambient") + account("ported", "a") + strings.Join(documents, "")
	}
	one := with(declares("a", "{containerPort: 8080}, {containerPort: 53, protocol: UDP}"))
	none := "undeclared-port info |spec.rules[0].to[0].operation.ports[%d]|no container of 1 pod (a-1) declares port %d|\n"
	const all = "denies-all info ||denies ALL connections to 1 pod (a-1): a rule of it matches everybody|\n"
	tests := map[string]struct{ world, spec, want string }{
		"a declared port":                 {one, `{rules: [{to: [{operation: {ports: ["8080"]}}]}]}`, ""},
		"another port":                    {one, `{rules: [{to: [{operation: {ports: ["8080", "9090"]}}]}]}`, fmt.Sprintf(none, 1, 9090)},
		"a port of UDP":                   {one, `{rules: [{to: [{operation: {ports: ["53"]}}]}]}`, fmt.Sprintf(none, 0, 53)},
		"a condition":                     {one, `{rules: [{when: [{key: destination.port, values: ["9090"]}]}]}`, "undeclared-port info |spec.rules[0].when[0].values[0]|no container of 1 pod (a-1) declares port 9090|\n"},
		"nothing is known of one pod":     {one + declares("b", ""), `{rules: [{to: [{operation: {ports: ["9090"]}}]}]}`, ""},
		"another pod declares it":         {one + declares("b", "{containerPort: 9090}"), `{rules: [{to: [{operation: {ports: ["9090"]}}]}]}`, ""},
		"a DENY of all other ports":       {one, `{action: DENY, rules: [{to: [{operation: {notPorts: ["8080"]}}]}]}`, ""},
		"a DENY of all but a strange one": {one, `{action: DENY, rules: [{to: [{operation: {notPorts: ["1"]}}]}]}`, all},
		"but nothing is known of ports":   {one + declares("b", ""), `{action: DENY, rules: [{to: [{operation: {notPorts: ["1"]}}]}]}`, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := strings.Replace(policy1(tt.spec), "namespace: default", "namespace: ported", 1)
			if got := said(Analyse(input(t, mesh, tt.world, p))); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}

func TestManyPodsAreCounted(t *testing.T) {
	documents := []string{namespace("default", "istio.io/dataplane-mode: ambient"), policy1(`{rules: [{to: [{operation: {methods: [GET]}}]}]}`)}
	for i := range 30 {
		documents = append(documents, pod("default", fmt.Sprintf("web%02d", i), ""))
	}
	found := Analyse(input(t, mesh, documents...))
	if len(found) != 1 || !strings.HasPrefix(found[0].Message, "refuses ALL connections to 30 pods (web00-1, web01-1, web02-1 and 27 more): ") || len(found[0].Pods) != listedPods || found[0].MorePods != 10 || found[0].Pods[0] != "default/web00-1" {
		t.Errorf("got %+v", found)
	}
}

// An annotation that is not clear is no cause of what the rules do.
func TestAnUnclearAnnotationForDryRunsStandsByItself(t *testing.T) {
	const unclear = `partly-enforced warning partial|metadata.annotations[istio.io/dry-run]|annotation istio.io/dry-run is "maybe", so the policy is enforced; use true or false|` + "\n"
	tests := map[string]struct{ spec, want string }{
		"a good policy": {`{rules: [{from: [{source: {serviceAccounts: [client]}}]}]}`, unclear},
		"a misspelt account": {`{rules: [{from: [{source: {serviceAccounts: [cleint]}}]}]}`, "refuses-all warning refuses-all||refuses ALL connections to 2 pods (client-1, web-1): no rule of it matches an identity of the mesh|\n" + unclear +
			`unknown-service-account warning partial|spec.rules[0].from[0].source.serviceAccounts[0]|"cleint" matches no identity: namespace default has no service account "cleint"|did you mean client?` + "\n"},
		"a rule that is dropped": {`{rules: [{to: [{operation: {methods: [GET]}}]}]}`, "refuses-all warning refuses-all||refuses ALL connections to 2 pods (client-1, web-1): node proxies cannot judge methods; rules of this ALLOW policy that use them are dropped, so it allows less than written. A waypoint is needed to enforce them|\n" + unclear},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := strings.Replace(policy1(tt.spec), "namespace: default", "namespace: default, annotations: {istio.io/dry-run: maybe}", 1)
			in := input(t, mesh, world(), p)
			if got := said(Analyse(in)); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
			if in.AuthorizationPolicies[0].Annotations["istio.io/dry-run"] != "maybe" {
				t.Error("the policy itself has lost its annotation")
			}
		})
	}
}

// The pods of a Deployment that was applied together with a policy are about to be made.
func TestPodsThatAreAboutToBeMadeCount(t *testing.T) {
	deployment := "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: default}\nspec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {serviceAccountName: web, containers: [{name: c, image: c}]}}}\n"
	p := policy1(`{selector: {matchLabels: {app: web}}, rules: [{from: [{source: {serviceAccounts: [web]}}]}]}`)
	ns := namespace("default", "istio.io/dataplane-mode: ambient") + account("default", "web")
	if got := said(Analyse(input(t, mesh, ns, deployment, p))); got != "" {
		t.Errorf("got\n%s", got)
	}
	if got := said(Analyse(input(t, mesh, ns, p))); !strings.Contains(got, "namespace-without-pods") {
		t.Errorf("without the Deployment: got\n%s", got)
	}
}

func TestLabelsThatPutNothingIntoTheMeshAreTold(t *testing.T) {
	tests := map[string]string{
		"": "", "istio.io/dataplane-mode: ambient": "", "istio.io/dataplane-mode: none": "",
		"istio.io/dataplane-mode: ambeint":                           "unknown-dataplane-mode warning |metadata.labels[istio.io/dataplane-mode]|istio.io/dataplane-mode=ambeint has no effect: use ambient to put pods into the mesh, none to keep them out|did you mean ambient?\n",
		"istio-injection: enabled":                                   "injection-label warning |metadata.labels[istio-injection]|label istio-injection=enabled has no effect: this mesh injects no sidecars|set istio.io/dataplane-mode=ambient in its place: the mesh then carries the pods' connections without a restart\n",
		"istio-injection: disabled":                                  "",
		"istio-injection: enabled, istio.io/dataplane-mode: ambient": "",
	}
	for labels, want := range tests {
		if got := said(Analyse(input(t, mesh, namespace("shop", labels)))); got != want {
			t.Errorf("%s: got\n%swant\n%s", labels, got, want)
		}
	}
	got := Analyse(input(t, mesh, namespace("shop", ""), pod("shop", "a", ", istio.io/dataplane-mode: Ambient"), pod("shop", "b", ", istio.io/dataplane-mode: Ambient")))
	if want := "unknown-dataplane-mode warning ||label of 2 pods (a-1, b-1): istio.io/dataplane-mode=Ambient has no effect: use ambient to put pods into the mesh, none to keep them out|did you mean ambient?\n"; said(got) != want {
		t.Errorf("pods: got\n%swant\n%s", said(got), want)
	}
}

func TestFindingsComeInTheSameOrder(t *testing.T) {
	in := input(t, mesh, world(), policy1(`{action: DENY, rules: [{from: [{source: {principals: ["x", "cluster.local/ns/plain/*"], namespaces: ["p*"]}}]}]}`), namespace("z", "istio-injection: enabled"))
	first := said(Analyse(in))
	for range 20 {
		slices.Reverse(in.Pods)
		slices.Reverse(in.Namespaces)
		if again := said(Analyse(in)); again != first {
			t.Fatalf("got\n%sbefore\n%s", again, first)
		}
	}
}

// large is a mesh of 200 namespaces with 50 pods each, and 1,000 policies that name one account each. All but those of the first ten
// namespaces choose pods by labels.
func large(t testing.TB) *Input {
	in := &Input{Mesh: mesh}
	documents := strings.Builder{}
	for n := range 200 {
		ns := fmt.Sprintf("ns%03d", n)
		documents.WriteString(namespace(ns, "istio.io/dataplane-mode: ambient"))
		for p := range 5 {
			selector := fmt.Sprintf("selector: {matchLabels: {app: app%d}}, ", p)
			if n < 10 {
				selector = ""
			}
			fmt.Fprintf(&documents, "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p%d, namespace: %s}\nspec: {%srules: [{from: [{source: {principals: [\"*/ns/%s/sa/app%d\", \"cluster.local/ns/ns%03d/*\"], notNamespaces: [ns%03d]}}]}]}\n", p, ns, selector, ns, p+p%2*7, (n+1)%200, (n+2)%200)
		}
	}
	objects, problems := files.Decode("large.yaml", []byte(documents.String()))
	if len(problems) > 0 {
		t.Fatal(problems[0])
	}
	store := model.NewStore()
	var changes []model.Change
	for _, o := range objects {
		changes = append(changes, model.Change{Key: o.Key, Object: &o})
	}
	for n := range 200 {
		text, _ := files.Decode("pod.yaml", []byte(pod("default", "a", "")))
		for p := range 50 {
			o := text[0]
			o.Key.Namespace, o.Key.Name = fmt.Sprintf("ns%03d", n), fmt.Sprintf("app%d-%d", p%5, p)
			v := podOf(o, p%5)
			o.Value = v
			changes = append(changes, model.Change{Key: o.Key, Object: &o})
		}
	}
	store.Apply(changes)
	read := Read(mesh, store.Entries())
	*in = *read
	return in
}

func TestTheWorkGrowsWithPodsAndPoliciesNotWithBothTogether(t *testing.T) {
	in := large(t)
	if len(in.Pods) != 10_000 || len(in.AuthorizationPolicies) != 1_000 {
		t.Fatalf("%d pods, %d policies", len(in.Pods), len(in.AuthorizationPolicies))
	}
	began := time.Now()
	a := analyse(in)
	t.Logf("%d findings in %s, %d looked at", len(a.out), time.Since(began), a.looked)
	if most := 5 * (len(in.Pods) + len(in.AuthorizationPolicies)); a.looked > most {
		t.Errorf("%d workloads and identities were looked at, want at most %d", a.looked, most)
	}
}

func BenchmarkLargeMesh(b *testing.B) {
	in := large(b)
	for b.Loop() {
		Analyse(in)
	}
}
