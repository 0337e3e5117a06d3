package install

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"lateen.dev/lateen/internal/kube"
)

// defaultRoot is the namespace of mesh-wide policies where the values name no other.
const defaultRoot = "istio-system"

// rootNamespace is the namespace of mesh-wide policies.
func rootNamespace(values map[string]any) string {
	if mesh, ok := values["mesh"].(map[string]any); ok {
		if name, ok := mesh["rootNamespace"].(string); ok && name != "" {
			return name
		}
	}
	return defaultRoot
}

// namespaces are those that the mesh needs.
func (i *Installation) namespaces() []*unstructured.Unstructured {
	out := []*unstructured.Unstructured{named("Namespace", "", i.options.Namespace)}
	// The agent needs what the stricter levels of Pod Security forbid.
	out[0].SetLabels(map[string]string{managedBy: lateen, partOf: lateen, "pod-security.kubernetes.io/enforce": "privileged"})
	if root := rootNamespace(i.want.values); root != i.options.Namespace {
		n := named("Namespace", "", root)
		n.SetLabels(map[string]string{managedBy: lateen, partOf: lateen})
		out = append(out, n)
	}
	return out
}

// namespaceStep keeps a namespace in which users have something.
func (r *Removal) namespaceStep(ctx context.Context, o *unstructured.Unstructured) (Step, error) {
	stays, err := r.cluster.namespaces().stays(ctx, o.GetName())
	if err != nil {
		return Step{}, err
	}
	if stays == namespaceGoes && o.GetName() == r.record.Namespace {
		return step(Delete, o, "it is being removed already"), nil
	}
	if !slices.Contains(r.record.Namespaces, o.GetName()) {
		return step(Keep, o, "it was there before"), nil
	}
	what, err := r.cluster.namespaces().inUse(ctx, o.GetName(), r.kindsToGo())
	if err != nil {
		return Step{}, err
	}
	if what != "" {
		return step(Keep, o, what), nil
	}
	return step(Delete, o, ""), nil
}

// kindsToGo are those whose definitions are removed, and all objects with them.
func (r *Removal) kindsToGo() []string {
	var out []string
	for _, s := range r.Plan.Steps {
		if s.Action == Delete && s.Kind == "CustomResourceDefinition" {
			out = append(out, s.Name)
		}
	}
	return out
}

// makesItself are objects that Kubernetes, or the control plane, makes in a namespace by itself: nobody misses them.
var makesItself = map[schema.GroupResource][]string{
	{Resource: "serviceaccounts"}:                      {"default"},
	{Resource: "configmaps"}:                           {"kube-root-ca.crt", "lateen-assignments"},
	{Resource: "secrets"}:                              {"lateen-ca"},
	{Group: "coordination.k8s.io", Resource: "leases"}: {"lateen-control", lockName},
}

// derived are kinds of which all objects follow from others, or only tell of them.
var derived = []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}, {Resource: "endpoints"}}

// measures are API groups that hold no objects: what they list is measured, and a server that cannot measure is often away.
var measures = []string{"metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"}

// inUse says what somebody has in a namespace besides the mesh; it is empty only if it is certain that nobody has anything. Kinds whose
// definitions go do not count, as PLURAL.GROUP.
func (c namespaces) inUse(ctx context.Context, namespace string, going []string) (string, error) {
	lists, err := discovery.ServerPreferredNamespacedResources(c.discovery)
	var failed *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &failed) {
		for gv, why := range failed.Groups {
			if !slices.Contains(measures, gv.Group) {
				return fmt.Sprintf("the API server cannot say which kinds of %s it has: %s", gv, kube.Cause(why)), nil
			}
		}
	} else if err != nil {
		return "", c.server.explain(err)
	}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return "", err
		}
		for _, r := range l.APIResources {
			kind := gv.WithResource(r.Name)
			if !slices.Contains(r.Verbs, "list") || slices.Contains(derived, kind.GroupResource()) || slices.Contains(measures, gv.Group) || slices.Contains(going, kind.GroupResource().String()) {
				continue
			}
			if what, err := c.foreign(ctx, kind, namespace); what != "" || err != nil {
				return what, err
			}
		}
	}
	return "", nil
}

// listPage is how many objects are looked at in one answer.
const listPage = 250

// foreign names an object of a kind that is not the mesh's, or says why it is not known whether there is one.
func (c namespaces) foreign(ctx context.Context, kind schema.GroupVersionResource, namespace string) (string, error) {
	for next := ""; ; {
		list, err := c.dynamic.Resource(kind).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: listPage, Continue: next})
		switch {
		case apierrors.IsNotFound(err):
			return "", nil // the kind has gone
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err != nil:
			return fmt.Sprintf("its %s cannot be listed: %s", kind.GroupResource(), kube.Cause(err)), nil
		}
		for i := range list.Items {
			if o := &list.Items[i]; !follows(kind.GroupResource(), o) {
				return fmt.Sprintf("it has %s/%s", kind.GroupResource(), o.GetName()), nil
			}
		}
		if next = list.GetContinue(); next == "" {
			return "", nil
		}
	}
}

// follows says whether an object is the mesh's, or is there only because another is.
func follows(kind schema.GroupResource, o *unstructured.Unstructured) bool {
	l := o.GetLabels()
	if l[managedBy] == lateen || l[partOf] == lateen || slices.Contains(makesItself[kind], o.GetName()) {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(o)
	// The owner is looked at itself, if it is in the namespace; what else owns something may be outside of it.
	return owner != nil && slices.Contains([]string{"v1", "apps/v1", "batch/v1"}, owner.APIVersion) && owner.Kind != "Node"
}
