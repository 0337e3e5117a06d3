package ca

import (
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Identity is a workload's SPIFFE identity in Istio's form: spiffe://TRUST_DOMAIN/ns/NAMESPACE/sa/SERVICE_ACCOUNT.
type Identity struct {
	TrustDomain, Namespace, ServiceAccount string
}

// String renders the identity as a SPIFFE ID.
func (i Identity) String() string {
	return "spiffe://" + i.TrustDomain + "/ns/" + i.Namespace + "/sa/" + i.ServiceAccount
}

// URI is the identity as the URI SAN of a certificate.
func (i Identity) URI() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: i.TrustDomain, Path: "/ns/" + i.Namespace + "/sa/" + i.ServiceAccount}
}

// ParseIdentity reads a SPIFFE ID. It accepts exactly what String renders: two spellings of one identity would be two
// identities to some reader.
func ParseIdentity(s string) (Identity, error) {
	wrong := func(what string) (Identity, error) {
		return Identity{}, fmt.Errorf("%.300q is not spiffe://TRUST_DOMAIN/ns/NAMESPACE/sa/SERVICE_ACCOUNT: %s", s, what)
	}
	rest, ok := strings.CutPrefix(s, "spiffe://")
	if !ok {
		return wrong("the scheme is not spiffe")
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 5 || parts[1] != "ns" || parts[3] != "sa" {
		return wrong("the path is not /ns/NAMESPACE/sa/SERVICE_ACCOUNT")
	}
	id := Identity{TrustDomain: parts[0], Namespace: parts[2], ServiceAccount: parts[4]}
	switch {
	case len(validation.IsDNS1123Subdomain(id.TrustDomain)) > 0:
		return wrong("the trust domain is not a DNS name")
	case len(validation.IsDNS1123Label(id.Namespace)) > 0:
		return wrong("the namespace is not valid")
	case len(validation.IsDNS1123Subdomain(id.ServiceAccount)) > 0:
		return wrong("the service account is not valid")
	}
	return id, nil
}
