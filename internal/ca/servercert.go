package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// ServerCertificate is the control plane's own certificate. It renews itself when a third of its life is left, and when the signer changes.
type ServerCertificate struct {
	authority Authority
	names     []string
	lifetime  time.Duration
	now       func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	renew   time.Time
	by      *Signer
}

// NewServerCertificate returns a certificate for host names and addresses, signed by the authority.
func NewServerCertificate(authority Authority, names []string, lifetime time.Duration, now func() time.Time) *ServerCertificate {
	return &ServerCertificate{authority: authority, names: names, lifetime: lifetime, now: now}
}

// Get is for tls.Config.GetCertificate.
func (c *ServerCertificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	signer := c.authority.Signer()
	if now := c.now(); c.current == nil || !now.Before(c.renew) || !signer.same(c.by) {
		cert, err := c.issue(signer, now)
		if err != nil {
			// An old certificate that still has a third of its life is better than none.
			if c.current != nil && now.Before(c.current.Leaf.NotAfter) {
				return c.current, nil
			}
			return nil, err
		}
		c.current, c.by = cert, signer
		c.renew = now.Add(cert.Leaf.NotAfter.Sub(now) * 2 / 3)
	}
	return c.current, nil
}

func (c *ServerCertificate) issue(signer *Signer, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the server key: %w", err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "lateen-control"},
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(c.lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range c.names {
		if addr, err := netip.ParseAddr(n); err == nil {
			template.IPAddresses = append(template.IPAddresses, addr.AsSlice())
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, err := signer.sign(template, key.Public())
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse the server certificate: %w", err)
	}
	certificates := [][]byte{der}
	for _, above := range signer.chain {
		certificates = append(certificates, above.Raw)
	}
	return &tls.Certificate{Certificate: certificates, PrivateKey: key, Leaf: leaf}, nil
}
