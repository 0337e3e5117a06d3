package ca

import (
	"fmt"
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

// endLeeway is how long after the end of its grace period a pod that is being deleted may still ask: as long as the API server accepts its
// tokens.
const endLeeway = time.Minute

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
	for _, p := range a.Pods.PodsOnNode(pod.Spec.NodeName) {
		if p.Namespace == id.Namespace && account(p) == id.ServiceAccount && !ended(p) {
			return id, nil
		}
	}
	return id, refuse("not_on_node", "no pod on node %s runs as %s/%s; a node proxy gets certificates for the pods of its own node only",
		pod.Spec.NodeName, id.Namespace, id.ServiceAccount)
}

// Bound finds the pod that a caller's token is bound to and checks that it is still what the token says, and has not ended.
func (a *NodeAuthorizer) Bound(caller Caller) (*corev1.Pod, error) {
	if caller.PodName == "" || caller.PodUID == "" {
		return nil, refuse("unbound_token", "the token of %s is not bound to a pod; mount a projected service account token", caller.Account())
	}
	pod, ok := a.Pods.Pod(model.PodKey(caller.Namespace, caller.PodName))
	switch {
	case !ok:
		return nil, refuse("unknown_pod", "pod %s/%s that the token is bound to is not known here; if it has just started, try again", caller.Namespace, caller.PodName)
	case string(pod.UID) != caller.PodUID:
		return nil, refuse("stale_pod", "the token is bound to an earlier pod %s/%s; read it from its file again", caller.Namespace, caller.PodName)
	case ended(pod):
		return nil, refuse("ended_pod", "pod %s/%s has ended (phase %s)", caller.Namespace, caller.PodName, pod.Status.Phase)
	case pod.DeletionTimestamp != nil && a.Now().After(pod.DeletionTimestamp.Add(endLeeway)):
		return nil, refuse("ended_pod", "pod %s/%s was deleted, and the time that it had to end was over at %s", caller.Namespace, caller.PodName, pod.DeletionTimestamp.UTC().Format(time.RFC3339))
	case account(pod) != caller.ServiceAccount:
		return nil, refuse("stale_pod", "pod %s/%s runs as %s, not as the token's %s", caller.Namespace, caller.PodName, account(pod), caller.ServiceAccount)
	case pod.Spec.NodeName == "":
		return nil, refuse("unknown_node", "pod %s/%s is not on a node yet; try again", caller.Namespace, caller.PodName)
	case caller.NodeName != "" && caller.NodeName != pod.Spec.NodeName:
		return nil, refuse("unknown_node", "the token is bound to node %s and its pod runs on %s", caller.NodeName, pod.Spec.NodeName)
	}
	return pod, nil
}

func account(pod *corev1.Pod) string {
	if pod.Spec.ServiceAccountName == "" {
		return "default"
	}
	return pod.Spec.ServiceAccountName
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// InUse says whether a certificate's holder may still have a use for it: a pod of the identity runs on the holder's node. A
// holder that is not a node cannot be judged and has.
func InUse(pods Pods, h Holder) bool {
	id, err := ParseIdentity(h.Identity)
	if err != nil || h.pod {
		return true
	}
	for _, p := range pods.PodsOnNode(h.Node) {
		if p.Namespace == id.Namespace && account(p) == id.ServiceAccount && !ended(p) {
			return true
		}
	}
	return false
}
