package translate

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	securityapi "istio.io/api/security/v1beta1"

	"lateen.dev/lateen/internal/gen/l7"
)

// reader reads the values of a rule into messages and collects those that cannot be judged.
type reader struct {
	namespace string
	bad       []string
}

func (r *reader) refuse(field, value string) {
	r.bad = append(r.bad, fmt.Sprintf("%s %.100q", field, value))
}

// requestSource reads one source.
func requestSource(s *securityapi.Source, namespace string) (*l7.Source, []string) {
	r := &reader{namespace: namespace}
	out := &l7.Source{
		Principals:           texts(s.GetPrincipals()),
		NotPrincipals:        texts(s.GetNotPrincipals()),
		RequestPrincipals:    texts(s.GetRequestPrincipals()),
		NotRequestPrincipals: texts(s.GetNotRequestPrincipals()),
		Namespaces:           r.patterns("namespaces", s.GetNamespaces()),
		NotNamespaces:        r.patterns("notNamespaces", s.GetNotNamespaces()),
		ServiceAccounts:      r.accounts("serviceAccounts", s.GetServiceAccounts()),
		NotServiceAccounts:   r.accounts("notServiceAccounts", s.GetNotServiceAccounts()),
		TrustDomains:         r.patterns("trustDomains", s.GetTrustDomains()),
		NotTrustDomains:      r.patterns("notTrustDomains", s.GetNotTrustDomains()),
		IpBlocks:             r.blocks("ipBlocks", s.GetIpBlocks()),
		NotIpBlocks:          r.blocks("notIpBlocks", s.GetNotIpBlocks()),
		RemoteIpBlocks:       r.blocks("remoteIpBlocks", s.GetRemoteIpBlocks()),
		NotRemoteIpBlocks:    r.blocks("notRemoteIpBlocks", s.GetNotRemoteIpBlocks()),
	}
	return out, r.bad
}

func namesNoSource(s *l7.Source) bool       { return proto.Size(s) == 0 }
func namesNoOperation(o *l7.Operation) bool { return proto.Size(o) == 0 }

// requestOperation reads one operation.
func requestOperation(o *securityapi.Operation) (*l7.Operation, []string) {
	r := &reader{}
	out := &l7.Operation{
		Hosts:      texts(o.GetHosts()),
		NotHosts:   texts(o.GetNotHosts()),
		Ports:      r.ports("ports", o.GetPorts()),
		NotPorts:   r.ports("notPorts", o.GetNotPorts()),
		Methods:    texts(o.GetMethods()),
		NotMethods: texts(o.GetNotMethods()),
		Paths:      r.paths("paths", o.GetPaths()),
		NotPaths:   r.paths("notPaths", o.GetNotPaths()),
	}
	return out, r.bad
}

// text reads one of Istio's patterns: "*" for any value there is, "*x" for a suffix, "x*" for a prefix. A further star stands for itself.
func text(v string) *l7.StringMatch {
	switch {
	case v == "*":
		return &l7.StringMatch{Match: &l7.StringMatch_Present{Present: true}}
	case strings.HasPrefix(v, "*"):
		return &l7.StringMatch{Match: &l7.StringMatch_Suffix{Suffix: v[1:]}}
	case strings.HasSuffix(v, "*"):
		return &l7.StringMatch{Match: &l7.StringMatch_Prefix{Prefix: v[:len(v)-1]}}
	}
	return &l7.StringMatch{Match: &l7.StringMatch_Exact{Exact: v}}
}

func texts(values []string) (out []*l7.StringMatch) {
	for _, v := range values {
		out = append(out, text(v))
	}
	return out
}

// list reads the values of a field. One that cannot be judged leaves all others out, unless the field begins with "not": a rule that must match
// at least what is written would otherwise match the others alone.
func list[T any](r *reader, field string, values []string, read func(field, v string) (T, bool)) (out []T) {
	before := len(r.bad)
	for _, v := range values {
		if one, ok := read(field, v); ok {
			out = append(out, one)
		}
	}
	if len(r.bad) > before && !strings.HasPrefix(field, "not") {
		return nil
	}
	return out
}

// found says of a value that was read whether it can be judged.
func found[T any](read func(field, v string) *T) func(field, v string) (*T, bool) {
	return func(field, v string) (*T, bool) {
		one := read(field, v)
		return one, one != nil
	}
}

// patterns reads namespaces and trust domains, in which a star within stands for any text, too. No proxy can judge one that has it.
func (r *reader) patterns(field string, values []string) []*l7.StringMatch {
	return list(r, field, values, found(r.pattern))
}

func (r *reader) pattern(field, v string) *l7.StringMatch {
	rest := v
	if v != "*" {
		if cut, first := strings.CutPrefix(v, "*"); first {
			rest = cut
		} else {
			rest = strings.TrimSuffix(v, "*")
		}
		if strings.Contains(rest, "*") {
			r.refuse(field, v)
			return nil
		}
	}
	return text(v)
}

// mostAccounts is how many service accounts Istio takes in one list.
const mostAccounts = 16

// accounts reads "name", which is in the policy's own namespace, and "namespace/name".
func (r *reader) accounts(field string, values []string) []*l7.ServiceAccount {
	if len(values) > mostAccounts {
		r.bad = append(r.bad, fmt.Sprintf("%s with %d values, more than %d", field, len(values), mostAccounts))
		return nil
	}
	return list(r, field, values, found(r.account))
}

func (r *reader) account(field, v string) *l7.ServiceAccount {
	namespace, name, qualified := strings.Cut(v, "/")
	if !qualified {
		namespace, name = r.namespace, v
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") || strings.Contains(v, "*") {
		r.refuse(field, v)
		return nil
	}
	return &l7.ServiceAccount{Namespace: namespace, Name: name}
}

func (r *reader) ports(field string, values []string) []uint32 {
	return list(r, field, values, r.port)
}

func (r *reader) port(field, v string) (uint32, bool) {
	n, err := strconv.ParseUint(v, 10, 16)
	if err != nil {
		r.refuse(field, v)
	}
	return uint32(n), err == nil
}

func (r *reader) blocks(field string, values []string) []*l7.Block {
	return list(r, field, values, found(r.block))
}

func (r *reader) block(field, v string) *l7.Block {
	prefix, err := netip.ParsePrefix(v)
	if err != nil {
		addr, addrErr := netip.ParseAddr(v)
		if addrErr != nil || addr.Zone() != "" {
			r.refuse(field, v)
			return nil
		}
		prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	prefix = unmapped(prefix)
	return &l7.Block{Address: prefix.Addr().AsSlice(), Length: uint32(prefix.Bits())}
}

func (r *reader) paths(field string, values []string) []*l7.PathMatch {
	return list(r, field, values, func(field, v string) (*l7.PathMatch, bool) {
		m := PathPattern(v)
		if m == nil {
			r.refuse(field, v)
		}
		return m, m != nil
	})
}

// PathPattern reads a pattern of paths as waypoints do. It is nil for a template that means nothing.
func PathPattern(v string) *l7.PathMatch {
	switch {
	case !strings.Contains(v, oneSegment) && !strings.Contains(v, anySegments):
		return &l7.PathMatch{Match: &l7.PathMatch_Text{Text: text(v)}}
	case validTemplate(v):
		return &l7.PathMatch{Match: &l7.PathMatch_Template{Template: v}}
	}
	return nil
}

// The operators of path templates.
const (
	oneSegment  = "{*}"
	anySegments = "{**}"
)

// validTemplate says whether a path template means something: segments behind slashes that are an operator or text of a path. The last operator may
// have text behind it; that for any number of segments is the last one.
func validTemplate(v string) bool {
	rest, more := strings.CutPrefix(v, "/")
	if !more {
		return false
	}
	for more {
		if end, many := strings.CutPrefix(rest, anySegments); many {
			return literalSegment(strings.ReplaceAll(end, "/", ".")) // no escape goes on behind a slash
		}
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		if end, one := strings.CutPrefix(segment, oneSegment); one && (end == "" || !more) {
			segment = end
		}
		if !literalSegment(segment) {
			return false
		}
	}
	return true
}

// literalSegment says whether text is of characters that a segment of a path may have, RFC 3986 §3.3. A star is one, and means something else in
// other languages of templates, so that it is refused.
func literalSegment(segment string) bool {
	for i := 0; i < len(segment); i++ {
		c := segment[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~!$&'()+,;=:@", c) >= 0:
		case c == '%' && i+2 < len(segment) && isHex(segment[i+1]) && isHex(segment[i+2]):
			i += 2
		default:
			return false
		}
	}
	return true
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }
