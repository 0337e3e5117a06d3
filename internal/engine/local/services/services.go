// Package services works out what stands behind each service: which pods, at which ports. The kernel's address translation
// and the resolver are both made from its answer.
package services

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Service is one service with its ready pods, in one IP family. A service of two families is two of these.
type Service struct {
	Namespace string
	Name      string
	ClusterIP netip.Addr // invalid for a headless service
	Ports     []Port
	Pods      []netip.Addr // ready pods, sorted
	// Hosts are the pods that have a name of their own below the service's: their hostname.
	Hosts    []Host
	External string // of an ExternalName service: the name it stands for
}

// Host is a pod with a name of its own.
type Host struct {
	Name string
	Addr netip.Addr
}

// Port is one port of a service.
type Port struct {
	Name     string
	Protocol corev1.Protocol
	Port     uint16
	Backends []netip.AddrPort // sorted
}

// Resolve works out all services, sorted by namespace and name.
func Resolve(svcs []*corev1.Service, pods []*corev1.Pod) []Service {
	var out []Service
	for _, s := range svcs {
		if s.Spec.Type == corev1.ServiceTypeExternalName {
			out = append(out, Service{Namespace: s.Namespace, Name: s.Name, External: s.Spec.ExternalName})
			continue
		}
		for _, v6 := range familiesOf(s) {
			out = append(out, resolve(s, pods, v6))
		}
	}
	slices.SortStableFunc(out, func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// familiesOf lists the service's families, for each whether it is IPv6. A service that says nothing has IPv4.
func familiesOf(s *corev1.Service) (v6 []bool) {
	for _, f := range s.Spec.IPFamilies {
		v6 = append(v6, f == corev1.IPv6Protocol)
	}
	if v6 == nil {
		v6 = []bool{strings.Contains(s.Spec.ClusterIP, ":")}
	}
	return v6
}

// inFamily finds the first address of a family.
func inFamily(v6 bool, texts ...string) (netip.Addr, bool) {
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is6() == v6 {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

func resolve(s *corev1.Service, pods []*corev1.Pod, v6 bool) Service {
	r := Service{Namespace: s.Namespace, Name: s.Name}
	r.ClusterIP, _ = inFamily(v6, append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...)...)
	for _, p := range s.Spec.Ports {
		r.Ports = append(r.Ports, Port{Name: p.Name, Protocol: protocol(p.Protocol), Port: uint16(p.Port)})
	}
	if len(s.Spec.Selector) == 0 {
		return r
	}
	for _, pod := range pods {
		texts := []string{pod.Status.PodIP}
		for _, ip := range pod.Status.PodIPs {
			texts = append(texts, ip.IP)
		}
		ip, ok := inFamily(v6, texts...)
		if !ok || pod.Namespace != s.Namespace || !selects(s.Spec.Selector, pod.Labels) {
			continue
		}
		if !Ready(pod) && !(s.Spec.PublishNotReadyAddresses && alive(pod)) {
			continue
		}
		r.Pods = append(r.Pods, ip)
		if pod.Spec.Hostname != "" && pod.Spec.Subdomain == s.Name {
			r.Hosts = append(r.Hosts, Host{Name: pod.Spec.Hostname, Addr: ip})
		}
		for i, p := range s.Spec.Ports {
			if port, ok := targetPort(p, pod); ok {
				r.Ports[i].Backends = append(r.Ports[i].Backends, netip.AddrPortFrom(ip, port))
			}
		}
	}
	slices.SortFunc(r.Pods, netip.Addr.Compare)
	slices.SortFunc(r.Hosts, func(a, b Host) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Addr.Compare(b.Addr)) })
	for i := range r.Ports {
		slices.SortFunc(r.Ports[i].Backends, netip.AddrPort.Compare)
	}
	return r
}

// Ready says whether a pod takes traffic: it runs, says that it is ready, and is not on its way out.
func Ready(pod *corev1.Pod) bool {
	if !alive(pod) {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func alive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// targetPort finds the pod's port behind a service's port. A named port that the pod does not have leaves the pod out.
func targetPort(p corev1.ServicePort, pod *corev1.Pod) (uint16, bool) {
	switch {
	case p.TargetPort.Type == intstr.String && p.TargetPort.StrVal != "":
		for _, c := range pod.Spec.Containers {
			for _, cp := range c.Ports {
				if cp.Name == p.TargetPort.StrVal && protocol(cp.Protocol) == protocol(p.Protocol) {
					return uint16(cp.ContainerPort), true
				}
			}
		}
		return 0, false
	case p.TargetPort.Type == intstr.Int && p.TargetPort.IntVal > 0:
		return uint16(p.TargetPort.IntVal), true
	}
	return uint16(p.Port), true
}

func protocol(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}
