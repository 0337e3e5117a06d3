package ca

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
)

// extensionRequest is the attribute in which a request asks for extensions.
var extensionRequest = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14}

// organization is an attribute of a subject.
var organization = asn1.ObjectIdentifier{2, 5, 4, 10}

// surplus names what a request asks for beside its key and its alternative names; it is empty if there is nothing. The mesh's own CA takes
// nothing else from a request, but a signer elsewhere may copy all of it into the certificate.
func surplus(request *x509.CertificateRequest) string {
	// Istio's agent asks for an organization that is empty text.
	if s := request.Subject.Names; len(s) > 1 || len(s) == 1 && (!s[0].Type.Equal(organization) || s[0].Value != "") {
		return fmt.Sprintf("the subject %.100s", request.Subject)
	}
	var info struct {
		Version            int
		Subject, PublicKey asn1.RawValue
		Attributes         []asn1.RawValue `asn1:"tag:0"`
	}
	if rest, err := asn1.Unmarshal(request.RawTBSCertificateRequest, &info); err != nil || len(rest) > 0 {
		return "attributes that cannot be read"
	}
	extensions := 0
	for i, raw := range info.Attributes {
		var attribute struct {
			ID     asn1.ObjectIdentifier
			Values []asn1.RawValue `asn1:"set"`
		}
		if rest, err := asn1.Unmarshal(raw.FullBytes, &attribute); err != nil || len(rest) > 0 {
			return "an attribute that cannot be read"
		}
		if !attribute.ID.Equal(extensionRequest) {
			return "the attribute " + attribute.ID.String()
		}
		if i > 0 || len(attribute.Values) != 1 {
			return "several lists of extensions"
		}
		var list []pkix.Extension
		if rest, err := asn1.Unmarshal(attribute.Values[0].FullBytes, &list); err != nil || len(rest) > 0 {
			return "extensions that cannot be read"
		}
		for _, e := range list {
			if !e.Id.Equal(altNames) {
				return "the extension " + e.Id.String()
			}
			extensions++
		}
	}
	if extensions > 1 {
		return "its alternative names twice"
	}
	return ""
}
