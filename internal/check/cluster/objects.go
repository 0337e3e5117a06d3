package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model"
)

// judged are the kinds of which the control plane writes into each object's status whether it is accepted.
var judged = []struct{ group, kind, resource string }{
	{model.SecurityGroup, "AuthorizationPolicy", "authorizationpolicies"}, {model.SecurityGroup, "PeerAuthentication", "peerauthentications"},
	{model.SecurityGroup, "RequestAuthentication", "requestauthentications"},
	{model.NetworkGroup, "ServiceEntry", "serviceentries"}, {model.NetworkGroup, "WorkloadEntry", "workloadentries"},
}

func probeObjects(ctx context.Context, t *Target) (string, *Finding) {
	s, problem := t.look(ctx)
	if problem != nil {
		return "", problem
	}
	if s.Control.Error != "" {
		return "", t.unheard(ctx, s)
	}
	wrong := complaints(s)
	for _, k := range judged {
		err := t.eachOf(ctx, k.group, k.resource, func(o *unstructured.Unstructured) error {
			if status, message := acceptance(o); status == "False" && !told(s, k.kind, o) {
				wrong = append(wrong, called(k.kind, o)+": "+message)
			}
			return nil
		})
		if err != nil {
			return "", unable(err)
		}
	}
	if len(wrong) > 0 {
		return "", finding("lateen status lists them all, with what to correct", "%s", someOf(wrong, "; "))
	}
	return "no complaint", nil
}

// complaints are what the control plane and the proxies say of objects.
func complaints(s *api.Status) (wrong []string) {
	for _, p := range s.Problems {
		wrong = append(wrong, p.String())
	}
	for _, c := range s.Control.Clients {
		for _, state := range c.Types {
			for _, r := range state.Refused {
				wrong = append(wrong, fmt.Sprintf("the proxy of %s refuses %s: %s", c.Node, some(r.Names), r.Message))
			}
		}
	}
	return wrong
}

// called is an object as problems name it.
func called(kind string, o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", kind, o.GetNamespace(), o.GetName())
}

// told says whether an object is among the problems already.
func told(s *api.Status, kind string, o *unstructured.Unstructured) bool {
	name := called(kind, o)
	return slices.ContainsFunc(s.Problems, func(p api.Problem) bool { return p.Object == name })
}

// unheard is a finding where not all of the control plane could be asked: the status has what the rest of it said. Objects say in their own
// status what was thought of them; of their present generation that holds, and of what has none nothing is known.
func (t *Target) unheard(ctx context.Context, s *api.Status) *Finding {
	refused, silent, sum := complaints(s), 0, 0
	for _, k := range judged {
		err := t.eachOf(ctx, k.group, k.resource, func(o *unstructured.Unstructured) error {
			sum++
			switch status, message := acceptance(o); {
			case status == "":
				silent++
			case status == "False" && !told(s, k.kind, o):
				refused = append(refused, called(k.kind, o)+": "+message)
			}
			return nil
		})
		if err != nil {
			return unable(err)
		}
	}
	const fix = "see LAT121 and LAT124 for why the control plane cannot be asked, then look again"
	rest := fmt.Sprintf("%d of %d objects do not say how they stand, and whether the others' word still holds is not known, since the control plane cannot be asked (LAT124)", silent, sum)
	if len(refused) > 0 {
		return finding("correct these: kubectl get KIND NAME -n NAMESPACE -o yaml says in the status what to correct; "+fix, "%s; %s", someOf(refused, "; "), rest)
	}
	return finding(fix, "not known: no object says in its status that it is refused, but %s", rest)
}

// acceptance is what an object's status says of its present generation; empty if nothing.
func acceptance(o *unstructured.Unstructured) (status, message string) {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, raw := range conditions {
		c, _ := raw.(map[string]any)
		generation, _, _ := unstructured.NestedInt64(c, "observedGeneration")
		if c["type"] == "Accepted" && generation == o.GetGeneration() {
			status, _ = c["status"].(string)
			message, _ = c["message"].(string)
			return status, strings.TrimSpace(message)
		}
	}
	return "", ""
}
