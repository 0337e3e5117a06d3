package ca

import (
	"crypto"
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"slices"
	"time"
)

// LeastLifeElsewhere is the shortest life that a signer elsewhere can be asked for: that of Kubernetes' API.
const LeastLifeElsewhere = 10 * time.Minute

// answerLeeway is how much longer than asked for a certificate may live: the signer's clock may be ahead, and it may count from when it signs.
const answerLeeway = 5 * time.Minute

// harmless are the attributes of a subject that say who runs a signer, and name nobody: country, locality, province, organization and its unit.
var harmless = []asn1.ObjectIdentifier{{2, 5, 4, 6}, {2, 5, 4, 7}, {2, 5, 4, 8}, {2, 5, 4, 10}, {2, 5, 4, 11}}

// judgeAnswer refuses a certificate that is not the one that was asked for. Beyond what reaches a proxy in error, a certificate of
// the mesh's that says more than an identity could be used where somebody believes the rest.
func judgeAnswer(signer string, cert *x509.Certificate, r *Request, template *x509.Certificate, asked, now time.Time) error {
	public, comparable := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	names, err := readAltNames(cert.Extensions)
	switch {
	case !comparable || !public.Equal(r.public):
		return fmt.Errorf("%s signed another key than the request's", signer)
	case cert.IsCA:
		return fmt.Errorf("%s signed a CA certificate", signer)
	case err != nil:
		return fmt.Errorf("%s signed other names than were asked for: %w", signer, err)
	case !sameNames(names, namesOf(template)):
		return fmt.Errorf("%s signed other names than were asked for", signer)
	case !plainSubject(cert, template):
		return fmt.Errorf("%s signed the subject %.200s, which nobody asked for; have it take none, or only who runs it (C, ST, L, O, OU)", signer, cert.Subject)
	}
	if err := judgeUsage(signer, cert, template); err != nil {
		return err
	}
	life := max(template.NotAfter.Sub(asked), LeastLifeElsewhere)
	if end := now.Add(life + answerLeeway); cert.NotAfter.After(end) {
		return fmt.Errorf("%s signed for longer than the %s that were asked for, until %s; have it keep to expirationSeconds of its requests, or raise --cert-ttl and what proxies ask for",
			signer, life, cert.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// plainSubject says whether a subject holds nothing beyond what is harmless, and the common name that was asked for.
func plainSubject(cert, template *x509.Certificate) bool {
	for _, name := range cert.Subject.Names {
		ours := name.Type.Equal(asn1.ObjectIdentifier{2, 5, 4, 3}) && template.Subject.CommonName != "" && name.Value == template.Subject.CommonName
		if !ours && !slices.ContainsFunc(harmless, name.Type.Equal) {
			return false
		}
	}
	return true
}

// judgeUsage refuses a certificate that may be used for anything but handshakes, or not for those that it was asked for.
func judgeUsage(signer string, cert, template *x509.Certificate) error {
	const handshakes = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageKeyAgreement
	if cert.KeyUsage&x509.KeyUsageDigitalSignature == 0 || cert.KeyUsage&^handshakes != 0 {
		return fmt.Errorf("%s signed a key usage that is not a handshake's; have it sign digitalSignature, and at most keyEncipherment and keyAgreement besides", signer)
	}
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	beyond := func(u x509.ExtKeyUsage) bool { return !slices.Contains(both, u) }
	lacks := func(u x509.ExtKeyUsage) bool { return !slices.Contains(cert.ExtKeyUsage, u) }
	if len(cert.UnknownExtKeyUsage) > 0 || slices.ContainsFunc(cert.ExtKeyUsage, beyond) || slices.ContainsFunc(template.ExtKeyUsage, lacks) {
		return fmt.Errorf("%s signed another extended key usage than was asked for; have it sign the usages of its requests: server auth and client auth", signer)
	}
	return nil
}
