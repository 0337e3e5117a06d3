package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNotSigned is what an Elsewhere's error wraps when it has not signed yet and may later.
var ErrNotSigned = errors.New("the certificate was not signed yet")

// Elsewhere signs requests with a key that is not here.
type Elsewhere interface {
	// Sign has a PEM request signed for a time, and returns the leaf and those between it and the root, in PEM.
	Sign(ctx context.Context, request []byte, life time.Duration, client bool) ([]byte, error)
}

// NewSignerElsewhere is a signer whose key is elsewhere. What it signs must lead to one of the PEM roots.
func NewSignerElsewhere(name string, by Elsewhere, rootName string, roots []byte) (*Signer, error) {
	parsed, err := certificates(rootName, roots)
	if err != nil {
		return nil, err
	}
	s := &Signer{elsewhere: by, name: name, roots: parsed, remedy: "put the signer's roots of today into " + rootName}
	for _, r := range parsed {
		if !r.IsCA {
			return nil, fmt.Errorf("%s holds %s, which is not a CA certificate", rootName, r.Subject)
		}
		if s.notAfter.IsZero() || r.NotAfter.Before(s.notAfter) {
			s.notAfter = r.NotAfter
		}
		s.bundle = append(s.bundle, encode(r)...)
	}
	s.lastRoot = s.longest()
	return s, nil
}

// issueElsewhere has a request signed and believes nothing of the answer: a certificate that names others than were asked for must not
// reach a proxy, and one that its peers would refuse is of no use.
func (s *Signer) issueElsewhere(ctx context.Context, r *Request, template *x509.Certificate, asked time.Time) (leaf []byte, chain []*x509.Certificate, err error) {
	began := time.Now()
	answer, err := s.elsewhere.Sign(ctx, r.pem(), template.NotAfter.Sub(asked), slices.Contains(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.name, err)
	}
	now := asked.Add(time.Since(began)) // a signer may take its time, and its certificates are valid from then on
	signed, err := certificates("the answer of "+s.name, answer)
	if err != nil {
		return nil, nil, err
	}
	cert := signed[0]
	if err := judgeAnswer(s.name, cert, r, template, asked, now); err != nil {
		return nil, nil, err
	}
	intermediates := x509.NewCertPool()
	for _, c := range signed[1:] {
		if !slices.ContainsFunc(s.roots, c.Equal) {
			chain = append(chain, c)
			intermediates.AddCert(c)
		}
	}
	for _, usage := range template.ExtKeyUsage {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: s.Pool(), Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			return nil, nil, fmt.Errorf("what %s signs would not be accepted by those who trust its roots: %w; give the roots that belong to the signer", s.name, err)
		}
	}
	return cert.Raw, chain, nil
}

// NoSigner stands for a CA that is not open yet: it signs nothing and is trusted by nobody.
func NoSigner() *Signer {
	return &Signer{elsewhere: closed{}, name: "the certificate authority"}
}

type closed struct{}

func (closed) Sign(context.Context, []byte, time.Duration, bool) ([]byte, error) {
	return nil, fmt.Errorf("%w: it is not open yet", ErrNotSigned)
}
