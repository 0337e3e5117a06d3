package local

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

func badInput(m *mesh) {
	res := m.apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: good}
---
apiVersion: v1
kind: Service
metadata: {name: typo}
spec: {prots: [{port: 80}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: lost, namespace: nowhere}
`)
	if len(res.Results) != 1 || res.Results[0].Key.Name != "good" || res.Results[0].Action != api.Created || len(res.Problems) != 2 {
		m.Fatalf("got %+v", res)
	}
	if p := res.Problems[0]; p.File != "test.yaml" || p.Line < 6 || !strings.Contains(p.String(), "prots") {
		m.Errorf("problem %+v", p)
	}
	if p := res.Problems[1]; p.Line != 11 || !strings.Contains(p.Message, `namespace "nowhere" not found`) {
		m.Errorf("problem %+v", p)
	}
	list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "svc", Name: "web"})
	if err != nil {
		m.Fatal(err)
	}
	var svc corev1.Service
	if err := json.Unmarshal(list.Items[0].Raw, &svc); err != nil {
		m.Fatal(err)
	}
	for name, tc := range map[string]struct{ text, want string }{
		"two services with one address": {fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: twin}\nspec: {clusterIP: %s, ports: [{port: 80}]}", svc.Spec.ClusterIP), "belongs to Service default/web already"},
		"an address that is reserved":   {"apiVersion: v1\nkind: Service\nmetadata: {name: twin}\nspec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}", "reserved"},
		"an address of another range":   {"apiVersion: v1\nkind: Service\nmetadata: {name: twin}\nspec: {clusterIP: 192.0.2.1, ports: [{port: 80}]}", "not in 10.96.0.0/16"},
		"a change of address":           {"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.77.7, ports: [{port: 80}]}", "cannot change"},
		"a node":                        {"apiVersion: v1\nkind: Node\nmetadata: {name: n7}", "lateen up --nodes"},
		"a change of selector":          {strings.Replace(webAndClient[strings.Index(webAndClient, "apiVersion: apps/v1"):], "app: web", "app: web2", -1), "spec.selector cannot change"},
		"a name that is taken":          {"apiVersion: v1\nkind: Pod\nmetadata: {name: " + m.pods("app=client")[0].Name + "}\nspec: {containers: [{name: c, image: x, command: [sleep, '1']}]}", "still there"},
	} {
		res := m.apply(tc.text)
		if len(res.Problems) == 0 || !strings.Contains(res.Problems[0].String(), tc.want) {
			m.Errorf("%s: got %+v, want %q", name, res, tc.want)
		}
	}
	if out, code := m.exec("deploy/client", "lateen-helper", "get", "http://web/"); code != 0 {
		m.Errorf("what was there is not live any more: %s", out)
	}
	res = m.apply("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: later}\nspec: {hosts: [web]}")
	if len(res.Problems) != 0 || len(res.Results) != 1 || !strings.Contains(strings.Join(res.Results[0].Warnings, " "), "stored but ignored") {
		m.Errorf("a kind that has no effect yet: %+v", res)
	}
}

// A control plane that has not read what was applied a moment ago says nothing of it, even if an earlier version was written alike.
func versions(m *mesh) {
	conditions := func(port string) int {
		m.applied("apiVersion: v1\nkind: Service\nmetadata: {name: slow}\nspec: {ports: [{port: " + port + "}]}")
		list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "Service", Name: "slow"})
		if err != nil {
			m.Fatal(err)
		}
		return len(list.Items[0].Conditions)
	}
	for _, tt := range []struct {
		port string
		want int
	}{{"80", 1}, {"80", 1}, {"81", 0}, {"80", 0}} {
		if got := conditions(tt.port); got != tt.want {
			m.Errorf("with port %s it has %d conditions, want %d", tt.port, got, tt.want)
		}
	}
	// A control plane that cannot be asked is not one that has nothing to say.
	const mute = "apiVersion: v1\nkind: Service\nmetadata: {name: mute}\nspec: {ports: [{port: 80}]}"
	unasked := func() string {
		list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "Service", Name: "slow"})
		if err != nil {
			m.Fatal(err)
		}
		return list.Unasked
	}
	if why := unasked(); why != "" {
		m.Errorf("it was asked, but: %s", why)
	}
	m.applied(mute)
	if why := unasked(); why == "" {
		m.Error("it failed to answer, and nobody says so")
	}
	if _, err := m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{{Kind: "Service", Namespace: "default", Name: "mute"}}}); err != nil {
		m.Fatal(err)
	}
}

func merging(m *mesh) {
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: merged, labels: {a: '1', b: '1'}}\ndata: {k: v}"
	key := api.Key{Kind: "ConfigMap", Namespace: "default", Name: "merged"}
	m.applied(text)
	if r := m.applied(text); r.Results[0].Action != api.Unchanged {
		m.Errorf("the same again: %+v", r)
	}
	two := "2"
	if r, err := m.Client.Label(m.Context(), key, map[string]*string{"hand": &two}); err != nil || r.Action != api.Configured {
		m.Errorf("label: %+v, %v", r, err)
	}
	if r := m.applied(strings.Replace(text, ", b: '1'", "", 1)); r.Results[0].Action != api.Configured {
		m.Errorf("changed: %+v", r)
	}
	list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "cm", Selector: "hand=2"})
	if err != nil || len(list.Items) != 1 || !strings.Contains(string(list.Items[0].Raw), `"labels":{"a":"1","hand":"2"}`) {
		m.Errorf("got %+v, %v", list, err)
	}
	if _, err := m.Client.Label(m.Context(), key, map[string]*string{"hand": nil, "a b": &two}); err == nil || !strings.Contains(err.Error(), "label name") {
		m.Errorf("a bad label: %v", err)
	}
	if _, err := m.Client.Label(m.Context(), api.Key{Kind: "Node", Name: "n1"}, map[string]*string{"disk": &two}); err != nil {
		m.Error(err)
	}
	if nodes, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "nodes", Selector: "disk=2"}); err != nil || len(nodes.Items) != 1 {
		m.Errorf("labelled nodes: %+v, %v", nodes, err)
	}
}

func onlyTheMeshSaysCaptured(m *mesh) {
	claim := func(name, value string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\n  labels: {app: " + name + "}\n  annotations: {example.com/kept: " + value + ", " +
			wellknown.Redirection + ": enabled}\nspec:\n  serviceAccountName: client\n  containers:\n  - {name: main, image: example/client:1, command: [sleep, infinity]}\n"
	}
	deployment := `apiVersion: apps/v1
kind: Deployment
metadata: {name: claims}
spec:
  selector: {matchLabels: {app: claims}}
  template:
    metadata: {labels: {app: claims}, annotations: {example.com/kept: v2, ` + wellknown.Redirection + `: enabled}}
    spec:
      serviceAccountName: client
      containers:
      - {name: main, image: example/client:1, command: [sleep, infinity]}
`
	// The second changes the pod that the first made.
	for _, text := range []string{claim("claim", "v1"), claim("claim", "v2"), deployment} {
		res := m.applied(text)
		if len(res.Results) != 1 || !strings.Contains(strings.Join(res.Results[0].Warnings, "\n"), wellknown.Redirection+" is ignored") {
			m.Errorf("not warned: %+v", res.Results)
		}
	}
	for _, app := range []string{"app=claim", "app=claims"} {
		pod := m.awaitReady(app, 1)[0]
		path := filepath.Join(runDir(m.RunDir).engineObjects(), "pod.default."+pod.Name+".yaml")
		m.eventually("the pod is reported", func() error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if !strings.Contains(string(b), "example.com/kept: v2") {
				return fmt.Errorf("an annotation of the author's is missing:\n%s", b)
			}
			if strings.Contains(string(b), wellknown.Redirection) {
				m.Errorf("%s is reported as captured:\n%s", pod.Name, b)
			}
			return nil
		})
	}
}

func reports(m *mesh) {
	dir := runDir(m.RunDir).engineObjects()
	for _, f := range []string{"node.n1.yaml", "node.n2.yaml", "pod.istio-system.ztunnel-n1.yaml", "pod.istio-system.ztunnel-n2.yaml"} {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			m.Error(err)
		}
	}
	pod := m.pods("app=client")[0]
	path := filepath.Join(dir, "pod.default."+pod.Name+".yaml")
	value := "v1"
	before := time.Now()
	if _, err := m.Client.Label(m.Context(), api.Key{Kind: "Pod", Namespace: "default", Name: pod.Name}, map[string]*string{"fresh": &value}); err != nil {
		m.Fatal(err)
	}
	m.eventually("the label is reported", func() error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.Contains(string(b), "fresh: v1") {
			return fmt.Errorf("after %s", time.Since(before))
		}
		if _, err := decodeOne(path, b); err != nil {
			return err
		}
		return nil
	})
	m.Logf("a label was reported after at most %s", time.Since(before))
	// A file that has not changed is not written again: the control plane would read it for nothing.
	st, err := os.Stat(path)
	if err != nil {
		m.Fatal(err)
	}
	m.applied("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}")
	time.Sleep(100 * time.Millisecond)
	if again, err := os.Stat(path); err != nil || !os.SameFile(st, again) {
		m.Errorf("an unchanged report was written again: %v", err)
	}
	if _, err := os.Stat(filepath.Join(runDir(m.RunDir).userObjects(), "configmap.default.other.yaml")); err != nil {
		m.Error(err)
	}
}

func deletion(m *mesh) {
	pods := m.pods("app=web")
	body, err := m.Client.Logs(m.Context(), api.LogsRequest{Target: "pod/" + pods[0].Name, Follow: true})
	if err != nil {
		m.Fatal(err)
	}
	defer body.Close()
	logged := make(chan string)
	go func() {
		b, _ := io.ReadAll(body)
		logged <- string(b)
	}()
	res, err := m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{{Kind: "Deployment", Namespace: "default", Name: "web"}}, Wait: true})
	if err != nil || len(res.Results) != 1 || res.Results[0].Action != api.Deleted {
		m.Fatalf("%+v, %v", res, err)
	}
	if left := m.pods("app=web"); len(left) != 0 {
		m.Errorf("%d pods are left", len(left))
	}
	if l := <-logged; !strings.HasSuffix(l, "goodbye\n") {
		m.Errorf("the program was not asked to end: log %q", l)
	}
	if out, code := m.exec("deploy/client", "lateen-helper", "get", "http://web/"); code == 0 || !strings.Contains(out, "refused") {
		m.Errorf("a service without pods: %q", out)
	}
	res, err = m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{{Kind: "Deployment", Namespace: "default", Name: "web"}}})
	if err != nil || len(res.Problems) != 1 || !strings.Contains(res.Problems[0].Message, "not found") || !strings.HasPrefix(res.Problems[0].Fix, "`lateen get ") {
		m.Errorf("deleted twice: %+v, %v", res, err)
	}
	for _, p := range pods {
		if _, err := os.Stat(runDir(m.RunDir).pod("default", p.Name)); err == nil {
			m.Errorf("the directory of %s is left", p.Name)
		}
	}
	links, err := os.ReadDir(fmt.Sprintf("/proc/%d/root%s", m.PID, runDir(m.RunDir).path("netns")))
	if err != nil {
		m.Fatal(err)
	}
	if want := len(m.pods("")) + 2; len(links) != want {
		m.Errorf("%d network namespaces, want %d", len(links), want)
	}
}

func namespaces(m *mesh) {
	m.applied("apiVersion: v1\nkind: Namespace\nmetadata: {name: team}")
	res, err := m.Client.Apply(m.Context(), api.ApplyRequest{Namespace: "team", Documents: []api.Document{{File: "-", Dir: m.dir,
		Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: x, command: [sleep, infinity]}]}")}}})
	if err != nil || len(res.Problems) > 0 || res.Results[0].Key.Namespace != "team" {
		m.Fatalf("%+v, %v", res, err)
	}
	m.eventually("it runs", func() error {
		list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "po", Namespace: "team", Name: "p"})
		if err != nil {
			return err
		}
		if !strings.Contains(string(list.Items[0].Raw), `"phase":"Running"`) {
			return fmt.Errorf("%s", list.Items[0].Raw)
		}
		return nil
	})
	if res, err := m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{{Kind: "Namespace", Name: "default"}}}); err != nil || len(res.Problems) != 1 {
		m.Errorf("the default namespace can be deleted: %+v, %v", res, err)
	}
	if res, err := m.Client.Delete(m.Context(), api.DeleteRequest{Wait: true, Keys: []api.Key{{Kind: "Namespace", Name: "team"}}}); err != nil || len(res.Problems) != 0 {
		m.Errorf("%+v, %v", res, err)
	}
	for _, kind := range []string{"pods", "serviceaccounts"} {
		if list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: kind, Namespace: "team"}); err != nil || len(list.Items) != 0 {
			m.Errorf("%s are left: %+v, %v", kind, list, err)
		}
	}
}
