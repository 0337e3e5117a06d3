package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/waypoint"
)

// waypointOptions are the flags by which a Gateway is made.
type waypointOptions struct {
	name, traffic           string
	enroll, overwrite, wait bool
	timeout                 time.Duration
}

// check refuses a waypoint that cannot be.
func (o *waypointOptions) check() error {
	if o.name == "" {
		o.name = defaultWaypoint
	}
	if o.traffic != "" && !slices.Contains(trafficTypes, o.traffic) {
		return usagef("--for %s: use %s", o.traffic, strings.Join(trafficTypes, ", "))
	}
	return checkName(o.name)
}

func (cmds waypointCommands) forFlag(cmd *cobra.Command, o *waypointOptions) {
	cmd.Flags().StringVar(&o.traffic, "for", "", "traffic that the waypoint takes: "+strings.Join(trafficTypes, ", ")+" (default: what its class says, else service)")
	register(cmd, "for", cobra.FixedCompletions(trafficTypes, cobra.ShellCompDirectiveNoFileComp))
}

// gateway is the Gateway of a waypoint as YAML or JSON encode it.
func (o waypointOptions) gateway(namespace, class string) map[string]any {
	metadata := map[string]any{"name": o.name, "namespace": namespace}
	if o.traffic != "" {
		metadata["labels"] = map[string]any{wellknown.WaypointFor: o.traffic}
	}
	return map[string]any{
		"apiVersion": model.GatewayGroup + "/v1", "kind": "Gateway", "metadata": metadata,
		"spec": map[string]any{"gatewayClassName": class, "listeners": []any{map[string]any{"name": "mesh", "port": waypoint.HBONEPort, "protocol": "HBONE"}}},
	}
}

func (cmds waypointCommands) generateCommand() *cobra.Command {
	var o waypointOptions
	formats := []printer.Format{printer.YAML, printer.JSON}
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "print the Gateway of a waypoint, without asking a mesh",
		Example: `  # For a cluster, whose objects kubectl applies.
  lateen waypoint generate -n shop --for all | kubectl apply -f -`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("output") {
				cmds.app.output = string(printer.YAML) // all commands share the flag's value, and most begin with a table
			}
			format, err := cmds.app.format(formats...)
			if err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			return printer.Write(cmds.app.Stdout, format, o.gateway(cmds.app.namespace, waypoint.Class))
		},
	}
	cmds.flags(cmd, &o.name, defaultWaypoint, "name of the waypoint")
	cmds.forFlag(cmd, &o)
	cmds.app.outputFlag(cmd, formats...)
	return cmd
}

func (cmds waypointCommands) applyCommand() *cobra.Command {
	var o waypointOptions
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "make a waypoint, or change one",
		Example: `  # For the services of the namespace default that choose it by a label.
  lateen waypoint apply
  lateen label service reviews istio.io/use-waypoint=waypoint

  # For a whole namespace, and return when it can be used.
  lateen waypoint apply -n shop --enroll-namespace --wait`,
		Long: `Makes the Gateway; the mesh then runs the proxy. On a Kubernetes cluster kubectl applies the Gateway, and this command names
the line to copy. Once the Gateway is there as it is wanted, the command goes on with --wait and --enroll-namespace.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if o.timeout <= 0 {
				return usagef("--waypoint-timeout %s: use a time above zero, such as 90s", o.timeout)
			}
			return cmds.apply(cmd.Context(), o)
		},
	}
	cmds.flags(cmd, &o.name, defaultWaypoint, "name of the waypoint")
	cmds.forFlag(cmd, &o)
	cmd.Flags().BoolVar(&o.enroll, "enroll-namespace", false, "label the namespace, so that all its services use the waypoint")
	cmd.Flags().BoolVar(&o.overwrite, "overwrite", false, "with --enroll-namespace: also where the namespace uses another waypoint")
	cmd.Flags().BoolVarP(&o.wait, "wait", "w", false, "return when the waypoint can be used")
	cmd.Flags().DurationVar(&o.timeout, "waypoint-timeout", 90*time.Second, "with --wait: give up after this time")
	return cmd
}

func (cmds waypointCommands) apply(ctx context.Context, o waypointOptions) error {
	ambient := true
	if o.enroll {
		var err error
		if ambient, err = cmds.mayEnroll(ctx, o); err != nil {
			return err
		}
	}
	if err := cmds.bring(ctx, o); err != nil {
		return err
	}
	if o.wait {
		if err := cmds.await(ctx, o); err != nil {
			return err
		}
	}
	if o.enroll {
		if err := cmds.enroll(ctx, o); err != nil {
			return err
		}
	}
	if o.enroll {
		if err := cmds.warnOfUnbound(ctx, o); err != nil {
			return err
		}
	}
	next := []string{"lateen waypoint status --name " + o.name + cmds.app.namespaceOption()}
	if !o.enroll {
		next = append(next, fmt.Sprintf("lateen label service NAME %s=%s%s", wellknown.UseWaypoint, o.name, cmds.app.namespaceOption()))
	}
	if !ambient {
		cmds.app.warn("namespace %s is not in the mesh: node proxies lead nothing from its pods to the waypoint", cmds.app.namespace)
		next = append(next, fmt.Sprintf("lateen label namespace %s %s=%s", cmds.app.namespace, wellknown.DataplaneMode, wellknown.ModeAmbient))
	}
	cmds.app.next(next...)
	return nil
}

// namespaceLabels are those of the namespace of the waypoint.
func (cmds waypointCommands) namespaceLabels(ctx context.Context) (map[string]string, error) {
	list, err := cmds.app.client().Get(ctx, api.GetRequest{Kind: "Namespace", Name: cmds.app.namespace})
	if err != nil {
		return nil, err
	}
	var head struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if len(list.Items) > 0 {
		err = json.Unmarshal(list.Items[0].Raw, &head)
	}
	return head.Metadata.Labels, err
}

// mayEnroll refuses, before anything is changed, to take a namespace from another waypoint. It says whether the namespace is in the mesh.
func (cmds waypointCommands) mayEnroll(ctx context.Context, o waypointOptions) (ambient bool, err error) {
	labels, err := cmds.namespaceLabels(ctx)
	if err != nil {
		return false, err
	}
	if used, labelled := labels[wellknown.UseWaypoint]; labelled && used != o.name && !o.overwrite {
		return false, &api.Error{Code: http.StatusConflict, Message: fmt.Sprintf("namespace %s has label %s=%s already; nothing was changed", cmds.app.namespace, wellknown.UseWaypoint, used), Fix: "repeat the command with --overwrite if it is to use " + o.name}
	}
	return wellknown.Enrols(labels), nil
}

// enroll labels the namespace.
func (cmds waypointCommands) enroll(ctx context.Context, o waypointOptions) error {
	key := api.Key{Kind: "Namespace", Name: cmds.app.namespace}
	// A label that leads to another namespace would have the name mean another waypoint.
	result, err := cmds.app.client().Label(ctx, key, map[string]*string{wellknown.UseWaypoint: &o.name, wellknown.UseWaypointNamespace: nil})
	if err != nil {
		return fmt.Errorf("the waypoint is there, but its namespace could not be labelled: %w", err)
	}
	verb := "labeled"
	if result.Action == api.Unchanged {
		verb = "unchanged"
	}
	return cmds.app.printf("%s %s\n", key, verb)
}

// warnOfUnbound names what the namespace has that does not go through the waypoint, once its proxies had time to take it in.
func (cmds waypointCommands) warnOfUnbound(ctx context.Context, o waypointOptions) error {
	const settle, most = 5 * time.Second, 5
	var unbound []api.UnboundObject
	for began := time.Now(); ; {
		list, err := cmds.find(ctx, false, o.name)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return nil
		}
		unbound = list[0].Unbound
		waiting := slices.ContainsFunc(unbound, func(u api.UnboundObject) bool { return u.Reason == "WaypointIsNotReady" })
		if !waiting || !o.wait || time.Since(began) > settle {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause(0)):
		}
	}
	for _, u := range unbound[:min(len(unbound), most)] {
		cmds.app.warn("%s is not bound: %s", u.Object, u.Message)
	}
	if more := len(unbound) - most; more > 0 {
		cmds.app.warn("%d more objects are not bound; `lateen waypoint status --name %s%s` names them", more, o.name, cmds.app.namespaceOption())
	}
	return nil
}

// bring makes the Gateway, or changes it, unless it is as it is wanted already.
func (cmds waypointCommands) bring(ctx context.Context, o waypointOptions) error {
	key := cmds.gatewayKey(o.name)
	class, same, err := cmds.present(ctx, o)
	if err != nil {
		return err
	}
	if same {
		return cmds.app.printf("%s %s\n", key, api.Unchanged)
	}
	data, err := json.Marshal(o.gateway(cmds.app.namespace, class))
	if err != nil {
		return err
	}
	result, err := cmds.app.client().Apply(ctx, api.ApplyRequest{Namespace: cmds.app.namespace, Documents: []api.Document{{File: "lateen waypoint apply", Data: data}}})
	if refusal := (*api.Error)(nil); errors.As(err, &refusal) && refusal.Code == http.StatusNotImplemented {
		return &api.Error{Code: refusal.Code, Message: "objects of a cluster are applied by kubectl", Fix: cmds.generate(o) + " | kubectl apply -f - ; repeat the command then if it is to wait or to label the namespace"}
	} else if err != nil {
		return err
	}
	return (changeCommands{cmds.app}).report(result, "")
}

// generate is the command that prints the same Gateway.
func (cmds waypointCommands) generate(o waypointOptions) string {
	command := "lateen waypoint generate" + cmds.app.namespaceOption()
	if o.name != defaultWaypoint {
		command += " --name " + o.name
	}
	if o.traffic != "" {
		command += " --for " + o.traffic
	}
	return command
}

// present looks for a Gateway of the name. same says that it is as it is wanted; class is the one to apply.
func (cmds waypointCommands) present(ctx context.Context, o waypointOptions) (class string, same bool, err error) {
	list, err := cmds.app.client().Get(ctx, api.GetRequest{Kind: "Gateway", Group: model.GatewayGroup, Namespace: cmds.app.namespace, Name: o.name})
	if refusal := (*api.Error)(nil); errors.As(err, &refusal) && refusal.Code == http.StatusNotFound {
		return waypoint.Class, false, nil
	} else if err != nil || len(list.Items) == 0 {
		return waypoint.Class, false, err
	}
	var gw gatewayView
	if err := json.Unmarshal(list.Items[0].Raw, &gw); err != nil {
		return "", false, fmt.Errorf("read gateway %s/%s: %w", cmds.app.namespace, o.name, err)
	}
	classes, _, err := cmds.classes(ctx)
	if err != nil {
		return "", false, err
	}
	if !isWaypoint(gw.Spec.Class, classes) {
		return "", false, &api.Error{Code: http.StatusConflict, Message: fmt.Sprintf("gateway %s/%s is of class %s and no waypoint", cmds.app.namespace, o.name, gw.Spec.Class), Fix: "choose another name with --name"}
	}
	same = o.traffic == "" || gw.Metadata.Labels[wellknown.WaypointFor] == o.traffic
	hbone := slices.ContainsFunc(gw.Spec.Listeners, func(l listenerView) bool { return l.Port == waypoint.HBONEPort })
	return gw.Spec.Class, same && hbone, nil
}

// await returns when the waypoint can be used.
func (cmds waypointCommands) await(ctx context.Context, o waypointOptions) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	progress := cmds.app.progress()
	defer progress.Abandon()
	progress.Start("wait for waypoint " + o.name)
	last := "the mesh did not say in that time what is missing"
	for {
		began := time.Now()
		list, err := cmds.find(ctx, false, o.name)
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && len(list) == 0:
			last = "its Gateway is gone"
		case err == nil && list[0].Programmed == "True":
			progress.Abandon()
			return cmds.app.printf("ready: waypoint %s/%s\n", cmds.app.namespace, o.name)
		case err == nil:
			last = list[0].Reason
			progress.Update("wait for waypoint " + o.name + ": " + last)
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return &api.Error{Code: http.StatusRequestTimeout, Message: fmt.Sprintf("waypoint %s/%s cannot be used after %s: %s", cmds.app.namespace, o.name, o.timeout, last), Fix: "`lateen waypoint status --name " + o.name + cmds.app.namespaceOption() + "` says more"}
			}
			return ctx.Err()
		case <-time.After(pause(time.Since(began))):
		}
	}
}
