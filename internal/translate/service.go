package translate

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Service translates a service. It returns nil for one that names something outside the mesh, or that nobody sees.
func Service(mesh Mesh, svc *corev1.Service, ctx Context) (*workload.Service, []model.Condition) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, []model.Condition{rejected("UnsupportedValue", "a service of type ExternalName is an alias in DNS and no service of the mesh: connections to it are judged by the name it stands for. A ServiceEntry makes that name part of the mesh")}
	}
	v := newVerdict()
	exportTo := exportedTo(svc)
	visibility, published := visibilityOf(exportTo, svc.Namespace)
	if !published {
		return nil, []model.Condition{rejected("NotExported", "annotation "+wellknown.ExportTo+` is "~": nobody can see it`)}
	}
	if visible := otherNamespaces(exportTo, svc.Namespace); len(visible) > 0 {
		v.note("UnsupportedValue", fmt.Sprintf("annotation %s names namespaces (%s): node proxies tell apart everybody and the own namespace only, so everybody sees it", wellknown.ExportTo, strings.Join(visible, ", ")))
	}
	b := ctx.bindService(svc, visibility == workload.Service_NAMESPACE, v)
	s := &workload.Service{
		Name:      svc.Name,
		Namespace: svc.Namespace,
		Hostname:  mesh.ServiceHost(svc.Namespace, svc.Name),
		// A Kubernetes service is the authority on its host name.
		Canonical:          true,
		Visibility:         visibility,
		LoadBalancing:      loadBalancing(svc, ctx.annotations(), v),
		Waypoint:           b.address(),
		WeightedWaypoints:  b.weighted,
		IngressUseWaypoint: b.ingress,
	}
	var bad string
	if s.Addresses, bad = networkAddresses(mesh, ClusterIPs(svc)); bad != "" {
		return nil, []model.Condition{rejected("InvalidAddress", bad+" is not an IP address")}
	}
	s.Addresses = ctx.keep(s.Addresses, v)
	for _, p := range tcpPorts(svc) {
		target := uint32(p.TargetPort.IntVal)
		if p.TargetPort.StrVal == "" {
			target = cmp.Or(target, uint32(p.Port))
		}
		s.Ports = append(s.Ports, &workload.Port{ServicePort: uint32(p.Port), TargetPort: target, AppProtocol: appProtocol(p)})
	}
	s.IpFamilies = ipFamilies(svc)
	if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		v.note("UnsupportedValue", "sessionAffinity ClientIP has no effect on connections of the mesh's clients: each may go to another endpoint")
	}
	if len(s.Ports) < len(svc.Spec.Ports) {
		// Its author wrote it for the cluster, and every cluster has one for its DNS: nobody is to see to that.
		v.note("", "ports whose protocol is not TCP bypass the mesh")
	}
	return s, v.conditions()
}

// exportedTo are the namespaces that a service's annotation names.
func exportedTo(svc *corev1.Service) []string {
	var exportTo []string
	for _, e := range strings.Split(svc.Annotations[wellknown.ExportTo], ",") {
		if e = strings.TrimSpace(e); e != "" {
			exportTo = append(exportTo, e)
		}
	}
	return exportTo
}

// ServiceVisibility says who sees a Service; published is false for one that nobody sees.
func ServiceVisibility(svc *corev1.Service) (v workload.Service_Visibility, published bool) {
	return visibilityOf(exportedTo(svc), svc.Namespace)
}

// ClusterIPs lists the addresses under which a service is reached; a headless service has none.
func ClusterIPs(svc *corev1.Service) []string {
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{svc.Spec.ClusterIP}
	}
	var out []string
	for _, ip := range ips {
		if ip != "" && ip != corev1.ClusterIPNone {
			out = append(out, ip)
		}
	}
	return out
}

func tcpPorts(svc *corev1.Service) []corev1.ServicePort {
	var out []corev1.ServicePort
	for _, p := range svc.Spec.Ports {
		if p.Protocol == "" || p.Protocol == corev1.ProtocolTCP {
			out = append(out, p)
		}
	}
	return out
}

// loadBalancing reads the wish for near endpoints: the internal traffic policy, else the traffic distribution.
func loadBalancing(svc *corev1.Service, nsAnnotations map[string]string, v *verdict) *workload.LoadBalancing {
	var lb *workload.LoadBalancing
	if p := svc.Spec.InternalTrafficPolicy; p != nil && *p == corev1.ServiceInternalTrafficPolicyLocal {
		lb = &workload.LoadBalancing{
			RoutingPreference: []workload.LoadBalancing_Scope{workload.LoadBalancing_NODE},
			Mode:              workload.LoadBalancing_STRICT,
		}
	} else {
		field := ""
		if svc.Spec.TrafficDistribution != nil {
			field = *svc.Spec.TrafficDistribution
		}
		lb = nearby(trafficDistribution(field, svc.Annotations, nsAnnotations, v))
	}
	if svc.Spec.PublishNotReadyAddresses {
		if lb == nil {
			lb = &workload.LoadBalancing{}
		}
		lb.HealthPolicy = workload.LoadBalancing_ALLOW_ALL
	}
	return lb
}

// The distributions that prefer near endpoints, as trafficDistribution returns them.
const (
	sameZone = "prefersamezone"
	sameNode = "prefersamenode"
)

func nearby(distribution string) *workload.LoadBalancing {
	near := []workload.LoadBalancing_Scope{workload.LoadBalancing_NETWORK, workload.LoadBalancing_REGION, workload.LoadBalancing_ZONE}
	switch distribution {
	case sameZone:
		return &workload.LoadBalancing{RoutingPreference: near, Mode: workload.LoadBalancing_FAILOVER}
	case sameNode:
		return &workload.LoadBalancing{RoutingPreference: append(near, workload.LoadBalancing_SUBZONE, workload.LoadBalancing_NODE), Mode: workload.LoadBalancing_FAILOVER}
	}
	return nil
}

// trafficDistribution reads the field, else the object's annotation, else its namespace's. An annotation that says something unknown ends
// the search, as in Istio.
func trafficDistribution(field string, annotations, nsAnnotations map[string]string, v *verdict) string {
	if d := distributionNamed(field); d != "" {
		return d
	}
	for i, from := range []map[string]string{annotations, nsAnnotations} {
		text := from[wellknown.TrafficDistribution]
		if text == "" {
			continue
		}
		d := distributionNamed(text)
		if d == "" && !strings.EqualFold(text, "any") {
			where := []string{"annotation", "the namespace's annotation"}[i]
			v.note("UnsupportedValue", fmt.Sprintf("%s %s is %q and means no preference; use PreferSameZone, PreferSameNode or PreferClose", where, wellknown.TrafficDistribution, text))
		}
		return d
	}
	return ""
}

func distributionNamed(text string) string {
	switch d := strings.ToLower(text); d {
	case "preferclose", sameZone:
		return sameZone
	case sameNode:
		return sameNode
	}
	return ""
}
