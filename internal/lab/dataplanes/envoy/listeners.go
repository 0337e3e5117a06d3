package envoy

import (
	"fmt"
	"path/filepath"
)

// Names of Envoy's extensions and of their messages, from its v3 API.
const (
	typePrefix = "type.googleapis.com/envoy.extensions."

	typeOriginalDst   = typePrefix + "filters.listener.original_dst.v3.OriginalDst"
	typeManager       = typePrefix + "filters.network.http_connection_manager.v3.HttpConnectionManager"
	typeTCPProxy      = typePrefix + "filters.network.tcp_proxy.v3.TcpProxy"
	typeRouter        = typePrefix + "filters.http.router.v3.Router"
	typeRBAC          = typePrefix + "filters.http.rbac.v3.RBAC"
	typeNetworkRBAC   = typePrefix + "filters.network.rbac.v3.RBAC"
	typeFileLog       = typePrefix + "access_loggers.file.v3.FileAccessLog"
	typeDownstreamTLS = typePrefix + "transport_sockets.tls.v3.DownstreamTlsContext"
	typeUpstreamTLS   = typePrefix + "transport_sockets.tls.v3.UpstreamTlsContext"
	typeHTTPOptions   = typePrefix + "upstreams.http.v3.HttpProtocolOptions"
)

// outbound takes what the pod dials: each service's address leads to its cluster, everything else to where it was going.
func (p Pod) outbound() object {
	var chains []object
	for _, s := range p.Services {
		filter := p.manager("outbound", s.cluster(), nil)
		if s.TCP {
			filter = p.relay("outbound", s.cluster())
		}
		chains = append(chains, object{
			"name": s.cluster(),
			"filter_chain_match": object{
				"destination_port": s.Port,
				"prefix_ranges":    []object{{"address_prefix": s.Address.String(), "prefix_len": s.Address.BitLen()}},
			},
			"filters": []object{filter},
		})
	}
	l := p.capture("outbound", OutboundPort)
	l["traffic_direction"] = "OUTBOUND"
	if chains != nil {
		l["filter_chains"] = chains
	}
	l["default_filter_chain"] = object{"name": "passthrough", "filters": []object{tcpProxy("outbound_passthrough", "outbound_passthrough", nil)}}
	return l
}

// inbound takes what others dial to the pod. It has no way in without a certificate: what is not TLS fails its handshake. Where
// a connection was going chooses between bytes and requests.
func (p Pod) inbound() object {
	l := p.capture("inbound", InboundPort)
	l["traffic_direction"] = "INBOUND"
	chains := []object{{
		"name":             "mtls",
		"filters":          []object{p.manager("inbound", "inbound_application", []object{extension("envoy.filters.http.rbac", typeRBAC, p.rbac())})},
		"transport_socket": p.server("h2", "http/1.1"),
	}}
	for _, port := range p.TCP {
		admit := p.rbac()
		admit["stat_prefix"] = inboundTCP + "."
		chains = append(chains, object{
			"name":               fmt.Sprintf("mtls|%d", port),
			"filter_chain_match": object{"destination_port": port},
			"filters":            []object{extension("envoy.filters.network.rbac", typeNetworkRBAC, admit), p.relay(inboundTCP, "inbound_application")},
			"transport_socket":   p.server(),
		})
	}
	l["filter_chains"] = chains
	return l
}

// inboundTCP begins the names of the counters of inbound connections that carry bytes.
const inboundTCP = "inbound_tcp"

// AdmittedCounters count what RBAC let in: requests of HTTP, and connections of TCP.
var AdmittedCounters = []string{"http.inbound.rbac.allowed", inboundTCP + ".rbac.allowed"}

// server is TLS towards those who dial the pod.
func (p Pod) server(alpn ...string) object {
	return extension("envoy.transport_sockets.tls", typeDownstreamTLS, object{
		"require_client_certificate": true,
		// Who may call is the business of RBAC; here whoever the roots vouch for may say who it is.
		"common_tls_context": p.tls(nil, alpn...),
	})
}

// capture is a listener that connections are redirected to, and that knows where they were going.
func (p Pod) capture(name string, port uint16) object {
	l := object{
		"name":             name,
		"address":          socketAddress("0.0.0.0", port),
		"listener_filters": []object{extension("envoy.filters.listener.original_dst", typeOriginalDst, object{})},
	}
	if p.ExactBalance {
		l["connection_balance_config"] = object{"exact_balance": object{}}
	}
	return l
}

// manager is the HTTP connection manager with one route. All requests of a connection go to one cluster, for it is the
// connection's destination that chose it.
func (p Pod) manager(direction, cluster string, filters []object) object {
	config := object{
		"stat_prefix": direction,
		"codec_type":  "AUTO",
		"route_config": object{"name": direction, "validate_clusters": true, "virtual_hosts": []object{{
			"name": "all", "domains": []string{"*"},
			"routes": []object{{
				"match": object{"prefix": "/"},
				// Envoy would end a request after 15 s; a mesh that is told nothing ends none.
				"route": object{"cluster": cluster, "timeout": "0s"},
			}},
		}}},
		"http_filters": append(filters, extension("envoy.filters.http.router", typeRouter, object{})),
		"access_log":   p.accessLog(),
	}
	if direction == "inbound" {
		config["forward_client_cert_details"] = "SANITIZE_SET"
		config["set_current_client_cert_details"] = object{"uri": true}
	}
	return extension("envoy.filters.network.http_connection_manager", typeManager, config)
}

func (p Pod) accessLog() []object {
	return []object{extension("envoy.access_loggers.file", typeFileLog, object{"path": filepath.Join(p.Dir, AccessLog)})}
}

// relay carries the bytes of connections to a cluster, and logs each when it ends.
func (p Pod) relay(direction, cluster string) object {
	return tcpProxy(direction, cluster, p.accessLog())
}

func tcpProxy(prefix, cluster string, log []object) object {
	config := object{"stat_prefix": prefix, "cluster": cluster}
	if log != nil {
		config["access_log"] = log
	}
	return extension("envoy.filters.network.tcp_proxy", typeTCPProxy, config)
}

// rbac lets in whom a rule admits and nobody else: allowing without a policy allows nothing. HTTP and TCP are told alike; a
// connection of TCP is judged by its first bytes, after the handshake.
func (p Pod) rbac() object {
	rules := object{"action": "ALLOW"}
	policies := object{}
	for _, r := range p.Admits {
		var principals []object
		for _, identity := range r.Callers {
			principals = append(principals, object{"authenticated": object{"principal_name": object{"exact": identity}}})
		}
		permissions := []object{{"any": true}}
		if len(r.Ports) > 0 {
			permissions = nil
			for _, port := range r.Ports {
				permissions = append(permissions, object{"destination_port": port})
			}
		}
		policies[r.Name] = object{"permissions": permissions, "principals": principals}
	}
	if len(policies) > 0 {
		rules["policies"] = policies
	}
	return object{"rules": rules}
}

// cluster is a service's pods, reached over mutual TLS.
func (p Pod) cluster(s Service) object {
	var endpoints []object
	for _, e := range s.Endpoints {
		endpoints = append(endpoints, object{"endpoint": object{"address": socketAddress(e.Addr().String(), e.Port())}})
	}
	c := object{
		"name":             s.cluster(),
		"type":             "STATIC",
		"lb_policy":        "LEAST_REQUEST",
		"connect_timeout":  "10s",
		"circuit_breakers": unlimited(),
		"load_assignment":  object{"cluster_name": s.cluster(), "endpoints": []object{{"lb_endpoints": endpoints}}},
	}
	var alpn []string
	if !s.TCP {
		options := "http2_protocol_options"
		alpn = []string{"h2"}
		if p.Protocol == HTTP1 {
			options, alpn = "http_protocol_options", []string{"http/1.1"}
		}
		c["typed_extension_protocol_options"] = object{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
				"@type":                typeHTTPOptions,
				"explicit_http_config": object{options: object{}},
			},
		}
	}
	c["transport_socket"] = extension("envoy.transport_sockets.tls", typeUpstreamTLS, object{"common_tls_context": p.tls(s.Identities, alpn...)})
	return c
}

// passthrough leads each connection to where it was going before it was redirected.
func passthrough(name string) object {
	return object{
		"name":             name,
		"type":             "ORIGINAL_DST",
		"lb_policy":        "CLUSTER_PROVIDED",
		"connect_timeout":  "10s",
		"circuit_breakers": unlimited(),
	}
}

// unlimited lifts the limits of 1024 that a cluster has otherwise; meshes lift them as well.
func unlimited() object {
	const most = 1<<32 - 1
	return object{"thresholds": []object{{"max_connections": most, "max_pending_requests": most, "max_requests": most, "max_retries": most}}}
}

// tls is the pod's own identity, and what peers have to prove: that the roots vouch for them and, where identities are given,
// to be one of these.
func (p Pod) tls(identities []string, alpn ...string) object {
	validation := object{"trusted_ca": file(p.Dir, RootsFile)}
	if identities != nil {
		var names []object
		for _, identity := range identities {
			names = append(names, object{"san_type": "URI", "matcher": object{"exact": identity}})
		}
		validation["match_typed_subject_alt_names"] = names
	}
	context := object{
		// As a client Envoy would stop at TLS 1.2 by itself.
		"tls_params":         object{"tls_minimum_protocol_version": "TLSv1_2", "tls_maximum_protocol_version": "TLSv1_3"},
		"tls_certificates":   []object{{"certificate_chain": file(p.Dir, CertificateFile), "private_key": file(p.Dir, KeyFile)}},
		"validation_context": validation,
	}
	if len(alpn) > 0 { // bytes have no protocol to agree on
		context["alpn_protocols"] = alpn
	}
	return context
}

func file(dir, name string) object { return object{"filename": filepath.Join(dir, name)} }

// extension is a filter, logger or transport socket with its configuration.
func extension(name, message string, config object) object {
	typed := object{"@type": message}
	for key, value := range config {
		typed[key] = value
	}
	return object{"name": name, "typed_config": typed}
}

func socketAddress(address string, port uint16) object {
	return object{"socket_address": object{"address": address, "port_value": port}}
}
