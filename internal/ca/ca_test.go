package ca

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lateen.dev/lateen/internal/gen/auth"
	"lateen.dev/lateen/internal/model"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func pod(namespace, name, account, node, uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
		Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: account}}
}

type counted struct {
	issued  int
	refused map[string]int
}

func (c *counted) Issued()               { c.issued++ }
func (c *counted) Refused(reason string) { c.refused[reason]++ }

// authority is a service over two nodes, with a clock and a token key of its own.
type authority struct {
	t       *testing.T
	now     time.Time
	dir     string
	key     *ecdsa.PrivateKey
	store   *model.Store
	root    *Rotating
	service *Service
	counted *counted
	log     bytes.Buffer
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, now: start, dir: filepath.Join(t.TempDir(), "ca"), store: model.NewStore(), counted: &counted{refused: map[string]int{}}}
	now := func() time.Time { return a.now }
	root, err := LoadRotating(a.dir, "cluster.local", 24*time.Hour, now, slog.New(slog.NewTextHandler(&a.log, nil)), func(*Signer) {})
	if err != nil {
		t.Fatal(err)
	}
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*corev1.Pod{
		pod("istio-system", "ztunnel-n1", "ztunnel", "n1", "z1"), pod("istio-system", "ztunnel-n2", "ztunnel", "n2", "z2"),
		pod("shop", "web-1", "web", "n1", "w1"), pod("shop", "db-1", "db", "n2", "d1"), pod("shop", "plain", "default", "n1", "b1"),
	} {
		a.put(p)
	}
	ended := pod("shop", "job-1", "job", "n1", "j1")
	ended.Status.Phase = corev1.PodSucceeded
	a.put(ended)
	a.root = root
	a.service = &Service{Authority: root, Verifier: NewTokenVerifier([]*ecdsa.PublicKey{&a.key.PublicKey}, "lateen-local", now),
		Authorizer: &NodeAuthorizer{TrustDomain: "cluster.local", Pods: a.store, Accounts: map[string]bool{"istio-system/ztunnel": true}, Now: func() time.Time { return a.now }},
		Lifetime:   24 * time.Hour, MinLifetime: 5 * time.Second, Now: now, Observer: a.counted, Logger: slog.New(slog.NewTextHandler(&a.log, nil))}
	return a
}

func (a *authority) put(p *corev1.Pod) {
	key := model.PodKey(p.Namespace, p.Name)
	a.store.Apply([]model.Change{{Key: key, Object: &model.Object{Key: key, Value: p}}})
}

// claimsOf are those of a node proxy's bound token; edit changes them.
func claimsOf(node string, edit func(jwt.MapClaims, map[string]any)) jwt.MapClaims {
	number := strings.TrimPrefix(node, "n")
	k := map[string]any{"namespace": "istio-system", "serviceaccount": map[string]any{"name": "ztunnel", "uid": "s"},
		"pod": map[string]any{"name": "ztunnel-" + node, "uid": "z" + number}, "node": map[string]any{"name": node, "uid": node}}
	c := jwt.MapClaims{"aud": []string{"istio-ca"}, "iss": "lateen-local", "sub": "system:serviceaccount:istio-system:ztunnel",
		"exp": start.Add(time.Hour).Unix(), "kubernetes.io": k}
	if edit != nil {
		edit(c, k)
	}
	return c
}

func sign(t testing.TB, method jwt.SigningMethod, key any, c jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, c).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (a *authority) token(edit func(jwt.MapClaims, map[string]any)) string {
	a.t.Helper()
	return sign(a.t, jwt.SigningMethodES256, a.key, claimsOf("n1", edit))
}

func csr(t testing.TB, key crypto.Signer, template *x509.CertificateRequest, uris ...string) string {
	t.Helper()
	if template == nil {
		template = &x509.CertificateRequest{}
	}
	for _, u := range uris {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, parsed)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) ask(token, impersonate, csr string, seconds int64) (*auth.IstioCertificateResponse, error) {
	ctx := context.Background()
	if token != "" {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+token))
	}
	req := &auth.IstioCertificateRequest{Csr: csr, ValidityDuration: seconds}
	if impersonate != "" {
		req.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"ImpersonatedIdentity": structpb.NewStringValue(impersonate)}}
	}
	return a.service.CreateCertificate(ctx, req)
}

func parse(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode([]byte(text))
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		t.Fatalf("not one PEM certificate: %q", text)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

const web = "spiffe://cluster.local/ns/shop/sa/web"

func TestIssuesACertificateForAPodOnTheCallersNode(t *testing.T) {
	a := newAuthority(t)
	key := newKey(t)
	resp, err := a.ask(a.token(nil), web, csr(t, key, nil, web), 3600)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.CertChain) != 2 {
		t.Fatalf("chain of %d, want leaf and root", len(resp.CertChain))
	}
	leaf, root := parse(t, resp.CertChain[0]), parse(t, resp.CertChain[1])
	pool := x509.NewCertPool()
	pool.AddCert(root)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: a.now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Error(err)
		}
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != web || len(leaf.Subject.Names) != 0 || leaf.IsCA || !key.PublicKey.Equal(leaf.PublicKey) {
		t.Errorf("leaf %v %v", leaf.URIs, leaf.Subject)
	}
	if got := leaf.NotAfter.Sub(a.now); got != time.Hour {
		t.Errorf("it lives %s, want the hour that was asked for", got)
	}
	if a.counted.issued != 1 || strings.Contains(a.log.String(), "eyJ") || !strings.Contains(a.log.String(), web) {
		t.Errorf("issued %d, log %s", a.counted.issued, a.log.String())
	}
}

func TestLifetimeIsCappedAndDefaulted(t *testing.T) {
	a := newAuthority(t)
	for asked, want := range map[int64]time.Duration{0: 24 * time.Hour, 60: time.Minute, 90 * 24 * 3600: 24 * time.Hour, 1 << 62: 24 * time.Hour} {
		resp, err := a.ask(a.token(nil), web, csr(t, newKey(t), nil), asked)
		if err != nil {
			t.Fatal(err)
		}
		if got := parse(t, resp.CertChain[0]).NotAfter.Sub(a.now); got != want {
			t.Errorf("asked for %d s, got %s, want %s", asked, got, want)
		}
	}
}

// An unmodified ztunnel asks again at half of the nominal life: were that over from the start, it would ask without a pause.
func TestACertificateThatLivesShortlyIsNotPastItsHalfFromTheStart(t *testing.T) {
	a := newAuthority(t)
	for _, seconds := range []int64{5, 12, 60, 300, 24 * 3600} {
		resp, err := a.ask(a.token(nil), web, csr(t, newKey(t), nil), seconds)
		if err != nil {
			t.Fatal(err)
		}
		leaf := parse(t, resp.CertChain[0])
		half := leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
		if left := half.Sub(a.now); left < time.Duration(seconds)*time.Second/4 {
			t.Errorf("of %d s the half is over in %s", seconds, left)
		}
		if back := a.now.Sub(leaf.NotBefore); back < time.Second || back > backdate {
			t.Errorf("of %d s: valid from %s before it was made", seconds, back)
		}
	}
}

// What is cut to its signer's end lives shortly, too, whatever was asked for.
func TestACertificateThatItsSignerCutsShortIsNotPastItsHalfFromTheStart(t *testing.T) {
	a := newAuthority(t)
	end := a.root.Signer().NotAfter()
	for _, left := range []time.Duration{time.Hour, 5 * time.Minute, 100 * time.Second, time.Minute, 20 * time.Second} {
		a.now = end.Add(-left)
		token := a.token(func(c jwt.MapClaims, _ map[string]any) { c["exp"] = end.Add(time.Hour).Unix() })
		resp, err := a.ask(token, web, csr(t, newKey(t), nil), 24*3600)
		if err != nil {
			t.Fatal(err)
		}
		leaf := parse(t, resp.CertChain[0])
		if !leaf.NotAfter.Equal(end) {
			t.Errorf("with %s left it ends %s after its signer", left, leaf.NotAfter.Sub(end))
		}
		if more := leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2).Sub(a.now); more < left/4 {
			t.Errorf("with %s left the half is over in %s", left, more)
		}
		if back := a.now.Sub(leaf.NotBefore); back < time.Second || back > backdate {
			t.Errorf("with %s left: valid from %s before it was made", left, back)
		}
	}
}

func TestNoCertificateOutlivesTheRoot(t *testing.T) {
	a := newAuthority(t)
	a.now = a.root.Signer().NotAfter().Add(-time.Hour)
	token := a.token(func(c jwt.MapClaims, _ map[string]any) { c["exp"] = a.now.Add(time.Hour).Unix() })
	resp, err := a.ask(token, web, csr(t, newKey(t), nil), 0)
	if err != nil {
		t.Fatal(err)
	}
	if leaf := parse(t, resp.CertChain[0]); leaf.NotAfter.After(a.root.Signer().NotAfter()) {
		t.Errorf("it lives until %s, the root until %s", leaf.NotAfter, a.root.Signer().NotAfter())
	}
}

// TestRefuses is one row for each way to ask for what one may not have.
func TestRefuses(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other := newKey(t)
	good := csr(t, newKey(t), nil)
	broken := func() string {
		block, _ := pem.Decode([]byte(good))
		der := bytes.Clone(block.Bytes)
		der[len(der)-1] ^= 1
		return string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: der}))
	}()
	type edit = func(jwt.MapClaims, map[string]any)
	for _, c := range []struct {
		name, impersonate, csr string
		token                  func(a *authority) string
		edit                   edit
		code                   codes.Code
		reason, text           string
	}{
		{name: "no token", token: func(*authority) string { return "" }, code: codes.Unauthenticated, reason: "unauthenticated", text: "Bearer TOKEN"},
		{name: "garbage for a token", token: func(*authority) string { return "garbage" }, code: codes.Unauthenticated, reason: "unauthenticated", text: "not a JWT"},
		{name: "a token of another key", token: func(a *authority) string { return sign(a.t, jwt.SigningMethodES256, other, claimsOf("n1", nil)) },
			code: codes.Unauthenticated, reason: "unauthenticated", text: "signature"},
		{name: "a token signed with the public key as a shared secret", token: func(a *authority) string {
			der, err := x509.MarshalPKIXPublicKey(&a.key.PublicKey)
			if err != nil {
				t.Fatal(err)
			}
			return sign(a.t, jwt.SigningMethodHS256, der, claimsOf("n1", nil))
		}, code: codes.Unauthenticated, reason: "unauthenticated", text: "signature"},
		{name: "an unsigned token", token: func(a *authority) string {
			return sign(a.t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claimsOf("n1", nil))
		}, code: codes.Unauthenticated, reason: "unauthenticated", text: "signature"},
		{name: "an expired token", edit: func(c jwt.MapClaims, _ map[string]any) { c["exp"] = start.Add(-time.Minute).Unix() },
			code: codes.Unauthenticated, reason: "unauthenticated", text: "expired"},
		{name: "a token without an end", edit: func(c jwt.MapClaims, _ map[string]any) { delete(c, "exp") }, code: codes.Unauthenticated, reason: "unauthenticated", text: "exp"},
		{name: "a token for the API server", edit: func(c jwt.MapClaims, _ map[string]any) { c["aud"] = []string{"https://kubernetes.default.svc"} },
			code: codes.Unauthenticated, reason: "unauthenticated", text: "audience istio-ca"},
		{name: "a token of another issuer", edit: func(c jwt.MapClaims, _ map[string]any) { c["iss"] = "elsewhere" }, code: codes.Unauthenticated, reason: "unauthenticated", text: "issuer"},
		{name: "a token from the future", edit: func(c jwt.MapClaims, _ map[string]any) { c["nbf"] = start.Add(10 * time.Minute).Unix() },
			code: codes.Unauthenticated, reason: "unauthenticated", text: "clocks"},
		{name: "a token whose claims disagree", edit: func(c jwt.MapClaims, _ map[string]any) { c["sub"] = "system:serviceaccount:shop:web" },
			code: codes.Unauthenticated, reason: "unauthenticated", text: "different service accounts"},
		{name: "a token that names nobody", edit: func(c jwt.MapClaims, _ map[string]any) { delete(c, "kubernetes.io") }, code: codes.Unauthenticated, reason: "unauthenticated", text: "bound"},

		{name: "an identity of another node", impersonate: "spiffe://cluster.local/ns/shop/sa/db", code: codes.PermissionDenied, reason: "not_on_node", text: "no pod on node n1 runs as shop/db"},
		{name: "an identity whose only pod has ended", impersonate: "spiffe://cluster.local/ns/shop/sa/job", code: codes.PermissionDenied, reason: "not_on_node"},
		{name: "an identity of the same name in another namespace", impersonate: "spiffe://cluster.local/ns/other/sa/web", code: codes.PermissionDenied, reason: "not_on_node"},
		{name: "an identity of another trust domain", impersonate: "spiffe://evil.example/ns/shop/sa/web", code: codes.PermissionDenied, reason: "foreign_trust_domain"},
		{name: "something that is no identity", impersonate: "spiffe://cluster.local/ns/shop/sa/web/../db", code: codes.PermissionDenied, reason: "malformed_identity"},
		{name: "a token not bound to a pod", edit: func(_ jwt.MapClaims, k map[string]any) { delete(k, "pod") }, code: codes.PermissionDenied, reason: "unbound_token"},
		{name: "a token bound to an unknown pod", edit: func(_ jwt.MapClaims, k map[string]any) { k["pod"] = map[string]any{"name": "ztunnel-n9", "uid": "z9"} },
			code: codes.PermissionDenied, reason: "unknown_pod", text: "try again"},
		{name: "a token bound to an earlier pod of that name", edit: func(_ jwt.MapClaims, k map[string]any) {
			k["pod"] = map[string]any{"name": "ztunnel-n1", "uid": "older"}
		},
			code: codes.PermissionDenied, reason: "stale_pod"},
		{name: "a token bound to a pod of another account", edit: func(_ jwt.MapClaims, k map[string]any) {
			k["pod"] = map[string]any{"name": "ztunnel-n1", "uid": "z1"}
			k["namespace"], k["serviceaccount"] = "istio-system", map[string]any{"name": "ztunnel"}
			k["node"] = map[string]any{"name": "n2"}
		}, code: codes.PermissionDenied, reason: "unknown_node", text: "bound to node n2"},

		{name: "no request", csr: "none", code: codes.InvalidArgument, reason: "malformed_csr", text: "PEM"},
		{name: "a request of 20 KiB", csr: strings.Repeat("x", 20<<10), code: codes.InvalidArgument, reason: "malformed_csr", text: "bytes"},
		{name: "a request signed by nobody", csr: broken, code: codes.InvalidArgument, reason: "malformed_csr"},
		{name: "a short RSA key", csr: csr(t, rsaKey, nil), code: codes.InvalidArgument, reason: "malformed_csr", text: "1024 bits"},
		{name: "a small curve", csr: csr(t, p224, nil), code: codes.InvalidArgument, reason: "malformed_csr", text: "P-224"},
		{name: "a request for another identity than the one it is made for", csr: csr(t, other, nil, "spiffe://cluster.local/ns/shop/sa/bare"),
			code: codes.PermissionDenied, reason: "other_identity_in_csr"},
		{name: "a request for two identities", csr: csr(t, other, nil, web, "spiffe://cluster.local/ns/shop/sa/db"), code: codes.InvalidArgument, reason: "malformed_csr", text: "2 URIs"},
		{name: "a request for a host name", csr: csr(t, other, &x509.CertificateRequest{DNSNames: []string{"istiod.istio-system.svc"}}), code: codes.InvalidArgument, reason: "malformed_csr"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAuthority(t)
			token := ""
			if c.token != nil {
				token = c.token(a)
			} else {
				token = a.token(c.edit)
			}
			impersonate, request := c.impersonate, c.csr
			if impersonate == "" {
				impersonate = web
			}
			if request == "" {
				request = good
			}
			resp, err := a.ask(token, impersonate, request, 0)
			if resp != nil || status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.text) {
				t.Errorf("got %v, %v; want %s with %q", resp, err, c.code, c.text)
			}
			if a.counted.refused[c.reason] != 1 || a.counted.issued != 0 {
				t.Errorf("counted %v, want one %s", a.counted.refused, c.reason)
			}
			if token != "" && (strings.Contains(a.log.String(), token) || strings.Contains(err.Error(), token)) && token != "garbage" {
				t.Error("the token was repeated in a log or an error")
			}
		})
	}
}

func TestAnImpersonationThatIsNotTextIsNotTakenForNone(t *testing.T) {
	a := newAuthority(t)
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("authorization", "Bearer "+a.token(nil)))
	for _, v := range []*structpb.Value{structpb.NewStringValue(""), structpb.NewNumberValue(1), structpb.NewNullValue()} {
		_, err := a.service.CreateCertificate(ctx, &auth.IstioCertificateRequest{Csr: csr(t, newKey(t), nil),
			Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"ImpersonatedIdentity": v}}})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: got %v", v, err)
		}
	}
}

// A token outlives its pod, and a pod that has ended has no use for a certificate.
func TestAPodThatHasEndedGetsNothing(t *testing.T) {
	a := newAuthority(t)
	proxy, _ := a.store.Pod(model.PodKey("istio-system", "ztunnel-n1"))
	for name, c := range map[string]struct {
		edit func(*corev1.Pod)
		good bool
	}{
		"failed":                     {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		"succeeded":                  {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
		"told to go":                 {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: a.now.Add(30 * time.Second)} }, true},
		"told to go, long ago":       {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: a.now.Add(-endLeeway - time.Second)} }, false},
		"told to go, some ticks ago": {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: a.now.Add(-time.Second)} }, true},
	} {
		changed := proxy.DeepCopy()
		c.edit(changed)
		a.put(changed)
		if _, err := a.ask(a.token(nil), web, csr(t, newKey(t), nil, web), 0); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a.counted.refused["ended_pod"] != 3 {
		t.Errorf("%v", a.counted.refused)
	}
}

func TestAcceptsTheKeysThatProxiesUse(t *testing.T) {
	a := newAuthority(t)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []crypto.Signer{newKey(t), ed, rsaKey} {
		if _, err := a.ask(a.token(nil), "spiffe://cluster.local/ns/shop/sa/default", csr(t, key, nil), 0); err != nil {
			t.Errorf("%T: %v", key, err)
		}
	}
}

func TestRootIsKeptAndGuarded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	first, err := LoadRoot(dir, "cluster.local", start)
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadRoot(dir, "cluster.local", start)
	if err != nil || !bytes.Equal(first.PEM(), again.PEM()) {
		t.Fatalf("a restart made a new root: %v", err)
	}
	key := filepath.Join(dir, rootKeyFile)
	for path, want := range map[string]os.FileMode{dir: 0o700, key: 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v", path, info.Mode(), err)
		}
	}
	fails := func(text string) {
		t.Helper()
		if _, err := LoadRoot(dir, "cluster.local", start); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want an error with %q", err, text)
		}
	}
	chmod := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	chmod(key, 0o640)
	fails("chmod 0600")
	chmod(key, 0o600)
	chmod(dir, 0o755)
	fails("chmod 0700")
	chmod(dir, 0o700)
	if _, err := LoadRoot(dir, "cluster.local", first.NotAfter().Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an expired root: %v", err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if _, err := LoadRoot(other, "cluster.local", start); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(other, rootKeyFile), key); err != nil {
		t.Fatal(err)
	}
	fails("do not belong together")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	fails("restore the key")
}

func TestServerCertificateRenewsItselfAndIsTrusted(t *testing.T) {
	a := newAuthority(t)
	now := start
	c := NewServerCertificate(a.root, []string{"10.243.0.1", "istiod.istio-system.svc"}, time.Hour, func() time.Time { return now })
	first, err := c.Get(nil)
	if err != nil {
		t.Fatal(err)
	}
	now = start.Add(39 * time.Minute)
	if same, _ := c.Get(nil); same != first {
		t.Error("it was renewed too early")
	}
	now = start.Add(41 * time.Minute)
	second, err := c.Get(nil)
	if err != nil || second == first {
		t.Errorf("it was not renewed: %v", err)
	}
	client, server := net.Pipe()
	go func() { // the handshake's other side; its error shows on this side
		_ = tls.Server(server, &tls.Config{GetCertificate: c.Get}).Handshake()
	}()
	conn := tls.Client(client, &tls.Config{RootCAs: a.root.Signer().Pool(), ServerName: "10.243.0.1", Time: func() time.Time { return now }})
	if err := conn.Handshake(); err != nil {
		t.Error(err)
	}
	_ = client.Close()
	_ = server.Close()
}

func TestIdentityReadsBackWhatItWritesAndNothingElse(t *testing.T) {
	id, err := ParseIdentity(web)
	if err != nil || id.String() != web || id.URI().String() != web {
		t.Errorf("%v %v", id, err)
	}
	for _, s := range []string{"", "spiffe://", "SPIFFE://cluster.local/ns/a/sa/b", "spiffe://cluster.local/ns/a/sa/b/", "spiffe://cluster.local/ns/a/sa/",
		"spiffe://cluster.local//ns/a/sa/b", "spiffe://u@cluster.local/ns/a/sa/b", "spiffe://cluster.local:1/ns/a/sa/b", "spiffe://cluster.local/ns/%61/sa/b",
		"spiffe://cluster.local/ns/a/sa/b?x", "spiffe://cluster.local/ns/A/sa/b", "https://cluster.local/ns/a/sa/b"} {
		if id, err := ParseIdentity(s); err == nil {
			t.Errorf("ParseIdentity(%q) = %v", s, id)
		}
	}
}

func TestLoadTokenVerifierNamesWhatIsWrongWithItsFile(t *testing.T) {
	dir := t.TempDir()
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&p384.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	for text, content := range map[string][]byte{
		"no PEM public key": []byte("hello"),
		"ES256":             pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}),
		"must hold":         pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}),
	} {
		path := filepath.Join(dir, "key.pem")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadTokenVerifier(path, "i", time.Now); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
}
