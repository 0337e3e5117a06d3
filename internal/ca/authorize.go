package ca

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
)

// Pods is what the node authorizer must know of the mesh.
type Pods interface {
	Pod(model.Key) (*corev1.Pod, bool)
	PodsOnNode(node string) []*corev1.Pod
}

// NodeAuthorizer decides whether a caller may have an identity. A node proxy acts for the pods of its own node and for no others, so that
// a node that fell to an attacker costs the identities that ran there, not the mesh.
type NodeAuthorizer struct {
	TrustDomain string
	Pods        Pods
	// Accounts are the service accounts, "namespace/name", that may act for others.
	Accounts map[string]bool
	// Own says who may have a certificate in its own name.
	Own OwnNames
	Now func() time.Time
}

const (
	// endLeeway is how long after the end of its grace period a pod that is being deleted keeps its identity: as long as the API server
	// accepts its tokens.
	endLeeway = time.Minute
	// longestGrace is how much of a grace period counts, in seconds, that is longer than the pod's own.
	longestGrace int64 = 3600
)

// Refusal is why an identity was not granted. Reason is for counting, the text for the caller.
type Refusal struct {
	Reason string
	Text   string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

func refuse(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

// Identity returns the identity to be certified: the impersonated one if that is not empty and may be, else the caller's own if its account is listed.
// Either way the caller's token must be bound to a pod that is still there: a token outlives its pod by up to an hour.
func (a *NodeAuthorizer) Identity(caller Caller, impersonated string) (Identity, error) {
	id := Identity{TrustDomain: a.TrustDomain, Namespace: caller.Namespace, ServiceAccount: caller.ServiceAccount}
	if impersonated != "" {
		var err error
		if id, err = ParseIdentity(impersonated); err != nil {
			return Identity{}, refuse("malformed_identity", "the impersonated identity %v", err)
		}
		if id.TrustDomain != a.TrustDomain {
			return id, refuse("foreign_trust_domain", "identity %s is not of this mesh's trust domain %s", id, a.TrustDomain)
		}
		if !a.Accounts[caller.Account()] {
			return id, refuse("not_a_node_proxy", "service account %s may not act for others; list it in --node-proxy-accounts if it is a node proxy", caller.Account())
		}
	}
	pod, err := a.Bound(caller)
	if err != nil {
		return id, err
	}
	if impersonated == "" {
		return id, a.Own.may(caller, pod)
	}
	if runs(a.Pods, pod.Spec.NodeName, id, a.Now()) {
		return id, nil
	}
	return id, refuse("not_on_node", "no pod on node %s runs as %s/%s; a node proxy gets certificates for the pods of its own node only",
		pod.Spec.NodeName, id.Namespace, id.ServiceAccount)
}

// CheckAccount says why no pod of an account gets any certificate, whatever it asks for; it is nil if one may. The error is a *Refusal.
func (a *NodeAuthorizer) CheckAccount(account string) error {
	if a.Accounts[account] || a.Own.lists(account) {
		return nil
	}
	return refuse("account_not_listed", "service account %s gets no certificates; list it in --node-proxy-accounts if it is a node proxy's, or in --own-identity-accounts (chart: control.ownIdentityAccounts) if it is that of waypoints, gateways or sidecars that this mesh does not run itself",
		account)
}

// Bound finds the pod that a caller's token is bound to and checks that it is still what the token says, and has not ended.
func (a *NodeAuthorizer) Bound(caller Caller) (*corev1.Pod, error) {
	if caller.PodName == "" || caller.PodUID == "" {
		return nil, refuse("unbound_token", "the token of %s is not bound to a pod; mount a projected service account token", caller.Account())
	}
	pod, known := a.Pods.Pod(model.PodKey(caller.Namespace, caller.PodName))
	if !known {
		return nil, refuse("unknown_pod", "pod %s/%s that the token is bound to is not known here; if it has just started, try again", caller.Namespace, caller.PodName)
	}
	account, identified := model.Account(pod)
	switch {
	case string(pod.UID) != caller.PodUID:
		return nil, refuse("stale_pod", "the token is bound to an earlier pod %s/%s; read it from its file again", caller.Namespace, caller.PodName)
	case model.Ended(pod):
		return nil, refuse("ended_pod", "pod %s/%s has ended (phase %s)", caller.Namespace, caller.PodName, pod.Status.Phase)
	case overdue(pod, a.Now()):
		return nil, refuse("ended_pod", "pod %s/%s was deleted, and the time that it had to end was over at %s", caller.Namespace, caller.PodName, deadline(pod).UTC().Format(time.RFC3339))
	case !identified:
		return nil, refuse("no_identity", "pod %s/%s has no identity: it is a static pod or has no service account", caller.Namespace, caller.PodName)
	case account != caller.ServiceAccount:
		return nil, refuse("stale_pod", "pod %s/%s runs as %s, not as the token's %s", caller.Namespace, caller.PodName, account, caller.ServiceAccount)
	case pod.Spec.NodeName == "":
		return nil, refuse("unknown_node", "pod %s/%s is not on a node yet; try again", caller.Namespace, caller.PodName)
	case caller.NodeName != "" && caller.NodeName != pod.Spec.NodeName:
		return nil, refuse("unknown_node", "the token is bound to node %s and its pod runs on %s", caller.NodeName, pod.Spec.NodeName)
	}
	return pod, nil
}

// runs reports whether a pod of an identity runs on a node.
func runs(pods Pods, node string, id Identity, now time.Time) bool {
	return slices.ContainsFunc(pods.PodsOnNode(node), func(p *corev1.Pod) bool {
		account, ok := model.Account(p)
		return ok && p.Namespace == id.Namespace && account == id.ServiceAccount && !model.Ended(p) && !overdue(p, now)
	})
}

// overdue reports whether a pod is being deleted and has used up the time that it had to end. Its kubelet alone says that its containers have
// ended, so without a deadline a hostile kubelet would keep the identity of a deleted pod for as long as it likes.
func overdue(pod *corev1.Pod, now time.Time) bool {
	return pod.DeletionTimestamp != nil && now.After(deadline(pod).Add(endLeeway))
}

// deadline is when a pod that is being deleted must have ended: the time of the request and the grace period. A kubelet may delete its pods
// itself, with a grace period of years, and a later deletion without a period changes nothing about that. So a period that is longer than the
// pod's own counts as longestGrace at most.
func deadline(pod *corev1.Pod) time.Time {
	end := pod.DeletionTimestamp.Time
	if pod.DeletionGracePeriodSeconds == nil {
		return end
	}
	most := longestGrace
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		most = max(most, *own)
	}
	// In seconds: a period of centuries is no time.Duration.
	given := *pod.DeletionGracePeriodSeconds
	return time.Unix(end.Unix()-given+min(given, most), 0)
}

// InUse says whether a certificate's holder may still have a use for it: a pod of the identity runs on the holder's node. A
// holder that is not a node cannot be judged and has.
func InUse(pods Pods, h Holder, now time.Time) bool {
	id, err := ParseIdentity(h.Identity)
	return err != nil || h.pod || runs(pods, h.Node, id, now)
}
