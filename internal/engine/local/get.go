package local

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
)

// serve answers get.
func (u *userObjects) serve(r *http.Request) (any, error) {
	q := r.URL.Query()
	req := api.GetRequest{Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: q.Get("name"), Group: cmp.Or(q.Get("group"), api.NamedGroup(q.Get("kind"))), Selector: q.Get("selector"), AllNamespaces: q.Get("all") == "true"}
	kind, known := kindOf(req.Kind)
	if !known {
		return nil, &api.Error{Code: http.StatusNotFound, Message: fmt.Sprintf("unknown kind %q", req.Kind), Fix: "use a kind such as pods, services, deployments or authorizationpolicies"}
	}
	selector, err := labels.Parse(req.Selector)
	if err != nil {
		return nil, &api.Error{Code: http.StatusBadRequest, Message: "selector " + req.Selector + ": " + err.Error(), Fix: "write it as in app=web,tier!=db"}
	}
	if req.Namespace == "" {
		req.Namespace = defaultNamespace
	}
	items, err := u.list(kind.Name)
	if err != nil {
		return nil, err
	}
	list := api.ObjectList{Items: []api.Object{}}
	for _, o := range items {
		switch {
		case o.Key.Namespace != "" && !req.AllNamespaces && o.Key.Namespace != req.Namespace:
		case req.Name != "" && o.Key.Name != req.Name:
		case req.Group != "" && o.Key.Group != api.SharedGroup(kind.Name, req.Group):
		case !selector.Matches(labels.Set(labelsIn(o.Raw))):
		default:
			list.Items = append(list.Items, o)
		}
	}
	if req.Name != "" && !req.AllNamespaces && len(list.Items) > 1 {
		return nil, api.Ambiguous(list.Items[0].Key)
	}
	if req.Name != "" && len(list.Items) == 0 {
		k := api.Key{Group: req.Group, Kind: kind.Name, Name: req.Name}
		if kind.Namespaced {
			k.Namespace = req.Namespace
		}
		return nil, notFound(k)
	}
	if len(list.Items) > 0 {
		said, err := u.statuses.read(r.Context(), kind.Name)
		if err != nil {
			list.Unasked = err.Error()
		}
		attach(kind.Name, list.Items, said)
		u.complain(list.Items)
	}
	return list, nil
}

// complain gives each Gateway that is not deployed the reason. The control plane does not know it.
func (u *userObjects) complain(items []api.Object) {
	u.state.mu.Lock()
	defer u.state.mu.Unlock()
	for i, o := range items {
		k := model.Key{Group: groupOf(o.APIVersion), Kind: o.Key.Kind, Namespace: o.Key.Namespace, Name: o.Key.Name}
		if why := u.state.complaints[k]; k.Kind == "Gateway" && why != "" {
			items[i].Problems = append(items[i].Problems, complaint(k, why))
		}
	}
}

// list lists the objects of a kind with their status.
func (u *userObjects) list(kind string) ([]api.Object, error) {
	u.state.mu.Lock()
	defer u.state.mu.Unlock()
	var out []api.Object
	add := func(o metav1.Object, apiVersion string) error {
		raw, err := json.Marshal(o)
		if err != nil {
			return err
		}
		out = append(out, api.Object{Key: api.Key{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}, APIVersion: apiVersion,
			Raw: raw, Created: o.GetCreationTimestamp().Time})
		return nil
	}
	switch kind {
	case "Pod":
		for _, p := range u.state.reportPods() {
			if err := add(p, "v1"); err != nil {
				return nil, err
			}
		}
		for _, o := range u.state.store.list("Pod") { // the Pods without a process so far
			if len(u.state.podsOf(o.Key)) == 0 {
				p := o.Value.(*corev1.Pod).DeepCopy()
				p.Status = corev1.PodStatus{Phase: corev1.PodPending, Message: u.state.complaints[o.Key]}
				if why := p.Status.Message; why != "" {
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why}}
				}
				if err := add(p, "v1"); err != nil {
					return nil, err
				}
			}
		}
	case "Node":
		for _, n := range u.state.reportNodes() {
			if err := add(n, "v1"); err != nil {
				return nil, err
			}
		}
	default:
		for _, o := range u.state.store.list(kind) {
			live := o.live
			var err error
			if kind == "Deployment" {
				if live, err = withStatus(live, u.state.deploymentStatus(o)); err != nil {
					return nil, err
				}
			}
			raw, err := json.Marshal(live)
			if err != nil {
				return nil, err
			}
			out = append(out, api.Object{Key: apiKey(o.Key), APIVersion: o.APIVersion, Raw: raw, Created: o.created, File: o.File, Ignored: ignored(o)})
		}
	}
	slices.SortFunc(out, func(a, b api.Object) int {
		return strings.Compare(a.Key.Namespace+"/"+a.Key.Name, b.Key.Namespace+"/"+b.Key.Name)
	})
	return out, nil
}

// kindOf finds a kind by any word for it: those that the mesh is about by their short names as well, and the others that can be stored.
func kindOf(word string) (api.Kind, bool) {
	if kind, ok := api.LookupKind(word); ok {
		return kind, true
	}
	name, namespaced, ok := files.KindNamed(word)
	if len(api.SharedKind(name)) > 0 {
		return api.Kind{}, false // of a group that has no such kind
	}
	return api.Kind{Name: name, Namespaced: namespaced}, ok
}

// inKind writes the kind of a key as it is stored, whatever the word for it was.
func inKind(k api.Key) api.Key {
	if kind, ok := kindOf(k.Kind); ok {
		k.Group = api.SharedGroup(kind.Name, cmp.Or(k.Group, api.NamedGroup(k.Kind)))
		k.Kind = kind.Name
		if !kind.Namespaced {
			k.Namespace = ""
		}
	}
	return k
}

// ignored says why nothing acts on an object; empty if something does, or if the object's conditions say it.
func ignored(o *stored) string {
	if o.Support == model.Implemented || o.Kind == "Deployment" || strings.HasSuffix(o.Key.Group, ".istio.io") || o.Key.Group == model.GatewayGroup {
		return ""
	}
	return "stored but ignored: " + o.Reason
}

func labelsIn(raw []byte) map[string]string {
	var head struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(raw, &head) // it was made by us
	return head.Metadata.Labels
}

// groupOf is the API group of an apiVersion such as apps/v1; empty for the core's.
func groupOf(apiVersion string) string {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		return ""
	}
	return group
}
