package translate

import (
	"slices"
	"strings"

	securityapi "istio.io/api/security/v1beta1"

	"lateen.dev/lateen/internal/gen/l7"
)

// form is how the values of an attribute are written.
type form int

const (
	formText form = iota
	formPattern
	formBlock
	formPort
	formAccount
)

// attributes are the keys of conditions that are whole words.
var attributes = map[string]struct {
	is   l7.Attribute
	form form
}{
	"source.ip":              {l7.Attribute_SOURCE_IP, formBlock},
	"source.namespace":       {l7.Attribute_SOURCE_NAMESPACE, formPattern},
	"source.principal":       {l7.Attribute_SOURCE_PRINCIPAL, formText},
	"source.serviceAccount":  {l7.Attribute_SOURCE_SERVICE_ACCOUNT, formAccount},
	"source.trustDomain":     {l7.Attribute_SOURCE_TRUST_DOMAIN, formPattern},
	"remote.ip":              {l7.Attribute_REMOTE_IP, formBlock},
	"destination.ip":         {l7.Attribute_DESTINATION_IP, formBlock},
	"destination.port":       {l7.Attribute_DESTINATION_PORT, formPort},
	"connection.sni":         {l7.Attribute_CONNECTION_SNI, formText},
	"request.auth.principal": {l7.Attribute_REQUEST_AUTH_PRINCIPAL, formText},
	"request.auth.audiences": {l7.Attribute_REQUEST_AUTH_AUDIENCES, formText},
	"request.auth.presenter": {l7.Attribute_REQUEST_AUTH_PRESENTER, formText},
}

// Keys of conditions that go on.
const (
	headerKey = "request.headers"
	claimKey  = "request.auth.claims"
	envoyKey  = "experimental.envoy.filters."
)

// requestCondition reads one condition. known is false for a key that there is not. Its lists are empty if nothing of it can be judged.
func requestCondition(c *securityapi.Condition, namespace string) (_ *l7.Condition, bad []string, known bool) {
	key := c.GetKey()
	out := &l7.Condition{}
	how := formText
	switch {
	case strings.HasPrefix(key, headerKey):
		name, ok := headerName(key[len(headerKey):])
		if !ok {
			return out, []string{key}, true
		}
		out.Attribute = &l7.Condition_Header{Header: name}
	case strings.HasPrefix(key, claimKey):
		path, ok := bracketed(key[len(claimKey):])
		if !ok {
			return out, []string{key}, true
		}
		out.Attribute = &l7.Condition_Claim{Claim: &l7.Claim{Path: path}}
	case strings.HasPrefix(key, envoyKey):
		return out, []string{key}, true // no proxy of this mesh has Envoy's metadata
	default:
		a, ok := attributes[key]
		if !ok {
			return nil, nil, false
		}
		out.Attribute, how = &l7.Condition_Known{Known: a.is}, a.form
	}
	r := &reader{namespace: namespace}
	if out.Values = r.values(key, how, c.GetValues()); len(r.bad) > 0 {
		out.Values = nil // as in the lists of a source
	}
	out.NotValues = r.values(key, how, c.GetNotValues())
	return out, r.bad, true
}

// values reads the values of a condition in the form that its attribute has.
func (r *reader) values(key string, how form, values []string) (out []*l7.Value) {
	if how == formAccount && len(values) > mostAccounts {
		return wrapped(r.accounts(key, values))
	}
	for _, v := range values {
		switch how {
		case formText:
			out = append(out, &l7.Value{Value: &l7.Value_Text{Text: text(v)}})
		case formPattern:
			if m := r.pattern(key, v); m != nil {
				out = append(out, &l7.Value{Value: &l7.Value_Text{Text: m}})
			}
		case formBlock:
			if b := r.block(key, v); b != nil {
				out = append(out, &l7.Value{Value: &l7.Value_Block{Block: b}})
			}
		case formPort:
			if n, ok := r.port(key, v); ok {
				out = append(out, &l7.Value{Value: &l7.Value_Port{Port: n}})
			}
		case formAccount:
			if a := r.account(key, v); a != nil {
				out = append(out, wrapped([]*l7.ServiceAccount{a})...)
			}
		}
	}
	return out
}

func wrapped(accounts []*l7.ServiceAccount) (out []*l7.Value) {
	for _, a := range accounts {
		out = append(out, &l7.Value{Value: &l7.Value_ServiceAccount{ServiceAccount: a}})
	}
	return out
}

// pseudoHeaders are the pseudo-header fields that every request has (RFC 9113 §8.3.1). Envoy has them among the fields, so Istio's
// conditions may name them.
var pseudoHeaders = []string{":authority", ":method", ":path", ":scheme"}

// headerName reads "[name]", the name of a field or of a pseudo-header field, in lower case, as proxies compare it.
func headerName(text string) (string, bool) {
	path, ok := bracketed(text)
	if !ok || len(path) != 1 {
		return "", false
	}
	name := strings.ToLower(path[0])
	return name, slices.Contains(pseudoHeaders, name) || isToken(name)
}

// isToken says whether text is a token, RFC 9110 §5.6.2.
func isToken(text string) bool {
	for i := range len(text) {
		c := text[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return text != ""
}

// bracketed reads "[a][b]", of which no name is empty or has a bracket.
func bracketed(text string) (names []string, ok bool) {
	for text != "" {
		rest, opened := strings.CutPrefix(text, "[")
		name, after, closed := strings.Cut(rest, "]")
		if !opened || !closed || name == "" || strings.Contains(name, "[") {
			return nil, false
		}
		names, text = append(names, name), after
	}
	return names, len(names) > 0
}
