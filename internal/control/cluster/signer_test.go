package cluster

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/ca"
)

const signerName = "example.com/mesh"

// signing runs a program that signs approved requests; edit may change what it signs.
func signing(t *testing.T, api *api, own *link, edit func(*x509.Certificate)) {
	requests := api.CertificatesV1().CertificateSigningRequests()
	w, err := requests.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { w.Stop(); <-done })
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			csr, ok := e.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok || !approved(csr) || len(csr.Status.Certificate) > 0 || csr.DeletionTimestamp != nil {
				continue
			}
			block, _ := pem.Decode(csr.Spec.Request)
			request, err := x509.ParseCertificateRequest(block.Bytes)
			if err != nil {
				t.Error(err)
				return
			}
			c := &x509.Certificate{SerialNumber: big.NewInt(7), URIs: request.URIs, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses, NotBefore: time.Now().Add(-time.Minute),
				NotAfter: time.Now().Add(time.Duration(*csr.Spec.ExpirationSeconds) * time.Second), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
			if edit != nil {
				edit(c)
			}
			der, err := x509.CreateCertificate(rand.Reader, c, own.cert, request.PublicKey, own.key)
			if err != nil {
				t.Error(err)
				return
			}
			csr.Status.Certificate = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pemOf(own)...)
			csr.ResourceVersion = ""
			_, _ = requests.UpdateStatus(context.Background(), csr, metav1.UpdateOptions{})
		}
	}()
}

func signerAPI(root *link) *api {
	api := newAPI(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "mesh-root"}, Data: map[string]string{"ca.crt": string(pemOf(root))}})
	names := 0
	api.PrependReactor("create", "certificatesigningrequests", func(action kubetesting.Action) (bool, runtime.Object, error) {
		csr := action.(kubetesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
		if csr.Name == "" {
			names++
			csr.Name = csr.GenerateName + string(rune('a'+names))
		}
		return false, nil, nil
	})
	return api
}

func signed(t *testing.T, api *api, approve bool) *replica {
	t.Helper()
	ref, err := ParseReference("configmap/mesh-root/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	r := newReplica(api, func(o *AuthorityOptions) { o.SignerName, o.SignerRoot, o.Approve = signerName, ref, approve })
	if err := r.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// served has the control plane's own certificate issued, which takes the way that all do.
func served(r *replica) error {
	_, err := ca.NewServerCertificate(r.Authority, []string{"lateen-control.lateen-system.svc", "10.0.0.1"}, 24*time.Hour, time.Now).Get(nil)
	return err
}

func requestsLeft(t *testing.T, api *api) int {
	t.Helper()
	all, err := api.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(all.Items)
}

func TestAKubernetesSignerSigns(t *testing.T) {
	root := certify(t, "root", newKey(t), nil)
	own := certify(t, "own", newKey(t), root)
	api := signerAPI(root)
	signing(t, api, own, nil)
	r := signed(t, api, true)
	if err := served(r); err != nil {
		t.Fatal(err)
	}
	if s := r.Status(); string(r.Signer().Bundle()) != string(pemOf(root)) || !strings.Contains(s.Signing, signerName) || s.Trouble != "" {
		t.Errorf("%+v", s)
	}
	if n := requestsLeft(t, api); n != 0 {
		t.Errorf("%d requests are left", n)
	}
}

func TestWhatASignerAnswersIsChecked(t *testing.T) {
	root := certify(t, "root", newKey(t), nil)
	for name, c := range map[string]struct {
		by   *link
		edit func(*x509.Certificate)
		want string
	}{
		"another root": {certify(t, "other", newKey(t), nil), nil, "would not be accepted"},
		"other names":  {root, func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "bank.example") }, "other names"},
		"a CA":         {root, func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }, "a CA certificate"},
		"expired":      {root, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }, "would not be accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			api := signerAPI(root)
			signing(t, api, c.by, c.edit)
			if err := served(signed(t, api, true)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What it signs may be valid from the moment of its answer on.
func TestASignerMayTakeItsTime(t *testing.T) {
	root := certify(t, "root", newKey(t), nil)
	api := signerAPI(root)
	signing(t, api, root, func(c *x509.Certificate) {
		time.Sleep(1100 * time.Millisecond) // certificates have seconds
		c.NotBefore = time.Now()
	})
	if err := served(signed(t, api, true)); err != nil {
		t.Error(err)
	}
}

func TestARequestThatIsNotApprovedIsRemoved(t *testing.T) {
	root := certify(t, "root", newKey(t), nil)
	api := signerAPI(root)
	signing(t, api, root, nil)
	r := signed(t, api, false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := r.opened().(*remote).Sign(ctx, []byte("x"), time.Hour, true)
		ended <- err
	}()
	eventually(t, "the request is made", func() bool { return requestsLeft(t, api) == 1 })
	select {
	case err := <-ended:
		t.Fatalf("it does not wait: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	cancel()
	err := <-ended
	if !errors.Is(err, ca.ErrNotSigned) || !strings.Contains(err.Error(), "--ca-signer-approve") {
		t.Errorf("got %v", err)
	}
	if n := requestsLeft(t, api); n != 0 {
		t.Errorf("%d requests are left", n)
	}
}

func TestWithoutTheSignersRootsNothingOpens(t *testing.T) {
	r := newReplica(newAPI(), func(o *AuthorityOptions) {
		o.SignerName, o.SignerRoot = signerName, Reference{"secret", "mesh-root", "ca.crt"}
	})
	if _, err := r.open(t.Context()); err == nil || !strings.Contains(err.Error(), "--ca-signer-root") {
		t.Errorf("got %v", err)
	}
	for _, bad := range []string{"", "secret/x", "pod/x/y", "secret//y", "a/b/c/d"} {
		if _, err := ParseReference(bad); err == nil {
			t.Errorf("%q is a reference", bad)
		}
	}
}

func TestForgottenRequestsAreSweptUp(t *testing.T) {
	root := certify(t, "root", newKey(t), nil)
	api := signerAPI(root)
	put := func(name, signer string, age time.Duration, labels map[string]string) {
		if _, err := api.CertificatesV1().CertificateSigningRequests().Create(t.Context(), &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(time.Now().Add(-age))},
			Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: signer}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put("old", signerName, time.Hour, labels())
	put("young", signerName, time.Minute, labels())
	put("theirs", signerName, time.Hour, nil)
	put("other", "example.com/other", time.Hour, labels())
	if err := signed(t, api, true).sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := requestsLeft(t, api); n != 3 {
		t.Errorf("%d are left", n)
	}
	if _, err := api.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "old", metav1.GetOptions{}); err == nil {
		t.Error("the old one is left")
	}
}

// Requests of a tenant's pods wait behind one another, and not before those of node proxies and of other namespaces.
func TestTheSignersTurnsAreNotOneTenants(t *testing.T) {
	root := certify(t, "root", newKey(t), nil)
	api := signerAPI(root) // where nobody signs
	r := signed(t, api, true)
	key := newKey(t)
	signer := r.opened().(*remote)
	signer.patience = time.Hour // they wait until all have asked, however busy the machine
	ask := func(namespace string, proxy bool) {
		ctx, cancel := context.WithCancel(ca.WithCaller(context.Background(), ca.Caller{Namespace: namespace, PodName: "p", ServiceAccount: "a"}, proxy))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = signer.Sign(ctx, requestOf(t, key), time.Hour, true)
		}()
		t.Cleanup(func() { cancel(); <-done })
	}
	for range 20 {
		ask("greedy", false)
	}
	eventually(t, "the tenant has its turns", func() bool { return requestsLeft(t, api) == maxRequestsPerNamespace })
	ask("shop", false)
	eventually(t, "another tenant has one", func() bool { return requestsLeft(t, api) == maxRequestsPerNamespace+1 })
	for _, namespace := range []string{"b", "c", "d", "e", "f", "g", "h"} {
		for range 20 {
			ask(namespace, false)
		}
	}
	eventually(t, "all turns of tenants are taken", func() bool { return requestsLeft(t, api) == maxRequests })
	ask(home, true)
	eventually(t, "a node proxy has one", func() bool { return requestsLeft(t, api) == maxRequests+1 })
}

func requestOf(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Error(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
