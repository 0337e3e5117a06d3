package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

// values are those of the installation, or those that it is to have.
func (t *Target) values() map[string]any {
	if t.Record != nil {
		return t.Record.Values
	}
	return t.Options.Values
}

// placed are the nodes on which at least one of some parts is to run, by the nodeSelector and the tolerations of its values.
func (t *Target) placed(parts ...string) []corev1.Node {
	return slices.DeleteFunc(slices.Clone(t.nodes), func(n corev1.Node) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return t.placement(part).takes(&n) })
	})
}

// placement is where a DaemonSet's pods may be.
type placement struct {
	NodeSelector map[string]string    `json:"nodeSelector"`
	Tolerations  *[]corev1.Toleration `json:"tolerations"`
}

func (t *Target) placement(part string) placement {
	var p placement
	// What cannot be read was refused by the chart's schema before it was installed.
	if text, err := yaml.Marshal(t.values()[part]); err == nil {
		_ = yaml.Unmarshal(text, &p)
	}
	return p
}

func (p placement) takes(n *corev1.Node) bool {
	for label, value := range p.NodeSelector {
		if n.Labels[label] != value {
			return false
		}
	}
	if p.Tolerations == nil {
		return true // the chart's own tolerate everything
	}
	return !slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && !kubernetesTolerates[taint.Key] &&
			!slices.ContainsFunc(*p.Tolerations, func(x corev1.Toleration) bool { return x.ToleratesTaint(klog.Background(), &taint, false) })
	})
}

// kubernetesTolerates are the taints that every pod of a DaemonSet tolerates.
var kubernetesTolerates = map[string]bool{
	corev1.TaintNodeNotReady: true, corev1.TaintNodeUnreachable: true, corev1.TaintNodeDiskPressure: true, corev1.TaintNodeMemoryPressure: true,
	corev1.TaintNodePIDPressure: true, corev1.TaintNodeUnschedulable: true, corev1.TaintNodeNetworkUnavailable: true,
}
