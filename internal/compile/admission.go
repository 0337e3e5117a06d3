package compile

import (
	"fmt"
	"slices"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/translate"
)

// admission judges whether the node proxies of an object's workloads admit its waypoint. Behind a waypoint they see its identity in place of the clients', so
// that a policy which allows the clients alone would refuse everybody.
type admission struct {
	*facts
	index    *sourceIndex
	policies *policyCompiler
	log      *resourcelog.Log
	// decoded are policies as they were last read, since services that ask for a waypoint together share most of them.
	decoded map[model.Key]decodedPolicy
}

// decodedPolicy is the policy of a resource of the log.
type decodedPolicy struct {
	of     *resourcelog.Resource
	policy *security.Authorization
}

// refusal says which policy refuses a waypoint at a workload of an object, and what to do; empty if none does. The verdict stands as long as
// the returned pod and the policies that hold for it stay as they are.
func (a *admission) refusal(key model.Key, own bool, w *translate.Waypoint) (why string, at model.Key) {
	peer := translate.PeerOf(w, a.mesh.TrustDomain)
	for _, pod := range a.pods(key, own) {
		allowed, refusing := false, model.Key{}
		for policy, authorization := range a.policiesOf(pod) {
			of := translate.MatchOf(authorization, peer)
			switch {
			case authorization.DryRun:
			case authorization.Action == security.Action_DENY && of == translate.EveryConnection:
				return fmt.Sprintf("cannot take its connections: AuthorizationPolicy %s/%s denies those of the waypoint, whose identity is %s, at pod %s/%s; except %q from it",
					policy.Namespace, policy.Name, peer.Principal(), pod.Namespace, pod.Name, peer.Principal()), pod
			case authorization.Action != security.Action_ALLOW:
			case of != translate.NoConnection:
				allowed = true
			case refusing == model.Key{} || policy.Compare(refusing) < 0:
				refusing = policy
			}
		}
		if refusing != (model.Key{}) && !allowed && !a.mesh.AutoAllowWaypoints {
			return fmt.Sprintf("cannot take its connections: AuthorizationPolicy %s/%s does not allow those of the waypoint, whose identity is %s, at pod %s/%s; add {from: [{source: {principals: [%q]}}]} to its rules",
				refusing.Namespace, refusing.Name, peer.Principal(), pod.Namespace, pod.Name, peer.Principal()), pod
		}
	}
	return "", model.Key{}
}

// pods are the captured pods of a service, or the pod itself, in the order of their names.
func (a *admission) pods(key model.Key, own bool) (out []model.Key) {
	add := func(key model.Key) {
		if pod, ok := a.store.Pod(key); ok && translate.Captured(pod) {
			out = append(out, key)
		}
	}
	if own {
		add(key)
		return out
	}
	e, ok := a.store.Entry(key)
	if !ok {
		return nil
	}
	for _, of := range []selector{serviceSelector, entrySelector} {
		if namespace, labels, ok := of(a.index, key, e.Object); ok {
			a.index.selection.Chosen(namespace, labels, add)
		}
	}
	// Whoever writes the endpoints of a service by hand may name pods there.
	for of := range a.index.slices[key] {
		if slice, ok := a.store.EndpointSlice(of); ok {
			for pod := range translate.SlicePods(slice) {
				add(pod)
			}
		}
	}
	slices.SortFunc(out, model.Key.Compare)
	return slices.Compact(out)
}

// policiesOf are the policies that hold for a pod.
func (a *admission) policiesOf(pod model.Key) map[model.Key]*security.Authorization {
	out := map[model.Key]*security.Authorization{}
	add := func(key model.Key, broad bool) {
		if policy := a.read(key); policy != nil && broad == (policy.Scope != security.Scope_WORKLOAD_SELECTOR) {
			out[key] = policy
		}
	}
	for _, owner := range a.index.selection.ChosenBy(pod) {
		if owner.Kind == "AuthorizationPolicy" {
			add(owner, false)
		}
	}
	for key := range a.policies.published {
		if key.Namespace == pod.Namespace || key.Namespace == a.mesh.RootNamespace {
			add(key, true)
		}
	}
	return out
}

// read returns the policy that is published for an AuthorizationPolicy; nil if there is none.
func (a *admission) read(key model.Key) *security.Authorization {
	r := a.log.Get(resourcekind.Authorization, a.policies.published[key])
	if r == nil {
		delete(a.decoded, key)
		return nil
	}
	if known := a.decoded[key]; known.of == r {
		return known.policy
	}
	d, err := r.Decode()
	if err != nil {
		return nil
	}
	policy := &security.Authorization{}
	if d.Resource.UnmarshalTo(policy) != nil {
		return nil
	}
	if len(a.decoded) > 2*len(a.policies.published) {
		clear(a.decoded)
	}
	a.decoded[key] = decodedPolicy{r, policy}
	return policy
}
