package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/meshconfig"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// only is the group of the only object of a name, for a kind whose name several groups have; empty for every other kind, and if no group has
// the object. Objects of several groups are an error: a change must not go to the wrong one.
func (e *Engine) only(ctx context.Context, key api.Key) (string, error) {
	if k, known := api.LookupKind(key.Kind); known {
		key.Group, key.Kind = cmp.Or(key.Group, api.NamedGroup(key.Kind)), k.Name
	}
	if key.Group != "" {
		return key.Group, nil
	}
	for _, group := range api.SharedKind(key.Kind) {
		client, _, err := e.kind(key.Kind+"."+group, key.Namespace, false)
		if err != nil {
			return "", err
		}
		_, err = client.Get(ctx, key.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err): // of the object, or of the kind
		case err != nil:
			return "", e.refused(err)
		case key.Group != "":
			return "", api.Ambiguous(key)
		default:
			key.Group = group
		}
	}
	return key.Group, nil
}

// inGroup is a kind's name with its group behind it, if there is one.
func inGroup(kind, group string) string {
	if group == "" {
		return kind
	}
	return kind + "." + group
}

// keyOf names an object.
func keyOf(apiVersion, kind, namespace, name string) api.Key {
	return api.Key{Group: api.SharedGroup(kind, schema.FromAPIVersionAndKind(apiVersion, kind).Group), Kind: kind, Namespace: namespace, Name: name}
}

// kind reaches the objects of a kind.
func (e *Engine) kind(name, namespace string, all bool) (dynamic.ResourceInterface, api.Kind, error) {
	k, known := api.LookupKind(name)
	if !known {
		return nil, k, &api.Error{Code: http.StatusBadRequest, Message: fmt.Sprintf("%q is no kind that the mesh is about", name), Fix: "kubectl get " + name}
	}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil {
		return nil, k, err
	}
	client := e.Dynamic.Resource(gv.WithResource(k.Plural))
	if !k.Namespaced || all {
		return client, k, nil
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return client.Namespace(namespace), k, nil
}

// objects answers get. A list of a kind whose name several groups have is of all these groups, unless the request names one.
func (e *Engine) objects(r *http.Request) (any, error) {
	q := r.URL.Query()
	named := inGroup(q.Get("kind"), q.Get("group"))
	k, _ := api.LookupKind(named)
	groups := api.SharedKind(k.Name)
	if len(groups) == 0 || q.Get("name") != "" || api.NamedGroup(named) != "" {
		return e.objectsOf(r, named)
	}
	all := api.ObjectList{Items: []api.Object{}}
	var missing error
	served := 0
	for _, group := range groups {
		list, err := e.objectsOf(r, inGroup(k.Name, group))
		var refusal *api.Error
		switch {
		case errors.As(err, &refusal) && refusal.Code == http.StatusNotFound:
			missing = cmp.Or(missing, err) // the cluster does not have the kind in this group
			continue
		case err != nil:
			return nil, err
		}
		served++
		all.Items, all.Unasked = append(all.Items, list.Items...), cmp.Or(all.Unasked, list.Unasked)
	}
	if served == 0 {
		return nil, missing
	}
	return all, nil
}

// objectsOf lists the objects of the cluster of one kind, or the named one, with what the control plane says of them.
func (e *Engine) objectsOf(r *http.Request, named string) (none api.ObjectList, err error) {
	q := r.URL.Query()
	if name := q.Get("name"); name != "" {
		group, err := e.only(r.Context(), api.Key{Group: q.Get("group"), Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: name})
		if err != nil {
			return none, err
		}
		if q.Get("group") == "" && api.NamedGroup(named) == "" {
			named = inGroup(named, group)
		}
	}
	client, k, err := e.kind(named, q.Get("namespace"), q.Get("all") == "true")
	if err != nil {
		return none, err
	}
	var items []unstructured.Unstructured
	if name := q.Get("name"); name != "" {
		o, err := client.Get(r.Context(), name, metav1.GetOptions{})
		if err != nil {
			return none, e.refused(err)
		}
		items = append(items, *o)
	} else {
		list, err := client.List(r.Context(), metav1.ListOptions{LabelSelector: q.Get("selector")})
		if err != nil {
			return none, e.refused(err)
		}
		items = list.Items
	}
	out := api.ObjectList{Items: []api.Object{}}
	var said map[api.Key]said
	if configures(k, items) {
		about := url.Values{"kind": {k.Name}, "name": {q.Get("name")}}
		if q.Get("name") != "" && k.Namespaced {
			about.Set("namespace", items[0].GetNamespace())
		}
		present := map[api.Key]*unstructured.Unstructured{}
		for i := range items {
			present[keyOf(k.APIVersion, k.Name, items[i].GetNamespace(), items[i].GetName())] = &items[i]
		}
		if said, err = e.said(r.Context(), about, present); err != nil {
			out.Unasked = err.Error()
		}
	}
	var owners map[types.UID][]string
	if q.Get("owners") == "true" {
		// After the objects: whatever controls one of them is there by now, or gone.
		if owners, err = e.owners(r.Context(), items); err != nil {
			return none, err
		}
	}
	for i := range items {
		o := &items[i]
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(k.APIVersion, k.Name))
		kept, current := left(o)
		unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
		raw, err := o.MarshalJSON()
		if err != nil {
			return none, err
		}
		key := keyOf(k.APIVersion, k.Name, o.GetNamespace(), o.GetName())
		object := api.Object{Key: key, APIVersion: o.GetAPIVersion(), Raw: raw, Created: o.GetCreationTimestamp().Time,
			Owners: owners[o.GetUID()]}
		if s, found := said[key]; found && s.group == schema.FromAPIVersionAndKind(o.GetAPIVersion(), "").Group {
			object.Conditions, object.Problems, object.Findings, object.Judged = s.conditions, s.problems, s.findings, !s.former
		} else if out.Unasked != "" && current {
			object.Conditions = kept
		}
		out.Items = append(out.Items, object)
	}
	return out, nil
}

// owners are the UIDs of what controls objects by way of their ReplicaSet, by the objects' own UIDs.
func (e *Engine) owners(ctx context.Context, items []unstructured.Unstructured) (map[types.UID][]string, error) {
	sets := map[string]map[types.UID]string{} // by namespace: whose a ReplicaSet is, by its UID
	out := map[types.UID][]string{}
	for i := range items {
		o := &items[i]
		set := metav1.GetControllerOf(o)
		if set == nil || set.Kind != "ReplicaSet" {
			continue
		}
		namespace := o.GetNamespace()
		if sets[namespace] == nil {
			list, err := e.Client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, e.refused(err)
			}
			sets[namespace] = map[types.UID]string{}
			for j := range list.Items {
				if by := metav1.GetControllerOf(&list.Items[j]); by != nil {
					sets[namespace][list.Items[j].UID] = string(by.UID)
				}
			}
		}
		if uid := sets[namespace][set.UID]; uid != "" {
			out[o.GetUID()] = append(out[o.GetUID()], uid)
		}
	}
	return out, nil
}

// configures says whether the control plane says anything of objects of a kind. Of ConfigMaps it reads the one with the mesh's settings alone, so
// that nobody waits for it about others.
func configures(k api.Kind, items []unstructured.Unstructured) bool {
	if k.Name == "ConfigMap" {
		return slices.ContainsFunc(items, func(o unstructured.Unstructured) bool { return o.GetName() == meshconfig.ObjectName })
	}
	return strings.Contains(k.APIVersion, ".istio.io/") || strings.HasPrefix(k.APIVersion, model.GatewayGroup+"/") || k.Name == "Service" || k.Name == "Pod" || k.Name == "Namespace"
}

// said is what the control plane says of an object.
type said struct {
	group      string
	conditions []api.Condition
	problems   []api.Problem
	findings   []api.Finding
	former     bool // a replica has not read the present version yet
}

// said asks every replica about the objects of a kind, or one of them. What one of them has to complain about counts: its proxies are refused the same object.
// Words of a replica about an earlier version count for nothing, except that the replica does not know the present one.
func (e *Engine) said(ctx context.Context, about url.Values, present map[api.Key]*unstructured.Unstructured) (map[api.Key]said, error) {
	pods, err := e.pods(ctx, "control")
	if err != nil {
		return nil, err
	}
	out := map[api.Key]said{}
	asked := 0
	for i := range pods {
		if !ready(&pods[i]) {
			continue
		}
		b, _, err := e.read(ctx, &pods[i], controlPages, "/debug/objects?"+about.Encode())
		if err != nil {
			return nil, err
		}
		var objects []struct {
			APIVersion string          `json:"apiVersion"`
			Kind       string          `json:"kind"`
			Namespace  string          `json:"namespace"`
			Name       string          `json:"name"`
			UID        string          `json:"uid"`
			Observed   int64           `json:"observedGeneration"`
			Conditions []api.Condition `json:"conditions"`
			Problems   []api.Problem   `json:"problems"`
			Findings   []api.Finding   `json:"findings"`
		}
		if err := json.Unmarshal(b, &objects); err != nil {
			return nil, fmt.Errorf("read what pod %s says of objects: %w", pods[i].Name, err)
		}
		asked++
		for _, o := range objects {
			key, former := keyOf(o.APIVersion, o.Kind, o.Namespace, o.Name), false
			if now := present[key]; now != nil && (o.UID != "" && o.UID != string(now.GetUID()) || o.Observed > 0 && o.Observed < now.GetGeneration()) {
				former, o.Findings = true, nil
				o.Conditions, o.Problems = []api.Condition{{Type: wellknown.Programmed, Status: string(metav1.ConditionFalse), Reason: wellknown.ReasonAwaited,
					Message: "replica " + pods[i].Name + " does not know this version of it yet"}}, nil
			}
			s := out[key]
			s.group = schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).Group
			s.conditions, s.former = worst(s.conditions, o.Conditions), s.former || former
			// The replicas read the same objects: what one finds the others find, once they have read as far.
			if len(s.findings) == 0 {
				s.findings = o.Findings
			}
			for _, p := range o.Problems {
				if !slices.Contains(s.problems, p) {
					s.problems = append(s.problems, p)
				}
			}
			out[key] = s
		}
	}
	if asked == 0 {
		_, err := e.replica(ctx)
		return nil, err
	}
	return out, nil
}

// rank orders what conditions say: whoever denies goes before who does not know.
var rank = map[string]int{"False": 2, "Unknown": 1, "True": 0}

// worst joins what two replicas say.
func worst(a, b []api.Condition) []api.Condition {
	for _, c := range b {
		i := slices.IndexFunc(a, func(x api.Condition) bool { return x.Type == c.Type })
		switch {
		case i < 0:
			a = append(a, c)
		case rank[c.Status] > rank[a[i].Status]:
			a[i] = c
		}
	}
	return a
}

// enrolled says whether labels ask for a pod to be captured that can be.
func enrolled(podLabels, namespaceLabels map[string]string, capturable bool) bool {
	return capturable && wellknown.Enrolled(podLabels, namespaceLabels)
}
