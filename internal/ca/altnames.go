package ca

import (
	"cmp"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net"
	"slices"
	"strings"
)

// altNames is the extension that holds a certificate's alternative names. Go's own reader leaves out kinds of names that others read, and
// takes several spellings of a URI for one; here every name counts, byte by byte.
var altNames = asn1.ObjectIdentifier{2, 5, 29, 17}

// Kinds of alternative names, by their tag.
const (
	hostName = 2
	uriName  = 6
	ipName   = 7
)

type altName struct {
	kind  int
	value string
}

// readAltNames lists all alternative names among extensions.
func readAltNames(extensions []pkix.Extension) ([]altName, error) {
	var names []altName
	for _, e := range extensions {
		if !e.Id.Equal(altNames) {
			continue
		}
		var list []asn1.RawValue
		if rest, err := asn1.Unmarshal(e.Value, &list); err != nil || len(rest) > 0 {
			return nil, errors.New("its alternative names cannot be read")
		}
		for _, n := range list {
			if n.Class != asn1.ClassContextSpecific || n.IsCompound {
				return nil, errors.New("it has an alternative name of an unusual kind")
			}
			names = append(names, altName{n.Tag, string(n.Bytes)})
		}
	}
	return names, nil
}

// namesOf are the alternative names that a template asks for.
func namesOf(template *x509.Certificate) []altName {
	var names []altName
	for _, u := range template.URIs {
		names = append(names, altName{uriName, u.String()})
	}
	for _, h := range template.DNSNames {
		names = append(names, altName{hostName, h})
	}
	for _, ip := range template.IPAddresses {
		if four := ip.To4(); four != nil {
			ip = net.IP(four)
		}
		names = append(names, altName{ipName, string(ip)})
	}
	return names
}

// sameNames says whether two lists hold the same names, in whatever order.
func sameNames(a, b []altName) bool {
	order := func(x, y altName) int { return cmp.Or(cmp.Compare(x.kind, y.kind), strings.Compare(x.value, y.value)) }
	return slices.Equal(slices.SortedFunc(slices.Values(a), order), slices.SortedFunc(slices.Values(b), order))
}
