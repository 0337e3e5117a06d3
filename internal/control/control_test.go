package control

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"lateen.dev/lateen/internal/gen/auth"
	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/translate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program is a running control plane and what its callers need.
type program struct {
	t       *testing.T
	dir     string
	key     *ecdsa.PrivateKey
	control *Control
	stop    func() error
	log     *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const base = `apiVersion: v1
kind: Pod
metadata: {name: ztunnel-n1, namespace: istio-system, uid: z1}
spec: {hostNetwork: true, nodeName: n1, serviceAccountName: ztunnel, containers: [{name: a}]}
status: {phase: Running, podIP: 10.243.0.11}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, uid: w1, labels: {app: web}, annotations: {ambient.istio.io/redirection: enabled}}
spec: {nodeName: n1, serviceAccountName: web, containers: [{name: a}]}
status: {phase: Running, podIP: 10.244.1.2, conditions: [{type: Ready, status: "True"}]}
`

const service = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, clusterIP: 10.96.0.20, ports: [{port: 80, targetPort: 8080}]}
`

func run(t *testing.T, dir string) *program {
	t.Helper()
	return runWith(t, dir, func(*Options) {})
}

// runWith has a test choose options.
func runWith(t *testing.T, dir string, choose func(*Options)) *program {
	t.Helper()
	p := &program{t: t, dir: dir, log: &lockedBuffer{}}
	config := filepath.Join(dir, "objects")
	if err := os.MkdirAll(config, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&p.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	tokenKey := filepath.Join(dir, "token.pem")
	p.write("../token.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	opts := Options{
		ConfigDir: config, DataDir: filepath.Join(dir, "ca"), Listen: "127.0.0.1:0", DebugListen: "127.0.0.1:0",
		Mesh:               translate.Mesh{TrustDomain: "cluster.local", ClusterID: "Kubernetes", RootNamespace: "istio-system", DomainSuffix: "cluster.local"},
		CallerOptions:      CallerOptions{TokenKey: tokenKey, TokenIssuer: "lateen-local", NodeProxyAccounts: []string{"istio-system/ztunnel"}},
		CertificateOptions: CertificateOptions{CertTTL: 24 * time.Hour, MinCertTTL: time.Second},
		RootCertOut:        filepath.Join(dir, "root-cert.pem"), Version: "test",
	}
	choose(&opts)
	p.control, err = New(opts, slog.New(slog.NewTextHandler(p.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.control.Run(ctx) }()
	p.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return p
}

func (p *program) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, "objects", name)
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(temp, path); err != nil {
		p.t.Fatal(err)
	}
}

func (p *program) token() string { return p.tokenOf("istio-system", "ztunnel", "ztunnel-n1", "z1") }

func (p *program) tokenOf(namespace, account, pod, uid string) string {
	p.t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"aud": []string{"istio-ca"}, "iss": "lateen-local", "sub": "system:serviceaccount:" + namespace + ":" + account, "exp": time.Now().Add(time.Hour).Unix(),
		"kubernetes.io": map[string]any{"namespace": namespace, "serviceaccount": map[string]any{"name": account},
			"pod": map[string]any{"name": pod, "uid": uid}, "node": map[string]any{"name": "n1"}},
	}).SignedString(p.key)
	if err != nil {
		p.t.Fatal(err)
	}
	return token
}

// connect dials as a node proxy does: it trusts the published root and nothing else.
func (p *program) connect() (*grpc.ClientConn, context.Context) {
	p.t.Helper()
	root, err := os.ReadFile(filepath.Join(p.dir, "root-cert.pem"))
	if err != nil {
		p.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(root) {
		p.t.Fatal("the published root is no certificate")
	}
	conn, err := grpc.NewClient(p.control.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool})))
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+p.token(), "clusterid", "Kubernetes"), time.Minute)
	p.t.Cleanup(func() {
		cancel()
		if err := conn.Close(); err != nil {
			p.t.Error(err)
		}
	})
	return conn, ctx
}

// proxy is a node proxy's discovery stream. It acknowledges whatever it gets.
type proxy struct {
	t         *testing.T
	mu        sync.Mutex
	addresses map[string]*workload.Address
	policies  map[string]bool
	refuses   string // the policy that it answers with a refusal
	ended     chan error
	hangUp    func() // ends the stream
}

func (p *program) proxy() *proxy {
	p.t.Helper()
	conn, ctx := p.connect()
	ctx, cancel := context.WithCancel(ctx)
	p.t.Cleanup(cancel)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, typeURL := range []string{resourcekind.Address, resourcekind.Authorization} {
		if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, Node: &core.Node{Id: "ztunnel~10.243.0.11~ztunnel-n1.istio-system~istio-system.svc.cluster.local"}}); err != nil {
			p.t.Fatal(err)
		}
	}
	x := &proxy{t: p.t, addresses: map[string]*workload.Address{}, policies: map[string]bool{}, ended: make(chan error, 1), hangUp: cancel}
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				x.ended <- err
				return
			}
			x.take(r)
			if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce, ErrorDetail: x.complaint(r)}); err != nil {
				x.ended <- err
				return
			}
		}
	}()
	return x
}

// complaint is what the proxy has against a response.
func (x *proxy) complaint(r *discovery.DeltaDiscoveryResponse) *rpcstatus.Status {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, res := range r.Resources {
		if x.refuses != "" && res.Name == x.refuses {
			return &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: res.Name + ": not understood"}
		}
	}
	return nil
}

func (x *proxy) refuse(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.refuses = name
}

func (x *proxy) take(r *discovery.DeltaDiscoveryResponse) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, res := range r.Resources {
		if r.TypeUrl == resourcekind.Authorization {
			x.policies[res.Name] = true
			continue
		}
		m, err := res.Resource.UnmarshalNew()
		if err != nil {
			x.t.Error(err)
			return
		}
		x.addresses[res.Name] = m.(*workload.Address)
	}
	for _, name := range r.RemovedResources {
		delete(x.addresses, name)
		delete(x.policies, name)
	}
}

func (x *proxy) workload(name string) *workload.Workload {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.addresses[name].GetWorkload()
}

func (x *proxy) knows(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.addresses[name] != nil || x.policies[name]
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("%s: not within 30 s", what)
}

func (p *program) debug(path string, into any) {
	p.t.Helper()
	resp, err := http.Get("http://" + p.control.DebugAddr().String() + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing is lost
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	if text, ok := into.(*string); ok {
		*text = withStatus(resp.StatusCode, body)
		return
	}
	if resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %s %s", path, resp.Status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		p.t.Fatalf("%s: %v in %s", path, err, body)
	}
}

func withStatus(code int, body []byte) string { return fmt.Sprintf("%d %s", code, body) }

const (
	webUID  = "Kubernetes//Pod/shop/web-1"
	webHost = "shop/web.shop.svc.cluster.local"
)

func TestAProxyLearnsTheMeshAndEveryChangeOfIt(t *testing.T) {
	dir := t.TempDir()
	p := run(t, dir)
	x := p.proxy() // connects to an empty mesh
	p.write("engine.yaml", base)
	p.write("user.yaml", service)
	eventually(t, "the workload is in its service", func() bool { return x.workload(webUID).GetServices()[webHost] != nil })
	w := x.workload(webUID)
	if w.TunnelProtocol != workload.TunnelProtocol_HBONE || w.Status != workload.WorkloadStatus_HEALTHY || w.ServiceAccount != "web" || w.Node != "n1" {
		t.Errorf("workload %v", w)
	}
	p.write("policy.yaml", "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: istio-system}\nspec: {mtls: {mode: STRICT}}\n")
	const strict = "istio-system/istio_converted_static_strict"
	eventually(t, "strict mode arrives", func() bool { return slices.Contains(x.workload(webUID).GetAuthorizationPolicies(), strict) })
	if !x.knows(strict) {
		t.Error("the workload names a policy that the proxy does not have")
	}
	if err := os.Remove(filepath.Join(dir, "objects", "policy.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policy goes", func() bool { return !x.knows(strict) && len(x.workload(webUID).GetAuthorizationPolicies()) == 0 })
	p.write("engine.yaml", strings.SplitN(base, "---\n", 2)[0])
	eventually(t, "the pod goes", func() bool { return !x.knows(webUID) && x.knows(webHost) })
}

// TestAChangedLabelArrivesWithoutDelay takes the best of several changes, of more while the machine is busy: the bound is on what the program
// adds.
func TestAChangedLabelArrivesWithoutDelay(t *testing.T) {
	p := run(t, t.TempDir())
	p.write("engine.yaml", base)
	x := p.proxy()
	eventually(t, "the workload is known", func() bool { return x.workload(webUID) != nil })
	const limit = 100 * time.Millisecond
	best := time.Hour
	for i := 0; i < 10 || i < 200 && best > limit; i++ {
		name := fmt.Sprint("app-", i)
		start := time.Now()
		p.write("engine.yaml", strings.Replace(base, "app: web", "app: "+name, 1))
		eventually(t, "the label arrives", func() bool { return x.workload(webUID).GetCanonicalName() == name })
		best = min(best, time.Since(start))
	}
	if best > limit {
		t.Errorf("the fastest change took %s, want under %s: something waits", best, limit)
	}
	t.Logf("fastest: %s", best)
}

func TestBadInputIsReportedAndTheRestStaysLive(t *testing.T) {
	p := run(t, t.TempDir())
	p.write("engine.yaml", base)
	p.write("user.yaml", service)
	x := p.proxy()
	eventually(t, "the service is known", func() bool { return x.knows(webHost) })
	p.write("user.yaml", strings.Replace(service, "selector", "selecter", 1)+"---\n"+strings.Replace(service, "name: web", "name: web2", 1))
	var problems []struct{ Severity, File, Object, Field, Message, Fix string }
	eventually(t, "the problems are shown", func() bool {
		p.debug("/debug/problems", &problems)
		return len(problems) == 2
	})
	if problems[0].Object != "Service shop/web" || problems[0].Field != "spec.selecter" || problems[0].Fix != "did you mean selector?" {
		t.Errorf("first problem %+v", problems[0])
	}
	if problems[1].Object != "Service shop/web2" || !strings.Contains(problems[1].Message, "10.96.0.20 already belongs to Service shop/web") {
		t.Errorf("second problem %+v", problems[1])
	}
	p.write("other.yaml", strings.NewReplacer("name: web", "name: other", "10.96.0.20", "10.96.0.21").Replace(service))
	eventually(t, "changes still arrive", func() bool { return x.knows("shop/other.shop.svc.cluster.local") })
	if !x.knows(webHost) || x.knows("shop/web2.shop.svc.cluster.local") {
		t.Error("the last good version did not stay")
	}
	var objects []struct {
		Kind, Name string
		Conditions []struct{ Status, Reason string }
		Problems   []struct{ Field string }
	}
	p.debug("/debug/objects", &objects)
	i := slices.IndexFunc(objects, func(o struct {
		Kind, Name string
		Conditions []struct{ Status, Reason string }
		Problems   []struct{ Field string }
	}) bool {
		return o.Kind == "Service" && o.Name == "web"
	})
	if i < 0 || len(objects[i].Problems) != 1 || objects[i].Conditions[0].Status != "True" {
		t.Errorf("objects %+v", objects)
	}
}

func TestIssuesCertificatesToTheProxyOfThePodsNode(t *testing.T) {
	p := run(t, t.TempDir())
	p.write("engine.yaml", base)
	x := p.proxy()
	eventually(t, "the pod is known", func() bool { return x.knows(webUID) })
	conn, ctx := p.connect()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(identity string) (*auth.IstioCertificateResponse, error) {
		return auth.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &auth.IstioCertificateRequest{
			Csr:      string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
			Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"ImpersonatedIdentity": structpb.NewStringValue(identity)}},
		})
	}
	resp, err := ask("spiffe://cluster.local/ns/shop/sa/web")
	if err != nil || len(resp.CertChain) != 2 {
		t.Fatalf("%v, %v", resp, err)
	}
	if _, err := ask("spiffe://cluster.local/ns/shop/sa/other"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an identity that is not on the node: %v", err)
	}
	var metrics string
	p.debug("/metrics", &metrics)
	for _, want := range []string{"citadel_server_success_cert_issuance_count 1", `lateen_control_certificates_refused_total{reason="not_on_node"} 1`, `pilot_xds{version="test"} 1`, `lateen_control_resources{type="wds"} 2`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if strings.Contains(p.log.String(), "eyJ") {
		t.Error("a token was logged")
	}
}

func TestDebugPagesTellWhoRunsWhat(t *testing.T) {
	p := run(t, t.TempDir())
	p.write("engine.yaml", base)
	x := p.proxy()
	eventually(t, "the pod is known", func() bool { return x.knows(webUID) })
	var clients struct {
		Generation uint64
		Clients    []struct {
			Node, Workload, Identity string
			Types                    []struct {
				Type            string
				AckedGeneration uint64
				Wildcard        bool
			}
		}
	}
	eventually(t, "the client has the present generation", func() bool {
		p.debug("/debug/clients", &clients)
		return len(clients.Clients) == 1 && len(clients.Clients[0].Types) == 2 && clients.Clients[0].Types[0].AckedGeneration == clients.Generation &&
			clients.Clients[0].Types[1].AckedGeneration == clients.Generation
	})
	if c := clients.Clients[0]; c.Node != "n1" || c.Identity != "istio-system/ztunnel" || c.Workload != "istio-system/ztunnel-n1" || !c.Types[0].Wildcard {
		t.Errorf("client %+v", c)
	}
	var resources []struct{ Name string }
	p.debug("/debug/resources?type=Address", &resources)
	if len(resources) != 2 {
		t.Errorf("resources %+v", resources)
	}
	for path, want := range map[string]string{"/ready": "200 ready", "/debug/resources?type=Cluster": "404", "/": "200 /metrics"} {
		var got string
		p.debug(path, &got)
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s answers %q, want %q", path, got, want)
		}
	}
}

func TestARestartKeepsTheRootAndTellsReconnectingProxiesWhatChanged(t *testing.T) {
	dir := t.TempDir()
	p := run(t, dir)
	p.write("engine.yaml", base)
	x := p.proxy()
	eventually(t, "the pod is known", func() bool { return x.knows(webUID) })
	before, err := os.ReadFile(filepath.Join(dir, "root-cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-x.ended; status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want Unavailable, on which proxies reconnect", err)
	}
	p = run(t, dir)
	after, err := os.ReadFile(filepath.Join(dir, "root-cert.pem"))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the restart changed the root: %v", err)
	}
	again := p.proxy()
	eventually(t, "the pod is known again", func() bool { return again.knows(webUID) })
}

func TestRefusesAStreamWithAnotherMeshsToken(t *testing.T) {
	p := run(t, t.TempDir())
	conn, _ := p.connect()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	other := &program{t: t}
	var err error
	if other.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+other.token()), grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "signature") {
		t.Errorf("got %v, want Unauthenticated with the reason", err)
	}
	if _, err := auth.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &auth.IstioCertificateRequest{Csr: strings.Repeat("x", 1<<20)}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("got %v, want Unauthenticated", err)
	}
	var metrics string
	p.debug("/metrics", &metrics)
	for _, want := range []string{"lateen_control_streams_refused_total 1", `lateen_control_certificates_refused_total{reason="unauthenticated"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if !strings.Contains(p.log.String(), "caller turned away") {
		t.Error("nobody would find out why")
	}
}

func TestOnlyNodeProxiesFollowTheConfiguration(t *testing.T) {
	p := run(t, t.TempDir())
	conn, _ := p.connect()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+p.tokenOf("shop", "web", "web-1", "w1"))
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "--node-proxy-accounts") {
		t.Errorf("got %v, want PermissionDenied: a workload is not a node proxy", err)
	}
}

func TestCommandNamesWhatIsWrongWithItsFlags(t *testing.T) {
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"--config-dir is missing":        {},
		"--token-key is missing":         {"--config-dir", dir, "--data-dir", dir},
		"go with --kube":                 {"--config-dir", dir, "--data-dir", dir, "--token-key", "k", "--kubeconfig", "x"},
		"both --kube and --config-dir":   {"--kube", "--config-dir", dir},
		"correct --kubeconfig":           {"--kube", "--kubeconfig", "/none"},
		"--log-format is \"xml\"":        {"--config-dir", dir, "--data-dir", dir, "--token-key", "k", "--log-format", "xml"},
		"--cert-ttl is 1s":               {"--config-dir", dir, "--data-dir", dir, "--token-key", "k", "--cert-ttl", "1s"},
		"--own-identity-ttl is 1s":       {"--config-dir", dir, "--data-dir", dir, "--token-key", "k", "--own-identity-ttl", "1s"},
		"--own-identity-accounts has":    {"--config-dir", dir, "--data-dir", dir, "--token-key", "k", "--own-identity-accounts", "shop/waypoint,web"},
		"--node-proxy-accounts has":      {"--config-dir", dir, "--data-dir", dir, "--token-key", "k", "--node-proxy-accounts", "a/b/c"},
		"read the token key: open /none": {"--config-dir", dir, "--data-dir", filepath.Join(dir, "ca"), "--token-key", "/none"},
	} {
		cmd := Command()
		cmd.SetArgs(args)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
}

func TestTheRootIsReplacedWhileTheControlPlaneRuns(t *testing.T) {
	dir := t.TempDir()
	p := run(t, dir)
	published := filepath.Join(dir, "root-cert.pem")
	read := func() string {
		data, err := os.ReadFile(published)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	before := read()
	cmd := Command()
	cmd.SetArgs([]string{"rotate-root", "--data-dir", filepath.Join(dir, "ca")})
	cmd.SetOut(io.Discard)
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new root is the only one", func() bool {
		now := read()
		return now != "" && !strings.Contains(now, before)
	})
	var status struct {
		Stage   string
		Signing string
		Trusted []struct{ Subject string }
	}
	p.debug("/debug/ca", &status)
	if status.Stage != "steady" || !strings.Contains(status.Signing, "Lateen root CA 2") || len(status.Trusted) != 1 {
		t.Errorf("status %+v", status)
	}
	var metrics string
	p.debug("/metrics", &metrics)
	for _, want := range []string{fmt.Sprintf("citadel_server_root_cert_expiry_timestamp %g\n", float64(p.control.authority.Signer().RootNotAfter().Unix())), "lateen_control_ca_roots 1", "lateen_control_ca_behind 0", "lateen_control_ca_trouble 0"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	// The server's own certificate is of the new root.
	p.write("engine.yaml", base)
	x := p.proxy()
	eventually(t, "a proxy that trusts the new root alone is served", func() bool { return x.knows(webUID) })
}

func TestLogsAreJSONOnRequest(t *testing.T) {
	for format, want := range map[string]string{"json": `"level":"INFO","msg":"here","node":"n1"}`, "text": "level=INFO msg=here node=n1"} {
		var out bytes.Buffer
		logger, err := newLogger(&out, format, "info")
		if err != nil {
			t.Fatal(err)
		}
		logger.Debug("not said")
		logger.Info("here", "node", "n1")
		if got := strings.TrimSpace(out.String()); !strings.HasSuffix(got, want) || strings.Contains(got, "\n") || (format == "json") != json.Valid([]byte(got)) {
			t.Errorf("%s: %s", format, got)
		}
	}
}
