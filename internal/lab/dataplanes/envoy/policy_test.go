package envoy

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/yaml"
)

func parsePolicy(t *testing.T, spec string) (Policy, error) {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte("metadata: {name: p, namespace: default}\nspec: " + spec))
	if err != nil {
		t.Fatal(err)
	}
	return ParsePolicy(text)
}

func TestPoliciesAdmitWhomTheyNameWhereTheySelect(t *testing.T) {
	narrow := Rule{Name: "default/p/0", Callers: []string{clientIdentity}, Ports: []uint16{8080}}
	for spec, want := range map[string][]Rule{
		`{selector: {matchLabels: {app: echo}}, action: ALLOW, rules: [{from: [{source: {principals: [cluster.local/ns/default/sa/client]}}], to: [{operation: {ports: ["8080"]}}]}]}`: {narrow},
		`{rules: [{from: [{source: {principals: [cluster.local/ns/default/sa/client]}}]}]}`:                                                                                            {{Name: "default/p/0", Callers: []string{clientIdentity}}},
		`{}`: {},
		`{selector: {matchLabels: {app: other}}}`: {{Name: "everybody", Callers: []string{clientIdentity, echoIdentity}}},
	} {
		policy, err := parsePolicy(t, spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		pods, err := Pods(world(), []*corev1.Service{}, []Policy{policy}, Settings{Protocol: HTTP2})
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		if echo := pods[1]; !reflect.DeepEqual(echo.Admits, want) {
			t.Errorf("%s: %s admits %+v, want %+v", spec, echo.Name, echo.Admits, want)
		}
	}
}

// What is not understood is refused, not ignored: it would admit whom it should not.
func TestOtherPoliciesAreRefused(t *testing.T) {
	for want, spec := range map[string]string{
		"action DENY":               `{action: DENY, rules: [{from: [{source: {principals: [a]}}]}]}`,
		"unknown field":             `{rules: [{when: [{key: request.headers}]}]}`,
		"notPrincipals":             `{rules: [{from: [{source: {notPrincipals: [a]}}]}]}`,
		"methods":                   `{rules: [{from: [{source: {principals: [a]}}], to: [{operation: {methods: [GET]}}]}]}`,
		`principal "*" is no name`:  `{rules: [{from: [{source: {principals: ["*"]}}]}]}`,
		"a rule without principals": `{rules: [{to: [{operation: {ports: ["80"]}}]}]}`,
		`port "0"`:                  `{rules: [{from: [{source: {principals: [a]}}], to: [{operation: {ports: ["0"]}}]}]}`,
		"an operation without por":  `{rules: [{from: [{source: {principals: [a]}}], to: [{operation: {}}]}]}`,
		"a source without principa": `{rules: [{from: [{source: {}}]}]}`,
	} {
		if _, err := parsePolicy(t, spec); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "AuthorizationPolicy default/p") {
			t.Errorf("%s: error %v does not say %q", spec, err, want)
		}
	}
}
