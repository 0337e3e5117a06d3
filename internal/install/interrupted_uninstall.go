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

// uninstallBegun says whether an uninstallation was begun and not completed. Its agents were told to leave their nodes. They capture nothing
// for as long as they live, even if the annotation is removed.
func (c nodeAgents) uninstallBegun(ctx context.Context, record *Record) (bool, error) {
	if record.State == stateUninstalling {
		return true, nil
	}
	return c.toldToLeave(ctx, record.Namespace)
}

// toldToLeave says whether the agents' DaemonSet has the annotation that tells them to leave their nodes.
func (c nodeAgents) toldToLeave(ctx context.Context, namespace string) (bool, error) {
	d, err := c.client.AppsV1().DaemonSets(namespace).Get(ctx, agentName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && d.Annotations[uninstallAnnotation] == "true", c.server.explain(err)
}

// undoUninstall removes the annotation by which an interrupted uninstallation told the agents to leave. It replaces the agents, since those
// that read the annotation capture nothing any more. The new ones capture pods by their labels again.
func (i *Installation) undoUninstall(ctx context.Context) error {
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

// pods lists the pods of the agents.
func (c nodeAgents) pods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + agentName})
	if err != nil {
		return nil, c.server.explain(err)
	}
	return list.Items, nil
}

// replaced waits until the old agents are gone and as many new ones are ready as are wanted; nodes that are down do not count. It counts
// pods, because the DaemonSet's status may be from before the replacement.
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
