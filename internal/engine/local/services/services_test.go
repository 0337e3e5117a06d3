package services

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func pod(name, ip string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: 8080}, {Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func service(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.5", Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}}},
	}
	if change != nil {
		change(s)
	}
	return s
}

func backends(s Service) []string {
	out := []string{}
	for _, p := range s.Ports {
		for _, b := range p.Backends {
			out = append(out, b.String())
		}
	}
	return out
}

func TestOnlyPodsThatTakeTrafficAreBackends(t *testing.T) {
	now := metav1.NewTime(time.Now())
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"ready":             {nil, true},
		"not ready":         {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, false},
		"says nothing":      {func(p *corev1.Pod) { p.Status.Conditions = nil }, false},
		"pending":           {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, false},
		"ending":            {func(p *corev1.Pod) { p.DeletionTimestamp = &now }, false},
		"no address":        {func(p *corev1.Pod) { p.Status.PodIP = "" }, false},
		"other labels":      {func(p *corev1.Pod) { p.Labels = map[string]string{"app": "db"} }, false},
		"more labels":       {func(p *corev1.Pod) { p.Labels["v"] = "1" }, true},
		"another namespace": {func(p *corev1.Pod) { p.Namespace = "other" }, false},
		"port not named":    {func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil }, false},
	} {
		got := Resolve([]*corev1.Service{service(nil)}, []*corev1.Pod{pod("a", "10.244.1.2", tc.change)})
		if has := len(backends(got[0])) == 1; has != tc.want {
			t.Errorf("%s: backend %v, want %v", name, has, tc.want)
		}
	}
}

func TestPorts(t *testing.T) {
	for name, tc := range map[string]struct {
		port corev1.ServicePort
		want []string
	}{
		"named":               {corev1.ServicePort{Port: 80, TargetPort: intstr.FromString("http")}, []string{"10.244.1.2:8080"}},
		"numbered":            {corev1.ServicePort{Port: 80, TargetPort: intstr.FromInt32(9090)}, []string{"10.244.1.2:9090"}},
		"the same by default": {corev1.ServicePort{Port: 80}, []string{"10.244.1.2:80"}},
		"named and of UDP":    {corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString("dns")}, []string{"10.244.1.2:53"}},
		"of another protocol": {corev1.ServicePort{Port: 53, TargetPort: intstr.FromString("dns")}, []string{}},
	} {
		svc := service(func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{tc.port} })
		if got := backends(Resolve([]*corev1.Service{svc}, []*corev1.Pod{pod("a", "10.244.1.2", nil)})[0]); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func TestAnswerDoesNotDependOnOrder(t *testing.T) {
	a, b := pod("a", "10.244.1.2", nil), pod("b", "10.244.2.2", nil)
	s, u := service(nil), service(func(s *corev1.Service) { s.Name = "another" })
	x := Resolve([]*corev1.Service{s, u}, []*corev1.Pod{a, b})
	y := Resolve([]*corev1.Service{u, s}, []*corev1.Pod{b, a})
	if !reflect.DeepEqual(x, y) || x[0].Name != "another" {
		t.Errorf("%v differs from %v", x, y)
	}
}

func TestSpecialServices(t *testing.T) {
	pods := []*corev1.Pod{pod("a", "10.244.1.2", nil), pod("b", "10.244.1.3", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })}
	headless := Resolve([]*corev1.Service{service(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })}, pods)[0]
	if headless.ClusterIP.IsValid() || !reflect.DeepEqual(headless.Pods, []netip.Addr{netip.MustParseAddr("10.244.1.2")}) {
		t.Errorf("headless: %+v", headless)
	}
	all := Resolve([]*corev1.Service{service(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true })}, pods)[0]
	if len(all.Pods) != 2 {
		t.Errorf("publishNotReadyAddresses: %+v", all)
	}
	none := Resolve([]*corev1.Service{service(func(s *corev1.Service) { s.Spec.Selector = nil })}, pods)[0]
	if len(none.Pods) != 0 {
		t.Errorf("no selector: %+v", none)
	}
	external := Resolve([]*corev1.Service{service(func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
	})}, pods)[0]
	if external.External != "example.com" || len(external.Ports) != 0 {
		t.Errorf("external: %+v", external)
	}
}

func TestOnlyPodsThatNameTheServiceAsTheirSubdomainHaveNamesBelowIt(t *testing.T) {
	named := func(hostname, subdomain string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = hostname, subdomain }
	}
	pods := []*corev1.Pod{
		pod("b", "10.244.1.3", named("b", "web")), pod("a", "10.244.1.2", named("a", "web")),
		pod("other", "10.244.1.4", named("other", "db")), pod("short", "10.244.1.5", named("short", "")), pod("sub", "10.244.1.6", named("", "web")),
	}
	addr := netip.MustParseAddr
	want := []Host{{"a", addr("10.244.1.2")}, {"b", addr("10.244.1.3")}}
	if got := Resolve([]*corev1.Service{service(func(s *corev1.Service) { s.Spec.ClusterIP = "None" })}, pods)[0].Hosts; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
