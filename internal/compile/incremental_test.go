package compile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	networkingapi "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"lateen.dev/lateen/internal/model"
)

// TestStepByStepEndsWhereAllAtOnceDoes applies random edits one after another and compares the log with that of a compiler which sees the
// outcome only, as after a restart: with the assignments that the first one kept. So a restart changes no version of anything.
func TestStepByStepEndsWhereAllAtOnceDoes(t *testing.T) {
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 5))
		namespaces := []string{"shop", "other", "istio-system"}
		pick := func(options ...string) string { return options[rng.IntN(len(options))] }
		target := func() string {
			return "targetRefs: [" + pick("{group: gateway.networking.k8s.io, kind: Gateway, name: wp}", "{group: gateway.networking.k8s.io, kind: Gateway, name: s1}", "{group: gateway.networking.k8s.io, kind: GatewayClass, name: lateen-waypoint}, {group: gateway.networking.k8s.io, kind: GatewayClass, name: istio-waypoint}",
				"{kind: Service, name: s1}", "{kind: Service, name: s2}, {kind: Service, name: s0}", "{group: networking.istio.io, kind: ServiceEntry, name: se1}", "{group: networking.istio.io, kind: ServiceEntry, name: se2}, {kind: Other, name: x}") + "]"
		}
		live := map[model.Key]model.Object{}
		file := filepath.Join(t.TempDir(), "assignments.json")
		kept, err := LoadAssignments(file, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		p := newPlaneWith(t, kept)
		for range 120 {
			var changes []model.Change
			for range 1 + rng.IntN(3) {
				ns := pick(namespaces...)
				selector := pick("", "selector: {matchLabels: {app: a}}, ", "selector: {matchLabels: {app: b}}, ")
				var text string
				waypoint := pick("", "", "istio.io/use-waypoint: wp", "istio.io/use-waypoint: none", `istio.io/use-waypoint: ""`, "istio.io/use-waypoint: wp, istio.io/use-waypoint-namespace: other")
				var slice *model.Object
				switch rng.IntN(18) {
				case 17:
					text = fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: ra%d, namespace: %s}\nspec: {%s, jwtRules: [{issuer: x}]}\n", rng.IntN(2), ns, target())
				case 15, 16:
					text = authorization(ns, fmt.Sprint("ap", rng.IntN(4)), target()+", action: "+pick("ALLOW", "DENY", "AUDIT")+", rules: [{to: [{operation: {methods: [GET]}}], from: [{source: {principals: [old/ns/a/sa/b]}}]}]")
				case 14:
					text = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: %s}\ndata: {mesh: %q}\n", ns, pick("", "accessLogFile: /dev/stdout", "trustDomainAliases: [old]", "pathNormalization: {normalization: NONE}\ntrustDomainAliases: [old]", "enableTracing: true"))
				case 13:
					text = fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: %s}\nspec: {controllerName: %s}\n", pick("lateen-waypoint", "other"), pick("istio.io/mesh-controller", "example.com/else", "lateen.dev/waypoint-controller"))
				case 12:
					slice = sliceIn(ns, fmt.Sprint("es", rng.IntN(3)), fmt.Sprint("s", rng.IntN(3)), fmt.Sprint("p", rng.IntN(5)), fmt.Sprint("10.0.0.", rng.IntN(9)), rng.IntN(4) > 0)
				case 7, 8:
					text = fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: se%d, namespace: %s, labels: {app: a, %s}, creationTimestamp: 2026-01-0%dT00:00:00Z}\nspec: {hosts: [%s], ports: [{number: 80, name: http, protocol: HTTP}], %s}\n",
						rng.IntN(3), ns, waypoint, 1+rng.IntN(3), pick("a.example.com", "b.example.com", "s1.shop.svc.cluster.local", "a.example.com, b.example.com", `"*.example.com", b.example.com`),
						pick("resolution: DNS, endpoints: [{address: e.example.com}]", "resolution: STATIC, endpoints: [{address: 192.0.2.1}, {address: 192.0.2.2, network: far}]", "resolution: STATIC, endpoints: [{network: far}, {network: farther}, {network: far, weight: 2}]", "resolution: STATIC, workloadSelector: {labels: {app: a}}",
							"resolution: NONE, addresses: [192.0.2.0/24]", "resolution: STATIC, exportTo: [.], workloadSelector: {labels: {app: b}}", "resolution: STATIC, addresses: [240.240.1.1], workloadSelector: {labels: {app: c}}"))
				case 9:
					text = fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: we%d, namespace: %s, labels: {app: %s, %s}}\nspec: {%s}\n", rng.IntN(3), ns, pick("a", "b"), waypoint, pick("network: far", fmt.Sprintf("address: 192.0.2.%d, network: %s", rng.IntN(9), pick(`""`, "far"))))
				case 10:
					text = fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: %s, namespace: %s, labels: {istio.io/waypoint-for: %s}}\nspec: {gatewayClassName: %s, listeners: [{name: m, protocol: HBONE, port: 15008, allowedRoutes: {namespaces: {from: %s}}}]}\nstatus: {addresses: [%s]}\n",
						pick("wp", "s1"), ns, pick("service", "workload", "all", "none"), pick("istio-waypoint", "lateen-waypoint", "other"), pick("Same", "All", "Selector, selector: {matchLabels: {x: z}}"), pick("", "{type: IPAddress, value: 10.9.9.9}"))
				case 11:
					text = fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: far%d, namespace: %s, labels: {topology.istio.io/network: far}}\nspec: {gatewayClassName: istio-remote, listeners: [{name: m, protocol: HBONE, port: 15008}]}\nstatus: {addresses: [{value: 203.0.113.%d}]}\n", rng.IntN(2), ns, rng.IntN(3))
				case 0, 1:
					text = pod(ns, fmt.Sprint("p", rng.IntN(5)), fmt.Sprint("10.0.0.", rng.IntN(9)), pick("a", "b", "c"))
				case 2:
					text = fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: %s, labels: {%s}}\nspec: {%sclusterIP: None, ports: [{port: %d}]}\n", rng.IntN(3), ns, waypoint, pick("", "selector: {app: a}, ", "selector: {app: b}, "), 80+rng.IntN(2))
				case 3:
					text = authorization(ns, fmt.Sprint("ap", rng.IntN(4)), selector+"action: "+pick("ALLOW", "DENY", "AUDIT"))
				case 4:
					ports := ""
					if selector != "" {
						ports = pick("", "portLevelMtls: {80: {mode: STRICT}}, ", "portLevelMtls: {80: {mode: PERMISSIVE}, 81: {mode: STRICT}}, ")
					}
					text = peerAuthentication(ns, fmt.Sprint("pa", rng.IntN(3)), selector+ports+"mtls: {mode: "+pick("UNSET", "STRICT", "PERMISSIVE", "DISABLE")+"}")
				case 5:
					text = fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {topology.kubernetes.io/zone: %s}}\n", pick("z1", "z2"))
				case 6:
					text = fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {%s}, annotations: {networking.istio.io/traffic-distribution: %s}}\n", ns, pick(waypoint, "x: z"), pick("PreferClose", "PreferSameNode", "none"))
				}
				var o model.Object
				if slice != nil {
					o = *slice
				} else {
					o = decode(t, text)[0]
				}
				if se, ok := o.Value.(*networkingv1.ServiceEntry); ok && rng.IntN(2) == 0 { // as Istio left it
					se.Status.Addresses = []*networkingapi.ServiceEntryAddress{{Host: "a.example.com", Value: pick("240.240.1.1", "240.240.1.2")}, {Host: "b.example.com", Value: pick("240.240.1.2", "2001:2::1")}}
				}
				if rng.IntN(4) == 0 {
					delete(live, o.Key)
					changes = append(changes, model.Change{Key: o.Key})
				} else {
					live[o.Key] = o
					changes = append(changes, model.Change{Key: o.Key, Object: &o})
				}
			}
			p.Apply(changes)
		}
		// Policies keep what ServiceEntries have lost for a while.
		p.ties.now = func() time.Time { return time.Now().Add(leaveFor + 2*time.Second) }
		p.Settle(func() []GatewayProxy { return nil })
		again, err := LoadAssignments(file, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		fresh := newPlaneWith(t, again)
		var all []model.Change
		for _, key := range slices.SortedFunc(maps.Keys(live), model.Key.Compare) {
			o := live[key]
			all = append(all, model.Change{Key: key, Object: &o})
		}
		fresh.Apply(all)
		if got, want := p.versions(), fresh.versions(); !maps.Equal(got, want) {
			for k, v := range want {
				if got[k] != v {
					t.Errorf("seed %d: %s is %q, want %q", seed, k, got[k], v)
				}
			}
			for k := range got {
				if _, ok := want[k]; !ok {
					t.Errorf("seed %d: %s should be gone", seed, k)
				}
			}
		}
		said, want := p.said(), fresh.said()
		for key := range live {
			if a, b := said[key], want[key]; a == (model.Condition{}) || a.Reason != b.Reason || a.Message != b.Message {
				t.Errorf("seed %d: %s is told %q, want %q", seed, key, a.Message, b.Message)
			}
			if a, b := p.attached(key), fresh.attached(key); a != b {
				t.Errorf("seed %d: of %s it is said %s, want %s", seed, key, a, b)
			}
			if a, b := p.listeners(key), fresh.listeners(key); a != b {
				t.Errorf("seed %d: listeners of %s are told %s, want %s", seed, key, a, b)
			}
		}
	}
}
