package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/check"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/install"
	"lateen.dev/lateen/internal/install/installtest"
)

// pages are parts that say what they were given.
type pages struct {
	status api.Status
	clocks map[string]time.Time
	err    error
}

func (p pages) Status(context.Context) (api.Status, error)           { return p.status, p.err }
func (p pages) Clocks(context.Context) (map[string]time.Time, error) { return p.clocks, p.err }

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func clusterNode(name string, change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: "True"}},
		NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KernelVersion: "6.1.0-13-amd64", KubeletVersion: "v1.36.3"}}}
	if change != nil {
		change(n)
	}
	return n
}

func daemons(name string, want, ready int32) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "lateen-system", Name: name}, Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
		Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: want, UpdatedNumberScheduled: want, NumberAvailable: ready}}
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func configMap(ns, name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: data}
}

// rig is a good cluster with a mesh that is well, until a test takes something away.
type rig struct {
	objects  []runtime.Object
	pages    pages
	record   *install.Record
	version  string
	denied   string // a resource that may not be created
	unseen   bool   // nodes may not be looked at
	apiError error
	values   map[string]any // that the mesh is to have
	unfound  error
	custom   []*unstructured.Unstructured // of kinds that definitions bring, and those
	removed  []string                     // of the installation's objects: KIND NAME
	// unpatched says that nobody may be asked what an object would become.
	unpatched bool
}

func good() *rig {
	one := int32(1)
	return &rig{version: "v1.36.3", record: &install.Record{Namespace: "lateen-system", Version: "0.1.0", State: "installed"},
		objects: []runtime.Object{
			clusterNode("n1", nil), namespace("lateen-system", nil),
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "lateen-system", Name: "lateen-control", Labels: map[string]string{"app": "lateen-control"}},
				Spec:   appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "lateen-control"}}},
				Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}},
			daemons("lateen-agent", 1, 1), daemons("lateen-node", 1, 1),
			configMap("lateen-system", "istio-ca-root-cert", map[string]string{"root-cert.pem": "x"}),
			configMap("kube-system", "kube-proxy", map[string]string{"config.conf": "kind: KubeProxyConfiguration\nmode: nftables\n"}),
		},
		pages: pages{clocks: map[string]time.Time{"control on n1": now}, status: api.Status{
			Control: api.ControlState{Ready: true, Generation: 5, Clients: []api.ClientState{{Node: "n1"}}, CA: &api.CAStatus{Signing: "root", Expires: now.AddDate(10, 0, 0)}},
			Nodes:   []api.NodeState{{Name: "n1", Proxy: api.ProxyState{AckedGeneration: 5}}},
			Pods:    []api.PodState{{Namespace: "default", Name: "web", Node: "n1", IP: "10.0.0.1", Enrolled: true, Mesh: "captured", Redirection: true}},
		}}}
}

// running are the pods of a DaemonSet, one on each node, of which as many are ready as it says.
func running(d *appsv1.DaemonSet) []runtime.Object {
	var pods []runtime.Object
	for i := range d.Status.DesiredNumberScheduled {
		node, is := fmt.Sprintf("n%d", i+1), corev1.ConditionFalse
		if i < d.Status.NumberAvailable {
			is = corev1.ConditionTrue
		}
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name + "-" + node, Labels: d.Spec.Selector.MatchLabels}, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}}})
	}
	return pods
}

func (r *rig) run(t *testing.T, purpose check.Purpose) check.Report {
	t.Helper()
	objects := slices.Clone(r.objects)
	for _, o := range r.objects {
		if d, ok := o.(*appsv1.DaemonSet); ok {
			objects = append(objects, running(d)...)
		}
	}
	client := fake.NewClientset(objects...)
	client.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: r.version}
	client.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		q := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).Spec.ResourceAttributes
		allowed := r.denied == "" || q.Resource != "*" && q.Resource != r.denied
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: allowed}}, nil
	})
	if r.unseen {
		client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no right"))
		})
	}
	if r.apiError != nil {
		client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, r.apiError })
	}
	lists := map[schema.GroupVersionResource]string{
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}: "CustomResourceDefinitionList",
		{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"}:       "GatewayClassList",
		{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}:             "GatewayList",
		{Group: "gateway.networking.k8s.io", Version: "v1alpha2", Resource: "tcproutes"}:      "TCPRouteList",
		{Group: "security.istio.io", Version: "v1", Resource: "authorizationpolicies"}:        "AuthorizationPolicyList",
		{Group: "security.istio.io", Version: "v1", Resource: "requestauthentications"}:       "RequestAuthenticationList",
		{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}:            "VirtualServiceList",
		{Group: "networking.istio.io", Version: "v1", Resource: "destinationrules"}:           "DestinationRuleList",
		{Group: "networking.istio.io", Version: "v1alpha3", Resource: "envoyfilters"}:         "EnvoyFilterList",
		{Group: "telemetry.istio.io", Version: "v1", Resource: "telemetries"}:                 "TelemetryList",
		{Group: "extensions.istio.io", Version: "v1alpha1", Resource: "wasmplugins"}:          "WasmPluginList",
	}
	target := &Target{Cluster: &install.Cluster{Client: client, Dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists), Host: "https://cluster.example"},
		Options: install.Options{Charts: installtest.Charts(), Namespace: "lateen-system", Values: r.values}, Version: "0.1.0", Pages: r.pages, Now: func() time.Time { return now }}
	for _, o := range r.custom {
		for gvr, list := range lists {
			if list != o.GetKind()+"List" {
				continue
			}
			if _, err := target.Cluster.Dynamic.Resource(gvr).Namespace(o.GetNamespace()).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if purpose == Installed {
		target.Record, target.Unfound = r.record, r.unfound
		r.installed(t, target)
	}
	return Run(t.Context(), target, purpose)
}

// installed gives the cluster the objects of the installation, but for those that somebody has removed.
func (r *rig) installed(t *testing.T, target *Target) {
	t.Helper()
	dynamic := target.Cluster.Dynamic.(*dynamicfake.FakeDynamicClient)
	dynamic.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if r.unpatched {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, "", errors.New("no right to patch"))
		}
		o := &unstructured.Unstructured{}
		return true, o, json.Unmarshal(a.(clienttesting.PatchActionImpl).Patch, &o.Object)
	})
	all, err := install.Everything(target.Options)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		gvr, _ := apimeta.UnsafeGuessKindToResource(o.GroupVersionKind())
		if o.GetKind() == "CustomResourceDefinition" || slices.Contains(r.removed, o.GetKind()+" "+o.GetName()) {
			continue
		}
		if err := dynamic.Tracker().Create(gvr, o, o.GetNamespace()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAGoodClusterPasses(t *testing.T) {
	for _, r := range good().run(t, Before).Results {
		if r.Outcome != check.OK {
			t.Errorf("%s %s: %s", r.Code, r.Title, r.Cause)
		}
	}
	for _, r := range good().run(t, Installed).Results {
		// The fake has no definitions, which is what is wrong with an installation without them.
		if r.Outcome != check.OK && r.Code != "LAT103" {
			t.Errorf("%s %s: %s", r.Code, r.Title, r.Cause)
		}
	}
}

func TestFindings(t *testing.T) {
	status := func(change func(*api.Status)) func(*rig) { return func(r *rig) { change(&r.pages.status) } }
	replace := func(o runtime.Object) func(*rig) {
		return func(r *rig) {
			name := o.(metav1.Object).GetName()
			r.objects = append(slices.DeleteFunc(r.objects, func(x runtime.Object) bool { return x.(metav1.Object).GetName() == name }), o)
		}
	}
	for _, x := range []struct {
		name    string
		change  func(*rig)
		purpose check.Purpose
		code    string
		outcome check.Outcome
		cause   string
		fix     string
	}{
		{"no API server", func(r *rig) { r.apiError = errors.New("connection refused") }, Before, "LAT100", check.Failure, "cannot be reached: connection refused", "--kubeconfig"},
		{"an old cluster", func(r *rig) { r.version = "v1.28.1" }, Before, "LAT101", check.Failure, "v1.28.1", "upgrade the cluster"},
		{"a newer cluster", func(r *rig) { r.version = "v1.99.0" }, Before, "LAT101", check.Warning, "newer than 1.36", "nothing is known to be wrong"},
		{"no rights", func(r *rig) { r.denied = "daemonsets" }, Before, "LAT102", check.Failure, "create daemonsets.apps in lateen-system", "administrator"},
		{"no rights at all", func(r *rig) { r.unseen, r.denied = true, "nodes" }, Before, "LAT102", check.Failure, "missing: list nodes", "administrator"},
		{"no rights, and it answers", func(r *rig) { r.unseen = true }, Before, "LAT100", check.OK, "", ""},
		{"nodes that may not be seen", func(r *rig) { r.unseen = true }, Before, "LAT105", check.Failure, "nodes", "cluster administrator"},
		{"no definitions", func(*rig) {}, Installed, "LAT103", check.Failure, "missing: authorizationpolicies.security.istio.io", "lateen upgrade"},
		{"Istio", func(r *rig) {
			r.objects = append(r.objects, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "ztunnel"}})
		}, Before, "LAT104", check.Failure, "DaemonSet ztunnel in namespace istio-system", "--take-over=istio"},
		{"Windows", replace(clusterNode("n1", func(n *corev1.Node) { n.Status.NodeInfo.OperatingSystem = "windows" })), Before, "LAT105", check.Failure, "n1 runs windows", "nodeSelector"},
		{"an old kernel", replace(clusterNode("n1", func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "4.18.0-553.el8.x86_64" })), Before, "LAT105", check.Failure, "Linux 4.18.0-553.el8.x86_64", "5.4"},
		{"another processor", replace(clusterNode("n1", func(n *corev1.Node) { n.Status.NodeInfo.Architecture = "s390x" })), Before, "LAT105", check.Failure, "n1 is s390x", "amd64 or arm64"},
		{"a node that is down", replace(clusterNode("n1", func(n *corev1.Node) { n.Status.Conditions[0].Status = "Unknown" })), Before, "LAT106", check.Warning, "not ready: n1", "kubectl describe node n1"},
		{"k3s", replace(clusterNode("n1", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3+k3s1" })), Before, "LAT107", check.Failure, "n1 is k3s", "--set cni.confDir=/var/lib/rancher/k3s/agent/etc/cni/net.d"},
		{"ipvs", replace(configMap("kube-system", "kube-proxy", map[string]string{"config.conf": "mode: \"ipvs\""})), Before, "LAT108", check.Warning, "mode ipvs", "nftables or iptables"},
		{"Cilium alone", func(r *rig) {
			r.objects = append(r.objects, configMap("kube-system", "cilium-config", map[string]string{"cni-exclusive": "true"}))
		}, Before, "LAT108", check.Failure, "removes the configuration", "cni.exclusive=false"},
		{"Cilium in sockets", func(r *rig) {
			r.objects = append(r.objects, configMap("kube-system", "cilium-config", map[string]string{"kube-proxy-replacement": "true"}))
		}, Before, "LAT108", check.Failure, "pods' own sockets", "socketLB.hostNamespaceOnly=true"},
		{"Pod Security", replace(namespace("lateen-system", map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})), Before, "LAT109", check.Failure, "enforces the level restricted", "kubectl label namespace lateen-system"},

		{"a namespace that goes", replace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lateen-system", DeletionTimestamp: &metav1.Time{Time: now}, Finalizers: []string{"kubernetes"}}}),
			Before, "LAT109", check.Failure, "namespace lateen-system is being removed", "kubectl wait --for=delete namespace/lateen-system"},

		{"nothing installed", func(r *rig) { r.record = nil }, Installed, "LAT120", check.Failure, "not installed", "lateen install"},
		{"half installed", func(r *rig) { r.record.State = "installing" }, Installed, "LAT120", check.Failure, "only half there", "lateen upgrade"},
		{"half removed", func(r *rig) { r.record.State = "uninstalling" }, Installed, "LAT120", check.Failure, "begun and not ended", "take it back with lateen upgrade"},
		{"values that are lost", func(r *rig) { r.record.State, r.record.Lost = "installing", true }, Installed, "LAT120", check.Failure, "lateen-system/lateen-install was gone", "--reset-values"},
		{"all but removed", func(r *rig) { r.record.State, r.record.Bare = "uninstalling", true }, Installed, "LAT120", check.Failure, "begun and not ended", "end that with lateen uninstall"},
		{"a newer version", func(r *rig) { r.record.Version = "9.9.9" }, Installed, "LAT120", check.Warning, "this program has 0.1.0, which is older", "use the lateen of 9.9.9"},
		{"another version", func(r *rig) { r.record.Version = "0.0.9" }, Installed, "LAT120", check.Warning, "0.0.9 is installed; this program has 0.1.0", "lateen upgrade --dry-run"},
		{"an agent is missing", replace(daemons("lateen-agent", 2, 1)), Installed, "LAT122", check.Failure, "lateen-agent: 1 of 2 ready; pod", "kubectl describe daemonset -n lateen-system lateen-agent"},
		{"a proxy is missing", replace(daemons("lateen-node", 2, 1)), Installed, "LAT123", check.Failure, "1 of 2 ready", "kubectl describe daemonset"},
		{"no agents", func(r *rig) {
			r.objects = slices.DeleteFunc(r.objects, func(x runtime.Object) bool { return x.(metav1.Object).GetName() == "lateen-agent" })
		}, Installed, "LAT122", check.Failure, "there is no lateen-system/daemonset/lateen-agent", "lateen upgrade"},
		{"an image is missing", func(r *rig) {
			replace(daemons("lateen-node", 1, 0))(r)
			r.objects = append(r.objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lateen-system", Name: "lateen-node-x", Labels: map[string]string{"app": "lateen-node"}},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Image: "a/b:c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}}})
		}, Installed, "LAT123", check.Failure, "image a/b:c cannot be pulled", "image.registry"},
		{"a replica is silent", status(func(s *api.Status) { s.Control.Error = "pod b is not ready" }), Installed, "LAT124", check.Failure, "pod b is not ready", "kubectl logs"},
		{"a proxy is away", status(func(s *api.Status) { s.Control.Clients = nil }), Installed, "LAT124", check.Failure, "the proxy of n1", "lateen logs proxy/n1"},
		{"a proxy is behind", status(func(s *api.Status) { s.Nodes[0].Proxy.AckedGeneration = 4 }), Installed, "LAT124", check.Warning, "n1 (4 of 5)", "lateen logs proxy/NODE"},
		{"a CA has ended", status(func(s *api.Status) { s.Control.CA.Expires = now.Add(-time.Hour) }), Installed, "LAT125", check.Failure, "root expired", "lateen ca rotate"},
		{"a CA ends soon", status(func(s *api.Status) { s.Control.CA.Expires = now.AddDate(0, 0, 7) }), Installed, "LAT125", check.Warning, "root expires at 2026-11-28", "lateen ca rotate"},
		{"a CA has trouble", status(func(s *api.Status) { s.Control.CA.Trouble = "the key does not fit" }), Installed, "LAT125", check.Failure, "the key does not fit", "lateen ca status"},
		{"a namespace without roots", func(r *rig) { r.objects = append(r.objects, namespace("shop", nil)) }, Installed, "LAT126", check.Failure, "in shop", "kubectl logs"},
		{"a node's clock", func(r *rig) { r.pages.clocks["agent on n2"] = now.Add(-time.Hour) }, Installed, "LAT127", check.Failure, "agent on n2 by -1h0m0s", "NTP"},
		{"this machine's clock", func(r *rig) {
			r.pages.clocks = map[string]time.Time{"a": now.Add(time.Hour), "b": now.Add(time.Hour)}
		}, Installed, "LAT127", check.Warning, "this machine's clock", "this machine's clock"},
		{"a pod is not captured", status(func(s *api.Status) { s.Pods[0].Mesh, s.Pods[0].Redirection = "pending", false }), Installed, "LAT128", check.Failure, "default/web on n1", "lateen logs agent/n1"},
		{"a pod is to leave", status(func(s *api.Status) { s.Pods[0].Mesh, s.Pods[0].Enrolled = "releasing", false }), Installed, "LAT128", check.Warning, "default/web on n1", "lateen logs agent"},
		{"an object is wrong", status(func(s *api.Status) { s.Problems = []api.Problem{{Object: "x", Message: "no port 99"}} }), Installed, "LAT129", check.Warning, "no port 99", "lateen status"},
		{"a proxy refuses", status(func(s *api.Status) {
			s.Control.Clients[0].Types = []api.TypeState{{Refused: []api.Refusal{{Names: []string{"default/p"}, Message: "bad CIDR"}}}}
		}), Installed, "LAT129", check.Warning, "the proxy of n1 refuses default/p: bad CIDR", "lateen status"},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := good()
			x.change(r)
			report := r.run(t, x.purpose)
			i := slices.IndexFunc(report.Results, func(r check.Result) bool { return r.Code == x.code })
			if i < 0 {
				t.Fatalf("%s was not checked: %+v", x.code, report.Results)
			}
			if got := report.Results[i]; got.Outcome != x.outcome || !strings.Contains(got.Cause, x.cause) || !strings.Contains(got.Fix, x.fix) {
				t.Errorf("got %s: cause %q, fix %q", got.Outcome, got.Cause, got.Fix)
			}
		})
	}
}

func TestWithoutAnAPIServerOneFindingIsEnough(t *testing.T) {
	r := good()
	r.apiError = errors.New("connection refused")
	if report := r.run(t, Installed); len(report.Results) != 1 || !report.Failed() {
		t.Errorf("%+v", report.Results)
	}
}

func TestCodesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range check.Catalogue() {
		seen[c.Code] = true
	}
	for _, c := range Catalogue() {
		if seen[c.Code] || len(c.Weight) == 0 || c.Code < "LAT100" {
			t.Errorf("%s is taken, or never run", c.Code)
		}
		seen[c.Code] = true
	}
}
