package waypoint

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// unrestricted names the first field of a pod that Pod Security's level "restricted" does not admit; empty if there is none.
func unrestricted(s *corev1.PodSpec) string {
	switch {
	case s.HostNetwork:
		return "hostNetwork"
	case s.HostPID:
		return "hostPID"
	case s.HostIPC:
		return "hostIPC"
	}
	for i, v := range s.Volumes {
		of := v.VolumeSource
		if of.ConfigMap == nil && of.Secret == nil && of.EmptyDir == nil && of.Projected == nil && of.DownwardAPI == nil && of.CSI == nil && of.PersistentVolumeClaim == nil && of.Ephemeral == nil {
			return fmt.Sprintf("volumes[%d]", i)
		}
	}
	pod := s.SecurityContext
	if pod == nil {
		pod = &corev1.PodSecurityContext{}
	}
	switch {
	case pod.RunAsUser != nil && *pod.RunAsUser == 0:
		return "securityContext.runAsUser"
	case pod.SeccompProfile != nil && pod.SeccompProfile.Type == corev1.SeccompProfileTypeUnconfined:
		return "securityContext.seccompProfile"
	case pod.AppArmorProfile != nil && pod.AppArmorProfile.Type == corev1.AppArmorProfileTypeUnconfined:
		return "securityContext.appArmorProfile"
	case len(pod.Sysctls) > 0:
		return "securityContext.sysctls"
	case pod.SELinuxOptions != nil:
		return "securityContext.seLinuxOptions"
	}
	for _, list := range []struct {
		name string
		of   []corev1.Container
	}{{"initContainers", s.InitContainers}, {"containers", s.Containers}} {
		for _, c := range list.of {
			if field := unrestrictedContainer(&c, pod); field != "" {
				return fmt.Sprintf("%s[%s].%s", list.name, c.Name, field)
			}
		}
	}
	return ""
}

func unrestrictedContainer(c *corev1.Container, pod *corev1.PodSecurityContext) string {
	for _, p := range c.Ports {
		if p.HostPort != 0 {
			return "ports.hostPort"
		}
	}
	s := c.SecurityContext
	if s == nil {
		s = &corev1.SecurityContext{}
	}
	nonRoot := s.RunAsNonRoot
	if nonRoot == nil {
		nonRoot = pod.RunAsNonRoot
	}
	profile := s.SeccompProfile
	if profile == nil {
		profile = pod.SeccompProfile
	}
	switch {
	case s.Privileged != nil && *s.Privileged:
		return "securityContext.privileged"
	case s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
		return "securityContext.allowPrivilegeEscalation"
	case nonRoot == nil || !*nonRoot:
		return "securityContext.runAsNonRoot"
	case s.RunAsUser != nil && *s.RunAsUser == 0:
		return "securityContext.runAsUser"
	case s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") || slices.ContainsFunc(s.Capabilities.Add, func(c corev1.Capability) bool { return c != "NET_BIND_SERVICE" }):
		return "securityContext.capabilities"
	case s.ProcMount != nil && *s.ProcMount != corev1.DefaultProcMount:
		return "securityContext.procMount"
	case profile == nil || profile.Type == corev1.SeccompProfileTypeUnconfined:
		return "securityContext.seccompProfile"
	case s.AppArmorProfile != nil && s.AppArmorProfile.Type == corev1.AppArmorProfileTypeUnconfined:
		return "securityContext.appArmorProfile"
	case s.SELinuxOptions != nil:
		return "securityContext.seLinuxOptions"
	}
	return ""
}
