package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lateen.dev/lateen/internal/control/conditions/withdraw"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// left are the conditions that the control plane has left in an object's status; current says that they are about the object as it is now.
func left(o *unstructured.Unstructured) (conditions []api.Condition, current bool) {
	group := o.GroupVersionKind().Group
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	current = true
	for _, raw := range list {
		m, _ := raw.(map[string]any)
		text := func(field string) string { s, _ := m[field].(string); return s }
		if !withdraw.Wrote(o, group, text("type")) {
			continue
		}
		since, _ := time.Parse(time.RFC3339, text("lastTransitionTime")) // zero if it does not say
		conditions = append(conditions, api.Condition{Type: text("type"), Status: text("status"), Reason: text("reason"), Message: text("message"), Since: since})
		if seen, _, _ := unstructured.NestedInt64(m, "observedGeneration"); seen < o.GetGeneration() {
			current = false
		}
	}
	return conditions, current && len(conditions) > 0
}

// asked says whether any replica has told what it knows.
func asked(views []view) bool {
	return slices.ContainsFunc(views, func(v view) bool { return v.err == nil })
}

// judged are the kinds of which the control plane says of each object whether it takes it. Of Services and Gateways it speaks only where they are
// the mesh's.
var judged = []string{"AuthorizationPolicy", "PeerAuthentication", "RequestAuthentication", "ServiceEntry", "WorkloadEntry"}

// unanswered is what the cluster itself tells while no replica answers: the objects that were refused when one last spoke of them, what is not
// known, and what to do next.
func (e *Engine) unanswered(ctx context.Context, s *api.Status) error {
	var newer []string
	for _, name := range append(slices.Clone(judged), "Gateway", "Service") {
		client, k, err := e.kind(name, "", true)
		if err != nil {
			return err
		}
		list, err := client.List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // nobody defines the kind
		} else if err != nil {
			return e.refused(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			o.SetGroupVersionKind(schema.FromAPIVersionAndKind(k.APIVersion, k.Name))
			key := api.Key{Kind: k.Name, Namespace: o.GetNamespace(), Name: o.GetName()}
			conditions, current := left(o)
			if !current {
				if len(conditions) > 0 || slices.Contains(judged, name) {
					newer = append(newer, asInProblems(key))
				}
				continue
			}
			for _, c := range conditions {
				if p, wrong := complaint(key, c); wrong {
					s.Problems = append(s.Problems, p)
				}
			}
		}
	}
	if len(newer) > 0 {
		s.Unknown = append(s.Unknown, "whether these are accepted, which were made or changed after the control plane last judged them, and are not in force: "+few(newer))
	}
	s.Unknown = append(s.Unknown, "which configuration the node proxies have acknowledged: each goes on with the last that it was sent",
		"the state of the certificate authority, and when certificates end: they last up to 24 hours, and none is renewed meanwhile",
		"whatever no object's condition says, such as proxies that refuse what they are sent, and policies that match nobody")
	s.Next = append(s.Next, "kubectl describe deployment -n "+e.Namespace+" lateen-control", "lateen logs control", "lateen check")
	return nil
}

// complaint is what is wrong with an object by a condition of it. One that only waits for proxies is not.
func complaint(key api.Key, c api.Condition) (api.Problem, bool) {
	if c.Status != string(metav1.ConditionFalse) || c.Reason == wellknown.ReasonAwaited || c.Reason == wellknown.ReasonNoProxies || c.Reason == wellknown.ReasonNotAccepted || c.Reason == wellknown.ReasonStandIn {
		return api.Problem{}, false
	}
	at := ""
	if !c.Since.IsZero() {
		at = " since " + c.Since.UTC().Format(time.DateTime) + " UTC"
	}
	return api.Problem{Object: asInProblems(key),
		Message: fmt.Sprintf("%s: %s (its condition %s is False%s; no control plane answers now)", c.Reason, c.Message, c.Type, at)}, true
}

// asInProblems is an object as the control plane names it in problems: who compares the two finds it once.
func asInProblems(key api.Key) string {
	return model.Key{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name}.String()
}

// few is a list, cut where nobody reads on.
func few(items []string) string {
	const most = 10
	if len(items) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(items[:most], ", "), len(items)-most)
	}
	return strings.Join(items, ", ")
}
