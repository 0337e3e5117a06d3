package main

// goVariables are the environment variables that the Go programs read. What an engine gives to its node proxies is the node
// proxy's own.
var goVariables = []struct{ Name, Program, Meaning string }{
	{"RUST_LOG", "`lateen up`", "what the node proxies of the mesh log, as they read it themselves; `info` if it is not set"},
	{"PATH", "`lateen up`", "the PATH of pods: its folders that every user can reach go before the usual ones"},
	{"TERM", "`lateen`", "`dumb`: no cursor movements; `lateen exec` tells it to what it runs on a terminal"},
	{"GOGC", "`lateen-control`", "how far its heap grows between collections, in per cent; without it less than Go's default, for a small resident set"},
	{"GOMEMLIMIT", "`lateen-agent`", "the memory at which its garbage collector works harder; without it four fifths of the container's limit"},
	{"NO_COLOR", "`lateen`", "set to anything: no colours"},
	{"LATEEN_ENGINE", "`lateen`", "which mesh the commands are about: `local`, that on this machine; `kubernetes`, that of the cluster which the kubeconfig names; `auto`, the default, the former if it runs or is named, else the latter if there is one"},
	{"LATEEN_NAME", "`lateen`", "which mesh of this machine the commands are about, if `--name` does not say; without both it is the only one that runs"},
	{"KUBE_EDITOR", "`lateen edit`", "the editor's command; it goes before `EDITOR`"},
	{"EDITOR", "`lateen edit`", "the editor's command; `vi` if neither is set"},
	{"KUBECONFIG", "`lateen`, `lateen-control`, `lateen-agent`", "file that says how to reach the cluster; `--kubeconfig` goes before it"},
	{"NODE_NAME", "`lateen-agent --kube`", "the node, if `--node` does not say; from spec.nodeName"},
	{"POD_NAMESPACE", "`lateen-agent --kube`", "the namespace of the installation; from metadata.namespace"},
	{"POD_NAME", "`lateen-agent --kube`", "the agent's own pod, at which it says that it has left the node; from metadata.name"},
	{"SERVICE_NAME", "pods of `lateen lab isotope manifests`", "which service of the topology the pod is"},
	{"SERVICE_GRAPH", "pods of `lateen lab isotope manifests`", "the topology, as YAML of isotope"},
	{"CONFIG_PATH", "pods of `lateen lab isotope manifests`", "file of the topology, before `SERVICE_GRAPH`"},
}
