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
		`when: [{key: source.namspace, values: [a]}]`:            {Refused, `there is no attribute "source.namspace"`},
		`when: [{key: "request.headers[", values: [a]}]`:         {Refused, "there is no attribute"},
		`when: [{key: "request.headers[x]", values: [a]}]`:       {},
		`when: [{key: connection.sni, values: [a]}]`:             {},
		`from: [{source: {principals: ["*/ns/x/sa/*"]}}]`:        {Warning, "principals[0]"},
		`from: [{source: {notPrincipals: ["a/*/b"]}}]`:           {Warning, "stands for itself"},
		`from: [{source: {principals: ["*/sa/x", "a/*", "*"]}}]`: {},
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
