package install

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lateen.dev/lateen/internal/control/conditions/withdraw"
	"lateen.dev/lateen/internal/engine/api"
)

// rootCertificate is the ConfigMap that the control plane puts into every namespace.
const rootCertificate = "istio-ca-root-cert"

// leftovers are what the control plane makes by itself in the installation's namespace.
var leftovers = []struct{ kind, name string }{{"Secret", "lateen-ca"}, {"ConfigMap", "lateen-assignments"}}

// Removal is an installation that is to be removed.
type Removal struct {
	cluster *Cluster
	options Options
	record  *Record
	// found is the record as it was when the plan was made.
	found *Record
	// Plan is what is to be done.
	Plan Plan
	// Captured is how many pods are in the mesh and will be released.
	Captured int
	// image is the agents'.
	image string
}

// PrepareRemoval finds out what uninstalling would remove; with crds, also the definitions that the installation made.
func (c *Cluster) PrepareRemoval(ctx context.Context, o Options, crds bool) (*Removal, error) {
	record, err := c.Find(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case record == nil:
		return nil, notInstalled()
	case record.Helm:
		return nil, record.ofHelm(fmt.Sprintf("helm uninstall lateen -n %s (the agents release their pods then as well)", record.Namespace))
	}
	if record.Namespace != o.Namespace {
		return nil, &api.Error{Code: 404, Message: fmt.Sprintf("Lateen is installed in namespace %s, not in %s", record.Namespace, o.Namespace), Fix: "lateen uninstall --namespace " + record.Namespace}
	}
	r := &Removal{cluster: c, options: o, record: record, found: record.copy(), Plan: Plan{Version: record.Version, Namespace: record.Namespace}}
	if record.Lost {
		if err := r.remember(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.reachable(ctx); err != nil {
		return nil, err
	}
	have, err := c.own(ctx, record.places())
	if err != nil {
		return nil, err
	}
	// The CA goes last: nobody is to go by the root of one that is gone.
	roots, err := c.rootCertificates(ctx)
	if err != nil {
		return nil, err
	}
	have = append(have, roots...)
	for _, l := range leftovers {
		have = append(have, named(l.kind, record.Namespace, l.name))
	}
	if crds {
		list, err := c.ownDefinitions(ctx)
		if err != nil {
			return nil, err
		}
		have = append(have, list...)
	}
	var namespaces []*unstructured.Unstructured
	for _, o := range have {
		live, err := c.objects().get(ctx, o)
		if err != nil {
			return nil, err
		}
		switch {
		case live == nil:
		case o.GetKind() == "Namespace":
			namespaces = append(namespaces, o)
		default:
			r.Plan.Steps = append(r.Plan.Steps, step(Delete, o, ""))
		}
	}
	for _, o := range namespaces {
		s, err := r.namespaceStep(ctx, o)
		if err != nil {
			return nil, err
		}
		r.Plan.Steps = append(r.Plan.Steps, s)
	}
	if d, err := c.Client.AppsV1().DaemonSets(record.Namespace).Get(ctx, agentName, metav1.GetOptions{}); err == nil && len(d.Spec.Template.Spec.Containers) > 0 {
		r.image = d.Spec.Template.Spec.Containers[0].Image
	}
	captured, err := c.nodeAgents().captured(ctx)
	r.Captured = len(captured)
	return r, err
}

// rootCertificates are those that the control plane put into namespaces.
func (c *Cluster) rootCertificates(ctx context.Context) ([]*unstructured.Unstructured, error) {
	list, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + rootCertificate, LabelSelector: "app.kubernetes.io/name=" + lateen})
	if err != nil {
		return nil, c.explain(err)
	}
	var out []*unstructured.Unstructured
	for _, m := range list.Items {
		if m.Name == rootCertificate {
			out = append(out, named("ConfigMap", m.Namespace, m.Name))
		}
	}
	return out, nil
}

func (c *Cluster) ownDefinitions(ctx context.Context) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, kind := range slices.Backward(definitions) {
		list, err := c.Dynamic.Resource(resources[kind].GroupVersionResource).List(ctx, metav1.ListOptions{LabelSelector: ours})
		if err != nil {
			return nil, c.explain(err)
		}
		for i := range list.Items {
			list.Items[i].SetKind(kind)
			if isDefinition(&list.Items[i]) {
				out = append(out, &list.Items[i])
			}
		}
	}
	return out, nil
}

// Run releases all pods, removes the mesh, and waits until it is gone.
func (r *Removal) Run(ctx context.Context) error {
	return r.cluster.alone(ctx, &r.options, "uninstall", r.found, r.run)
}

func (r *Removal) run(ctx context.Context, l *lock) error {
	c, o := r.cluster, r.options
	stays, err := c.namespaces().stays(ctx, r.record.Namespace)
	if err != nil {
		return err
	}
	r.record.State = stateUninstalling
	if stays == namespaceStays { // else nothing can be noted there, and nothing needs to
		if err := c.keep(ctx, r.record); err != nil {
			return err
		}
	}
	if err := r.release(ctx); err != nil {
		return err
	}
	o.started("remove", "removing the mesh's parts")
	removed := 0
	for _, s := range r.Plan.Steps {
		if s.Action != Delete || s.Kind == "Namespace" || isDefinition(s.object) || isAnchor(s) {
			continue
		}
		if err := c.objects().remove(ctx, s.object); err != nil {
			return err
		}
		removed++
		if s.Kind == "DaemonSet" || s.Kind == "Deployment" {
			o.goesOn("remove", "removing %s", s.Name)
			if err := r.ended(ctx, s); err != nil {
				return err
			}
		}
	}
	// What the control plane wrote while it still ran.
	roots, err := c.rootCertificates(ctx)
	if err != nil {
		return err
	}
	for _, l := range leftovers {
		roots = append(roots, named(l.kind, r.record.Namespace, l.name))
	}
	for _, object := range roots {
		if err := c.objects().remove(ctx, object); err != nil {
			return err
		}
	}
	for _, lease := range []string{"lateen-control", "lateen-deployer"} {
		if err := c.Client.CoordinationV1().Leases(r.record.Namespace).Delete(ctx, lease, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return c.explain(err)
		}
	}
	o.done("remove", "parts removed (%d objects)", removed)
	if err := r.takeBack(ctx); err != nil {
		return err
	}
	return r.last(ctx, l)
}

// takeBack removes what the control plane, which is gone, wrote into the status of users' objects. What cannot be taken back is told: it is no
// reason to leave the rest.
func (r *Removal) takeBack(ctx context.Context) error {
	o := r.options
	o.started("conditions", "taking conditions back from objects")
	n, err := withdraw.All(ctx, r.cluster.Dynamic)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		o.done("conditions", "conditions taken back from %d objects; not from all: %v", n, err)
		return nil
	}
	o.done("conditions", "conditions taken back from %d objects", n)
	return nil
}

// last removes definitions and namespaces, and at the very end what the installation is found by.
func (r *Removal) last(ctx context.Context, l *lock) error {
	c := r.cluster
	var own, others []Step
	for _, s := range r.Plan.Steps {
		switch {
		case s.Action != Delete:
		case isDefinition(s.object):
			if err := c.objects().remove(ctx, s.object); err != nil {
				return err
			}
		case s.Kind == "Namespace" && s.Name == r.record.Namespace:
			own = append(own, s)
		case s.Kind == "Namespace":
			others = append(others, s)
		}
	}
	for _, s := range others {
		if err := r.removeNamespace(ctx, s); err != nil {
			return err
		}
	}
	record := named("ConfigMap", r.record.Namespace, recordName)
	if l.held() { // else it goes with its namespace, and one that is there later is another's
		if err := c.objects().remove(ctx, record); err != nil {
			return err
		}
	}
	l.ending.Store(len(own) > 0)
	for _, s := range own {
		if err := r.removeNamespace(ctx, s); err != nil {
			return err
		}
	}
	// What somebody installs as soon as the namespace is gone is found by the same.
	if stays, err := c.namespaces().stays(ctx, r.record.Namespace); err != nil {
		return err
	} else if stays == namespaceStays {
		if live, err := c.objects().get(ctx, record); err != nil {
			return err
		} else if live != nil {
			return meanwhile(r.record.Namespace)
		}
	}
	return c.objects().remove(ctx, named("ClusterRoleBinding", "", anchorName))
}

// removeNamespace removes a namespace and waits until it is gone. What somebody put there since the plan was made keeps it.
func (r *Removal) removeNamespace(ctx context.Context, s Step) error {
	c, o := r.cluster, r.options
	stays, err := c.namespaces().stays(ctx, s.Name)
	if err != nil {
		return err
	}
	if stays == namespaceStays {
		what, err := c.namespaces().inUse(ctx, s.Name, r.kindsToGo())
		if err != nil {
			return err
		}
		if what != "" {
			o.done("namespaces", "namespace %s stays: %s", s.Name, what)
			return nil
		}
	}
	o.started("namespaces", "removing namespace %s", s.Name)
	if err := c.objects().remove(ctx, s.object); err != nil {
		return err
	}
	if err := c.namespaces().gone(ctx, s.Name); err != nil {
		return err
	}
	o.done("namespaces", "namespace %s removed", s.Name)
	return nil
}

// ended waits until the pods of a part that was deleted are gone. Nobody can end those on a node that is down; they are taken off the list,
// so that their namespace can go.
func (r *Removal) ended(ctx context.Context, s Step) error {
	c := r.cluster
	down, err := c.nodeAgents().down(ctx)
	if err != nil {
		return err
	}
	selector := "app=" + s.Name
	list, err := c.Client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return c.explain(err)
	}
	now := int64(0)
	for _, p := range list.Items {
		if !down[p.Spec.NodeName] {
			continue
		}
		err := c.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return c.explain(err)
		}
	}
	return c.rollouts().podsGone(ctx, s.Namespace, selector)
}

// remove deletes an object; one that is gone already is fine.
func (c objects) remove(ctx context.Context, o *unstructured.Unstructured) error {
	client, err := c.of(o)
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	err = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return c.server.explain(err)
}

func (c rollouts) podsGone(ctx context.Context, namespace, selector string) error {
	left := 0
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		list, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return false, c.server.explain(err)
		}
		left = len(list.Items)
		return left == 0, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s of %s in namespace %s have not ended yet: %w; repeat the command to go on", pods(left), selector, namespace, err)
	}
	return err
}
