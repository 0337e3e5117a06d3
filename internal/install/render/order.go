package render

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// kindOrder is the order in which kinds are applied, so that what others need is there before them: definitions, then accounts and
// rights, then settings, then what runs.
var kindOrder = []string{
	"Namespace", "CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Secret", "ConfigMap", "Service",
	"Deployment", "DaemonSet", "PodDisruptionBudget", "HorizontalPodAutoscaler", "GatewayClass", "PodMonitor", "PrometheusRule",
}

// Sort puts objects into the order in which they should be applied; the reverse is that in which they should be removed.
func Sort(objects []*unstructured.Unstructured) {
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(rank(a.GetKind()), rank(b.GetKind())), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

func rank(kind string) int {
	if i := slices.Index(kindOrder, kind); i >= 0 {
		return i
	}
	return len(kindOrder)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
