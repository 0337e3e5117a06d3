package ca

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"
)

// Signer is what certificates are issued with at one time: a key, what leads from it to a root, and the roots that proxies are
// to trust. It is immutable.
type Signer struct {
	certificate *x509.Certificate
	key         crypto.Signer
	// chain is what proxies present after their leaf: the signer's own certificate and those above it, without the root.
	// It is empty if the signer is a root.
	chain    []*x509.Certificate
	roots    []*x509.Certificate
	bundle   []byte
	notAfter time.Time
	// lastRoot is the root that ends last of those that what is issued leads to.
	lastRoot *x509.Certificate
	// remedy is what helps when it has ended.
	remedy string
	// elsewhere signs in place of key; certificate, key and chain are empty then.
	elsewhere Elsewhere
	name      string
}

func newSigner(certificate *x509.Certificate, key crypto.Signer, chain, roots []*x509.Certificate, remedy string) *Signer {
	s := &Signer{certificate: certificate, key: key, chain: chain, roots: roots, notAfter: certificate.NotAfter, remedy: remedy}
	for _, c := range chain {
		if c.NotAfter.Before(s.notAfter) {
			s.notAfter = c.NotAfter
		}
	}
	for _, r := range roots {
		s.bundle = append(s.bundle, encode(r)...)
	}
	s.lastRoot = s.longest()
	return s
}

func encode(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// Bundle is the roots that proxies must trust, in PEM. It is public.
func (s *Signer) Bundle() []byte { return s.bundle }

// NotAfter is when the first certificate between the key and the root expires. Nothing that is issued outlives it.
func (s *Signer) NotAfter() time.Time { return s.notAfter }

// RootNotAfter is when the root expires that what is issued leads to; the first one if it leads to several.
func (s *Signer) RootNotAfter() time.Time {
	var first time.Time
	for _, r := range s.roots {
		if s.leadsTo(r) && (first.IsZero() || r.NotAfter.Before(first)) {
			first = r.NotAfter
		}
	}
	return first
}

// leadsTo says whether what is issued leads to a root; of a signer elsewhere that is not known before.
func (s *Signer) leadsTo(r *x509.Certificate) bool {
	return s.elsewhere != nil || s.certificate.Equal(r) || slices.ContainsFunc(append([]*x509.Certificate{s.certificate}, s.chain...), func(c *x509.Certificate) bool {
		return bytes.Equal(c.RawIssuer, r.RawSubject) && c.CheckSignatureFrom(r) == nil
	})
}

// Pool is the bundle as verifiers take it.
func (s *Signer) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, r := range s.roots {
		pool.AddCert(r)
	}
	return pool
}

// same says whether two signers issue with one key below one bundle.
func (s *Signer) same(other *Signer) bool {
	return other != nil && s.certificate.Equal(other.certificate) && bytes.Equal(s.bundle, other.bundle)
}

// until is the signer with an earlier end, if that is earlier than its own.
func (s *Signer) until(end time.Time) *Signer {
	if !end.Before(s.notAfter) {
		return s
	}
	shorter := *s
	shorter.notAfter = end
	return &shorter
}

// issue has a request certified: the leaf, and what proxies present after it.
func (s *Signer) issue(ctx context.Context, r *Request, template *x509.Certificate, now time.Time) (leaf []byte, chain []*x509.Certificate, err error) {
	if err := s.ended(now); err != nil {
		return nil, nil, err
	}
	if s.elsewhere != nil {
		return s.issueElsewhere(ctx, r, template, now)
	}
	leaf, err = s.sign(template, r.public)
	return leaf, s.chain, err
}

// sign issues a leaf. The template's end is cut to the signer's.
func (s *Signer) sign(template *x509.Certificate, public any) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.BasicConstraintsValid = true
	if template.NotAfter.After(s.notAfter) {
		template.NotAfter = s.notAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.certificate, public, s.key)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return der, nil
}

// Authority has the signer of the moment, and hears what was issued with it.
type Authority interface {
	Signer() *Signer
	// Issued is told of a certificate: for whom, for how long from now on, and by which signer.
	Issued(holder Holder, life time.Duration, by *Signer)
}

// Holder is where a certificate lives: an identity in one node proxy.
type Holder struct {
	Node     string `json:"node"`
	Identity string `json:"identity"`
	// pod says that Node is the name of a pod, for a caller whose token names no node.
	pod bool
}
