package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/control/conditions/withdraw"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/install/installtest"
)

// cluster is one that has objects, and an administrator as the caller.
func cluster(t *testing.T, objects ...runtime.Object) *Cluster {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{}
	for kind, r := range resources {
		kinds[r.GroupVersionResource] = kind + "List"
	}
	for _, r := range inNamespaces {
		kinds[r.GroupVersionResource] = "List"
	}
	for _, k := range withdraw.Kinds {
		for _, v := range k.Versions {
			kinds[of(k.Group, v, k.Resource, true).GroupVersionResource] = k.Name + "List"
		}
	}
	for _, k := range slices.Concat(comparedKinds, unservedKinds) {
		for _, v := range k.versions {
			r := schema.GroupVersionResource{Group: k.group, Version: v, Resource: k.resource}
			if kinds[r] == "" {
				kinds[r] = strings.TrimSuffix(k.kind, "."+k.group) + "List"
			}
		}
	}
	// The role that empowering binds.
	client := fake.NewClientset(append(slices.Clone(objects), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "control-plane"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}, {APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
	}})...)
	client.Resources = discovered()
	client.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.36.3"}
	client.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
	})
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	dynamic.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchActionImpl)
		if p.PatchType != types.ApplyPatchType {
			return false, nil, nil
		}
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal(p.Patch, &o.Object); err != nil {
			return true, nil, err
		}
		if len(p.PatchOptions.DryRun) > 0 {
			return true, o, nil
		}
		if o.GetKind() == "CustomResourceDefinition" {
			_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{"type": "Established", "status": "True"}}, "status", "conditions")
		}
		r := resources[o.GetKind()].GroupVersionResource
		if err := dynamic.Tracker().Create(r, o, o.GetNamespace()); err != nil {
			return true, o, dynamic.Tracker().Update(r, o, o.GetNamespace())
		}
		return true, o, nil
	})
	return &Cluster{Client: client, Dynamic: dynamic, Host: "https://cluster.example"}
}

// inNamespaces are further kinds of which there can be objects in a namespace.
var inNamespaces = []resource{of("security.istio.io", "v1", "peerauthentications", true), of("coordination.k8s.io", "v1", "leases", true)}

// discovered is what an API server says of kinds with a namespace.
func discovered() []*metav1.APIResourceList {
	list := func(gv string, names ...string) *metav1.APIResourceList {
		l := &metav1.APIResourceList{GroupVersion: gv}
		for _, n := range names {
			l.APIResources = append(l.APIResources, metav1.APIResource{Name: n, Namespaced: true, Kind: n, Verbs: metav1.Verbs{"get", "list"}})
		}
		return l
	}
	return []*metav1.APIResourceList{list("v1", "configmaps", "secrets", "serviceaccounts", "events"), list("security.istio.io/v1", "peerauthentications"), list("coordination.k8s.io/v1", "leases")}
}

// put gives the cluster an object of any kind.
func (c *Cluster) put(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if _, err := c.objects().apply(t.Context(), o, false); err != nil {
		t.Fatal(err)
	}
}

func options() Options {
	return Options{Charts: installtest.Charts(), Namespace: DefaultNamespace, Timeout: time.Minute}
}

// said is the fix and the message of a refusal.
func said(t *testing.T, err error) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Fix == "" {
		t.Fatalf("not a refusal with a fix: %v", err)
	}
	return e
}

func deployment(namespace, name string, labels map[string]string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}}}
}

func daemonSet(namespace, name string, labels map[string]string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}}
}

func TestInstallOnAnEmptyCluster(t *testing.T) {
	c := cluster(t)
	i, err := c.Prepare(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	if i.Plan.Count(Create) != len(i.Plan.Steps) || i.Plan.Count(Create) < 20 {
		t.Errorf("%d of %d are created", i.Plan.Count(Create), len(i.Plan.Steps))
	}
	if err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The record is read with the other client, which has a state of its own here.
	o, err := c.objects().get(t.Context(), named("ConfigMap", DefaultNamespace, recordName))
	if err != nil || o == nil {
		t.Fatal(err)
	}
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	if data["state"] != stateInstalled || data["version"] == "" || data["namespaces"] != "lateen-system istio-system" {
		t.Errorf("the record says %v", data)
	}
}

// What the rest of a part needs must be there before it.
func TestPartsComeInTheirOrder(t *testing.T) {
	c := cluster(t)
	i, err := c.Prepare(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for n, a := range c.Dynamic.(*dynamicfake.FakeDynamicClient).Actions() {
		if p, ok := a.(clienttesting.PatchAction); ok {
			if _, seen := at[a.GetResource().Resource+"/"+p.GetName()]; !seen {
				at[a.GetResource().Resource+"/"+p.GetName()] = n
			}
		}
	}
	order := []string{"namespaces/lateen-system", "clusterrolebindings/lateen-control", "configmaps/lateen-install", "customresourcedefinitions/serviceentries.networking.istio.io", "validatingadmissionpolicies/lateen-agent", "clusterroles/lateen-control",
		"configmaps/lateen-mesh", "deployments/lateen-control", "daemonsets/lateen-agent", "gatewayclasses/lateen-waypoint"}
	for n := range order[1:] {
		if at[order[n]] == 0 && n > 0 || at[order[n]] >= at[order[n+1]] {
			t.Errorf("%s (%d) is not before %s (%d)", order[n], at[order[n]], order[n+1], at[order[n+1]])
		}
	}
}

func TestObjectsOfOthersAreNotOverwritten(t *testing.T) {
	c := cluster(t)
	o := named("Deployment", DefaultNamespace, "lateen-control")
	o.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "mesh", "meta.helm.sh/release-namespace": "lateen-system"})
	c.put(t, o)
	_, err := c.Prepare(t.Context(), options())
	if e := said(t, err); !strings.Contains(e.Message, "deployment/lateen-control (of Helm's release lateen-system/mesh)") || !strings.Contains(e.Fix, "helm upgrade") {
		t.Errorf("%q, fix %q", e.Message, e.Fix)
	}
}

func TestWhatNobodyWantsAnyMoreIsDeleted(t *testing.T) {
	c := cluster(t)
	old := named("Service", DefaultNamespace, "lateen-of-old")
	own(old)
	c.put(t, old)
	theirs := named("Service", DefaultNamespace, "theirs")
	c.put(t, theirs)
	i, err := c.Prepare(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o, err := c.objects().get(t.Context(), old); err != nil || o != nil {
		t.Error("it is still there", err)
	}
	if o, err := c.objects().get(t.Context(), theirs); err != nil || o == nil {
		t.Error("another's was deleted", err)
	}
}

func TestAnOldClusterIsRefused(t *testing.T) {
	c := cluster(t)
	c.Client.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.29.4-gke.1"}
	_, err := c.Prepare(t.Context(), options())
	if e := said(t, err); !strings.Contains(e.Message, "v1.29.4-gke.1") || !strings.Contains(e.Message, OldestVersion) {
		t.Error(e)
	}
}

func TestMissingRightsAreNamed(t *testing.T) {
	c := cluster(t)
	c.Client.(*fake.Clientset).PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		q := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).Spec.ResourceAttributes
		denied := q.Resource == "*" || q.Resource == "daemonsets" && q.Verb == "create" || q.Resource == "clusterroles" && q.Verb == "escalate"
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: !denied}}, nil
	})
	_, err := c.Prepare(t.Context(), options())
	if e := said(t, err); !strings.HasSuffix(e.Message, "may not: create daemonsets.apps in lateen-system, escalate clusterroles.rbac.authorization.k8s.io") {
		t.Error(e.Message)
	}
}

func definition(labels, annotations map[string]string, versions ...any) *unstructured.Unstructured {
	o := named("CustomResourceDefinition", "", "gateways.gateway.networking.k8s.io")
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	_ = unstructured.SetNestedSlice(o.Object, versions, "spec", "versions")
	return o
}

func TestDefinitionsAreNeverReplacedByLesserOnes(t *testing.T) {
	v1, v2 := map[string]any{"name": "v1", "served": true}, map[string]any{"name": "v2", "served": true}
	mine := map[string]string{managedBy: lateen}
	want := definition(mine, map[string]string{bundleVersion: "v1.6.1", bundleChannel: "standard"}, v1)
	for _, x := range []struct {
		name string
		live *unstructured.Unstructured
		why  string
	}{
		{"ours and older", definition(mine, map[string]string{bundleVersion: "v1.5.0", bundleChannel: "standard"}, v1), ""},
		{"ours and newer", definition(mine, map[string]string{bundleVersion: "v1.10.0", bundleChannel: "standard"}, v1), "newer"},
		{"experimental", definition(mine, map[string]string{bundleVersion: "v1.5.0", bundleChannel: "experimental"}, v1), "experimental"},
		{"somebody else's", definition(nil, map[string]string{bundleVersion: "v1.5.0"}, v1), "there before"},
		{"Helm's", definition(map[string]string{managedBy: "Helm"}, nil, v1), "managed by Helm"},
	} {
		if why, err := leave(want, x.live); err != nil || (why == "") != (x.why == "") || !strings.Contains(why, x.why) {
			t.Errorf("%s: %q, %v", x.name, why, err)
		}
	}
	_, err := leave(want, definition(nil, nil, v2))
	if e := said(t, err); !strings.Contains(e.Message, "serves v2; the mesh reads v1") {
		t.Error(e)
	}
}

func TestPodsThatCannotStartSayWhy(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lateen-system", Name: "lateen-node-x"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	waiting := func(reason, message string, restarts int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Image: "reg/proxy:1", RestartCount: restarts, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	for _, x := range []struct {
		status    corev1.ContainerStatus
		says, fix string
	}{
		{waiting("ErrImageNeverPull", "", 0), "pod lateen-system/lateen-node-x on node n1 cannot start: image reg/proxy:1 is not on the node", "import the image"},
		{waiting("ImagePullBackOff", "not found", 0), "image reg/proxy:1 cannot be pulled: not found", "--set image.registry="},
		{waiting("CrashLoopBackOff", "", 4), "does not stay up: it ended again", "kubectl logs -n lateen-system lateen-node-x --previous"},
		{waiting("CreateContainerConfigError", `secret "x" not found`, 0), `secret "x" not found`, "make what it names"},
		{waiting("CrashLoopBackOff", "", 1), "", ""},
		{waiting("ContainerCreating", "", 0), "", ""},
		{waiting("ErrImagePull", "a first failure", 0), "", ""},
		{corev1.ContainerStatus{}, "", ""},
	} {
		e := stuck(pod, x.status)
		if (e == nil) != (x.says == "") || e != nil && (!strings.Contains(e.Message, x.says) || !strings.Contains(e.Fix, x.fix)) {
			t.Errorf("%v: %v", x.status.State.Waiting, e)
		}
	}
}

// A command that is repeated with a better value must not fail on what the first one left.
func TestPodsFromBeforeDoNotCount(t *testing.T) {
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"lateen.dev/settings": "new"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "reg/control:2", Args: []string{"--kube"}}}}}
	pod := func(name, settings, image string, args ...string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"lateen.dev/settings": settings}},
			Spec:   corev1.PodSpec{Containers: []corev1.Container{{Image: image, Args: args}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}}}
	}
	w := watched{"app=x", template}
	for _, old := range []*corev1.Pod{pod("a", "old", "reg/control:2", "--kube"), pod("b", "new", "reg/control:1", "--kube"), pod("c", "new", "reg/control:2", "--cube")} {
		if err := cluster(t, old).rollouts().hopeless(t.Context(), "n", w); err != nil {
			t.Errorf("%s: %v", old.Name, err)
		}
	}
	if err := cluster(t, pod("d", "new", "reg/control:2", "--kube")).rollouts().hopeless(t.Context(), "n", w); err == nil {
		t.Error("a pod that cannot start is waited for")
	}
}

func TestARolloutIsDoneWhenAllIsNewAndThere(t *testing.T) {
	n := int32(3)
	d := func(generation, observed int64, replicas, updated, available int32) bool {
		return deployed(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: generation}, Spec: appsv1.DeploymentSpec{Replicas: &n},
			Status: appsv1.DeploymentStatus{ObservedGeneration: observed, Replicas: replicas, UpdatedReplicas: updated, AvailableReplicas: available}}).done
	}
	if !d(2, 2, 3, 3, 3) || d(2, 1, 3, 3, 3) || d(2, 2, 4, 3, 3) || d(2, 2, 3, 2, 3) || d(2, 2, 3, 3, 2) {
		t.Error("a Deployment")
	}
	pod := func(node, generation string, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{templateGeneration: generation}}, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
	}
	leaving := func(p corev1.Pod) corev1.Pod {
		p.DeletionTimestamp = &metav1.Time{}
		return p
	}
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	s := func(generation, observed int64, pods ...corev1.Pod) string {
		p := spread(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Generation: generation, Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: "7"}},
			Status: appsv1.DaemonSetStatus{ObservedGeneration: observed, DesiredNumberScheduled: 2}}, pods)
		return fmt.Sprint(p.done, " ", p)
	}
	a, b := pod("a", "7", yes), pod("b", "7", yes)
	for _, x := range []struct{ got, want string }{
		{s(2, 2, a, b), "true 2 of 2 ready"},
		{s(2, 1, a, b), "false 2 of 2 ready"},
		{s(2, 2, a), "false 1 of 2 replaced, 1 ready"},
		{s(2, 2, a, pod("b", "7", no)), "false 1 of 2 ready"},
		{s(2, 2, a, pod("b", "6", yes)), "false 1 of 2 replaced, 2 ready"},
		{s(2, 2, a, pod("b", "6", yes), pod("b", "7", no)), "false 2 of 2 ready"},
		// A node proxy that was replaced carries its connections for minutes.
		{s(2, 2, leaving(pod("a", "6", no)), a, b, leaving(pod("b", "6", no))), "true 2 of 2 ready"},
		{s(2, 2, a, leaving(b)), "false 1 of 2 replaced, 1 ready"},
	} {
		if x.got != x.want {
			t.Errorf("a DaemonSet: %s, want %s", x.got, x.want)
		}
	}
}

func TestDifferencesNameFields(t *testing.T) {
	a := map[string]any{"metadata": map[string]any{"resourceVersion": "1", "labels": map[string]any{"a": "b"}}, "spec": map[string]any{"replicas": int64(1)}, "status": 1}
	b := map[string]any{"metadata": map[string]any{"resourceVersion": "2", "labels": map[string]any{"a": "c"}}, "spec": map[string]any{"replicas": int64(2)}, "status": 2}
	if got := differences(a, b); !slices.Equal(got, []string{"metadata.labels.a", "spec.replicas"}) {
		t.Error(got)
	}
	same := func(m map[string]string) bool {
		o := map[string]any{}
		for k, v := range m {
			o[k] = v
		}
		return len(differences(o, o)) == 0
	}
	if err := quick.Check(same, nil); err != nil {
		t.Error(err)
	}
}

func TestObjectsOfAnOperatorNeedTheOperator(t *testing.T) {
	c := cluster(t)
	for kind, value := range operators {
		_, err := c.monitor(t.Context(), named(kind, "lateen-system", "lateen"))
		if err == nil || !strings.Contains(err.Error(), value+" is true, and the cluster has no kind "+kind) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
