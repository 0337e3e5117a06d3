package isotope_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/lab/isotope"
)

// shop uses every field there is.
const shop = `
apiVersion: v1alpha1
kind: MockServiceGraph
defaults:
  type: http
  errorRate: 0.1%
  requestSize: 1 KB
  responseSize: 16k
  numReplicas: 2
  numRbacPolicies: 1
  script: [{sleep: 1ms}]
services:
- name: front
  namespace: shop
  cluster: east
  isEntrypoint: true
  errorRate: 0
  memoryUsage: 80%
  labels: {tier: web, example.com/owner: me}
  script:
  - - call: stock
    - call: {service: price, size: 10K, probability: 30}
    - sleep: 2ms
  - sleep: 10ms
  - call: {service: stock, hostname: "stock.other.svc.cluster.local:8080", payloadSize: 80B, extra-header: {x-who: front}}
- name: stock
  type: grpc
  numReplicas: 0
  numRbacPolicies: 0
  responseSize: 1.5MiB
- name: price
  errorRate: 0.25
  script: null
`

func parse(t *testing.T, text string) *isotope.Topology {
	t.Helper()
	p, err := isotope.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEveryFieldIsRead(t *testing.T) {
	pause := []isotope.Step{{Commands: []isotope.Command{{Sleep: time.Millisecond}}}}
	want := []isotope.Service{
		{Name: "front", Namespace: "shop", Cluster: "east", Type: "http", Replicas: 2, RbacPolicies: 1, Entrypoint: true, ResponseSize: 16384,
			Labels: map[string]string{"tier": "web", "example.com/owner": "me"},
			Script: []isotope.Step{
				{Concurrent: true, Commands: []isotope.Command{
					{Call: &isotope.Call{Service: "stock", Host: "stock:8080", Size: 1024}},
					{Call: &isotope.Call{Service: "price", Host: "price:8080", Size: 10240, Probability: 30}},
					{Sleep: 2 * time.Millisecond},
				}},
				{Commands: []isotope.Command{{Sleep: 10 * time.Millisecond}}},
				{Commands: []isotope.Command{{Call: &isotope.Call{Service: "stock", Host: "stock.other.svc.cluster.local:8080", Size: 80, Headers: map[string]string{"x-who": "front"}}}}},
			}},
		{Name: "stock", Type: "grpc", Replicas: 0, ErrorRate: 0.001, ResponseSize: 3 << 19, Script: pause},
		{Name: "price", Type: "http", Replicas: 2, RbacPolicies: 1, ErrorRate: 0.25, ResponseSize: 16384, Script: pause},
	}
	got := parse(t, shop)
	if !reflect.DeepEqual(got.Services, want) {
		t.Errorf("got  %+v\nwant %+v", got.Services, want)
	}
	if singular := parse(t, strings.Replace(shop, "defaults:", "default:", 1)); !reflect.DeepEqual(singular, got) {
		t.Errorf("default in the singular: %+v", singular)
	}
	text, err := got.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if again := parse(t, string(text)); !reflect.DeepEqual(again, got) {
		t.Errorf("written and read again:\n%s\n%+v", text, again)
	}
	if e := got.Entrypoints(); !slices.Equal(e, []string{"front"}) {
		t.Errorf("entry points %v", e)
	}
}

func TestARefusalNamesObjectFieldAndFix(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []string // all of them
	}{
		{"", []string{"services", "at least one"}},
		{"services: []", []string{"services", "1 to"}},
		{"a: [", []string{"topology"}},
		{"kind: Pod\nservices: [{name: a}]", []string{"kind", "MockServiceGraph"}},
		{"service: [{name: a}]\nservices: [{name: a}]", []string{"service:", "no such field", "services"}},
		{"default: {}\ndefaults: {}\nservices: [{name: a}]", []string{"both", "keep defaults"}},
		{"defaults: {requestsize: 1}\nservices: [{name: a}]", []string{"defaults", "requestsize", "requestSize"}},
		{"defaults: {responseSize: -1}\nservices: [{name: a}]", []string{"defaults: responseSize", "-1", "16 KB"}},
		{"services: [{}]", []string{"services[0]: name", "missing"}},
		{"services: [{name: A_b}]", []string{"services[0]: name", "lower-case"}},
		{"services: [{name: a}, {name: a}]", []string{"service a: name", "twice", "another"}},
		{"services: [{name: a, name: b}]", []string{"name", "already"}},
		{"services: [{name: a, type: tcp}]", []string{"service a: type", "http or grpc"}},
		{"services: [{name: a, errorRate: 2}]", []string{"service a: errorRate", "0 to 1"}},
		{"services: [{name: a, errorRate: 5}]", []string{"service a: errorRate"}},
		{`services: [{name: a, errorRate: "0.5"}]`, []string{"service a: errorRate", "100%"}},
		{"services: [{name: a, errorRate: 101%}]", []string{"service a: errorRate"}},
		{"services: [{name: a, errorRate: NaN%}]", []string{"service a: errorRate"}},
		{"services: [{name: a, responseSize: 10 apples}]", []string{"service a: responseSize", "10 apples"}},
		{"services: [{name: a, responseSize: 1 PB}]", []string{"service a: responseSize", "1 GiB"}},
		{"services: [{name: a, responseSize: 1.5}]", []string{"service a: responseSize"}},
		{"services: [{name: a, numReplicas: -1}]", []string{"service a: numReplicas", "0 to"}},
		{"services: [{name: a, numReplicas: 1.5}]", []string{"service a: numReplicas"}},
		{"services: [{name: a, isEntrypoint: 1}]", []string{"service a: isEntrypoint", "true or false"}},
		{"services: [{name: a, labels: {x: 1}}]", []string{"service a: labels", "quote"}},
		{"services: [{name: a, labels: {x: a b}}]", []string{"service a: labels", `"a b"`}},
		{"services: [{name: a, script: {call: a}}]", []string{"service a: script", "list"}},
		{"services: [{name: a, script: [{call: b}]}]", []string{"service a: script", `"b"`, "services"}},
		{"services: [{name: a, script: [{wait: 1s}]}]", []string{"service a: script: step 1", "wait", "sleep and call"}},
		{"services: [{name: a, script: [{sleep: 1s, call: a}]}]", []string{"step 1", "one of sleep and call"}},
		{"services: [{name: a, script: [{sleep: 1}]}]", []string{"step 1: sleep", "10ms"}},
		{"services: [{name: a, script: [{sleep: -1s}]}]", []string{"step 1: sleep"}},
		{"services: [{name: a, script: [{sleep: }]}]", []string{"step 1", "nothing to do"}},
		{"services: [{name: a, script: [[[{sleep: 1s}]]]}]", []string{"step 1", "one level", "step of its own"}},
		{"services: [{name: a, script: [{sleep: 1s}, {call: {size: 1}}]}]", []string{"step 2: call: service", "missing"}},
		{"services: [{name: a, script: [{call: {service: a, size: 1, payloadSize: 1}}]}]", []string{"both", "keep size"}},
		{"services: [{name: a, script: [{call: {service: a, probability: 101}}]}]", []string{"call: probability", "0 to 100"}},
		{"services: [{name: a, script: [{call: {service: a, hostname: 'http://a'}}]}]", []string{"call: hostname", "a name and a port"}},
		{"services: [{name: a, script: [{call: {service: a, extra-header: {'a b': c}}}]}]", []string{"extra-header", "a b"}},
		{"services: [{name: a, script: [{call: {service: a, speed: 1}}]}]", []string{"speed", "no such field"}},
	} {
		got, err := isotope.Parse([]byte(tc.text))
		if err == nil {
			t.Errorf("%s: taken as %+v", tc.text, got)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", tc.text, err, want)
			}
		}
	}
}

func TestSizesAreIsotopes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "128": 128, "'128'": 128, "80B": 80, "1 KB": 1024, "10k": 10240, "16KiB": 16384, "1.5m": 3 << 19, "1Gb": 1 << 30} {
		if got := parse(t, "services: [{name: a, responseSize: "+text+"}]").Services[0].ResponseSize; got != want {
			t.Errorf("%s is %d bytes, want %d", text, got, want)
		}
	}
}

func TestOnlyCirclesWithoutAnEndAreEndless(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"chain":              {"services: [{name: a, script: [{call: b}]}, {name: b, script: [{call: c}]}, {name: c}]", nil},
		"diamond":            {"services: [{name: a, script: [[{call: b}, {call: c}]]}, {name: b, script: [{call: d}]}, {name: c, script: [{call: d}]}, {name: d}]", nil},
		"itself":             {"services: [{name: a, script: [{call: a}]}]", []string{"a", "a"}},
		"behind an entrance": {"services: [{name: in, script: [{call: a}]}, {name: a, script: [[{sleep: 1s}, {call: b}]]}, {name: b, script: [{call: a}]}]", []string{"a", "b", "a"}},
		"by chance":          {"services: [{name: a, script: [{call: {service: a, probability: 99}}]}]", nil},
		"always by 100":      {"services: [{name: a, script: [{call: {service: a, probability: 100}}]}]", []string{"a", "a"}},
		"fails in the end":   {"services: [{name: a, errorRate: 1%, script: [{call: b}]}, {name: b, script: [{call: a}]}]", nil},
	} {
		p := parse(t, tc.text)
		if got := p.Endless(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		var drawing bytes.Buffer
		if err := p.Graphviz(&drawing); err != nil {
			t.Errorf("%s: a drawing of it: %v", name, err)
		}
		if got := strings.Count(drawing.String(), "color=red"); got != max(0, len(tc.want)-1) {
			t.Errorf("%s: %d red edges, want %d", name, got, max(0, len(tc.want)-1))
		}
		err := p.Manifests(&bytes.Buffer{}, isotope.DefaultManifestOptions)
		if refused := err != nil && strings.Contains(err.Error(), "round for ever") && strings.Contains(err.Error(), "probability"); refused != (tc.want != nil) {
			t.Errorf("%s: manifests: %v", name, err)
		}
	}
}

func TestGoldens(t *testing.T) {
	p := parse(t, shop)
	var drawing, manifests bytes.Buffer
	if err := p.Graphviz(&drawing); err != nil {
		t.Fatal(err)
	}
	if err := p.Manifests(&manifests, isotope.DefaultManifestOptions); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{"shop.dot": drawing.Bytes(), "shop.yaml": manifests.Bytes()} {
		file := filepath.Join("testdata", name)
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs:\n%s", name, got)
		}
	}
}

func TestManifestsOfOneCluster(t *testing.T) {
	p := parse(t, shop)
	o := isotope.DefaultManifestOptions
	o.Cluster, o.Replicas = "east", 3
	var east bytes.Buffer
	if err := p.Manifests(&east, o); err != nil {
		t.Fatal(err)
	}
	if s := east.String(); strings.Count(s, "kind: Deployment") != 1 || !strings.Contains(s, "replicas: 3") {
		t.Errorf("got %s", s)
	}
	o.Cluster = "west"
	if err := p.Manifests(&bytes.Buffer{}, o); err == nil || !strings.Contains(err.Error(), `cluster "west"`) || !strings.Contains(err.Error(), "east") {
		t.Errorf("got %v", err)
	}
}

// What a pod finds in its environment must say the same of its service as the whole topology does.
func TestAPodsPartOfTheTopologyIsTheService(t *testing.T) {
	p := parse(t, shop)
	var out bytes.Buffer
	if err := p.Manifests(&out, isotope.DefaultManifestOptions); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, text := range strings.Split(out.String(), "\n---\n") {
		var d struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Env []struct{ Name, Value string }
						}
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		if d.Kind != "Deployment" {
			continue
		}
		found++
		env := d.Spec.Template.Spec.Containers[0].Env
		part, err := isotope.Load("", env[1].Value)
		if err != nil {
			t.Fatal(err)
		}
		if env[0].Value != d.Metadata.Name || !reflect.DeepEqual(part.Find(d.Metadata.Name), p.Find(d.Metadata.Name)) {
			t.Errorf("%s is told %s", d.Metadata.Name, env[1].Value)
		}
	}
	if found != len(p.Services) {
		t.Errorf("%d deployments for %d services", found, len(p.Services))
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(shop))
	f.Add([]byte("services: [{name: a, script: [{call: b}]}, {name: b, script: [[{call: a}, {sleep: 1s}]]}]"))
	f.Add([]byte("defaults: {script: [{call: a}]}\nservices: [{name: a}, {name: b, script: []}]"))
	f.Add([]byte(`{"services":[{"name":"a","errorRate":"1e-3%","script":[{"call":{"service":"a","hostname":"[::1]:8080"}}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := isotope.Parse(text)
		if err != nil {
			return
		}
		var drawing bytes.Buffer
		if err := p.Graphviz(&drawing); err != nil {
			t.Fatal(err)
		}
		calls, endless := 0, p.Endless()
		for i := range p.Services {
			for _, step := range p.Services[i].Script {
				for _, c := range step.Commands {
					if c.Call != nil {
						calls++
					}
				}
			}
		}
		if got := strings.Count(drawing.String(), " -> "); got != calls {
			t.Fatalf("%d edges for %d calls", got, calls)
		}
		for i := 1; i < len(endless); i++ {
			s := p.Find(endless[i-1])
			if s == nil || s.ErrorRate > 0 || !slices.ContainsFunc(s.Script, func(step isotope.Step) bool {
				return slices.ContainsFunc(step.Commands, func(c isotope.Command) bool { return c.Call != nil && c.Call.Service == endless[i] })
			}) {
				t.Fatalf("%v is no circle", endless)
			}
		}
		if len(endless) > 0 && endless[0] != endless[len(endless)-1] {
			t.Fatalf("%v does not close", endless)
		}
		if err := p.Manifests(&bytes.Buffer{}, isotope.DefaultManifestOptions); (err != nil) != (len(endless) > 0) {
			t.Fatalf("manifests of a topology whose circle is %v: %v", endless, err)
		}
		again, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if q, err := isotope.Parse(again); err != nil || len(q.Services) != len(p.Services) {
			t.Fatalf("written again it is not taken: %v\n%s", err, again)
		}
	})
}
