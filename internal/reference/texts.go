package main

const metricsIntroduction = `# Reference: metrics

What the programs count, in Prometheus' text format. Names that Istio has are Istio's, with its labels, so its dashboards work;
Lateen's own begin with ` + "`lateen_`" + `. On a mesh of the local engine, for its first node:

` + "```sh" + `
mesh=/run/lateen/default
node() { nsenter --net=/proc/$(jq -r .pid $mesh/engine.json)/root$mesh/netns/n1 -- "$@"; }
node curl -s 127.0.0.1:15020/metrics   # the node proxy
node curl -s 127.0.0.1:15014/metrics   # the agent
` + "```" + `

Connections that fail each second, by destination and by why:

` + "```promql" + `
sum by (destination_service, response_flags) (rate(istio_tcp_connections_failed_total{reporter="source"}[5m]))
` + "```" + `

`

const connectionIntroduction = `All ` + "`istio_tcp_*`" + ` counters of connections have the same labels, Istio's. A connection between two meshed pods is reported twice:
by the client's proxy (` + "`reporter=\"source\"`" + `) and by the server's (` + "`destination`" + `); sum over one of them. What is not known is
` + "`unknown`" + `; a principal is there only if TLS proved it, and then ` + "`connection_security_policy`" + ` is ` + "`mutual_tls`" + `; regions and zones only where nodes have them.

`

const logIntroduction = `# Reference: logs

## The access log

One line for each connection when it ends, from each of the two proxies on its way, in ztunnel's format: on standard output of
the node proxy, with scope ` + "`access`" + `. A connection that was served is ` + "`info`" + `, one that failed ` + "`error`" + `, one that was refused before both
its ends were known ` + "`warn`" + ` with the message ` + "`connection failed`" + ` and few fields. ` + "`RUST_LOG=info,access=error`" + ` keeps the failures only.

` + "```" + `
2026-01-01T00:00:00.000000Z	info	access	connection complete	src.addr=10.244.1.2:40000 src.workload="client-0" src.namespace="default" src.identity="spiffe://cluster.local/ns/default/sa/client" dst.addr=10.244.2.2:15008 dst.hbone_addr=10.244.2.2:8080 dst.service="echo.default.svc.cluster.local" dst.workload="echo-0" dst.namespace="default" dst.identity="spiffe://cluster.local/ns/default/sa/echo" direction="outbound" bytes_sent=81 bytes_recv=129 duration="8ms"
` + "```" + `

With ` + "`LOG_FORMAT=json`" + ` the same is one object a line, with ` + "`level`, `time`, `scope` and `message`" + ` before these fields. Fields without a
value are left out.

`

const waypointLogIntroduction = `## The access log of a waypoint

A waypoint writes a line for each request, and for each connection that it relays unread. MeshConfig says in which form:

| MeshConfig | line |
|---|---|
| no ` + "`accessLogFile`" + ` | Lateen's own, with scope ` + "`access`" + ` and the message ` + "`request complete`" + ` |
| ` + "`accessLogFile`" + ` | Istio's default text, or its default JSON object with ` + "`accessLogEncoding: JSON`" + ` |
| ` + "`accessLogFile`" + ` and ` + "`accessLogFormat`" + ` | Envoy's format of this text or JSON object |

Lateen's own line of a request has these fields. That of a connection has the fields above.

`

const processLogIntroduction = `Lines of Envoy's formats have no time, level or scope before them. ` + "`RUST_LOG=info,access=off`" + ` leaves them out, too.

| operator | what |
|---|---|
| ` + "`%REQ(X?Y):Z%`" + `, ` + "`%REQ_WITHOUT_QUERY(X?Y):Z%`" + ` | a field of the canonical request, or of ` + "`:method`" + `, ` + "`:path`" + `, ` + "`:authority`" + `, ` + "`:scheme`" + `; the alternative Y; at most Z bytes |
| ` + "`%RESP(X?Y):Z%`" + `, ` + "`%TRAILER(X?Y):Z%`" + ` | a field of an endpoint's answer or of its trailers. ` + "`x-envoy-upstream-service-time`" + ` is measured for the log alone |
| ` + "`%START_TIME(format)%`" + ` | with strftime's conversions and Envoy's ` + "`%3f`" + `; UTC |
| ` + "`%PROTOCOL%`" + `, ` + "`%UPSTREAM_PROTOCOL%`" + ` | ` + "`HTTP/1.1`" + `, ` + "`HTTP/2`" + ` |
| ` + "`%RESPONSE_CODE%`" + `, ` + "`%RESPONSE_FLAGS%`" + `, ` + "`%RESPONSE_CODE_DETAILS%`" + `, ` + "`%GRPC_STATUS(form)%`" + `, ` + "`%GRPC_STATUS_NUMBER%`" + ` | Envoy's words: ` + "`URX,UF`" + `, ` + "`via_upstream`" + `. The details of a refusal name the policy |
| ` + "`%CONNECTION_TERMINATION_DETAILS%`" + `, ` + "`%UPSTREAM_TRANSPORT_FAILURE_REASON%`" + ` | of connections that a policy refused; of endpoints that could not be reached |
| ` + "`%BYTES_RECEIVED%`" + `, ` + "`%BYTES_SENT%`" + `, ` + "`%REQUEST_HEADERS_BYTES%`" + `, ` + "`%RESPONSE_HEADERS_BYTES%`" + `, ` + "`%RESPONSE_TRAILERS_BYTES%`" + ` | content, heads, trailers |
| ` + "`%DURATION%`" + `, ` + "`%REQUEST_DURATION%`" + `, ` + "`%RESPONSE_DURATION%`" + `, ` + "`%RESPONSE_TX_DURATION%`" + ` | milliseconds; ` + "`%REQUEST_DURATION%`" + ` ends with the last byte from the client |
| ` + "`%UPSTREAM_HOST%`" + `, ` + "`%UPSTREAM_CLUSTER%`" + `, ` + "`%UPSTREAM_CLUSTER_RAW%`" + `, ` + "`%UPSTREAM_REQUEST_ATTEMPT_COUNT%`" + `, ` + "`%ROUTE_NAME%`" + ` | the application's address; Istio's names of the cluster and the route |
| ` + "`%UPSTREAM_LOCAL_ADDRESS%`" + `, ` + "`%UPSTREAM_REMOTE_ADDRESS%`" + `, ` + "`%DOWNSTREAM_LOCAL_ADDRESS%`" + `, ` + "`%DOWNSTREAM_REMOTE_ADDRESS%`" + ` | with ` + "`_WITHOUT_PORT`" + ` behind them, ` + "`_PORT`" + ` in place of ` + "`_ADDRESS`" + `, and ` + "`DIRECT_`" + ` behind ` + "`DOWNSTREAM_`" + `. A stream of a tunnel has no local address of its own |
| ` + "`%DOWNSTREAM_PEER_URI_SAN%`" + `, ` + "`%DOWNSTREAM_LOCAL_URI_SAN%`" + `, ` + "`%HOSTNAME%`" + ` | the proven SPIFFE identity of the client, the waypoint's own, and its pod |
| ` + "`%REQUESTED_SERVER_NAME%`" + ` | always ` + "`-`" + ` |

Another operator is ` + "`-`" + `; a condition of the ConfigMap and the waypoint's log name it. A missing value is ` + "`-`" + ` in text and ` + "`null`" + ` in JSON. Text
has a backslash before quotes and backslashes. Control characters and bytes that are no UTF-8 are escaped in both, so that no peer can
forge a line.

## Bounds of the access log

Clients choose paths and other texts, and all lines of a process wait for standard output in one buffer of 4 MiB.

| bound | what it holds | beyond it |
|---|---|---|
| a text | 4096 bytes of Lateen's own fields, and of an operator without a length | the rest is left out, and a mark gives the length of the whole: ` + "`/search?q=aaa...<60000_bytes>`" + ` |
| an operator with a length, such as ` + "`%REQ(:PATH):8192%`" + ` | as many bytes as it says | the rest is left out, without a mark, as with Envoy |
| lines about one client | no more of the buffer than is free | its lines are dropped; the log says how many lines were dropped |
| heads of answers, where a format has ` + "`%RESP(...)%`" + ` of a field | what the account of the client has room for (` + "`LATEEN_HTTP_BUFFERS`" + `) | the line has no fields of that answer |

The mark has no space. A path has no ` + "`<`" + `, so no client can forge the mark in a path.

## The programs' own logs

Lines have a time, a level, a scope (with the node proxy: the part of it), a message for people, and fields. A message is a
sentence and may change; fields keep their names. Node proxies and waypoints write text or JSON (` + "`LOG_FORMAT`" + `). So do the
control plane, the agent and the deployer (` + "`--log-format`" + `). The value ` + "`log.format`" + ` of the chart is for all of them. The local engine
writes text in slog's form. Secrets are never logged.

`

const environmentIntroduction = `# Reference: environment variables and flags

The proxy takes variables in both of its roles, the other programs take flags.

`

const nodeEnvironmentIntroduction = `Configured by variables alone, under the names that ztunnel reads, so that one manifest fits both. An empty variable counts as
unset. A value that cannot be used ends the process with exit code 64 and a line that names variable, value and fix. A duration
is numbers with units (` + "`ms`, `s`, `m`, `h`, `d`" + `), such as ` + "`90s` or `1h30m`" + `; a bare number is seconds.

` + "```sh" + `
NODE_NAME=n1 XDS_ADDRESS=https://10.243.0.1:15012 LATEEN_IDLE_TIMEOUT=12h lateen-proxy node
lateen-proxy node --reference json   # this page, of the binary at hand
` + "```" + `

`

const controlFlagsIntroduction = `## lateen-control

` + "```sh" + `
lateen-control --config-dir /etc/lateen --data-dir /var/lib/lateen --token-key /etc/lateen-tokens.pem
` + "```" + `

`

const agentFlagsIntroduction = `## lateen-agent

One on each node, as root. The local engine starts it; its socket for the node proxy is ` + "`INPOD_UDS`" + ` there.

`

const cliFlagsIntroduction = `## lateen

Every command explains itself with ` + "`--help`" + `, examples first. ` + "`--name`" + ` belongs to all of them.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed, as the error says |
| 64 | the command line is wrong; nothing was done |
| 79 | ` + "`check`, `demo` and `lab run`" + `: done, and something is wrong with the machine, the mesh or the run |
| 129, 130, 141, 143 | ended by SIGHUP (a closed terminal), SIGINT (Ctrl-C), SIGPIPE (output that nothing reads) or SIGTERM |

` + "`exec`" + ` passes on the exit code of its command. ` + "`diff`" + ` ends with 1 for a difference and 2 for an error.

`

const annotationsIntroduction = `# Reference: labels, annotations, conditions

What the mesh reads from users' objects and writes into them. Names of Istio and Kubernetes keep their meaning; an object
that asks for what cannot be done says so in a condition, and ` + "`lateen status`" + ` shows it.

` + "```sh" + `
lateen label namespace default istio.io/dataplane-mode=ambient   # into the mesh, without a restart
` + "```" + `

`

// annotationGroups says what holds for all names of a group.
var annotationGroups = map[string]string{
	"Exceptions from capture": "What passes by the proxy is not encrypted and no policy holds for it; `lateen status` lists it. An annotation with anything wrong " +
		"in it has no effect at all: the pod is captured without the exception. Up to 64 entries each, in 4096 bytes. The agent's flags `--exclude-*` say the same for all pods of a node.",
	"Policy": "What node proxies judge of an AuthorizationPolicy, and what comes of the rest, is in " +
		"[ztunnel-compatibility.md](ztunnel-compatibility.md#what-node-proxies-judge-of-a-policy).",
	"Names in telemetry": "They end up in the labels `source_*` and `destination_*` of [metrics](metrics.md#labels-of-a-connection).",
	"Waypoints": "While a waypoint is not ready or not there, connections to what is bound to it, or was made with the " +
		"label `istio.io/use-waypoint`, are refused. Connections to one that got the label later go direct until the waypoint is ready. The object's condition " +
		"says which holds, and [the guide](../guide/waypoints.md#when-connections-go-through-it) has all cases.",
}
