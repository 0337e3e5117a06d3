package local

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/fabric"
)

// userObjectsOf returns the objects of a manifest, for which no process runs.
func userObjectsOf(t *testing.T, manifest string) *userObjects {
	t.Helper()
	u := newUserObjects(newState(nil, newStore(t.TempDir(), []*fabric.Family{fabric.IPv4}, time.Now, newUID)), nil)
	if err := u.addNamespace("default"); err != nil {
		t.Fatal(err)
	}
	if res, _ := u.apply(api.ApplyRequest{Documents: []api.Document{{File: "x.yaml", Data: []byte(manifest)}}}); len(res.Problems) > 0 {
		t.Fatalf("%+v", res.Problems)
	}
	return u
}

// A node proxy's pod goes with its node alone. A request for all pods must not pass over it in silence.
func TestDeleteNamesTheNodeProxyThatStays(t *testing.T) {
	u := userObjectsOf(t, "")
	n := &node{name: "n1"}
	u.state.nodes = []*node{n}
	key := api.Key{Kind: "Pod", Namespace: meshNamespace, Name: n.proxyPodName()}
	for _, dry := range []bool{false, true} {
		res, _ := u.delete(api.DeleteRequest{Keys: []api.Key{key}, IgnoreNotFound: true, DryRun: dry})
		if len(res.Results) > 0 || len(res.Problems) != 1 || res.Problems[0].Object != key.String() || !strings.Contains(res.Problems[0].Message, "proxy of node n1") {
			t.Errorf("dry run %v: %+v", dry, res)
		}
	}
}

const twoGateways = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: default}
spec:
  gatewayClassName: istio-waypoint
  listeners: [{name: mesh, port: 15008, protocol: HBONE}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: default}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]
`

func groupsLeft(u *userObjects) (groups []string) {
	for _, o := range u.state.store.list("Gateway") {
		groups = append(groups, o.Key.Group)
	}
	slices.Sort(groups)
	return groups
}

func TestDeleteKeepsToTheGroup(t *testing.T) {
	const istio, k8s = "networking.istio.io", "gateway.networking.k8s.io"
	documents := strings.Split(twoGateways, "---\n")
	key := api.Key{Kind: "Gateway", Namespace: "default", Name: "gw"}
	for removed, left := range map[string]string{istio: k8s, k8s: istio} {
		u := userObjectsOf(t, twoGateways)
		named := key
		named.Group = removed
		if res, _ := u.delete(api.DeleteRequest{Keys: []api.Key{named}}); len(res.Problems) > 0 || !slices.Equal(groupsLeft(u), []string{left}) {
			t.Errorf("by name, %s: %v left, %+v", removed, groupsLeft(u), res.Problems)
		}
		// The same again finds nothing, whatever else has the name.
		if res, _ := u.delete(api.DeleteRequest{Keys: []api.Key{named}}); len(res.Problems) != 1 || len(groupsLeft(u)) != 1 {
			t.Errorf("again, %s: %v left, %+v", removed, groupsLeft(u), res.Problems)
		}
		// One is left, so a name without a group means that one.
		if res, _ := u.delete(api.DeleteRequest{Keys: []api.Key{key}}); len(res.Problems) > 0 || len(groupsLeft(u)) != 0 {
			t.Errorf("the only one: %v left, %+v", groupsLeft(u), res.Problems)
		}
		u = userObjectsOf(t, twoGateways)
		document := documents[0]
		if removed == istio {
			document = documents[1]
		}
		if res, _ := u.delete(api.DeleteRequest{Documents: []api.Document{{File: "x.yaml", Data: []byte(document)}}}); len(res.Problems) > 0 || !slices.Equal(groupsLeft(u), []string{left}) {
			t.Errorf("by file, %s: %v left, %+v", removed, groupsLeft(u), res.Problems)
		}
	}
	u := userObjectsOf(t, twoGateways)
	want := "write gateways.gateway.networking.k8s.io or gateways.networking.istio.io"
	if res, _ := u.delete(api.DeleteRequest{Keys: []api.Key{key}, IgnoreNotFound: true}); len(res.Problems) != 1 || !strings.Contains(res.Problems[0].Fix, want) || len(groupsLeft(u)) != 2 {
		t.Errorf("ambiguous: %v left, %+v", groupsLeft(u), res.Problems)
	}
	if _, err := u.patch(api.PatchRequest{Key: key, Patch: []byte(`{"metadata":{"labels":{"a":"b"}}}`)}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a patch of an ambiguous name: %v", err)
	}
	key.Group = istio
	if _, err := u.patch(api.PatchRequest{Key: key, Patch: []byte(`{"metadata":{"labels":{"a":"b"}}}`)}); err != nil {
		t.Error(err)
	}
	for _, o := range u.state.store.list("Gateway") {
		if (o.labels()["a"] == "b") != (o.Key.Group == istio) {
			t.Errorf("%s of %s has labels %v", o.Key, o.Key.Group, o.labels())
		}
	}
}
