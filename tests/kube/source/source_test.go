//go:build kube

// Package source_test holds the Kubernetes source to a real API server: what its own tests have is as much of one as they need. The suite
// tests/kube/05-source.sh starts the server (KUBECONFIG, KUBE_NAME) and runs this.
package source_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/kube/clients"
	"lateen.dev/lateen/internal/model"
	kubesource "lateen.dev/lateen/internal/source/kube"
)

var (
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	accounts    = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	slices      = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	roles       = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	bindings    = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
	policies    = schema.GroupVersionResource{Group: model.SecurityGroup, Version: "v1beta1", Resource: "authorizationpolicies"}
)

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: authorizationpolicies.security.istio.io}
spec:
  group: security.istio.io
  scope: Namespaced
  names: {plural: authorizationpolicies, singular: authorizationpolicy, kind: AuthorizationPolicy, listKind: AuthorizationPolicyList}
  versions:
  - {name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1, served: false, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

func role(more string) string {
	return `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [namespaces, nodes, pods, services], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [list, watch]}
` + more
}

// mesh is a source that runs on the server, and what it handed on.
type mesh struct {
	t      *testing.T
	admin  dynamic.Interface
	source *kubesource.Source

	mu      sync.Mutex
	objects map[model.Key]*model.Object
	batches int
	log     bytes.Buffer
}

func (m *mesh) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.Write(p)
}

func (m *mesh) logged() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.String()
}

func (m *mesh) get(key model.Key) *model.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[key]
}

// put creates or replaces an object.
func (m *mesh) put(gvr schema.GroupVersionResource, text string) {
	m.t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		m.t.Fatal(err)
	}
	// While the server starts, or learns of a definition, it refuses.
	m.eventually("put "+o.GetKind()+" "+o.GetName(), func() bool {
		_, err := m.admin.Resource(gvr).Namespace(o.GetNamespace()).Apply(context.Background(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true})
		return err == nil
	})
}

func (m *mesh) delete(gvr schema.GroupVersionResource, namespace, name string) {
	m.t.Helper()
	if err := m.admin.Resource(gvr).Namespace(namespace).Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mesh) eventually(what string, ok func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("never: %s\nready: %v\nlog: %s", what, m.source.Ready(), m.logged())
		}
	}
}

func ctl(t *testing.T, act, what string) {
	t.Helper()
	if text, err := exec.Command("../ctl", act, what).CombinedOutput(); err != nil {
		t.Fatalf("ctl %s %s: %v: %s", act, what, err, text)
	}
}

func policy(port string) string {
	return "apiVersion: security.istio.io/v1beta1\nkind: AuthorizationPolicy\nmetadata: {name: p, namespace: shop}\nspec: {rules: [{to: [{operation: {ports: [\"" + port + "\"]}}]}]}\n"
}

func pod(name string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: shop, labels: {app: web}}\nspec: {nodeName: n1, containers: [{name: c, image: i}]}\n"
}

var policyKey = model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: "shop", Name: "p"}

func TestTheSourceOnARealServer(t *testing.T) {
	admin, err := kube.Config(os.Getenv("KUBECONFIG"), "")
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{t: t, objects: map[model.Key]*model.Object{}}
	if m.admin, err = clients.Dynamic(admin); err != nil {
		t.Fatal(err)
	}
	reader := *admin
	reader.Impersonate.UserName = "reader"
	if m.source, err = kubesource.New(kubesource.Options{Config: &reader, Logger: slog.New(slog.NewTextHandler(m, nil))}); err != nil {
		t.Fatal(err)
	}
	// The server makes these by itself after its start: later than the first batch they would be a second one.
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		m.eventually("namespace "+name, func() bool {
			_, err := m.admin.Resource(namespaces).Get(t.Context(), name, metav1.GetOptions{})
			return err == nil
		})
	}
	m.put(namespaces, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	m.put(accounts, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: shop}\n")
	m.put(roles, role(""))
	m.put(bindings, "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: reader}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}\nsubjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]\n")
	m.put(definitions, definition)
	m.put(policies, policy("80"))
	m.put(pods, pod("first"))

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.source.Run(ctx, func(changes []model.Change) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.batches++
			for _, c := range changes {
				if m.objects[c.Key] = c.Object; c.Object == nil {
					delete(m.objects, c.Key)
				}
			}
		}); err != nil {
			t.Error(err)
		}
	}()
	defer func() { cancel(); <-done }()

	const rule = `{apiGroups: ["security.istio.io"], resources: ["authorizationpolicies"], verbs: [list, watch]}`
	m.eventually("the rule that is missing is named, and nothing else is waited for", func() bool {
		err := m.source.Ready()
		return err != nil && strings.Contains(err.Error(), rule) && !strings.Contains(err.Error(), "pods")
	})
	if m.batches > 0 {
		t.Fatal("it began without the policies")
	}
	m.put(roles, role("- {apiGroups: [security.istio.io], resources: [authorizationpolicies], verbs: [list, watch]}\n"))
	m.eventually("everything is read", func() bool {
		return m.source.Ready() == nil && m.get(policyKey) != nil && m.get(model.PodKey("shop", "first")) != nil
	})
	if o := m.get(policyKey); m.batches != 1 || o.APIVersion != "security.istio.io/v1beta1" || len(o.Value.(*securityv1.AuthorizationPolicy).ManagedFields) > 0 {
		t.Errorf("%d batches; the policy: %+v", m.batches, o)
	}
	if p := m.get(model.PodKey("shop", "first")).Value.(*corev1.Pod); p.Spec.NodeName != "n1" || p.Spec.ServiceAccountName != "default" || p.UID == "" || len(p.Spec.Volumes) > 0 {
		t.Errorf("the pod: %+v", p)
	}

	// The server lets through what makes no sense.
	m.put(policies, policy("http"))
	m.eventually("it is refused", func() bool { return len(m.source.Refused()) == 1 })
	if r := m.source.Refused()[0]; r.Generation != 2 || !strings.Contains(r.Condition.Message, "spec.rules[0].to[0].operation.ports[0]") || m.get(policyKey) == nil {
		t.Errorf("refused: %+v", r)
	}
	// A replica that starts now knows no version before it, and must not open what it closes.
	started, err := kubesource.New(kubesource.Options{Config: &reader, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan []model.Change, 1)
	starting, enough := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() {
		over <- started.Run(starting, func(changes []model.Change) {
			select {
			case first <- changes:
			default:
			}
		})
	}()
	var standsIn *model.Object
	for _, c := range <-first {
		if c.Key == policyKey {
			standsIn = c.Object
		}
	}
	enough()
	if err := <-over; err != nil {
		t.Error(err)
	}
	if standsIn == nil || len(standsIn.Value.(*securityv1.AuthorizationPolicy).Spec.Rules) != 0 || !strings.Contains(standsIn.Refused, "strictest reading") {
		t.Errorf("in place of the refused policy it has %+v", standsIn)
	}
	m.put(policies, policy("81"))
	m.eventually("it is taken", func() bool {
		return m.get(policyKey).Value.(*securityv1.AuthorizationPolicy).Spec.Rules[0].To[0].Operation.Ports[0] == "81" && len(m.source.Problems()) == 0
	})

	// The selector of EndpointSlices is one that the server understands as it is meant.
	// The one that is not followed is there first: a watch that had it would tell of it before the other.
	for _, x := range [][2]string{{"of-pods", model.EndpointSliceController}, {"own", "me"}} {
		m.put(slices, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: "+x[0]+", namespace: shop, labels: {kubernetes.io/service-name: s, endpointslice.kubernetes.io/managed-by: "+x[1]+"}}\naddressType: IPv4\nendpoints: [{addresses: [192.0.2.1]}]\n")
	}
	m.put(pods, pod("second"))
	m.eventually("the slice", func() bool {
		return m.get(model.EndpointSliceKey("shop", "own")) != nil && m.get(model.PodKey("shop", "second")) != nil
	})
	if m.get(model.EndpointSliceKey("shop", "of-pods")) != nil {
		t.Error("the slices of Services with selectors are followed")
	}

	// A better version is served.
	m.put(definitions, strings.Replace(definition, "{name: v1, served: false", "{name: v1, served: true", 1))
	m.eventually("v1 is followed", func() bool { return strings.Contains(m.logged(), "version=v1\n") })
	m.put(policies, policy("82"))
	m.eventually("it comes as v1", func() bool { return m.get(policyKey).APIVersion == "security.istio.io/v1" })

	// Without the server what was read stays.
	ctl(t, "stop", "kube-apiserver")
	m.eventually("it is noticed", func() bool { return m.source.Note() != "" })
	if m.source.Ready() != nil || m.get(policyKey) == nil {
		t.Errorf("ready: %v", m.source.Ready())
	}
	ctl(t, "start", "kube-apiserver")
	m.put(pods, pod("third"))
	m.delete(pods, "shop", "first")
	m.eventually("it is back", func() bool {
		return m.get(model.PodKey("shop", "third")) != nil && m.get(model.PodKey("shop", "first")) == nil && m.source.Note() == ""
	})
	if m.get(policyKey) == nil || strings.Contains(m.logged(), "are no more") {
		t.Error("while the server started, the policies were taken for gone")
	}
	if n := strings.Count(m.logged(), "cannot be reached"); n != 1 {
		t.Errorf("%d lines say that the server is away", n)
	}

	// A right that is taken away.
	m.put(roles, role(""))
	ctl(t, "stop", "kube-apiserver") // the watch that is open would go on
	ctl(t, "start", "kube-apiserver")
	m.eventually("it is said", func() bool { return strings.Contains(fmt.Sprint(m.source.Problems()), rule) })
	if m.source.Ready() != nil || m.get(policyKey) == nil {
		t.Errorf("ready: %v", m.source.Ready())
	}
	m.put(roles, role("- {apiGroups: [security.istio.io], resources: [authorizationpolicies], verbs: [list, watch]}\n"))
	m.eventually("it goes on", func() bool { return len(m.source.Problems()) == 0 })

	m.delete(definitions, "", "authorizationpolicies.security.istio.io")
	m.eventually("the policy goes with its definition", func() bool { return m.get(policyKey) == nil })
	m.eventually("nothing is wrong", func() bool { return len(m.source.Problems()) == 0 })
}
