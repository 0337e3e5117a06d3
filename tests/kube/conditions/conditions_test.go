//go:build kube

// Package conditions_test holds what the control plane writes into objects' status to a real API server with the real definitions and
// the chart's roles: two replicas run as programs, their proxies are streams that acknowledge. The suite tests/kube/07-conditions.sh
// starts the server (KUBECONFIG) and runs this with the program's path in CONTROL.
package conditions_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/control/conditions/withdraw"
	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/kube/clients"
	"lateen.dev/lateen/internal/resourcekind"
)

const (
	system   = "lateen-system"
	patience = 60 * time.Second
)

var policies = schema.GroupVersionResource{Group: "security.istio.io", Version: "v1", Resource: "authorizationpolicies"}

// mesh is an API server and the parts of a mesh on it.
type mesh struct {
	t       *testing.T
	cfg     *rest.Config
	client  kubernetes.Interface
	dynamic dynamic.Interface
	port    int
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (m *mesh) eventually(what string, ok func() (bool, string)) {
	m.t.Helper()
	last := ""
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		good, text := ok()
		if good {
			return
		}
		if last = text; time.Now().After(deadline) {
			m.t.Fatalf("it never came about that %s; last: %s", what, last)
		}
	}
}

// apply creates what a manifest says.
func (m *mesh) apply(gvr schema.GroupVersionResource, text string) {
	m.t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		m.t.Fatal(err)
	}
	m.eventually("apply "+u.GetKind()+" "+u.GetName(), func() (bool, string) {
		_, err := m.dynamic.Resource(gvr).Namespace(u.GetNamespace()).Apply(m.t.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "test", Force: true})
		return err == nil, fmt.Sprint(err)
	})
}

// pod makes a pod of the installation that runs, as far as the API server knows.
func (m *mesh) pod(name, app, account, node, ip string) *corev1.Pod {
	m.t.Helper()
	return m.podIn(system, name, app, account, node, ip)
}

func (m *mesh) podIn(namespace, name, app, account, node, ip string) *corev1.Pod {
	m.t.Helper()
	pods := m.client.CoreV1().Pods(namespace)
	pod := must[*corev1.Pod](m.t)(pods.Create(m.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}}}, metav1.CreateOptions{}))
	status, _ := json.Marshal(map[string]any{"status": map[string]any{"phase": "Running", "podIP": ip, "podIPs": []any{map[string]any{"ip": ip}},
		"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}})
	return must[*corev1.Pod](m.t)(pods.Patch(m.t.Context(), pod.Name, types.MergePatchType, status, metav1.PatchOptions{}, "status"))
}

// token is one for a pod.
func (m *mesh) token(account string, pod *corev1.Pod) string {
	m.t.Helper()
	seconds := int64(3600)
	request := must[*authenticationv1.TokenRequest](m.t)(m.client.CoreV1().ServiceAccounts(system).CreateToken(m.t.Context(), account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{"istio-ca"}, ExpirationSeconds: &seconds, BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}}}, metav1.CreateOptions{}))
	return request.Status.Token
}

// control is a replica that runs.
type control struct {
	*exec.Cmd
	ip string
}

// start runs a replica at an address of its own, with the rights that its kubeconfig gives.
func (m *mesh) start(name, ip, kubeconfig string) *control {
	m.t.Helper()
	pod := m.pod(name, "lateen-control", "lateen-control", "n0", ip)
	file := filepath.Join(m.t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(m.token("lateen-control", pod)), 0o600); err != nil {
		m.t.Fatal(err)
	}
	c := &control{Cmd: exec.Command(os.Getenv("CONTROL"), "--kube", "--kubeconfig", kubeconfig, "--namespace", system, "--token-file", file,
		"--listen", fmt.Sprintf("%s:%d", ip, m.port), "--debug-listen", fmt.Sprintf("%s:%d", ip, m.port+1)), ip: ip}
	out := must[*os.File](m.t)(os.Create(filepath.Join(m.t.TempDir(), name+".log")))
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), "POD_NAME="+name), out, out
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if data, err := os.ReadFile(out.Name()); m.t.Failed() && err == nil {
			m.t.Logf("%s said:\n%s", name, data)
		}
	})
	m.eventually(name+" is ready", func() (bool, string) {
		body, err := m.page(c, "/ready")
		return err == nil && strings.HasPrefix(body, "ready"), fmt.Sprint(body, err)
	})
	return c
}

func (m *mesh) page(c *control, path string) (string, error) {
	resp, err := http.Get(fmt.Sprintf("http://%s:%d%s", c.ip, m.port+1, path))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode == http.StatusOK {
		return string(body), err
	}
	return resp.Status + string(body), err
}

// proxy is a stream that acknowledges, unless it is silent, and that comes back when it ends.
type proxy struct{ silent atomic.Bool }

func (m *mesh) connect(node string, c *control) *proxy {
	m.t.Helper()
	pod := m.pod("lateen-node-"+node, "lateen-node", "lateen-node", node, "10.9.9.9")
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+m.token("lateen-node", pod)))
	conn := must[*grpc.ClientConn](m.t)(grpc.NewClient(fmt.Sprintf("%s:%d", c.ip, m.port), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))) //nolint:gosec // the test is about something else
	m.t.Cleanup(func() { cancel(); conn.Close() })
	p := &proxy{}
	go func() {
		// Until the replica has heard of the pod it is told to try again.
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			p.converse(ctx, conn)
		}
	}()
	return p
}

// stream opens one, as a node proxy does.
func stream(ctx context.Context, conn *grpc.ClientConn) (grpc.BidiStreamingClient[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse], error) {
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	for _, url := range []string{resourcekind.Address, resourcekind.Authorization} {
		if err := s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: []string{"*"}}); err != nil {
			_, err = s.Recv()
			return nil, err
		}
	}
	return s, nil
}

func (p *proxy) converse(ctx context.Context, conn *grpc.ClientConn) {
	s, err := stream(ctx, conn)
	if err != nil {
		return
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return
		}
		for p.silent.Load() && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		_ = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
	}
}

// refused opens a stream with a token and returns why it ended.
func (m *mesh) refused(token string, c *control) error {
	m.t.Helper()
	conn := must[*grpc.ClientConn](m.t)(grpc.NewClient(fmt.Sprintf("%s:%d", c.ip, m.port), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))) //nolint:gosec // the test is about something else
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(m.t.Context(), "authorization", "Bearer "+token), 20*time.Second)
	defer cancel()
	s, err := stream(ctx, conn)
	if err == nil {
		_, err = s.Recv()
	}
	return err
}

func policy(port int) string {
	return fmt.Sprintf(`
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: a, namespace: shop}
spec: {action: ALLOW, rules: [{to: [{operation: {ports: ["%d"]}}]}]}
`, port)
}

// condition waits until the policy's present generation has a condition, and returns it.
func (m *mesh) condition(name, status, text string) map[string]any {
	m.t.Helper()
	var found map[string]any
	m.eventually(fmt.Sprintf("%s is %s with %q", name, status, text), func() (bool, string) {
		u, err := m.dynamic.Resource(policies).Namespace("shop").Get(m.t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, raw := range list {
			c, _ := raw.(map[string]any)
			if c["type"] == name && c["status"] == status && fmt.Sprint(c["observedGeneration"]) == fmt.Sprint(u.GetGeneration()) && strings.Contains(fmt.Sprint(c["reason"], c["message"]), text) {
				found = c
				return true, ""
			}
		}
		return false, fmt.Sprint(list)
	})
	return found
}

// freePort is a port that is free at all addresses, as is the next one, and stays so until a program has it.
// The kernel gives none of its range to whoever asks.
func freePort(t *testing.T, addresses ...string) int {
	t.Helper()
	for range 1000 {
		port := 20000 + rand.IntN(12000)
		taken := slices.ContainsFunc(addresses, func(address string) bool {
			for _, p := range []int{port, port + 1} {
				if l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address, p)); err != nil || l.Close() != nil {
					return true
				}
			}
			return false
		})
		if !taken {
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func TestConditionsSayWhatTheProxiesOfAllReplicasHave(t *testing.T) {
	cfg := must[*rest.Config](t)(kube.Config(os.Getenv("KUBECONFIG"), ""))
	m := &mesh{t: t, cfg: cfg, client: must[kubernetes.Interface](t)(clients.Typed(cfg)), dynamic: must[dynamic.Interface](t)(clients.Dynamic(cfg))}
	m.port = freePort(t, "127.0.0.2", "127.0.0.3")
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	for _, name := range []string{"authorizationpolicies.security", "peerauthentications.security", "serviceentries.networking", "workloadentries.networking"} {
		m.apply(definitions, string(must[[]byte](t)(os.ReadFile("../../../charts/lateen-crds/files/istio/"+name+".istio.io.yaml"))))
	}
	for _, name := range []string{"gateways", "gatewayclasses"} {
		m.apply(definitions, string(must[[]byte](t)(os.ReadFile("../../../charts/lateen-crds/files/gateway-api/"+name+".gateway.networking.k8s.io.yaml"))))
	}
	for _, name := range []string{system, "shop", "istio-system"} {
		m.apply(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
	}
	for _, name := range []string{"lateen-control", "lateen-node"} {
		m.apply(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: "+name+", namespace: "+system+"}}")
	}
	for _, name := range []string{"n0", "n1", "n2"} {
		m.apply(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "{apiVersion: v1, kind: Node, metadata: {name: "+name+"}}")
	}
	kubeconfig := os.Getenv("KUBECONFIG")
	a := m.start("lateen-control-a", "127.0.0.2", kubeconfig)
	leads := func(name string) {
		t.Helper()
		m.eventually(name+" leads", func() (bool, string) {
			lease, err := m.client.CoordinationV1().Leases(system).Get(t.Context(), "lateen-control", metav1.GetOptions{})
			return err == nil && lease.Spec.HolderIdentity != nil && strings.HasPrefix(*lease.Spec.HolderIdentity, name), fmt.Sprint(lease, err)
		})
	}
	leads("lateen-control-a")
	b := m.start("lateen-control-b", "127.0.0.3", kubeconfig)
	m.connect("n1", a)
	second := m.connect("n2", b)

	m.apply(policies, policy(80))
	m.condition("Accepted", "True", "as it is written")
	m.condition("lateen.dev/Programmed", "True", "every node proxy")

	second.silent.Store(true)
	m.apply(policies, policy(81))
	m.condition("lateen.dev/Programmed", "False", "node n2")
	for _, c := range []*control{a, b} {
		m.eventually("the page of both replicas names it", func() (bool, string) {
			body, err := m.page(c, "/debug/objects")
			return err == nil && strings.Contains(body, "AwaitingProxies") && strings.Contains(body, "node n2"), fmt.Sprint(body, err)
		})
	}
	second.silent.Store(false)
	before := m.condition("lateen.dev/Programmed", "True", "every node proxy")["lastTransitionTime"]

	// The one that leads ends; the other one leads on, and changes nothing of what is so.
	if err := a.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	leads("lateen-control-b")
	m.apply(policies, policy(82))
	m.condition("lateen.dev/Programmed", "False", "lateen-control-a cannot be asked")
	if err := m.client.CoreV1().Pods(system).Delete(t.Context(), "lateen-control-a", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	m.condition("lateen.dev/Programmed", "False", "connected to no replica: the proxy of node n1")
	if err := m.client.CoreV1().Pods(system).Delete(t.Context(), "lateen-node-n1", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	if since := m.condition("lateen.dev/Programmed", "True", "every node proxy")["lastTransitionTime"]; since == before {
		t.Errorf("it was not so for a while, and is so since %v", since)
	}

	m.tokens(b)
	m.gateways()
	m.takenBack(b)
}

// tokens are tried that are a node proxy's, as the API server says, and not those of its pod.
func (m *mesh) tokens(c *control) {
	m.t.Helper()
	seconds := int64(3600)
	unbound := must[*authenticationv1.TokenRequest](m.t)(m.client.CoreV1().ServiceAccounts(system).CreateToken(m.t.Context(), "lateen-node", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{"istio-ca"}, ExpirationSeconds: &seconds}}, metav1.CreateOptions{}))
	if err := m.refused(unbound.Status.Token, c); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "not bound to a pod") {
		m.t.Errorf("a token that is bound to no pod: %v", err)
	}
	pod := m.pod("lateen-node-brief", "lateen-node", "lateen-node", "n1", "10.9.9.8")
	token := m.token("lateen-node", pod)
	if err := m.client.CoreV1().Pods(system).Delete(m.t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		m.t.Fatal(err)
	}
	// The API server and the replica hear of a pod's end a moment later. The server repeats for ten seconds what it has said of a token.
	m.eventually("a token whose pod is gone is refused", func() (bool, string) {
		err := m.refused(token, c)
		lost := status.Code(err) == codes.DeadlineExceeded || strings.Contains(fmt.Sprint(err), "connection error")
		return err != nil && !lost, fmt.Sprint(err)
	})
}

var (
	gateways       = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
	gatewayClasses = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"}
	services       = schema.GroupVersionResource{Version: "v1", Resource: "services"}
)

// status is a part of an object's status as JSON.
func (m *mesh) status(gvr schema.GroupVersionResource, namespace, name string, fields ...string) string {
	m.t.Helper()
	u := must[*unstructured.Unstructured](m.t)(m.dynamic.Resource(gvr).Namespace(namespace).Get(m.t.Context(), name, metav1.GetOptions{}))
	part, _, _ := unstructured.NestedFieldNoCopy(u.Object, append([]string{"status"}, fields...)...)
	return string(must[[]byte](m.t)(json.Marshal(part)))
}

// gateways say what the Gateway API wants of a waypoint, and those of other controllers nothing.
func (m *mesh) gateways() {
	m.t.Helper()
	class := func(name, controller string) {
		m.apply(gatewayClasses, "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: "+name+"}, spec: {controllerName: "+controller+"}}")
	}
	gateway := func(name, class string) {
		m.apply(gateways, "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: "+name+", namespace: shop}, spec: {gatewayClassName: "+class+
			", listeners: [{name: mesh, port: 15008, protocol: HBONE}, {name: web, port: 80, protocol: HTTP}]}}")
	}
	class("lateen-waypoint", "lateen.dev/waypoint-controller")
	class("istio-waypoint", "istio.io/mesh-controller")
	gateway("theirs", "istio-waypoint")
	untouched := m.status(gateways, "shop", "theirs")
	gateway("w", "lateen-waypoint")
	m.eventually("the waypoint has no address", func() (bool, string) {
		got := m.status(gateways, "shop", "w")
		return strings.Contains(got, "AddressNotAssigned") && strings.Contains(got, "UnsupportedProtocol"), got
	})
	m.apply(services, "{apiVersion: v1, kind: Service, metadata: {name: w, namespace: shop}, spec: {ports: [{name: mesh, port: 15008}], selector: {app: way}}}")
	m.eventually("the waypoint waits for a pod", func() (bool, string) {
		got := m.status(gateways, "shop", "w")
		return strings.Contains(got, `"reason":"Pending"`) && strings.Contains(got, "no pod behind Service shop/w is ready"), got
	})
	must[*corev1.ServiceAccount](m.t)(m.client.CoreV1().ServiceAccounts("shop").Create(m.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "w"}}, metav1.CreateOptions{}))
	m.podIn("shop", "w-1", "way", "w", "n1", "10.9.9.7")
	m.eventually("the waypoint is programmed at its Service", func() (bool, string) {
		got := m.status(gateways, "shop", "w")
		return strings.Contains(got, `"addresses":[{"type":"Hostname","value":"w.shop.svc.cluster.local"}]`) && strings.Contains(got, `"reason":"Programmed"`) && strings.Contains(got, "ListenersNotValid"), got
	})
	m.eventually("its class is accepted", func() (bool, string) {
		got := m.status(gatewayClasses, "", "lateen-waypoint")
		return strings.Contains(got, `"reason":"Accepted"`), got
	})
	m.apply(services, "{apiVersion: v1, kind: Service, metadata: {name: bound, namespace: shop, labels: {istio.io/use-waypoint: w}}, spec: {ports: [{name: web, port: 80}], selector: {app: none}}}")
	m.eventually("a service is bound to it", func() (bool, string) {
		got := m.status(services, "shop", "bound")
		return strings.Contains(got, "istio.io/WaypointBound"), got
	})
	if got := m.status(gateways, "shop", "theirs"); got != untouched {
		m.t.Errorf("another controller's Gateway says %s, said %s", got, untouched)
	}
	if got := m.status(gatewayClasses, "", "istio-waypoint"); strings.Contains(got, `"status":"True"`) {
		m.t.Errorf("another controller's class says %s", got)
	}
	// A Service that is gone is no address.
	if err := m.dynamic.Resource(services).Namespace("shop").Delete(m.t.Context(), "w", metav1.DeleteOptions{}); err != nil {
		m.t.Fatal(err)
	}
	m.eventually("the waypoint has no address any more", func() (bool, string) {
		got := m.status(gateways, "shop", "w")
		return strings.Contains(got, "AddressNotAssigned") && !strings.Contains(got, `"addresses":`), got
	})
}

// takenBack ends the control plane and has what it wrote taken back: objects say what they said when they were new.
func (m *mesh) takenBack(last *control) {
	m.t.Helper()
	_ = last.Process.Kill()
	_ = last.Wait()
	m.apply(policies, "{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: other, namespace: shop}, spec: {}}")
	others := must[*unstructured.Unstructured](m.t)(m.dynamic.Resource(policies).Namespace("shop").Patch(m.t.Context(), "other", types.MergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Accepted","status":"True","reason":"Theirs"}]}}`), metav1.PatchOptions{FieldManager: "theirs"}, "status"))
	if n, err := withdraw.All(m.t.Context(), m.dynamic); err != nil || n < 4 {
		m.t.Errorf("taken back from %d objects, %v", n, err)
	}
	for name, got := range map[string]string{
		"policy":  m.status(policies, "shop", "a"),
		"service": m.status(services, "shop", "bound", "conditions"),
	} {
		if got != "null" {
			m.t.Errorf("the %s says %s", name, got)
		}
	}
	m.apply(gateways, "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: new, namespace: shop}, spec: {gatewayClassName: lateen-waypoint, listeners: [{name: mesh, port: 15008, protocol: HBONE}]}}")
	if got, fresh := m.status(gateways, "shop", "w"), m.status(gateways, "shop", "new"); got != fresh {
		m.t.Errorf("the Gateway says %s, a new one %s", got, fresh)
	}
	if got := must[*unstructured.Unstructured](m.t)(m.dynamic.Resource(policies).Namespace("shop").Get(m.t.Context(), "other", metav1.GetOptions{})); fmt.Sprint(got.Object["status"]) != fmt.Sprint(others.Object["status"]) {
		m.t.Errorf("another's condition is %v", got.Object["status"])
	}
}
