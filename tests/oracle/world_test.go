package oracle

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/gen/l7"
)

// The trust domain of the mesh, and the alias that it has in some cases.
const (
	ownDomain   = "cluster.local"
	aliasDomain = "old.example"
)

// policyNamespace is the namespace of all policies, and of the service that requests are for.
const policyNamespace = "shop"

// testCase is policies of one service, and requests for it. All requests have one destination.
type testCase struct {
	// aliased says that aliasDomain is an alias of the mesh's trust domain.
	aliased  bool
	policies []*securityv1.AuthorizationPolicy
	requests []request
}

// domains are the names of the mesh's trust domain.
func (c testCase) domains() []string {
	if c.aliased {
		return []string{ownDomain, aliasDomain}
	}
	return []string{ownDomain}
}

// identity is who a peer is by its certificate.
type identity struct{ domain, namespace, account string }

func (i identity) String() string { return i.domain + "/" + i.path() }

func (i identity) path() string { return "ns/" + i.namespace + "/sa/" + i.account }

type field struct{ name, value string }

// request is a request and the connection that it comes over.
type request struct {
	peer        *identity // nil: plain text
	source      netip.Addr
	destination netip.AddrPort
	sni         string // empty: no TLS
	method      string
	target      string
	host        string
	forwarded   netip.Addr // the zero value: no proxy says for whom it forwards
	fields      []field
}

// level is how paths are normalised. The destination says it, since Envoy has one setting for a listener.
func (r request) level() l7.PathNormalization {
	switch r.destination {
	case destinations[2]:
		return l7.PathNormalization_MERGE_SLASHES
	case destinations[3]:
		return l7.PathNormalization_DECODE_AND_MERGE_SLASHES
	}
	return l7.PathNormalization_BASE
}

// client is where the request comes from as far as proxies are believed.
func (r request) client() netip.Addr {
	if r.forwarded.IsValid() {
		return r.forwarded
	}
	return r.source
}

// values are the values of all fields of a name.
func (r request) values(name string) (out []string) {
	for _, f := range r.fields {
		if strings.EqualFold(f.name, name) {
			out = append(out, f.value)
		}
	}
	return out
}

// head is the request as bytes of HTTP/1.1, with further fields.
func (r request) head(more ...field) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.method, r.target, r.host)
	if r.forwarded.IsValid() {
		fmt.Fprintf(&b, "X-Forwarded-For: %s\r\n", r.forwarded)
	}
	for _, fields := range [][]field{r.fields, more} {
		for _, f := range fields {
			fmt.Fprintf(&b, "%s: %s\r\n", f.name, f.value)
		}
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

func (r request) String() string {
	peer := "nobody"
	if r.peer != nil {
		peer = r.peer.String()
	}
	return fmt.Sprintf("%s from %s to %s, SNI %q: %q", peer, r.source, r.destination, r.sni, r.head())
}
