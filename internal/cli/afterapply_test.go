package cli

import (
	"strings"
	"testing"

	"lateen.dev/lateen/internal/engine/api"
)

func TestTheHintAfterApplyFitsTheObjects(t *testing.T) {
	for applied, want := range map[string]string{
		"Deployment/default/web Service/default/web":                            "lateen get pods|lateen status",
		"Deployment/shop/web AuthorizationPolicy/shop/deny":                     "lateen get pods -n shop|lateen status",
		"Deployment/shop/web Deployment/bank/web":                               "lateen get pods -A|lateen status",
		"AuthorizationPolicy/default/deny":                                      "lateen wait authorizationpolicy/deny|lateen get authorizationpolicies",
		"PeerAuthentication/shop/strict Namespace//shop":                        "lateen wait peerauthentication/strict -n shop|lateen get peerauthentications -n shop",
		"AuthorizationPolicy/shop/a AuthorizationPolicy/shop/b":                 "lateen get authorizationpolicies -n shop|lateen status",
		"AuthorizationPolicy/shop/a PeerAuthentication/bank/b ConfigMap/bank/c": "lateen get authorizationpolicies,peerauthentications -A|lateen status",
		"ConfigMap/default/c Namespace//shop":                                   "lateen get configmaps,namespaces|lateen status",
		"NetworkPolicy/default/c":                                               "lateen get NetworkPolicy|lateen status",
	} {
		var results []api.ObjectResult
		for _, word := range strings.Fields(applied) {
			parts := strings.Split(word, "/")
			results = append(results, api.ObjectResult{Key: api.Key{Kind: parts[0], Namespace: parts[1], Name: parts[2]}})
		}
		if got := strings.Join(afterApply(results), "|"); got != want {
			t.Errorf("after %s: %s, want %s", applied, got, want)
		}
	}
}
