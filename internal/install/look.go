package install

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/install/render"
)

// Nodes are the cluster's.
func (c *Cluster) Nodes(ctx context.Context) ([]corev1.Node, error) { return c.nodeAgents().nodes(ctx) }

// DefinitionState is how the cluster's definitions are, beside those that the mesh reads.
type DefinitionState struct {
	There   int
	Missing []string
	// Wrong are those that serve no version which the mesh reads, in words.
	Wrong []string
}

// Definitions compares the cluster's definitions with the charts'.
func (c *Cluster) Definitions(ctx context.Context, o Options) (DefinitionState, error) {
	var s DefinitionState
	values, _ := split(o.Values)
	r, err := render.Chart(o.Charts, "lateen-crds", values, render.Release{Name: lateen, Namespace: o.Namespace})
	if err != nil {
		return s, err
	}
	for _, want := range r.Objects {
		if want.GetKind() != "CustomResourceDefinition" {
			continue
		}
		live, err := c.objects().get(ctx, want)
		if err != nil {
			return s, err
		}
		if live == nil {
			s.Missing = append(s.Missing, want.GetName())
			continue
		}
		s.There++
		if _, err := leave(want, live); err != nil {
			var said *api.Error
			if errors.As(err, &said) {
				s.Wrong = append(s.Wrong, said.Message)
			}
		}
	}
	return s, nil
}

// State says how a part of the mesh runs; it is an error, with the reason, if that is not as it should.
func (c *Cluster) State(ctx context.Context, kind, namespace, name string) (string, error) {
	workload := named(kind, namespace, name)
	p, w, err := c.rollouts().progress(ctx, workload)
	if apierrors.IsNotFound(err) {
		return "", &api.Error{Code: 404, Message: "there is no " + called(workload), Fix: "make it again with lateen upgrade"}
	} else if err != nil {
		return "", err
	}
	if kind == "DaemonSet" && name == agentName {
		// Their pods are ready all the same.
		if told, err := c.nodeAgents().toldToLeave(ctx, namespace); err != nil {
			return "", err
		} else if told {
			return "", &api.Error{Code: 409, Message: fmt.Sprintf("a removal was begun: the agents were told to leave their nodes (annotation %s of %s) and capture no pod", uninstallAnnotation, called(workload)),
				Fix: "take that back with lateen upgrade, or end it with lateen uninstall"}
		}
	}
	if p.done {
		return p.String(), nil
	}
	if err := c.rollouts().hopeless(ctx, namespace, w); err != nil {
		return "", err
	}
	return "", c.rollouts().unready(ctx, workload, p, w.selector, nil)
}

// Version is that of the charts.
func Version(o Options) (string, error) { return render.Version(o.Charts, "lateen") }
