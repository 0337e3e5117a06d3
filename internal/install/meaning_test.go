package install

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/meaning"
)

// meshConfig is Istio's, with further fields.
func meshConfig(more string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "istio"},
		Data: map[string]string{"mesh": "rootNamespace: istio-system\nenablePrometheusMerge: true\n" + more, "meshNetworks": "networks: {}"}}
}

// istioWith is a cluster with Istio, its MeshConfig and objects in YAML.
func istioWith(t *testing.T, mesh *corev1.ConfigMap, objects ...string) *Cluster {
	t.Helper()
	base := slices.DeleteFunc(ambient(secret("istio-ca-secret", "ca-cert.pem", "ca-key.pem")), func(o runtime.Object) bool { _, is := o.(*corev1.ConfigMap); return is })
	c := cluster(t, append(base, mesh)...)
	for _, text := range objects {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		gvk := o.GroupVersionKind()
		all := slices.Concat(comparedKinds, unservedKinds)
		i := slices.IndexFunc(all, func(k customKind) bool {
			return k.group == gvk.Group && strings.TrimSuffix(k.kind, "."+k.group) == gvk.Kind
		})
		gvr := schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: all[i].resource}
		if _, err := c.Dynamic.Resource(gvr).Namespace(o.GetNamespace()).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

const sleeping = `{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: p, namespace: shop}, spec: {selector: {}, action: DENY, rules: [{}]}}`

func dryRun() Options {
	o := overIstio()
	o.DryRun = true
	return o
}

func rules(r *meaning.Report) []string {
	var out []string
	for _, d := range r.Differences {
		out = append(out, d.Rule+" "+d.Object.String())
	}
	return out
}

func TestATakeOverNamesWhatMeansSomethingElse(t *testing.T) {
	c := istioWith(t, meshConfig(""), sleeping,
		`{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: shop}}`,
		`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: theirs, namespace: shop}, spec: {gatewayClassName: nginx, listeners: []}}`,
		`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: theirs, namespace: shop}, spec: {parentRefs: [{name: theirs}]}}`,
		`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: ours, namespace: shop}, spec: {parentRefs: [{kind: Service, group: "", name: a}]}}`,
		`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: e, namespace: shop}, spec: {hosts: [a.example], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}, status: {addresses: [{host: a.example, value: 100.64.0.9}], later: {}}}`)
	i, err := c.Prepare(t.Context(), dryRun())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"authorization-empty-selector AuthorizationPolicy shop/p", "entry-address ServiceEntry shop/e", "kind-unserved HTTPRoute", "kind-unserved VirtualService"}
	if got := rules(i.Plan.Meaning); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if d := i.Plan.Meaning.Differences[2]; !slices.Equal(d.Objects, []string{"shop/ours"}) {
		t.Errorf("somebody else's route is taken for Istio's: %v", d.Objects)
	}
	// The warning says that nothing was compared.
	i, err = c.Prepare(t.Context(), overIstio())
	if err != nil {
		t.Fatal(err)
	}
	if w := strings.Join(i.Plan.Warnings, "\n"); !strings.Contains(w, "0 differences open it, 1 close it; lateen install --take-over=istio --dry-run names them") {
		t.Error(w)
	}
}

func TestATakeOverThatChangesNothingSaysSo(t *testing.T) {
	i, err := istioWith(t, meshConfig("")).Prepare(t.Context(), overIstio())
	if err != nil || i.Plan.Meaning == nil || len(i.Plan.Meaning.Differences)+len(i.Plan.Meaning.Unread)+len(i.Plan.Warnings) > 0 {
		t.Errorf("%+v %v %v", i.Plan.Meaning, i.Plan.Warnings, err)
	}
}

func TestATakeOverThatBindsAtOnceIsComparedAsSuch(t *testing.T) {
	for bind, want := range map[string]bool{"": false, "when-ready": false, "at-once": true} {
		s, err := settingsOf(map[string]any{"waypoint": map[string]any{"bind": bind}})
		if err != nil || s.BindAtOnce != want {
			t.Errorf("%q: %+v %v", bind, s, err)
		}
	}
}

// A setting that decides access and that this mesh does not have is no affair of a warning.
func TestSettingsThatDecideAccessRefuseTheTakeOver(t *testing.T) {
	c := istioWith(t, meshConfig("trustDomain: acme.example\nserviceEntryVisibility: {defaultVisibility: NAMESPACE}\n"))
	_, err := c.Prepare(t.Context(), overIstio())
	if e := said(t, err); e.Code != 409 || !strings.Contains(e.Message, "meshConfig.trustDomain of ConfigMap istio-system/istio") ||
		!strings.Contains(e.Fix, "--set mesh.trustDomain=acme.example") || !strings.Contains(e.Fix, "--accept-difference=meshConfig.serviceEntryVisibility") {
		t.Error(e)
	}
	i, err := c.Prepare(t.Context(), dryRun())
	if err != nil || !strings.Contains(i.Plan.Refused, "meshConfig.serviceEntryVisibility") || len(i.Plan.Meaning.Differences) != 2 {
		t.Errorf("a dry run shows it: %+v %v", i, err)
	}
	o := overIstio()
	o.Values = map[string]any{"mesh": map[string]any{"trustDomain": "acme.example"}}
	o.AcceptDifferences = []string{"meshConfig.serviceEntryVisibility", "meshConfig.trustDomain"}
	i, err = c.Prepare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if w := strings.Join(i.Plan.Warnings, "\n"); !strings.Contains(w, "--accept-difference=meshConfig.trustDomain: no difference of this name") {
		t.Error(w)
	}
}

func TestWhatMayNotBeReadIsSaid(t *testing.T) {
	c := istioWith(t, meshConfig(""), sleeping)
	forbid := func(resource string) clienttesting.ReactionFunc {
		return func(a clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
		}
	}
	c.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("list", "authorizationpolicies", forbid("authorizationpolicies"))
	i, err := c.Prepare(t.Context(), dryRun())
	if err != nil {
		t.Fatal(err)
	}
	if u := strings.Join(i.Plan.Meaning.Unread, "\n"); !strings.Contains(u, "authorizationpolicies.security.istio.io: ") || len(i.Plan.Meaning.Differences) > 0 {
		t.Errorf("%q %v", u, rules(i.Plan.Meaning))
	}
	i, err = c.Prepare(t.Context(), overIstio())
	if err != nil || !strings.Contains(strings.Join(i.Plan.Warnings, "\n"), "1 things could not be read or judged") {
		t.Errorf("%v %v", i.Plan.Warnings, err)
	}
}

// A policy that the control plane refuses is told as it will be read.
func TestRefusedObjectsAreDifferences(t *testing.T) {
	c := istioWith(t, meshConfig(""), `{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: p, namespace: shop}, spec: {action: DENY, rules: [{to: [{operation: {ports: ["http"]}}]}]}}`)
	i, err := c.Prepare(t.Context(), dryRun())
	if err != nil {
		t.Fatal(err)
	}
	if d := i.Plan.Meaning.Differences; len(d) != 1 || d[0].Rule != "object-refused" || d[0].Severity != meaning.AccessCloses || !strings.Contains(d[0].Field, "ports") {
		t.Errorf("%+v", d)
	}
}

func TestVariablesFromElsewhereAreNotJudged(t *testing.T) {
	c := istioWith(t, meshConfig(""))
	d := istiod()
	d.Spec.Template.Spec.Containers[0].Env = nil
	d.Spec.Template.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "more"}}}}
	if _, err := c.Client.AppsV1().Deployments("istio-system").Update(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	i, err := c.Prepare(t.Context(), dryRun())
	if err != nil {
		t.Fatal(err)
	}
	if u := strings.Join(i.Plan.Meaning.Unread, "\n"); !strings.Contains(u, "PILOT_ENABLE_AMBIENT of Deployment istio-system/istiod stands in ConfigMap more") || i.Plan.Refused != "" {
		t.Errorf("%q %q", u, i.Plan.Refused)
	}
}
