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

// ServerCertificate is the control plane's own certificate. It renews itself when a third of its life is left.
type ServerCertificate struct {
	root     *Root
	names    []string
	lifetime time.Duration
	now      func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	renew   time.Time
}

// NewServerCertificate returns a certificate for host names and addresses, signed by the root.
func NewServerCertificate(root *Root, names []string, lifetime time.Duration, now func() time.Time) *ServerCertificate {
	return &ServerCertificate{root: root, names: names, lifetime: lifetime, now: now}
}

// Get is for tls.Config.GetCertificate.
func (c *ServerCertificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); c.current == nil || !now.Before(c.renew) {
		cert, err := c.issue(now)
		if err != nil {
			// An old certificate that still has a third of its life is better than none.
			if c.current != nil && now.Before(c.current.Leaf.NotAfter) {
				return c.current, nil
			}
			return nil, err
		}
		c.current = cert
		c.renew = now.Add(c.lifetime * 2 / 3)
	}
	return c.current, nil
}

func (c *ServerCertificate) issue(now time.Time) (*tls.Certificate, error) {
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
	der, err := c.root.sign(template, key.Public())
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse the server certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der, c.root.certificate.Raw}, PrivateKey: key, Leaf: leaf}, nil
}
