package ca

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// outside is a signer that copies whatever a request asks for, as many do. edit changes what it signs.
type outside struct {
	t    *testing.T
	root *link
	edit func(*x509.Certificate)
	key  crypto.PublicKey // signs this key in place of the request's
	seen []byte           // the request that came last
}

func (o *outside) Sign(_ context.Context, request []byte, life time.Duration, _ bool) ([]byte, error) {
	o.seen = request
	block, rest := pem.Decode(request)
	if block == nil || len(rest) > 0 || len(block.Headers) > 0 {
		return nil, errors.New("not a request alone")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{SerialNumber: o.root.cert.SerialNumber, RawSubject: asked.RawSubject, ExtraExtensions: asked.Extensions, NotBefore: start.Add(-time.Minute), NotAfter: start.Add(life),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if o.edit != nil {
		o.edit(c)
	}
	key := o.key
	if key == nil {
		key = asked.PublicKey
	}
	der, err := x509.CreateCertificate(rand.Reader, c, o.root.cert, key, o.root.key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// fixed is an authority with one signer.
type fixed struct{ signer *Signer }

func (f fixed) Signer() *Signer                       { return f.signer }
func (f fixed) Issued(Holder, time.Duration, *Signer) {}

// signedOutside is an authority whose certificates an outside signer signs.
func signedOutside(t *testing.T) (*authority, *outside) {
	t.Helper()
	a, o := newAuthority(t), &outside{t: t, root: certify(t, "root", nil, nil)}
	s, err := NewSignerElsewhere("signer example.com/mesh", o, "ConfigMap roots", bundleOf(o.root))
	if err != nil {
		t.Fatal(err)
	}
	a.service.Authority = fixed{s}
	return a, o
}

// generalName is a name of an alternative-names extension.
func generalName(tag int, value string) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, Bytes: []byte(value)}
}

func alternativeNames(t testing.TB, names ...asn1.RawValue) pkix.Extension {
	t.Helper()
	value, err := asn1.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: true, Value: value}
}

// challenge is the attribute by which a requester gives an authority a password.
var challenge = pkix.AttributeTypeAndValueSET{Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7}, Value: [][]pkix.AttributeTypeAndValue{{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "secret"}}}}

// greedy are requests that ask for something beside the identity web.
func greedy(t testing.TB) map[string]*x509.CertificateRequest {
	sans := []pkix.Extension{alternativeNames(t, generalName(6, web))}
	return map[string]*x509.CertificateRequest{
		"CN=postgres-admin":    {Subject: pkix.Name{CommonName: "postgres-admin"}, ExtraExtensions: sans},
		"O=system:masters":     {Subject: pkix.Name{Organization: []string{"system:masters"}}, ExtraExtensions: sans},
		"2.5.29.15":            {ExtraExtensions: []pkix.Extension{sans[0], {Id: asn1.ObjectIdentifier{2, 5, 29, 15}, Value: []byte{3, 2, 1, 6}}}},
		"2.5.29.19":            {ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Value: []byte{48, 3, 1, 1, 255}}, sans[0]}},
		"1.2.840.113549.1.9.7": {ExtraExtensions: sans, Attributes: []pkix.AttributeTypeAndValueSET{challenge}}, //nolint:staticcheck // what Go deprecates others still send
	}
}

// TestASignerElsewhereIsHandedTheIdentityAndNothingElse: what it copies would be a certificate for something that the mesh does not own, approved in the control plane's name.
func TestASignerElsewhereIsHandedTheIdentityAndNothingElse(t *testing.T) {
	for what, template := range greedy(t) {
		t.Run(what, func(t *testing.T) {
			request := csr(t, newKey(t), template)
			a, o := signedOutside(t)
			resp, err := a.ask(a.token(nil), web, request, 3600)
			text := status.Convert(err).Message()
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(text, what) || !strings.Contains(text, "signer example.com/mesh") || a.counted.refused["malformed_csr"] != 1 {
				t.Errorf("got %v, %v; counted %v", resp, err, a.counted.refused)
			}
			if o.seen != nil {
				t.Error("the signer was handed it")
			}
			// The mesh's own CA uses nothing of a request but its key.
			own := newAuthority(t)
			resp, err = own.ask(own.token(nil), web, request, 3600)
			if err != nil {
				t.Fatal(err)
			}
			if leaf := parse(t, resp.CertChain[0]); len(leaf.Subject.Names) != 0 || leaf.IsCA || leaf.KeyUsage&x509.KeyUsageCertSign != 0 || len(leaf.URIs) != 1 {
				t.Errorf("the CA signed %v %v", leaf.Subject, leaf.KeyUsage)
			}
		})
	}
}

// Requests of unmodified programs are signed: their subject is empty or, from Istio's agent, an organization that is empty text.
func TestASignerElsewhereSignsWhatUnmodifiedProgramsAskFor(t *testing.T) {
	sans := []pkix.Extension{alternativeNames(t, generalName(6, web))}
	for name, template := range map[string]*x509.CertificateRequest{
		"node proxies":  {ExtraExtensions: sans},
		"Istio's agent": {Subject: pkix.Name{Organization: []string{""}}, ExtraExtensions: sans},
	} {
		a, o := signedOutside(t)
		request := csr(t, newKey(t), template)
		resp, err := a.ask(a.token(nil), web, "text before\n"+strings.Replace(request, "-----\n", "-----\nProc-Type: 4,X\n\n", 1)+"text after", 3600)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if leaf := parse(t, resp.CertChain[0]); len(leaf.URIs) != 1 || leaf.URIs[0].String() != web {
			t.Errorf("%s: got %v", name, leaf.URIs)
		}
		if string(o.seen) != request {
			t.Errorf("%s: the signer was handed %s", name, o.seen)
		}
	}
}

// Names that Go does not read, and other spellings of an identity, are refused whoever signs.
func TestARequestHasNoNamesBesideOneIdentity(t *testing.T) {
	otherName := asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: []byte{6, 3, 42, 3, 4}}
	for name, names := range map[string][]asn1.RawValue{
		"a principal":            {generalName(6, web), otherName},
		"a registered id":        {generalName(6, web), generalName(8, "\x2a\x03")},
		"a mailbox":              {generalName(6, web), generalName(1, "a@b.example")},
		"a host name":            {generalName(6, web), generalName(2, "bank.example")},
		"an address":             {generalName(6, web), generalName(7, "\x0a\x00\x00\x01")},
		"two identities":         {generalName(6, web), generalName(6, web)},
		"a scheme in capitals":   {generalName(6, "SPIFFE://cluster.local/ns/shop/sa/web")},
		"an empty fragment":      {generalName(6, web+"#")},
		"an empty query":         {generalName(6, web+"?")},
		"an escaped letter":      {generalName(6, "spiffe://cluster.local/ns/shop/sa/%77eb")},
		"a domain in capitals":   {generalName(6, "spiffe://CLUSTER.local/ns/shop/sa/web")},
		"a port":                 {generalName(6, "spiffe://cluster.local:443/ns/shop/sa/web")},
		"a user":                 {generalName(6, "spiffe://root@cluster.local/ns/shop/sa/web")},
		"a slash at the end":     {generalName(6, web+"/")},
		"a name that is no text": {{Class: asn1.ClassContextSpecific, Tag: 6, IsCompound: true, Bytes: []byte(web)}},
	} {
		for where, a := range map[string]*authority{"the own CA": newAuthority(t), "a signer elsewhere": first(signedOutside(t))} {
			request := csr(t, newKey(t), &x509.CertificateRequest{ExtraExtensions: []pkix.Extension{alternativeNames(t, names...)}})
			if resp, err := a.ask(a.token(nil), web, request, 3600); err == nil || a.counted.issued != 0 {
				t.Errorf("%s: %s signed %v", name, where, resp)
			}
		}
	}
}

func first[A, B any](a A, _ B) A { return a }

// TestASignersAnswerIsAStrangers: what reaches a node proxy is the certificate that was asked for.
func TestASignersAnswerIsAStrangers(t *testing.T) {
	names := func(names ...asn1.RawValue) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtraExtensions = []pkix.Extension{alternativeNames(t, names...)} }
	}
	for _, c := range []struct {
		name string
		edit func(*x509.Certificate)
		want string // empty: it is good
	}{
		{"as asked", func(*x509.Certificate) {}, ""},
		{"a subject that names somebody", func(c *x509.Certificate) { c.RawSubject, c.Subject = nil, pkix.Name{CommonName: "postgres-admin"} }, "the subject CN=postgres-admin"},
		{"a subject with a number", func(c *x509.Certificate) { c.RawSubject, c.Subject = nil, pkix.Name{SerialNumber: "7"} }, "the subject"},
		{"a subject that says who runs the signer", func(c *x509.Certificate) {
			c.RawSubject, c.Subject = nil, pkix.Name{Organization: []string{"Example"}, OrganizationalUnit: []string{"Mesh"}, Country: []string{"DE"}, Locality: []string{"Kiel"}, Province: []string{"SH"}}
		}, ""},
		{"no name", func(c *x509.Certificate) { c.ExtraExtensions = nil }, "other names"},
		{"another identity", names(generalName(6, "spiffe://cluster.local/ns/shop/sa/db")), "other names"},
		{"a second identity", names(generalName(6, web), generalName(6, "spiffe://cluster.local/ns/shop/sa/db")), "other names"},
		{"another spelling", names(generalName(6, web+"#")), "other names"},
		{"a host name besides", names(generalName(6, web), generalName(2, "bank.example")), "other names"},
		{"an address besides", names(generalName(6, web), generalName(7, string(net.IPv4(10, 0, 0, 1).To4()))), "other names"},
		{"a mailbox besides", names(generalName(6, web), generalName(1, "a@b.example")), "other names"},
		{"a registered id besides", names(generalName(6, web), generalName(8, "\x2a\x03")), "other names"},
		{"a CA", func(c *x509.Certificate) { c.IsCA = true }, "a CA certificate"},
		{"a key that signs certificates", func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign }, "key usage"},
		{"a key that signs revocation lists", func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign }, "key usage"},
		{"a key that signs no handshake", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }, "key usage"},
		{"a key that agrees on keys", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyAgreement }, ""},
		{"a key for handshakes alone", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }, ""},
		{"a certificate that signs programs", func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageCodeSigning) }, "extended key usage"},
		{"a certificate for everything", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }, "extended key usage"},
		{"a certificate for something unknown", func(c *x509.Certificate) { c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 2, 3}} }, "extended key usage"},
		{"a certificate that does not say for what", func(c *x509.Certificate) { c.ExtKeyUsage = nil }, "extended key usage"},
		{"a certificate for servers alone", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, "extended key usage"},
		{"a longer life", func(c *x509.Certificate) { c.NotAfter = start.Add(3 * time.Hour) }, "--cert-ttl"},
		{"a shorter life", func(c *x509.Certificate) { c.NotAfter = start.Add(time.Minute) }, ""},
		{"a clock that is ahead", func(c *x509.Certificate) { c.NotAfter = c.NotAfter.Add(time.Minute) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, o := signedOutside(t)
			o.edit = c.edit
			resp, err := a.ask(a.token(nil), web, csr(t, newKey(t), nil, web), 3600)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, %v; want %q", resp, err, c.want)
			}
		})
	}
	t.Run("another key", func(t *testing.T) {
		a, o := signedOutside(t)
		o.key = newKey(t).Public()
		if _, err := a.ask(a.token(nil), web, csr(t, newKey(t), nil, web), 3600); err == nil || !strings.Contains(err.Error(), "another key") {
			t.Errorf("got %v", err)
		}
	})
}

// The API has requests live ten minutes at least: what was asked for less may live that long.
func TestASignersShortestLifeIsNoFault(t *testing.T) {
	a, o := signedOutside(t)
	o.edit = func(c *x509.Certificate) { c.NotAfter = start.Add(10 * time.Minute) }
	if _, err := a.ask(a.token(nil), web, csr(t, newKey(t), nil, web), 60); err != nil {
		t.Error(err)
	}
}

// A request without an identity would leave it to the signer whom it certifies.
func TestASignerElsewhereIsHandedNoRequestWithoutAnIdentity(t *testing.T) {
	a, o := signedOutside(t)
	_, err := a.ask(a.token(nil), web, csr(t, newKey(t), nil), 3600)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), web) || o.seen != nil {
		t.Errorf("got %v, the signer was handed %q", err, o.seen)
	}
}

// The control plane's own certificate takes the same way.
func TestASignerElsewhereSignsTheControlPlanesCertificate(t *testing.T) {
	_, o := signedOutside(t)
	s, err := NewSignerElsewhere("signer", o, "ConfigMap roots", bundleOf(o.root))
	if err != nil {
		t.Fatal(err)
	}
	get := func() error {
		_, err := NewServerCertificate(fixed{s}, []string{"lateen-control.lateen-system.svc", "10.0.0.1", "fd00::1"}, time.Hour, func() time.Time { return start }).Get(nil)
		return err
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	identity, err := url.Parse(web)
	if err != nil {
		t.Fatal(err)
	}
	o.edit = func(c *x509.Certificate) { c.ExtraExtensions, c.URIs = nil, []*url.URL{identity} }
	if err := get(); err == nil || !strings.Contains(err.Error(), "other names") {
		t.Errorf("got %v", err)
	}
}

// Whatever a request asks for: the mesh's own CA signs the identity alone, and so does a signer that copies everything, or nothing is signed.
func TestNothingOfARequestReachesACertificateButKeyAndIdentity(t *testing.T) {
	seed := time.Now().UnixNano()
	random, key := mathrand.New(mathrand.NewPCG(uint64(seed), 0)), newKey(t) //nolint:gosec // a test's
	own := newAuthority(t)
	own.now = start.Add(time.Minute)
	abroad, _ := signedOutside(t)
	signed := map[*authority]int{}
	for range 300 {
		request := csr(t, key, randomRequest(t, random))
		for _, a := range []*authority{own, abroad} {
			resp, err := a.ask(a.token(nil), web, request, 3600)
			if err != nil {
				continue
			}
			signed[a]++
			leaf := parse(t, resp.CertChain[0])
			names, err := readAltNames(leaf.Extensions)
			if err != nil || len(names) != 1 || names[0] != (altName{uriName, web}) || leaf.IsCA || leaf.Subject.String() != "" && leaf.Subject.String() != "O=" ||
				leaf.KeyUsage != x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment || len(leaf.ExtKeyUsage) != 2 || len(leaf.UnknownExtKeyUsage) > 0 || !key.PublicKey.Equal(leaf.PublicKey) {
				t.Fatalf("seed %d: %s\nwas signed as %v %v %v", seed, request, leaf.Subject, names, leaf.KeyUsage)
			}
		}
	}
	if signed[own] <= signed[abroad] || signed[abroad] == 0 {
		t.Errorf("seed %d: the own CA signed %d, the other %d: too few were tried", seed, signed[own], signed[abroad])
	}
}

// randomRequest asks for the identity web, or for less, and for some of what a request may ask for besides.
func randomRequest(t *testing.T, random *mathrand.Rand) *x509.CertificateRequest {
	sometimes := func(often int) bool { return random.IntN(often) == 0 }
	r := &x509.CertificateRequest{}
	if sometimes(4) {
		r.Subject = pkix.Name{CommonName: []string{"", "admin"}[random.IntN(2)], Organization: [][]string{nil, {""}, {"system:masters"}, {"", ""}}[random.IntN(4)]}
	}
	names := []asn1.RawValue{generalName(6, web)}
	for sometimes(4) {
		names = append(names, generalName([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}[random.IntN(10)], []string{web, "bank.example", "\x0a\x00\x00\x01", ""}[random.IntN(4)]))
	}
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	if !sometimes(6) {
		r.ExtraExtensions = append(r.ExtraExtensions, alternativeNames(t, names...))
	}
	for sometimes(4) {
		r.ExtraExtensions = append(r.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 14 + random.IntN(24)}, Critical: sometimes(2), Value: []byte{3, 2, 1, byte(random.IntN(8))}})
	}
	if sometimes(5) {
		r.Attributes = append(r.Attributes, challenge) //nolint:staticcheck // what Go deprecates others still send
	}
	return r
}
