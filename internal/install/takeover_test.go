package install

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func secret(name string, keys ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: name}, Data: map[string][]byte{}}
	for _, k := range keys {
		s.Data[k] = []byte("content of " + k)
	}
	return s
}

// istiod is one that runs ambient mode.
func istiod(env ...corev1.EnvVar) *appsv1.Deployment {
	d := deployment("istio-system", "istiod", map[string]string{"app": "istiod"}, 1)
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "discovery", Env: append([]corev1.EnvVar{{Name: "PILOT_ENABLE_AMBIENT", Value: "true"}}, env...)}}
	return d
}

// ambient is a cluster on which Istio runs in ambient mode.
func ambient(authority ...runtime.Object) []runtime.Object {
	return append([]runtime.Object{
		istiod(),
		daemonSet("istio-system", "ztunnel", map[string]string{"app": "ztunnel"}),
		daemonSet("istio-system", "istio-cni-node", map[string]string{"k8s-app": "istio-cni-node"}),
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "istio-validator-istio-system"}},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "istio-sidecar-injector"}},
		meshConfig(""),
	}, authority...)
}

func overIstio() Options {
	o := options()
	o.TakeOver, o.Wait = "istio", true
	return o
}

// carriedOut does what is planned. Nothing is waited for: nobody starts anything in the stand-in.
func carriedOut(t *testing.T, i *Installation) error {
	t.Helper()
	i.options.Wait = false
	return i.Run(t.Context())
}

// Agents are ready only once they have captured what Istio holds, so nothing of Istio's may go before somebody has waited for them. An upgrade
// that ends a take-over which was broken off knows of it by the values alone.
func TestATakeOverIsWaitedFor(t *testing.T) {
	c := cluster(t, ambient(secret("istio-ca-secret", "ca-cert.pem", "ca-key.pem"))...)
	recorded(t, c, &Record{Namespace: DefaultNamespace, Version: "0.1.0", State: stateInstalling, Values: map[string]any{"takeOver": "istio"}})
	o := options()
	_, err := c.PrepareUpgrade(t.Context(), o)
	if e := said(t, err); e.Code != 400 || !strings.Contains(e.Fix, "--wait=false") {
		t.Error(e)
	}
	o.Wait = true
	if i, err := c.PrepareUpgrade(t.Context(), o); err != nil || len(i.moves) == 0 {
		t.Errorf("%v %v", i, err)
	}
	o.Wait, o.DryRun = false, true
	if _, err := c.PrepareUpgrade(t.Context(), o); err != nil {
		t.Errorf("what would be done: %v", err)
	}
}

func TestTakingOverIsPlannedInTheOrderThatKeepsConnections(t *testing.T) {
	c := cluster(t, ambient(secret("istio-ca-secret", "ca-cert.pem", "ca-key.pem"))...)
	i, err := c.Prepare(t.Context(), overIstio())
	if err != nil {
		t.Fatal(err)
	}
	var verbs []string
	for _, what := range i.Plan.Before {
		words := strings.Fields(strings.TrimRight(what, ":,"))
		verbs = append(verbs, words[0]+" "+strings.Trim(words[2], ":,"))
	}
	want := []string{"go with", "remove istio-validator-istio-system", "remove istio-sidecar-injector", "scale istio-system/istiod", "remove istio-system/istio-cni-node", "remove istio-system/ztunnel"}
	if !slices.Equal(verbs, want) {
		t.Errorf("%v", verbs)
	}
	// Nothing of Istio's goes before our own parts are ready.
	for _, m := range i.moves {
		if strings.HasPrefix(m.What, "go on") != (m.phase == "") || m.phase != "" && m.phase != phaseRest {
			t.Errorf("%s is done after %s", m.What, m.phase)
		}
	}
	for _, s := range i.Plan.Steps {
		if s.Kind == "Service" && s.Name == istiodName && (s.Namespace != "istio-system" || part(s) != phaseRest) {
			t.Errorf("%v", s)
		}
	}
}

func TestTakingOverLeavesNoIstio(t *testing.T) {
	c := cluster(t, ambient(secret("istio-ca-secret", "ca-cert.pem", "ca-key.pem"))...)
	i, err := c.Prepare(t.Context(), overIstio())
	if err != nil {
		t.Fatal(err)
	}
	if err := carriedOut(t, i); err != nil {
		t.Fatal(err)
	}
	found, err := c.Conflicts(t.Context(), options())
	if err != nil || len(found) != 0 {
		t.Errorf("left: %v %v", found, err)
	}
	service, err := c.objects().get(t.Context(), named("Service", "istio-system", "istiod"))
	if err != nil || service == nil {
		t.Fatal("no Service istiod", err)
	}
	if name, _, _ := unstructured.NestedString(service.Object, "spec", "externalName"); name != "lateen-control.lateen-system.svc.cluster.local" {
		t.Error(name)
	}
}

// Where Istio has both it signs with the CA that is plugged in.
func TestThePluggedInCAIsMeant(t *testing.T) {
	c := cluster(t, ambient(secret("cacerts", "ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem"), secret("istio-ca-secret", "ca-cert.pem", "ca-key.pem"))...)
	s, err := c.survey(t.Context(), overIstio())
	if err != nil || s.authority.Name != "cacerts" {
		t.Fatalf("%v %v", s.authority, err)
	}
}

func TestTakingOverIsRefusedWithAFix(t *testing.T) {
	_, err := cluster(t).Prepare(t.Context(), overIstio())
	if e := said(t, err); !strings.Contains(e.Message, "there is no Istio") {
		t.Error(e)
	}
	_, err = cluster(t, ambient()...).Prepare(t.Context(), overIstio())
	if e := said(t, err); !strings.Contains(e.Message, "would not trust each other") {
		t.Error(e)
	}
}

// What bears Istio's names in a tenant's namespace is neither asked for its CA nor removed.
func TestOnlyIstiosOwnNamespaceIsTakenOver(t *testing.T) {
	evil := secret("cacerts", "ca-cert.pem", "ca-key.pem")
	evil.Namespace = "aaa-tenant"
	c := cluster(t, append(ambient(secret("istio-ca-secret", "ca-cert.pem", "ca-key.pem")), evil, deployment("aaa-tenant", "istiod", map[string]string{"app": "istiod"}, 1),
		daemonSet("aaa-tenant", "ztunnel", map[string]string{"app": "ztunnel"}), daemonSet("zzz-tenant", "istio-cni-node", nil), daemonSet("zzz-tenant", "ztunnel", nil))...)
	i, err := c.Prepare(t.Context(), overIstio())
	if err != nil {
		t.Fatal(err)
	}
	if plan := strings.Join(i.Plan.Before, "\n"); strings.Contains(plan, "tenant") || strings.Count(plan, "istio-system/") < 4 {
		t.Error(plan)
	}
	if err := carriedOut(t, i); err != nil {
		t.Fatal(err)
	}
	for _, at := range [][2]string{{"aaa-tenant", "ztunnel"}, {"zzz-tenant", "ztunnel"}, {"zzz-tenant", "istio-cni-node"}} {
		if _, err := c.Client.AppsV1().DaemonSets(at[0]).Get(t.Context(), at[1], metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	if d, err := c.Client.AppsV1().Deployments("aaa-tenant").Get(t.Context(), "istiod", metav1.GetOptions{}); err != nil || *d.Spec.Replicas != 1 {
		t.Error(d, err)
	}
}

func TestAnIstioElsewhereNeedsItsNamespaceNamed(t *testing.T) {
	c := cluster(t, deployment("mesh", "istiod", map[string]string{"app": "istiod"}, 1), empowering("mesh", "default"), secret("cacerts", "ca-cert.pem"))
	_, err := c.Prepare(t.Context(), overIstio())
	if e := said(t, err); !strings.Contains(e.Message, "in namespace mesh") || !strings.Contains(e.Fix, "--set mesh.rootNamespace=mesh") {
		t.Error(e)
	}
}

// After a first success nothing hangs on what is left of Istio, nor is it looked for again.
func TestATakeOverEnds(t *testing.T) {
	c := cluster(t, ambient(secret("cacerts", "ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem"))...)
	i, err := c.Prepare(t.Context(), overIstio())
	if err != nil {
		t.Fatal(err)
	}
	if err := carriedOut(t, i); err != nil {
		t.Fatal(err)
	}
	copied, err := c.Client.CoreV1().Secrets(DefaultNamespace).Get(t.Context(), "cacerts", metav1.GetOptions{})
	if err != nil || string(copied.Data["ca-key.pem"]) != "content of ca-key.pem" {
		t.Fatal("the plugged-in CA was not copied", err)
	}
	if err := c.Client.CoreV1().Secrets("istio-system").Delete(t.Context(), "cacerts", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	next, err := c.PrepareUpgrade(t.Context(), options())
	if err != nil || len(next.Plan.Before) != 0 {
		t.Errorf("%v %v", next, err)
	}
}

// Some platforms give Istio's DaemonSets namespaces of their own.
func TestIstiosPartsElsewhereGoAsWell(t *testing.T) {
	cni := daemonSet("istio-cni", "istio-cni-node", map[string]string{"k8s-app": "istio-cni-node"})
	cni.Spec.Template.Spec.ServiceAccountName = "istio-cni"
	c := cluster(t, istiod(), meshConfig(""), cni, empowering("istio-cni", "istio-cni"),
		daemonSet("ztunnel", "ztunnel", map[string]string{"app": "ztunnel"}), secret("istio-ca-secret", "ca-cert.pem", "ca-key.pem"))
	i, err := c.Prepare(t.Context(), overIstio())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(i.Plan.Before, "\n"), "remove DaemonSet istio-cni/istio-cni-node") {
		t.Error(i.Plan.Before)
	}
	// What nothing but a name speaks for stays, and whoever knows better hears how it goes.
	if w := strings.Join(i.Plan.Warnings, "\n"); !strings.Contains(w, "kubectl delete daemonset -n ztunnel ztunnel") || len(i.Plan.Warnings) != 1 {
		t.Error(i.Plan.Warnings)
	}
	if err := carriedOut(t, i); err != nil {
		t.Fatal(err)
	}
	if found, err := c.Conflicts(t.Context(), options()); err != nil || slices.ContainsFunc(found, Conflict.isIstio) {
		t.Errorf("left: %v %v", found, err)
	}
	// What the moves do not end is refused, whatever it is.
	left := remaining([]Conflict{{Mesh: "Istio", What: daemonSetPrefix + "x", Where: "a"}, {Mesh: "Istio", What: daemonSetPrefix + "x", Where: "b"}, {Mesh: "Istio", What: classPrefix + "istio"}},
		[]Move{{ends: thing{daemonSetPrefix + "x", "a"}}})
	if len(left) != 1 || left[0].Where != "b" {
		t.Errorf("left are %v", left)
	}
}

// What is named to be none of Istio's is not removed either, wherever it is.
func TestWhatIsPassedOverIsNotRemoved(t *testing.T) {
	c := cluster(t, ambient(secret("istio-ca-secret", "ca-cert.pem", "ca-key.pem"))...)
	o := overIstio()
	o.IgnoreConflicts = []string{"istio-system/istio-cni-node"}
	i, err := c.Prepare(t.Context(), o)
	if err != nil || strings.Contains(strings.Join(i.Plan.Before, "\n"), "istio-cni-node") {
		t.Fatalf("%v %v", i, err)
	}
}

// An earlier version did not note that a take-over had ended. Istio may be cleaned up by then.
func TestATakeOverOfAnEarlierVersionHasEnded(t *testing.T) {
	values := map[string]any{"takeOver": "istio"}
	c := cluster(t)
	recorded(t, c, &Record{Namespace: DefaultNamespace, Version: "0.1.0", State: stateInstalled, Values: values})
	i, err := c.PrepareUpgrade(t.Context(), options())
	if err != nil || len(i.Plan.Before) != 0 {
		t.Fatalf("%v %v", i, err)
	}
	// One that is broken off does not forget it.
	if err := i.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PrepareUpgrade(t.Context(), options()); err != nil {
		t.Error(err)
	}
	// One that has not ended, and one that was never asked for, need an Istio.
	for _, r := range []*Record{{Namespace: DefaultNamespace, State: stateInstalling, Values: values}, {Namespace: DefaultNamespace, State: stateInstalled}} {
		c := cluster(t)
		recorded(t, c, r)
		o := options()
		o.Values = values
		_, err := c.PrepareUpgrade(t.Context(), o)
		if e := said(t, err); e.Code != 404 || !strings.Contains(e.Message, "there is no Istio") {
			t.Errorf("%+v: %v", r, e)
		}
	}
}
