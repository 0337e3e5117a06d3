package envoy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestKeysProveAnIdentityBothWays(t *testing.T) {
	now := time.Now()
	authority, err := NewAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := authority.WriteKeys(dir, clientIdentity, UserID); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{CertificateFile, KeyFile, RootsFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t).Uid; info.Mode().Perm() != 0o600 || owner != UserID {
			t.Errorf("%s: mode %v of user %d, want 0600 of %d", name, info.Mode().Perm(), owner, UserID)
		}
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, CertificateFile), filepath.Join(dir, KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, RootsFile))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		t.Fatal("the roots hold no certificate")
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		options := x509.VerifyOptions{Roots: roots, CurrentTime: now.Add(24 * time.Hour), KeyUsages: []x509.ExtKeyUsage{usage}}
		if _, err := pair.Leaf.Verify(options); err != nil {
			t.Errorf("usage %v: %v", usage, err)
		}
	}
	if uris := pair.Leaf.URIs; len(uris) != 1 || uris[0].String() != clientIdentity {
		t.Errorf("the certificate is for %v, want %s", uris, clientIdentity)
	}
}

func TestAMeshsAuthorityIsReadFromItsFiles(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	made, err := NewAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(made.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, private := filepath.Join(dir, "root-cert.pem"), filepath.Join(dir, "root-key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: made.certificate.Raw}, private: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read, err := ReadAuthority(cert, private, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := read.WriteKeys(dir, clientIdentity, os.Getuid()); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, CertificateFile), filepath.Join(dir, KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(made.certificate)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
		t.Errorf("the authority's own root refuses it: %v", err)
	}
	if _, err := ReadAuthority(filepath.Join(dir, CertificateFile), filepath.Join(dir, KeyFile), now); err == nil {
		t.Error("a pod's certificate was taken for an authority's")
	}
	if _, err := ReadAuthority(cert, filepath.Join(dir, KeyFile), now); err == nil {
		t.Error("another key was taken for the authority's")
	}
}
