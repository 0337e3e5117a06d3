package ca

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
)

// Files of a plugged-in CA, as in Istio's secret "cacerts".
const (
	pluggedCert  = "ca-cert.pem"
	pluggedKey   = "ca-key.pem"
	pluggedChain = "cert-chain.pem"
	pluggedRoot  = "root-cert.pem"
	// maxPluggedFile bounds each of them in bytes.
	maxPluggedFile = 1 << 20
	// lookEvery is how often files are looked at; mounted secrets change by links, which watches miss.
	lookEvery = 2 * time.Second
)

// Files are the contents of the four.
type Files struct {
	Cert, Key, Chain, Root []byte
}

// Plugged signs with a key that was made elsewhere, an intermediate below the operator's root, kept in a directory or wherever else and read
// again when it changes. What cannot be used leaves what was there in force.
type Plugged struct {
	name    string
	source  func() (Files, error)
	now     func() time.Time
	logger  *slog.Logger
	publish func(*Signer)

	read    Files
	current atomic.Pointer[Signer]
	trouble atomic.Pointer[string]
	ends    Watch
}

// LoadPlugged reads the directory. publish is called with each signer that comes into force, the first one included.
func LoadPlugged(dir string, now func() time.Time, logger *slog.Logger, publish func(*Signer)) (*Plugged, error) {
	return LoadPluggedFrom(dir, func() (Files, error) { return readPlugged(dir) }, now, logger, publish)
}

// LoadPluggedFrom reads from a source that has the name. The source is asked again and again.
func LoadPluggedFrom(name string, source func() (Files, error), now func() time.Time, logger *slog.Logger, publish func(*Signer)) (*Plugged, error) {
	p := &Plugged{name: name, source: source, now: now, logger: logger, publish: publish}
	if err := p.load(); err != nil {
		return nil, err
	}
	return p, nil
}

// Signer implements Authority.
func (p *Plugged) Signer() *Signer { return p.current.Load() }

// Issued implements Authority.
func (p *Plugged) Issued(Holder, time.Duration, *Signer) {}

// Run follows the files until ctx ends.
func (p *Plugged) Run(ctx context.Context) { every(ctx, lookEvery, p.step) }

func (p *Plugged) step() {
	text := ""
	if err := p.load(); err != nil {
		text = err.Error()
	}
	if before := p.trouble.Swap(&text); text != "" && (before == nil || *before != text) {
		p.logger.Warn("ca: the plugged-in CA cannot be used; what was there before stays in force", "error", text)
	}
	p.ends.Look(p.Signer(), p.now(), p.logger)
}

// Status is how it stands, for people.
func (p *Plugged) Status() Status {
	s := StatusOf(p.Signer(), p.now())
	s.Source = p.name
	if t := p.trouble.Load(); t != nil {
		s.AddTrouble(*t)
	}
	return s
}

func readPlugged(dir string) (Files, error) {
	var files Files
	for name, into := range map[string]*[]byte{pluggedCert: &files.Cert, pluggedKey: &files.Key, pluggedChain: &files.Chain, pluggedRoot: &files.Root} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return files, fmt.Errorf("read the plugged-in CA: %w; the directory must hold %s, %s, %s and %s", err, pluggedCert, pluggedKey, pluggedChain, pluggedRoot)
		}
		if len(data) > maxPluggedFile {
			return files, fmt.Errorf("%s has %d bytes, more than %d", filepath.Join(dir, name), len(data), maxPluggedFile)
		}
		*into = data
	}
	return files, nil
}

func (p *Plugged) load() error {
	files, err := p.source()
	if err != nil {
		return err
	}
	// Once a link has ended, the others may still lead to a root.
	if s := p.current.Load(); s != nil && files.equal(p.read) && s.ended(p.now()) == nil {
		return nil
	}
	signer, err := ParsePlugged(files, p.now())
	if err != nil {
		return fmt.Errorf("plugged-in CA in %s: %w", p.name, err)
	}
	signer.remedy = fmt.Sprintf("have it issued anew and replace it in %s, which is read again without a restart", p.name)
	before := p.current.Swap(signer)
	p.read = files
	if !signer.same(before) {
		p.publish(signer)
		p.logger.Info("ca: plugged-in CA in force", "subject", signer.certificate.Subject.String(), "expires", signer.NotAfter(), "roots", len(signer.roots))
	}
	return nil
}

func (f Files) equal(o Files) bool {
	return bytes.Equal(f.Cert, o.Cert) && bytes.Equal(f.Key, o.Key) && bytes.Equal(f.Chain, o.Chain) && bytes.Equal(f.Root, o.Root)
}

// ParsePlugged checks that a CA can do what it is for: its key is its own, its chain leads to a root of the bundle, and a
// workload's certificate that it signs is accepted by whoever trusts the bundle.
func ParsePlugged(files Files, now time.Time) (*Signer, error) {
	own, err := certificates(pluggedCert, files.Cert)
	if err != nil {
		return nil, err
	}
	if len(own) != 1 {
		return nil, fmt.Errorf("%s holds %d certificates; put the CA's own there and those above it into %s", pluggedCert, len(own), pluggedChain)
	}
	cert := own[0]
	key, err := privateKey(pluggedKey, files.Key)
	if err != nil {
		return nil, err
	}
	if public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("%s is not the key of %s; restore the pair", pluggedKey, pluggedCert)
	}
	roots, err := certificates(pluggedRoot, files.Root)
	if err != nil {
		return nil, err
	}
	var above []*x509.Certificate
	if len(bytes.TrimSpace(files.Chain)) > 0 {
		if above, err = certificates(pluggedChain, files.Chain); err != nil {
			return nil, err
		}
	}
	switch {
	case !cert.IsCA || !cert.BasicConstraintsValid:
		return nil, fmt.Errorf("%s is not a CA certificate; have it issued with basicConstraints CA:TRUE", pluggedCert)
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, fmt.Errorf("%s may not sign certificates; have it issued with keyUsage keyCertSign", pluggedCert)
	case now.After(cert.NotAfter):
		return nil, fmt.Errorf("%s expired at %s; have it issued anew", pluggedCert, cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(cert.NotBefore):
		return nil, fmt.Errorf("%s is not valid before %s; check the clock", pluggedCert, cert.NotBefore.UTC().Format(time.RFC3339))
	}
	isRoot := func(c *x509.Certificate) bool { return slices.ContainsFunc(roots, c.Equal) }
	var chain []*x509.Certificate
	if !isRoot(cert) {
		chain = append(chain, cert)
	}
	for _, c := range above {
		// Roots need not travel: who does not have them would not believe them.
		if !c.Equal(cert) && !isRoot(c) && !bytes.Equal(c.RawSubject, c.RawIssuer) {
			chain = append(chain, c)
		}
	}
	s := newSigner(cert, key, chain, roots, "plug in one that is valid")
	if err := s.probe(now); err != nil {
		return nil, err
	}
	// It leads to a root without what has ended, such as a link to a root of before: that need not travel, and ends nothing.
	chain = slices.DeleteFunc(chain, func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
	return newSigner(cert, key, chain, roots, s.remedy), nil
}

// probe signs a certificate for nobody and verifies it as a peer would. It finds broken chains, expired links and path lengths.
func (s *Signer) probe(now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generate a key: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Second), NotAfter: now.Add(time.Minute), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, s.certificate, key.Public(), s.key)
	if err != nil {
		return fmt.Errorf("%s cannot sign: %w", pluggedKey, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("%s signs what does not parse: %w", pluggedKey, err)
	}
	intermediates := x509.NewCertPool()
	for _, c := range s.chain {
		intermediates.AddCert(c)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err = leaf.Verify(x509.VerifyOptions{Roots: s.Pool(), Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
		if err != nil {
			return fmt.Errorf("what %s signs would not be accepted by those who trust %s: %w; %s must hold every certificate between the two, valid now, with path lengths that allow it",
				pluggedCert, pluggedRoot, err, pluggedChain)
		}
	}
	return nil
}

// certificates reads PEM that holds certificates and nothing else.
func certificates(name string, data []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s holds a PEM block %.40q; it must hold certificates only", name, block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d: %w", name, len(all)+1, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s holds no PEM certificate", name)
	}
	return all, nil
}

// privateKey reads a key in any of the forms that people's tools write. Its errors repeat nothing of the key.
func privateKey(name string, data []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, fmt.Errorf("%s holds no PEM private key", name)
		}
		var parsed any
		var err error
		switch block.Type {
		case "EC PARAMETERS":
			continue
		case "PRIVATE KEY":
			parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			parsed, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			parsed, err = x509.ParseECPrivateKey(block.Bytes)
		default:
			return nil, fmt.Errorf("%s holds a PEM block %.40q; use an unencrypted PKCS #8 key", name, block.Type)
		}
		if err != nil {
			return nil, errors.New(name + " does not parse; use an unencrypted PKCS #8 key")
		}
		signer, ok := parsed.(crypto.Signer)
		if !ok {
			return nil, errors.New(name + " cannot sign; use an ECDSA or RSA key")
		}
		return signer, nil
	}
}

// every calls f now and then until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}
