package printer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Options says how a list of objects is written.
type Options struct {
	Format Format
	// Namespaces adds a column with the namespace, for lists over all of them.
	Namespaces bool
	// Prefix writes names as kind/name, for lists of several kinds.
	Prefix bool
	// Single writes one object instead of a list in structured formats, since it was asked for by name.
	Single bool
	Now    time.Time
	// ShowLabels adds a column with all labels, and LabelColumns one for each of these labels.
	ShowLabels   bool
	LabelColumns []string
	// Width is how wide a table may be, in characters; 0 is as wide as it needs.
	Width int

	grid func(*Grid) error // takes a table in place of the writer
}

// Objects writes objects, one table per kind in the order of first appearance.
func Objects(w io.Writer, objects []api.Object, o Options) error {
	switch o.Format {
	case JSON, YAML:
		return structured(w, objects, o)
	case Name:
		for _, object := range objects {
			if _, err := fmt.Fprintf(w, "%s/%s\n", object.Key.Word(), object.Key.Name); err != nil {
				return err
			}
		}
		return nil
	}
	var kinds []string
	byKind := map[string][]api.Object{}
	for _, object := range objects {
		if _, seen := byKind[object.Key.Kind]; !seen {
			kinds = append(kinds, object.Key.Kind)
		}
		byKind[object.Key.Kind] = append(byKind[object.Key.Kind], object)
	}
	for i, kind := range kinds {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := table(w, kind, byKind[kind], o); err != nil {
			return err
		}
	}
	return nil
}

func structured(w io.Writer, objects []api.Object, o Options) error {
	items := []any{}
	for _, object := range objects {
		item, err := withConditions(object)
		if err != nil {
			return err
		}
		items = append(items, item)
	}
	if o.Single && len(items) == 1 {
		return Write(w, o.Format, items[0])
	}
	return Write(w, o.Format, map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items})
}

// withConditions is the whole object, with what the control plane says about it where Kubernetes would show it.
func withConditions(object api.Object) (map[string]any, error) {
	var item map[string]any
	if err := json.Unmarshal(object.Raw, &item); err != nil {
		return nil, fmt.Errorf("read %s: %w", object.Key, err)
	}
	if len(object.Conditions)+len(object.Findings) == 0 && object.Ignored == "" {
		return item, nil
	}
	status, _ := item["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
		item["status"] = status
	}
	if len(object.Findings) > 0 || object.Ignored != "" {
		state, reason := Effect(object)
		status["analysis"] = analysis{state, reason, object.Findings}
	}
	if len(object.Conditions) == 0 {
		return item, nil
	}
	conditions, taken := status["conditions"].([]any)
	for _, c := range object.Conditions {
		// Where Kubernetes has conditions of its own, only what is wrong is worth a line among them.
		if taken && c.Status == string(metav1.ConditionTrue) {
			continue
		}
		condition := map[string]any{"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message}
		if !c.Since.IsZero() {
			condition["lastTransitionTime"] = c.Since.UTC().Format(time.RFC3339)
		}
		// On Kubernetes the control plane has written it there itself, with more.
		if i := slices.IndexFunc(conditions, func(x any) bool { m, _ := x.(map[string]any); return m["type"] == c.Type }); i < 0 {
			conditions = append(conditions, condition)
		} else if m := conditions[i].(map[string]any); m["status"] != c.Status || m["message"] != c.Message {
			conditions[i] = condition
		}
	}
	status["conditions"] = conditions
	return item, nil
}

// analysis is the state of an object as its table shows it, and the findings behind that state.
type analysis struct {
	State    string        `json:"state"`
	Reason   string        `json:"reason,omitempty"`
	Findings []api.Finding `json:"findings,omitempty"`
}

// columns is how a kind is tabulated: headings, and cells of one object. Wide columns come after the others.
type columns struct {
	heading, wide []string
	cells         func(api.Object, time.Time) (cells, wide []string, err error)
}

var tables = map[string]columns{
	"Pod":        {[]string{"READY", "STATUS", "RESTARTS", "AGE"}, []string{"IP", "NODE", "SERVICE ACCOUNT"}, podCells},
	"Deployment": {[]string{"READY", "UP-TO-DATE", "AVAILABLE", "AGE"}, []string{"SELECTOR"}, deploymentCells},
	"Service":    {[]string{"TYPE", "CLUSTER-IP", "PORT(S)", "AGE"}, []string{"SELECTOR"}, serviceCells},
	"Node":       {[]string{"STATUS", "AGE"}, []string{"INTERNAL-IP", "POD-CIDR"}, nodeCells},
	"Namespace":  {[]string{"STATUS", "MESH", "AGE"}, nil, namespaceCells},
}

// otherKinds is for everything whose meaning is the control plane's: whether it has an effect and why not.
var otherKinds = columns{[]string{"STATE", "AGE"}, []string{"REASON"}, policyCells}

func table(w io.Writer, kind string, objects []api.Object, o Options) error {
	c, ok := tables[kind]
	if !ok {
		c = otherKinds
	}
	var heading []string
	if o.Namespaces {
		heading = append(heading, "NAMESPACE")
	}
	heading = append(append(heading, "NAME"), c.heading...)
	// A table without a column for it gets one when a proxy refuses, or may refuse, something in it.
	tell := ok && slices.ContainsFunc(objects, func(o api.Object) bool { return Refusal(o)+Doubt(o) != "" })
	if tell {
		heading = append(heading, "MESH STATE")
	}
	if o.Format == Wide {
		heading = append(heading, c.wide...)
	}
	if tell && o.Format == Wide {
		heading = append(heading, "REASON")
	}
	// Two objects of a name are told apart by the API group of their kinds.
	several := slices.ContainsFunc(objects, func(o api.Object) bool { return o.Key.Group != objects[0].Key.Group })
	grid := NewGrid(append(heading, o.labelHeading()...)...)
	for _, object := range objects {
		cells, wide, err := c.cells(object, o.Now)
		if err != nil {
			return fmt.Errorf("read %s: %w", object.Key, err)
		}
		var row []string
		if o.Namespaces {
			row = append(row, object.Key.Namespace)
		}
		name := object.Key.Name
		if o.Prefix || several {
			name = object.Key.Word() + "/" + name
		}
		row = append(append(row, name), cells...)
		state, why := "", Refusal(object)
		if why != "" {
			state = StateRefused
		} else if why = Doubt(object); why != "" {
			state = StateUnknown
		}
		if tell {
			row = append(row, state)
		}
		if o.Format == Wide {
			row = append(row, wide...)
		}
		if tell && o.Format == Wide {
			row = append(row, why)
		}
		labels, err := o.labelCells(object)
		if err != nil {
			return err
		}
		grid.Row(append(row, labels...)...)
	}
	return o.print(w, grid)
}

func created(object api.Object, meta metav1.ObjectMeta, now time.Time) string {
	if object.Created.IsZero() {
		return Age(meta.CreationTimestamp.Time, now)
	}
	return Age(object.Created, now)
}

func podCells(object api.Object, now time.Time) ([]string, []string, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(object.Raw, &pod); err != nil {
		return nil, nil, err
	}
	ready, restarts := 0, int32(0)
	state := string(pod.Status.Phase)
	if pod.Status.Reason != "" {
		state = pod.Status.Reason
	}
	for _, c := range pod.Status.ContainerStatuses {
		restarts += c.RestartCount
		if c.Ready {
			ready++
		}
		if c.State.Waiting != nil && c.State.Waiting.Reason != "" {
			state = c.State.Waiting.Reason
		}
	}
	// A pod that reports no containers one by one still says as a whole whether it is ready.
	if len(pod.Status.ContainerStatuses) == 0 && podReady(pod) {
		ready = len(pod.Spec.Containers)
	}
	if pod.DeletionTimestamp != nil {
		state = "Terminating"
	}
	if state == "" {
		state = "Pending"
	}
	total := max(len(pod.Spec.Containers), len(pod.Status.ContainerStatuses))
	cells := []string{fmt.Sprintf("%d/%d", ready, total), state, fmt.Sprint(restarts), created(object, pod.ObjectMeta, now)}
	// All addresses, where kubectl shows the first: in a dual-stack mesh the second is as much asked for.
	ips := []string{pod.Status.PodIP}
	for _, ip := range pod.Status.PodIPs {
		if ip.IP != pod.Status.PodIP {
			ips = append(ips, ip.IP)
		}
	}
	return cells, []string{strings.Join(ips, ","), pod.Spec.NodeName, pod.Spec.ServiceAccountName}, nil
}

func podReady(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func deploymentCells(object api.Object, now time.Time) ([]string, []string, error) {
	var d appsv1.Deployment
	if err := json.Unmarshal(object.Raw, &d); err != nil {
		return nil, nil, err
	}
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	cells := []string{
		fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, replicas), fmt.Sprint(d.Status.UpdatedReplicas),
		fmt.Sprint(d.Status.AvailableReplicas), created(object, d.ObjectMeta, now),
	}
	var selector map[string]string
	if d.Spec.Selector != nil {
		selector = d.Spec.Selector.MatchLabels
	}
	return cells, []string{labels(selector)}, nil
}

func serviceCells(object api.Object, now time.Time) ([]string, []string, error) {
	var s corev1.Service
	if err := json.Unmarshal(object.Raw, &s); err != nil {
		return nil, nil, err
	}
	kind := string(s.Spec.Type)
	if kind == "" {
		kind = string(corev1.ServiceTypeClusterIP)
	}
	var ports []string
	for _, p := range s.Spec.Ports {
		protocol := p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		ports = append(ports, fmt.Sprintf("%d/%s", p.Port, protocol))
	}
	cells := []string{kind, s.Spec.ClusterIP, strings.Join(ports, ","), created(object, s.ObjectMeta, now)}
	return cells, []string{labels(s.Spec.Selector)}, nil
}

func nodeCells(object api.Object, now time.Time) ([]string, []string, error) {
	var n corev1.Node
	if err := json.Unmarshal(object.Raw, &n); err != nil {
		return nil, nil, err
	}
	state, address := "NotReady", ""
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			state = "Ready"
		}
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			address = a.Address
		}
	}
	return []string{state, created(object, n.ObjectMeta, now)}, []string{address, n.Spec.PodCIDR}, nil
}

func namespaceCells(object api.Object, now time.Time) ([]string, []string, error) {
	var n corev1.Namespace
	if err := json.Unmarshal(object.Raw, &n); err != nil {
		return nil, nil, err
	}
	state := string(n.Status.Phase)
	if state == "" {
		state = string(corev1.NamespaceActive)
	}
	mode := n.Labels[wellknown.DataplaneMode]
	if wellknown.UnknownMode(n.Labels) != "" {
		mode = "invalid (" + cmp.Or(mode, "empty") + ")"
	}
	return []string{state, mode, created(object, n.ObjectMeta, now)}, nil, nil
}

func policyCells(object api.Object, now time.Time) ([]string, []string, error) {
	state, reason := Effect(object)
	return []string{state, Age(object.Created, now)}, []string{reason}, nil
}

func labels(m map[string]string) string {
	pairs := make([]string, 0, len(m))
	for k, v := range m {
		pairs = append(pairs, k+"="+v)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}
