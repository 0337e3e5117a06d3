package compile

import (
	"slices"
	"testing"

	"lateen.dev/lateen/internal/model"
)

// aMesh has at least one object of each declared kind, and for each declared edge an object with a dependent.
const aMesh = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio.io/use-waypoint: wp}}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: v1
kind: Pod
metadata: {name: p1, namespace: shop, labels: {app: a}}
spec: {nodeName: n1, hostname: p1, subdomain: wp, containers: [{name: c}]}
status: {podIP: 10.0.0.1, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Service
metadata: {name: wp, namespace: shop}
spec: {clusterIP: 10.96.0.1, selector: {app: a}, ports: [{port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: short, namespace: other}
spec: {hosts: [wp.shop, p1.wp], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, workloadSelector: {labels: {app: a}}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: we, namespace: other, labels: {app: a}}
spec: {address: 192.0.2.1}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: lateen-waypoint}
spec: {controllerName: lateen.dev/waypoint-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: wp, namespace: shop}
spec: {gatewayClassName: lateen-waypoint, listeners: [{name: m, protocol: HBONE, port: 15008}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: ap, namespace: shop}
spec: {selector: {matchLabels: {app: a}}, rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: pa, namespace: shop}
spec: {selector: {matchLabels: {app: a}}, mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: class, namespace: istio-system}
spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: GatewayClass, name: lateen-waypoint}], rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: ra, namespace: shop}
spec: {targetRefs: [{kind: Service, name: wp}], jwtRules: [{issuer: x}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "accessLogFile: /dev/stdout"}
`

// An object that comes or goes marks an output along every edge that its kind declares: no edge is dead.
func TestEveryDeclaredEdgeLeadsToAnOutput(t *testing.T) {
	all := changes(t, aMesh)
	slice := sliceIn("shop", "es", "wp", "p1", "10.0.0.9", true)
	all = append(all, model.Change{Key: slice.Key, Object: slice})
	for i := range sources {
		s := &sources[i]
		at := slices.IndexFunc(all, func(ch model.Change) bool { return ch.Key.Group == s.group && ch.Key.Kind == s.kind })
		if at < 0 {
			t.Errorf("the mesh has no %s", s.kind)
			continue
		}
		key, object := all[at].Key, all[at].Object
		follow := func(p *plane, ch model.Changed, led []bool) {
			for _, update := range s.feeds {
				update(p.index, ch)
			}
			for n, e := range s.edges {
				b := newBatch(0)
				if e.when == nil || e.when(ch) {
					e.keys(p.index, ch, marker{b, e.to})
				}
				led[n] = led[n] || len(b.stale[e.to]) > 0
			}
		}
		led := make([]bool, len(s.edges))
		comes := newPlane(t)
		comes.Apply(slices.Delete(slices.Clone(all), at, at+1))
		follow(comes, model.Changed{Key: key, New: object}, led)
		goes := newPlane(t)
		goes.Apply(all)
		goes.remove(model.ServiceKey("shop", "wp")) // a namespace lets go of its names only after its last Service
		follow(goes, model.Changed{Key: key, Old: object}, led)
		for n, e := range s.edges {
			if !led[n] {
				t.Errorf("%s: edge %d to output %d leads nowhere", s.kind, n, e.to)
			}
		}
	}
}
