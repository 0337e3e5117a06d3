package install

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rights are what a service account may do in the whole cluster, as far as it tells a mesh's part from what only bears its name: without
// them it could not be one.
type rights struct {
	// pods says that it may learn of all pods; callers that it may ask whose a token is.
	pods, callers bool
}

// control says whether a control plane could do with them.
func (r rights) control() bool { return r.pods && r.callers }

// capture says whether what captures pods could.
func (r rights) capture() bool { return r.pods }

// rightsOf is what administrators let service accounts do in the whole cluster. Many accounts have some right there, such as those of whoever
// serves an API of its own, in namespaces where others make the objects.
func (c conflictSearch) rightsOf(ctx context.Context) (func(namespace, account string) rights, error) {
	bindings, err := c.client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.server.explain(err)
	}
	roles, err := c.client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.server.explain(err)
	}
	of := map[string]rights{}
	for _, r := range roles.Items {
		of[r.Name] = rights{pods: allow(r.Rules, "", "pods", "list", "watch"), callers: allow(r.Rules, "authentication.k8s.io", "tokenreviews", "create")}
	}
	type who struct{ kind, namespace, name string }
	have := map[who]rights{}
	for _, b := range bindings.Items {
		for _, s := range b.Subjects {
			w, more := who{s.Kind, s.Namespace, s.Name}, of[b.RoleRef.Name]
			if s.Kind != rbacv1.ServiceAccountKind {
				w.namespace = ""
			}
			have[w] = rights{have[w].pods || more.pods, have[w].callers || more.callers}
		}
	}
	return func(namespace, account string) (all rights) {
		for _, w := range []who{
			{rbacv1.ServiceAccountKind, namespace, account}, {rbacv1.GroupKind, "", "system:serviceaccounts:" + namespace},
			{rbacv1.GroupKind, "", "system:serviceaccounts"}, {rbacv1.GroupKind, "", "system:authenticated"},
			{rbacv1.UserKind, "", "system:serviceaccount:" + namespace + ":" + account}, // another way to write the first
		} {
			all = rights{all.pods || have[w].pods, all.callers || have[w].callers}
		}
		return all
	}, nil
}

// allow says whether rules let one of the verbs be done to all objects of a kind.
func allow(rules []rbacv1.PolicyRule, group, resource string, verbs ...string) bool {
	has := func(list []string, one string) bool { return slices.Contains(list, one) || slices.Contains(list, "*") }
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return len(r.ResourceNames) == 0 && has(r.APIGroups, group) && has(r.Resources, resource) && slices.ContainsFunc(verbs, func(v string) bool { return has(r.Verbs, v) })
	})
}
