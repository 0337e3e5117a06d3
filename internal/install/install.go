package install

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/install/render"
	"lateen.dev/lateen/internal/model/wellknown"
)

// DefaultNamespace is where the mesh's parts are.
const DefaultNamespace = "lateen-system"

// Options are what a user can choose about an installation.
type Options struct {
	// Charts has the charts lateen and lateen-crds as folders.
	Charts    fs.FS
	Namespace string
	// Values go over the chart's own; an upgrade lays them over those of the installation.
	Values map[string]any
	// ResetValues forgets the values of the installation.
	ResetValues bool
	// AllowDowngrade lets this program's version take the place of a newer one.
	AllowDowngrade bool
	// TakeOver is "istio" to take the place of a running Istio.
	TakeOver string
	// IgnoreConflicts are things that look like another mesh's control plane and are none: NAMESPACE/NAME, or NAME of what is in no namespace.
	IgnoreConflicts []string
	// AcceptDifferences are differences that would refuse a take-over, by their field.
	AcceptDifferences []string
	// WithoutNodes are nodes that a removal goes on without: they are left as they are.
	WithoutNodes []string
	// DryRun says that nothing will be run: nothing is waited for either.
	DryRun bool
	// Wait returns only when all parts are ready.
	Wait    bool
	Timeout time.Duration
	// Progress hears of each step; it may be nil.
	Progress func(api.Event)
}

// The phases of an installation, in their order.
const (
	phaseBegin       = ""
	phaseDefinitions = "definitions"
	phaseRights      = "rights"
	phaseControl     = "control"
	phaseAgent       = "agents"
	phaseNode        = "proxies"
	phaseRest        = "rest"
)

func (o Options) started(phase, format string, args ...any) {
	o.tell(api.Event{Phase: phase, State: api.EventStarted, Message: fmt.Sprintf(format, args...)})
}

func (o Options) done(phase, format string, args ...any) {
	o.tell(api.Event{Phase: phase, State: api.EventDone, Message: fmt.Sprintf(format, args...)})
}

func (o Options) goesOn(phase, format string, args ...any) {
	o.tell(api.Event{Phase: phase, State: api.EventGoesOn, Message: fmt.Sprintf(format, args...)})
}

func (o Options) tell(e api.Event) {
	if o.Progress != nil {
		o.Progress(e)
	}
}

// wanted is what the charts come to.
type wanted struct {
	version string
	values  map[string]any
	// merged are the values with the chart's own beneath them.
	merged map[string]any
	// crds are definitions; objects all others.
	crds, objects []*unstructured.Unstructured
	notes         string
}

// gatewayAPIs are what charts ask for when they make objects of the Gateway API.
var gatewayAPIs = []string{"gateway.networking.k8s.io/v1", "gateway.networking.k8s.io/v1/GatewayClass"}

// crdKeys are the values of chart lateen-crds; all others are chart lateen's.
var crdKeys = []string{"gatewayAPI", "istio"}

// desired renders both charts. gateway says that the cluster has the Gateway API already.
func desired(o Options, kubeVersion string, gateway bool) (*wanted, error) {
	release := render.Release{Name: lateen, Namespace: o.Namespace, KubeVersion: kubeVersion}
	of, mesh := split(o.Values)
	crds, err := render.Chart(o.Charts, "lateen-crds", of, release)
	if err != nil {
		return nil, err
	}
	if gateway || crds.Values["gatewayAPI"] == true {
		release.APIs = gatewayAPIs
	}
	r, err := render.Chart(o.Charts, "lateen", mesh, release)
	if err != nil {
		return nil, err
	}
	if err := judge(r.Values); err != nil {
		return nil, err
	}
	w := &wanted{version: r.Version, values: o.Values, merged: r.Values, crds: crds.Objects, objects: r.Objects, notes: r.Notes}
	for _, object := range slices.Concat(w.crds, w.objects) {
		own(object)
	}
	for _, object := range w.crds {
		labels := object.GetLabels()
		labels[wellknown.AppVersion] = r.Version
		object.SetLabels(labels)
	}
	return w, nil
}

// split gives each chart its values. The one key that both have is a switch for the definitions and settings for the mesh.
func split(values map[string]any) (crds, mesh map[string]any) {
	crds, mesh = map[string]any{}, map[string]any{}
	for key, value := range values {
		_, settings := value.(map[string]any)
		if slices.Contains(crdKeys, key) && !settings {
			crds[key] = value
		} else {
			mesh[key] = value
		}
	}
	return crds, mesh
}

// own marks an object as this installation's.
func own(o *unstructured.Unstructured) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[managedBy], labels[partOf] = lateen, lateen
	o.SetLabels(labels)
}

// Installation is one that is to be made or changed.
type Installation struct {
	cluster *Cluster
	options Options
	want    *wanted
	record  *Record
	// found is the record as it was when the plan was made.
	found *Record
	fresh bool
	// uninstallBegun says that an earlier uninstallation told the agents to leave their nodes and was not completed.
	uninstallBegun bool
	// Plan is what is to be done.
	Plan  Plan
	moves []Move
	// refusal is why a dry run's plan would not be carried out.
	refusal error
}

// Prepare finds out what installing would do, and refuses what must not be done. Nothing is changed.
func (c *Cluster) Prepare(ctx context.Context, o Options) (*Installation, error) {
	if o.TakeOver != "" {
		o.Values = render.Merge(o.Values, map[string]any{"takeOver": o.TakeOver})
	}
	// Bad values are said before anything is asked.
	if err := valid(o); err != nil {
		return nil, err
	}
	if err := c.namespaces().settled(ctx, o); err != nil {
		return nil, err
	}
	found, err := c.Find(ctx)
	if err != nil {
		return nil, err
	}
	switch record := found; {
	case record == nil:
	case record.Helm:
		return nil, record.ofHelm("go on with helm upgrade")
	case record.Bare && record.Namespace == o.Namespace:
		// Nothing of it is left that an installation would not make anyhow.
		i, err := c.prepare(ctx, o, nil, true)
		if i != nil {
			i.found = found
		}
		return i, err
	case record.Bare:
		return nil, record.bare()
	case record.Namespace != o.Namespace:
		return nil, c.elsewhere(ctx, record)
	case record.Lost:
		return nil, record.lost()
	case record.State == stateInstalled:
		return nil, &api.Error{Code: 409, Message: fmt.Sprintf("Lateen %s is installed in namespace %s already", record.Version, record.Namespace), Fix: "change it with lateen upgrade, or remove it with lateen uninstall"}
	case record.State == stateUninstalling:
		return nil, &api.Error{Code: 409, Message: fmt.Sprintf("the removal of Lateen %s from namespace %s was begun and not ended", record.Version, record.Namespace), Fix: "end it with lateen uninstall, or take it back with lateen upgrade"}
	default: // interrupted: go on where it ended
		o.Values = render.Merge(record.Values, o.Values)
	}
	return c.prepare(ctx, o, found, true)
}

func valid(o Options) error {
	crds, mesh := split(o.Values)
	if err := render.Validate(o.Charts, "lateen-crds", crds); err != nil {
		return err
	}
	return render.Validate(o.Charts, "lateen", mesh)
}

// PrepareUpgrade finds out what an upgrade would do.
func (c *Cluster) PrepareUpgrade(ctx context.Context, o Options) (*Installation, error) {
	if err := valid(o); err != nil {
		return nil, err
	}
	record, err := c.Find(ctx)
	switch {
	case err != nil:
		return nil, err
	case record == nil:
		return nil, notInstalled()
	case record.Helm:
		return nil, record.ofHelm("go on with helm upgrade")
	case record.Namespace != o.Namespace:
		return nil, &api.Error{Code: 404, Message: fmt.Sprintf("Lateen is installed in namespace %s, not in %s", record.Namespace, o.Namespace), Fix: "lateen upgrade --namespace " + record.Namespace}
	case record.Bare:
		return nil, record.bare()
	case record.Lost && !o.ResetValues:
		return nil, record.lost()
	}
	if err := c.namespaces().lasting(ctx, o.Namespace, rootNamespace(render.Merge(record.Values, o.Values))); err != nil {
		return nil, err
	}
	if !o.ResetValues {
		o.Values = render.Merge(record.Values, o.Values)
	}
	if t, _ := o.Values["takeOver"].(string); t != "" {
		o.TakeOver = t
	}
	return c.prepare(ctx, o, record, false)
}

func notInstalled() error {
	return &api.Error{Code: 404, Message: "Lateen is not installed on this cluster", Fix: "lateen install"}
}

func (c *Cluster) prepare(ctx context.Context, o Options, record *Record, fresh bool) (*Installation, error) {
	kubeVersion, err := c.Version()
	if err != nil {
		return nil, err
	}
	found, unknown, err := c.conflictSearch().conflicts(ctx, o)
	if err != nil {
		return nil, err
	}
	taking := o.TakeOver == "istio" && (!record.tookOver(o.TakeOver) || slices.ContainsFunc(found, Conflict.isIstio))
	// What of Istio's there is to be taken over is refused below, if it cannot be.
	if err := refuse(slices.DeleteFunc(slices.Clone(found), func(f Conflict) bool { return taking && f.isIstio() })); err != nil {
		return nil, err
	}
	if fresh {
		if err := c.conflictSearch().rootsAreFree(ctx, o); err != nil {
			return nil, err
		}
	}
	classes, err := c.objects().get(ctx, named("CustomResourceDefinition", "", "gatewayclasses.gateway.networking.k8s.io"))
	if err != nil {
		return nil, err
	}
	want, err := desired(o, kubeVersion, classes != nil)
	if err != nil {
		return nil, err
	}
	if err := record.refuseOlder(want.version, o.AllowDowngrade); err != nil {
		return nil, err
	}
	i := &Installation{cluster: c, options: o, want: want, record: record, found: record.copy(), fresh: fresh}
	if i.record == nil {
		i.record = &Record{Namespace: o.Namespace}
	}
	if o.TakeOver != "" && !taking {
		i.record.TakenOver = o.TakeOver // one of an earlier version does not say so
	}
	if i.uninstallBegun, err = c.nodeAgents().uninstallBegun(ctx, i.record); err != nil {
		return nil, err
	}
	all := slices.Concat(i.namespaces(), want.crds, want.objects)
	if err := c.permissions().permitted(ctx, all); err != nil {
		return nil, err
	}
	if taking {
		survey, err := c.survey(ctx, o)
		if err != nil {
			return nil, err
		}
		if i.moves, err = c.takeOver(o, survey); err != nil {
			return nil, err
		}
		found = remaining(found, i.moves)
		if err := refuse(found); err != nil {
			return nil, err
		}
		if err := i.compareMeaning(ctx, survey); err != nil {
			return nil, err
		}
	}
	places := append(i.record.places(), rootNamespace(o.Values))
	steps, err := c.compare(ctx, all, places, func(live *unstructured.Unstructured) bool {
		// Of another mesh only the name by which its proxies find their control plane is taken.
		return o.TakeOver == "istio" && live.GetKind() == "Service" && live.GetName() == istiodName
	})
	if err != nil {
		return nil, err
	}
	retired, err := c.retired(ctx, o, want)
	if err != nil {
		return nil, err
	}
	i.Plan.Version, i.Plan.Namespace, i.Plan.Steps = want.version, o.Namespace, append(steps, retired...)
	if i.record.Version != want.version {
		i.Plan.From = i.record.Version
	}
	for _, s := range i.Plan.Steps {
		if s.newer {
			i.Plan.NewerDefinitions = append(i.Plan.NewerDefinitions, s.Name)
		}
	}
	if Newer(i.Plan.From, want.version) && len(i.Plan.NewerDefinitions) > 0 {
		i.Plan.Warnings = append(i.Plan.Warnings, i.Plan.stays())
	}
	if len(i.moves) > 0 && !o.Wait && !o.DryRun {
		return nil, &api.Error{Code: 400, Message: "the place of Istio is being taken, and what is there stays until this mesh's parts are ready in its place", Fix: "repeat the command without --wait=false"}
	}
	for _, m := range i.moves {
		i.Plan.Before = append(i.Plan.Before, m.What)
	}
	if i.uninstallBegun {
		i.Plan.Before = append(i.Plan.Before, "take the removal back: agents that were told to leave their nodes are started anew, and capture their pods again")
	}
	for _, name := range unknown {
		i.Plan.Warnings = append(i.Plan.Warnings, fmt.Sprintf("--ignore-conflict=%s: nothing of this name looks like another mesh's control plane, so that the flag has no effect; it takes NAMESPACE/NAME, or NAME of what is in no namespace", name))
	}
	for _, f := range found {
		warning := f.String() + " looks like another mesh's, and has no rights in the cluster by which it could manage anything"
		if taking && f.daemons != nil {
			warning += fmt.Sprintf("; it stays, and if it is Istio's all the same, remove it afterwards (kubectl delete daemonset -n %s %s)", f.Where, f.name)
		}
		i.Plan.Warnings = append(i.Plan.Warnings, warning)
	}
	return i, nil
}

func named(kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	r := resources[kind]
	o.SetGroupVersionKind(r.GroupVersion().WithKind(kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// Refusal says why the plan would not be carried out as it is; nil if it would. Only a dry run comes as far as having one.
func (i *Installation) Refusal() error { return i.refusal }

// Notes is what to do next, as the chart says it.
func (i *Installation) Notes() string { return i.want.notes }

// Run does what the plan says, one part after the other, and waits for each.
func (i *Installation) Run(ctx context.Context) error {
	verb := "upgrade"
	if i.fresh {
		verb = "install"
		// The Lease needs its place.
		for _, s := range i.Plan.Steps {
			if s.Action == Create && s.Kind == "Namespace" && s.Name == i.options.Namespace {
				if _, err := i.cluster.objects().apply(ctx, s.object, false); err != nil {
					return err
				}
			}
		}
	}
	err := i.cluster.alone(ctx, &i.options, verb, i.found, func(ctx context.Context, _ *lock) error { return i.run(ctx) })
	if err != nil && i.fresh {
		i.unmake(ctx)
	}
	return err
}

func (i *Installation) run(ctx context.Context) error {
	if err := i.begin(ctx); err != nil {
		return err
	}
	for _, run := range []func(context.Context) error{i.definitions, i.rights, i.control, i.nodes, i.rest} {
		if err := run(ctx); err != nil {
			return err
		}
	}
	// A removal that ended late may have taken it along.
	for _, s := range i.Plan.Steps {
		if isAnchor(s) {
			if _, err := i.cluster.objects().apply(ctx, s.object, false); err != nil {
				return err
			}
		}
	}
	i.record.State, i.record.TakenOver = stateInstalled, i.options.TakeOver
	return i.cluster.keep(ctx, i.record)
}

// begin makes the namespaces and what the installation is found by, and notes there what is being done, so that it can be gone on with or
// undone whatever happens.
func (i *Installation) begin(ctx context.Context) error {
	for _, s := range i.Plan.Steps {
		if s.Kind == "Namespace" && s.Action != Keep && !slices.Contains(i.record.Namespaces, s.Name) {
			// Also one that is there: it has our labels because a run made it that was broken off before it could note it.
			i.record.Namespaces = append(i.record.Namespaces, s.Name)
		}
	}
	if err := i.claim(ctx); err != nil {
		return err
	}
	if _, err := i.apply(ctx, phaseBegin); err != nil {
		return err
	}
	i.record.Version, i.record.Values, i.record.State = i.want.version, i.want.values, stateInstalling
	i.record.Lost = false
	if i.uninstallBegun {
		i.record.State = stateUninstalling // until they are back
	}
	return i.cluster.keep(ctx, i.record)
}

func isAnchor(s Step) bool { return s.Kind == "ClusterRoleBinding" && s.Name == anchorName }

// part says in which phase an object is applied.
func part(s Step) string {
	switch {
	case s.Kind == "Namespace", isAnchor(s):
		return phaseBegin
	case s.object != nil && isDefinition(s.object):
		return phaseDefinitions
	case s.Kind == "GatewayClass", s.Kind == "PodMonitor", s.Kind == "PrometheusRule":
		return phaseRest
	case s.Kind == "Deployment", s.Kind == "PodDisruptionBudget", s.Kind == "HorizontalPodAutoscaler":
		return phaseControl
	case s.Kind == "DaemonSet" && s.Name == agentName:
		return phaseAgent
	case s.Kind == "DaemonSet":
		return phaseNode
	case s.Kind == "Service" && s.Name == istiodName:
		return phaseRest // when there is somebody whom it can lead to
	}
	return phaseRights
}

// apply brings the objects of one phase about and says how many changed.
func (i *Installation) apply(ctx context.Context, phase string) (int, error) {
	changed := 0
	for _, s := range i.Plan.Steps {
		if part(s) != phase || s.Action != Create && s.Action != Change {
			continue
		}
		if _, err := i.cluster.objects().apply(ctx, s.object, false); err != nil {
			return changed, err
		}
		changed++
	}
	return changed, nil
}

func (i *Installation) definitions(ctx context.Context) error {
	i.options.started(phaseDefinitions, "defining the mesh's kinds")
	n, err := i.apply(ctx, phaseDefinitions)
	if err != nil {
		return err
	}
	if err := i.cluster.objects().defined(ctx, i.want.crds); err != nil {
		return err
	}
	i.options.done(phaseDefinitions, "kinds defined (%s)", tally(n, i.Plan, phaseDefinitions))
	return nil
}

func tally(changed int, p Plan, phase string) string {
	kept := 0
	for _, s := range p.Steps {
		if part(s) == phase && (s.Action == Keep || s.Action == Unchanged) {
			kept++
		}
	}
	return fmt.Sprintf("%d new or changed, %d as they were", changed, kept)
}

func (i *Installation) rights(ctx context.Context) error {
	i.options.started(phaseRights, "setting up accounts, roles and settings")
	n, err := i.apply(ctx, phaseRights)
	if err != nil {
		return err
	}
	if err := i.moveAll(ctx, phaseRights); err != nil {
		return err
	}
	i.options.done(phaseRights, "accounts, roles and settings set up (%s)", tally(n, i.Plan, phaseRights))
	return nil
}

func (i *Installation) control(ctx context.Context) error {
	i.options.started(phaseControl, "control plane")
	if _, err := i.apply(ctx, phaseControl); err != nil {
		return err
	}
	return i.rolled(ctx, phaseControl, "control plane", named("Deployment", i.options.Namespace, controlName))
}

func (i *Installation) nodes(ctx context.Context) error {
	agent, node := named("DaemonSet", i.options.Namespace, agentName), named("DaemonSet", i.options.Namespace, "lateen-node")
	if i.fresh || i.uninstallBegun || len(i.moves) > 0 {
		// An agent without a proxy, or the reverse, is of no use to anybody, so they start at the same time. Agents that take pods over from
		// Istio are ready only with one.
		if _, err := i.apply(ctx, phaseNode); err != nil {
			return err
		}
	}
	i.options.started(phaseAgent, "node agents")
	if _, err := i.apply(ctx, phaseAgent); err != nil {
		return err
	}
	if i.uninstallBegun {
		if err := i.undoUninstall(ctx); err != nil {
			return err
		}
	}
	if err := i.rolled(ctx, phaseAgent, "node agents", agent); err != nil {
		return err
	}
	i.options.started(phaseNode, "node proxies")
	if _, err := i.apply(ctx, phaseNode); err != nil {
		return err
	}
	return i.rolled(ctx, phaseNode, "node proxies", node)
}

// rest applies what needs the mesh to run, does what remains of taking over, and removes what nobody wants any more.
func (i *Installation) rest(ctx context.Context) error {
	if _, err := i.apply(ctx, phaseRest); err != nil {
		return err
	}
	if err := i.moveAll(ctx, phaseRest); err != nil {
		return err
	}
	for _, s := range i.Plan.Steps {
		if s.Action == Delete {
			if err := i.cluster.objects().remove(ctx, s.object); err != nil {
				return err
			}
		}
	}
	return nil
}

// rolled waits until a part runs as it should everywhere.
func (i *Installation) rolled(ctx context.Context, phase, what string, workload *unstructured.Unstructured) error {
	if !i.options.Wait {
		i.options.done(phase, "%s applied", what)
		return nil
	}
	count, err := i.cluster.rollouts().rollout(ctx, workload, func(state string) { i.options.goesOn(phase, "%s: %s", what, state) })
	if err != nil {
		i.options.tell(api.Event{Phase: phase, State: api.EventFailed, Error: err.Error(), Log: logOf(err)})
		return err
	}
	i.options.done(phase, "%s ready (%s)", what, count)
	return nil
}
