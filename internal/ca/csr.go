package ca

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// maxCSR bounds a request's size in bytes; one with an RSA-4096 key takes under 2 KiB.
const maxCSR = 16 << 10

// Request is a certificate signing request that was checked for everything but whether its sender may make it.
type Request struct {
	public any
	// der is the request as it came, surplus what it asks for beside its key and its names.
	der     []byte
	surplus string
	// identity is the one the request itself names; it may name none.
	identity *Identity
}

// ParseRequest reads a PEM request: signed by its own key, with a key of sufficient strength, naming at most one SPIFFE identity and nobody else.
func ParseRequest(csr []byte) (*Request, error) {
	if len(csr) > maxCSR {
		return nil, fmt.Errorf("the request has %d bytes, more than %d", len(csr), maxCSR)
	}
	block, _ := pem.Decode(csr)
	if block == nil || (block.Type != "CERTIFICATE REQUEST" && block.Type != "NEW CERTIFICATE REQUEST") {
		return nil, errors.New("the request is not a PEM certificate request")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse the request: %w", err)
	}
	if err := checkKey(parsed.PublicKey); err != nil {
		return nil, err
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the request is not signed by its own key: %w", err)
	}
	names, err := readAltNames(parsed.Extensions)
	if err != nil {
		return nil, fmt.Errorf("the request: %w; a workload's certificate holds its SPIFFE identity only", err)
	}
	if slices.ContainsFunc(names, func(n altName) bool { return n.kind != uriName }) {
		return nil, errors.New("the request names DNS names, addresses, mailboxes or others; a workload's certificate holds its SPIFFE identity only")
	}
	r := &Request{public: parsed.PublicKey, der: parsed.Raw, surplus: surplus(parsed)}
	switch len(names) {
	case 0:
	case 1:
		id, err := ParseIdentity(names[0].value)
		if err != nil {
			return nil, fmt.Errorf("the request's URI: %w", err)
		}
		r.identity = &id
	default:
		return nil, fmt.Errorf("the request names %d URIs; a certificate holds one identity", len(names))
	}
	return r, nil
}

// pem is the request alone, without what stood around it.
func (r *Request) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: r.der})
}

// copyable says why a request must not be handed to a signer who may copy whatever it asks for; it is nil if it asks for an identity alone.
func (r *Request) copyable(id Identity, signer string) error {
	switch {
	case r.identity == nil:
		return fmt.Errorf("the request names no identity, and %s signs what requests name; put %s into the request as its URI", signer, id)
	case r.surplus != "":
		return fmt.Errorf("the request asks for %s, and %s may sign whatever a request asks for; ask for the identity alone", r.surplus, signer)
	}
	return nil
}

func checkKey(public any) error {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() && k.Curve != elliptic.P384() {
			return fmt.Errorf("the request's key is on curve %s; use P-256", k.Curve.Params().Name)
		}
	case ed25519.PublicKey:
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < 2048 || bits > 8192 {
			return fmt.Errorf("the request's RSA key has %d bits; use 2048 to 8192, or ECDSA P-256", bits)
		}
	default:
		return fmt.Errorf("the request's key is a %T; use ECDSA P-256", public)
	}
	return nil
}
