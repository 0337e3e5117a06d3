package install

import (
	"context"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/install/render"
)

// read are the kinds that are looked at in the whole cluster before anything is changed: what can be of the mesh, and where it would run.
func read() []schema.GroupResource {
	kinds := []schema.GroupResource{{Resource: "nodes"}, {Resource: "pods"}, {Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}}
	for _, r := range resources {
		kinds = append(kinds, r.GroupResource())
	}
	return kinds
}

// Missing asks which rights the caller lacks to install the objects, as "VERB RESOURCE" and where.
func (c *Cluster) Missing(ctx context.Context, objects []*unstructured.Unstructured) ([]string, error) {
	return c.permissions().missing(ctx, objects)
}

// permissions asks the API server for the rights of the caller.
type permissions struct {
	client kubernetes.Interface
	server apiServer
}

func (c *Cluster) permissions() permissions {
	return permissions{client: c.Client, server: apiServer(c.Host)}
}

func (c permissions) missing(ctx context.Context, objects []*unstructured.Unstructured) ([]string, error) {
	// A cluster administrator has them all, and is asked one question.
	everything, err := c.may(ctx, authorizationv1.ResourceAttributes{Group: "*", Version: "*", Resource: "*", Verb: "*"})
	if err != nil || everything {
		return nil, err
	}
	var missing []string
	asked := map[authorizationv1.ResourceAttributes]bool{}
	ask := func(q authorizationv1.ResourceAttributes) error {
		if asked[q] {
			return nil
		}
		asked[q] = true
		allowed, err := c.may(ctx, q)
		if err == nil && !allowed {
			missing = append(missing, right(q))
		}
		return err
	}
	for _, r := range read() {
		if err := ask(authorizationv1.ResourceAttributes{Group: r.Group, Resource: r.Resource, Verb: "list"}); err != nil {
			return nil, err
		}
	}
	for _, o := range objects {
		r, known := resources[o.GetKind()]
		if !known {
			continue
		}
		verbs := []string{"get", "create", "patch", "delete"}
		switch o.GetKind() {
		case "Deployment": // beside it is what a command holds while it is at work
			for _, verb := range []string{"create", "get", "update", "delete"} {
				if err := ask(authorizationv1.ResourceAttributes{Group: "coordination.k8s.io", Resource: "leases", Verb: verb, Namespace: o.GetNamespace()}); err != nil {
					return nil, err
				}
			}
		case "ClusterRole", "Role":
			verbs = append(verbs, "escalate")
		case "ClusterRoleBinding", "RoleBinding":
			verbs = append(verbs, "bind")
		}
		for _, verb := range verbs {
			q := authorizationv1.ResourceAttributes{Group: r.Group, Resource: r.Resource, Verb: verb, Namespace: o.GetNamespace()}
			if verb == "bind" {
				q.Resource = strings.TrimSuffix(r.Resource, "bindings") + "s" // the right is about the role
			}
			if err := ask(q); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing), nil
}

func right(q authorizationv1.ResourceAttributes) string {
	s := q.Verb + " " + q.Resource
	if q.Group != "" {
		s += "." + q.Group
	}
	if q.Namespace != "" {
		s += " in " + q.Namespace
	}
	return s
}

// may asks whether the caller has a right.
func (c permissions) may(ctx context.Context, q authorizationv1.ResourceAttributes) (bool, error) {
	review, err := c.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &q}}, metav1.CreateOptions{})
	if err != nil {
		return false, c.server.explain(err)
	}
	return review.Status.Allowed, nil
}

// permitted is an error that names what is missing.
func (c permissions) permitted(ctx context.Context, objects []*unstructured.Unstructured) error {
	missing, err := c.missing(ctx, objects)
	if err != nil || len(missing) == 0 {
		return err
	}
	return &api.Error{Code: 403, Message: "these credentials may not: " + strings.Join(missing, ", "),
		Fix: "use those of a cluster administrator (another --context), or have one grant these rights"}
}

// Everything is all that the charts have with their own values: what permissions are checked for before anything is chosen.
func Everything(o Options) ([]*unstructured.Unstructured, error) {
	d, err := desired(o, "", true)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(d.crds, d.objects)
	render.Sort(all)
	return all, nil
}
