package translate

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"lateen.dev/lateen/internal/model"
)

// An endpoint that names a pod has the pod itself serve the Service, on the slice's port, if it is that pod.
func TestASliceHasThePodServeThatItNames(t *testing.T) {
	const (
		head = "metadata: {name: s, namespace: shop, labels: {kubernetes.io/service-name: db}}\naddressType: IPv4\nports: [{name: http, port: 8080}, {name: other, port: 1}]\nendpoints: "
		db   = "metadata: {name: db, namespace: shop}\nspec: {ports: [{name: http, port: 80}, {name: admin, port: 81}]}"
		pod  = "metadata: {name: p, namespace: shop, uid: u}\nstatus: {podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: \"fd00::1\"}]}"
	)
	for _, c := range []struct{ name, endpoints, service, pod, want string }{
		{"by name and address", "[{addresses: [10.0.0.1], targetRef: {kind: Pod, name: p}}]", db, pod, "80:8080"},
		{"by namespace and uid, too", "[{addresses: [10.0.0.1], targetRef: {kind: Pod, namespace: shop, name: p, uid: u}}]", db, pod, "80:8080"},
		{"by its other address", "[{addresses: [\"fd00:0::1\"], targetRef: {kind: Pod, name: p}}]", db, pod, "80:8080"},
		{"among others", "[{addresses: [10.0.0.9]}, {addresses: [10.0.0.2], targetRef: {kind: Pod, name: q}}, {addresses: [10.0.0.1], targetRef: {kind: Pod, name: p}}]", db, pod, "80:8080"},
		{"that is ready", "[{addresses: [10.0.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: p}}]", db, pod, "80:8080"},
		{"not one that is not ready", "[{addresses: [10.0.0.1], conditions: {ready: false, serving: true, terminating: true}, targetRef: {kind: Pod, name: p}}]", db, pod, ""},
		{"unless the Service wants those", "[{addresses: [10.0.0.1], conditions: {ready: false}, targetRef: {kind: Pod, name: p}}]", strings.Replace(db, "spec: {", "spec: {publishNotReadyAddresses: true, ", 1), pod, "80:8080"},
		{"not another", "[{addresses: [10.0.0.1], targetRef: {kind: Pod, name: q}}]", db, pod, ""},
		{"not by address alone", "[{addresses: [10.0.0.1]}]", db, pod, ""},
		{"not by another kind", "[{addresses: [10.0.0.1], targetRef: {kind: Node, name: p}}]", db, pod, ""},
		{"not one of another namespace", "[{addresses: [10.0.0.1], targetRef: {kind: Pod, namespace: other, name: p}}]", db, pod, ""},
		{"not at an address that is not the pod's", "[{addresses: [10.0.0.2], targetRef: {kind: Pod, name: p}}]", db, pod, ""},
		{"not at no address", "[{addresses: [nowhere], targetRef: {kind: Pod, name: p}}]", db, pod, ""},
		{"not for one of that name that was there before", "[{addresses: [10.0.0.1], targetRef: {kind: Pod, name: p, uid: before}}]", db, pod, ""},
		{"not one that has ended", "[{addresses: [10.0.0.1], targetRef: {kind: Pod, name: p}}]", db, strings.Replace(pod, "status: {", "status: {phase: Succeeded, ", 1), ""},
		{"not for an alias in DNS", "[{addresses: [10.0.0.1], targetRef: {kind: Pod, name: p}}]", "metadata: {name: db, namespace: shop}\nspec: {type: ExternalName, externalName: x.example.com}", pod, ""},
	} {
		slice, svc, pod := object[discoveryv1.EndpointSlice](t, head+c.endpoints), object[corev1.Service](t, c.service), object[corev1.Pod](t, c.pod)
		got := ""
		if offer, ok := SliceOffer(mesh, slice, SlicePods(slice)[model.PodKey("shop", "p")], svc, pod); ok {
			w, _ := Workload(mesh, pod, WorkloadInput{Offers: []Offer{offer}})
			for _, p := range w.GetServices()["shop/db.shop.svc.cluster.local"].GetPorts() {
				got += fmt.Sprintf("%d:%d", p.ServicePort, p.TargetPort)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestSlicePods(t *testing.T) {
	slice := object[discoveryv1.EndpointSlice](t, `
metadata: {name: s, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints:
- {addresses: [10.0.0.1], targetRef: {kind: Pod, name: p}}
- {addresses: [10.0.0.2], targetRef: {kind: Pod, name: p}}
- {addresses: [10.0.0.3], targetRef: {kind: Pod, name: q, namespace: other}}
- {addresses: [10.0.0.4], targetRef: {kind: Node, name: n}}
- {addresses: [10.0.0.5]}`)
	if got := fmt.Sprint(SlicePods(slice)); got != "map[Pod shop/p:[0 1]]" {
		t.Errorf("it names %s", got)
	}
	slice.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	if got := SlicePods(slice); got != nil {
		t.Errorf("the controller's names %v", got)
	}
}

// Of a slice's endpoints those alone are looked at that are known to name the pod, and a slice is looked at again when a pod is elsewhere: what
// a thousand slices name of a thousand pods would else be gone through a million times.
func TestOnlyWhatNamesAPodIsLookedAt(t *testing.T) {
	slice := object[discoveryv1.EndpointSlice](t, `
metadata: {name: s, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.9]}, {addresses: [10.0.0.1], targetRef: {kind: Pod, name: p}}]`)
	svc, pod := object[corev1.Service](t, "metadata: {name: db, namespace: shop}"), object[corev1.Pod](t, "metadata: {name: p, namespace: shop, uid: u}\nstatus: {podIP: 10.0.0.1}")
	for _, c := range []struct {
		places []int
		want   bool
	}{{nil, false}, {[]int{0}, false}, {[]int{1}, true}, {[]int{0, 1}, true}, {[]int{2}, false}} {
		if _, got := SliceOffer(mesh, slice, c.places, svc, pod); got != c.want {
			t.Errorf("at %v: %v", c.places, got)
		}
	}
	for text, want := range map[string]bool{
		"metadata: {name: p, namespace: shop, uid: u, labels: {a: b}}\nstatus: {podIP: 10.0.0.1, conditions: [{type: Ready, status: 'True'}]}": true,
		"metadata: {name: p, namespace: shop, uid: other}\nstatus: {podIP: 10.0.0.1}":                                                          false,
		"metadata: {name: p, namespace: shop, uid: u}\nstatus: {podIP: 10.0.0.2}":                                                              false,
		"metadata: {name: p, namespace: shop, uid: u}\nstatus: {podIP: 10.0.0.1, phase: Failed}":                                               false,
	} {
		if got := SamePlace(pod, object[corev1.Pod](t, text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if SamePlace(nil, pod) || SamePlace(pod, nil) || SamePlace(nil, nil) {
		t.Error("a pod that comes or goes is where it was")
	}
}

func TestASliceTellsWhichEndpointsAreNotThePodsThatTheyName(t *testing.T) {
	slice := object[discoveryv1.EndpointSlice](t, `
metadata: {name: s, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints:
- {addresses: [10.0.0.1], targetRef: {kind: Pod, name: p}}
- {addresses: [10.0.0.2], targetRef: {kind: Pod, name: p}}
- {addresses: [10.0.0.1], targetRef: {kind: Pod, name: p, namespace: other}}
- {addresses: [10.0.0.1], targetRef: {kind: Pod, name: gone}}
- {addresses: [10.0.0.1], targetRef: {kind: Pod, name: p, uid: before}}`)
	pod := object[corev1.Pod](t, "metadata: {name: p, namespace: shop, uid: u}\nstatus: {podIP: 10.0.0.1}")
	_, conditions := EndpointSlice(mesh, slice, object[corev1.Service](t, "metadata: {name: db, namespace: shop}"), func(name string) *corev1.Pod {
		if name == "p" {
			return pod
		}
		return nil
	})
	message := conditions[0].Message
	for _, want := range []string{`endpoints[1] names pod p, which is not at address "10.0.0.2"`, "endpoints[2] names pod other/p of another namespace", "endpoints[3] names pod gone, which is not there", "endpoints[4] names a pod p that is gone"} {
		if !strings.Contains(message, want) {
			t.Errorf("it does not say %q: %s", want, message)
		}
	}
	if nothing, plain, _ := strings.Cut(message, "serves nothing"); !strings.Contains(nothing, "endpoints[3]") || strings.Contains(nothing, "endpoints[2]") || !strings.Contains(plain, "plain address") {
		t.Errorf("which serve nothing: %s", message)
	}
	if strings.Contains(message, "endpoints[0]") {
		t.Errorf("it finds fault with what is well: %s", message)
	}
}
