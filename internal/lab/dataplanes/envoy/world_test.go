package envoy

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func workload(name, app, address, identity string) Workload {
	return Workload{
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": app}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 9090}}}}},
		},
		Address: netip.MustParseAddr(address), Identity: identity, Dir: "/run/" + name,
	}
}

func service(name, app, address string, port corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: address, Selector: map[string]string{"app": app}, Ports: []corev1.ServicePort{port}},
	}
}

func world() []Workload {
	return []Workload{
		workload("client-1", "client", "10.244.1.2", clientIdentity),
		workload("echo-1", "echo", "10.244.2.3", echoIdentity),
		workload("echo-2", "echo", "10.244.2.4", echoIdentity),
	}
}

func TestEachPodReachesAllServicesAndAdmitsEverybody(t *testing.T) {
	elsewhere := service("elsewhere", "echo", "10.96.0.10", corev1.ServicePort{Name: "http", Port: 8080})
	elsewhere.Namespace = "other"
	headless := service("headless", "echo", corev1.ClusterIPNone, corev1.ServicePort{Name: "http", Port: 8080})
	again := service("again", "echo", corev1.ClusterIPNone, corev1.ServicePort{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)})
	manual := service("manual", "", "10.96.0.11", corev1.ServicePort{Name: "http", Port: 8080})
	manual.Spec.Selector = nil
	pods, err := Pods(world(), []*corev1.Service{
		service("echo", "echo", "10.96.0.7", corev1.ServicePort{Name: "http", Port: 8080}),
		service("mapped", "echo", "10.96.0.8", corev1.ServicePort{Name: "http-web", Port: 80, TargetPort: intstr.FromInt32(8081)}),
		service("named", "echo", "10.96.0.9", corev1.ServicePort{Port: 81, AppProtocol: new("http"), TargetPort: intstr.FromString("web")}),
		service("nobody", "nobody", "10.96.0.12", corev1.ServicePort{Name: "http", Port: 8080}),
		service("store", "echo", "10.96.0.13", corev1.ServicePort{Name: "tcp", Port: 90, TargetPort: intstr.FromInt32(9091)}),
		service("unnamed", "echo", "10.96.0.14", corev1.ServicePort{Port: 91, TargetPort: intstr.FromInt32(9091)}),
		service("typed", "echo", "10.96.0.15", corev1.ServicePort{Name: "http-db", AppProtocol: new("redis"), Port: 6379}),
		elsewhere, headless, again, manual,
	}, nil, Settings{Protocol: HTTP1, ExactBalance: true})
	if err != nil {
		t.Fatal(err)
	}
	behind := func(name, address string, port uint16, endpoints ...string) Service {
		s := Service{Name: "default/" + name, Address: netip.MustParseAddr(address), Port: port, Identities: []string{echoIdentity}}
		for _, e := range endpoints {
			s.Endpoints = append(s.Endpoints, netip.MustParseAddrPort(e))
		}
		return s
	}
	bytes := func(s Service) Service {
		s.TCP = true
		return s
	}
	want := []Service{
		behind("echo", "10.96.0.7", 8080, "10.244.2.3:8080", "10.244.2.4:8080"),
		behind("mapped", "10.96.0.8", 80, "10.244.2.3:8081", "10.244.2.4:8081"),
		behind("named", "10.96.0.9", 81, "10.244.2.3:9090", "10.244.2.4:9090"),
		bytes(behind("store", "10.96.0.13", 90, "10.244.2.3:9091", "10.244.2.4:9091")),
		bytes(behind("unnamed", "10.96.0.14", 91, "10.244.2.3:9091", "10.244.2.4:9091")),
		bytes(behind("typed", "10.96.0.15", 6379, "10.244.2.3:6379", "10.244.2.4:6379")),
		// Each of its pods by its own address, and once.
		behind("headless/echo-1", "10.244.2.3", 8080, "10.244.2.3:8080"),
		behind("headless/echo-2", "10.244.2.4", 8080, "10.244.2.4:8080"),
	}
	if len(pods) != 3 {
		t.Fatalf("got %d pods", len(pods))
	}
	for i, w := range world() {
		p := pods[i]
		if p.Name != "default/"+w.Pod.Name || p.Dir != w.Dir || p.Settings != (Settings{Protocol: HTTP1, ExactBalance: true}) {
			t.Errorf("got %+v for pod %s", p, w.Pod.Name)
		}
		if !reflect.DeepEqual(p.Services, want) {
			t.Errorf("%s reaches %+v, want %+v", p.Name, p.Services, want)
		}
		var tcp []uint16
		if w.Pod.Labels["app"] == "echo" {
			tcp = []uint16{6379, 9091}
		}
		if !slices.Equal(p.TCP, tcp) {
			t.Errorf("%s takes bytes on %v, want %v", p.Name, p.TCP, tcp)
		}
		if !reflect.DeepEqual(p.Admits, []Rule{{Name: "everybody", Callers: []string{clientIdentity, echoIdentity}}}) {
			t.Errorf("%s admits %v", p.Name, p.Admits)
		}
		if _, err := Bootstrap(p); err != nil {
			t.Error(err)
		}
	}
}

func TestServicesThatThePairCannotCarryAreRefused(t *testing.T) {
	for want, port := range map[string]corev1.ServicePort{
		`port "grpc-a" (8080): the pair of Envoys carries HTTP/1`:  {Name: "grpc-a", Port: 8080},
		`port "x" (8080): the pair of Envoys carries HTTP/1.1 an`:  {Name: "x", Port: 8080, AppProtocol: new("kubernetes.io/h2c")},
		`port "http" (53): the pair of Envoys carries no UDP: le`:  {Name: "http", Port: 53, Protocol: corev1.ProtocolUDP},
		`targetPort "none": pod echo-1 has no container port of t`: {Name: "http", Port: 80, TargetPort: intstr.FromString("none")},
	} {
		_, err := Pods(world(), []*corev1.Service{service("echo", "echo", "10.96.0.7", port)}, nil, Settings{Protocol: HTTP2})
		if err == nil || !strings.Contains(err.Error(), "service default/echo: "+want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

// The receiving proxy is told by the port alone what comes; two answers cannot both hold.
func TestAPortIsNotHTTPAndTCP(t *testing.T) {
	_, err := Pods(world(), []*corev1.Service{
		service("echo", "echo", "10.96.0.7", corev1.ServicePort{Name: "http", Port: 8080}),
		service("store", "echo", "10.96.0.8", corev1.ServicePort{Name: "tcp", Port: 90, TargetPort: intstr.FromInt32(8080)}),
	}, nil, Settings{Protocol: HTTP2})
	if want := "service default/store: port 90 leads to 10.244.2.3:8080, which is HTTP to one service and TCP to another"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v does not say %q", err, want)
	}
}
