// Package podspec reads a pod's spec as the local engine understands it: command lines and environments of its containers,
// and which of its fields have no effect here. It runs nothing.
package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Facts are what a container may learn about its pod.
type Facts struct {
	Name           string
	Namespace      string
	UID            string
	Labels         map[string]string
	Annotations    map[string]string
	PodIP          string
	PodIPs         []string // PodIP first
	HostIP         string
	HostIPs        []string // HostIP first
	NodeName       string
	ServiceAccount string
	// Base is set before the container's own variables, which may refer to it and override it.
	Base []string
}

// Command is a container's command line and environment.
type Command struct {
	Args []string
	Env  []string
	Dir  string
}

// CommandOf works out what to run for a container.
func CommandOf(c *corev1.Container, f Facts) (Command, error) {
	vars := map[string]string{}
	var order []string
	set := func(name, value string) {
		if _, ok := vars[name]; !ok {
			order = append(order, name)
		}
		vars[name] = value
	}
	for _, kv := range f.Base {
		name, value, _ := strings.Cut(kv, "=")
		set(name, value)
	}
	for _, e := range c.Env {
		value := Expand(e.Value, vars)
		if e.ValueFrom != nil {
			var err error
			if value, err = fieldValue(e, f); err != nil {
				return Command{}, err
			}
		}
		set(e.Name, value)
	}
	cmd := Command{Dir: c.WorkingDir}
	if len(c.Command) == 0 {
		return Command{}, fmt.Errorf("container %q has no command; no image is run here, so name the program in `command`", c.Name)
	}
	for _, a := range append(slices.Clone(c.Command), c.Args...) {
		cmd.Args = append(cmd.Args, Expand(a, vars))
	}
	for _, name := range order {
		cmd.Env = append(cmd.Env, name+"="+vars[name])
	}
	return cmd, nil
}

// Expand replaces $(NAME) by the value of NAME as Kubernetes does: an unknown name stays as it is written, and $$ stands for $.
func Expand(s string, vars map[string]string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		rest := s[i+1:]
		if rest[0] == '(' {
			if end := strings.IndexByte(rest, ')'); end > 0 {
				if v, ok := vars[rest[1:end]]; ok {
					b.WriteString(v)
				} else {
					b.WriteString("$" + rest[:end+1])
				}
				s = rest[end+1:]
				continue
			}
		}
		b.WriteByte('$')
		if rest[0] == '$' {
			rest = rest[1:]
		}
		s = rest
	}
}

func fieldValue(e corev1.EnvVar, f Facts) (string, error) {
	if e.ValueFrom.FieldRef == nil {
		return "", fmt.Errorf("env %s: only fieldRef is understood here as a source of values; write the value itself", e.Name)
	}
	path := e.ValueFrom.FieldRef.FieldPath
	fields := map[string]string{
		"metadata.name":           f.Name,
		"metadata.namespace":      f.Namespace,
		"metadata.uid":            f.UID,
		"metadata.labels":         mapLines(f.Labels),
		"metadata.annotations":    mapLines(f.Annotations),
		"spec.nodeName":           f.NodeName,
		"spec.serviceAccountName": f.ServiceAccount,
		"status.podIP":            f.PodIP,
		"status.podIPs":           strings.Join(f.PodIPs, ","),
		"status.hostIP":           f.HostIP,
		"status.hostIPs":          strings.Join(f.HostIPs, ","),
	}
	if v, ok := fields[path]; ok {
		return v, nil
	}
	for prefix, m := range map[string]map[string]string{"metadata.labels": f.Labels, "metadata.annotations": f.Annotations} {
		if key, ok := strings.CutPrefix(path, prefix+"['"); ok && strings.HasSuffix(key, "']") {
			return m[strings.TrimSuffix(key, "']")], nil
		}
	}
	return "", fmt.Errorf("env %s: unknown field %q; use metadata.name, metadata.namespace, metadata.labels['key'], spec.nodeName or status.podIP", e.Name, path)
}

func mapLines(m map[string]string) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(lines, "\n")
}

// Containers are all containers of a spec, those that run first before the others.
func Containers(s *corev1.PodSpec) []corev1.Container {
	return append(slices.Clone(s.InitContainers), s.Containers...)
}

// Ineffective names the fields of a spec that its author may count on and that have no effect here.
func Ineffective(s *corev1.PodSpec) []string {
	var names []string
	add := func(given bool, name string) {
		if given && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	add(s.Affinity != nil, "affinity")
	add(s.DNSConfig != nil, "dnsConfig")
	add(len(s.HostAliases) > 0, "hostAliases")
	for _, v := range s.Volumes {
		add(v.EmptyDir == nil, "volumes (only emptyDir, which every pod's own /tmp stands for)")
	}
	for _, c := range Containers(s) {
		for _, p := range c.Ports {
			add(p.HostPort != 0 && !s.HostNetwork, "ports.hostPort (except with hostNetwork)")
		}
		add(c.LivenessProbe != nil, "livenessProbe")
		add(c.StartupProbe != nil, "startupProbe")
		add(c.Lifecycle != nil, "lifecycle")
		add(len(c.EnvFrom) > 0, "envFrom")
		for _, m := range c.VolumeMounts {
			add(m.MountPath != "/tmp", "volumeMounts (except at /tmp)")
		}
		if sc := c.SecurityContext; sc != nil {
			add(sc.RunAsUser != nil, "securityContext.runAsUser (one user per service account)")
			add(sc.Privileged != nil && *sc.Privileged, "securityContext.privileged (no pod is)")
			add(sc.Capabilities != nil && len(sc.Capabilities.Add) > 0, "securityContext.capabilities.add (pods have none)")
		}
	}
	return names
}

// ServiceAccountOf is the account that a pod runs as.
func ServiceAccountOf(s *corev1.PodSpec) string {
	switch {
	case s.ServiceAccountName != "":
		return s.ServiceAccountName
	case s.DeprecatedServiceAccount != "":
		return s.DeprecatedServiceAccount
	}
	return "default"
}

// GraceSeconds is how long a pod may take to end once asked, between 0 and an hour.
func GraceSeconds(s *corev1.PodSpec) int64 {
	if s.TerminationGracePeriodSeconds == nil {
		return 30
	}
	return min(max(*s.TerminationGracePeriodSeconds, 0), 3600)
}
