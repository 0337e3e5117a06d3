package files

import (
	"encoding/json"
	"strings"
	"testing"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
)

// TestProblemsNameFileLineObjectFieldAndFix is one row for each way in which people get a manifest wrong.
func TestProblemsNameFileLineObjectFieldAndFix(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"not YAML", "a: [", `f.yaml:1: did not find expected node content; correct the YAML`},
		{"not an object", "- a\n- b\n", `f.yaml:1: not an object with apiVersion, kind and metadata; write a Kubernetes object here`},
		{"no kind", "apiVersion: v1\n", `f.yaml:1: kind: kind is missing; every object needs apiVersion and kind`},
		{"twice the same key", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: x\n  name: y\n", `f.yaml:5: key "name" already set in map; correct the YAML`},
		{"two documents in one", "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n...\napiVersion: v1\n",
			`f.yaml:1: more than one document without a '---' line between them; put a line '---' between documents`},
		{"misspelt kind", "apiVersion: v1\nkind: Servise\nmetadata: {name: x}\n", `f.yaml:2: Servise x: kind: unknown kind Servise; did you mean Service?`},
		{"no kind, nor nearly one", "apiVersion: v1\nkind: Foo\nmetadata: {name: x}\n", `f.yaml:2: Foo x: kind: unknown kind Foo of v1; remove the document; nothing here acts on it`},
		{"unknown kind", "apiVersion: example.com/v1\nkind: Spaceship\nmetadata: {name: x}\n",
			`f.yaml:2: Spaceship x: kind: unknown kind Spaceship of example.com/v1; remove the document; nothing here acts on it`},
		{"kind of another group", "apiVersion: v1\nkind: Deployment\nmetadata: {name: x}\n", `f.yaml:1: Deployment x: apiVersion: there is no kind Deployment in v1; use apiVersion apps/v1`},
		{"unknown version", "apiVersion: apps/v1beta9\nkind: Deployment\nmetadata: {name: x}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c}]}}}\n",
			`f.yaml:1: Deployment default/x: apiVersion: version "v1beta9" of Deployment is not known; use apiVersion apps/v1`},
		{"unknown field", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec:\n  ports:\n  - prt: 80\n    port: 80\n",
			`f.yaml:6: Service default/x: spec.ports[0].prt: unknown field; did you mean port?`},
		{"unknown field of an Istio object", "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: x, namespace: shop}\nspec:\n  rules:\n  - from:\n    - source:\n        principal: [a]\n",
			`f.yaml:8: AuthorizationPolicy shop/x: spec.rules[0].from[0].source.principal: unknown field "principal"; did you mean principals?`},
		{"unknown value of an Istio field", "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: x}\nspec:\n  mtls:\n    mode: STRICTLY\n",
			`f.yaml:6: PeerAuthentication default/x: spec.mtls.mode: invalid value for enum field mode: "STRICTLY"; use one of UNSET, DISABLE, PERMISSIVE, STRICT`},
		{"number where an Istio object has text", "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: x}\nspec:\n  rules:\n  - to:\n    - operation:\n        ports: [8080]\n",
			`f.yaml:8: AuthorizationPolicy default/x: spec.rules[0].to[0].operation.ports[0]: invalid value for string field ports: 8080; write "8080" in quotes`},
		{"text where an Istio object has a list", "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: x}\nspec:\n  rules:\n  - to:\n    - operation:\n        ports: \"8080\"\n",
			`f.yaml:8: AuthorizationPolicy default/x: spec.rules[0].to[0].operation.ports: unexpected token "8080"; write a list: ["8080"]`},
		{"number where an Istio object has a map", "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: x}\nspec: {selector: {matchLabels: 0}}\n",
			`f.yaml:4: PeerAuthentication default/x: spec.selector.matchLabels: unexpected token 0; write an object`},
		{"number where text belongs", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: x\n  labels:\n    version: 1\n",
			`f.yaml:6: Namespace x: metadata.labels.version: number where text belongs; correct the value; text that looks like a number or a boolean needs quotes`},
		{"text where a number belongs", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec:\n  ports:\n  - port: http\n",
			`f.yaml:6: Service default/x: spec.ports[0].port: string where a whole number belongs; correct the value; text that looks like a number or a boolean needs quotes`},
		{"list where an object belongs", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec:\n  selector: [a]\n  ports: [{port: 80}]\n",
			`f.yaml:5: Service default/x: spec.selector: array where an object belongs; correct the value; text that looks like a number or a boolean needs quotes`},
		{"a word that YAML takes for a boolean", "apiVersion: v1\nkind: Namespace\nmetadata: {name: y}\n",
			`f.yaml:3: Namespace : metadata.name: bool where text belongs; correct the value; text that looks like a number or a boolean needs quotes`},
		{"no name", "apiVersion: v1\nkind: Namespace\nmetadata: {}\n", `f.yaml:3: Namespace : metadata.name: the name is missing; write metadata.name`},
		{"bad name", "apiVersion: v1\nkind: Namespace\nmetadata: {name: My_App}\n",
			`f.yaml:3: Namespace My_App: metadata.name: "My_App" is not a valid name; use lower-case letters, digits, '-' and '.', at most 253 characters`},
		{"namespace on a cluster-scoped kind", "apiVersion: v1\nkind: Node\nmetadata: {name: n1, namespace: x}\n",
			`f.yaml:3: Node n1: metadata.namespace: Node is cluster-scoped and has no namespace; remove the field`},
		{"bad label with a dotted name", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: x\n  labels:\n    a.b/c: ok\n    istio.io/dataplane-mode: \"not ok\"\n",
			`f.yaml:7: Namespace x: metadata.labels.istio.io/dataplane-mode: "not ok" is not a valid label value; use letters, digits, '-', '_' and '.', at most 63 characters, starting and ending with a letter or digit`},
		{"bad cluster IP", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec:\n  clusterIP: 10.96.0.300\n  ports: [{port: 80}]\n",
			`f.yaml:5: Service default/x: spec.clusterIP: "10.96.0.300" is not an IP address; write an address such as 10.96.0.20`},
		{"port out of range", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec:\n  ports:\n  - {port: 70000}\n", `f.yaml:6: Service default/x: spec.ports[0].port: port 70000 is out of range; use 1 to 65535`},
		{"unnamed ports", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec:\n  ports:\n  - {port: 80, name: a}\n  - {port: 81}\n",
			`f.yaml:7: Service default/x: spec.ports[1].name: a service with several ports must name each; add a name`},
		{"quoted target port", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec:\n  ports:\n  - {port: 80, targetPort: \"8080\"}\n",
			`f.yaml:6: Service default/x: spec.ports[0].targetPort: "8080" is not a port name; write the number without quotes`},
		{"no ports", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec:\n  selector: {a: b}\n", `f.yaml:4: Service default/x: spec.ports: a service needs at least one port; add a port, or set clusterIP: None`},
		{"selector does not match the template", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec:\n  selector: {matchLabels: {app: x}}\n  template:\n    metadata:\n      labels: {app: z}\n    spec: {containers: [{name: c}]}\n",
			`f.yaml:8: Deployment default/x: spec.template.metadata.labels: the selector does not match the template's labels; give the template the labels of spec.selector.matchLabels`},
		{"bad CIDR", "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: x}\nspec:\n  rules:\n  - from:\n    - source:\n        ipBlocks: [10.0.0.0/33]\n",
			`f.yaml:8: AuthorizationPolicy default/x: spec.rules[0].from[0].source.ipBlocks[0]: "10.0.0.0/33" is not valid here; write an address or a CIDR, such as 10.0.0.1 or 10.0.0.0/8`},
		{"empty source", "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: x}\nspec:\n  rules:\n  - from:\n    - source: {}\n",
			`f.yaml:7: AuthorizationPolicy default/x: spec.rules[0].from[0].source: the source names nothing; give at least one field, or leave the source out`},
		{"accounts with principals", "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: x}\nspec:\n  rules:\n  - from:\n    - source: {serviceAccounts: [a], principals: [b]}\n",
			`f.yaml:7: AuthorizationPolicy default/x: spec.rules[0].from[0].source.serviceAccounts: service accounts cannot be combined with principals or namespaces; use one of the two`},
		{"ports without a selector", "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: x}\nspec:\n  portLevelMtls:\n    80: {mode: STRICT}\n",
			`f.yaml:5: PeerAuthentication default/x: spec.portLevelMtls: port-level modes need a selector; add spec.selector.matchLabels`},
		{"in the second document", "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n---\n# a comment\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  hostNetwok: true\n",
			`f.yaml:10: Pod default/p: spec.hostNetwok: unknown field; did you mean hostNetwork?`},
		{"in a list", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: x}\n- apiVersion: v1\n  kind: Namespace\n  metadata:\n    nam: y\n",
			`f.yaml:10: Namespace : metadata.nam: unknown field; did you mean name?`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, problems := Decode("f.yaml", []byte(c.yaml))
			if len(problems) == 0 {
				t.Fatal("no problem found")
			}
			if got := problems[0].Error(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if problems[0].Severity != Refused {
				t.Error("it is only a warning")
			}
		})
	}
}

func TestAPolicyWithABadDryRunIsTakenWithAWarning(t *testing.T) {
	objects, problems := Decode("f.yaml", []byte("apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata:\n  name: x\n  annotations:\n    istio.io/dry-run: \"no\"\nspec: {action: DENY, rules: [{}]}\n"))
	const want = `f.yaml:5: AuthorizationPolicy default/x: metadata.annotations[istio.io/dry-run]: "no" is neither true nor false and counts as false; use "true" to have the policy report only, else "false"`
	if len(objects) != 1 || len(problems) != 1 || problems[0].Severity != Warning || problems[0].Error() != want {
		t.Errorf("got %v and %v", objects, problems)
	}
}

func TestAGoodDocumentSurvivesItsNeighbours(t *testing.T) {
	objects, problems := Decode("f.yaml", []byte("a: [\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: good}\n---\napiVersion: v1\nkind: Nothing\nmetadata: {name: bad}\n"))
	if len(objects) != 1 || objects[0].Name != "good" || objects[0].Line != 3 || len(problems) != 2 {
		t.Errorf("got %v and %v", objects, problems)
	}
}

func TestDecodesWhatPeopleApplyToKubernetes(t *testing.T) {
	objects, problems := Decode("f.yaml", []byte(`# a file as it is found in the wild
--- # first
apiVersion: v1
kind: Service
metadata:
  name: web
  labels: &labels {app: web}
spec:
  selector: *labels
  ports: [{name: http, port: 80, targetPort: http}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, creationTimestamp: null}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: web:1
        ports: [{name: http, containerPort: 8080}]
        resources: {limits: {cpu: 100m, memory: 64Mi}}
status: {}
---
apiVersion: security.istio.io/v1beta1
kind: AuthorizationPolicy
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  action: DENY
  rules: [{}]
---
{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"istio.io/dataplane-mode": "ambient"}}}
---

`))
	if len(problems) != 0 {
		t.Fatalf("problems: %v", problems)
	}
	if len(objects) != 4 {
		t.Fatalf("%d objects", len(objects))
	}
	svc := objects[0].Value.(*corev1.Service)
	if svc.Namespace != "default" || svc.Spec.Selector["app"] != "web" || objects[0].Key != model.ServiceKey("default", "web") || objects[0].Line != 3 {
		t.Errorf("service %+v", objects[0])
	}
	if d := objects[1].Value.(*appsv1.Deployment); *d.Spec.Replicas != 2 || objects[1].Support != model.Elsewhere {
		t.Errorf("deployment %+v", objects[1])
	}
	if ap := objects[2].Value.(*securityv1.AuthorizationPolicy); ap.Spec.Action.String() != "DENY" || len(ap.Spec.Rules) != 1 || ap.Name != "web" {
		t.Errorf("policy %+v", objects[2])
	}
	if ns := objects[3].Value.(*corev1.Namespace); ns.Labels["istio.io/dataplane-mode"] != "ambient" || !json.Valid(objects[3].JSON) {
		t.Errorf("namespace %+v", objects[3])
	}
}

func TestDataThatNobodyReadsIsKeptWithAWarning(t *testing.T) {
	for _, kind := range []string{"ConfigMap", "Secret"} {
		objects, problems := Decode("f.yaml", []byte("apiVersion: v1\nkind: "+kind+"\nmetadata: {name: x}\n"))
		if len(objects) != 1 || objects[0].Support != model.Ineffective || objects[0].Reason == "" || objects[0].Value == nil {
			t.Errorf("%s: objects %+v", kind, objects)
		}
		if len(problems) != 1 || problems[0].Severity != Warning || !strings.Contains(problems[0].Error(), "stored but ignored") {
			t.Errorf("%s: problems %v", kind, problems)
		}
	}
}

func TestKindsThatAreNotImplementedAreKeptWithAReason(t *testing.T) {
	objects, problems := Decode("f.yaml", []byte("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r}\nspec: {whatever: true}\n"))
	if len(objects) != 1 || objects[0].Support != model.Ineffective || objects[0].Reason == "" || objects[0].Value != nil {
		t.Fatalf("objects %+v", objects)
	}
	if len(problems) != 1 || problems[0].Severity != Warning || !strings.Contains(problems[0].Error(), "stored but ignored") {
		t.Errorf("problems %v", problems)
	}
	// What is understood of such a kind is checked all the same.
	if _, problems := Decode("f.yaml", []byte("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: r}\nspec: {host: [a]}\n")); len(problems) != 1 || problems[0].Field != "spec.host" {
		t.Errorf("problems %v", problems)
	}
}

// There are waypoints: what is kept without effect says what of it waypoints lack.
func TestNoReasonSaysThatThereAreNoWaypoints(t *testing.T) {
	for _, of := range []struct{ kind, says string }{
		{"VirtualService", "waypoints of this mesh do not read it yet"}, {"DestinationRule", "waypoints of this mesh do not read it yet"}, {"Telemetry", "they do not read it yet"},
		{"WasmPlugin", "run no extensions"}, {"HTTPRoute", "waypoints of this mesh do not read it yet"}, {"ListenerSet", "no gateways for traffic from outside yet"},
	} {
		found := false
		for at, k := range kinds {
			if at.kind == of.kind {
				found = strings.Contains(k.reason, of.says)
			}
			if strings.Contains(k.reason, "no waypoints") {
				t.Errorf("%s: %s", k.name, k.reason)
			}
		}
		if !found {
			t.Errorf("no %s whose reason says %q", of.kind, of.says)
		}
	}
}

func TestRefusesAFileThatIsTooLarge(t *testing.T) {
	if _, problems := Decode("f.yaml", make([]byte, MaxFileSize+1)); len(problems) != 1 {
		t.Errorf("problems %v", problems)
	}
}

// FuzzDecode holds the decoder to its contract on any bytes: no panic, every problem has a place and a text, and what it returns
// decodes to the same again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {ports: [{port: 80}]}\n---\na: [\n"))
	f.Add([]byte("apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: x}\nspec: {selector: {matchLabels: {a: b}}, portLevelMtls: {80: {mode: STRICT}}}\n"))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Namespace, metadata: {name: a}}, 3]\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("? \n\r? \r"))
	f.Add([]byte("a: 1\u0085a: 2\u2028a: 3\n"))
	f.Add([]byte("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: \"\\u00e9\"}\nspec: {replicas: x}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, problems := Decode("f", data)
		lines := 1 + strings.Count(string(data), "\n")
		for _, p := range problems {
			if p.Message == "" || p.File != "f" || p.Line < 1 || p.Line > lines {
				t.Errorf("problem %+v in %d lines", p, lines)
			}
		}
		for _, o := range objects {
			if o.Kind == "" || o.Name == "" || o.Line < 1 || o.Line > lines {
				t.Errorf("object %+v", o)
			}
			again, _ := Decode("f", o.JSON)
			if len(again) != 1 || again[0].Key != o.Key {
				t.Errorf("%s does not decode again from %s: %v", o.Key, o.JSON, again)
			}
		}
	})
}

func TestAFewLinesDoNotExpandWithoutBound(t *testing.T) {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		r := strings.NewReplacer("N", string(rune('a'+i)), "P", string(rune('a'+i-1)))
		b.WriteString(r.Replace("N0: &N0 [*P0,*P0,*P0,*P0,*P0,*P0,*P0,*P0,*P0,*P0]\n"))
	}
	objects, problems := Decode("f.yaml", []byte(b.String()))
	if len(objects) != 0 || len(problems) == 0 {
		t.Errorf("%d objects, problems %v", len(objects), problems)
	}
}

func BenchmarkDecodePod(b *testing.B) {
	data := []byte(`apiVersion: v1
kind: Pod
metadata:
  name: reviews-v1-5b8c7d9f6-abcde
  namespace: default
  uid: 0c1f3b0e-6a4e-4f0e-9d55-2f6a5f1f2c11
  labels: {app: reviews, version: v1, pod-template-hash: 5b8c7d9f6}
  annotations: {ambient.istio.io/redirection: enabled}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: reviews-v1-5b8c7d9f6, controller: true, uid: x}]
spec:
  nodeName: n1
  serviceAccountName: bookinfo-reviews
  containers:
  - name: reviews
    image: reviews:1
    ports: [{containerPort: 9080}]
status:
  phase: Running
  podIP: 10.244.1.7
  podIPs: [{ip: 10.244.1.7}]
  conditions: [{type: Ready, status: "True"}]
`)
	b.ReportAllocs()
	for b.Loop() {
		if o, p := Decode("f.yaml", data); len(o) != 1 || len(p) != 0 {
			b.Fatal(p)
		}
	}
}
