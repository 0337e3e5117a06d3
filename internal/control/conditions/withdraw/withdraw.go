// Package withdraw removes what the control plane has written into the status of a cluster's objects: from all of them once the mesh is uninstalled, and
// from a Gateway that is left to another controller. What others wrote stays.
package withdraw

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// FieldManager is how the API server remembers what the control plane wrote.
const FieldManager = "lateen-control"

// Kind is one whose objects' status the control plane writes into.
type Kind struct {
	Group, Name, Resource string
	// Versions are those that there may be, the best first.
	Versions []string
}

var (
	istio      = []string{"v1", "v1beta1"}
	istioOlder = []string{"v1", "v1beta1", "v1alpha3"}
)

// Kinds are all of them.
var Kinds = []Kind{
	{model.SecurityGroup, "AuthorizationPolicy", "authorizationpolicies", istio},
	{model.SecurityGroup, "PeerAuthentication", "peerauthentications", istio},
	{model.SecurityGroup, "RequestAuthentication", "requestauthentications", istio},
	{model.NetworkGroup, "ServiceEntry", "serviceentries", istioOlder},
	{model.NetworkGroup, "WorkloadEntry", "workloadentries", istioOlder},
	{model.GatewayGroup, "GatewayClass", "gatewayclasses", istio},
	{model.GatewayGroup, "Gateway", "gateways", istio},
	{"", "Service", "services", []string{"v1"}},
}

// Types are the types of conditions that the control plane writes into objects of a group, the one last that says whether the proxies have it,
// or stands for that.
func Types(group string) []string {
	switch group {
	case "":
		return []string{wellknown.WaypointBound}
	case model.GatewayGroup:
		return []string{"Accepted", "Programmed"}
	case model.SecurityGroup:
		return []string{"Accepted", wellknown.WaypointBound, wellknown.WaypointAccepted, wellknown.Programmed}
	}
	return []string{"Accepted", wellknown.WaypointBound, wellknown.Programmed}
}

const (
	page  = 500
	tries = 5
)

// All takes back what was written into all objects, and says into how many it was. One kind that cannot be read or written keeps it from no other.
func All(ctx context.Context, client dynamic.Interface) (objects int, err error) {
	var failed []error
	for _, k := range Kinds {
		n, err := k.all(ctx, client)
		objects += n
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %s", k.Resource, kube.Cause(err)))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return objects, errors.Join(failed...)
}

func (k Kind) all(ctx context.Context, client dynamic.Interface) (n int, failed error) {
	for _, version := range k.Versions {
		of := client.Resource(schema.GroupVersionResource{Group: k.Group, Version: version, Resource: k.Resource})
		next := ""
		for {
			list, err := of.List(ctx, metav1.ListOptions{Limit: page, Continue: next})
			if apierrors.IsResourceExpired(err) {
				next = ""
				continue
			}
			if apierrors.IsNotFound(err) {
				break // there is no such version
			}
			if err != nil {
				return n, err
			}
			for i := range list.Items {
				did, err := k.one(ctx, of.Namespace(list.Items[i].GetNamespace()), &list.Items[i])
				if did {
					n++
				}
				if err != nil && failed == nil {
					failed = fmt.Errorf("%s/%s: %s", list.Items[i].GetNamespace(), list.Items[i].GetName(), kube.Cause(err))
				}
			}
			if next = list.GetContinue(); next == "" {
				return n, failed
			}
		}
	}
	return n, failed
}

// one takes back what was written into one object, again if somebody else writes meanwhile.
func (k Kind) one(ctx context.Context, of dynamic.ResourceInterface, u *unstructured.Unstructured) (bool, error) {
	for try := 1; ; try++ {
		patch, err := k.patch(u)
		if err != nil || patch == nil {
			return false, err
		}
		_, err = of.Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "lateen"}, "status")
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if !apierrors.IsConflict(err) || try == tries {
			return err == nil, err
		}
		if u, err = of.Get(ctx, u.GetName(), metav1.GetOptions{}); err != nil {
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return false, err
		}
	}
}

// patch is the merge patch that takes back what was written, nil if nothing was.
func (k Kind) patch(u *unstructured.Unstructured) ([]byte, error) {
	fields := wrote(u)
	own := func(condition string) bool {
		return (slices.Contains(Types(k.Group), condition) || condition == wellknown.Deployed) && fields.own(condition)
	}
	return k.without(u, own, fields.has)
}

// Gateway is the merge patch that takes out of a Gateway's status what the control plane wrote and nobody else did; nil if that is nothing. The deployer's
// condition stays.
func Gateway(u *unstructured.Unstructured) ([]byte, error) {
	fields, others := wrote(u), written{}
	for _, m := range u.GetManagedFields() {
		if m.Manager != FieldManager && m.Subresource == "status" && m.FieldsV1 != nil {
			if _, err := statusFields(m.FieldsV1.Raw); err != nil {
				return nil, fmt.Errorf("read the fields of manager %s: %w", m.Manager, err)
			}
			others = append(others, m.FieldsV1.Raw)
		}
	}
	k := Kind{Group: model.GatewayGroup, Name: "Gateway"}
	own := func(condition string) bool {
		return slices.Contains(Types(k.Group), condition) && fields.condition(condition) && !others.condition(condition)
	}
	return k.without(u, own, func(field string) bool { return fields.has(field) && !others.has(field) })
}

// without is the merge patch that takes conditions and, of a Gateway, fields of its own out of an object's status; nil if there are none of them.
func (k Kind) without(u *unstructured.Unstructured, own, has func(string) bool) ([]byte, error) {
	status, _, _ := unstructured.NestedMap(u.Object, "status") // a copy
	change := map[string]any{}
	if list, ok := status["conditions"].([]any); ok {
		left := slices.DeleteFunc(slices.Clone(list), func(raw any) bool {
			c, _ := raw.(map[string]any)
			name, _ := c["type"].(string)
			return own(name)
		})
		switch {
		case len(left) == len(list):
		case len(left) == 0:
			change["conditions"] = nil
		default:
			change["conditions"] = left
		}
	}
	if k.Name == "Gateway" {
		for _, field := range []string{"listeners", "addresses"} {
			if status[field] != nil && has(field) {
				change[field] = nil
			}
		}
	}
	if len(change) == 0 {
		return nil, nil
	}
	for field, to := range change {
		if to == nil {
			delete(status, field)
		}
	}
	body := map[string]any{"metadata": map[string]any{"resourceVersion": u.GetResourceVersion(), "uid": string(u.GetUID())}, "status": change}
	if len(status) == 0 {
		body["status"] = nil // as it was at first, with what the kind's definition has for a status that nobody has written
	}
	return json.Marshal(body)
}

// written is what the API server remembers of the fields that somebody wrote into a status.
type written [][]byte

func wrote(u *unstructured.Unstructured) written {
	var out written
	for _, m := range u.GetManagedFields() {
		if m.Manager == FieldManager && m.Subresource == "status" && m.FieldsV1 != nil {
			out = append(out, m.FieldsV1.Raw)
		}
	}
	return out
}

// Wrote says whether a condition of an object, whose kind is of a group, is what the control plane wrote.
func Wrote(u *unstructured.Unstructured, group, condition string) bool {
	return slices.Contains(Types(group), condition) && wrote(u).own(condition)
}

// Managers are the names under which the API server remembers who wrote a condition of an object, or the whole list where its entries are not told apart.
func Managers(u *unstructured.Unstructured, condition string) (names []string) {
	for _, m := range u.GetManagedFields() {
		if m.Subresource == "status" && m.FieldsV1 != nil && (written{m.FieldsV1.Raw}).condition(condition) {
			names = append(names, m.Manager)
		}
	}
	return names
}

// own says of a condition whether it is the control plane's. One that bears the mesh's own name is, whoever wrote the list last.
func (w written) own(name string) bool {
	return name == wellknown.Programmed || name == wellknown.Deployed || w.condition(name)
}

// condition says whether a condition was written, or the whole list where its entries are not told apart.
func (w written) condition(name string) bool {
	entry := fieldpath.PathElement{Key: &value.FieldList{{Name: "type", Value: value.NewValueInterface(name)}}}
	return slices.ContainsFunc(w, func(raw []byte) bool {
		status, err := statusFields(raw)
		if err != nil {
			return false
		}
		list := member("conditions")
		conditions := status.WithPrefix(list)
		return status.Members.Has(list) && conditions.Empty() || holds(conditions, entry)
	})
}

// has says whether a field of the status was written, or something in it.
func (w written) has(field string) bool {
	return slices.ContainsFunc(w, func(raw []byte) bool {
		status, err := statusFields(raw)
		return err == nil && holds(status, member(field))
	})
}

// statusFields are the fields of the status that a manager wrote.
func statusFields(raw []byte) (*fieldpath.Set, error) {
	all := &fieldpath.Set{}
	if err := all.FromJSON(bytes.NewReader(raw)); err != nil {
		return nil, err
	}
	return all.WithPrefix(member("status")), nil
}

func member(name string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &name} }

// holds says whether a set has an element, or something in it.
func holds(set *fieldpath.Set, e fieldpath.PathElement) bool {
	return set.Members.Has(e) || !set.WithPrefix(e).Empty()
}
