package envoy

import "path/filepath"

// Names of Envoy's extensions and of their messages, from its v3 API.
const (
	typePrefix = "type.googleapis.com/envoy.extensions."

	typeOriginalDst   = typePrefix + "filters.listener.original_dst.v3.OriginalDst"
	typeManager       = typePrefix + "filters.network.http_connection_manager.v3.HttpConnectionManager"
	typeTCPProxy      = typePrefix + "filters.network.tcp_proxy.v3.TcpProxy"
	typeRouter        = typePrefix + "filters.http.router.v3.Router"
	typeRBAC          = typePrefix + "filters.http.rbac.v3.RBAC"
	typeFileLog       = typePrefix + "access_loggers.file.v3.FileAccessLog"
	typeDownstreamTLS = typePrefix + "transport_sockets.tls.v3.DownstreamTlsContext"
	typeUpstreamTLS   = typePrefix + "transport_sockets.tls.v3.UpstreamTlsContext"
	typeHTTPOptions   = typePrefix + "upstreams.http.v3.HttpProtocolOptions"
)

// outbound takes what the pod dials: each service's address leads to its cluster, everything else to where it was going.
func (p Pod) outbound() object {
	var chains []object
	for _, s := range p.Services {
		chains = append(chains, object{
			"name": s.cluster(),
			"filter_chain_match": object{
				"destination_port": s.Port,
				"prefix_ranges":    []object{{"address_prefix": s.Address.String(), "prefix_len": s.Address.BitLen()}},
			},
			"filters": []object{p.manager("outbound", s.cluster(), nil)},
		})
	}
	l := capture("outbound", OutboundPort)
	l["traffic_direction"] = "OUTBOUND"
	if chains != nil {
		l["filter_chains"] = chains
	}
	l["default_filter_chain"] = object{"name": "passthrough", "filters": []object{extension("envoy.filters.network.tcp_proxy", typeTCPProxy, object{
		"stat_prefix": "outbound_passthrough", "cluster": "outbound_passthrough",
	})}}
	return l
}

// inbound takes what others dial to the pod. It has no way in without a certificate: what is not TLS fails its handshake.
func (p Pod) inbound() object {
	l := capture("inbound", InboundPort)
	l["traffic_direction"] = "INBOUND"
	l["filter_chains"] = []object{{
		"name":    "mtls",
		"filters": []object{p.manager("inbound", "inbound_application", []object{p.rbac()})},
		"transport_socket": extension("envoy.transport_sockets.tls", typeDownstreamTLS, object{
			"require_client_certificate": true,
			// Who may call is the business of RBAC; here whoever the roots vouch for may say who it is.
			"common_tls_context": p.tls(nil),
		}),
	}}
	return l
}

// capture is a listener that connections are redirected to, and that knows where they were going.
func capture(name string, port uint16) object {
	return object{
		"name":             name,
		"address":          socketAddress("0.0.0.0", port),
		"listener_filters": []object{extension("envoy.filters.listener.original_dst", typeOriginalDst, object{})},
	}
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
		"access_log":   []object{extension("envoy.access_loggers.file", typeFileLog, object{"path": p.AccessLog})},
	}
	if direction == "inbound" {
		config["forward_client_cert_details"] = "SANITIZE_SET"
		config["set_current_client_cert_details"] = object{"uri": true}
	}
	return extension("envoy.filters.network.http_connection_manager", typeManager, config)
}

// rbac lets the callers in and nobody else: allowing without a policy allows nothing.
func (p Pod) rbac() object {
	rules := object{"action": "ALLOW"}
	if len(p.Callers) > 0 {
		var principals []object
		for _, identity := range p.Callers {
			principals = append(principals, object{"authenticated": object{"principal_name": object{"exact": identity}}})
		}
		rules["policies"] = object{"callers": object{"permissions": []object{{"any": true}}, "principals": principals}}
	}
	return extension("envoy.filters.http.rbac", typeRBAC, object{"rules": rules})
}

// cluster is a service's pods, reached by HTTP/2 over mutual TLS.
func (p Pod) cluster(s Service) object {
	var endpoints []object
	for _, e := range s.Endpoints {
		endpoints = append(endpoints, object{"endpoint": object{"address": socketAddress(e.Addr().String(), e.Port())}})
	}
	return object{
		"name":             s.cluster(),
		"type":             "STATIC",
		"lb_policy":        "LEAST_REQUEST",
		"connect_timeout":  "10s",
		"circuit_breakers": unlimited(),
		"load_assignment":  object{"cluster_name": s.cluster(), "endpoints": []object{{"lb_endpoints": endpoints}}},
		"typed_extension_protocol_options": object{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
				"@type":                typeHTTPOptions,
				"explicit_http_config": object{"http2_protocol_options": object{}},
			},
		},
		"transport_socket": extension("envoy.transport_sockets.tls", typeUpstreamTLS, object{"common_tls_context": p.tls(s.Identities)}),
	}
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
func (p Pod) tls(identities []string) object {
	validation := object{"trusted_ca": file(p.Dir, RootsFile)}
	if identities != nil {
		var names []object
		for _, identity := range identities {
			names = append(names, object{"san_type": "URI", "matcher": object{"exact": identity}})
		}
		validation["match_typed_subject_alt_names"] = names
	}
	return object{
		"alpn_protocols": []string{"h2"},
		// As a client Envoy would stop at TLS 1.2 by itself.
		"tls_params":         object{"tls_minimum_protocol_version": "TLSv1_2", "tls_maximum_protocol_version": "TLSv1_3"},
		"tls_certificates":   []object{{"certificate_chain": file(p.Dir, CertificateFile), "private_key": file(p.Dir, KeyFile)}},
		"validation_context": validation,
	}
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
