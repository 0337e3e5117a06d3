package wire

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority is a mesh's root.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{Organization: []string{"cluster.local"}},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	return &authority{t: t, cert: sign(t, template, template, key, key), key: key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// leaf is a workload's certificate and key.
type leaf struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	root *x509.Certificate
}

// issue certifies a SPIFFE identity until the given moment.
func (a *authority) issue(identity string, until time.Time) *leaf {
	a.t.Helper()
	uri, err := url.Parse(identity)
	if err != nil {
		a.t.Fatal(err)
	}
	key := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotBefore:    until.Add(-2 * time.Hour),
		NotAfter:     until,
		URIs:         []*url.URL{uri},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	return &leaf{cert: sign(a.t, template, a.cert, key, a.key), key: key, root: a.cert}
}

func (l *leaf) tls() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{l.cert.Raw}, PrivateKey: l.key}
}

// files writes the key, and the leaf with its root, as the example peer reads them.
func (l *leaf) files(t *testing.T) (key, chain string) {
	t.Helper()
	dir := t.TempDir()
	der, err := x509.MarshalPKCS8PrivateKey(l.key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	key, chain = filepath.Join(dir, "key.pem"), filepath.Join(dir, "chain.pem")
	both := append(block("CERTIFICATE", l.cert.Raw), block("CERTIFICATE", l.root.Raw)...)
	for name, data := range map[string][]byte{key: block("PRIVATE KEY", der), chain: both} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return key, chain
}
