package compile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
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
	for _, r := range p.log.Live(resourcekind.Address) {
		at, ok := strings.CutPrefix(r.Name, "Kubernetes/discovery.k8s.io/EndpointSlice/default/")
		if !ok {
			continue
		}
		p.get(resourcekind.Address, r.Name, func(v any) {
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
	if len(p.index.slices) > 0 || len(p.workloads.endpoints) > 0 {
		t.Errorf("left: %v, %v", p.index.slices, p.workloads.endpoints)
	}
}

func TestAnEndpointSliceOfAFileHasNoEffect(t *testing.T) {
	p := newPlane(t)
	p.put("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a, namespace: default}\naddressType: IPv4\nendpoints: []\n")
	if c := p.condition(model.EndpointSliceKey("default", "a")); c.Reason != "NotImplemented" {
		t.Errorf("condition %+v", c)
	}
}

// naming has a slice name a pod at an address, on port 8080 for the Service's https.
func naming(name, pod, address string) model.Change {
	ch := slice(name, "kubernetes", address)
	s := ch.Object.Value.(*discoveryv1.EndpointSlice)
	s.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: pod}
	port := int32(8080)
	s.Ports[0].Port = &port
	return ch
}

// sliceIn gives a Service of a namespace one endpoint, which may name a pod.
func sliceIn(namespace, name, service, pod, address string, names bool) *model.Object {
	ready, port, empty := true, int32(8080), ""
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &empty, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}}}
	if names {
		s.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: pod}
	}
	return &model.Object{Key: model.EndpointSliceKey(namespace, name), Value: s}
}

// Slice, Service and pod come and go in any order: the pod serves when all are there, and as they say then.
func TestAPodThatASliceNamesServesItsService(t *testing.T) {
	p := newPlane(t)
	gone := func(key model.Key) model.Change { return model.Change{Key: key} }
	web := func(address string) model.Change { return changes(t, pod("default", "web-1", address, "web"))[0] }
	const host = "default/kubernetes.default.svc.cluster.local"
	for i, step := range []struct {
		change model.Change
		want   string
	}{
		{naming("a", "web-1", "10.0.0.1"), ""},
		{service(443), ""},
		{web("10.0.0.1"), "443:8080"},
		{naming("a", "web-1", "10.0.0.2"), ""}, // where the pod is not
		{web("10.0.0.2"), "443:8080"},          // now it is
		{naming("a", "web-2", "10.0.0.2"), ""},
		{naming("b", "web-1", "10.0.0.2"), "443:8080"},
		{service(444), "444:8080"},
		{gone(apiService), ""},
		{service(443), "443:8080"},
		{gone(model.PodKey("default", "web-1")), ""},
		{web("10.0.0.2"), "443:8080"},
		{gone(model.EndpointSliceKey("default", "b")), ""},
	} {
		p.Apply([]model.Change{step.change})
		got := ""
		for name, list := range p.workload("default", "web-1").GetServices() {
			for _, port := range list.Ports {
				got += fmt.Sprintf("%d:%d", port.ServicePort, port.TargetPort)
			}
			if name != host {
				t.Errorf("step %d: it serves %s", i, name)
			}
		}
		if got != step.want {
			t.Errorf("step %d, after %s: it serves %q, want %q", i, step.change.Key, got, step.want)
		}
		at, elsewhere := p.sliced(), ""
		if i == 3 {
			elsewhere = "a/10.0.0.2 ok" // a plain address then
		}
		if at != elsewhere {
			t.Errorf("step %d: of the endpoint there are the workloads %q, want %q", i, at, elsewhere)
		}
	}
	if c := p.condition(model.EndpointSliceKey("default", "a")); c.Reason != "NoPod" || !strings.Contains(c.Message, "web-2, which is not there") {
		t.Errorf("condition %+v", c)
	}
	p.Apply([]model.Change{changes(t, pod("default", "web-2", "10.0.0.2", "web"))[0]})
	if c := p.condition(model.EndpointSliceKey("default", "a")); c.Reason != "Accepted" {
		t.Errorf("when the pod has come: %+v", c)
	}
	p.Apply([]model.Change{gone(model.EndpointSliceKey("default", "a")), gone(apiService)})
	if len(p.index.slices)+len(p.index.slicesOf)+len(p.workloads.endpoints) > 0 {
		t.Errorf("left: %v, %v, %v", p.index.slices, p.index.slicesOf, p.workloads.endpoints)
	}
}

// A pod that the Service's own selector chooses gets no second offer from a slice.
func TestASelectedPodIsOfferedOnce(t *testing.T) {
	p := newPlane(t)
	p.put(pod("default", "web-1", "10.0.0.1", "web") + "apiVersion: v1\nkind: Service\nmetadata: {name: kubernetes, namespace: default}\nspec: {selector: {app: web}, clusterIP: 10.96.0.1, ports: [{name: https, port: 443, targetPort: 9443}]}\n")
	p.Apply([]model.Change{naming("a", "web-1", "10.0.0.1"), naming("b", "web-1", "10.0.0.1")})
	list := p.workload("default", "web-1").GetServices()["default/kubernetes.default.svc.cluster.local"]
	if len(list.GetPorts()) != 1 || list.Ports[0].TargetPort != 9443 {
		t.Errorf("it serves %v", list)
	}
}
