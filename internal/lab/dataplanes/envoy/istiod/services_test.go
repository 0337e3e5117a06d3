package istiod

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/lab/dataplanes/envoy"
)

func service(name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, Selector: map[string]string{"app": "echo"}, Ports: ports}}
}

func workload(name, ip string) envoy.Workload {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "echo", "version": "v1"}}}
	pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}}}
	return envoy.Workload{Pod: pod, Address: netip.MustParseAddr(ip)}
}

func TestServicesOfObjects(t *testing.T) {
	objects := []*corev1.Service{
		service("zoo", "10.96.0.8", corev1.ServicePort{Name: "tcp", Port: 90}),
		service("echo", "10.96.0.7", corev1.ServicePort{Name: "http-web", Port: 80, TargetPort: intstr.FromString("web")}, corev1.ServicePort{Name: "grpc", Port: 82, TargetPort: intstr.FromInt32(8080)}),
		service("headless", corev1.ClusterIPNone, corev1.ServicePort{Name: "udp", Port: 1, Protocol: corev1.ProtocolUDP}),
	}
	bare := service("bare", "10.96.0.9", corev1.ServicePort{Name: "http", Port: 80})
	bare.Spec.Selector = nil
	other := workload("other-1", "10.244.2.9")
	other.Pod.Labels = map[string]string{"app": "other"}
	attached := policy(t, "attached", `{targetRefs: [{kind: Service, group: "", name: echo}]}`)
	forPods := policy(t, "pods", `{selector: {matchLabels: {app: echo}}}`)
	elsewhere := policy(t, "elsewhere", `{targetRefs: [{kind: Service, group: "", name: echo}]}`)
	elsewhere.Namespace = "shop"
	got, err := Services(append(objects, bare), []envoy.Workload{workload("echo-2", "10.244.2.8"), workload("echo-1", "10.244.2.7"), other}, []*securityv1.AuthorizationPolicy{forPods, elsewhere, attached})
	if err != nil {
		t.Fatal(err)
	}
	behind := func(port string) []Endpoint {
		return []Endpoint{
			{Address: netip.MustParseAddrPort("10.244.2.7:" + port), Workload: "echo-1;default;echo;v1;Kubernetes"},
			{Address: netip.MustParseAddrPort("10.244.2.8:" + port), Workload: "echo-2;default;echo;v1;Kubernetes"},
		}
	}
	want := []Service{
		{Namespace: "default", Name: "echo", Address: netip.MustParseAddr("10.96.0.7"), Policies: []*securityv1.AuthorizationPolicy{attached}, Ports: []Port{
			{Protocol: HTTP, Number: 80, Endpoints: behind("8080")}, {Protocol: GRPC, Number: 82, Endpoints: behind("8080")},
		}},
		{Namespace: "default", Name: "zoo", Address: netip.MustParseAddr("10.96.0.8"), Ports: []Port{{Protocol: TCP, Number: 90, Endpoints: behind("90")}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestAPortThatNobodyCanReadIsRefused(t *testing.T) {
	for want, port := range map[string]corev1.ServicePort{
		"name the port http, grpc or tcp": {Name: "web", Port: 80},
		"carries no UDP":                  {Name: "http", Port: 80, Protocol: corev1.ProtocolUDP},
		"no container port of that name":  {Name: "http", Port: 80, TargetPort: intstr.FromString("none")},
	} {
		if _, err := Services([]*corev1.Service{service("echo", "10.96.0.7", port)}, []envoy.Workload{workload("echo-1", "10.244.2.7")}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := Services([]*corev1.Service{service("echo", "none of any")}, nil, nil); err == nil || !strings.Contains(err.Error(), "clusterIP") {
		t.Errorf("an address that is none: %v", err)
	}
}
