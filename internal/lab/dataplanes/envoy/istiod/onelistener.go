package istiod

import (
	"net/netip"
	"strings"

	"lateen.dev/lateen/internal/lab/dataplanes/envoy/rbac"
)

// An Envoy has no filter that ends a CONNECT and serves the requests inside in the same connection manager. The bytes of the tunnel leave the
// connection manager through a cluster, and a listener inside the process takes them up. A tunnel to an endpoint takes another such listener.
// So an Envoy that speaks HBONE both ways has three listeners, and an Envoy of one listener needs somebody else for its tunnels.
//
// Istio has a binding for waypoints that speak no HBONE (ambient.istio.io/waypoint-inbound-binding). The proxy of the waypoint's node ends the
// tunnels, and opens a connection to the waypoint for each. In front of it stands a header of the PROXY protocol with the addresses of both
// ends and the client's identity. The connections that the waypoint opens are captured by the same node proxy.

// ProxyPort is where an Envoy of one listener takes connections, on its loopback address. Envoy trusts the header of each connection that
// reaches this port, so only the pod itself may.
const ProxyPort = 15088

// chained are what an Envoy of one listener does without: the listeners of tunnels, and the chains and the cluster that reach pods by address.
var chained = []string{"connect_originate", "connect_terminate", "direct-http", "direct-tcp", "encap", "tls"}

// identityTLV is the type of the PROXY protocol's TLV in which Istio's node proxies put the client's identity.
const identityTLV = 0xD0

// oneListener is the dump's listener of requests bound to a port, and clusters whose endpoints are dialled directly.
func (c Config) oneListener(t template) object {
	terminate := t.listeners["connect_terminate"]
	main := c.main(t)
	main["name"] = "main"
	delete(main, "internal_listener")
	main["address"] = object{"socket_address": object{"address": "127.0.0.1", "port_value": ProxyPort}}
	main["connection_balance_config"] = terminate["connection_balance_config"]
	for i, f := range main["listener_filters"].([]any) {
		if f.(object)["name"] == "envoy.filters.listener.original_dst" { // it reads where the client dialled, as the header tells it here
			main["listener_filters"].([]any)[i] = proxyProtocol()
		}
	}
	var chains []any
	for _, chain := range main["filter_chains"].([]any) {
		if chain := chain.(object); !strings.HasPrefix(chain["name"].(string), "direct-") {
			chain["filters"] = append([]any{identified()}, chain["filters"].([]any)...)
			chains = append(chains, chain)
		}
	}
	main["filter_chains"] = chains
	clusters := c.served(t)
	for _, cluster := range clusters {
		direct(cluster.(object))
	}
	return object{"listeners": []any{main}, "clusters": clusters}
}

// proxyProtocol reads the header of a connection: its addresses become those of the connection.
func proxyProtocol() object {
	return object{
		"name": "envoy.filters.listener.proxy_protocol",
		"typed_config": object{
			"@type": "type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
			"rules": []any{object{"tlv_type": identityTLV, "on_tlv_present": object{"key": "peer_principal"}}},
		},
	}
}

// identified puts the identity of the header where policies look for the client's. In the dump connect_terminate does so.
func identified() object {
	return object{
		"name": "proxy_protocol_authority",
		"typed_config": object{
			"@type": "type.googleapis.com/envoy.extensions.filters.network.set_filter_state.v3.Config",
			"on_new_connection": []any{object{
				"object_key": rbac.PeerPrincipal, "factory_key": "envoy.hashable_string",
				"format_string": object{"text_format_source": object{"inline_string": "%DYNAMIC_METADATA(envoy.filters.listener.proxy_protocol:peer_principal)%"}},
			}},
		},
	}
}

// direct has a cluster dial its endpoints, where the dump has it open tunnels through a listener inside the process.
func direct(cluster object) {
	delete(cluster, "transport_socket")
	for _, group := range cluster["load_assignment"].(object)["endpoints"].([]any) {
		for _, e := range group.(object)["lb_endpoints"].([]any) {
			endpoint := e.(object)
			metadata := endpoint["metadata"].(object)["filter_metadata"].(object)
			at := netip.MustParseAddrPort(metadata["envoy.filters.listener.original_dst"].(object)["local"].(string))
			delete(metadata, "envoy.filters.listener.original_dst")
			endpoint["endpoint"] = object{"address": object{"socket_address": object{"address": at.Addr().String(), "port_value": at.Port()}}}
		}
	}
}
