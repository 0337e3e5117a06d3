package main

var agent = dashboard{
	Name: "agent", Title: "Agent", Help: "How pods get into the mesh and out of it, on each node.",
	Choices: []choice{{"node", "Node", "lateen_agent_captured_pods", "node"}},
	Rows: []row{
		{"At a glance", []panel{
			{Title: "Captured pods", Unit: "short", Kind: stat, Width: 6, Queries: []query{{`sum(lateen_agent_captured_pods{node=~"$node"})`, ""}},
				Help: "Normal: all pods of labelled namespaces. `lateen status` lists those that are not, and why."},
			{Title: "Pods on their way", Unit: "short", Kind: stat, Width: 6, Queries: []query{{`sum(lateen_agent_pods{node=~"$node",state=~"pending|releasing"})`, ""}},
				Help: "Pods that are to be captured or released and are not yet. Normal: 0, briefly more. For long: see \"Failed attempts\"."},
			{Title: "Nodes without a proxy", Unit: "short", Kind: stat, Width: 6, Queries: []query{{`count(lateen_agent_zds_connections{node=~"$node"} == 0) or vector(0)`, ""}},
				Help: "Normal: 0. Above: new connections of captured pods on these nodes are refused; look at the pod lateen-node there."},
			{Title: "Agents without the engine", Unit: "short", Kind: stat, Width: 6, Queries: []query{{`count(lateen_agent_source_connected{node=~"$node"} == 0) or vector(0)`, ""}},
				Help: "Normal: 0. Above: the API server cannot be reached from these nodes; captured pods stay captured, and no other is."},
		}},
		{"Capture", []panel{
			{Title: "Pods by state", Unit: "short", Kind: lines, Width: 8, Queries: []query{{`sum by (node, state) (lateen_agent_pods{node=~"$node"})`, "{{node}} {{state}}"}},
				Help: "Normal: `plain` and `captured`. `pending` or `releasing` for long: `lateen status` says what is waited for."},
			{Title: "Failed attempts, by step", Unit: "ops", Kind: lines, Width: 8, Queries: []query{{`sum by (node, step) (rate(lateen_agent_capture_errors_total{node=~"$node"}[$__rate_interval]))`, "{{node}} {{step}}"}},
				Help: "Normal: none. `namespace`: the pod's network cannot be entered. `proxy`: no node proxy took it. `rules`: nftables or routes. `sockets`: the list of connections from before. `report`: the annotation could not be written. `plugin`: the CNI plugin cannot be installed. The agent's log has the reason; it tries again."},
			{Title: "Repairs", Unit: "ops", Kind: lines, Width: 8, Queries: []query{{`sum by (node) (rate(lateen_agent_repairs_total{node=~"$node"}[$__rate_interval]))`, "{{node}}"}},
				Help: "Rules that somebody else had changed and that were put right. Normal: none. Again and again: something on the node rewrites nftables, routes or the CNI configuration; find it and exempt the mesh."},
			{Title: "Connections cut or lost", Unit: "cps", Kind: lines, Width: 8, Queries: []query{{`sum by (node) (rate(lateen_agent_connections_cut_total{node=~"$node"}[$__rate_interval]))`, "{{node}} cut at release"}, {`sum by (node, direction) (rate(lateen_agent_connections_lost_total{node=~"$node"}[$__rate_interval]))`, "{{node}} lost with a proxy, {{direction}}"}},
				Help: "Normal: none. Cut: connections of released pods that outlived --release-deadline. Lost: a node proxy was killed rather than replaced; its memory limit is the first suspect."},
		}},
		{"Births of pods (Kubernetes)", []panel{
			{Title: "CNI ADD takes", Unit: "s", Kind: lines, Width: 8, Queries: []query{{`histogram_quantile(0.5, sum by (le, node) (rate(lateen_agent_cni_request_duration_seconds_bucket{node=~"$node",op="add",verdict="done"}[$__rate_interval])))`, "{{node}} median"}, {`histogram_quantile(0.99, sum by (le, node) (rate(lateen_agent_cni_request_duration_seconds_bucket{node=~"$node",op="add",verdict="done"}[$__rate_interval])))`, "{{node}} 99 %"}},
				Help: "What being in the mesh adds to the start of a pod. Normal: below 50 ms. Above: the node is short of CPU, or the node proxy is slow to take pods."},
			{Title: "CNI requests, by verdict", Unit: "ops", Kind: lines, Width: 8, Queries: []query{{`sum by (node, op, verdict) (rate(lateen_agent_cni_request_duration_seconds_count{node=~"$node"}[$__rate_interval]))`, "{{node}} {{op}} {{verdict}}"}},
				Help: "Normal: `done` for pods of the mesh, `outside` for others. `failed`: pods that cannot start; the reason is in their events."},
			{Title: "CNI plugin in place", Unit: "short", Kind: lines, Width: 8, Most: 1, Queries: []query{{`lateen_agent_cni_installed{node=~"$node"}`, "{{node}}"}},
				Help: "Normal: 1 (0 without Kubernetes). 0: pods are captured only after they have started; the agent's log says what cannot be written."},
		}},
		{"Node proxy and engine", []panel{
			{Title: "Node proxies connected", Unit: "short", Kind: lines, Width: 8, Queries: []query{{`lateen_agent_zds_connections{node=~"$node"}`, "{{node}}"}},
				Help: "Normal: 1; 2 during an upgrade of the proxy. 0: new connections of captured pods are refused; they never leave in plaintext."},
			{Title: "Requests to node proxies", Unit: "ops", Kind: lines, Width: 8, Queries: []query{{`sum by (node, kind, result) (rate(lateen_agent_zds_messages_total{node=~"$node"}[$__rate_interval]))`, "{{node}} {{kind}} {{result}}"}},
				Help: "Normal: `ok`. `refused`: the proxy's log says why. `failed`: the connection broke, and all is sent anew."},
			{Title: "Engine tells of pods", Unit: "short", Kind: lines, Width: 8, Most: 1, Queries: []query{{`lateen_agent_source_connected{node=~"$node"}`, "{{node}}"}},
				Help: "Normal: 1. 0: the API server cannot be reached from this node, or refuses; captured pods stay captured."},
		}},
		{"Process", []panel{
			{Title: "Memory", Unit: "bytes", Kind: lines, Width: 12, Queries: []query{{`process_resident_memory_bytes{node=~"$node"} and on (instance) lateen_agent_captured_pods`, "{{node}}"}},
				Help: "Normal: some tens of megabytes, little more for each pod. A rise at a steady number of pods is worth a report."},
			{Title: "CPU", Unit: "none", Kind: lines, Width: 12, Queries: []query{{`rate(process_cpu_seconds_total{node=~"$node"}[$__rate_interval]) and on (instance) lateen_agent_captured_pods`, "{{node}}"}},
				Help: "Cores in use. Normal: near 0 at rest, peaks when pods come and go."},
		}},
	},
}
