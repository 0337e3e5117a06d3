package install

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/install/render"
	"lateen.dev/lateen/internal/meaning"
)

// Action is what becomes of an object.
type Action string

// The actions of a plan.
const (
	Create    Action = "create"
	Change    Action = "change"
	Unchanged Action = "unchanged"
	Delete    Action = "delete"
	// Keep leaves an object as it is, though the mesh uses it.
	Keep Action = "keep"
)

// Step is what a plan does with one object. Its JSON form is part of the command line's contract: fields are added, never renamed.
type Step struct {
	Action    Action `json:"action"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Fields are those that change.
	Fields []string `json:"fields,omitempty"`
	// Why says what the action itself does not.
	Why string `json:"why,omitempty"`

	object *unstructured.Unstructured
	// newer says of a definition that it stays because a newer Lateen made it.
	newer bool
}

// Plan is what would be done.
type Plan struct {
	Version string `json:"version"`
	// From is the version that is there, if it is another.
	From      string `json:"from,omitempty"`
	Namespace string `json:"namespace"`
	Steps     []Step `json:"steps"`
	// Before are steps of another sort, in their order: those of taking over another mesh, or of taking a removal back.
	Before []string `json:"before,omitempty"`
	// NewerDefinitions are those of a newer version, which stay as they are also where the mesh goes back to this one.
	NewerDefinitions []string `json:"newerDefinitions,omitempty"`
	// Meaning is what would mean something else than in the mesh whose place is taken; nil if none is.
	Meaning *meaning.Report `json:"meaning,omitempty"`
	// Refused says why the plan would not be carried out as it is; empty if it would.
	Refused string `json:"refused,omitempty"`
	// Warnings are what somebody should look at, though it is in nobody's way.
	Warnings []string `json:"warnings,omitempty"`
}

// Count is how many objects an action is for.
func (p Plan) Count(a Action) int {
	n := 0
	for _, s := range p.Steps {
		if s.Action == a {
			n++
		}
	}
	return n
}

// Changes are the steps that change the cluster.
func (p Plan) Changes() int { return len(p.Steps) - p.Count(Unchanged) - p.Count(Keep) }

func step(a Action, o *unstructured.Unstructured, why string, fields ...string) Step {
	return Step{Action: a, Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(), Fields: fields, Why: why, object: o}
}

// compare says what is to be done so that the cluster has the objects, and none of the mesh's besides in the namespaces where it can have any.
func (c *Cluster) compare(ctx context.Context, desired []*unstructured.Unstructured, places []string, adopt func(*unstructured.Unstructured) bool) ([]Step, error) {
	var steps []Step
	var foreign []string
	for _, o := range desired {
		live, err := c.objects().get(ctx, o)
		if err != nil {
			return nil, err
		}
		s, err := c.judge(ctx, o, live, adopt)
		if err != nil {
			return nil, err
		}
		if s.Action == "" {
			foreign = append(foreign, called(o)+belongs(live))
			continue
		}
		steps = append(steps, s)
	}
	if len(foreign) > 0 {
		return nil, &api.Error{Code: 409, Message: "the cluster has objects of these names already, and they are not this installation's: " + strings.Join(foreign, ", "),
			Fix: "remove them, or, if Helm installed them, go on with helm upgrade in place of this command"}
	}
	surplus, err := c.surplus(ctx, desired, places)
	if err != nil {
		return nil, err
	}
	return append(steps, surplus...), nil
}

// belongs says whose an object is, as far as it tells.
func belongs(o *unstructured.Unstructured) string {
	if release := o.GetAnnotations()["meta.helm.sh/release-name"]; release != "" {
		return fmt.Sprintf(" (of Helm's release %s/%s)", o.GetAnnotations()["meta.helm.sh/release-namespace"], release)
	}
	if by := o.GetLabels()[managedBy]; by != "" {
		return " (managed by " + by + ")"
	}
	return ""
}

// judge compares one object. A step without an action means that somebody else's is in the way.
func (c *Cluster) judge(ctx context.Context, o, live *unstructured.Unstructured, adopt func(*unstructured.Unstructured) bool) (Step, error) {
	switch {
	case live == nil && operators[o.GetKind()] != "":
		return c.monitor(ctx, o)
	case live == nil:
		return step(Create, o, ""), nil
	case o.GetKind() == "Namespace" && live.GetLabels()[managedBy] != lateen:
		return step(Keep, o, "it was there before"), nil
	case isDefinition(o):
		if why, err := leave(o, live); why != "" || err != nil {
			s := step(Keep, o, why)
			s.newer = newerLateen(o, live) != ""
			return s, err
		}
	case live.GetLabels()[managedBy] != lateen && !adopt(live):
		return Step{}, nil
	}
	why, err := c.leaveScale(ctx, o, live)
	if err != nil {
		return Step{}, err
	}
	next, err := c.objects().apply(ctx, o, true)
	if err != nil {
		return Step{}, err
	}
	fields := differences(live.Object, next.Object)
	if len(fields) == 0 {
		return step(Unchanged, o, why), nil
	}
	if live.GetLabels()[managedBy] != lateen {
		why = strings.TrimSuffix("it is taken over; "+why, "; ")
	}
	return step(Change, o, why, fields...), nil
}

// leaveScale has a Deployment keep the number of replicas that it has, if somebody has an autoscaler of his own say how many there are, and says
// which. That there are none is no autoscaler's doing: it leaves alone what is at zero.
func (c *Cluster) leaveScale(ctx context.Context, o, live *unstructured.Unstructured) (why string, err error) {
	want, asked, err := unstructured.NestedNumberAsFloat64(o.Object, "spec", "replicas")
	has, _, hasErr := unstructured.NestedNumberAsFloat64(live.Object, "spec", "replicas")
	if o.GetKind() != "Deployment" || !asked || err != nil || hasErr != nil || has == want || has == 0 {
		return "", nil
	}
	list, err := c.Client.AutoscalingV2().HorizontalPodAutoscalers(o.GetNamespace()).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return "no autoscaler of it is known: these credentials may not list horizontalpodautoscalers.autoscaling in " + o.GetNamespace(), nil
	} else if err != nil {
		return "", c.explain(err)
	}
	for _, a := range list.Items {
		if to := a.Spec.ScaleTargetRef; to.Kind == o.GetKind() && to.Name == o.GetName() && a.Labels[managedBy] != lateen {
			return fmt.Sprintf("it stays at %d replicas, not %d: horizontalpodautoscaler/%s decides how many there are", int64(has), int64(want), a.Name),
				unstructured.SetNestedField(o.Object, int64(has), "spec", "replicas")
		}
	}
	return "", nil
}

// operators are the kinds of the Prometheus operator, and the values that ask for objects of them.
var operators = map[string]string{"PodMonitor": "monitoring.podMonitors", "PrometheusRule": "monitoring.rules"}

// monitor refuses an object for an operator that is not there.
func (c *Cluster) monitor(ctx context.Context, o *unstructured.Unstructured) (Step, error) {
	definition, err := c.objects().get(ctx, named("CustomResourceDefinition", "", resources[o.GetKind()].Resource+".monitoring.coreos.com"))
	if err == nil && definition == nil {
		err = &api.Error{Code: 409, Message: fmt.Sprintf("%s is true, and the cluster has no kind %s", operators[o.GetKind()], o.GetKind()), Fix: "install the Prometheus operator first, or leave the value at false: the pods' annotations say where their metrics are"}
	}
	return step(Create, o, ""), err
}

// surplus are objects of the mesh that are not wanted any more.
func (c *Cluster) surplus(ctx context.Context, desired []*unstructured.Unstructured, places []string) ([]Step, error) {
	wanted := map[string]bool{}
	for _, o := range desired {
		wanted[called(o)] = true
	}
	have, err := c.own(ctx, places)
	if err != nil {
		return nil, err
	}
	var steps []Step
	for _, o := range have {
		if !wanted[called(o)] && o.GetKind() != "Namespace" {
			steps = append(steps, step(Delete, o, "the mesh has no use for it any more"))
		}
	}
	return steps, nil
}

// own lists what an installation made in some namespaces and in none, but for definitions and its record, in the order in which it should
// be removed.
func (c *Cluster) own(ctx context.Context, places []string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, kind := range slices.Sorted(maps.Keys(resources)) {
		if kind == "CustomResourceDefinition" {
			continue
		}
		list, err := c.Dynamic.Resource(resources[kind].GroupVersionResource).List(ctx, metav1.ListOptions{LabelSelector: ours + "," + partOf + "=" + lateen})
		if apierrors.IsNotFound(err) {
			continue // nobody defines the kind
		} else if err != nil {
			return nil, c.explain(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			o.SetKind(kind)
			if o.GetLabels()[recordLabel] == "" && !isDefinition(o) && (o.GetNamespace() == "" || slices.Contains(places, o.GetNamespace())) {
				out = append(out, o)
			}
		}
	}
	render.Sort(out)
	slices.Reverse(out)
	return out, nil
}

// differences are the fields in which two states of an object differ, as people would name them, but for what the API server keeps itself.
func differences(a, b map[string]any) []string {
	var out []string
	walk(a, b, "", &out)
	return out
}

// bookkeeping is what the API server writes by itself.
var bookkeeping = []string{"metadata.managedFields", "metadata.resourceVersion", "metadata.generation", "metadata.uid", "metadata.creationTimestamp", "status"}

// mostFields is how many changed fields of an object are named.
const mostFields = 8

func walk(a, b any, path string, out *[]string) {
	if slices.Contains(bookkeeping, path) || reflect.DeepEqual(a, b) {
		return
	}
	am, aok := a.(map[string]any)
	bm, bok := b.(map[string]any)
	if !aok || !bok {
		if len(*out) < mostFields {
			*out = append(*out, path)
		}
		return
	}
	keys := map[string]bool{}
	for k := range am {
		keys[k] = true
	}
	for k := range bm {
		keys[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		walk(am[k], bm[k], strings.TrimPrefix(path+"."+k, "."), out)
	}
}
