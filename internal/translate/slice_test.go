package translate

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

const apiService = `
metadata: {name: kubernetes, namespace: default}
spec: {clusterIP: 10.96.0.1, ports: [{name: https, port: 443, targetPort: 6443, protocol: TCP}]}
`

func TestEndpointSlicesOfServicesWithoutSelectors(t *testing.T) {
	const selecting = `
metadata: {name: kubernetes, namespace: default}
spec: {selector: {app: x}, ports: [{name: https, port: 443}]}
`
	for _, c := range []struct {
		name, slice, service, want, condition string
	}{
		{"the API server's", `
metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
ports: [{name: https, port: 6443, protocol: TCP}]
endpoints: [{addresses: [172.18.0.2], conditions: {ready: true}}, {addresses: [172.18.0.3]}, {addresses: [172.18.0.4], conditions: {ready: false}}, {addresses: [172.18.0.2]}]`,
			apiService, "172.18.0.2 HEALTHY 443:6443, 172.18.0.3 HEALTHY 443:6443, 172.18.0.4 UNHEALTHY 443:6443", "True Accepted"},
		{"ports by name", `
metadata: {name: s, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv6
ports: [{name: other, port: 1}, {name: https, port: 2, protocol: UDP}, {name: https, port: 3}]
endpoints: [{addresses: ["fd00::1"], nodeName: n1, zone: z}]`,
			apiService, "fd00::1 HEALTHY 443:3 on n1 in z", "True Accepted"},
		{"a port without a name", `
metadata: {name: s, namespace: default, labels: {kubernetes.io/service-name: one}}
addressType: IPv4
ports: [{name: "", port: 8080}]
endpoints: [{addresses: [192.0.2.1]}]`,
			"metadata: {name: one, namespace: default}\nspec: {ports: [{port: 80}]}", "192.0.2.1 HEALTHY 80:8080", "True Accepted"},
		{"pods that a selector finds speak for themselves", `
metadata: {name: s, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
ports: [{name: https, port: 3}]
endpoints: [{addresses: [10.0.0.1], targetRef: {kind: Pod, name: p}}, {addresses: [192.0.2.1]}]`, selecting, "192.0.2.1 HEALTHY 443:3", "True Accepted"},
		{"pods that no selector finds, too", `
metadata: {name: s, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
ports: [{name: https, port: 3}]
endpoints: [{addresses: [10.0.0.1], targetRef: {kind: Pod, name: p}}, {addresses: [10.0.0.1], targetRef: {kind: Node, name: p}}]`, apiService, "10.0.0.1 HEALTHY 443:3", "True Accepted"},
		{"one that names a pod which is elsewhere is a plain address", `
metadata: {name: s, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
ports: [{name: https, port: 3}]
endpoints: [{addresses: [10.0.0.1], targetRef: {kind: Pod, name: p, namespace: other}}, {addresses: [10.0.0.2], targetRef: {kind: Pod, name: p}}, {addresses: [10.0.0.1], targetRef: {kind: Pod, name: q}}]`, apiService, "10.0.0.1 HEALTHY 443:3, 10.0.0.2 HEALTHY 443:3", "True NoPod"},
		{"nor is one a workload whose pod is gone", `
metadata: {name: s, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
ports: [{name: https, port: 3}]
endpoints: [{addresses: [10.0.0.1], targetRef: {kind: Pod, name: q}}, {addresses: [10.0.0.3], targetRef: {kind: Pod, name: p, uid: before}}, {targetRef: {kind: Pod, name: p, namespace: other}}]`, apiService, "", "True NoPod"},
		{"the controller's", `
metadata: {name: s, namespace: default, labels: {kubernetes.io/service-name: kubernetes, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}]`, apiService, "", "True Accepted"},
		{"nobody's", "metadata: {name: s, namespace: default}\naddressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}]", apiService, "", "True Accepted"},
		{"of a service that is not there", "metadata: {name: s, namespace: default, labels: {kubernetes.io/service-name: none}}\naddressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}]", "", "", "False NoService"},
		{"names", "metadata: {name: s, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}\naddressType: FQDN\nendpoints: [{addresses: [a.example]}]", apiService, "", "False UnsupportedValue"},
		{"no address", "metadata: {name: s, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}\naddressType: IPv4\nendpoints: [{addresses: [nowhere]}, {}]", apiService, "", "True InvalidAddress"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var svc *corev1.Service
			if c.service != "" {
				svc = object[corev1.Service](t, c.service)
			}
			slice := object[discoveryv1.EndpointSlice](t, c.slice)
			workloads, conditions := EndpointSlice(mesh, slice, svc, func(name string) *corev1.Pod {
				if name != "p" {
					return nil
				}
				return object[corev1.Pod](t, "metadata: {name: p, namespace: default, uid: u}\nstatus: {podIP: 10.0.0.1}")
			})
			var got []string
			for _, w := range workloads {
				addr, _ := netip.AddrFromSlice(w.Addresses[0])
				text := fmt.Sprintf("%s %s", addr, w.Status)
				for host, list := range w.Services {
					if host != mesh.ServiceResource(svc.Namespace, svc.Name) {
						t.Errorf("it serves %s", host)
					}
					for _, p := range list.Ports {
						text += fmt.Sprintf(" %d:%d", p.ServicePort, p.TargetPort)
					}
				}
				if w.Node != "" {
					text += " on " + w.Node + " in " + w.Locality.Zone
				}
				got = append(got, text)
				if w.NetworkMode != workload.NetworkMode_HOST_NETWORK || w.TunnelProtocol != workload.TunnelProtocol_NONE || w.ServiceAccount != "" {
					t.Errorf("%s claims to be who is there: %v", addr, w)
				}
				if want := "Kubernetes/discovery.k8s.io/EndpointSlice/default/" + slice.Name + "/" + addr.String(); w.Uid != want {
					t.Errorf("uid %s, want %s", w.Uid, want)
				}
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), c.want)
			}
			if said := fmt.Sprint(conditions[0].Status, " ", conditions[0].Reason); said != c.condition {
				t.Errorf("condition %s: %s", said, conditions[0].Message)
			}
		})
	}
}
