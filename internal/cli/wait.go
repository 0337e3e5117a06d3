package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/engine/api"
)

const (
	// pollTime is how often a wait looks again: short enough not to be felt, long enough to cost nothing.
	pollTime = 200 * time.Millisecond
	// longestPause is how long it waits at most where looking itself takes long.
	longestPause = 5 * time.Second
)

// pause is how long a wait does not look after a look that took some time: in a large mesh it is not to keep the control plane at work without end.
func pause(took time.Duration) time.Duration { return min(max(pollTime, 2*took), longestPause) }

func (cmds readCommands) waitCommand() *cobra.Command {
	var timeout time.Duration
	var condition string
	cmd := &cobra.Command{
		Use:   "wait [TARGET...]",
		Short: "wait until pods are ready and their place in the mesh is in force",
		Example: `  # All pods and deployments; those of a namespace; these two, within 30 seconds.
  lateen wait
  lateen wait -n shop
  lateen wait deploy/productpage-v1 deploy/details-v1 --timeout 30s

  # A policy, in force in every node proxy.
  lateen wait authorizationpolicy/ratings-only-reviews`,
		Long: `Waits until all of this is so, for the targets or for everything:

  pod         ready; captured if its labels put it into the mesh, and plain if not. A pod that
              leaves the mesh is waited for until its connections through the mesh have ended.
  deployment  all its replicas, and no older ones, are of its present version and available; its
              pods are as above
  policy, Service, ServiceEntry, WorkloadEntry, Gateway
              accepted in its present version, if it is a target; a Service on Kubernetes, which
              does not count its versions: in any

and every node proxy has acknowledged the configuration that says so.

Fails at once if a target or a pod of a target is refused, by the control plane or a node proxy.
Without targets it fails if a node proxy refuses anything in the namespaces looked at. Fails after
--timeout and names each object with the reason. Other objects that a proxy may have rejected are
reported, not waited for.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return usagef("--timeout %s: use a time above zero, such as 30s", timeout)
			}
			if cmd.Flags().Changed("for") {
				if err := checkCondition(condition); err != nil {
					return err
				}
			}
			requests, err := waitRequests(args, cmds.app.namespace, !cmd.Flags().Changed("namespace"))
			if err != nil {
				return err
			}
			return cmds.wait(cmd.Context(), requests, timeout)
		},
		ValidArgsFunction: cmds.app.completeTarget,
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "give up after this time")
	cmd.Flags().StringVar(&condition, "for", "", "condition=ready or condition=available, as kubectl has them; both mean what wait does without them")
	register(cmd, "for", cobra.FixedCompletions(waitConditions, cobra.ShellCompDirectiveNoFileComp))
	cmds.app.namespaceFlag(cmd)
	return cmd
}

// waitConditions are the values of --for. A wait without the flag covers both.
var waitConditions = []string{"condition=ready", "condition=available"}

// checkCondition refuses conditions of kubectl's wait that this wait does not look at.
func checkCondition(condition string) error {
	if slices.Contains(waitConditions, strings.TrimSuffix(strings.ToLower(condition), "=true")) {
		return nil
	}
	fix := "leave --for out: wait returns when its targets are ready and in force in every node proxy"
	if strings.HasPrefix(condition, "delete") {
		fix = "leave it out: `lateen delete` returns when the pods are gone"
	}
	return usageError{&api.Error{Message: fmt.Sprintf("--for=%s: use %s", condition, strings.Join(waitConditions, " or ")), Fix: fix}}
}

func (cmds readCommands) wait(ctx context.Context, requests []api.GetRequest, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not ready within %s", timeout))
	defer cancel()
	progress := cmds.app.progress()
	progress.Start("wait")
	refusals, unscheduled, told := patience{}, patience{}, map[string]bool{}
	schedulingPatience := refusalPatience
	if cmds.app.onCluster() {
		schedulingPatience = clusterSchedulingPatience
	}
	var last []string // what was missing when it could last be asked
	silent := ""      // why nobody answered then
	var crashed crash
	for {
		began := time.Now()
		found, err := unready(ctx, cmds.app.client(), requests)
		took := time.Since(began)
		if err != nil && ctx.Err() == nil {
			progress.Abandon()
			return err
		}
		waiting := slices.Concat(found.waiting, found.refused)
		if err == nil {
			if lasting := refusals.lasting(found.refused, time.Now(), refusalPatience); len(lasting) > 0 {
				progress.Abandon()
				return refusedError(lasting, found.silent)
			}
		}
		if err == nil && len(waiting) == 0 {
			progress.Abandon()
			for _, doubt := range found.unknown.lines() {
				cmds.app.warn("not known: %s", doubt)
			}
			(effects{cmds.app}).tellFindings(ctx, slices.SortedFunc(maps.Keys(found.named), func(a, b api.Key) int { return strings.Compare(a.String(), b.String()) }))
			return cmds.app.printf("ready: %s\n", found.ready)
		}
		if err == nil {
			last, silent, crashed = slices.Concat(waiting, found.causes), found.silent, found.crashed
			// The moving line has no room for a reason, and without a terminal there is none.
			for _, text := range newlyTold(unscheduled.lasting(found.unscheduled, time.Now(), schedulingPatience), told) {
				progress.Note("warning: " + cmds.app.addressed(text))
			}
			progress.Update("wait for " + strings.Join(waiting, ", "))
		}
		select {
		case <-ctx.Done():
			progress.Abandon()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return unreadyError(context.Cause(ctx), last, silent, crashed)
			}
			return ctx.Err()
		case <-time.After(pause(took)):
		}
	}
}

// refusedError is the error of a wait for objects that are refused. silent is why no control plane answers, if none does.
func refusedError(refused []string, silent string) error {
	if silent != "" {
		return &api.Error{Message: fmt.Sprintf("%s, as the control plane left it in the cluster: it does not answer now (%s), and what node proxies have is not known", strings.Join(refused, "; "), silent),
			Fix: "correct the object; lateen check says why nobody answers"}
	}
	return &api.Error{Message: strings.Join(refused, "; "), Fix: "correct it and apply it again; lateen status and lateen logs proxy/NODE say more"}
}

// unreadyError is the error of a wait that lasted too long, with what was missing last.
func unreadyError(cause error, missing []string, silent string, crashed crash) error {
	if len(missing) == 0 {
		missing = []string{"the mesh did not say in that time what is missing"}
	}
	e := &api.Error{Message: fmt.Sprintf("%v: %s", cause, strings.Join(missing, ", ")), Fix: "lateen status says more"}
	switch {
	case silent != "":
		e.Message += "; until the control plane answers it is not known what node proxies have"
		e.Fix = "lateen check says why it does not answer, lateen status what the cluster tells without it"
	case crashed.Name != "":
		namespace := ""
		if crashed.Namespace != "default" {
			namespace = " -n " + crashed.Namespace
		}
		if crashed.container != "" {
			namespace += " -c " + crashed.container
		}
		e.Fix = fmt.Sprintf("`lateen logs %s%s` shows its output; lateen status says more", crashed.Name, namespace)
	}
	return e
}

// waitRequests asks for the targets or, without any, for everything: in one namespace or in all.
func waitRequests(targets []string, namespace string, all bool) ([]api.GetRequest, error) {
	if len(targets) == 0 {
		var requests []api.GetRequest
		for _, kind := range append([]string{"Deployment", "Pod"}, partial...) {
			requests = append(requests, api.GetRequest{Kind: kind, Namespace: namespace, AllNamespaces: all})
		}
		return requests, nil
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
		if !slices.Contains(partial, found[0].Kind) && !slices.Contains([]string{"Deployment", "Pod"}, found[0].Kind) {
			return nil, usagef("%q: only pods, deployments and what configures the mesh (%s) can be waited for", target, strings.Join(partial, ", "))
		}
		requests = append(requests, api.GetRequest{Kind: found[0].Kind, Group: found[0].Group, Namespace: namespace, Name: found[0].Name})
	}
	return requests, nil
}

// refusalPatience is how long a refusal must last to fail a wait, and the lack of a node to be told. An object that was applied a moment
// ago may end it, and may not have reached the control plane.
const refusalPatience = time.Second

// clusterSchedulingPatience is how long the lack of a node must last on Kubernetes to be told. Volumes are bound, and nodes are added,
// meanwhile.
const clusterSchedulingPatience = 15 * time.Second

// newlyTold is a line for each reason that objects have which have not been told of. It has the first of them, and how many more there
// are. Each text is an object's name, a colon and the reason.
func newlyTold(texts []string, told map[string]bool) (lines []string) {
	more, order := map[string]int{}, []string{}
	first := map[string]string{}
	for _, text := range texts {
		object, reason, _ := strings.Cut(text, ": ")
		if told[object] {
			continue
		}
		told[object] = true
		if _, known := first[reason]; known {
			more[reason]++
			continue
		}
		first[reason], order = text, append(order, reason)
	}
	for _, reason := range order {
		line := first[reason]
		if more[reason] > 0 {
			line += fmt.Sprintf(" (and %d more)", more[reason])
		}
		lines = append(lines, line)
	}
	return lines
}

// patience remembers since when something has been so.
type patience map[string]time.Time

// lasting is what of the present has been so for at least so long.
func (p patience) lasting(present []string, now time.Time, least time.Duration) (out []string) {
	maps.DeleteFunc(p, func(text string, _ time.Time) bool { return !slices.Contains(present, text) })
	for _, text := range present {
		if since, known := p[text]; !known {
			p[text] = now
		} else if now.Sub(since) >= least {
			out = append(out, text)
		}
	}
	return out
}

// doubts are objects of which it is not known whether proxies use what was made of them, by what is said of it.
type doubts map[string][]string

// maxDoubted bounds how many objects a line names.
const maxDoubted = 20

func (d doubts) add(name, why string) {
	if !slices.Contains(d[why], name) {
		d[why] = append(d[why], name)
	}
}

// lines tells of them, those of one reason together: a complaint that names nothing is about everything that was sent.
func (d doubts) lines() (out []string) {
	for _, why := range slices.Sorted(maps.Keys(d)) {
		names := d[why]
		if more := len(names) - maxDoubted; more > 0 {
			names = append(names[:maxDoubted:maxDoubted], fmt.Sprintf("and %d more", more))
		}
		out = append(out, strings.Join(names, ", ")+" ("+why+")")
	}
	return out
}
