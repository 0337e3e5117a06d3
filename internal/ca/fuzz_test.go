package ca

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// FuzzParseRequest: no bytes make the parser panic, what it accepts names at most an identity that reads back the same, and what may be handed to
// a signer elsewhere asks for that identity alone, as Go's own reader sees it.
func FuzzParseRequest(f *testing.F) {
	f.Add(csr(f, newKey(f), nil, web))
	f.Add(csr(f, newKey(f), nil))
	f.Add("-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRequest([]byte(text))
		if err != nil || r.identity == nil {
			return
		}
		if again, err := ParseIdentity(r.identity.String()); err != nil || again != *r.identity {
			t.Errorf("%v reads back as %v, %v", r.identity, again, err)
		}
		if r.copyable(*r.identity, "signer") != nil {
			return
		}
		block, rest := pem.Decode(r.pem())
		if block == nil || len(rest) > 0 || len(block.Headers) > 0 {
			t.Fatalf("handed on: %s", r.pem())
		}
		asks, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if asks.Subject.CommonName != "" || len(strings.Join(asks.Subject.Organization, "")) > 0 || len(asks.Extensions) != 1 || !asks.Extensions[0].Id.Equal(altNames) ||
			len(asks.Attributes) > 1 || len(asks.DNSNames)+len(asks.IPAddresses)+len(asks.EmailAddresses) > 0 || len(asks.URIs) != 1 || asks.URIs[0].String() != r.identity.String() { //nolint:staticcheck // what Go deprecates others still send
			t.Errorf("%+v was handed on", asks)
		}
	})
}

// FuzzAnswer: no bytes make the judge of signers' answers panic, and what it accepts is a certificate for one identity and for handshakes alone, as
// Go's own reader sees it.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte{48, 0})
	f.Fuzz(func(t *testing.T, der []byte) {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return
		}
		id, err := ParseIdentity(web)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{NotAfter: start.Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, URIs: []*url.URL{id.URI()}}
		if judgeAnswer("signer", cert, &Request{public: cert.PublicKey}, template, start, start) != nil {
			return
		}
		if len(cert.URIs) != 1 || cert.URIs[0].String() != web || len(cert.DNSNames)+len(cert.IPAddresses)+len(cert.EmailAddresses) > 0 || cert.Subject.CommonName != "" || cert.Subject.SerialNumber != "" ||
			cert.IsCA || cert.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0 || len(cert.ExtKeyUsage) != 2 || cert.NotAfter.After(start.Add(time.Hour+answerLeeway)) {
			t.Errorf("accepted %+v", cert)
		}
	})
}

// FuzzVerifyToken: no bytes make the verifier panic, nothing that was not signed here is accepted, and no refusal repeats its input.
func FuzzVerifyToken(f *testing.F) {
	key := newKey(f)
	v := NewTokenVerifier([]*ecdsa.PublicKey{&key.PublicKey}, "lateen-local", func() time.Time { return start })
	good := sign(f, jwt.SigningMethodES256, key, claimsOf("n1", nil))
	f.Add(good)
	f.Add(good[:len(good)-4])
	f.Add("e30.e30.")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, token string) {
		caller, err := v.Verify(context.Background(), token)
		if err == nil && (caller.Namespace != "istio-system" || caller.ServiceAccount != "ztunnel") {
			t.Errorf("accepted %+v", caller)
		}
		if err != nil && len(token) > 40 && strings.Contains(err.Error(), token) {
			t.Errorf("the refusal repeats the token: %v", err)
		}
	})
}

// FuzzIdentity: what is accepted renders to the very text that was read.
func FuzzIdentity(f *testing.F) {
	f.Add(web)
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseIdentity(s); err == nil && (id.String() != s || id.URI().String() != s) {
			t.Errorf("%q reads as %v", s, id)
		}
	})
}

// FuzzParsePlugged: no bytes make the loader panic, what it accepts can sign what its own bundle verifies, and no refusal repeats
// the key.
func FuzzParsePlugged(f *testing.F) {
	// The seeds are in testdata: keys made anew each time would be news each time.
	f.Fuzz(func(t *testing.T, cert, key, chain, root []byte) {
		s, err := ParsePlugged(Files{Cert: cert, Key: key, Chain: chain, Root: root}, start)
		if err != nil {
			if len(key) > 100 && strings.Contains(err.Error(), string(key)) {
				t.Errorf("the refusal repeats the key: %v", err)
			}
			return
		}
		if err := s.probe(start); err != nil || len(s.roots) == 0 || start.After(s.NotAfter()) && len(s.chain) > 0 {
			t.Errorf("accepted, and %v; it signs until %s", err, s.NotAfter())
		}
	})
}

// FuzzParseLedger: no bytes make the reader panic, and what it reads completely it reads again the same.
func FuzzParseLedger(f *testing.F) {
	f.Add([]byte(`{"boot":"b","since":"2026-01-02T03:04:05Z"}` + "\n" + `{"holder":{"node":"n1","identity":"a"},"stage":"1 steady","until":"2026-01-02T03:04:05Z"}` + "\n"))
	f.Add([]byte(`{"holder":{}}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		holders, since, boot, ok := parseLedger(data)
		if !ok {
			return
		}
		l := &ledger{path: filepath.Join(t.TempDir(), ledgerFile), boot: boot, since: since, holders: holders}
		if err := l.write(); err != nil {
			return // years beyond 9999 do not come from here
		}
		written, err := os.ReadFile(l.path)
		if err != nil {
			t.Fatal(err)
		}
		again, sinceAgain, bootAgain, ok := parseLedger(written)
		if !ok || len(again) != len(holders) || !sinceAgain.Equal(since) || bootAgain != boot {
			t.Errorf("%q reads back otherwise", data)
		}
	})
}
