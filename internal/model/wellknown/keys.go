// Package wellknown owns the names that the mesh shares with its users' objects: labels, annotations, conditions and
// controllers, each declared once and described. What they do is done elsewhere; docs/reference/annotations.md is made of Keys.
package wellknown

// Istio's and Kubernetes' names keep their meaning; Lateen's own begin with lateen.
const (
	DataplaneMode = "istio.io/dataplane-mode"
	Redirection   = "ambient.istio.io/redirection"
	ConfigMirror  = "kubernetes.io/config.mirror"
	DryRun        = "istio.io/dry-run"

	DNSCapture               = "ambient.istio.io/dns-capture"
	BypassInboundCapture     = "ambient.istio.io/bypass-inbound-capture"
	RerouteVirtualInterfaces = "istio.io/reroute-virtual-interfaces"
	ExcludeInboundPorts      = "traffic.sidecar.istio.io/excludeInboundPorts"
	ExcludeOutboundPorts     = "traffic.sidecar.istio.io/excludeOutboundPorts"
	ExcludeOutboundIPRanges  = "traffic.sidecar.istio.io/excludeOutboundIPRanges"
	IncludeOutboundIPRanges  = "traffic.sidecar.istio.io/includeOutboundIPRanges"
	ExceptionsAccepted       = "lateen.dev/ExceptionsAccepted"
	ServiceWorkloadName      = "service.istio.io/workload-name"
	ServiceCanonicalName     = "service.istio.io/canonical-name"
	ServiceCanonicalRevision = "service.istio.io/canonical-revision"
	AppName                  = "app.kubernetes.io/name"
	AppVersion               = "app.kubernetes.io/version"
	AutoRegistrationGroup    = "istio.io/autoRegistrationGroup"
	Tunnel                   = "networking.istio.io/tunnel"
	Region                   = "topology.kubernetes.io/region"
	Zone                     = "topology.kubernetes.io/zone"
	Subzone                  = "topology.istio.io/subzone"
	Network                  = "topology.istio.io/network"
	ExportTo                 = "networking.istio.io/exportTo"
	TrafficDistribution      = "networking.istio.io/traffic-distribution"
	EnableAutoallocateIP     = "networking.istio.io/enable-autoallocate-ip"
	UseWaypoint              = "istio.io/use-waypoint"
	UseWaypointNamespace     = "istio.io/use-waypoint-namespace"
	UseWaypointCanary        = "istio.io/use-waypoint-canary"
	UseWaypointCanaryNS      = "istio.io/use-waypoint-canary-namespace"
	UseWaypointCanaryWeight  = "istio.io/use-waypoint-canary-weight"
	IngressUseWaypoint       = "istio.io/ingress-use-waypoint"
	WaypointFor              = "istio.io/waypoint-for"
	WaypointInboundBinding   = "ambient.istio.io/waypoint-inbound-binding"
	GatewayName              = "gateway.networking.k8s.io/gateway-name"
	GatewayManaged           = "gateway.istio.io/managed"
	GatewayServiceAccount    = "gateway.istio.io/service-account"
	GatewayClassName         = "gateway.networking.k8s.io/gateway-class-name"
	GatewayNameOverride      = "gateway.istio.io/name-override"
	GatewayClassDefaults     = "gateway.istio.io/defaults-for-class"
	Deployed                 = "lateen.dev/Deployed"
	MeshController           = "istio.io/mesh-controller"
	Programmed               = "lateen.dev/Programmed"
	WaypointBound            = "istio.io/WaypointBound"
	WaypointAccepted         = "WaypointAccepted"
	LateenWaypointController = "lateen.dev/waypoint-controller"
	ProxyProtocol            = "istio.io/PROXY"
	NodeIndex                = "lateen.dev/node-index"
	PartOf                   = "app.kubernetes.io/part-of"
	Component                = "app.kubernetes.io/component"
	ReportingAgent           = "lateen.dev/agent"
	ReportingControl         = "lateen.dev/control"
	ManagedBy                = "app.kubernetes.io/managed-by"
	InstallRecord            = "lateen.dev/record"
	BundleVersion            = "gateway.networking.k8s.io/bundle-version"
	BundleChannel            = "gateway.networking.k8s.io/channel"
	RotateRoot               = "lateen.dev/rotate-root"
	IstioConfig              = "istio.io/config"
	Uninstall                = "lateen.dev/uninstall"
	Uninstalled              = "lateen.dev/uninstalled"
	SidecarStatus            = "sidecar.istio.io/status"
	SidecarInject            = "sidecar.istio.io/inject"
	ControllerVersion        = "gateway.istio.io/controller-version"
	Revision                 = "istio.io/rev"
	IstioGatewayController   = "istio.io/gateway-controller"
	IstioControllers         = "istio.io/"
	Selects                  = "lateen.dev/selects"
)

// Kind is where a name stands.
type Kind string

// The kinds.
const (
	Label      Kind = "label"
	Annotation Kind = "annotation"
	Condition  Kind = "condition"
	Controller Kind = "controllerName"
	Protocol   Kind = "protocol"
)

// Key is what people need to know of a name.
type Key struct {
	Name  string
	Group string
	Kind  Kind
	// On are the kinds of objects that may carry it.
	On string
	// Who reads it, or writes it.
	Who string
	// Values that mean something.
	Values string
	// Meaning is a sentence without its full stop.
	Meaning string
}

// Keys are all names, in the order of the page.
var Keys = []Key{
	{DataplaneMode, "Membership", Label, "Namespace, Pod", "agent", "`ambient`, `none`",
		"`ambient`: the pod, or each pod of the namespace, is captured and its connections are encrypted; `none` on a pod keeps it out. A pod's own label goes before its namespace's; a pod on its node's network is never captured"},
	{Redirection, "Membership", Annotation, "Pod", "engine writes (the agent on Kubernetes), control plane reads", "`enabled`",
		"the pod is captured, so peers reach it by tunnel; set by the mesh after the node proxy serves the pod, not by people"},
	{ConfigMirror, "Membership", Annotation, "Pod", "kubelet writes, agent and control plane read", "any",
		"the object mirrors a static pod. Such a pod has no identity, is not captured, and serves no Service of a namespace that is in the mesh"},

	{DNSCapture, "Exceptions from capture", Annotation, "Pod", "agent", "`true`, `false`",
		"whether the pod's DNS questions are answered by the node proxy; goes before the agent's `--dns-capture`"},
	{BypassInboundCapture, "Exceptions from capture", Annotation, "Pod", "agent", "`true`, `false`",
		"`true`: all that others dial reaches the pod directly, but for tunnels; no policy holds for it"},
	{ExcludeInboundPorts, "Exceptions from capture", Annotation, "Pod", "agent", "ports, with commas",
		"ports of the pod that are reached directly"},
	{ExcludeOutboundPorts, "Exceptions from capture", Annotation, "Pod", "agent", "ports, with commas",
		"ports that the pod reaches directly"},
	{ExcludeOutboundIPRanges, "Exceptions from capture", Annotation, "Pod", "agent", "CIDR ranges, with commas",
		"addresses that the pod reaches directly; not together with `includeOutboundIPRanges`"},
	{IncludeOutboundIPRanges, "Exceptions from capture", Annotation, "Pod", "agent", "CIDR ranges, `*`, or empty",
		"the only addresses that are captured: `*` is all, an empty value none"},
	{RerouteVirtualInterfaces, "Exceptions from capture", Annotation, "Pod", "agent", "interfaces, with commas",
		"interfaces behind which a virtual machine or container of the pod runs: what comes from there counts as what the pod dials"},
	{ExceptionsAccepted, "Exceptions from capture", Condition, "Pod", "engine writes", "`False` with a reason",
		"an annotation of this group has something wrong in it and no effect; the message says what"},

	{Programmed, "Proxies", Condition, "any; `Programmed` on a Gateway", "control plane writes", "`True` with reason `Programmed`; `False` with `AwaitingProxies`, `RefusedByProxy`, `NotAccepted` or `StandIn`; `Unknown` with `NoProxies`, `MayBeRefused` or `RefusalUnnamed`",
		"`True`: every node proxy, whatever replica of the control plane it is connected to, has acknowledged this generation of the object; it stays true of that generation. `AwaitingProxies`: the message names the proxies that have not, and replicas that cannot be asked. `RefusedByProxy`: a proxy refuses what was made of the object; the message has its reason. `StandIn`: this generation is refused, and the proxies are given its strictest reading. `Unknown`: no proxy is there, or one refuses something of a response that the object came in, and names others but not all, or none; that ends when it takes a later version, or is gone itself. On a Gateway it is `False` as well with `AddressNotAssigned` while its Service has no address, with `Pending` while no pod of it is ready, and with `NoResources` once the condition `lateen.dev/Deployed` asks for a cure. The local engine says only what is refused, or may be"},
	{WaypointBound, "Proxies", Condition, "Service, ServiceEntry, WorkloadEntry", "control plane writes", "`True`; `False` with a reason",
		"whether connections to the object go through the waypoint that it asks for; on Kubernetes only, elsewhere it is called `WaypointBound`"},

	{WaypointAccepted, "Policy", Condition, "AuthorizationPolicy, RequestAuthentication", "control plane writes", "`True` with reason `Accepted` or `PartiallyInvalid`; `False` with `TargetNotFound`, `NotBound`, `NotServed` or `Invalid`",
		"whether waypoints have a policy with `targetRefs`. `NotBound`: connections to the service that it names go direct until the service is bound to a waypoint. `NotServed`: the Gateway that it names is not this mesh's to serve. The entries of `status.parents` say it of each target"},
	{DryRun, "Policy", Annotation, "AuthorizationPolicy", "control plane", "`true`, `false`",
		"`true`: the policy decides nothing and only reports, in `policy.dry_run` of the access log and `lateen_policy_dry_run_total`; anything else but `false` enforces it and is reported"},

	{UseWaypoint, "Waypoints", Label, "Service, ServiceEntry, Pod, WorkloadEntry, Namespace", "control plane", "a Gateway's name, `none`",
		"connections to it go through that waypoint; the object's own label goes before its namespace's, and `none` ends the search, as does an empty value"},
	{UseWaypointNamespace, "Waypoints", Label, "as `use-waypoint`", "control plane", "a namespace",
		"where that Gateway is; without it the object's own namespace"},
	{UseWaypointCanary, "Waypoints", Label, "Service, ServiceEntry, Namespace", "control plane", "a Gateway's name",
		"a second waypoint that takes a share of the connections; declared where the first is"},
	{UseWaypointCanaryNS, "Waypoints", Label, "as `use-waypoint-canary`", "control plane", "a namespace",
		"where that Gateway is"},
	{UseWaypointCanaryWeight, "Waypoints", Annotation, "as `use-waypoint-canary`", "control plane", "0 to 100",
		"its share in percent"},
	{IngressUseWaypoint, "Waypoints", Label, "Service, ServiceEntry, Namespace", "control plane", "`true`, `false`",
		"gateways, too, send what is for it through its waypoint"},
	{WaypointFor, "Waypoints", Label, "Gateway, GatewayClass", "control plane", "`service`, `workload`, `all`, `none`",
		"what kind of traffic the waypoint takes"},
	{WaypointInboundBinding, "Waypoints", Annotation, "Gateway, GatewayClass", "control plane", "`PROXY` or `NONE`, alone or as `PROXY/PORT`",
		"how connections reach the waypoint's own pods: `PROXY` by the PROXY protocol, whose TLVs carry the client's identity, on a port that listens on a loopback address alone, since only the proxy may write them; `NONE` as they are; without a port that of the listener that fits"},
	{GatewayName, "Waypoints", Label, "Pod, WorkloadEntry, Service", "control plane", "a Gateway's name",
		"the object belongs to that Gateway: it is reached as `waypoint-inbound-binding` says and not sent through a waypoint itself"},
	{GatewayManaged, "Waypoints", Label, "Service, ServiceEntry", "control plane", "`istio.io-mesh-controller`, `istio.io-eastwest-controller`",
		"the object is a waypoint or a gateway itself and is not sent through a waypoint"},
	{GatewayServiceAccount, "Waypoints", Annotation, "Gateway", "control plane", "a ServiceAccount's name",
		"the account that the Gateway runs as, and so the identity that its peers expect; without it a waypoint has an account of the Gateway's name, which is made for it"},
	{GatewayClassName, "Waypoints", Label, "objects of a waypoint", "deployer and engine write", "a GatewayClass's name",
		"the class of the Gateway that the object was made for"},
	{SidecarInject, "Waypoints", Label, "Pod of a waypoint", "deployer and engine write", "`false`",
		"no injector of Istio gives the pod a sidecar"},
	{ControllerVersion, "Waypoints", Annotation, "Gateway", "deployer and engine", "a number",
		"Istio's controller writes it; it is not copied to the objects of a waypoint"},
	{GatewayNameOverride, "Waypoints", Annotation, "Gateway", "deployer and engine", "none",
		"a Gateway with it is not deployed: the objects of a waypoint have its Gateway's name"},
	{GatewayClassDefaults, "Waypoints", Label, "ConfigMap of the root namespace", "deployer and engine", "a GatewayClass's name",
		"changes to the objects of every waypoint of the class, before those of its own `spec.infrastructure.parametersRef`; the keys are `deployment`, `service`, `serviceAccount`, `horizontalPodAutoscaler` and `podDisruptionBudget`, and each value is a strategic merge patch. Of several ConfigMaps the oldest counts"},
	{Deployed, "Waypoints", Condition, "Gateway", "deployer writes", "`True` with reason `Deployed`; `False` with `Invalid`, `InvalidParameters`, `Taken`, `LeftToIstio`, `IstioUnknown`, `Refused`, `PodsRefused`, `Stuck` or `Progressing`",
		"whether the objects of the waypoint are there and its pods are available; the message names the object, the field and the cure. On Kubernetes only"},
	{MeshController, "Waypoints", Controller, "GatewayClass", "control plane", "",
		"Gateways of such a class are waypoints"},
	{LateenWaypointController, "Waypoints", Controller, "GatewayClass", "control plane", "",
		"Gateways of such a class are waypoints, under a name that no other mesh in the cluster answers to"},
	{ProxyProtocol, "Waypoints", Protocol, "Gateway (listener)", "control plane", "",
		"the listener that `waypoint-inbound-binding` means if it gives no port"},

	{ServiceWorkloadName, "Names in telemetry", Label, "Pod, WorkloadEntry", "control plane", "text",
		"the workload's name in metrics; else that of what controls the pod"},
	{ServiceCanonicalName, "Names in telemetry", Label, "Pod, WorkloadEntry", "control plane", "text",
		"the canonical service in metrics; else `app.kubernetes.io/name`, else `app`, else the workload's name"},
	{AppName, "Names in telemetry", Label, "Pod, WorkloadEntry", "control plane", "text",
		"the canonical service, if the label before it is not there"},
	{ServiceCanonicalRevision, "Names in telemetry", Label, "Pod, WorkloadEntry", "control plane", "text",
		"the canonical revision in metrics; else `app.kubernetes.io/version`, else `version`, else `latest`"},
	{AppVersion, "Names in telemetry", Label, "Pod, WorkloadEntry", "control plane", "text",
		"the canonical revision, if the label before it is not there"},
	{AutoRegistrationGroup, "Names in telemetry", Annotation, "WorkloadEntry", "control plane", "text",
		"the group that the workload registered with, which is its name in metrics"},

	{Tunnel, "Reachability", Label, "Pod, WorkloadEntry", "control plane", "`http`",
		"the workload takes tunnels (HBONE) although no agent captured it"},
	{ExportTo, "Reachability", Annotation, "Service", "control plane", "`.`, `*`, `~`, or namespaces with commas",
		"who sees the service: its own namespace, everybody, nobody. Node proxies tell apart everybody and the own namespace only: with other namespaces in the list everybody sees it, and a condition says so"},
	{EnableAutoallocateIP, "Reachability", Label, "ServiceEntry", "control plane", "`false`",
		"`false`: no virtual address is allocated for its hosts"},
	{TrafficDistribution, "Reachability", Annotation, "Service, ServiceEntry, Namespace", "control plane", "`PreferSameZone`, `PreferSameNode`, `PreferClose`, `Any`",
		"which endpoints are preferred; the field `trafficDistribution` goes before it, and the object's own before its namespace's"},
	{Region, "Reachability", Label, "Node", "control plane; engine writes", "text",
		"the region of what runs there, for locality and for metrics"},
	{Zone, "Reachability", Label, "Node", "control plane; engine writes", "text",
		"the zone"},
	{Subzone, "Reachability", Label, "Node", "control plane; engine writes", "text",
		"the subzone"},
	{NodeIndex, "Reachability", Label, "Node", "engine writes", "1, 2, …",
		"the node's number in a mesh of the local engine, for a pod's `nodeSelector`"},
	{Network, "Reachability", Label, "Gateway", "control plane", "a network's name",
		"the Gateway is the way into that network"},

	{PartOf, "Installation", Label, "Pod", "agent", "`lateen`",
		"with a component `control`, `agent` or `node`, in the namespace of the installation: a part of the mesh that the mesh stands on, which is never captured"},
	{Component, "Installation", Label, "Pod", "agent", "`control`, `agent`, `node`",
		"which part of the mesh it is"},
	{ReportingAgent, "Installation", Controller, "Event", "agent writes", "in `reportingController`",
		"the event is the agent's: why a pod is not captured"},
	{ReportingControl, "Installation", Controller, "Event", "control plane writes", "in `reportingController`",
		"the event is the control plane's: what nobody goes by of the MeshConfig, at its ConfigMap"},
	{ManagedBy, "Installation", Label, "any", "`lateen install` writes", "`lateen`, `Helm`",
		"who installed the object: the command changes and removes only what is its own"},
	{InstallRecord, "Installation", Label, "ConfigMap", "`lateen install` writes", "`install`",
		"the ConfigMap `lateen-install` says which version is installed in its namespace, with which values; it counts only where the ClusterRoleBinding `lateen-control` puts the control plane"},
	{BundleVersion, "Installation", Annotation, "CustomResourceDefinition", "`lateen install`", "a version",
		"the version of the Gateway API that the definition is of; it is never replaced by an older one"},
	{BundleChannel, "Installation", Annotation, "CustomResourceDefinition", "`lateen install`", "`standard`, `experimental`",
		"the Gateway API's channel that the definition is of; an experimental one is left as it is"},
	{IstioConfig, "Installation", Label, "ConfigMap", "control plane", "any",
		"the root certificates in it are Istio's, and left to it"},
	{RotateRoot, "Installation", Annotation, "Secret `lateen-ca`", "control plane", "any",
		"asks for another root certificate, as `lateen ca rotate` does; gone when that has begun"},
	{Uninstall, "Installation", Annotation, "DaemonSet of the agent", "agent", "`true`",
		"every agent releases its node's pods and takes all that is the mesh's off the node; set by `lateen uninstall` before anything is deleted, and taken back by `lateen upgrade`"},
	{Uninstalled, "Installation", Annotation, "Pod of the agent", "agent writes", "`true`",
		"the agent has done so; `true, but for ...` names pods' networks that could not be looked at or changed, which is what whoever runs there may have seen to"},

	{SidecarStatus, "Take-over of Istio", Annotation, "Pod", "`lateen install --take-over` reads", "any",
		"Istio's injector gave the pod a sidecar"},
	{Revision, "Take-over of Istio", Label, "Namespace", "`lateen install --take-over` reads", "any",
		"an istiod of that revision injects sidecars into the namespace's pods"},
	{IstioGatewayController, "Take-over of Istio", Controller, "GatewayClass", "`lateen install --take-over` and the deployer read", "",
		"Gateways of such a class are Istio's ingress gateways. As a manager of fields it is Istio's controller, which deploys the Gateways of all classes"},
	{IstioControllers, "Take-over of Istio", Controller, "GatewayClass", "`lateen install --take-over` reads", "",
		"every controller of Istio's has a name that begins so"},
	{Selects, "Take-over of Istio", Label, "a policy's selector", "`lateen install --take-over` proposes", "`nothing`",
		"a selector by it chooses no pod, since nothing sets it"},
}
