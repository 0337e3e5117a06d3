package files

import (
	"strings"
	"testing"
)

func TestRulesThatCannotBeMeant(t *testing.T) {
	for rule, want := range map[string]struct {
		severity Severity
		part     string
	}{
		`when: [{key: source.namspace, values: [a]}]`:      {Refused, `there is no attribute "source.namspace"`},
		`when: [{key: "request.headers[", values: [a]}]`:   {Refused, "there is no attribute"},
		`when: [{key: "request.headers[x]", values: [a]}]`: {},
		`when: [{key: connection.sni, values: [a]}]`:       {},
		`from: [{source: {principals: ["*/ns/x/sa/*"]}}]`:  {Warning, "principals[0]"},

		`from: [{source: {trustDomains: [a.example, "*.example", "a*", "*"]}}]`:      {},
		`from: [{source: {notTrustDomains: [a.example]}}]`:                           {},
		`from: [{source: {trustDomains: [a], serviceAccounts: [x]}}]`:                {},
		`from: [{source: {notTrustDomains: [a], principals: [x], namespaces: [b]}}]`: {},
		`from: [{source: {trustDomains: [""]}}]`:                                     {Refused, "trustDomains[0]: the value is empty"},
		`from: [{source: {trustDomains: ["a/b"]}}]`:                                  {Refused, `"a/b" is not valid here`},
		`from: [{source: {notTrustDomains: ["a*b"]}}]`:                               {Refused, `notTrustDomains[0]: "a*b"`},
		`from: [{source: {notTrustDomains: ["**"]}}]`:                                {Refused, "at most with one star"},
		`from: [{source: {notTrustDomains: ["*a*"]}}]`:                               {Refused, "at most with one star"},
		`from: [{source: {trustDomains: [], notTrustDomains: []}}]`:                  {Refused, "the source names nothing"},
		`from: []`:                               {Refused, "spec.rules[0].from: the list is empty; remove it, or name one source at least"},
		`from:`:                                  {Refused, "spec.rules[0].from: the list is empty"},
		`to: []`:                                 {Refused, "spec.rules[0].to: the list is empty"},
		`to: null`:                               {Refused, "spec.rules[0].to: the list is empty"},
		`from: [{}]`:                             {Refused, "the source names nothing"},
		`from: [null]`:                           {Refused, "unexpected token null"},
		`from: [{source: {namespaces: }}]`:       {Refused, "the source names nothing"},
		`from: [{source: {namespaces: [null]}}]`: {Refused, "invalid value"},
		`from: [{source: {namespaces: [a], notNamespaces: []}}]`: {},
		`when: []`: {},
		`when: [{key: source.trustDomain, values: [a.example, "*.x"], notValues: [a]}]`: {},
		`when: [{key: source.trustDomain, values: ["a*b"]}]`:                            {Refused, "values[0]"},
		`when: [{key: source.trustDomain, values: []}]`:                                 {Refused, "names nothing"},
		`when: [{key: source.trustdomain, values: [a]}]`:                                {Refused, "there is no attribute"},
		`when: [{key: source.ip, notValues: [""]}]`:                                     {Refused, "the value is empty"},
		`to: [{operation: {ports: ["80-90"]}}]`:                                         {Refused, "write a port number"},
		`to: [{operation: {ports: ["0"]}}]`:                                             {Refused, "write a port number"},
		`from: [{source: {notPrincipals: ["a/*/b"]}}]`:                                  {Warning, "stands for itself"},
		`from: [{source: {principals: ["*/sa/x", "a/*", "*"]}}]`:                        {},
	} {
		_, problems := Decode("f.yaml", []byte("apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: x}\nspec:\n  rules:\n  - "+rule+"\n"))
		if want.part == "" {
			if len(problems) != 0 {
				t.Errorf("%s: %v", rule, problems)
			}
			continue
		}
		if len(problems) != 1 || problems[0].Severity != want.severity || !strings.Contains(problems[0].Error(), want.part) {
			t.Errorf("%s: %v, want %s %q", rule, problems, want.severity, want.part)
		}
	}
}

// A number can be given in the place of a word, and may be that of no word.
func TestNumbersThatAreNoWordsAreRefused(t *testing.T) {
	const selector = "selector: {matchLabels: {app: web}}, "
	for spec, want := range map[string]string{
		"PeerAuthentication: {mtls: {mode: 7}}":                                "spec.mtls.mode: unknown mode 7",
		"PeerAuthentication: {" + selector + "portLevelMtls: {80: {mode: 7}}}": "spec.portLevelMtls.80.mode: unknown mode 7",
		"PeerAuthentication: {mtls: {mode: 3}}":                                "",
		"AuthorizationPolicy: {action: 7}":                                     "spec.action: unknown action 7",
		"AuthorizationPolicy: {action: PONDER}":                                "spec.action",
	} {
		kind, spec, _ := strings.Cut(spec, ": ")
		_, problems := Decode("f.yaml", []byte("apiVersion: security.istio.io/v1\nkind: "+kind+"\nmetadata: {name: x}\nspec: "+spec+"\n"))
		if want == "" && len(problems) > 0 || want != "" && (len(problems) != 1 || problems[0].Severity != Refused || !strings.Contains(problems[0].Error(), want)) {
			t.Errorf("%s %s: %v, want %q", kind, spec, problems, want)
		}
	}
}
