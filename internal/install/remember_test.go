package install

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestARemovalWithLostValuesAsksTheParts(t *testing.T) {
	agents := daemonSet(DefaultNamespace, agentName, map[string]string{"app": agentName})
	agents.Spec.Template.Spec.Containers = []corev1.Container{{Image: "reg/agent:1", Args: []string{"--kube", "--cni-bin-dir=/host/var/lib/x", "--cni-conf-dir=/host/etc/x"}}}
	c := cluster(t, agents)
	anchored(t, c, DefaultNamespace, lateen)
	c.namespace(t, DefaultNamespace, false)
	control := named("Deployment", DefaultNamespace, controlName)
	own(control)
	c.put(t, control)
	settings := named("ConfigMap", DefaultNamespace, settingsName)
	_ = unstructured.SetNestedStringMap(settings.Object, map[string]string{"ROOT_NAMESPACE": "policies"}, "data")
	c.put(t, settings)
	service := named("Service", "policies", istiodName)
	own(service)
	c.put(t, service)
	o := options()
	o.WithoutNodes = []string{"n1"}
	r, err := c.PrepareRemoval(t.Context(), o, false)
	if err != nil {
		t.Fatal(err)
	}
	if hands := r.ByHand(); len(hands) != 1 || !strings.Contains(hands[0], "--cni-conf-dir=/host/etc/x --cni-bin-dir=/host/var/lib/x ") {
		t.Error(hands)
	}
	if !slices.ContainsFunc(r.Plan.Steps, func(s Step) bool { return s.Namespace == "policies" && s.Name == istiodName }) {
		t.Error("the namespace of mesh-wide policies is not looked into")
	}
}
