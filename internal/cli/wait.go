package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
)

// pollTime is how often a wait looks again: short enough not to be felt, long enough to cost nothing.
const pollTime = 200 * time.Millisecond

func (a *app) waitCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait [TARGET...]",
		Short: "wait until pods are ready and their place in the mesh is in force",
		Example: `  # Everything, everything in a namespace, or what is named.
  lateen wait
  lateen wait -n shop
  lateen wait deploy/productpage-v1 deploy/details-v1 --timeout 30s`,
		Long: "A pod whose labels put it into the mesh is waited for until its traffic is captured, any other until it is not, and\n" +
			"both until every node proxy has acknowledged the configuration that says so: new connections follow it from then on.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return usagef("--timeout %s: use a time above zero, such as 30s", timeout)
			}
			requests, err := waitRequests(args, a.namespace, !cmd.Flags().Changed("namespace"))
			if err != nil {
				return err
			}
			return a.wait(cmd.Context(), requests, timeout)
		},
		ValidArgsFunction: a.completeTarget,
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "give up after this time")
	a.namespaceFlag(cmd)
	return cmd
}

func (a *app) wait(ctx context.Context, requests []api.GetRequest, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not ready within %s", timeout))
	defer cancel()
	progress := a.progress()
	progress.Start("wait")
	var last []string // what was missing when it could last be asked
	for {
		waiting, total, err := unready(ctx, a.client(), requests)
		if err != nil && ctx.Err() == nil {
			progress.Abandon()
			return err
		}
		if err == nil && len(waiting) == 0 {
			progress.Abandon()
			return a.printf("%d ready\n", total)
		}
		if err == nil {
			last = waiting
			progress.Update("wait for " + strings.Join(waiting, ", "))
		}
		select {
		case <-ctx.Done():
			progress.Abandon()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				if len(last) == 0 {
					last = []string{"the mesh did not say in that time what is missing"}
				}
				return fmt.Errorf("%w: %s; lateen status%s says more", context.Cause(ctx), strings.Join(last, ", "), a.meshFlag())
			}
			return ctx.Err()
		case <-time.After(pollTime):
		}
	}
}

// waitRequests asks for the targets or, without any, for everything: in one namespace or in all.
func waitRequests(targets []string, namespace string, all bool) ([]api.GetRequest, error) {
	if len(targets) == 0 {
		return []api.GetRequest{
			{Kind: "Deployment", Namespace: namespace, AllNamespaces: all}, {Kind: "Pod", Namespace: namespace, AllNamespaces: all},
		}, nil
	}
	var requests []api.GetRequest
	for _, target := range targets {
		if !strings.Contains(target, "/") {
			target = "pod/" + target
		}
		found, err := keys([]string{target}, namespace)
		if err != nil {
			return nil, err
		}
		if !slices.Contains([]string{"Deployment", "Pod"}, found[0].Kind) {
			return nil, usagef("%q: only pods and deployments become ready", target)
		}
		requests = append(requests, api.GetRequest{Kind: found[0].Kind, Namespace: namespace, Name: found[0].Name})
	}
	return requests, nil
}

// unready says what is not as it should be yet among the objects asked for, and counts those objects.
func unready(ctx context.Context, client *api.Client, requests []api.GetRequest) (waiting []string, total int, err error) {
	owners := map[api.Key]bool{}
	for _, request := range requests {
		list, err := client.Get(ctx, request)
		if err != nil {
			return nil, 0, err
		}
		for _, object := range list.Items {
			ready, err := isReady(object)
			if err != nil {
				return nil, 0, fmt.Errorf("read %s: %w", object.Key, err)
			}
			total++
			owners[object.Key] = true
			if !ready {
				waiting = append(waiting, strings.ToLower(object.Key.Kind)+"/"+object.Key.Name)
			}
		}
	}
	unsettled, err := unsettled(ctx, client, owners, len(waiting) == 0)
	return append(waiting, unsettled...), total, err
}

func isReady(object api.Object) (bool, error) {
	if object.Key.Kind == "Deployment" {
		var d appsv1.Deployment
		if err := json.Unmarshal(object.Raw, &d); err != nil {
			return false, err
		}
		want := int32(1)
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas
		}
		return d.Status.ReadyReplicas >= want && d.Status.UpdatedReplicas >= want, nil
	}
	var pod corev1.Pod
	if err := json.Unmarshal(object.Raw, &pod); err != nil {
		return false, err
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}), nil
}
