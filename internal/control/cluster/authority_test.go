package cluster

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"lateen.dev/lateen/internal/ca"
)

const home = "lateen-system"

// replica is the CA of one replica.
type replica struct {
	*Authority
	log    *said
	leads  atomic.Bool
	cancel context.CancelFunc
	done   chan struct{}
}

func newReplica(api *api, edit func(*AuthorityOptions)) *replica {
	r := &replica{log: &said{}}
	opts := AuthorityOptions{Client: api, Namespace: home, TrustDomain: "cluster.local", Lifetime: time.Hour, LeastStage: time.Minute,
		Leads: r.leads.Load, Roots: NewRoots(api, home, "", r.log.logger()), Now: time.Now, Logger: r.log.logger()}
	if edit != nil {
		edit(&opts)
	}
	r.Authority = NewAuthority(opts)
	return r
}

func (r *replica) start(t *testing.T) {
	t.Helper()
	if err := r.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel, r.done = cancel, make(chan struct{})
	go func() { defer close(r.done); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-r.done })
}

// link is a CA certificate with its key.
type link struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func certify(t testing.TB, name string, key crypto.Signer, above *link) *link {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	parent, signer := c, key
	if above != nil {
		parent, signer = above.cert, above.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &link{cert, key}
}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func pemOf(links ...*link) (out []byte) {
	for _, l := range links {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.cert.Raw})...)
	}
	return out
}

func keyOf(t testing.TB, l *link) []byte {
	t.Helper()
	if k, ok := l.key.(*rsa.PrivateKey); ok {
		return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)})
	}
	der, err := x509.MarshalPKCS8PrivateKey(l.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func secretOf(namespace, name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: "1"}, Data: data}
}

func istioLayout(t testing.TB, own *link, roots ...*link) map[string][]byte {
	return map[string][]byte{"ca-cert.pem": pemOf(own), "ca-key.pem": keyOf(t, own), "cert-chain.pem": pemOf(own), "root-cert.pem": pemOf(roots...)}
}

func TestReplicasThatRaceOnAnEmptyClusterHaveOneRoot(t *testing.T) {
	for range 60 {
		api := newAPI()
		var all [3]*replica
		var done sync.WaitGroup
		for i := range all {
			all[i] = newReplica(api, nil)
			done.Go(func() {
				if err := all[i].Open(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		for _, r := range all {
			if len(r.Signer().Bundle()) == 0 || !bytes.Equal(r.Signer().Bundle(), all[0].Signer().Bundle()) {
				t.Fatal("two replicas that raced have two roots")
			}
			if strings.Contains(r.log.String(), "PRIVATE KEY") {
				t.Fatal("a key is logged")
			}
		}
		secret, err := api.CoreV1().Secrets(home).Get(t.Context(), CASecret, metav1.GetOptions{})
		if err != nil || !bytes.Equal(secret.Data["ca.crt"], all[0].Signer().Bundle()) || len(secret.Data["ca.key"]) == 0 {
			t.Fatalf("the Secret holds another root: %v", err)
		}
	}
}

func TestReplicasFollowTheSecret(t *testing.T) {
	api := newAPI(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}})
	var roots *Roots
	a := newReplica(api, func(o *AuthorityOptions) { roots = o.Roots })
	a.leads.Store(true)
	b := newReplica(api, nil)
	a.start(t)
	b.start(t)
	go roots.Run(t.Context())
	secrets := api.CoreV1().Secrets(home)
	var annotated time.Time
	eventually(t, "a rotation begins", func() bool {
		if a.Status().Stage != ca.Steady {
			return true
		}
		// As kubectl annotate does it, again when another one wrote between; but seldom, for the leader cannot write while others do.
		if time.Since(annotated) < 10*time.Second {
			return false
		}
		secret, err := secrets.Get(t.Context(), CASecret, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		secret.Annotations = map[string]string{RotateAnnotation: "now"}
		if _, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		if err == nil {
			annotated = time.Now()
		}
		return false
	})
	eventually(t, "the other replica follows", func() bool { return bytes.Equal(a.Signer().Bundle(), b.Signer().Bundle()) })
	secret, err := secrets.Get(t.Context(), CASecret, metav1.GetOptions{})
	if err != nil || len(secret.Data["other.key"]) == 0 || len(secret.Labels) == 0 {
		t.Errorf("the Secret has no other root: %v", err)
	}
	eventually(t, "both roots are published", func() bool {
		m, err := api.CoreV1().ConfigMaps(home).Get(t.Context(), RootConfigMap, metav1.GetOptions{})
		return err == nil && m.Data[RootKey] == string(a.Signer().Bundle()) && strings.Count(m.Data[RootKey], "BEGIN") == 2
	})
}

func TestAnUpdateLeavesWhatOthersAttached(t *testing.T) {
	api := newAPI()
	v := &vault{secrets: api.CoreV1().Secrets(home), namespace: home}
	version, err := v.Write(t.Context(), map[string][]byte{"a": []byte("1")}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Write(t.Context(), nil, ""); err != ca.ErrChanged {
		t.Errorf("a second one was made: %v", err)
	}
	secret, err := api.CoreV1().Secrets(home).Get(t.Context(), CASecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Annotations = map[string]string{"theirs": "1", RotateAnnotation: ""}
	if _, err = api.CoreV1().Secrets(home).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Write(t.Context(), map[string][]byte{"a": []byte("2")}, version); err != ca.ErrChanged {
		t.Errorf("an old version was written over: %v", err)
	}
	sealed, err := v.Read(t.Context())
	if err != nil || !sealed.Requested {
		t.Fatalf("%+v %v", sealed, err)
	}
	if _, err := v.Write(t.Context(), map[string][]byte{"a": []byte("2")}, sealed.Version); err != nil {
		t.Fatal(err)
	}
	secret, err = api.CoreV1().Secrets(home).Get(t.Context(), CASecret, metav1.GetOptions{})
	if err != nil || secret.Annotations["theirs"] != "1" || len(secret.Annotations) != 1 || string(secret.Data["a"]) != "2" {
		t.Errorf("%+v %v", secret, err)
	}
}

func TestAPluggedInCAGoesFirstInEitherLayout(t *testing.T) {
	root := certify(t, "root", newKey(t), nil)
	own := certify(t, "own", newKey(t), root)
	for name, data := range map[string]map[string][]byte{
		"istio": istioLayout(t, own, root),
		"tls":   {"tls.crt": pemOf(own), "tls.key": keyOf(t, own), "ca.crt": pemOf(root)},
	} {
		t.Run(name, func(t *testing.T) {
			api := newAPI(secretOf(home, PluggedSecret, data))
			r := newReplica(api, nil)
			r.start(t)
			if s := r.Status(); s.Signing != "CN=own" || string(r.Signer().Bundle()) != string(pemOf(root)) {
				t.Errorf("%+v", s)
			}
			if _, err := api.CoreV1().Secrets(home).Get(t.Context(), CASecret, metav1.GetOptions{}); err == nil {
				t.Error("a root was made beside it")
			}
		})
	}
}

func TestAPluggedInCAIsReadAgain(t *testing.T) {
	root := certify(t, "root", newKey(t), nil)
	own, next := certify(t, "own", newKey(t), root), certify(t, "next", newKey(t), root)
	api := newAPI(secretOf(home, PluggedSecret, istioLayout(t, own, root)))
	r := newReplica(api, nil)
	r.start(t)
	secrets := api.CoreV1().Secrets(home)
	put := func(data map[string][]byte) {
		if _, err := secrets.Update(t.Context(), secretOf(home, PluggedSecret, data), metav1.UpdateOptions{}); err != nil {
			secret := secretOf(home, PluggedSecret, data)
			secret.ResourceVersion = ""
			if _, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(istioLayout(t, next, root))
	eventually(t, "the next one signs", func() bool { return r.Status().Signing == "CN=next" })
	bad := istioLayout(t, own, root)
	bad["ca-key.pem"] = keyOf(t, next)
	put(bad)
	eventually(t, "the damage is told", func() bool { return strings.Contains(r.Status().Trouble, "is not the key of") })
	eventually(t, "they are watched", api.watches.Began("secrets"))
	if err := secrets.Delete(t.Context(), PluggedSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its loss is told", func() bool { return strings.Contains(r.Status().Trouble, "is gone") })
	if r.Status().Signing != "CN=next" {
		t.Error("what was there before is not in force")
	}
}

func TestACAThatIsPluggedInLaterMustBeTrusted(t *testing.T) {
	api := newAPI()
	r := newReplica(api, nil)
	r.start(t)
	secret, err := api.CoreV1().Secrets(home).Get(t.Context(), CASecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(secret.Data["ca.crt"])
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	keyBlock, _ := pem.Decode(secret.Data["ca.key"])
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	old := &link{cert, key.(crypto.Signer)}
	foreign := certify(t, "foreign", newKey(t), nil)
	secrets := api.CoreV1().Secrets(home)
	if _, err := secrets.Create(t.Context(), secretOf(home, PluggedSecret, istioLayout(t, foreign, foreign, old)), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is refused", func() bool { return strings.Contains(r.Status().Trouble, "cut off") })
	if !strings.Contains(r.Status().Signing, "Lateen root CA") {
		t.Error("a CA that nobody trusts signs")
	}
	below := certify(t, "below", newKey(t), old)
	now, err := secrets.Get(t.Context(), PluggedSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now.Data = istioLayout(t, below, old)
	if _, err := secrets.Update(t.Context(), now, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the good one signs", func() bool { return r.Status().Signing == "CN=below" && r.Status().Trouble == "" })
}

func TestIstiosOwnRootIsTakenOver(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	root := certify(t, "istio", key, nil)
	trusted := func(bundle []byte) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: RootConfigMap, Labels: map[string]string{istioLabel: "true"}}, Data: map[string]string{RootKey: string(bundle)}}
	}
	objects := []runtime.Object{secretOf("istio-system", istioSecret, map[string][]byte{"ca-cert.pem": pemOf(root), "ca-key.pem": keyOf(t, root)}), trusted(pemOf(root))}
	take := func(o *AuthorityOptions) {
		o.Istio, o.Roots = "istio-system", NewRoots(o.Client, home, "istio-system", o.Logger)
	}
	r := newReplica(newAPI(objects...), take)
	if err := r.Open(t.Context()); err != nil || string(r.Signer().Bundle()) != string(pemOf(root)) {
		t.Errorf("it was not adopted: %v", err)
	}
	// Without the Secret, what Istio's proxies trust is lost, and no other root may take its place.
	lost := newReplica(newAPI(trusted(pemOf(root))), take)
	if _, err := lost.open(t.Context()); err == nil || !strings.Contains(err.Error(), "cut off every proxy") {
		t.Errorf("a new root was made: %v", err)
	}
	// Without a take-over Istio's roots are nobody's business here.
	beside := newReplica(newAPI(trusted(pemOf(root))), nil)
	if _, err := beside.open(t.Context()); err != nil {
		t.Errorf("beside Istio no root is made: %v", err)
	}
}

func TestOpeningWaitsForTheFix(t *testing.T) {
	api := newAPI()
	api.away.Store(true)
	r := newReplica(api, nil)
	opened := make(chan error, 1)
	go func() { opened <- r.Open(t.Context()) }()
	eventually(t, "it is told", func() bool { return r.Ready() != nil && strings.Contains(r.Status().Trouble, "refused") })
	if s := r.Signer(); len(s.Bundle()) != 0 || !s.RootNotAfter().IsZero() {
		t.Error("a CA that is not open has a root")
	}
	api.away.Store(false)
	if err := <-opened; err != nil || r.Ready() != nil || len(r.Signer().Bundle()) == 0 {
		t.Errorf("it did not open: %v", fmt.Sprint(err, r.Ready()))
	}
}
