//go:build kube

// Package installer_test holds the installer and the charts against a real API server without nodes: admission policies, roles and
// discovery, of which a fake knows nothing. The suite tests/kube/08-installer.sh starts the server (KUBECONFIG).
package installer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"lateen.dev/lateen/charts"
	"lateen.dev/lateen/internal/install"
)

const (
	system   = install.DefaultNamespace
	patience = 60 * time.Second
)

func options() install.Options {
	return install.Options{Charts: charts.FS, Namespace: system, Timeout: 2 * time.Minute}
}

func cluster(t *testing.T) *install.Cluster {
	t.Helper()
	if os.Getenv("KUBECONFIG") == "" {
		t.Fatal("KUBECONFIG names no API server; run tests/kube/08-installer.sh")
	}
	c, err := install.Connect("", "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// installed has the charts on the cluster, whoever was first.
func installed(t *testing.T) *install.Cluster {
	t.Helper()
	c := cluster(t)
	if r, err := c.Find(t.Context()); err != nil {
		t.Fatal(err)
	} else if r != nil {
		return c
	}
	i, err := c.Prepare(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	var last error
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if last = ok(); last == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it never came about that %s; last: %v", what, last)
		}
	}
}

// made passes over what a run before has made.
func made(t *testing.T, err error) {
	t.Helper()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// pod makes a pod that is on a node.
func pod(t *testing.T, c kubernetes.Interface, namespace, name, node, account string) *corev1.Pod {
	t.Helper()
	ctx := t.Context()
	_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	made(t, err)
	_, err = c.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	made(t, err)
	_, err = c.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	made(t, err)
	no := false
	p, err := c.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}, Annotations: map[string]string{"theirs": "x"}, Finalizers: []string{"example.com/one"}},
		Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: account, AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "c", Image: "none"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, now := context.Background(), int64(0)
		_, _ = c.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		_ = c.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	})
	p, err = c.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"phase":"Running","podIP":"10.1.2.3","podIPs":[{"ip":"10.1.2.3"}],"conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// as is a client with a token of a service account, of a pod if there is one.
func as(t *testing.T, c *install.Cluster, account string, bound *corev1.Pod) kubernetes.Interface {
	t.Helper()
	r := &authenticationv1.TokenRequest{}
	if bound != nil {
		r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: bound.Name, UID: bound.UID}
	}
	r, err := c.Client.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), account, r, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(c.Config)
	cfg.BearerToken = r.Status.Token
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func write(t *testing.T, client kubernetes.Interface, p *corev1.Pod, patch string) error {
	_, err := client.CoreV1().Pods(p.Namespace).Patch(t.Context(), p.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

// The token of one node is what somebody has who has taken the node.
func TestAnAgentWritesTwoAnnotationsOfItsOwnNodesPods(t *testing.T) {
	c := installed(t)
	agent := pod(t, c.Client, system, "lateen-agent-1", "n1", "lateen-agent")
	other := pod(t, c.Client, system, "lateen-agent-2", "n2", "lateen-agent")
	near, far := pod(t, c.Client, "shop", "near", "n1", "web"), pod(t, c.Client, "shop", "far", "n2", "web")
	mine, unbound := as(t, c, "lateen-agent", agent), as(t, c, "lateen-agent", nil)
	const captured = `{"metadata":{"annotations":{"ambient.istio.io/redirection":"enabled"}}}`
	const released = `{"metadata":{"annotations":{"ambient.istio.io/redirection":null}}}`
	const left = `{"metadata":{"annotations":{"lateen.dev/uninstalled":"true"}}}`
	eventually(t, "the policy is in force", func() error {
		if err := write(t, mine, far, captured); apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			return nil
		} else if err != nil {
			return err
		}
		return apierrors.NewBadRequest("it was written")
	})
	for _, x := range []struct {
		name   string
		client kubernetes.Interface
		pod    *corev1.Pod
		patch  string
		denied string // a part of the reason; empty if it is allowed
	}{
		{"a pod of the node is captured", mine, near, captured, ""},
		{"with its uid, as the agent writes it", mine, near, `{"metadata":{"uid":"` + string(near.UID) + `","annotations":{"ambient.istio.io/redirection":"enabled"}}}`, ""},
		{"and released", mine, near, released, ""},
		{"the agent has left", mine, agent, left, ""},
		{"another node's pod", mine, far, captured, "its own node alone, which is n1"},
		{"a token that is bound to no pod", unbound, near, captured, "bound to no pod"},
		{"a label", mine, near, `{"metadata":{"labels":{"app":null}}}`, "labels"},
		{"a new label", mine, near, `{"metadata":{"labels":{"istio.io/dataplane-mode":"none"}}}`, "labels"},
		{"a finalizer", mine, near, `{"metadata":{"finalizers":null}}`, "finalizers"},
		{"another annotation", mine, near, `{"metadata":{"annotations":{"istio.io/dry-run":"true"}}}`, "annotations"},
		{"another's annotation", mine, near, `{"metadata":{"annotations":{"theirs":"y"}}}`, "annotations"},
		{"another's annotation, away", mine, near, `{"metadata":{"annotations":{"theirs":null}}}`, "annotations"},
		{"an address", mine, near, `{"status":{"podIP":"10.9.9.9","podIPs":[{"ip":"10.9.9.9"}]}}`, "status"},
		{"readiness", mine, near, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "status"},
		{"that another agent has left", mine, other, left, "own node alone"},
		{"that a pod beside it has left", mine, near, left, "only of itself"},
	} {
		err := write(t, x.client, x.pod, x.patch)
		if x.denied == "" && err != nil || x.denied != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), x.denied)) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	// Others, such as the kubelets, are not concerned.
	if err := write(t, c.Client, far, `{"status":{"podIP":"10.1.2.4","podIPs":[{"ip":"10.1.2.4"}]},"metadata":{"annotations":{"theirs":"z"}}}`); err != nil {
		t.Error(err)
	}
	// Events need no patch.
	if _, err := mine.CoreV1().Events("shop").Patch(t.Context(), "x", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("an agent may patch events: %v", err)
	}
}

// crowd gives a pod keys in its metadata, as its owner can.
func crowd(t *testing.T, c kubernetes.Interface, p *corev1.Pod, field string, n int) {
	t.Helper()
	keys := map[string]string{}
	for i := range n {
		keys[fmt.Sprintf("k%x", i)] = ""
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{field: keys}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().Pods(p.Namespace).Patch(t.Context(), p.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// What judging an agent's write costs the API server must not be in the hands of a pod's owner, and no pod is one that cannot be judged.
func TestCrowdedPodsAreJudgedAtOnce(t *testing.T) {
	c := installed(t)
	mine := as(t, c, "lateen-agent", pod(t, c.Client, system, "lateen-agent-3", "n3", "lateen-agent"))
	const captured = `{"metadata":{"annotations":{"ambient.istio.io/redirection":"enabled"}}}`
	probe := pod(t, c.Client, "shop", "probe", "n4", "web")
	eventually(t, "the policy is in force", func() error {
		if err := write(t, mine, probe, captured); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			return fmt.Errorf("it was answered: %v", err)
		}
		return nil
	})
	for _, x := range []struct {
		name, field string
		keys        int
		denied      string // a part of the reason; empty if it is allowed
	}{
		{"many", "annotations", 990, ""},
		{"too-many", "annotations", 1001, "more than 1000 annotations"},
		{"a-crowd", "annotations", 40_000, "more than 1000 annotations"},
		{"labels", "labels", 990, ""},
		{"a-crowd-of-labels", "labels", 40_000, ""},
	} {
		p := pod(t, c.Client, "shop", x.name, "n3", "web")
		crowd(t, c.Client, p, x.field, x.keys)
		began := time.Now()
		err := write(t, mine, p, captured)
		t.Logf("%s: %d %s are judged in %s", x.name, x.keys, x.field, time.Since(began))
		if x.denied == "" && err != nil || x.denied != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), x.denied)) {
			t.Errorf("%s: %.300v", x.name, err)
		}
	}
}

func TestAnUpgradeToTheSameChangesNothing(t *testing.T) {
	c := installed(t)
	i, err := c.PrepareUpgrade(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range i.Plan.Steps {
		if s.Action != install.Unchanged && s.Action != install.Keep {
			t.Errorf("%s %s %s/%s: %v %s", s.Action, s.Kind, s.Namespace, s.Name, s.Fields, s.Why)
		}
	}
}

// What an installation is found by is created and not applied at first, and yet no field of it belongs to that creation.
func TestWhatAnInstallationIsFoundByIsAppliedByNobodyElse(t *testing.T) {
	c := installed(t)
	anchor, err := c.Client.RbacV1().ClusterRoleBindings().Get(t.Context(), "lateen-control", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var by []string
	for _, f := range anchor.ManagedFields {
		by = append(by, fmt.Sprint(f.Manager, " ", f.Operation))
	}
	if len(by) != 1 || by[0] != "lateen-install Apply" {
		t.Errorf("its fields belong to %q", by)
	}
}

func TestATenantsRecordIsNothing(t *testing.T) {
	c := installed(t)
	ctx := t.Context()
	_, err := c.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "aaa-tenant"}}, metav1.CreateOptions{})
	made(t, err)
	_, err = c.Client.CoreV1().ConfigMaps("aaa-tenant").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "lateen-install", Labels: map[string]string{"lateen.dev/record": "install", "app.kubernetes.io/managed-by": "lateen", "app.kubernetes.io/part-of": "lateen"}},
		Data: map[string]string{"version": "9.9.9", "state": "installed", "values": "{"}}, metav1.CreateOptions{})
	made(t, err)
	if r, err := c.Find(ctx); err != nil || r.Namespace != system || r.Version == "9.9.9" {
		t.Errorf("%+v %v", r, err)
	}
}

// What Kubernetes and the mesh make by themselves does not keep a namespace; what somebody made does, whatever its kind and name.
func TestNamespacesInUseStay(t *testing.T) {
	c := installed(t)
	stay := func() map[string]string {
		r, err := c.PrepareRemoval(t.Context(), options(), false)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, s := range r.Plan.Steps {
			if s.Kind == "Namespace" && s.Action == install.Keep {
				out[s.Name] = s.Why
			}
		}
		return out
	}
	if kept := stay(); len(kept) != 0 {
		t.Errorf("kept, though nobody has anything there: %v", kept)
	}
	strict := schema.GroupVersionResource{Group: "security.istio.io", Version: "v1", Resource: "peerauthentications"}
	policy := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "security.istio.io/v1", "kind": "PeerAuthentication",
		"metadata": map[string]any{"name": "default", "namespace": "istio-system"}, "spec": map[string]any{"mtls": map[string]any{"mode": "STRICT"}}}}
	_, err := c.Dynamic.Resource(strict).Namespace("istio-system").Create(t.Context(), policy, metav1.CreateOptions{})
	made(t, err)
	_, err = c.Client.CoreV1().Secrets(system).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "cacerts"}}, metav1.CreateOptions{})
	made(t, err)
	kept := stay()
	if kept["istio-system"] != "it has peerauthentications.security.istio.io/default" || kept[system] != "it has secrets/cacerts" {
		t.Errorf("kept: %v", kept)
	}
	_ = c.Client.CoreV1().Secrets(system).Delete(t.Context(), "cacerts", metav1.DeleteOptions{})
	_ = c.Dynamic.Resource(strict).Namespace("istio-system").Delete(t.Context(), "default", metav1.DeleteOptions{})
}
