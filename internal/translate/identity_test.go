package translate

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

const (
	enrolledShop = `metadata: {name: shop, labels: {istio.io/dataplane-mode: ambient}}`
	webService   = "{metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, ports: [{name: http, port: 80}]}}"
	podStatus    = `status: {podIP: 10.0.0.1, conditions: [{type: Ready, status: "True"}]}`
)

// With its kubelet's credential a node makes mirror pods in every namespace, with labels of its choice.
func TestAPodWithoutAnIdentityIsNoWorkloadOfTheMesh(t *testing.T) {
	const wishes = "labels: {app: web, networking.istio.io/tunnel: http, istio.io/use-waypoint: wp, gateway.networking.k8s.io/gateway-name: wp}"
	for name, pod := range map[string]string{
		"no account":  "metadata: {name: p, namespace: shop, " + wishes + ", annotations: {ambient.istio.io/redirection: enabled}}\n",
		"a mirror":    "metadata: {name: p, namespace: shop, " + wishes + ", annotations: {ambient.istio.io/redirection: enabled, kubernetes.io/config.mirror: x}}\nspec: {serviceAccountName: web}\n",
		"its node's":  "metadata: {name: p, namespace: shop, " + wishes + ", ownerReferences: [{apiVersion: v1, kind: Node, name: n1, uid: u, controller: true}]}\nspec: {serviceAccountName: web}\n",
		"both, plain": "metadata: {name: p, namespace: shop, labels: {app: web}, annotations: {kubernetes.io/config.mirror: x}, ownerReferences: [{apiVersion: v1, kind: Node, name: n1, uid: u, controller: true}]}\n",
	} {
		plain := name == "both, plain"
		for _, namespace := range []string{"metadata: {name: shop}", "metadata: {name: shop, labels: {istio.io/dataplane-mode: none}}", enrolledShop} {
			proxy := &Waypoint{Namespace: "shop", Name: "wp", Traffic: "all", Address: addressed.Address, Tunnel: &workload.ApplicationTunnel{Port: 15088}}
			w, conditions := Workload(mesh, object[corev1.Pod](t, pod+podStatus), WorkloadInput{
				Offers:  []Offer{ServiceOffer(mesh, object[corev1.Service](t, webService))},
				Context: Context{Namespace: object[corev1.Namespace](t, namespace), Waypoints: waypoints(proxy)}})
			if w == nil || w.TunnelProtocol != workload.TunnelProtocol_NONE || w.NativeTunnel || w.ServiceAccount != "" || w.Waypoint != nil || w.ApplicationTunnel != nil {
				t.Errorf("%s: %v", name, w)
			}
			inMesh := namespace == enrolledShop
			if got := slices.Collect(maps.Keys(w.GetServices())); (len(got) == 0) != inMesh {
				t.Errorf("%s, %s: it serves %v", name, namespace, got)
			}
			said := conditions[0]
			switch {
			case plain && !inMesh:
				if said.Reason != "Accepted" {
					t.Errorf("%s, %s: what asks for nothing is told %v", name, namespace, said)
				}
			case said.Reason != reasonNoIdentity || inMesh != strings.Contains(said.Message, "it is no endpoint of shop/web.shop.svc.cluster.local") || plain == strings.Contains(said.Message, "have no effect"):
				t.Errorf("%s, %s: %v", name, namespace, said)
			}
		}
	}
}

func TestAPodWithAnIdentityServesInsideAndOutsideTheMesh(t *testing.T) {
	for _, namespace := range []string{"metadata: {name: shop}", enrolledShop} {
		w, conditions := Workload(mesh, object[corev1.Pod](t, "metadata: {name: p, namespace: shop, annotations: {ambient.istio.io/redirection: enabled}}\nspec: {serviceAccountName: web}\n"+podStatus),
			WorkloadInput{Offers: []Offer{ServiceOffer(mesh, object[corev1.Service](t, webService))}, Context: Context{Namespace: object[corev1.Namespace](t, namespace)}})
		if w.GetServiceAccount() != "web" || w.GetTunnelProtocol() != workload.TunnelProtocol_HBONE || len(w.GetServices()) != 1 || conditions[0].Reason != "Accepted" {
			t.Errorf("%s: %v, %v", namespace, w, conditions)
		}
	}
}
