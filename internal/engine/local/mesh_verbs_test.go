package local

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
)

func dryRuns(m *mesh) {
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dry, annotations: {by: hand}}\ndata: {k: v, l: w}"
	m.applied(text)
	dry := func(text string) api.ObjectResult {
		m.Helper()
		res, err := m.Client.Apply(m.Context(), api.ApplyRequest{DryRun: true, Diff: true, Documents: []api.Document{{File: "test.yaml", Dir: m.dir, Data: []byte(text)}}})
		if err != nil || len(res.Problems) > 0 {
			m.Fatalf("%+v, %v", res, err)
		}
		return res.Results[len(res.Results)-1]
	}
	data := func(raw json.RawMessage) string {
		var o struct{ Data map[string]string }
		if err := json.Unmarshal(raw, &o); err != nil {
			m.Fatalf("%q: %v", raw, err)
		}
		b, _ := json.Marshal(o.Data)
		return string(b)
	}
	r := dry(strings.Replace(text, "k: v, l: w", "k: x", 1))
	if r.Action != api.Configured || data(r.Before) != `{"k":"v","l":"w"}` || data(r.After) != `{"k":"x"}` {
		m.Errorf("a change: %s, %s → %s", r.Action, r.Before, r.After)
	}
	if r := dry(strings.Replace(text, "name: dry", "name: new", 1)); r.Action != api.Created || len(r.Before) != 0 || strings.Contains(string(r.After), "uid") {
		m.Errorf("a new object: %s, %s → %s", r.Action, r.Before, r.After)
	}
	if r := dry("apiVersion: v1\nkind: Namespace\nmetadata: {name: soon}\n---\n" + strings.Replace(text, "name: dry", "name: dry, namespace: soon", 1)); r.Action != api.Created {
		m.Errorf("an object of a namespace that the same files make: %+v", r)
	}
	key := api.Key{Kind: "ConfigMap", Namespace: "default", Name: "dry"}
	if r, err := m.Client.Patch(m.Context(), api.PatchRequest{Key: key, Patch: json.RawMessage(`{"metadata":{"labels":{"a":"b"}}}`), DryRun: true}); err != nil || r.Action != api.Configured {
		m.Errorf("patch: %+v, %v", r, err)
	}
	pod := m.pods("app=client")[0].Name
	for _, k := range []api.Key{key, {Kind: "Pod", Namespace: "default", Name: pod}} {
		if res, err := m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{k}, Wait: true, DryRun: true}); err != nil || len(res.Results) != 1 || res.Results[0].Action != api.Deleted {
			m.Errorf("delete %s: %+v, %v", k, res, err)
		}
	}
	list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "cm", Name: "dry"})
	if err != nil || strings.Contains(string(list.Items[0].Raw), "labels") || data(list.Items[0].Raw) != `{"k":"v","l":"w"}` {
		m.Errorf("after dry runs: %+v, %v", list, err)
	}
	if now := m.pods("app=client")[0]; now.Name != pod || now.DeletionTimestamp != nil {
		m.Errorf("the pod is %s, deleted %v", now.Name, now.DeletionTimestamp)
	}
}

func podAnnotations(m *mesh) {
	pod := m.pods("app=client")[0]
	key := api.Key{Kind: "Pod", Namespace: "default", Name: pod.Name}
	yes := "yes"
	for _, want := range []api.Action{api.Configured, api.Unchanged} {
		if r, err := m.Client.Annotate(m.Context(), key, map[string]*string{"example.com/seen": &yes}); err != nil || r.Action != want {
			m.Errorf("annotate: %+v, %v", r, err)
		}
	}
	if got := m.pods("app=client")[0].Annotations["example.com/seen"]; got != yes {
		m.Errorf("the annotation is %q", got)
	}
	if _, err := m.Client.Patch(m.Context(), api.PatchRequest{Key: key, Patch: json.RawMessage(`{"spec":{"nodeName":"n2"}}`)}); err == nil || !strings.Contains(err.Error(), "only metadata.annotations and metadata.labels") {
		m.Errorf("a change of its spec: %v", err)
	}
	if _, err := m.Client.Annotate(m.Context(), api.Key{Kind: "Node", Name: "n1"}, map[string]*string{"a": &yes}); err == nil || !strings.Contains(err.Error(), "only metadata.labels") {
		m.Errorf("a node's annotation: %v", err)
	}
}

func logParts(m *mesh) {
	read := func(r api.LogsRequest) (string, error) {
		body, err := m.Client.Logs(m.Context(), r)
		if err != nil {
			return "", err
		}
		defer body.Close()
		b, err := io.ReadAll(body)
		return string(b), err
	}
	m.applied(accounts + `
---
apiVersion: v1
kind: Pod
metadata: {name: runs}
spec:
  serviceAccountName: client
  containers:
  - name: c
    image: x
    command: [sh, -c, "n=$(cat /tmp/n 2>/dev/null || echo 0); n=$((n+1)); echo $n > /tmp/n; echo begin $n; if [ $n = 1 ]; then exit 3; fi; sleep infinity"]
  - {name: steady, image: x, command: [sleep, infinity]}
`)
	var second time.Time
	m.eventually("the second run has begun", func() error {
		if got, err := read(api.LogsRequest{Target: "runs"}); err != nil || got != "begin 1\nbegin 2\n" {
			return errors.New(got)
		}
		return nil
	})
	if got, err := read(api.LogsRequest{Target: "runs", Previous: true}); err != nil || got != "begin 1\n" {
		m.Errorf("the previous run: %q, %v", got, err)
	}
	if _, err := read(api.LogsRequest{Target: "runs", Container: "steady", Previous: true}); err == nil || !strings.Contains(err.Error(), "has no previous run") {
		m.Errorf("the previous run of a container that was not restarted: %v", err)
	}
	got, err := read(api.LogsRequest{Target: "runs", Timestamps: true})
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if err != nil || len(lines) != 2 {
		m.Fatalf("with times: %q, %v", got, err)
	}
	for i, want := range []string{"begin 1", "begin 2"} {
		stamp, text, _ := strings.Cut(lines[i], " ")
		if second, err = time.Parse(time.RFC3339Nano, stamp); err != nil || text != want || time.Since(second) > time.Minute || time.Until(second) > 0 {
			m.Errorf("line %q: %v", lines[i], err)
		}
	}
	if got, err := read(api.LogsRequest{Target: "runs", Since: second}); err != nil || got != "begin 2\n" {
		m.Errorf("since the second run: %q, %v", got, err)
	}
	log, err := m.Client.PartLog(m.Context(), api.PartProxy, "n2", api.LogsRequest{Since: time.Now()})
	if err != nil {
		m.Fatal(err)
	}
	defer log.Close()
	if b, err := io.ReadAll(log); err != nil || len(b) != 0 {
		m.Errorf("the proxy's log since now: %q, %v", b, err)
	}
	if _, err := m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{{Kind: "Pod", Namespace: "default", Name: "runs"}}, Wait: true}); err != nil {
		m.Error(err)
	}
}

// A pod that does not heed SIGTERM would take the 30 seconds of its spec.
func ownGrace(m *mesh) {
	m.applied(accounts + `
---
apiVersion: v1
kind: Pod
metadata: {name: stubborn}
spec:
  serviceAccountName: client
  containers: [{name: c, image: x, command: [sh, -c, "trap '' TERM; echo up; while :; do sleep 1; done"]}]
`)
	m.eventually("it runs", func() error {
		for _, p := range m.pods("") {
			if p.Name == "stubborn" && p.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return errors.New("not yet")
	})
	none := int64(0)
	began := time.Now()
	if _, err := m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{{Kind: "Pod", Namespace: "default", Name: "stubborn"}}, Wait: true, GraceSeconds: &none}); err != nil {
		m.Fatal(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		m.Errorf("it took %s", took)
	}
}
