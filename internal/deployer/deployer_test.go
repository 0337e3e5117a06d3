package deployer

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/kube/kubetest"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/waypoint"
)

// rig is an API server in memory and a deployer.
type rig struct {
	t        *testing.T
	client   *fake.FakeDynamicClient
	watches  *kubetest.Watches
	deployer *Deployer

	mu sync.Mutex
	// status is that of Deployments; refuse has the API server refuse the patch of a kind.
	status map[string]any
	refuse map[string]error
	writes []string
}

func newRig(t *testing.T, objects ...string) *rig {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{gateways: "GatewayList", classes: "GatewayClassList", configMaps: "ConfigMapList", leases: "LeaseList"}
	for kind, gvr := range resources {
		lists[gvr] = kind + "List"
	}
	r := &rig{t: t, client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists), refuse: map[string]error{},
		status: map[string]any{"observedGeneration": int64(9), "updatedReplicas": int64(1), "availableReplicas": int64(1)}}
	r.client.PrependReactor("patch", "*", r.patched)
	r.watches = kubetest.Count(&r.client.Fake)
	r.deployer = New(Options{Client: r.client, DefaultsFrom: []string{"lateen-system"}, IstioNamespace: "istio-system", Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: func() time.Time { return time.Unix(1000, 0) },
		Settings: waypoint.Settings{Image: "proxy:1", Control: "https://control:15012"}})
	for _, text := range objects {
		r.put(text)
	}
	return r
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func gvrOf(kind string) schema.GroupVersionResource {
	switch kind {
	case "Gateway":
		return gateways
	case "GatewayClass":
		return classes
	case "ConfigMap":
		return configMaps
	case "Lease":
		return leases
	}
	return resources[kind]
}

func (r *rig) put(text string) {
	r.t.Helper()
	u := object(r.t, text)
	if err := r.client.Tracker().Create(gvrOf(u.GetKind()), u, u.GetNamespace()); err != nil {
		r.t.Fatal(err)
	}
}

// patched does what an API server does with server-side apply, as far as the deployer can see it.
func (r *rig) patched(a kubetesting.Action) (bool, runtime.Object, error) {
	p := a.(kubetesting.PatchAction)
	r.mu.Lock()
	defer r.mu.Unlock()
	var next map[string]any
	if err := json.Unmarshal(p.GetPatch(), &next); err != nil {
		r.t.Errorf("%s %s: %v", p.GetPatchType(), p.GetPatch(), err)
	}
	u := &unstructured.Unstructured{Object: next}
	if p.GetPatchType() == types.MergePatchType {
		return r.adopted(p, u)
	}
	r.writes = append(r.writes, strings.Trim(u.GetKind()+"/"+p.GetName()+"/"+p.GetSubresource(), "/"))
	if err := r.refuse[u.GetKind()]; err != nil {
		return true, nil, err
	}
	tracker := r.client.Tracker()
	present, err := tracker.Get(p.GetResource(), p.GetNamespace(), p.GetName())
	if p.GetSubresource() == "status" {
		if err != nil {
			return true, nil, err
		}
		now := present.(*unstructured.Unstructured).DeepCopy()
		now.Object["status"] = next["status"]
		return true, now, tracker.Update(p.GetResource(), now, p.GetNamespace())
	}
	owned := metav1.ManagedFieldsEntry{Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply}
	if u.GetKind() == "Deployment" {
		if spec := u.Object["spec"].(map[string]any); spec["replicas"] != nil {
			owned.FieldsV1 = &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:replicas":{}}}`)}
		} else if now, is := present.(*unstructured.Unstructured); is && err == nil {
			keepReplicas(now, spec)
		}
		u.Object["status"] = r.status
	}
	u.SetManagedFields([]metav1.ManagedFieldsEntry{owned})
	if apierrors.IsNotFound(err) {
		return true, u, tracker.Create(p.GetResource(), u, p.GetNamespace())
	}
	if now, err := json.Marshal(present); err == nil {
		if next, err := json.Marshal(u); err == nil && string(now) == string(next) {
			return true, u, nil // as an API server, which tells nobody of a change that is none
		}
	}
	return true, u, tracker.Update(p.GetResource(), u, p.GetNamespace())
}

// keepReplicas does what an API server does with a number of replicas that is not applied: it stays unless its manager has taken it back.
func keepReplicas(now *unstructured.Unstructured, spec map[string]any) {
	replicas, has, _ := unstructured.NestedFieldNoCopy(now.Object, "spec", "replicas")
	_, applied, _ := withoutReplicas(now.GetManagedFields())
	if has && !applied {
		spec["replicas"] = replicas
	}
}

// adopted does what an API server does with a change of who manages fields.
func (r *rig) adopted(p kubetesting.PatchAction, u *unstructured.Unstructured) (bool, runtime.Object, error) {
	tracker := r.client.Tracker()
	o, err := tracker.Get(p.GetResource(), p.GetNamespace(), p.GetName())
	if err != nil {
		return true, nil, err
	}
	now := o.(*unstructured.Unstructured).DeepCopy()
	r.writes = append(r.writes, "adopt "+now.GetKind())
	if u.GetUID() != now.GetUID() || u.GetResourceVersion() != now.GetResourceVersion() || len(u.Object) != 1 {
		r.t.Errorf("adopted by %v", u.Object)
	}
	now.SetManagedFields(u.GetManagedFields())
	return true, now, tracker.Update(p.GetResource(), now, p.GetNamespace())
}

const plainGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {namespace: shop, name: waypoint, uid: uid-1, generation: 3}
spec: {gatewayClassName: lateen-waypoint, listeners: [{name: mesh, port: 15008, protocol: HBONE}]}
`

// reconcile looks at the Gateway shop/waypoint once, as it is in the API server.
func (r *rig) reconcile() error {
	r.t.Helper()
	u, err := r.client.Resource(gateways).Namespace("shop").Get(context.Background(), "waypoint", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = r.deployer.reconcile(context.Background(), gatewayOf(r.t, u), nil)
	return err
}

// condition is what the Gateway's status says.
func (r *rig) condition() metav1.Condition {
	r.t.Helper()
	u, err := r.client.Resource(gateways).Namespace("shop").Get(context.Background(), "waypoint", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, c := range gatewayOf(r.t, u).Status.Conditions {
		if c.Type == wellknown.Deployed {
			return c
		}
	}
	return metav1.Condition{}
}

func (r *rig) has(kind string) bool {
	_, err := r.client.Resource(resources[kind]).Namespace("shop").Get(context.Background(), "waypoint", metav1.GetOptions{})
	return err == nil
}

func (r *rig) says(status, reason string, words ...string) {
	r.t.Helper()
	c := r.condition()
	if string(c.Status) != status || c.Reason != reason || c.ObservedGeneration != 3 {
		r.t.Errorf("got %+v", c)
	}
	for _, w := range words {
		if !strings.Contains(c.Message, w) {
			r.t.Errorf("%q does not say %q", c.Message, w)
		}
	}
}

func TestAGatewayIsDeployed(t *testing.T) {
	r := newRig(t, plainGateway)
	if err := r.reconcile(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"ServiceAccount/waypoint", "Service/waypoint", "Deployment/waypoint", "Gateway/waypoint/status"}; !slices.Equal(r.writes, want) {
		t.Errorf("wrote %v", r.writes)
	}
	r.says("True", "Deployed", "Deployment shop/waypoint: 1 of 1 pods are available")
	r.writes = nil
	if err := r.reconcile(); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(r.writes, "Gateway/waypoint/status") {
		t.Error("the condition was written again although nothing changed")
	}
}

func TestADeploymentThatIsNotAvailableIsProgressing(t *testing.T) {
	r := newRig(t, plainGateway)
	r.status = map[string]any{"observedGeneration": int64(1), "updatedReplicas": int64(1)}
	if err := r.reconcile(); err != nil {
		t.Fatal(err)
	}
	r.says("False", "Progressing", "1 of 1 pods are of this version, and 0 are available")
}

func TestARefusalOfThePodsIsTold(t *testing.T) {
	r := newRig(t, plainGateway)
	r.status["conditions"] = []any{map[string]any{"type": "ReplicaFailure", "status": "True", "message": `pods "waypoint-x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true`}}
	if err := r.reconcile(); err != nil {
		t.Fatal(err)
	}
	r.says("False", "PodsRefused", "violates PodSecurity", "pod-security.kubernetes.io/enforce")
}

func TestADeploymentThatDoesNotGoOnIsStuck(t *testing.T) {
	at := func(second string) string { return "1970-01-01T00:" + second + "Z" } // the rig's time is 16:40
	for name, c := range map[string]struct {
		status string
		want   string
		words  string
	}{
		"a rollout past its deadline": {`{observedGeneration: 9, updatedReplicas: 1, availableReplicas: 1, conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}]}`,
			"Stuck", "has not gone on in time, and 1 pods are available"},
		"no pod for two minutes": {`{observedGeneration: 9, updatedReplicas: 1, conditions: [{type: Progressing, status: "True", reason: NewReplicaSetAvailable}, {type: Available, status: "False", lastTransitionTime: "` + at("14:40") + `"}]}`,
			"Stuck", "since 1970-01-01T00:14:40Z; see kubectl describe -n shop pods"},
		"no pod for a moment": {`{observedGeneration: 9, updatedReplicas: 1, conditions: [{type: Progressing, status: "True", reason: NewReplicaSetAvailable}, {type: Available, status: "False", lastTransitionTime: "` + at("16:30") + `"}]}`,
			"Progressing", "0 are available"},
		"pods that are made for the first time": {`{observedGeneration: 9, updatedReplicas: 1, conditions: [{type: Progressing, status: "True", reason: ReplicaSetUpdated}, {type: Available, status: "False", lastTransitionTime: "` + at("10:00") + `"}]}`,
			"Progressing", "0 are available"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, plainGateway)
			r.status = nil
			if err := yaml.Unmarshal([]byte(c.status), &r.status); err != nil {
				t.Fatal(err)
			}
			if err := r.reconcile(); err != nil {
				t.Fatal(err)
			}
			r.says("False", c.want, c.words)
		})
	}
}

func TestADeploymentWithoutPodsIsNotDeployed(t *testing.T) {
	r := newRig(t, strings.Replace(plainGateway, "spec: {", "spec: {infrastructure: {parametersRef: {group: '', kind: ConfigMap, name: options}}, ", 1),
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: options}, data: {deployment: 'spec: {replicas: 0}'}}")
	if err := r.reconcile(); err != nil {
		t.Fatal(err)
	}
	r.says("False", "Stuck", "kubectl scale -n shop deployment waypoint --replicas=1")
}

func TestAnObjectOfSomebodyElseIsNeverTouched(t *testing.T) {
	for kind, text := range map[string]string{
		"Deployment":     "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: waypoint, managedFields: [{manager: istiod, operation: Apply}], ownerReferences: [{kind: Gateway, name: waypoint, uid: uid-1}]}}",
		"Service":        "{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: waypoint, managedFields: [{manager: kubectl, operation: Update}]}}",
		"ServiceAccount": "{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: shop, name: waypoint}}",
	} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, plainGateway, text)
			if err := r.reconcile(); err != nil {
				t.Fatal(err)
			}
			if want := []string{"Gateway/waypoint/status"}; !slices.Equal(r.writes, want) {
				t.Errorf("wrote %v", r.writes)
			}
			cure := "kubectl delete -n shop " + strings.ToLower(kind) + " waypoint"
			if kind == "ServiceAccount" {
				cure = wellknown.GatewayServiceAccount
			}
			r.says("False", "Taken", kind+" shop/waypoint exists", cure)
		})
	}
}

func TestANamedAccountIsUsedAndNotMade(t *testing.T) {
	for _, account := range []string{"way", "waypoint"} {
		r := newRig(t, strings.Replace(plainGateway, "generation: 3", "generation: 3, annotations: {gateway.istio.io/service-account: "+account+"}", 1),
			"{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: shop, name: waypoint}}")
		if err := r.reconcile(); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(r.writes, "ServiceAccount/waypoint") || slices.Contains(r.writes, "ServiceAccount/way") {
			t.Errorf("account %s: wrote %v", account, r.writes)
		}
		r.says("True", "Deployed")
	}
}

func TestParametersAreReadAndWithdrawn(t *testing.T) {
	r := newRig(t, strings.Replace(plainGateway, "spec: {", "spec: {infrastructure: {parametersRef: {group: '', kind: ConfigMap, name: options}}, ", 1),
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: lateen-system, name: all, labels: {gateway.istio.io/defaults-for-class: lateen-waypoint}}, data: {podDisruptionBudget: 'spec: {maxUnavailable: 1}'}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: lateen-system, name: other, labels: {gateway.istio.io/defaults-for-class: other}}, data: {wrong: x}}")
	if err := r.reconcile(); err != nil {
		t.Fatal(err)
	}
	r.says("False", waypoint.ReasonParameters, "ConfigMap shop/options, which does not exist")
	r.put("{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: options}, data: {horizontalPodAutoscaler: 'spec: {maxReplicas: 3}'}}")
	if err := r.reconcile(); err != nil {
		t.Fatal(err)
	}
	if !r.has("HorizontalPodAutoscaler") || !r.has("PodDisruptionBudget") {
		t.Errorf("wrote %v", r.writes)
	}
	for namespace, name := range map[string]string{"shop": "options", "lateen-system": "all"} {
		u, err := r.client.Resource(configMaps).Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		u.Object["data"] = map[string]any{}
		if err := r.client.Tracker().Update(configMaps, u, namespace); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.reconcile(); err != nil {
		t.Fatal(err)
	}
	if r.has("HorizontalPodAutoscaler") || r.has("PodDisruptionBudget") {
		t.Error("objects are left that nobody asks for any more")
	}
}

func TestAnAutoscalerDecidesTheNumberOfPods(t *testing.T) {
	r := newRig(t, strings.Replace(plainGateway, "spec: {", "spec: {infrastructure: {parametersRef: {group: '', kind: ConfigMap, name: options}}, ", 1),
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: options}, data: {deployment: 'spec: {replicas: 4}'}}")
	replicas := func(want float64, change func(*unstructured.Unstructured)) {
		t.Helper()
		if err := r.reconcile(); err != nil {
			t.Fatal(err)
		}
		u, err := r.client.Resource(deployments).Namespace("shop").Get(context.Background(), "waypoint", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := unstructured.NestedNumberAsFloat64(u.Object, "spec", "replicas"); got != want {
			t.Errorf("%v replicas, want %v", got, want)
		}
		if change != nil {
			change(u)
			if err := r.client.Tracker().Update(deployments, u, "shop"); err != nil {
				t.Fatal(err)
			}
		}
	}
	replicas(4, nil)
	u, err := r.client.Resource(configMaps).Namespace("shop").Get(context.Background(), "options", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u.Object["data"] = map[string]any{"deployment": "spec: {replicas: 4}", "horizontalPodAutoscaler": "spec: {minReplicas: 2, maxReplicas: 9}"}
	if err := r.client.Tracker().Update(configMaps, u, "shop"); err != nil {
		t.Fatal(err)
	}
	// The number is not taken back when the autoscaler comes, and what it decides stays.
	replicas(4, func(u *unstructured.Unstructured) { u.Object["spec"].(map[string]any)["replicas"] = int64(7) })
	replicas(7, nil)
}

func TestAnAutoscalerOfSomebodyElseStays(t *testing.T) {
	r := newRig(t, plainGateway, "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {namespace: shop, name: waypoint}}")
	if err := r.reconcile(); err != nil {
		t.Fatal(err)
	}
	if !r.has("HorizontalPodAutoscaler") {
		t.Error("it was removed")
	}
}

func TestARefusalOfTheAPIServerIsToldAndTriedAgain(t *testing.T) {
	r := newRig(t, plainGateway)
	r.refuse["Deployment"] = apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "waypoint", nil)
	if err := r.reconcile(); err == nil {
		t.Error("it is not tried again")
	}
	r.says("False", "Refused", "Deployment shop/waypoint", "its ClusterRole needs the rule")
}

func TestAnInvalidGatewayIsToldAndNotTriedAgain(t *testing.T) {
	r := newRig(t, strings.Replace(plainGateway, "15008", "80", 1))
	if err := r.reconcile(); err != nil {
		t.Fatal(err)
	}
	r.says("False", waypoint.ReasonInvalid, "spec.listeners has none with port 15008")
}

// A condition that nobody renews would be believed for ever.
func TestTheConditionIsRemovedOnceAGatewayIsNotDeployedHereAnyMore(t *testing.T) {
	const (
		said = "\nstatus: {conditions: [{type: lateen.dev/Deployed, status: 'False', reason: LeftToIstio, message: x, lastTransitionTime: '1970-01-01T00:00:01Z'}]}\n"
		own  = "managedFields: [{manager: lateen-deployer, operation: Apply, subresource: status, apiVersion: gateway.networking.k8s.io/v1}], "
	)
	for name, c := range map[string]struct {
		gateway string
		removed bool
	}{
		"it names the host of its addresses":    {strings.Replace(plainGateway, "spec: {", "spec: {addresses: [{type: Hostname, value: x.shop.svc}], ", 1), true},
		"its class is not deployed any more":    {istioGateway(), true},
		"its class is another controller's now": {strings.Replace(plainGateway, "lateen-waypoint", "other", 1), true},
		"it is being deleted":                   {strings.Replace(istioGateway(), "uid: uid-1", "uid: uid-1, deletionTimestamp: '1970-01-01T00:00:01Z'", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, strings.Replace(c.gateway, "metadata: {", "metadata: {"+own, 1)+said)
			r.lead()
			r.eventually("the Gateway was looked at", func() bool { return r.deployer.synced.Load() && r.deployer.queue.Len() == 0 })
			name := cache.NewObjectName("shop", "waypoint")
			if c.removed {
				r.eventually("the condition is gone, as the deployer knows", func() bool {
					gw, _, err := r.deployer.find(name)
					is := func(c metav1.Condition) bool { return c.Type == wellknown.Deployed }
					return err == nil && gw != nil && !slices.ContainsFunc(gw.Status.Conditions, is)
				})
			}
			r.deployer.one(t.Context(), name)
			r.mu.Lock()
			defer r.mu.Unlock()
			// It is removed once more if the deployer looks again before it knows.
			other := func(write string) bool { return write != "Gateway/waypoint/status" }
			if (len(r.writes) > 0) != c.removed || slices.ContainsFunc(r.writes, other) {
				t.Errorf("wrote %v", r.writes)
			}
		})
	}
	t.Run("another wrote it", func(t *testing.T) {
		r := newRig(t, istioGateway()+said)
		r.lead()
		r.eventually("the Gateway was looked at", func() bool { return r.deployer.synced.Load() && r.deployer.queue.Len() == 0 })
		r.deployer.one(t.Context(), cache.NewObjectName("shop", "waypoint"))
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.writes) > 0 {
			t.Errorf("wrote %v", r.writes)
		}
	})
}
