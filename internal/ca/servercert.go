package ca

import (
	"context"
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
	// renewing says that a renewal is under way elsewhere, again is when the next may begin after one that failed.
	renewing bool
	again    time.Time
}

const (
	// serverIssueTimeout bounds the wait for a signer elsewhere, renewAgain is the pause after it did not sign.
	serverIssueTimeout = 30 * time.Second
	renewAgain         = 10 * time.Second
)

// NewServerCertificate returns a certificate for host names and addresses, signed by the authority.
func NewServerCertificate(authority Authority, names []string, lifetime time.Duration, now func() time.Time) *ServerCertificate {
	return &ServerCertificate{authority: authority, names: names, lifetime: lifetime, now: now}
}

// Get is for tls.Config.GetCertificate.
func (c *ServerCertificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	signer := c.authority.Signer()
	now := c.now()
	if c.current != nil && now.Before(c.renew) && signer.same(c.by) {
		return c.current, nil
	}
	if usable := c.current != nil && now.Before(c.current.Leaf.NotAfter); usable && signer.elsewhere != nil && signer.same(c.by) {
		// Another one may be minutes away; handshakes do not wait for what they can do without.
		if !c.renewing && !now.Before(c.again) {
			c.renewing = true
			go c.renewElsewhere(signer)
		}
		return c.current, nil
	}
	cert, err := c.issue(signer, now)
	if err != nil {
		// An old certificate that still has a third of its life is better than none.
		if c.current != nil && now.Before(c.current.Leaf.NotAfter) {
			return c.current, nil
		}
		return nil, err
	}
	c.put(cert, signer, now)
	return c.current, nil
}

func (c *ServerCertificate) put(cert *tls.Certificate, by *Signer, now time.Time) {
	c.current, c.by = cert, by
	c.renew = now.Add(cert.Leaf.NotAfter.Sub(now) * 2 / 3)
}

// renewElsewhere asks for another certificate while the present one is in use.
func (c *ServerCertificate) renewElsewhere(signer *Signer) {
	cert, err := c.issue(signer, c.now())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewing = false
	now := c.now()
	if err != nil {
		c.again = now.Add(renewAgain)
		return
	}
	c.put(cert, signer, now)
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
	request := &Request{public: key.Public()}
	if signer.elsewhere != nil {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: template.Subject, DNSNames: template.DNSNames, IPAddresses: template.IPAddresses}, key)
		if err != nil {
			return nil, fmt.Errorf("make a request for the server certificate: %w", err)
		}
		request.der = der
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverIssueTimeout)
	defer cancel()
	der, chain, err := signer.issue(ctx, request, template, now)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse the server certificate: %w", err)
	}
	certificates := [][]byte{der}
	for _, above := range chain {
		certificates = append(certificates, above.Raw)
	}
	return &tls.Certificate{Certificate: certificates, PrivateKey: key, Leaf: leaf}, nil
}
