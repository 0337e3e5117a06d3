package main

// advised is a program's metrics, in the order of the page.
type advised struct {
	Program, Introduction string
	Groups                []adviceGroup
}

type adviceGroup struct {
	Name    string
	Metrics []metricAdvice
}

// metricAdvice is what its own help does not say of a metric: what its labels hold, and what a rise means.
type metricAdvice struct{ Name, Advice string }

// advice has one line for each metric of each program.
var advice = []advised{
	{nodeProgram, "Port 15020, on every node.", []adviceGroup{
		{"Connections", []metricAdvice{
			{"istio_tcp_connections_opened_total", "rate: new connections. Less `closed`, over all labels but `response_flags`, it is what is open"},
			{"istio_tcp_connections_closed_total", "`response_flags` says how it ended, `-` as it should; far below `opened` for long: connections pile up, or never end"},
			{"istio_tcp_connections_failed_total", "those that opened count as closed, too; those that were refused before count here alone. Look at `response_flags`, and at the access log for the reason: `DENY` is a policy, `CONNECT` an application that is down, `NETWORK_POLICY` something that blocks port 15008, `TLS_FAILURE` and `H2_HANDSHAKE_FAILURE` a peer that is not what it should be, `IDENTITY_ERROR` a certificate that is missing, `CERT_REVOKED` one that was revoked"},
			{"istio_tcp_received_bytes_total", "from clients to servers, on both reporters"},
			{"istio_tcp_sent_bytes_total", "from servers to clients, on both reporters"},
			{"istio_tcp_sockets_open", "`reporter` is the side that holds them; rises with load, not over days"},
			{"lateen_connections_cut_total", "`reason`: `policy` (a policy denies it by now), `revoked` (its certificate was), `gone` (its pod has ended), `lost` (the tunnel between two pods of this node broke, by which both had proven themselves), `deadline` (the proxy ended first: raise CONNECTION_TERMINATION_DEADLINE if these hurt)"},
			{"lateen_connections_shed_total", "any: a pod holds more connections than its share of descriptors. Raise the limit of the proxy, or look at that pod"},
			{"lateen_connect_retries_total", "an endpoint does not answer and another did, so no user saw it; keeps rising: look for the endpoint in the log"},
			{"lateen_connections_joined_total", "stays 0 with `LATEEN_ACCELERATOR=splice`: the log says at the start why this node cannot, or, at level debug, why a connection is not joined"},
			{"lateen_connections_handed_over_total", "stays 0 with pods that talk on one node: `LATEEN_SAME_NODE` is `false`, or their tunnels end in another process"},
			{"lateen_endpoints_ejected", "above 0 for long: endpoints that the control plane calls healthy cannot be reached from here"},
			{"lateen_pod_cpu_seconds_total", "rate: the part of a core that the proxy spends on that pod. A pod that stands out is the one that the others would wait for, if workers did not serve pods in turns"},
			{"lateen_reports_sent_total", "rate: about one for each connection and signal that is exported; 0 with a collector set: see the drops"},
			{"lateen_reports_dropped_total", "any: the collector is away, refuses, or is too slow for the connections of this node; traffic does not wait for it"},
			{"lateen_metric_series", "near LATEEN_METRICS_SERIES: drop labels that nobody reads (LATEEN_METRICS_DROP_LABELS), or raise it"},
			{"lateen_metric_series_expired_total", "rises as clients and versions come and go; at a high rate, label sets return soon after: raise LATEEN_METRICS_IDLE"},
			{"lateen_metric_series_folded_total", "any: there are more label sets than LATEEN_METRICS_SERIES, and these connections count with both ends `unknown`"},
			{"lateen_worker_connections", "one series a worker; they should be close to each other"},
		}},
		{"Requests, in a role that reads them (a node proxy shows none of these)", []metricAdvice{
			{"istio_requests_total", "rate: requests that ended. `response_code` is what the client got, 0 for nothing; a call of gRPC that the proxy refuses gets 200, and `grpc_response_status` says why. Where an endpoint gives none, it follows from `response_code`; `response_flags` is the proxy's part in it, `-` for none"},
			{"istio_request_duration_milliseconds", "from a request's first byte to the last byte of its response; buckets as Istio has them"},
			{"istio_request_bytes", "headers, body and trailers, from clients to servers"},
			{"istio_response_bytes", "headers, body and trailers, from servers to clients"},
			{"istio_request_messages_total", "gRPC messages from clients; one a call where calls are unary"},
			{"istio_response_messages_total", "gRPC messages from servers; one a call where calls are unary"},
			{"lateen_request_metric_series", "near LATEEN_METRICS_SERIES: drop labels that nobody reads (LATEEN_METRICS_DROP_LABELS), or raise it"},
			{"lateen_request_metric_series_expired_total", "rises as clients and versions come and go; at a high rate, label sets return soon after: raise LATEEN_METRICS_IDLE"},
			{"lateen_request_metric_series_folded_total", "any: there are more label sets than LATEEN_METRICS_SERIES, and these requests count with both ends `unknown`"},
			{"lateen_http_buffer_bytes", "`scope` is `process`, `namespace` or `identity` (the account of that scope that holds most). Near the limit for long: clients do not read their answers, or endpoints their requests"},
			{"lateen_http_buffer_limit_bytes", "what `lateen_http_buffer_bytes` is measured by; does not change"},
			{"lateen_http_buffer_accounts", "the number of client identities, and of their namespaces, that have a tunnel to this waypoint"},
			{"lateen_http_buffer_waiting_connections", "above 0 for long: requests of a client stand still, since its connections hold as much as they may; a connection of which no byte moves for a minute is ended"},
		}},
		{"Tunnels", []metricAdvice{
			{"lateen_tunnels_opened_total", "rate beside that of connections: far below it where tunnels are shared; close to it, clients and servers meet only once, or tunnels end early (`lateen_tunnels_closed_total` says why). Less `closed` of the same `reporter`, it is what is open; a tunnel in a tunnel, through a gateway, counts for itself"},
			{"lateen_tunnels_closed_total", "`done` is the usual end. `lost`, `unresponsive`: the network or the peer's node, or who dialled said nothing after TLS. `stalled`: a peer that does not read. `no_streams`: a peer that allows no streams. `protocol_error`: a peer of another kind on port 15008. `rejected`: one side does not accept the other's certificate; the access log says why. `too_many_tunnels`: the peer's identity holds a quarter of a waypoint's descriptors in tunnels, or its namespace half; the access log names it. Anything else names how a peer misused its tunnel (`rapid_reset`, `provoked_resets`, `too_many_streams`, `header_flood`, `settings_flood`, `ping_flood`, `empty_data`, `window_update_flood`, `useless_frames`): the log has its identity"},
			{"lateen_tunnel_buffer_bytes", "`direction` is `receive` (what peers may send unread) or `send` (what waits for slow peers). Near the limit for long: peers or pods do not read; tunnels get small windows, and bulk transfers slow down"},
			{"lateen_tunnel_buffer_limit_bytes", "what `lateen_tunnel_buffer_bytes` is measured by; does not change"},
		}},
		{"Policy", []metricAdvice{
			{"lateen_policy_dry_run_total", "what would happen if `istio.io/dry-run` were taken off: `decision` is `allow` or `deny`; an empty `policy` with `deny` means that no allow policy matches"},
		}},
		{"Certificates", []metricAdvice{
			{"lateen_certificate_requests_total", "`outcome` is `granted` or `failed`; failures that go on end in `stale`, then `expired` certificates"},
			{"lateen_certificates", "`state`: `valid`; `fetching` (the first is on its way); `stale` (valid, and renewing fails); `expired` and `missing` (connections of these identities are refused). Alert on the last three"},
			{"lateen_certificates_first_expiry_timestamp_seconds", "less `time()`: never below half of the lifetime while renewing works; 0: there is no certificate"},
			{"lateen_revocation_list_reads_total", "`outcome` is `read` or `failed`; after a failure the lists from before stay in force"},
			{"lateen_revoked_certificates", "falls only by an authority's next list: what vanishes from the file of CRL_PATH goes on being used, and the proxy's readiness page says so"},
			{"lateen_stale_revocation_lists", "above 0: whoever issues the lists has not done so in time; the old ones stay in force"},
		}},
		{"Names (DNS)", []metricAdvice{
			{"istio_dns_requests_total", "rate: questions from pods"},
			{"istio_dns_upstream_requests_total", "questions that the mesh cannot answer by itself"},
			{"istio_dns_upstream_failures_total", "resolvers do not answer; pods are told so at once"},
			{"istio_dns_upstream_request_duration_seconds", "the resolvers' time, not the proxy's"},
			{"istio_on_demand_dns_total", "connections to workloads that are declared by a host name, which the proxy has to resolve"},
			{"lateen_dns_shed_total", "any: a pod asks or holds more than its part, and what it asks is turned away. By `reason`: `questions` and `connections` come of a pod that floods its resolver, `descriptors` of one that holds its share of the proxy's descriptors with connections of any kind"},
		}},
		{"Configuration", []metricAdvice{
			{"istio_xds_message_total", "`url` is the type of resources; none while things change: the control plane is away"},
			{"istio_xds_message_bytes_total", "size of what was received"},
			{"istio_xds_connection_terminations_total", "`reason`: `Reconnect` and `Complete` belong to every upgrade of the control plane; `ConnectionError` and `Error` that go on mean that it cannot be reached. What is known stays in force"},
		}},
		{"Pods and process", []metricAdvice{
			{"workload_manager_active_proxy_count", "pods that this proxy serves; compare with `lateen_agent_captured_pods`"},
			{"workload_manager_proxies_started_total", "captured pods, ever"},
			{"workload_manager_proxies_stopped_total", "released pods, ever"},
			{"istio_build", "always 1; `tag` is the version"},
			{"process_open_fds", "two or more a connection; near `process_max_fds` connections are shed"},
			{"process_max_fds", "shared out among pods"},
			{"process_cpu_seconds_total", "rate: cores in use; at the number of workers (ZTUNNEL_WORKER_THREADS) the proxy needs more of them"},
			{"process_resident_memory_bytes", "bounded by design; a steady rise at steady load is worth a report"},
		}},
	}},
	{controlProgram, "Address of `--debug-listen`, `/metrics`. Besides these there are client_golang's metrics of Go and of the process (`go_*`, `process_*`).", []adviceGroup{
		{"Configuration", []metricAdvice{
			{"lateen_control_ready", "0: the page `/ready` says what is waited for; proxies go on with what they have, or with another replica"},
			{"lateen_control_leader", "on Kubernetes; the sum over replicas is 1, for seconds 0 when the leader has died. 0 for longer: no conditions, root certificates or rotations are written"},
			{"lateen_control_objects", "what is in `--config-dir` and usable"},
			{"lateen_control_problems", "above 0: somebody's object is refused or without effect; `lateen status` says which and why"},
			{"lateen_control_mesh_config_unserved_fields", "above 0: somebody's MeshConfig asks for what no proxy does; the condition of the ConfigMap (`lateen get configmap istio -n istio-system`) names the fields, on Kubernetes an Event and `lateen status` as well"},
			{"lateen_control_generation", "its rate is the rate of changes"},
			{"lateen_control_resources", "`type` is `wds` (workloads and services), `wads` (policies of connections), or one that begins with `l7_` (what waypoints have)"},
			{"lateen_control_compile_seconds", "time of the control plane's own work for a change"},
			{"lateen_control_event_seconds", "on Kubernetes: the same with the time that a change waits while others are compiled"},
			{"lateen_control_events_total", "on Kubernetes: most events of pods and nodes change nothing that matters to the mesh"},
			{"lateen_control_following", "on Kubernetes: 0: the resource is not followed, what was read of it stays in force; `/debug/problems` says why"},
			{"lateen_control_replicas_unasked", "on Kubernetes: above 0 for long: nothing counts as programmed; `/debug/replicas` says why each does not answer"},
			{"lateen_status_writes_total", "on Kubernetes, in the replica that leads: `refused` that keeps rising: rights or another version of the definitions, which the log names; `conflict` now and then is nothing"},
			{"lateen_status_queue_length", "on Kubernetes: above 0 for long: the API server is away, or more changes than are written in a second (20)"},
			{"lateen_status_lag_seconds", "on Kubernetes: how old what people read in objects' status is; proxies have the configuration long before"},
		}},
		{"Proxies", []metricAdvice{
			{"pilot_xds", "one for each node proxy that follows the configuration; fewer than nodes: some work with what they have"},
			{"pilot_proxy_convergence_time", "how late a change is live; p99 above a second: a proxy is slow, see `/debug/clients`"},
			{"pilot_xds_pushes", "`type` as above"},
			{"lateen_control_push_bytes_total", "what distribution costs the network"},
			{"lateen_control_push_resources_total", "what changes reach proxies"},
			{"lateen_control_answers_total", "as many as pushes, but for those on their way"},
			{"pilot_total_xds_rejects", "any: a proxy could not use a resource; the log names it"},
			{"lateen_control_streams_refused_total", "somebody asks without a valid token; proxies with tokens that were not renewed, or worse"},
			{"lateen_control_connections_closed_total", "somebody opens more connections than there are places for; `whose=there` costs whoever opens them, `whose=came` means that callers who are known hold all places"},
		}},
		{"Certificates", []metricAdvice{
			{"citadel_server_csr_count", "rate: identities on nodes, over half a lifetime"},
			{"citadel_server_success_cert_issuance_count", "close to the one before"},
			{"citadel_server_authentication_failure_count", "as `lateen_control_streams_refused_total`"},
			{"lateen_control_certificates_refused_total", "`unauthenticated`: no valid token; `malformed_request`, `malformed_csr`: a program of another kind; `ca_ended`: the CA's own certificate has ended, and nobody gets one until it is replaced; `account_not_listed`, `own_identity_not_listed`: the account may have no certificates, or none in its own name (`--node-proxy-accounts`, `--own-identity-accounts`); any other reason about identities: a node asks for what is not its own. The log names caller and node"},
			{"citadel_server_root_cert_expiry_timestamp", "less `time()`: seconds until the root has to be replaced (`lateen-control rotate-root`)"},
			{"lateen_control_ca_expiry_timestamp_seconds", "the same with a plugged-in CA's intermediates in view; alert a month before"},
			{"lateen_control_ca_roots", "above 1 while roots are changed"},
			{"lateen_control_ca_behind", "certificates that a change of roots waits for; falls to 0"},
			{"lateen_control_ca_trouble", "1: the CA has ended and issues nothing, its root has ended, or its files cannot be used and those from before are; `/debug/ca` says which and why"},
		}},
		{"Program", []metricAdvice{
			{"pilot_info", "always 1; `version`"},
		}},
	}},
	{deployProgram, "Address of `--debug-listen`, `/metrics`, on Kubernetes only. Besides these there are client_golang's metrics of Go and of the process (`go_*`, `process_*`).", []adviceGroup{
		{"Waypoints", []metricAdvice{
			{"lateen_deployer_gateways", "in the replica that leads: any but `Deployed` and, for a while, `Progressing`: the condition `lateen.dev/Deployed` of the Gateway says what to do"},
			{"lateen_deployer_reconciles_total", "in the replica that leads: each Gateway is looked at every 30 s at least; no rate although there are waypoints: none is looked at. `Unknown`: nothing came of the look, and `lateen_deployer_errors_total` counts why"},
			{"lateen_deployer_errors_total", "`Forbidden`: its roles lack a right, or an admission policy refuses, and the condition names it; `Conflict` now and then is nothing; `Unreachable`: the API server does not answer; the log has the words"},
			{"lateen_deployer_reconcile_seconds", "a waypoint takes about eight requests to the API server"},
			{"lateen_deployer_last_reconcile_seconds", "the same of the last look, for one that scrapes no histograms"},
			{"lateen_deployer_queue_length", "above 0 for long: there are more Gateways than it looks at in 30 s, or the API server is slow"},
		}},
		{"Program", []metricAdvice{
			{"lateen_deployer_leader", "the sum over replicas is 1, for seconds 0 when the leader has died. 0 for longer: waypoints stay as they are, and new ones are not made"},
			{"lateen_deployer_ready", "0: it leads and cannot read the cluster's Gateways; the page `/ready` says so, the log why"},
		}},
	}},
	{agentProgram, "Address of `--http`, `/metrics`, on every node. Besides these there are client_golang's metrics of Go and of the process (`go_*`, `process_*`).", []adviceGroup{
		{"Capture", []metricAdvice{
			{"lateen_agent_captured_pods", "pods in the mesh on this node"},
			{"lateen_agent_excepted_pods", "pods that are captured less than others; `lateen status` says which, and what of them passes by"},
			{"lateen_agent_pods", "`pending` or `releasing` for long: `lateen status` says what is waited for"},
			{"lateen_agent_capture_errors_total", "`step`: `namespace` (the pod's network cannot be entered), `proxy` (no node proxy took it), `rules` (nftables or routes), `sockets` (the list of connections from before), `report` (the engine was not told), `plugin` (the CNI plugin, or what it needs, cannot be put onto the node). It is tried again; a steady rise is a pod that does not get into the mesh"},
			{"lateen_agent_forged_marks_total", "a process in a pod tries to leave the mesh; the agent's log names the pod, and its containers should drop `NET_RAW` and `NET_ADMIN`"},
			{"lateen_agent_repairs_total", "something on the node rewrites nftables or routes of pods"},
			{"lateen_agent_connections_cut_total", "connections of released pods that outlived `--release-deadline`"},
		}},
		{"Node proxy and engine", []metricAdvice{
			{"lateen_agent_zds_connections", "1; 2 during an upgrade; 0: no node proxy, and new connections of captured pods are refused"},
			{"lateen_agent_zds_messages_total", "`kind` is `add`, `del`, `keep` (a pod whose namespace the agent cannot hand over anew; the proxy goes on with what it has) or `snapshot_sent`; `result` is `ok`, `refused` (its log says why) or `failed` (the connection broke)"},
			{"lateen_agent_connections_lost_total", "a node proxy was killed rather than replaced: these connections broke"},
			{"lateen_agent_source_connected", "0: nobody tells which pods there are; captured pods stay captured"},
			{"lateen_agent_cni_installed", "on Kubernetes; 0: pods of the mesh are captured only after they have started. The log says why, and what to do"},
			{"lateen_agent_cni_request_duration_seconds", "on Kubernetes; `op=\"add\",verdict=\"done\"` is what being in the mesh adds to the start of a pod, `verdict=\"failed\"` pods that cannot start: the reason is in the pod's events"},
		}},
	}},
}
