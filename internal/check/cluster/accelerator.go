package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"lateen.dev/lateen/internal/check"
)

// probeAccelerator compares what the proxies are told with what is known of their nodes, which is the kernel's version. Whether such a kernel
// has what it takes, each proxy tries at its start, and its log alone says it.
func probeAccelerator(ctx context.Context, t *Target) (string, *Finding) {
	if t.Unfound != nil {
		return "", t.absent()
	}
	variable, err := t.proxyVariables(ctx)
	if apierrors.IsNotFound(err) {
		return "", finding("see LAT123", "not known: there are no node proxies")
	} else if err != nil {
		return "", unable(err)
	}
	on, problem := check.Accelerator(variable)
	if problem != nil {
		return "", &Finding{Problem: *problem}
	}
	if t.unseen != nil && on {
		return "", unable(t.unseen)
	}
	var old []string
	oldest := version.MustParseGeneric(check.AcceleratorKernel().String())
	nodes := t.placed("node")
	for _, n := range nodes {
		if v, err := version.ParseGeneric(n.Status.NodeInfo.KernelVersion); err == nil && v.LessThan(oldest) {
			old = append(old, fmt.Sprintf("%s has Linux %s", n.Name, n.Status.NodeInfo.KernelVersion))
		}
	}
	switch {
	case on && len(old) > 0:
		return "", finding(check.AcceleratorFix, "it is on, and the kernel of these nodes is too old for it: %s", some(old))
	case on:
		return fmt.Sprintf("on, %d nodes with Linux %s or newer; each proxy tries it at its start, and lateen logs proxy/NODE says what came of it", len(nodes), oldest), nil
	case t.unseen != nil:
		return "off", nil // LAT105 says that the nodes are not known
	case len(old) > 0:
		return "off; the kernel of these nodes would be too old for it: " + some(old), nil
	default:
		return "off; node.accelerator=splice has it", nil
	}
}

// proxyVariables are the settings of the node proxies: of those that there are, or by the values of an installation to come.
func (t *Target) proxyVariables(ctx context.Context) (func(name string) string, error) {
	set := map[string]string{}
	if t.Record != nil {
		proxies, err := t.Cluster.Client.AppsV1().DaemonSets(t.Record.Namespace).Get(ctx, "lateen-node", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		for _, c := range proxies.Spec.Template.Spec.Containers {
			for _, e := range c.Env {
				set[e.Name] = e.Value
			}
		}
	} else if node, ok := t.values()["node"].(map[string]any); ok {
		if mode, ok := node["accelerator"].(string); ok {
			set[check.AcceleratorVariable] = mode
		}
		env, _ := node["env"].(map[string]any)
		for name, value := range env {
			set[name] = fmt.Sprint(value)
		}
	}
	return func(name string) string { return set[name] }, nil
}
