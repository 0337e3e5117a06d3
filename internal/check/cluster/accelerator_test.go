package cluster

import (
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"lateen.dev/lateen/internal/check"
)

func TestAcceleratorIsAWarningOnlyWhenItIsOn(t *testing.T) {
	kernel := func(version string) func(*rig) {
		return func(r *rig) {
			r.objects[0] = clusterNode("n1", func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = version })
		}
	}
	// What the node proxies that run have; the values of their installation may have been overridden.
	variables := func(set map[string]string) func(*rig) {
		return func(r *rig) {
			for _, o := range r.objects {
				if d, ok := o.(*appsv1.DaemonSet); ok && d.Name == "lateen-node" {
					c := corev1.Container{Name: "proxy"}
					for _, name := range slices.Sorted(maps.Keys(set)) {
						c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: set[name]})
					}
					d.Spec.Template.Spec.Containers = []corev1.Container{c}
				}
			}
		}
	}
	on := map[string]string{"LATEEN_ACCELERATOR": "splice"}
	wanted := func(node map[string]any) func(*rig) {
		return func(r *rig) { r.values = map[string]any{"node": node} }
	}
	const old, new = "5.4.0-150-generic", "5.10.0-28-amd64"
	for _, x := range []struct {
		name    string
		changes []func(*rig)
		purpose check.Purpose
		outcome check.Outcome
		says    string
	}{
		{"off", nil, Installed, check.OK, "off; node.accelerator=splice"},
		{"off, old kernel", []func(*rig){kernel(old)}, Installed, check.OK, "off; the kernel of these nodes would be too old for it: n1 has Linux " + old},
		{"on", []func(*rig){kernel(new), variables(on)}, Installed, check.OK, "on, 1 nodes with Linux 5.10 or newer; each proxy tries it at its start, and lateen logs proxy/NODE"},
		{"on, old kernel", []func(*rig){kernel(old), variables(on)}, Installed, check.Warning, "too old for it: n1 has Linux " + old},
		{"on, nothing handed over", []func(*rig){variables(map[string]string{"LATEEN_ACCELERATOR": "splice", "LATEEN_SAME_NODE": "false"})}, Installed, check.Warning, "joins nothing"},
		{"a word of one's own", []func(*rig){variables(map[string]string{"LATEEN_ACCELERATOR": "yes"})}, Installed, check.Warning, `is "yes"`},
		{"nodes that may not be seen", []func(*rig){variables(on), func(r *rig) { r.unseen = true }}, Installed, check.Warning, "nodes is forbidden"},
		{"off, nodes that may not be seen", []func(*rig){func(r *rig) { r.unseen = true }}, Installed, check.OK, "off"},
		{"no proxies", []func(*rig){func(r *rig) {
			r.objects = slices.DeleteFunc(r.objects, func(o runtime.Object) bool {
				d, ok := o.(*appsv1.DaemonSet)
				return ok && d.Name == "lateen-node"
			})
		}}, Installed, check.Warning, "there are no node proxies"},

		{"to be off", []func(*rig){kernel(old), wanted(map[string]any{"accelerator": "off"})}, Before, check.OK, "off; the kernel"},
		{"to be off, a bare off of YAML", []func(*rig){kernel(new), wanted(map[string]any{"accelerator": false})}, Before, check.OK, "off; node.accelerator"},
		{"to be on", []func(*rig){kernel(old), wanted(map[string]any{"accelerator": "splice"})}, Before, check.Warning, "too old"},
		{"to be on by its variable", []func(*rig){kernel(old), wanted(map[string]any{"env": map[string]any{"LATEEN_ACCELERATOR": "splice"}})}, Before, check.Warning, "too old"},
		{"to be on, but not on that node", []func(*rig){kernel(old), wanted(map[string]any{"accelerator": "splice", "nodeSelector": map[string]any{"disk": "ssd"}})}, Before, check.OK, "on, 0 nodes"},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := good()
			for _, change := range x.changes {
				change(r)
			}
			report := r.run(t, x.purpose)
			i := slices.IndexFunc(report.Results, func(r check.Result) bool { return r.Code == "LAT132" })
			if i < 0 {
				t.Fatalf("it is not checked: %+v", report.Results)
			}
			if got := report.Results[i]; got.Outcome != x.outcome || !strings.Contains(got.Found+got.Cause, x.says) || got.Outcome != check.OK && got.Fix == "" {
				t.Errorf("got %s: %s%s; fix %q", got.Outcome, got.Found, got.Cause, got.Fix)
			}
		})
	}
}
