package meaning

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model/wellknown"
)

// Names by which Istio's injector works.
const (
	injectionLabel   = "istio-injection"
	redirected       = "enabled"
	injectionEnabled = "enabled"
)

var captured = []string{"metadata:", "  labels: {" + wellknown.DataplaneMode + ": " + wellknown.ModeAmbient + "}"}

// membership compares which pods are in the mesh.
func (c *comparison) membership() {
	sidecars, both := map[string][]string{}, map[string][]string{}
	leave, join, statics := map[string][]string{}, map[string][]string{}, map[string][]string{}
	for _, p := range c.Pods {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		_, sidecar := p.Annotations[wellknown.SidecarStatus]
		held := p.Annotations[wellknown.Redirection] == redirected
		wanted := c.enrolled(p)
		put := func(in map[string][]string) { in[p.Namespace] = append(in[p.Namespace], p.Namespace+"/"+p.Name) }
		if sidecar {
			put(sidecars)
		}
		switch {
		case sidecar && wanted:
			put(both)
		case held && static(p):
			put(statics)
		case held && !wanted:
			put(leave)
		case !held && !sidecar && wanted && p.Status.Phase == corev1.PodRunning:
			put(join)
		}
	}
	c.perNamespace("pod-sidecar", "metadata.annotations."+wellknown.SidecarStatus, sidecars)
	c.perNamespace("pod-sidecar-captured", "metadata.labels."+wellknown.DataplaneMode, both)
	c.perNamespace("pod-leaves", "metadata.labels."+wellknown.DataplaneMode, leave)
	c.perNamespace("pod-static", "metadata.annotations."+wellknown.ConfigMirror, statics)
	c.perNamespace("pod-joins", "metadata.labels."+wellknown.DataplaneMode, join)
	c.injected(sidecars)
}

// perNamespace tells of pods by their namespace, where the labels stand that decide.
func (c *comparison) perNamespace(rule, field string, pods map[string][]string) {
	for _, namespace := range slices.Sorted(maps.Keys(pods)) {
		d := Difference{Object: Object{Kind: "Namespace", Name: namespace}, Field: field}
		d.name(pods[namespace])
		c.out.add(rule, d)
	}
}

// enrolled says whether this mesh's agents capture a pod: its own label decides, then its namespace's. They capture no static pod, which has no identity.
func (c *comparison) enrolled(p *corev1.Pod) bool {
	if static(p) || p.Spec.HostNetwork {
		return false
	}
	return wellknown.Enrolled(p.Labels, c.labelsOf(p.Namespace))
}

func static(p *corev1.Pod) bool {
	_, mirror := p.Annotations[wellknown.ConfigMirror]
	return mirror
}

// injected is about namespaces whose new pods would have had a sidecar.
func (c *comparison) injected(sidecars map[string][]string) {
	for _, ns := range c.Namespaces {
		field := ""
		switch {
		case wellknown.Enrols(ns.Labels) || ns.Labels[injectionLabel] == "disabled":
		case ns.Labels[injectionLabel] == injectionEnabled:
			field = "metadata.labels." + injectionLabel
		case ns.Labels[wellknown.Revision] != "":
			field = "metadata.labels." + wellknown.Revision
		case len(sidecars[ns.Name]) > 0:
			field = "metadata.labels." + wellknown.DataplaneMode
		}
		if field == "" {
			continue
		}
		keep := captured
		if len(sidecars[ns.Name]) > 0 {
			keep = append([]string{"# once its pods are started anew without sidecars:"}, captured...)
		}
		c.out.add("namespace-injection", Difference{Object: Object{Kind: "Namespace", Name: ns.Name}, Field: field, Keep: keep})
	}
}

// requestAuthentication is the kind of which waypoints of this mesh read the rules and verify no tokens.
const requestAuthentication = "RequestAuthentication"

// unserved groups by their kind the objects on which no part of this mesh acts as Istio does.
func (c *comparison) unserved() {
	kinds := map[string][]string{}
	for _, o := range c.Unserved {
		kinds[o.Kind] = append(kinds[o.Kind], Object{Namespace: o.Namespace, Name: o.Name}.String())
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		d := Difference{Object: Object{Kind: kind}}
		d.name(kinds[kind])
		rule := "kind-unserved"
		if kind == requestAuthentication {
			rule = "request-authentication"
		}
		c.out.add(rule, d)
	}
	for _, o := range c.RemoteClusters {
		c.out.add("remote-cluster", Difference{Object: o})
	}
}

// refusals is about objects that Istio takes and this mesh does not.
func (c *comparison) refusals() {
	for _, r := range c.Refused {
		d := Difference{Object: r.Object, Field: r.Field, Severity: RouteChanges, Then: fmt.Sprintf("refused: %s; it has no effect", r.Message)}
		if r.Effect != "" {
			d.Severity, d.Then = AccessCloses, fmt.Sprintf("refused: %s; in force in its strictest reading: %s", r.Message, r.Effect)
		}
		c.out.add("object-refused", d)
	}
}
