package istiod

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// made are the static resources of both configurations of one world.
func made(t *testing.T) (chained, one object, text string) {
	t.Helper()
	c := world(t, "/run/keys")
	first, err := Bootstrap(c)
	if err != nil {
		t.Fatal(err)
	}
	c.OneListener = true
	second, err := Bootstrap(c)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, first)["static_resources"].(object), decode(t, second)["static_resources"].(object), string(second)
}

// A request meets the same connection manager, filters and policies as behind three listeners.
func TestOneListenerServesRequestsAsTheDumpDoes(t *testing.T) {
	chained, one, _ := made(t)
	listeners := one["listeners"].([]any)
	if len(listeners) != 1 {
		t.Fatalf("%d listeners", len(listeners))
	}
	main, dumps := listeners[0].(object), part(t, chained["listeners"], "main_internal")
	if !reflect.DeepEqual(main["filter_chain_matcher"], dumps["filter_chain_matcher"]) {
		t.Error("requests are matched otherwise")
	}
	var chains int
	for _, c := range main["filter_chains"].([]any) {
		chain := c.(object)
		want := part(t, dumps["filter_chains"], chain["name"].(string))
		filters := chain["filters"].([]any)
		if filters[0].(object)["name"] != "proxy_protocol_authority" || !reflect.DeepEqual(filters[1:], want["filters"]) {
			t.Errorf("chain %s has other filters", chain["name"])
		}
		chains++
	}
	if chains != 3 {
		t.Errorf("%d chains, want one for each port", chains)
	}
	for _, c := range one["clusters"].([]any) {
		cluster := c.(object)
		want := part(t, chained["clusters"], cluster["name"].(string))
		for _, key := range []string{"load_assignment", "transport_socket"} {
			delete(cluster, key)
			delete(want, key)
		}
		if !reflect.DeepEqual(cluster, want) {
			t.Errorf("cluster %s is another one", cluster["name"])
		}
	}
}

// Envoy trusts the header of each connection that reaches the listener, so only the pod itself may.
func TestTheHeaderTellsTheClientOnALoopbackAddressAlone(t *testing.T) {
	_, one, text := made(t)
	main := one["listeners"].([]any)[0].(object)
	if at := main["address"].(object)["socket_address"].(object); at["address"] != "127.0.0.1" || at["port_value"] != float64(ProxyPort) {
		t.Errorf("it listens at %v", at)
	}
	first := main["listener_filters"].([]any)[0].(object)
	rules, _ := json.Marshal(first["typed_config"].(object)["rules"])
	if first["name"] != "envoy.filters.listener.proxy_protocol" || string(rules) != `[{"on_tlv_present":{"key":"peer_principal"},"tlv_type":208}]` {
		t.Errorf("the first listener filter is %v", first)
	}
	authority, _ := json.Marshal(main["filter_chains"].([]any)[0].(object)["filters"].([]any)[0])
	if !strings.Contains(string(authority), `"object_key":"io.istio.peer_principal"`) || !strings.Contains(string(authority), "proxy_protocol:peer_principal") {
		t.Errorf("the identity is taken by %s", authority)
	}
	for _, word := range []string{"internal", "original_dst", "tls_context", "/run/keys", "connect_terminate", "connect_originate", "encap"} {
		if strings.Contains(text, `"`+word) || strings.Contains(text, word+`"`) {
			t.Errorf("it still has %s", word)
		}
	}
}

func TestEndpointsOfOneListenerAreDialled(t *testing.T) {
	_, one, _ := made(t)
	cluster := part(t, one["clusters"], "inbound-vip|80|http|echo.default.svc.cluster.local")
	var got []string
	for _, e := range cluster["load_assignment"].(object)["endpoints"].([]any)[0].(object)["lb_endpoints"].([]any) {
		text, _ := json.Marshal(e.(object)["endpoint"])
		got = append(got, string(text))
	}
	want := []string{
		`{"address":{"socket_address":{"address":"10.244.2.7","port_value":8080}}}`, `{"address":{"socket_address":{"address":"10.244.2.8","port_value":8080}}}`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("endpoints %q", got)
	}
}
