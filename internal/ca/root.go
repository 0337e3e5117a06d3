// Package ca owns the mesh's root of trust: it keeps the root key, checks who asks, and signs what they may have.
// It does not decide what an identity may do once it has a certificate.
package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

const (
	rootCertFile = "root-cert.pem"
	rootKeyFile  = "root-key.pem"
	rootName     = "Lateen root CA"
	rootLifetime = 10 * 365 * 24 * time.Hour
	// backdate makes a certificate valid a little before it was made: clocks differ.
	backdate = 2 * time.Minute
)

// Root is a key that the whole mesh trusts.
type Root struct {
	certificate *x509.Certificate
	pem         []byte
	key         crypto.Signer
	// fresh says that it was made just now.
	fresh bool
}

// LoadRoot reads the root kept in dir, or makes one there if there is none. It refuses a directory or key that others can read.
func LoadRoot(dir, trustDomain string, now time.Time) (*Root, error) {
	if err := prepare(dir); err != nil {
		return nil, err
	}
	certPath, keyPath := filepath.Join(dir, rootCertFile), filepath.Join(dir, rootKeyFile)
	_, certErr := os.Lstat(certPath)
	_, keyErr := os.Lstat(keyPath)
	fresh := errors.Is(certErr, fs.ErrNotExist) && errors.Is(keyErr, fs.ErrNotExist)
	switch {
	case fresh:
		if err := createRoot(certPath, keyPath, trustDomain, rootName, now); err != nil {
			return nil, err
		}
	case errors.Is(certErr, fs.ErrNotExist):
		// The key is written first, so this is what an interrupted first start leaves; nobody has trusted that key yet.
		// It could as well be a lost certificate, and a new root would cut off every proxy: leave the choice to people.
		return nil, fmt.Errorf("%s exists without %s; restore the certificate, or remove the key to make a new root", keyPath, rootCertFile)
	case errors.Is(keyErr, fs.ErrNotExist):
		return nil, fmt.Errorf("%s exists without %s; restore the key, or remove the certificate to make a new root", certPath, rootKeyFile)
	}
	if err := private(keyPath, 0o600); err != nil {
		return nil, err
	}
	root, err := readRoot(certPath, keyPath, now)
	if err != nil {
		return nil, err
	}
	root.fresh = fresh
	return root, nil
}

func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the CA's directory: %w", err)
	}
	return private(dir, 0o700)
}

// private refuses a file that anybody but its owner can use.
func private(path string, mode fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("check the CA's files: %w", err)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s is a symbolic link; put the file itself there", path)
	}
	if loose := info.Mode().Perm() &^ mode; loose != 0 {
		return fmt.Errorf("%s has mode %#o and others could read the root key; run chmod %#o %s", path, info.Mode().Perm(), mode, path)
	}
	return nil
}

// createRoot makes a root in files.
func createRoot(certPath, keyPath, trustDomain, name string, now time.Time) error {
	cert, key, err := newRoot(trustDomain, name, now)
	if err != nil {
		return err
	}
	if err := WriteFile(keyPath, key, 0o600); err != nil {
		return err
	}
	return WriteFile(certPath, cert, 0o644)
}

// newRoot makes a root, in PEM. Every root of a mesh has a name of its own: revocation lists go by name.
func newRoot(trustDomain, name string, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate the root key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{trustDomain}, CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(rootLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the root certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the root key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

func readRoot(certPath, keyPath string, now time.Time) (*Root, error) {
	certPEM, err := os.ReadFile(certPath)
	if err != nil {
		return nil, fmt.Errorf("read the root certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(keyPath)
	if err != nil {
		return nil, fmt.Errorf("read the root key: %w", err)
	}
	root, err := parseRoot(certPath, certPEM, keyPath, keyPEM)
	if err != nil {
		return nil, err
	}
	if now.After(root.certificate.NotAfter) {
		return nil, fmt.Errorf("%s expired at %s; remove root-*.pem, %s and %s beside it and restart every proxy to make a new root", certPath, root.certificate.NotAfter.Format(time.RFC3339), stateFile, ledgerFile)
	}
	return root, nil
}

// parseRoot reads a root; the names are those of what it is kept in.
func parseRoot(certName string, certPEM []byte, keyName string, keyPEM []byte) (*Root, error) {
	block, _ := pem.Decode(certPEM)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s holds no PEM certificate; restore it", certName)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certName, err)
	}
	key, err := privateKey(keyName, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%w; restore it", err)
	}
	public, comparable := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !comparable || !public.Equal(cert.PublicKey):
		return nil, fmt.Errorf("%s and %s do not belong together; restore the pair", certName, keyName)
	case !cert.IsCA:
		return nil, fmt.Errorf("%s is not a CA certificate", certName)
	}
	return &Root{certificate: cert, pem: pem.EncodeToMemory(block), key: key}, nil
}

// PEM is the root certificate. It is public.
func (r *Root) PEM() []byte { return r.pem }

// NotAfter is when the root expires.
func (r *Root) NotAfter() time.Time { return r.certificate.NotAfter }

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return serial, nil
}

// WriteFile replaces a file in one step, so that no reader sees half of it. One that has the content already is left alone:
// a full disk is no reason not to start again.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	if has(path, data, mode) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // gone after the rename
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func has(path string, data []byte, mode fs.FileMode) bool {
	st, err := os.Lstat(path)
	if err != nil || st.Mode() != mode {
		return false
	}
	old, err := os.ReadFile(path)
	return err == nil && bytes.Equal(old, data)
}
