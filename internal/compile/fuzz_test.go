package compile

import (
	"testing"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
)

// FuzzCompile gives the compiler whatever the decoder takes: no panic, every resource decodes and is one that proxies take, and removing the objects again leaves nothing.
func FuzzCompile(f *testing.F) {
	for _, text := range []string{
		pod("shop", "web-1", "10.0.0.1", "web") + authorization("shop", "a", "selector: {matchLabels: {app: web}}, action: DENY, rules: [{to: [{operation: {paths: [/x]}}]}]"),
		serviceEntry("shop", "a", "01", "hosts: [a.example.com, \"*.example.com\"], resolution: STATIC, exportTo: [., x], endpoints: [{address: 192.0.2.1, network: far, locality: a/b}]"),
		"apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: vm, labels: {istio.io/use-waypoint: wp}}\nspec: {address: 192.0.2.1, labels: {app: web}, weight: 3}\n",
		"apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: wp, annotations: {ambient.istio.io/waypoint-inbound-binding: PROXY/1}, labels: {topology.istio.io/network: far}}\nspec: {gatewayClassName: istio-remote, addresses: [{value: x}], listeners: [{name: m, protocol: HBONE, port: 15008, allowedRoutes: {namespaces: {from: Selector, selector: {matchExpressions: [{key: a, operator: In, values: [b]}]}}}}]}\n",
		peerAuthentication("shop", "x", "selector: {matchLabels: {a: b}}, portLevelMtls: {80: {mode: STRICT}}"),
		"apiVersion: v1\nkind: Service\nmetadata: {name: wp, annotations: {networking.istio.io/exportTo: \".,x\"}}\nspec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}\n",
		requestMesh,
	} {
		f.Add([]byte(text))
	}
	for _, text := range odd {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, _ := files.Decode("f", data)
		p := newPlane(t)
		var put, removed []model.Change
		for _, o := range objects {
			put = append(put, model.Change{Key: o.Key, Object: &o})
			removed = append(removed, model.Change{Key: o.Key})
		}
		p.Apply(put)
		for _, typeURL := range p.log.Types() {
			for _, r := range p.log.Live(typeURL) {
				if _, err := r.Decode(); err != nil {
					t.Fatal(err)
				}
			}
		}
		p.taken()
		p.Apply(put)
		p.Apply(removed)
		for _, typeURL := range p.log.Types() {
			for _, r := range p.log.Live(typeURL) {
				t.Errorf("%s is left", r.Name)
			}
		}
	})
}
