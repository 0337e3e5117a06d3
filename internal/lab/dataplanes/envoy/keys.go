package envoy

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Authority vouches for the pods of one bench. One that NewAuthority made exists in memory only.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	now         time.Time
}

// validity is longer than any run; nothing is renewed.
const validity = 7 * 24 * time.Hour

// NewAuthority makes one that is valid from a little before now.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a root key: %w", err)
	}
	a := &Authority{key: key, now: now}
	template, err := a.template(&x509.Certificate{
		Subject: pkix.Name{CommonName: "lateen lab"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a root certificate: %w", err)
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("make a root certificate: %w", err)
	}
	return a, nil
}

// ReadAuthority reads the authority of a mesh of the local engine: files with its root certificate and the key of that, both in PEM.
// Certificates of that authority are good for the mesh's own proxies.
func ReadAuthority(certificateFile, keyFile string, now time.Time) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(certificateFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the mesh's authority: %w", err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("read the mesh's authority: %s is no authority's certificate", certificateFile)
	}
	return &Authority{certificate: pair.Leaf, key: key, now: now}, nil
}

func (a *Authority) template(t *x509.Certificate) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	t.SerialNumber, t.NotBefore, t.NotAfter = serial, a.now.Add(-time.Hour), a.now.Add(validity)
	return t, nil
}

// WriteKeys makes a key and a certificate for an identity and writes them, with the root, where a pod's configuration has them:
// into dir, readable by the given user alone.
func (a *Authority) WriteKeys(dir, identity string, uid int) error {
	uri, err := url.Parse(identity)
	if err != nil {
		return fmt.Errorf("identity %q: %w", identity, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key for %s: %w", identity, err)
	}
	template, err := a.template(&x509.Certificate{
		URIs: []*url.URL{uri}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("make a certificate for %s: %w", identity, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("make a key for %s: %w", identity, err)
	}
	return errors.Join(
		writePEM(filepath.Join(dir, CertificateFile), "CERTIFICATE", der, uid),
		writePEM(filepath.Join(dir, KeyFile), "PRIVATE KEY", private, uid),
		writePEM(filepath.Join(dir, RootsFile), "CERTIFICATE", a.certificate.Raw, uid),
	)
}

func writePEM(file, kind string, der []byte, uid int) error {
	return writeFor(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), uid)
}

// writeFor writes a file that one user alone may read.
func writeFor(file string, text []byte, uid int) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Chown(uid, uid), f.Close())
}
