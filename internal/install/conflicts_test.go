package install

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// empowering gives a service account rights in the whole cluster.
func empowering(namespace, account string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + account}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "control-plane"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}}}
}

func TestConflictsAreNamedWithTheirFix(t *testing.T) {
	for _, x := range []struct {
		name    string
		objects []runtime.Object
		says    string
		fix     string
	}{
		{"istiod", []runtime.Object{deployment("istio-system", "istiod", map[string]string{"app": "istiod"}, 1)}, "Deployment istiod in namespace istio-system", "--take-over=istio"},
		{"a revision elsewhere", []runtime.Object{deployment("mesh", "istiod-canary", map[string]string{"app": "istiod"}, 2), empowering("mesh", "default")}, "Deployment istiod-canary in namespace mesh", "--take-over=istio"},
		{"ztunnel", []runtime.Object{daemonSet("istio-system", "ztunnel", map[string]string{"app": "ztunnel"})}, "DaemonSet ztunnel in namespace istio-system", "--take-over=istio"},
		{"ztunnel by another name", []runtime.Object{daemonSet("istio-system", "node-proxy", map[string]string{"app.kubernetes.io/name": "ztunnel"})}, "DaemonSet node-proxy in namespace istio-system", "--take-over=istio"},
		{"ztunnel beside istiod", []runtime.Object{daemonSet("mesh", "ztunnel", nil), deployment("mesh", "istiod", map[string]string{"app": "istiod"}, 2), empowering("mesh", "default")}, "DaemonSet ztunnel in namespace mesh", "--take-over=istio"},
		{"istio-cni", []runtime.Object{daemonSet("kube-system", "istio-cni-node", map[string]string{"k8s-app": "istio-cni-node"})}, "DaemonSet istio-cni-node in namespace kube-system", "uninstall Istio"},
		{"another Lateen", []runtime.Object{deployment("elsewhere", "lateen-control", map[string]string{"app": "lateen-control"}, 1), empowering("elsewhere", "default")}, "Deployment lateen-control in namespace elsewhere", "lateen uninstall"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := cluster(t, x.objects...).Prepare(t.Context(), options())
			if e := said(t, err); !strings.Contains(e.Message, x.says) || !strings.Contains(e.Fix, x.fix) || !strings.Contains(e.Fix, "--ignore-conflict") {
				t.Errorf("%q, fix %q", e.Message, e.Fix)
			}
		})
	}
	// One that was scaled down manages nothing.
	if _, err := cluster(t, deployment("istio-system", "istiod", map[string]string{"app": "istiod"}, 0)).Prepare(t.Context(), options()); err != nil {
		t.Error(err)
	}
}

// Labels and names are whatever somebody with a namespace writes: they keep nobody from installing.
func TestNamesAloneAreNoConflict(t *testing.T) {
	c := cluster(t, deployment("tenant", "istiod", map[string]string{"app": "istiod"}, 1), deployment("tenant", "x", map[string]string{"app": "lateen-control"}, 1),
		daemonSet("tenant", "ztunnel", nil), daemonSet("tenant", "istio-cni-node", nil), empowering("tenant", "another"))
	i, err := c.Prepare(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	if len(i.Plan.Warnings) != 4 || !strings.Contains(strings.Join(i.Plan.Warnings, "\n"), "Deployment istiod in namespace tenant") {
		t.Errorf("warned of %q", i.Plan.Warnings)
	}
}

// Many accounts have some right in the whole cluster, and their namespaces are not administrators'.
func TestOnlyRightsOfAMeshMakeAMesh(t *testing.T) {
	role := func(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	}
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	pods, callers := rule("", "pods", "get", "watch"), rule("authentication.k8s.io", "tokenreviews", "create")
	someOnly := pods
	someOnly.ResourceNames = []string{"x"}
	account := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "mesh", Name: "default"}
	group := func(name string) rbacv1.Subject { return rbacv1.Subject{Kind: "Group", Name: name} }
	for _, x := range []struct {
		name         string
		rules        []rbacv1.PolicyRule
		subject      rbacv1.Subject
		control, cni bool // it is sure to be one
	}{
		{"nothing", nil, account, false, false},
		{"who serves an API of its own", []rbacv1.PolicyRule{callers, rule("authorization.k8s.io", "subjectaccessreviews", "create")}, account, false, false},
		{"who measures nodes", []rbacv1.PolicyRule{rule("", "nodes", "get", "list", "watch")}, account, false, false},
		{"who gets single pods", []rbacv1.PolicyRule{rule("", "pods", "get"), someOnly, callers}, account, false, false},
		{"pods of another group", []rbacv1.PolicyRule{rule("metrics.k8s.io", "pods", "list"), callers}, account, false, false},
		{"who measures pods", []rbacv1.PolicyRule{pods}, account, false, true},
		{"a control plane", []rbacv1.PolicyRule{pods, callers}, account, true, true},
		{"an administrator", []rbacv1.PolicyRule{rule("*", "*", "*")}, account, true, true},
		{"by the namespace's group", []rbacv1.PolicyRule{pods, callers}, group("system:serviceaccounts:mesh"), true, true},
		{"by another namespace's group", []rbacv1.PolicyRule{pods, callers}, group("system:serviceaccounts:other"), false, false},
		{"as all accounts", []rbacv1.PolicyRule{pods, callers}, group("system:serviceaccounts"), true, true},
	} {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}, Subjects: []rbacv1.Subject{x.subject}}
		for what, y := range map[string]struct {
			object runtime.Object
			sure   bool
		}{
			"istiod": {deployment("mesh", "istiod", map[string]string{"app": "istiod"}, 1), x.control}, "istio-cni-node": {daemonSet("mesh", "istio-cni-node", nil), x.cni},
		} {
			found, err := cluster(t, y.object, role("r", x.rules...), binding).Conflicts(t.Context(), options())
			if err != nil || len(found) != 1 || found[0].Unsure == y.sure {
				t.Errorf("%s, %s: %+v, %v", x.name, what, found, err)
			}
		}
	}
}

func TestAConflictThatIsNoneIsPassedOver(t *testing.T) {
	c := cluster(t, deployment("operators", "istiod", map[string]string{"app": "istiod"}, 1), empowering("operators", "default"))
	o := options()
	o.IgnoreConflicts = []string{"operators/another"}
	if _, err := c.Prepare(t.Context(), o); err == nil {
		t.Error("it was passed over by another's name")
	}
	o.IgnoreConflicts = []string{"operators/istiod"}
	if _, err := c.Prepare(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// Node proxies in Istio's former namespace would go by Istio's former root for ever.
func TestALeftoverRootCertificateIsNamed(t *testing.T) {
	left := func(labels map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: rootCertificate, Labels: labels}}
	}
	o := options()
	o.Namespace = "istio-system"
	_, err := cluster(t, left(map[string]string{"istio.io/config": "true"})).Prepare(t.Context(), o)
	if e := said(t, err); !strings.Contains(e.Message, "istio-system/istio-ca-root-cert is Istio's") || !strings.Contains(e.Fix, "kubectl delete configmap -n istio-system istio-ca-root-cert") {
		t.Error(e)
	}
	if _, err := cluster(t, left(map[string]string{partOf: lateen})).Prepare(t.Context(), o); err != nil {
		t.Error(err)
	}
	// Elsewhere nobody reads it.
	if _, err := cluster(t, left(map[string]string{"istio.io/config": "true"})).Prepare(t.Context(), options()); err != nil {
		t.Error(err)
	}
}
