package local

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	appsv1 "k8s.io/api/apps/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/model"
)

const waypointManifest = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: way}
spec: {gatewayClassName: lateen-waypoint, listeners: [{name: mesh, port: 15008, protocol: HBONE}]}
`

// steered are objects of a manifest with what the engine makes of its Gateways.
func steered(t *testing.T, manifest string) (*userObjects, *waypoints) {
	t.Helper()
	u := userObjectsOf(t, manifest)
	if err := u.addNamespace(meshNamespace); err != nil {
		t.Fatal(err)
	}
	w := newWaypoints(u.state, Options{Version: "v1.2+dirty", CA: CAOptions{TTL: time.Minute}}, []*fabric.Family{fabric.IPv4}, slog.New(slog.DiscardHandler))
	w.steer()
	return u, w
}

func (u *userObjects) present(kind, name string) *stored {
	return u.state.store.find(api.Key{Kind: kind, Namespace: "default", Name: name})
}

func (u *userObjects) gatewayComplaint() string {
	return u.state.complaints[model.Key{Group: model.GatewayGroup, Kind: "Gateway", Namespace: "default", Name: "way"}]
}

func applied(t *testing.T, u *userObjects, manifest string) {
	t.Helper()
	if res, _ := u.apply(api.ApplyRequest{Documents: []api.Document{{File: "x.yaml", Data: []byte(manifest)}}}); len(res.Problems) > 0 {
		t.Fatalf("%+v", res.Problems)
	}
}

func TestAGatewayIsDeployedAsPodsOfTheProxy(t *testing.T) {
	u, _ := steered(t, waypointManifest)
	for _, kind := range []string{"ServiceAccount", "Service", "Deployment"} {
		if u.present(kind, "way") == nil {
			t.Errorf("there is no %s: %q", kind, u.gatewayComplaint())
		}
	}
	d := u.present("Deployment", "way").Value.(*appsv1.Deployment)
	c := d.Spec.Template.Spec.Containers[0]
	env := map[string]string{}
	for _, v := range c.Env {
		env[v.Name] = v.Value
	}
	if strings.Join(append(c.Command, c.Args...), " ") != "/run/lateen/bin/lateen-proxy waypoint" || len(d.Spec.Template.Spec.Volumes) > 0 || c.ReadinessProbe == nil {
		t.Errorf("the container is %+v", c)
	}
	for name, want := range map[string]string{"XDS_ADDRESS": "https://10.243.0.1:15012", "AUTH_TOKEN": "/run/lateen/token/istio-token", "CA_ROOT_CA": "/run/lateen/pki/root-cert.pem",
		"GATEWAY_NAME": "way", "SECRET_TTL": "60000ms", "IPV6_ENABLED": "false"} {
		if env[name] != want {
			t.Errorf("%s is %q, not %q", name, env[name], want)
		}
	}
	if got := d.Spec.Template.Labels["app.kubernetes.io/version"]; got != "v1.2-dirty" {
		t.Errorf("the version is %q", got)
	}
}

func TestAReplicaCountThatAUserSetStays(t *testing.T) {
	u, w := steered(t, waypointManifest)
	if _, err := u.patch(api.PatchRequest{Key: api.Key{Kind: "Deployment", Namespace: "default", Name: "way"}, Patch: []byte(`{"spec":{"replicas":3}}`)}); err != nil {
		t.Fatal(err)
	}
	version := u.present("Deployment", "way").version
	w.steer()
	o := u.present("Deployment", "way")
	if d := o.Value.(*appsv1.Deployment); d.Spec.Replicas == nil || *d.Spec.Replicas != 3 || o.version != version {
		t.Errorf("replicas %v, generation %d after %d", d.Spec.Replicas, o.version, version)
	}
}

func TestTheObjectsGoWithTheirGateway(t *testing.T) {
	u, w := steered(t, waypointManifest)
	res, _ := u.delete(api.DeleteRequest{Keys: []api.Key{{Kind: "Gateway", Namespace: "default", Name: "way"}}})
	if len(res.Problems) > 0 {
		t.Fatalf("%+v", res.Problems)
	}
	w.steer()
	for _, kind := range []string{"ServiceAccount", "Service", "Deployment"} {
		if u.present(kind, "way") != nil {
			t.Errorf("its %s is left", kind)
		}
	}
	if len(u.state.made) > 0 {
		t.Errorf("remembered are %v", u.state.made)
	}
}

func TestAGatewayOfAnotherClassIsLeftAlone(t *testing.T) {
	u, w := steered(t, waypointManifest)
	applied(t, u, strings.Replace(waypointManifest, "lateen-waypoint", "istio-waypoint", 1))
	w.steer()
	if u.present("Deployment", "way") != nil {
		t.Error("its Deployment is left although the class is another's now")
	}
}

func TestAnObjectOfTheUsersIsNotTouched(t *testing.T) {
	u, w := steered(t, waypointManifest+"---\n"+`
apiVersion: v1
kind: Service
metadata: {name: way}
spec: {selector: {app: mine}, ports: [{port: 80}]}
`)
	if u.present("Deployment", "way") != nil || !strings.Contains(u.gatewayComplaint(), "Service default/way exists and was not made for this Gateway; delete it with `lateen delete service way -n default`") {
		t.Errorf("the Gateway is said to have %q", u.gatewayComplaint())
	}
	unmade := u.state.unmade()
	if len(unmade) != 1 || !strings.HasPrefix(unmade[0].Message, "the waypoint is not deployed: Service") {
		t.Errorf("got %+v", unmade)
	}
	if res, _ := u.delete(api.DeleteRequest{Keys: []api.Key{{Kind: "Service", Namespace: "default", Name: "way"}}}); len(res.Problems) > 0 {
		t.Fatalf("%+v", res.Problems)
	}
	w.steer()
	if u.present("Deployment", "way") == nil || u.gatewayComplaint() != "" {
		t.Errorf("it is not deployed once the name is free: %q", u.gatewayComplaint())
	}
}

func TestAnAccountThatTheGatewayNamesIsTheUsers(t *testing.T) {
	named := strings.Replace(waypointManifest, "{name: way}", "{name: way, annotations: {gateway.istio.io/service-account: way}}", 1)
	const account = "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: way, labels: {of: the-user}}\n"
	for name, start := range map[string]string{"from the start": named + account, "later": waypointManifest} {
		t.Run(name, func(t *testing.T) {
			u, w := steered(t, start)
			applied(t, u, named+account)
			w.steer()
			if u.present("Deployment", "way") == nil || u.gatewayComplaint() != "" {
				t.Errorf("it is not deployed: %q", u.gatewayComplaint())
			}
			if res, _ := u.delete(api.DeleteRequest{Keys: []api.Key{{Kind: "Gateway", Namespace: "default", Name: "way"}}}); len(res.Problems) > 0 {
				t.Fatalf("%+v", res.Problems)
			}
			w.steer()
			if u.present("Deployment", "way") != nil || u.present("ServiceAccount", "way") == nil {
				t.Error("the account went with the Gateway, or the Deployment is left")
			}
		})
	}
}

func TestParametersThatDoNotParseLeaveTheWaypointAsItWas(t *testing.T) {
	u, w := steered(t, waypointManifest)
	applied(t, u, strings.Replace(waypointManifest, "spec: {", "spec: {infrastructure: {parametersRef: {group: '', kind: ConfigMap, name: options}}, ", 1)+`
---
apiVersion: v1
kind: ConfigMap
metadata: {name: options}
data: {deployment: "spec: {replicsa: 2}"}
`)
	w.steer()
	if u.present("Deployment", "way") == nil || !strings.Contains(u.gatewayComplaint(), `ConfigMap default/options: key deployment: unknown field "spec.replicsa"`) {
		t.Errorf("the Gateway is said to have %q", u.gatewayComplaint())
	}
	applied(t, u, "{apiVersion: v1, kind: ConfigMap, metadata: {name: options}, data: {deployment: 'spec: {replicas: 2}', podDisruptionBudget: 'spec: {maxUnavailable: 1}'}}")
	w.steer()
	if d := u.present("Deployment", "way").Value.(*appsv1.Deployment); d.Spec.Replicas == nil || *d.Spec.Replicas != 2 || u.gatewayComplaint() != "" {
		t.Errorf("replicas %v, complaint %q", d.Spec.Replicas, u.gatewayComplaint())
	}
}

func TestAWaypointsPodHasATokenOfItsOwn(t *testing.T) {
	u, _ := steered(t, waypointManifest)
	signer, err := newSigner()
	if err != nil {
		t.Fatal(err)
	}
	dir := runDir(t.TempDir())
	id := &podIdentity{uid: "pod-uid", namespace: "default", name: "way-x", node: &node{name: "n1", uid: "node-uid"}, unixUID: os.Getuid(), ownName: true}
	id.spec.ServiceAccountName = "way"
	tokens := newPodTokens(signer, u.state, dir, slog.New(slog.DiscardHandler))
	if err := tokens.give(id); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir.podToken(id), tokenName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var c boundClaims
	if _, err := jwt.ParseWithClaims(string(text), &c, func(*jwt.Token) (any, error) { return &signer.key.PublicKey, nil }, jwt.WithAudience(tokenAudience)); err != nil {
		t.Fatal(err)
	}
	if c.Subject != "system:serviceaccount:default:way" || c.Kubernetes.Pod != (named{"way-x", "pod-uid"}) || c.Kubernetes.Node != (named{"n1", "node-uid"}) || c.Kubernetes.ServiceAccount.UID != u.present("ServiceAccount", "way").uid {
		t.Errorf("the token says %+v", c)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
	if view := id.view(string(dir), "bin", "roots"); view.Dirs[podTokenDir] == "" || view.Dirs[podRootsDir] != "roots" {
		t.Errorf("it sees %v", view.Dirs)
	}
	id.ownName = false
	if view := id.view(string(dir), "bin", "roots"); view.Dirs[podTokenDir] != "" {
		t.Errorf("another pod sees %v", view.Dirs)
	}
	id.spec.ServiceAccountName = "gone"
	if err := tokens.give(id); err == nil || !strings.Contains(err.Error(), `ServiceAccount "gone" not found`) {
		t.Errorf("got %v", err)
	}
}

func TestWaypointsRunTheBuildThatAllNodesRun(t *testing.T) {
	const own, old = podBinDir + "/lateen-proxy", "/srv/old/lateen-proxy"
	for _, c := range []struct {
		what  string
		nodes map[string]string
		want  string
	}{
		{"this build", nil, own},
		{"another build on all nodes", map[string]string{"n1": old, "n2": old}, old},
		{"another build on one node", map[string]string{"n1": old}, own},
		{"two other builds", map[string]string{"n1": old, "n2": "/srv/older/lateen-proxy"}, own},
		{"ztunnels", map[string]string{"n1": "/srv/ztunnel", "n2": "/srv/ztunnel"}, own},
	} {
		if got := (Options{Nodes: 2, NodeProxy: c.nodes}).waypointProxy(); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}
