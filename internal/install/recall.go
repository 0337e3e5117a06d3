package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lateen.dev/lateen/internal/engine/api"
)

// recalled says whether a removal was begun and not ended: its agents were told to leave their nodes, and stay away from them for as long as
// they live, whatever becomes of the annotation.
func (c nodeAgents) recalled(ctx context.Context, record *Record) (bool, error) {
	if record.State == stateUninstalling {
		return true, nil
	}
	return c.toldToLeave(ctx, record.Namespace)
}

func (c nodeAgents) toldToLeave(ctx context.Context, namespace string) (bool, error) {
	d, err := c.client.AppsV1().DaemonSets(namespace).Get(ctx, agentName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && d.Annotations[uninstallAnnotation] == "true", c.server.explain(err)
}

// takeBack undoes what a removal that was broken off has told the agents. Those that have heard of it are replaced; the new ones capture
// again whatever their labels ask to.
func (i *Installation) takeBack(ctx context.Context) error {
	c, namespace := i.cluster, i.options.Namespace
	daemons := c.Client.AppsV1().DaemonSets(namespace)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{uninstallAnnotation: nil}}})
	if err != nil {
		return err
	}
	if _, err := daemons.Patch(ctx, agentName, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return c.explain(err)
	}
	agents, err := c.nodeAgents().pods(ctx, namespace)
	if err != nil {
		return err
	}
	old := map[types.UID]bool{}
	for i := range agents {
		p := &agents[i]
		err := c.Client.CoreV1().Pods(namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return c.explain(err)
		}
		old[p.UID] = true
	}
	if i.options.Wait {
		if err := i.cluster.nodeAgents().replaced(ctx, namespace, old, func(state string) { i.options.goesOn(phaseAgent, "node agents: %s", state) }); err != nil {
			return err
		}
	}
	i.record.State = stateInstalling
	return c.keep(ctx, i.record)
}

func (c nodeAgents) pods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + agentName})
	if err != nil {
		return nil, c.server.explain(err)
	}
	return list.Items, nil
}

// replaced waits until none of the old agents is there, but on nodes that are down, and as many new ones are ready as are wanted. What the
// DaemonSet itself says of that may be of the time before.
func (c nodeAgents) replaced(ctx context.Context, namespace string, old map[types.UID]bool, tell func(string)) error {
	shown := ""
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		down, err := c.down(ctx)
		if err != nil {
			return false, err
		}
		d, err := c.client.AppsV1().DaemonSets(namespace).Get(ctx, agentName, metav1.GetOptions{})
		if err != nil {
			return false, c.server.explain(err)
		}
		agents, err := c.pods(ctx, namespace)
		if err != nil {
			return false, err
		}
		var left, ready, unreachable int32
		for i := range agents {
			switch p := &agents[i]; {
			case down[p.Spec.NodeName]:
				unreachable++
			case old[p.UID]:
				left++
			case podReady(p):
				ready++
			}
		}
		want := d.Status.DesiredNumberScheduled - unreachable
		if s := fmt.Sprintf("%d of %d started anew", ready, want); s != shown {
			tell(s)
			shown = s
		}
		return left == 0 && ready >= want, nil
	})
	if err != nil && ctx.Err() != nil && !errors.Is(ctx.Err(), context.Canceled) {
		return &api.Error{Code: 408, Message: fmt.Sprintf("the agents that were told to leave their nodes are not all replaced (%s; %s)", shown, err),
			Fix: fmt.Sprintf("see what keeps them with kubectl get pods -n %s -l app=%s, and repeat the command", namespace, agentName)}
	}
	return err
}
