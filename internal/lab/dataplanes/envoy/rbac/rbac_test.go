package rbac

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	securityapi "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
)

// policies reads the specs of policies p0, p1 and so on in namespace shop.
func policies(t *testing.T, specs ...string) (list []*securityv1.AuthorizationPolicy) {
	t.Helper()
	for i, text := range specs {
		p := &securityv1.AuthorizationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("p%d", i)}}
		b, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Spec.UnmarshalJSON(b); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

const allow, deny, audit = securityapi.AuthorizationPolicy_ALLOW, securityapi.AuthorizationPolicy_DENY, securityapi.AuthorizationPolicy_AUDIT

func TestRulesBecomePermissionsAndPrincipals(t *testing.T) {
	const anybody = `"principals":[{"and_ids":{"ids":[{"any":true}]}}]`
	const anything = `"permissions":[{"and_rules":{"rules":[{"any":true}]}}]`
	peer := func(matcher string) string {
		return `"principals":[{"and_ids":{"ids":[{"or_ids":{"ids":[{"filter_state":{"key":"io.istio.peer_principal","string_match":` + matcher + `}}]}}]}}]`
	}
	to := func(permission string) string {
		return `"permissions":[{"and_rules":{"rules":[` + permission + `]}}]`
	}
	for _, c := range []struct{ name, rule, want string }{
		{"method", "{to: [{operation: {methods: [GET]}}]}", to(`{"or_rules":{"rules":[{"header":{"name":":method","string_match":{"exact":"GET"}}}]}}`) + "," + anybody},
		{"host in any case", "{to: [{operation: {hosts: [a.example]}}]}", to(`{"or_rules":{"rules":[{"header":{"name":":authority","string_match":{"exact":"a.example","ignore_case":true}}}]}}`) + "," + anybody},
		{"not a path", `{to: [{operation: {notPaths: ["/a/*"]}}]}`, to(`{"not_rule":{"or_rules":{"rules":[{"url_path":{"path":{"prefix":"/a/"}}}]}}}`) + "," + anybody},
		{"port", `{to: [{operation: {ports: ["80"]}}]}`, to(`{"or_rules":{"rules":[{"destination_port":80}]}}`) + "," + anybody},
		{"principal", "{from: [{source: {principals: [cluster.local/ns/shop/sa/a]}}]}", anything + "," + peer(`{"exact":"spiffe://cluster.local/ns/shop/sa/a"}`)},
		{"account of the policy's namespace", "{from: [{source: {serviceAccounts: [a]}}]}", anything + "," + peer(`{"safe_regex":{"regex":"spiffe://.+/ns/shop/(.+/|)sa/a(/.+)?"}}`)},
		{"account of another namespace", "{from: [{source: {serviceAccounts: [other/a]}}]}", anything + "," + peer(`{"safe_regex":{"regex":"spiffe://.+/ns/other/(.+/|)sa/a(/.+)?"}}`)},
		{"condition", `{when: [{key: "request.headers[x-y]", values: ["1"]}]}`, anything + `,"principals":[{"and_ids":{"ids":[{"or_ids":{"ids":[{"header":{"name":"x-y","string_match":{"exact":"1"}}}]}}]}}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := json.Marshal(Filter(policies(t, "{action: ALLOW, rules: ["+c.rule+"]}"), allow, []string{"cluster.local"}))
			if err != nil {
				t.Fatal(err)
			}
			if want := `{"rules":{"action":"ALLOW","policies":{"ns[shop]-policy[p0]-rule[0]":{` + c.want + `}}}}`; string(got) != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestAFilterHasThePoliciesOfItsActionAlone(t *testing.T) {
	list := policies(t, "{action: ALLOW, rules: [{}]}", "{action: DENY, rules: [{}]}", "{action: DENY, rules: [{}]}", "{action: AUDIT, rules: [{}]}")
	list[2].Annotations = map[string]string{"istio.io/dry-run": "true"}
	for action, want := range map[securityapi.AuthorizationPolicy_Action]string{allow: "ALLOW ns[shop]-policy[p0]-rule[0]", deny: "DENY ns[shop]-policy[p1]-rule[0]", audit: "LOG ns[shop]-policy[p3]-rule[0]"} {
		rules := Filter(list, action, nil)["rules"].(object)
		got := rules["action"].(string)
		for name := range rules["policies"].(object) {
			got += " " + name
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := Filter(list[:1], deny, nil); got != nil {
		t.Errorf("without a DENY policy there is a filter: %v", got)
	}
}

// Envoy refuses everything where an ALLOW filter matches nothing. A policy without rules must not disappear, which would allow everything.
func TestAPolicyWithoutRulesMatchesNothing(t *testing.T) {
	made := Filter(policies(t, "{action: ALLOW}"), allow, nil)["rules"].(object)["policies"].(object)
	got, _ := json.Marshal(made)
	if want := `{"ns[shop]-policy[p0]-rule[0]":{"permissions":[{"not_rule":{"any":true}}],"principals":[{"not_id":{"any":true}}]}}`; string(got) != want {
		t.Errorf("got %s", got)
	}
}

func TestAValueThatCannotBeReadFailsAnAllowRuleAlone(t *testing.T) {
	rule := `rules: [{to: [{operation: {ports: [x], methods: [GET]}}]}]`
	for action, want := range map[string]int{"ALLOW": 0, "DENY": 1} {
		list := policies(t, "{action: "+action+", "+rule+"}")
		if made := Filter(list, list[0].Spec.Action, nil)["rules"].(object)["policies"].(object); len(made) != want {
			t.Errorf("%s: %v", action, made)
		}
	}
}

func TestAPrincipalOfTheMeshIsOneOfAllItsTrustDomains(t *testing.T) {
	list := policies(t, "{action: ALLOW, rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/a, else.example/ns/shop/sa/a]}}]}]}")
	got, _ := json.Marshal(Filter(list, allow, []string{"cluster.local", "old.example"}))
	if want := `"ids":[{"filter_state":{"key":"io.istio.peer_principal","string_match":{"exact":"spiffe://cluster.local/ns/shop/sa/a"}}},{"filter_state":{"key":"io.istio.peer_principal","string_match":{"exact":"spiffe://old.example/ns/shop/sa/a"}}},{"filter_state":{"key":"io.istio.peer_principal","string_match":{"exact":"spiffe://else.example/ns/shop/sa/a"}}}]`; !strings.Contains(string(got), want) {
		t.Errorf("got %s", got)
	}
}
