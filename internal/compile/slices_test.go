package compile

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/log"
	"lateen.dev/lateen/internal/model"
)

var apiService = model.ServiceKey("default", "kubernetes")

// slice is a change that gives a Service endpoints at addresses.
func slice(name, service string, addresses ...string) model.Change {
	https, port := "https", int32(6443)
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &https, Port: &port}}}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	key := model.EndpointSliceKey("default", name)
	return model.Change{Key: key, Object: &model.Object{Key: key, Value: s}}
}

func service(port int32) model.Change {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: apiService.Name, Namespace: apiService.Namespace},
		Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Name: "https", Port: port}}}}
	return model.Change{Key: apiService, Object: &model.Object{Key: apiService, Value: svc}}
}

// sliced lists the endpoints of all slices, "slice/address port".
func (p *plane) sliced() string {
	p.t.Helper()
	var out []string
	for _, r := range p.log.Live(log.AddressType) {
		at, ok := strings.CutPrefix(r.Name, "Kubernetes/discovery.k8s.io/EndpointSlice/default/")
		if !ok {
			continue
		}
		p.get(log.AddressType, r.Name, func(v any) {
			for _, list := range v.(*workload.Address).GetWorkload().Services {
				for _, port := range list.Ports {
					if port.ServicePort == 443 {
						at += " ok"
					}
				}
			}
		})
		if len(r.Aliases) > 0 {
			p.t.Errorf("%s is found as %v", r.Name, r.Aliases)
		}
		out = append(out, at)
	}
	slices.Sort(out) // what one change makes is in no order
	return strings.Join(out, ", ")
}

func TestEndpointSlicesFollowTheirServices(t *testing.T) {
	p := newPlane(t)
	gone := func(key model.Key) model.Change { return model.Change{Key: key} }
	for _, step := range []struct {
		change model.Change
		want   string
	}{
		{slice("a", "kubernetes", "172.18.0.2", "172.18.0.3"), ""}, // its Service may come later
		{service(443), "a/172.18.0.2 ok, a/172.18.0.3 ok"},
		{slice("b", "kubernetes", "172.18.0.4"), "a/172.18.0.2 ok, a/172.18.0.3 ok, b/172.18.0.4 ok"},
		{slice("a", "kubernetes", "172.18.0.3"), "a/172.18.0.3 ok, b/172.18.0.4 ok"},
		{service(444), "a/172.18.0.3, b/172.18.0.4"}, // another port
		{service(443), "a/172.18.0.3 ok, b/172.18.0.4 ok"},
		{slice("b", "other", "172.18.0.4"), "a/172.18.0.3 ok"},
		{slice("b", "kubernetes", "172.18.0.4"), "a/172.18.0.3 ok, b/172.18.0.4 ok"},
		{gone(model.EndpointSliceKey("default", "a")), "b/172.18.0.4 ok"},
		{gone(apiService), ""},
	} {
		p.Apply([]model.Change{step.change})
		if got := p.sliced(); got != step.want {
			t.Fatalf("after %s: %s, want %s", step.change.Key, got, step.want)
		}
	}
	if c := p.condition(model.EndpointSliceKey("default", "b")); c.Reason != "NoService" {
		t.Errorf("condition %+v", c)
	}
	p.Apply([]model.Change{gone(model.EndpointSliceKey("default", "b"))})
	if len(p.slices) > 0 || len(p.endpoints) > 0 {
		t.Errorf("left: %v, %v", p.slices, p.endpoints)
	}
}

func TestAnEndpointSliceOfAFileHasNoEffect(t *testing.T) {
	p := newPlane(t)
	p.put("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a, namespace: default}\naddressType: IPv4\nendpoints: []\n")
	if c := p.condition(model.EndpointSliceKey("default", "a")); c.Reason != "NotImplemented" {
		t.Errorf("condition %+v", c)
	}
}
