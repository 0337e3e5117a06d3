package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/waypoint"
)

// defaultWaypoint is the name of a waypoint that gets none, as istioctl has it.
const defaultWaypoint = "waypoint"

// trafficTypes are the values of the label istio.io/waypoint-for.
var trafficTypes = []string{"service", "workload", "all", "none"}

func (cmds waypointCommands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "waypoint",
		Short: "make, show and remove waypoints, which read requests",
		Example: `  # A waypoint for the services of a namespace, which all of them use.
  lateen waypoint apply -n shop --enroll-namespace --wait

  # Which waypoints there are, and what uses them.
  lateen waypoint list -A
  lateen waypoint status -n shop`,
		Long: `The subcommands are those of istioctl. In them --name is the name of a waypoint; --mesh chooses the mesh of this machine,
which --name does for all other commands.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(cmds.applyCommand(), cmds.deleteCommand(), cmds.generateCommand(), cmds.listCommand(), cmds.statusCommand())
	return cmd
}

// flags adds those that every subcommand has. --name is the waypoint's, as istioctl has it, and --mesh takes the place of the root's --name.
func (cmds waypointCommands) flags(cmd *cobra.Command, name *string, value, usage string) {
	cmd.Flags().StringVar(name, "name", value, usage)
	register(cmd, "name", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return cmds.names(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	})
	cmd.Flags().Var((*meshFlagValue)(&cmds.app.mesh), "mesh", "mesh of this machine (default: $"+nameVariable+", or the only running one)")
	register(cmd, "mesh", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return cmds.app.Meshes(), cobra.ShellCompDirectiveNoFileComp
	})
	cmds.app.namespaceFlag(cmd)
	cmd.Flags().Lookup("namespace").Usage = "namespace of the waypoint"
}

// names are for completion: without a mesh there are none.
func (cmds waypointCommands) names(ctx context.Context) (names []string) {
	if ctx == nil {
		ctx = context.Background()
	}
	list, err := cmds.find(ctx, false, "")
	if err != nil {
		return nil
	}
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names
}

// checkName refuses a name that no waypoint can have.
func checkName(name string) error {
	if name == "none" {
		return usagef("--name none: labels that choose no waypoint have this value; use another name")
	}
	if why := validation.IsDNS1035Label(name); len(why) > 0 {
		return usagef("--name %q: the waypoint's Service cannot have this name: %s", name, why[0])
	}
	return nil
}

// gatewayKey names a waypoint's Gateway.
func (cmds waypointCommands) gatewayKey(name string) api.Key {
	return api.Key{Group: model.GatewayGroup, Kind: "Gateway", Namespace: cmds.app.namespace, Name: name}
}

// isWaypoint says whether Gateways of a class are waypoints.
func isWaypoint(class string, classes map[string]string) bool {
	if controller, known := classes[class]; known {
		return controller == wellknown.LateenWaypointController || controller == wellknown.MeshController
	}
	return class == waypoint.Class || class == waypoint.IstioClass
}

// gatewayView is what the commands read of a Gateway.
type gatewayView struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Class     string         `json:"gatewayClassName"`
		Listeners []listenerView `json:"listeners"`
	} `json:"spec"`
	Status struct {
		Conditions []api.Condition `json:"conditions"`
	} `json:"status"`
}

type listenerView struct {
	Port int `json:"port"`
}

// get lists objects of a kind; a kind that the cluster does not have has none.
func (cmds waypointCommands) get(ctx context.Context, r api.GetRequest) ([]api.Object, error) {
	list, err := cmds.app.client().Get(ctx, r)
	if refusal := (*api.Error)(nil); errors.As(err, &refusal) && refusal.Code == http.StatusNotFound {
		return nil, nil
	}
	return list.Items, err
}

// find puts together what there is to know of the waypoints of the namespace, or of all, and of one name if that is not empty.
func (cmds waypointCommands) find(ctx context.Context, all bool, name string) ([]api.WaypointState, error) {
	gateways, err := cmds.get(ctx, api.GetRequest{Kind: "Gateway", Group: model.GatewayGroup, Namespace: cmds.app.namespace, AllNamespaces: all})
	if err != nil || len(gateways) == 0 {
		return nil, err
	}
	classes, defaults, err := cmds.classes(ctx)
	if err != nil {
		return nil, err
	}
	var out []api.WaypointState
	for _, o := range gateways {
		var gw gatewayView
		if err := json.Unmarshal(o.Raw, &gw); err != nil {
			return nil, fmt.Errorf("read gateway %s/%s: %w", o.Key.Namespace, o.Key.Name, err)
		}
		if !isWaypoint(gw.Spec.Class, classes) || name != "" && o.Key.Name != name {
			continue
		}
		s := api.WaypointState{Namespace: o.Key.Namespace, Name: o.Key.Name, Class: gw.Spec.Class, Traffic: "service"}
		for _, traffic := range []string{defaults[gw.Spec.Class], gw.Metadata.Labels[wellknown.WaypointFor]} {
			if traffic != "" {
				s.Traffic = traffic
			}
		}
		s.Programmed, s.Reason = programmed(o, gw)
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, nil
	}
	slices.SortFunc(out, func(a, b api.WaypointState) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	if err := cmds.countPods(ctx, out); err != nil {
		return nil, err
	}
	if err := cmds.findBound(ctx, out); err != nil {
		return nil, err
	}
	return out, cmds.findUnbound(ctx, out)
}

// classes are the controllers of the GatewayClasses, and what traffic their waypoints take.
func (cmds waypointCommands) classes(ctx context.Context) (controllers, traffic map[string]string, err error) {
	controllers, traffic = map[string]string{}, map[string]string{}
	items, err := cmds.get(ctx, api.GetRequest{Kind: "GatewayClass"})
	for _, o := range items {
		var class struct {
			Metadata struct {
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
			Spec struct {
				Controller string `json:"controllerName"`
			} `json:"spec"`
		}
		if json.Unmarshal(o.Raw, &class) == nil {
			controllers[o.Key.Name], traffic[o.Key.Name] = class.Spec.Controller, class.Metadata.Labels[wellknown.WaypointFor]
		}
	}
	return controllers, traffic, err
}

// programmed says whether a waypoint can be used, by what its conditions say. Its status counts before what the control plane answers, since
// all replicas agree on it; the local engine writes none.
func programmed(o api.Object, gw gatewayView) (status, reason string) {
	for _, p := range o.Problems {
		if p.Refused() {
			return "False", p.Message
		}
	}
	usable := slices.ContainsFunc(gw.Status.Conditions, func(c api.Condition) bool { return c.Type == "Programmed" && c.Status == "True" })
	for _, c := range gw.Status.Conditions {
		// A rollout of a waypoint that can be used leaves it usable.
		if c.Type == wellknown.Deployed && c.Status != "True" && (c.Reason != wellknown.ReasonProgressing || !usable) {
			return c.Status, c.Message
		}
	}
	said := slices.Concat(gw.Status.Conditions, o.Conditions)
	for _, kind := range []string{"Programmed", wellknown.Programmed, "Accepted"} {
		for _, c := range said {
			if c.Type != kind {
				continue
			}
			if c.Status == "True" {
				return c.Status, ""
			}
			return c.Status, c.Message
		}
	}
	return "Unknown", "the control plane has said nothing of it yet"
}

// countPods adds how far the waypoints' Deployments are. One that has no ready pod is not programmed, whatever was acknowledged.
func (cmds waypointCommands) countPods(ctx context.Context, list []api.WaypointState) error {
	items, err := cmds.get(ctx, api.GetRequest{Kind: "Deployment", AllNamespaces: true, Selector: wellknown.GatewayName})
	if err != nil {
		return err
	}
	for _, o := range items {
		var d struct {
			Metadata struct {
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
			Spec struct {
				Replicas *int `json:"replicas"`
				Template struct {
					Metadata struct {
						Labels map[string]string `json:"labels"`
					} `json:"metadata"`
				} `json:"template"`
			} `json:"spec"`
			Status struct {
				Ready int `json:"readyReplicas"`
			} `json:"status"`
		}
		if err := json.Unmarshal(o.Raw, &d); err != nil {
			return fmt.Errorf("read deployment %s/%s: %w", o.Key.Namespace, o.Key.Name, err)
		}
		at := slices.IndexFunc(list, func(s api.WaypointState) bool {
			return s.Namespace == o.Key.Namespace && s.Name == d.Metadata.Labels[wellknown.GatewayName]
		})
		if at < 0 {
			continue
		}
		s := &list[at]
		s.Wanted, s.Ready, s.Version = 1, d.Status.Ready, d.Spec.Template.Metadata.Labels[wellknown.AppVersion]
		if d.Spec.Replicas != nil {
			s.Wanted = *d.Spec.Replicas
		}
		if s.Ready == 0 && s.Programmed == "True" {
			s.Programmed, s.Reason = "False", fmt.Sprintf("none of its pods is ready; `lateen get pods -n %s -l %s=%s` says why", s.Namespace, wellknown.GatewayName, s.Name)
		}
	}
	return nil
}

// bindable are the kinds whose labels choose a waypoint.
var bindable = []string{"Namespace", "Service", "ServiceEntry", "WorkloadEntry", "Pod"}

// findBound adds the objects whose labels choose the waypoints.
func (cmds waypointCommands) findBound(ctx context.Context, list []api.WaypointState) error {
	for _, kind := range bindable {
		items, err := cmds.get(ctx, api.GetRequest{Kind: kind, AllNamespaces: true, Selector: wellknown.UseWaypoint})
		if err != nil {
			return err
		}
		for _, o := range items {
			var head struct {
				Metadata struct {
					Labels map[string]string `json:"labels"`
				} `json:"metadata"`
			}
			if json.Unmarshal(o.Raw, &head) != nil {
				continue
			}
			namespace := o.Key.Namespace
			if kind == "Namespace" {
				namespace = o.Key.Name
			}
			if other := head.Metadata.Labels[wellknown.UseWaypointNamespace]; other != "" {
				namespace = other
			}
			for i, s := range list {
				if s.Namespace == namespace && s.Name == head.Metadata.Labels[wellknown.UseWaypoint] {
					list[i].Bound = append(list[i].Bound, o.Key)
				}
			}
		}
	}
	return nil
}

// findUnbound adds the objects that ask for the waypoints and are not behind them, by their own conditions.
func (cmds waypointCommands) findUnbound(ctx context.Context, list []api.WaypointState) error {
	for _, kind := range []string{"Service", "ServiceEntry", "WorkloadEntry"} {
		items, err := cmds.get(ctx, api.GetRequest{Kind: kind, AllNamespaces: true})
		if err != nil {
			return err
		}
		for _, o := range items {
			var view gatewayView
			if json.Unmarshal(o.Raw, &view) != nil {
				continue
			}
			for _, c := range slices.Concat(view.Status.Conditions, o.Conditions) {
				if c.Type != wellknown.WaypointBound && c.Type != "WaypointBound" || c.Status != "False" {
					continue
				}
				for i, s := range list {
					if strings.HasPrefix(c.Message, "waypoint "+s.Namespace+"/"+s.Name+" ") {
						list[i].Unbound = append(list[i].Unbound, api.UnboundObject{Object: o.Key, Reason: c.Reason, Message: c.Message})
					}
				}
				break
			}
		}
	}
	return nil
}

func (cmds waypointCommands) listCommand() *cobra.Command {
	return cmds.showCommand(&cobra.Command{
		Use: "list", Short: "list waypoints, with how many objects use each", Example: "  lateen waypoint list -A", Args: noArgs,
	}, func(list []api.WaypointState) error {
		return printer.Waypoints(cmds.app.Stdout, list, cmds.app.Out, cmds.app.width())
	})
}

func (cmds waypointCommands) statusCommand() *cobra.Command {
	return cmds.showCommand(&cobra.Command{
		Use: "status", Short: "show how waypoints are, and what uses them", Example: "  lateen waypoint status -n shop\n  lateen waypoint status --name reviews -n shop -o json", Args: noArgs,
	}, func(list []api.WaypointState) error {
		return printer.WaypointStatus(cmds.app.hints(cmds.app.Stdout), list, cmds.app.Out, cmds.app.width())
	})
}

// showCommand completes a command that shows waypoints, by its own table or as JSON or YAML.
func (cmds waypointCommands) showCommand(cmd *cobra.Command, show func([]api.WaypointState) error) *cobra.Command {
	var name string
	var all bool
	formats := []printer.Format{printer.Table, printer.JSON, printer.YAML}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		format, err := cmds.app.format(formats...)
		if err != nil {
			return err
		}
		if all && cmd.Flags().Changed("namespace") {
			return usagef("--namespace and --all-namespaces: use one of them")
		}
		list, err := cmds.find(cmd.Context(), all, name)
		if err != nil {
			return err
		}
		if len(list) == 0 && name != "" {
			return cmds.noWaypoint(name)
		}
		cmds.app.addressAll(&list)
		if format.Structured() {
			return printer.Write(cmds.app.Stdout, format, append([]api.WaypointState{}, list...))
		}
		if len(list) == 0 {
			where := "in namespace " + cmds.app.namespace
			if all {
				where = "in any namespace"
			}
			cmds.app.warn("no waypoints found %s", where)
			cmds.app.next("lateen waypoint apply" + cmds.app.namespaceOption())
			return nil
		}
		return show(list)
	}
	cmds.flags(cmd, &name, "", "only this waypoint")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "waypoints of all namespaces")
	cmds.app.outputFlag(cmd, formats...)
	return cmd
}

// noWaypoint is the error of a request for a waypoint that does not exist.
func (cmds waypointCommands) noWaypoint(name string) error {
	return &api.Error{Code: http.StatusNotFound, Message: fmt.Sprintf("waypoint %q not found in namespace %s", name, cmds.app.namespace), Fix: "`lateen waypoint list -A` shows those that exist; --mesh chooses another mesh"}
}
