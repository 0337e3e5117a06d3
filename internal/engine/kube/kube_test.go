package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

// part is a pod of the mesh that answers with pages.
type part struct {
	pod   *corev1.Pod
	pages map[string]string // by PORT/PATH
}

func partPod(component, name, node string, isReady bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if isReady {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lateen-system", Name: name, Labels: map[string]string{"app": "lateen-" + component, "app.kubernetes.io/version": "1.2.3"}},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "x", Image: "i"}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}}}
}

// mesh is an engine over a cluster with parts and objects, and a client of it.
func mesh(t *testing.T, parts []part, objects ...runtime.Object) (*Engine, *api.Client) {
	t.Helper()
	pages := map[string]string{}
	for _, p := range parts {
		objects = append(objects, p.pod)
		for at, text := range p.pages {
			pages[p.pod.Name+":"+at] = text
		}
	}
	kinds := map[schema.GroupVersionResource]string{}
	for _, k := range api.Kinds() {
		gv, _ := schema.ParseGroupVersion(k.APIVersion)
		kinds[gv.WithResource(k.Plural)] = k.Name + "List"
	}
	kinds[schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "gateways"}] = "GatewayList"
	e := &Engine{Client: fake.NewClientset(objects...), Dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds),
		Namespace: "lateen-system", Version: "1.2.3", Host: "https://cluster.example"}
	e.Dial = func(_ context.Context, _, pod string, port int) (net.Conn, error) {
		here, there := net.Pipe()
		l := &once{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
		l.conn <- &notifying{Conn: there, closed: l.Close}
		go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, found := pages[fmt.Sprintf("%s:%d%s", pod, port, r.URL.Path)]
			if !found {
				http.NotFound(w, r)
				return
			}
			fmt.Fprint(w, text)
		}))
		return here, nil
	}
	return e, api.NewOver("default", e.Connect)
}

func clients(generation uint64, acked map[string]uint64) string {
	var list []api.ClientState
	for node, g := range acked {
		list = append(list, api.ClientState{Node: node, Types: []api.TypeState{{Type: "a", AckedGeneration: generation}, {Type: "b", AckedGeneration: g}}})
	}
	b, _ := json.Marshal(map[string]any{"generation": generation, "clients": list})
	return string(b)
}

func clusterNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}}}
}

func TestStatusJoinsTheReplicas(t *testing.T) {
	replica := func(name string, generation uint64, acked map[string]uint64) part {
		return part{partPod("control", name, "n1", true), map[string]string{
			"15014/debug/clients": clients(generation, acked), "15014/debug/problems": `[{"object":"a/b","message":"wrong"}]`, "15014/debug/ca": `{"signing":"root"}`}}
	}
	_, c := mesh(t, []part{
		replica("control-a", 100, map[string]uint64{"n1": 100}), replica("control-b", 7, map[string]uint64{"n2": 5}),
		{pod: partPod("agent", "agent-1", "n1", true)}, {pod: partPod("node", "node-1", "n1", true)},
		{pod: partPod("agent", "agent-2", "n2", true)}, {pod: partPod("node", "node-2", "n2", true)},
	}, clusterNode("n1"), clusterNode("n2"), clusterNode("n3"), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "lateen-system", Name: "lateen-control"}})
	s, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !s.Control.Ready || s.Control.Generation != 100 || len(s.Control.Clients) != 2 || s.Control.CA == nil || s.Control.CA.Signing != "root" || len(s.Problems) != 1 {
		t.Errorf("%+v, problems %v", s.Control, s.Problems)
	}
	// n2's proxy is two generations behind its own replica, so it is two behind.
	if len(s.Nodes) != 3 || s.Nodes[0].Proxy.AckedGeneration != 100 || s.Nodes[1].Proxy.AckedGeneration != 98 || s.Nodes[0].Proxy.Version != "1.2.3" {
		t.Errorf("%+v", s.Nodes)
	}
	if s.Nodes[2].Proxy.Ready || !strings.Contains(s.Nodes[2].Proxy.Error, "no pod of lateen-node") || !strings.Contains(s.Nodes[2].Agent.Error, "no pod of lateen-agent") {
		t.Errorf("%+v", s.Nodes[2])
	}
}

func TestAReplicaThatDoesNotAnswerIsNamed(t *testing.T) {
	_, c := mesh(t, []part{{partPod("control", "control-a", "n1", true), map[string]string{"15014/debug/clients": clients(3, nil)}}, {partPod("control", "control-b", "n1", true), nil}, {partPod("control", "control-c", "n1", false), nil}})
	s, err := c.Status(t.Context())
	if err != nil || !s.Control.Ready || !strings.Contains(s.Control.Error, "control-b") || !strings.Contains(s.Control.Error, "control-c is not ready") {
		t.Errorf("%+v %v", s.Control, err)
	}
}

// A right that is missing, say: the probe of the pod tells no more than that it failed.
func TestAReplicaThatIsNotReadySaysWhatItWaitsFor(t *testing.T) {
	waiting := partPod("control", "control-a", "n1", false)
	waiting.Status.Phase = corev1.PodRunning
	e, c := mesh(t, []part{{pod: waiting}})
	e.Dial = func(context.Context, string, string, int) (net.Conn, error) {
		here, there := net.Pipe()
		l := &once{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
		l.conn <- &notifying{Conn: there, closed: l.Close}
		go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/ready" {
				http.NotFound(w, r)
				return
			}
			http.Error(w, "it may not list\npeerauthentications", http.StatusServiceUnavailable)
		}))
		return here, nil
	}
	s, err := c.Status(t.Context())
	if want := "pod control-a is not ready: it may not list peerauthentications"; err != nil || s.Control.Error != want {
		t.Errorf("%q %v, want %q", s.Control.Error, err, want)
	}
}

func TestPodsOfTheMesh(t *testing.T) {
	namespace := func(name, mode string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"istio.io/dataplane-mode": mode}}}
	}
	pod := func(ns, name, own, redirection string, host bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.PodSpec{ServiceAccountName: "web", NodeName: "n1", HostNetwork: host}}
		if own != "" {
			p.Labels = map[string]string{"istio.io/dataplane-mode": own}
		}
		if redirection != "" {
			p.Annotations = map[string]string{"ambient.istio.io/redirection": redirection}
		}
		return p
	}
	_, c := mesh(t, nil, namespace("in", "ambient"), namespace("out", ""),
		pod("in", "captured", "", "enabled", false), pod("in", "pending", "", "", false), pod("in", "kept-out", "none", "", false), pod("in", "on-the-node", "", "", true),
		pod("out", "asks", "ambient", "", false), pod("out", "leaving", "", "enabled", false), pod("out", "stranger", "", "", false),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "lateen-system", Name: "lateen-mesh"}, Data: map[string]string{"TRUST_DOMAIN": "mesh.example"}})
	s, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range s.Pods {
		got[p.Name] = p.Mesh
		if p.Identity != "spiffe://mesh.example/ns/"+p.Namespace+"/sa/web" {
			t.Error(p.Identity)
		}
	}
	want := map[string]string{"captured": "captured", "pending": "pending", "asks": "pending", "leaving": "releasing"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestObjectsHaveTheWorstThatAReplicaSays(t *testing.T) {
	says := func(status string) map[string]string {
		return map[string]string{"15014/debug/objects": `[{"apiVersion":"security.istio.io/v1","kind":"AuthorizationPolicy","namespace":"default","name":"p","conditions":[{"type":"lateen.dev/Programmed","status":"` + status + `","message":"` + status + `"}]}]`}
	}
	for _, order := range [][]string{{"True", "False"}, {"False", "True"}, {"Unknown", "False"}, {"False"}} {
		var parts []part
		for i, status := range order {
			parts = append(parts, part{partPod("control", fmt.Sprintf("control-%d", i), "n1", true), says(status)})
		}
		e, c := mesh(t, parts)
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": map[string]any{"namespace": "default", "name": "p", "managedFields": []any{}}}}
		client, _, err := e.kind("ap", "default", false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		list, err := c.Get(t.Context(), api.GetRequest{Kind: "AuthorizationPolicy", Namespace: "default"})
		if err != nil || len(list.Items) != 1 || len(list.Items[0].Conditions) != 1 || list.Items[0].Conditions[0].Status != "False" {
			t.Errorf("%v: %+v %v", order, list, err)
		}
		if strings.Contains(string(list.Items[0].Raw), "managedFields") {
			t.Error("managedFields are shown")
		}
	}
	_, c := mesh(t, nil)
	if list, err := c.Get(t.Context(), api.GetRequest{Kind: "AuthorizationPolicy"}); err != nil || !strings.Contains(list.Unasked, "no replica") {
		t.Errorf("%+v %v", list, err)
	}
}

// A replica that has not read the present version of an object speaks of another one: neither what it refuses of that nor what it takes is told.
func TestWhatAReplicaSaysOfAnEarlierVersionCountsForNothing(t *testing.T) {
	says := func(uid string, generation int, reason, status string) part {
		return part{partPod("control", "control-"+reason, "n1", true), map[string]string{"15014/debug/objects": fmt.Sprintf(`[{"apiVersion":"security.istio.io/v1","kind":"AuthorizationPolicy","namespace":"default","name":"p",
			"uid":%q,"observedGeneration":%d,"conditions":[{"type":"Accepted","status":%q,"reason":%[4]q},{"type":"lateen.dev/Programmed","status":%[3]q,"reason":%[4]q}],"problems":[{"object":"AuthorizationPolicy default/p","message":%[4]q}]}]`, uid, generation, status, reason)}}
	}
	const lags = "replica control-lags does not know this version of it yet"
	for name, x := range map[string]struct {
		parts []part
		want  string
	}{
		"the present one":          {[]part{says("u2", 3, "Invalid", "False")}, "Accepted=False Invalid, lateen.dev/Programmed=False Invalid, Invalid"},
		"no version is known":      {[]part{says("", 0, "Invalid", "False")}, "Accepted=False Invalid, lateen.dev/Programmed=False Invalid, Invalid"},
		"an earlier one":           {[]part{says("u2", 2, "lags", "False")}, "lateen.dev/Programmed=False AwaitingProxies " + lags},
		"another object of a name": {[]part{says("u1", 4, "lags", "True")}, "lateen.dev/Programmed=False AwaitingProxies " + lags},
		"one of two lags":          {[]part{says("u2", 2, "lags", "False"), says("u2", 3, "Good", "True")}, "Accepted=True Good, lateen.dev/Programmed=False AwaitingProxies " + lags + ", Good"},
	} {
		t.Run(name, func(t *testing.T) {
			e, c := mesh(t, x.parts)
			client, _, err := e.kind("ap", "default", false)
			if err == nil {
				_, err = client.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
					"metadata": map[string]any{"namespace": "default", "name": "p", "uid": "u2", "generation": int64(3)}}}, metav1.CreateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			list, err := c.Get(t.Context(), api.GetRequest{Kind: "AuthorizationPolicy", Namespace: "default"})
			if err != nil || len(list.Items) != 1 {
				t.Fatal(list, err)
			}
			var said []string
			for _, c := range list.Items[0].Conditions {
				said = append(said, strings.TrimSpace(c.Type+"="+c.Status+" "+c.Reason+" "+c.Message))
			}
			slices.Sort(said)
			for _, p := range list.Items[0].Problems {
				said = append(said, p.Message)
			}
			if got := strings.Join(said, ", "); got != x.want {
				t.Errorf("got  %s\nwant %s", got, x.want)
			}
		})
	}
}

// A name tells nothing of who owns a pod: a ReplicaSet may be anybody's, and its name be another's a moment later.
func TestWhoOwnsAPodByWayOfAReplicaSetIsToldByUIDs(t *testing.T) {
	yes := true
	set := func(namespace, name, uid, kind, owner string) *appsv1.ReplicaSet {
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}}
		if owner != "" {
			rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Tenant", Name: "t", UID: "u-tenant"}, {APIVersion: "apps/v1", Kind: kind, Name: "web", UID: types.UID(owner), Controller: &yes}}
		}
		return rs
	}
	e, c := mesh(t, nil, set("shop", "web-5d4", "u-set", "Deployment", "u-web"), set("shop", "web-9c8", "u-rollout", "Rollout", "u-canary"), set("shop", "lone", "u-lone", "", ""),
		set("other", "web-5d4", "u-elsewhere", "Deployment", "u-other"))
	for name, x := range map[string]struct{ kind, uid, want string }{
		"of-a-deployment":       {"ReplicaSet", "u-set", "u-web"},
		"of-something-else":     {"ReplicaSet", "u-rollout", "u-canary"},
		"of-a-set-of-nobody":    {"ReplicaSet", "u-lone", ""},
		"of-the-one-before":     {"ReplicaSet", "u-gone", ""},
		"of-another-namespaces": {"ReplicaSet", "u-elsewhere", ""},
		"of-a-job":              {"Job", "u-set", ""},
		"of-nobody":             {"", "", ""},
	} {
		pods, _, err := e.kind("pod", "shop", false)
		if err != nil {
			t.Fatal(err)
		}
		metadata := map[string]any{"namespace": "shop", "name": name, "uid": "p-" + name}
		if x.kind != "" {
			metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "apps/v1", "kind": x.kind, "name": "web-5d4", "uid": x.uid, "controller": true}}
		}
		if _, err := pods.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		list, err := c.Get(t.Context(), api.GetRequest{Kind: "Pod", Namespace: "shop", Name: name, Owners: true})
		if err != nil || len(list.Items) != 1 {
			t.Fatal(list, err)
		}
		if got := strings.Join(list.Items[0].Owners, ","); got != x.want {
			t.Errorf("%s: owned by %q, want %q", name, got, x.want)
		}
	}
	all, err := c.Get(t.Context(), api.GetRequest{Kind: "Pod", AllNamespaces: true})
	if err != nil || slices.ContainsFunc(all.Items, func(o api.Object) bool { return o.Owners != nil }) {
		t.Errorf("unasked: %+v %v", all.Items, err)
	}
}

func TestPagesOfProxiesComeFromTheOneThatIsReady(t *testing.T) {
	_, c := mesh(t, []part{
		{partPod("node", "node-new", "n1", false), map[string]string{"15000/config_dump": "new", "15020/metrics": "new"}},
		{partPod("node", "node-old", "n1", true), map[string]string{"15000/config_dump": "old", "15020/metrics": "m", "15000/connections": `{"connections":[{"id":"7"}]}`}}})
	if b, err := c.ProxyConfigDump(t.Context(), "n1"); err != nil || string(b) != "old" {
		t.Errorf("%s %v", b, err)
	}
	if b, err := c.ProxyMetrics(t.Context(), "n1"); err != nil || string(b) != "m" {
		t.Errorf("%s %v", b, err)
	}
	if list, err := c.Connections(t.Context(), "n1", api.ConnectionFilter{}); err != nil || len(list) != 1 || list[0].ID != "7" || list[0].Node != "n1" {
		t.Errorf("%v %v", list, err)
	}
	_, err := c.ProxyConfigDump(t.Context(), "n9")
	var e *api.Error
	if !errors.As(err, &e) || !strings.Contains(e.Message, "node n9 has no pod of lateen-node") || e.Fix == "" {
		t.Error(err)
	}
}

func TestOnlyAWaypointsPodListsTheConnectionsOfItsClients(t *testing.T) {
	page := map[string]string{"15000/connections": `{"connections":[{"protocol":"HTTP/2","requests":2}],"truncated":true}`}
	way, other := partPod("x", "waypoint-1", "n1", true), partPod("x", "other-1", "n1", true)
	way.Namespace, other.Namespace = "shop", "shop"
	way.Labels = map[string]string{wellknown.GatewayName: "waypoint"}
	_, c := mesh(t, []part{{way, page}, {other, page}})
	list, truncated, err := c.WaypointConnections(t.Context(), "shop", "waypoint-1", api.ConnectionFilter{})
	if err != nil || !truncated || len(list) != 1 || list[0].Protocol != "HTTP/2" || *list[0].Requests != 2 {
		t.Errorf("%+v %v %v", list, truncated, err)
	}
	for pod, want := range map[string]string{"other-1": "is no waypoint's", "gone-1": "not found"} {
		_, _, err := c.WaypointConnections(t.Context(), "shop", pod, api.ConnectionFilter{})
		var e *api.Error
		if !errors.As(err, &e) || !strings.Contains(e.Message, want) || e.Fix == "" {
			t.Errorf("%s: %v", pod, err)
		}
	}
}

func TestWhatKubectlDoesIsSaidPlainly(t *testing.T) {
	_, c := mesh(t, nil)
	tries := map[string]error{}
	_, tries["kubectl apply"] = c.Apply(t.Context(), api.ApplyRequest{})
	_, tries["kubectl delete"] = c.Delete(t.Context(), api.DeleteRequest{})
	_, tries["kubectl logs"] = c.Logs(t.Context(), api.LogsRequest{})
	_, tries["kubectl exec"] = c.Exec(t.Context(), api.ExecRequest{}, api.Streams{})
	_, tries["kubectl scale"] = c.Scale(t.Context(), "default", "d", 2)
	_, tries["kubectl top"] = c.Usage(t.Context())
	_, tries["kubectl port-forward"] = c.Connect(t.Context(), api.ConnectRequest{})
	tries["kubectl rollout"] = c.ReplaceProxy(t.Context(), "n1", api.ReplaceRequest{}, nil)
	for want, err := range tries {
		var e *api.Error
		if !errors.As(err, &e) || e.Code != http.StatusNotImplemented || !strings.Contains(e.Fix, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// The command that is named does what was asked for, so that it can be copied.
func TestKubectlIsNamedWithItsArguments(t *testing.T) {
	_, c := mesh(t, nil)
	now := int64(1)
	shop := api.Key{Kind: "Deployment", Namespace: "shop", Name: "web"}
	file := []api.Document{{File: "a b.yaml"}, {File: "-"}}
	patch := func(text string) error {
		_, err := c.Patch(t.Context(), api.PatchRequest{Key: shop, Patch: []byte(text)})
		return err
	}
	tries := map[string]func() error{
		"kubectl diff -n shop -f 'a b.yaml' -f -": func() error {
			_, err := c.Apply(t.Context(), api.ApplyRequest{Documents: file, Namespace: "shop", DryRun: true, Diff: true})
			return err
		},
		"kubectl apply --dry-run=server -f 'a b.yaml' -f -": func() error {
			_, err := c.Apply(t.Context(), api.ApplyRequest{Documents: file, Namespace: "default", DryRun: true})
			return err
		},
		"kubectl delete -n shop --grace-period=1 deployment/web": func() error {
			_, err := c.Delete(t.Context(), api.DeleteRequest{Keys: []api.Key{shop}, GraceSeconds: &now})
			return err
		},
		"kubectl logs web -n shop --previous --tail=3": func() error {
			_, err := c.Logs(t.Context(), api.LogsRequest{Target: "web", Namespace: "shop", Previous: true, Tail: 3})
			return err
		},
		"kubectl annotate --overwrite deployment/web -n shop a- 'b=it'\\''s'": func() error { return patch(`{"metadata":{"annotations":{"b":"it's","a":null}}}`) },
		"kubectl scale deployment/web -n shop --replicas=3":                   func() error { return patch(`{"spec":{"replicas":3}}`) },
		"kubectl rollout restart deployment/web -n shop": func() error {
			return patch(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}}}}}`)
		},
		"kubectl edit deployment/web -n shop": func() error { return patch(`{"spec":{"paused":true}}`) },
	}
	for want, try := range tries {
		var e *api.Error
		if err := try(); !errors.As(err, &e) || e.Code != http.StatusNotImplemented || !strings.HasPrefix(e.Fix, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestLabels(t *testing.T) {
	e, c := mesh(t, nil)
	client, _, err := e.kind("ns", "", false)
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop", "labels": map[string]any{"a": "b"}}}}
	if _, err := client.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mode := "ambient"
	if _, err := c.Label(t.Context(), api.Key{Kind: "Namespace", Name: "shop"}, map[string]*string{"istio.io/dataplane-mode": &mode, "a": nil}); err != nil {
		t.Fatal(err)
	}
	after, err := client.Get(t.Context(), "shop", metav1.GetOptions{})
	if err != nil || fmt.Sprint(after.GetLabels()) != "map[istio.io/dataplane-mode:ambient]" {
		t.Errorf("%v %v", after.GetLabels(), err)
	}
}

func TestRotationIsAskedForOnTheSecret(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "lateen-system", Name: "lateen-ca"}}
	says := func(name, page string) part {
		return part{partPod("control", name, "n1", true), map[string]string{"15014/debug/ca": page}}
	}
	e, c := mesh(t, []part{says("a", `{"signing":"one","stage":"steady"}`), says("b", `{"signing":"one","stage":"steady","leads":true,"held":"why"}`)}, secret.DeepCopy())
	// The replica that leads knows more.
	if s, err := c.CA(t.Context()); err != nil || s.Held != "why" {
		t.Errorf("%+v %v", s, err)
	}
	if err := c.RotateCA(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := e.Client.CoreV1().Secrets("lateen-system").Get(t.Context(), "lateen-ca", metav1.GetOptions{})
	if err != nil || s.Annotations[wellknown.RotateRoot] == "" {
		t.Errorf("%v %v", s.Annotations, err)
	}
	for page, want := range map[string]string{
		`{"signing":"one"}`:                         "plugged in",
		`{"signing":"one","stage":"dropping"}`:      "rotated already",
		`{"signing":"one","stage":"steady"}`:        "no Secret",
		`{"signing":"one","stage":"steady" nothing`: "what pod a says",
	} {
		_, c = mesh(t, []part{says("a", page)})
		if err := c.RotateCA(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", page, err)
		}
	}
	_, c = mesh(t, nil)
	if err := c.RotateCA(t.Context()); err == nil || !strings.Contains(err.Error(), "no replica") {
		t.Error(err)
	}
}

func TestTheControlPlanesLogIsShownWhereNoReplicaIsReady(t *testing.T) {
	read := func(c *api.Client) (string, error) {
		stream, err := c.ControlLog(t.Context(), false, 5)
		if err != nil {
			return "", err
		}
		defer stream.Close()
		b, err := io.ReadAll(stream)
		return string(b), err
	}
	_, c := mesh(t, []part{{pod: partPod("control", "control-a", "n1", false)}})
	if text, err := read(c); err != nil || text == "" {
		t.Errorf("%q %v", text, err)
	}
	_, c = mesh(t, nil)
	if _, err := read(c); err == nil || !strings.Contains(err.Error(), "no replica of the control plane") {
		t.Error(err)
	}
	e, _ := mesh(t, []part{{pod: partPod("control", "control-a", "n1", false)}, {pod: partPod("control", "control-b", "n2", true)}})
	if p, err := e.speaker(t.Context()); err != nil || p.Name != "control-b" {
		t.Errorf("%v %v", p, err)
	}
}

func TestWorst(t *testing.T) {
	a := worst([]api.Condition{{Type: "x", Status: "True"}}, []api.Condition{{Type: "y", Status: "True"}, {Type: "x", Status: "Unknown"}})
	if len(a) != 2 || a[0].Status != "Unknown" || !slices.ContainsFunc(a, func(c api.Condition) bool { return c.Type == "y" }) {
		t.Error(a)
	}
}

func TestAPageThatIsTooLongIsRefused(t *testing.T) {
	e, c := mesh(t, []part{{partPod("control", "control-a", "n1", true), map[string]string{"15014/debug/clients": clients(3, nil)}}})
	if s, err := c.Status(t.Context()); err != nil || s.Control.Error != "" {
		t.Fatalf("%+v %v", s.Control, err)
	}
	e.most = 8
	s, err := c.Status(t.Context())
	if err != nil || !strings.Contains(s.Control.Error, "answered /debug/clients with more than") {
		t.Errorf("%+v %v", s.Control, err)
	}
}

// An author of a pod can write the annotation himself. No agent captures one that is on no node, on its node's own network, or static.
func TestAnAnnotationThatNoAgentWroteIsNotBelieved(t *testing.T) {
	for _, x := range []struct {
		node         string
		host, mirror bool
		want         bool
	}{{"n1", false, false, true}, {"", false, false, false}, {"n1", true, false, false}, {"n1", false, true, false}} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"ambient.istio.io/redirection": "enabled"}},
			Spec: corev1.PodSpec{NodeName: x.node, HostNetwork: x.host, ServiceAccountName: "web"}}
		if x.mirror {
			p.Annotations["kubernetes.io/config.mirror"] = ""
		}
		if s := podState(p, false, "cluster.local"); s.Redirection != x.want || (s.Mesh == "releasing") != x.want || (s.Identity == "") != x.mirror {
			t.Errorf("%+v: %+v", x, s)
		}
		// The agent takes no notice of a label without meaning.
		if unknown := map[string]string{"istio.io/dataplane-mode": "ambeint"}; enrolled(unknown, map[string]string{"istio.io/dataplane-mode": "ambient"}, capturable(p)) == (x.host || x.mirror) {
			t.Errorf("%+v: enrolled by its namespace beside a label without meaning", x)
		}
		if enrolled(nil, map[string]string{"istio.io/dataplane-mode": "ambient"}, capturable(p)) == (x.host || x.mirror) {
			t.Errorf("%+v: enrolled", x)
		}
	}
}
