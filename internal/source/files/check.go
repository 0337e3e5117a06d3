package files

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// checkMetadata holds every object to the rules that an API server applies to names and labels.
func checkMetadata(o metav1.Object) []fault {
	var faults []fault
	switch {
	case o.GetName() == "" && o.GetGenerateName() != "":
		faults = append(faults, fault{field: "metadata.generateName", message: "generated names are not supported", fix: "write metadata.name"})
	case o.GetName() == "":
		faults = append(faults, fault{field: "metadata.name", message: "the name is missing", fix: "write metadata.name"})
	default:
		// Some kinds (ClusterRole) allow more; none of those is understood here, and a colon or slash would break resource names.
		if errs := validation.IsDNS1123Subdomain(strings.ReplaceAll(o.GetName(), ":", ".")); len(errs) > 0 {
			faults = append(faults, fault{field: "metadata.name", message: fmt.Sprintf("%.100q is not a valid name", o.GetName()),
				fix: "use lower-case letters, digits, '-' and '.', at most 253 characters"})
		}
	}
	if ns := o.GetNamespace(); ns != "" && len(validation.IsDNS1123Label(ns)) > 0 {
		faults = append(faults, fault{field: "metadata.namespace", message: fmt.Sprintf("%.100q is not a valid namespace", ns),
			fix: "use lower-case letters, digits and '-', at most 63 characters"})
	}
	faults = append(faults, checkLabels("metadata.labels", o.GetLabels())...)
	for _, key := range slices.Sorted(maps.Keys(o.GetAnnotations())) {
		if len(validation.IsQualifiedName(strings.ToLower(key))) > 0 {
			faults = append(faults, fault{field: join("metadata.annotations", key), message: fmt.Sprintf("%.100q is not a valid annotation name", key),
				fix: "use [prefix/]name of letters, digits, '-', '_' and '.', the name at most 63 characters"})
		}
	}
	return faults
}

// checkLabels judges label names and values, of objects and of selectors alike.
func checkLabels(field string, labels map[string]string) []fault {
	var faults tally
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if len(validation.IsQualifiedName(key)) > 0 && !faults.full() {
			faults.add(fault{field: join(field, key), message: fmt.Sprintf("%.100q is not a valid label name", key),
				fix: "use [prefix/]name of letters, digits, '-', '_' and '.', the name at most 63 characters"})
		}
		if len(validation.IsValidLabelValue(labels[key])) > 0 && !faults.full() {
			faults.add(fault{field: join(field, key), message: fmt.Sprintf("%.100q is not a valid label value", labels[key]),
				fix: "use letters, digits, '-', '_' and '.', at most 63 characters, starting and ending with a letter or digit"})
		}
	}
	return faults.all()
}

func checkService(o metav1.Object) []fault {
	svc := o.(*corev1.Service)
	var faults []fault
	// A Service's name becomes a DNS label.
	if len(validation.IsDNS1123Label(svc.Name)) > 0 {
		faults = append(faults, fault{field: "metadata.name", message: fmt.Sprintf("%.100q is not a valid service name", svc.Name),
			fix: "use lower-case letters, digits and '-', at most 63 characters"})
	}
	switch svc.Spec.Type {
	case "", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
	case corev1.ServiceTypeExternalName:
		faults = append(faults, fault{severity: Warning, field: "spec.type", message: "an ExternalName service is not part of the mesh", fix: "call the external name itself"})
	default:
		faults = append(faults, fault{field: "spec.type", message: fmt.Sprintf("unknown type %.100q", svc.Spec.Type),
			fix: "use one of ClusterIP, NodePort, LoadBalancer, ExternalName"})
	}
	faults = append(faults, checkServiceAddresses(svc)...)
	faults = append(faults, checkServicePorts(svc)...)
	return append(faults, checkLabels("spec.selector", svc.Spec.Selector)...)
}

func checkServiceAddresses(svc *corev1.Service) []fault {
	var faults []fault
	if ip := svc.Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone {
		faults = append(faults, checkIP("spec.clusterIP", ip)...)
	}
	for i, ip := range svc.Spec.ClusterIPs {
		if ip != corev1.ClusterIPNone {
			faults = append(faults, checkIP(fmt.Sprintf("spec.clusterIPs[%d]", i), ip)...)
		}
		if i == 0 && svc.Spec.ClusterIP != "" && ip != svc.Spec.ClusterIP {
			faults = append(faults, fault{field: "spec.clusterIPs[0]", message: fmt.Sprintf("differs from clusterIP %s", svc.Spec.ClusterIP), fix: "make the first of clusterIPs equal to clusterIP"})
		}
	}
	return faults
}

func checkIP(field, ip string) []fault {
	if addr, err := netip.ParseAddr(ip); err != nil || addr.Zone() != "" {
		return []fault{{field: field, message: fmt.Sprintf("%.100q is not an IP address", ip), fix: "write an address such as 10.96.0.20"}}
	}
	return nil
}

func checkServicePorts(svc *corev1.Service) []fault {
	var faults []fault
	if len(svc.Spec.Ports) == 0 && svc.Spec.ClusterIP != corev1.ClusterIPNone && svc.Spec.Type != corev1.ServiceTypeExternalName {
		faults = append(faults, fault{field: "spec.ports", message: "a service needs at least one port", fix: "add a port, or set clusterIP: None"})
	}
	names := map[string]bool{}
	type portKey struct {
		port     int32
		protocol corev1.Protocol
	}
	ports := map[portKey]bool{}
	for i, p := range svc.Spec.Ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		if p.Port < 1 || p.Port > 65535 {
			faults = append(faults, fault{field: field + ".port", message: fmt.Sprintf("port %d is out of range", p.Port), fix: "use 1 to 65535"})
		}
		if p.Name == "" && len(svc.Spec.Ports) > 1 {
			faults = append(faults, fault{field: field + ".name", message: "a service with several ports must name each", fix: "add a name"})
		}
		if p.Name != "" {
			if len(validation.IsDNS1123Label(p.Name)) > 0 {
				faults = append(faults, fault{field: field + ".name", message: fmt.Sprintf("%.100q is not a valid port name", p.Name), fix: "use lower-case letters, digits and '-'"})
			}
			if names[p.Name] {
				faults = append(faults, fault{field: field + ".name", message: fmt.Sprintf("%.100q is used twice", p.Name), fix: "give each port its own name"})
			}
			names[p.Name] = true
		}
		protocol := p.Protocol
		switch protocol {
		case "":
			protocol = corev1.ProtocolTCP
		case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		default:
			faults = append(faults, fault{field: field + ".protocol", message: fmt.Sprintf("unknown protocol %.100q", p.Protocol), fix: "use one of TCP, UDP, SCTP"})
		}
		if ports[portKey{p.Port, protocol}] {
			faults = append(faults, fault{field: field + ".port", message: fmt.Sprintf("port %d/%s is listed twice", p.Port, protocol), fix: "remove one of the two"})
		}
		ports[portKey{p.Port, protocol}] = true
		faults = append(faults, checkTargetPort(field+".targetPort", p.TargetPort)...)
	}
	return faults
}

func checkTargetPort(field string, p intstr.IntOrString) []fault {
	if p.Type == intstr.Int {
		if p.IntVal != 0 && (p.IntVal < 1 || p.IntVal > 65535) {
			return []fault{{field: field, message: fmt.Sprintf("port %d is out of range", p.IntVal), fix: "use 1 to 65535"}}
		}
		return nil
	}
	if len(validation.IsValidPortName(p.StrVal)) > 0 {
		fix := "use the name of a container port"
		if _, err := strconv.Atoi(p.StrVal); err == nil {
			fix = "write the number without quotes"
		}
		return []fault{{field: field, message: fmt.Sprintf("%.100q is not a port name", p.StrVal), fix: fix}}
	}
	return nil
}

func checkPod(o metav1.Object) []fault {
	pod := o.(*corev1.Pod)
	faults := checkPodSpec("spec", &pod.Spec)
	if pod.Status.PodIP != "" {
		faults = append(faults, checkIP("status.podIP", pod.Status.PodIP)...)
	}
	for i, ip := range pod.Status.PodIPs {
		faults = append(faults, checkIP(fmt.Sprintf("status.podIPs[%d].ip", i), ip.IP)...)
	}
	return faults
}

// checkPodSpec judges what proxies are told of: the service account and the ports of containers; the rest of a pod is the engine's to judge.
func checkPodSpec(path string, spec *corev1.PodSpec) []fault {
	faults := checkServiceAccount(path+".serviceAccountName", spec.ServiceAccountName)
	faults = append(faults, checkContainerPorts(path+".containers", spec.Containers)...)
	return append(faults, checkContainerPorts(path+".initContainers", spec.InitContainers)...)
}

func checkContainerPorts(path string, containers []corev1.Container) []fault {
	var faults []fault
	for i, c := range containers {
		for j, p := range c.Ports {
			if p.ContainerPort < 1 || p.ContainerPort > 65535 {
				faults = append(faults, fault{field: fmt.Sprintf("%s[%d].ports[%d].containerPort", path, i, j),
					message: fmt.Sprintf("port %d is out of range", p.ContainerPort), fix: "use 1 to 65535"})
			}
		}
	}
	return faults
}

func checkDeployment(o metav1.Object) []fault {
	d := o.(*appsv1.Deployment)
	var faults []fault
	if d.Spec.Replicas != nil && *d.Spec.Replicas < 0 {
		faults = append(faults, fault{field: "spec.replicas", message: fmt.Sprintf("%d replicas", *d.Spec.Replicas), fix: "use 0 or more"})
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	switch {
	case d.Spec.Selector == nil || (len(d.Spec.Selector.MatchLabels) == 0 && len(d.Spec.Selector.MatchExpressions) == 0):
		faults = append(faults, fault{field: "spec.selector", message: "the selector is missing", fix: "select the labels of spec.template.metadata.labels"})
	case err != nil:
		faults = append(faults, fault{field: "spec.selector", message: err.Error(), fix: "correct the selector"})
	case !selector.Matches(labelSet(d.Spec.Template.Labels)):
		faults = append(faults, fault{field: "spec.template.metadata.labels", message: "the selector does not match the template's labels",
			fix: "give the template the labels of spec.selector.matchLabels"})
	}
	faults = append(faults, checkLabels("spec.template.metadata.labels", d.Spec.Template.Labels)...)
	if len(d.Spec.Template.Spec.Containers) == 0 {
		faults = append(faults, fault{field: "spec.template.spec.containers", message: "there is no container", fix: "add one"})
	}
	return append(faults, checkPodSpec("spec.template.spec", &d.Spec.Template.Spec)...)
}
