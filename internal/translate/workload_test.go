package translate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/gen/workload"
)

var mesh = Mesh{TrustDomain: "cluster.local", ClusterID: "Kubernetes", RootNamespace: "istio-system", DomainSuffix: "cluster.local"}

// object reads a Kubernetes object from YAML.
func object[T any](t testing.TB, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

// message reads a wire message from YAML in protobuf's JSON form.
func message[T proto.Message](t testing.TB, text string, into T) T {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(data, into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return into
}

func diff(t *testing.T, got, want proto.Message) {
	t.Helper()
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

const podHead = `
metadata:
  name: web-1
  namespace: shop
`

func TestWorkload(t *testing.T) {
	const plain = `
uid: Kubernetes//Pod/shop/web-1
name: web-1
namespace: shop
addresses: [CgAAAQ==]
serviceAccount: default
clusterId: Kubernetes
workloadName: web-1
workloadType: POD
canonicalName: web-1
canonicalRevision: latest
status: UNHEALTHY
`
	for _, c := range []struct{ name, pod, want string }{
		{"a bare pod", podHead + `spec: {serviceAccountName: default}
status: {podIP: 10.0.0.1}`, plain},
		{"addresses of both families", podHead + `spec: {serviceAccountName: default}
status: {podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}]}`,
			plain + `
addresses: [CgAAAQ==, /QAAAAAAAAAAAAAAAAAAAQ==]`},
		{"a ready pod", podHead + `spec: {serviceAccountName: default}
status: {podIP: 10.0.0.1, conditions: [{type: Ready, status: "True"}]}`, plain + `
status: HEALTHY`},
		{"a pod that is going", podHead + `  deletionTimestamp: "2026-01-01T00:00:00Z"
spec: {serviceAccountName: default}
status: {podIP: 10.0.0.1, conditions: [{type: Ready, status: "True"}]}`, plain},
		{"a captured pod", podHead + `  annotations: {ambient.istio.io/redirection: enabled}
spec: {serviceAccountName: default}
status: {podIP: 10.0.0.1}`, plain + `
tunnelProtocol: HBONE`},
		{"a pod whose capture has ended", podHead + `  annotations: {ambient.istio.io/redirection: disabled}
spec: {serviceAccountName: default}
status: {podIP: 10.0.0.1}`, plain},
		{"a pod that speaks HBONE itself", podHead + `  labels: {networking.istio.io/tunnel: http}
spec: {serviceAccountName: default}
status: {podIP: 10.0.0.1}`, plain + `
tunnelProtocol: HBONE
nativeTunnel: true`},
		{"a pod on its host's network", podHead + `spec: {hostNetwork: true, nodeName: n1, serviceAccountName: web, containers: []}
status: {podIP: 10.0.0.1}`, plain + `
networkMode: HOST_NETWORK
node: n1
serviceAccount: web`},
		{"a Deployment's pod", podHead + `  labels: {app: web, version: v2, pod-template-hash: abc}
  ownerReferences: [{kind: ReplicaSet, name: web-abc, controller: true, apiVersion: apps/v1, uid: u}]
spec: {serviceAccountName: default}
status: {podIP: 10.0.0.1}`, plain + `
workloadName: web
workloadType: DEPLOYMENT
canonicalName: web
canonicalRevision: v2`},
		{"a StatefulSet's pod with canonical labels", podHead + `  labels: {app: x, app.kubernetes.io/name: y, service.istio.io/canonical-name: z, service.istio.io/workload-name: w}
  ownerReferences: [{kind: StatefulSet, name: db, controller: true, apiVersion: apps/v1, uid: u}]
spec: {serviceAccountName: default}
status: {podIP: 10.0.0.1}`, plain + `
workloadName: w
canonicalName: z`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, conditions := Workload(mesh, object[corev1.Pod](t, c.pod), WorkloadInput{})
			if len(conditions) != 1 || conditions[0].Status != "True" {
				t.Errorf("conditions %v", conditions)
			}
			// A later line of the wanted YAML overrides an earlier one.
			want := &workload.Workload{}
			proto.Merge(want, message(t, dedup(c.want), &workload.Workload{}))
			diff(t, got, want)
		})
	}
}

func TestWorkloadIsNothingWithoutAnAddressOrAfterItsEnd(t *testing.T) {
	for reason, pod := range map[string]string{
		"NoAddress":      podHead,
		"Ended":          podHead + "status: {podIP: 10.0.0.1, phase: Failed}",
		"InvalidAddress": podHead + "status: {podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: x}]}",
	} {
		got, conditions := Workload(mesh, object[corev1.Pod](t, pod), WorkloadInput{})
		if got != nil || conditions[0].Status != "False" || conditions[0].Reason != reason {
			t.Errorf("%s: %v, %v", reason, got, conditions)
		}
	}
	got, _ := Workload(mesh, object[corev1.Pod](t, podHead+"status: {podIP: 10.0.0.1, phase: Succeeded}"), WorkloadInput{})
	if got != nil {
		t.Error("a pod that succeeded is still a workload")
	}
}

func TestWorkloadBelongsToItsServicesByItsOwnPorts(t *testing.T) {
	pod := object[corev1.Pod](t, podHead+`
spec:
  serviceAccountName: default
  containers: [{name: a, ports: [{name: http, containerPort: 8080}]}]
  initContainers:
  - {name: once, ports: [{name: metrics, containerPort: 1}]}
  - {name: sidecar, restartPolicy: Always, ports: [{name: metrics, containerPort: 9090}]}
status: {podIP: 10.0.0.1}`)
	web := object[corev1.Service](t, `
metadata: {name: web, namespace: shop}
spec:
  ports:
  - {name: a, port: 80, targetPort: http}
  - {name: b, port: 81}
  - {name: c, port: 82, targetPort: nobody-has-it}
  - {name: d, port: 53, protocol: UDP}
  - {name: e, port: 83, targetPort: metrics}
  - {name: f, port: 84, targetPort: 8084}`)
	node := object[corev1.Node](t, `metadata: {name: n1, labels: {topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z, topology.istio.io/subzone: s}}`)
	other := mesh
	other.TrustDomain, other.Network = "example.org", "net1"
	got, _ := Workload(other, pod, WorkloadInput{Node: node, Offers: []Offer{ServiceOffer(other, web)}, Policies: []string{"shop/deny"}})
	diff(t, got, message(t, `
uid: Kubernetes//Pod/shop/web-1
name: web-1
namespace: shop
addresses: [CgAAAQ==]
network: net1
trustDomain: example.org
serviceAccount: default
clusterId: Kubernetes
workloadName: web-1
workloadType: POD
canonicalName: web-1
canonicalRevision: latest
status: UNHEALTHY
authorizationPolicies: [shop/deny]
locality: {region: r, zone: z, subzone: s}
services:
  shop/web.shop.svc.cluster.local:
    ports:
    - {servicePort: 80, targetPort: 8080}
    - {servicePort: 81, targetPort: 81}
    - {servicePort: 83, targetPort: 9090}
    - {servicePort: 84, targetPort: 8084}
`, &workload.Workload{}))
	if a := WorkloadAliases(got); len(a) != 1 || a[0] != "net1/10.0.0.1" {
		t.Errorf("aliases %v", a)
	}
}
