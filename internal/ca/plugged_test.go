package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// link is a certificate with its key.
type link struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// certify makes a CA below another one, or a root if there is none above; edit changes it.
func certify(t testing.TB, name string, above *link, edit func(*x509.Certificate)) *link {
	t.Helper()
	return certifyKey(t, name, newKey(t), above, edit)
}

func certifyKey(t testing.TB, name string, key crypto.Signer, above *link, edit func(*x509.Certificate)) *link {
	t.Helper()
	serial, err := newSerial()
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: start.Add(-time.Hour), NotAfter: start.Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	if edit != nil {
		edit(c)
	}
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
	return &link{cert: cert, key: key}
}

func (l *link) keyPEM(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(l.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func bundleOf(links ...*link) []byte {
	var out []byte
	for _, l := range links {
		out = append(out, encode(l.cert)...)
	}
	return out
}

func filesOf(t testing.TB, own *link, chain []*link, roots ...*link) Files {
	return Files{Cert: bundleOf(own), Key: own.keyPEM(t), Chain: bundleOf(chain...), Root: bundleOf(roots...)}
}

// chainOf is a CA two steps below its root.
func chainOf(t testing.TB) (own, middle, root *link, files Files) {
	t.Helper()
	root = certify(t, "root", nil, nil)
	middle = certify(t, "middle", root, nil)
	own = certify(t, "own", middle, nil)
	return own, middle, root, filesOf(t, own, []*link{own, middle}, root)
}

func TestAPluggedInCASignsWhatItsRootsHoldersAccept(t *testing.T) {
	own, middle, root, files := chainOf(t)
	other := certify(t, "another root", nil, nil)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ofRSA := certifyKey(t, "rsa", rsaKey, root, nil)
	ofEd := certifyKey(t, "ed", ed, root, nil)
	sec1, err := x509.MarshalECPrivateKey(own.key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	// What openssl ecparam -genkey writes.
	withParameters := append(pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1})...)
	for _, c := range []struct {
		name  string
		files Files
		chain int
	}{
		{"a chain with itself, as istio writes it", files, 2},
		{"a chain without itself", filesOf(t, own, []*link{middle}, root), 2},
		{"a chain that holds the root as well", filesOf(t, own, []*link{own, middle, root}, root), 2},
		{"two roots", filesOf(t, own, []*link{own, middle}, other, root), 2},
		{"directly below the root, without a chain", filesOf(t, middle, nil, root), 1},
		{"a root itself", filesOf(t, root, nil, root), 0},
		{"an RSA key", filesOf(t, ofRSA, nil, root), 1},
		{"an Ed25519 key", filesOf(t, ofEd, nil, root), 1},
		{"a PKCS #1 key", Files{Cert: bundleOf(ofRSA), Key: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)}), Root: bundleOf(root)}, 1},
		{"an EC key with its parameters", Files{Cert: files.Cert, Key: withParameters, Chain: files.Chain, Root: files.Root}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := ParsePlugged(c.files, start)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.chain) != c.chain {
				t.Errorf("%d certificates travel with a leaf, want %d", len(s.chain), c.chain)
			}
			der, err := s.sign(&x509.Certificate{NotBefore: start, NotAfter: start.Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, newKey(t).Public())
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			between := x509.NewCertPool()
			for _, c := range s.chain {
				between.AddCert(c)
			}
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(s.Bundle())
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: start, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNothingOutlivesTheShortestCertificateAboveIt(t *testing.T) {
	root := certify(t, "root", nil, nil)
	middle := certify(t, "middle", root, func(c *x509.Certificate) { c.NotAfter = start.Add(time.Hour) })
	own := certify(t, "own", middle, nil)
	s, err := ParsePlugged(filesOf(t, own, []*link{own, middle}, root), start)
	if err != nil {
		t.Fatal(err)
	}
	if want := start.Add(time.Hour); !s.NotAfter().Equal(want) {
		t.Errorf("it signs until %s, want %s", s.NotAfter(), want)
	}
	if !s.RootNotAfter().Equal(root.cert.NotAfter) {
		t.Errorf("its root expires at %s, want %s", s.RootNotAfter(), root.cert.NotAfter)
	}
}

// TestAPluggedInCAThatCannotWorkIsRefused is one row for each way in which the files can be wrong.
func TestAPluggedInCAThatCannotWorkIsRefused(t *testing.T) {
	own, middle, root, good := chainOf(t)
	other := certify(t, "root", nil, nil) // of the same name
	edited := func(edit func(*x509.Certificate)) Files {
		c := certify(t, "own", middle, edit)
		return filesOf(t, c, []*link{c, middle}, root)
	}
	with := func(edit func(*Files)) Files {
		f := good
		edit(&f)
		return f
	}
	narrow := certify(t, "narrow", root, func(c *x509.Certificate) { c.MaxPathLenZero = true })
	below := certify(t, "below", narrow, nil)
	stale := certify(t, "stale", root, func(c *x509.Certificate) { c.NotAfter = start.Add(-time.Minute) })
	belowStale := certify(t, "below", stale, nil)
	forMail := certify(t, "mail", root, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageEmailProtection} })
	for _, c := range []struct {
		name  string
		files Files
		texts []string
	}{
		{"another key", with(func(f *Files) { f.Key = middle.keyPEM(t) }), []string{"ca-key.pem is not the key of ca-cert.pem", "restore the pair"}},
		{"not a CA", edited(func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, 0 }), []string{"not a CA certificate", "CA:TRUE"}},
		{"may not sign", edited(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }), []string{"may not sign certificates", "keyCertSign"}},
		{"expired", edited(func(c *x509.Certificate) { c.NotAfter = start.Add(-time.Minute) }), []string{"ca-cert.pem expired at 2026-01-02T03:03:05Z", "issued anew"}},
		{"not valid yet", edited(func(c *x509.Certificate) { c.NotBefore = start.Add(time.Minute) }), []string{"not valid before", "clock"}},
		{"a gap in the chain", with(func(f *Files) { f.Chain = bundleOf(own) }), []string{"would not be accepted", "cert-chain.pem must hold every certificate between"}},
		{"no chain", with(func(f *Files) { f.Chain = nil }), []string{"would not be accepted"}},
		{"another root of the same name", with(func(f *Files) { f.Root = bundleOf(other) }), []string{"would not be accepted"}},
		{"a path that is too long", filesOf(t, below, []*link{below, narrow}, root), []string{"would not be accepted", "path length"}},
		{"an expired link", filesOf(t, belowStale, []*link{belowStale, stale}, root), []string{"would not be accepted", "expired"}},
		{"a CA for mail", filesOf(t, forMail, []*link{forMail}, root), []string{"would not be accepted"}},
		{"two certificates", with(func(f *Files) { f.Cert = bundleOf(own, middle) }), []string{"ca-cert.pem holds 2 certificates", "cert-chain.pem"}},
		{"no certificate", with(func(f *Files) { f.Cert = []byte("hello") }), []string{"ca-cert.pem holds no PEM certificate"}},
		{"a key for a certificate", with(func(f *Files) { f.Cert = f.Key }), []string{`ca-cert.pem holds a PEM block "PRIVATE KEY"`}},
		{"a key in the chain", with(func(f *Files) { f.Chain = append(bytes.Clone(f.Chain), f.Key...) }), []string{`cert-chain.pem holds a PEM block "PRIVATE KEY"`}},
		{"garbage for a certificate", with(func(f *Files) { f.Root = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}) }), []string{"root-cert.pem: certificate 1"}},
		{"no key", with(func(f *Files) { f.Key = nil }), []string{"ca-key.pem holds no PEM private key"}},
		{"an encrypted key", with(func(f *Files) {
			f.Key = pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})
		}), []string{"unencrypted PKCS #8"}},
		{"garbage for a key", with(func(f *Files) { f.Key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}) }), []string{"ca-key.pem does not parse"}},
		{"no root", with(func(f *Files) { f.Root = []byte("\n") }), []string{"root-cert.pem holds no PEM certificate"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := ParsePlugged(c.files, start)
			if err == nil {
				t.Fatalf("it was accepted: %v", s.certificate.Subject)
			}
			for _, text := range c.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
		})
	}
}

func put(t *testing.T, dir string, f Files) {
	t.Helper()
	for name, data := range map[string][]byte{pluggedCert: f.Cert, pluggedKey: f.Key, pluggedChain: f.Chain, pluggedRoot: f.Root} {
		if err := WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPluggedInCAIsReadAgainAndABadOneKeepsTheOld(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	published := 0
	load := func() (*Plugged, error) {
		return LoadPlugged(dir, func() time.Time { return start }, slog.New(slog.NewTextHandler(&log, nil)), func(*Signer) { published++ })
	}
	if _, err := load(); err == nil || !strings.Contains(err.Error(), "must hold ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem") {
		t.Fatalf("an empty directory: %v", err)
	}
	_, _, _, files := chainOf(t)
	put(t, dir, files)
	p, err := load()
	if err != nil || published != 1 {
		t.Fatalf("published %d times, %v", published, err)
	}
	first := p.Signer()
	p.step()
	if p.Signer() != first || published != 1 {
		t.Error("files that did not change were read again")
	}

	// Half of a new pair: as it is between two writes, or for good.
	_, _, _, other := chainOf(t)
	put(t, dir, Files{Cert: other.Cert, Key: files.Key, Chain: files.Chain, Root: files.Root})
	for range 3 {
		p.step()
	}
	if p.Signer() != first || published != 1 || !strings.Contains(p.Status().Trouble, "is not the key of") {
		t.Errorf("a bad pair: status %+v", p.Status())
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings for one mistake:\n%s", n, log.String())
	}
	if err := os.Remove(filepath.Join(dir, pluggedKey)); err != nil {
		t.Fatal(err)
	}
	p.step()
	if p.Signer() != first || !strings.Contains(p.Status().Trouble, "no such file") {
		t.Errorf("without a key: status %+v", p.Status())
	}

	put(t, dir, other)
	p.step()
	if s := p.Status(); p.Signer() == first || published != 2 || s.Trouble != "" || s.Source != dir || s.Stage != "" {
		t.Errorf("a good pair: status %+v, published %d", s, published)
	}
	if bytes.Equal(first.Bundle(), p.Signer().Bundle()) {
		t.Error("the bundle is still the old one")
	}
	if strings.Contains(log.String(), "PRIVATE") {
		t.Error("a key was logged")
	}
	// Another order of the same is no news.
	put(t, dir, Files{Cert: other.Cert, Key: other.Key, Chain: append([]byte("# by hand\n"), other.Chain...), Root: other.Root})
	p.step()
	if published != 2 {
		t.Error("the same CA was published again")
	}
}

func TestAServerCertificateFollowsAPluggedInCA(t *testing.T) {
	dir := t.TempDir()
	_, _, _, files := chainOf(t)
	put(t, dir, files)
	p, err := LoadPlugged(dir, func() time.Time { return start }, slog.New(slog.DiscardHandler), func(*Signer) {})
	if err != nil {
		t.Fatal(err)
	}
	c := NewServerCertificate(p, []string{"istiod.istio-system.svc"}, time.Hour, func() time.Time { return start })
	first, err := c.Get(nil)
	if err != nil || len(first.Certificate) != 3 {
		t.Fatalf("%v, a chain of %d, want leaf and two above it", err, len(first.Certificate))
	}
	_, _, _, other := chainOf(t)
	put(t, dir, other)
	p.step()
	if second, err := c.Get(nil); err != nil || second == first {
		t.Errorf("it is still the old one: %v", err)
	}
}

func TestTokenKeysAreReadAgainAndABadFileKeepsTheOld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.pem")
	old, next := newKey(t), newKey(t)
	write := func(keys ...*ecdsa.PrivateKey) {
		t.Helper()
		var out []byte
		for _, k := range keys {
			der, err := x509.MarshalPKIXPublicKey(&k.PublicKey)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
		}
		if err := WriteFile(path, out, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(old)
	v, err := LoadTokenVerifier(path, "lateen-local", func() time.Time { return start })
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	v.logger = slog.New(slog.NewTextHandler(&log, nil))
	accepted := func(what string, wantOld, wantNext bool) {
		t.Helper()
		for key, want := range map[*ecdsa.PrivateKey]bool{old: wantOld, next: wantNext} {
			if _, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodES256, key, claimsOf("n1", nil))); (err == nil) != want {
				t.Errorf("%s: %v, want it accepted: %v", what, err, want)
			}
		}
	}
	accepted("at first", true, false)
	write(old, next)
	v.step()
	accepted("both", true, true)
	for _, bad := range []string{"", "hello"} {
		if err := os.WriteFile(path, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		v.step()
		v.step()
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	v.step()
	v.step()
	accepted("unreadable", true, true)
	if n := strings.Count(log.String(), "level=WARN"); n != 2 {
		t.Errorf("%d warnings, want one for no key and one for no file:\n%s", n, log.String())
	}
	write(next)
	v.step()
	accepted("the old one is gone", false, true)
}
