package ca

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// OwnNames says which pods may have a certificate in their own name, and for how long. A node proxy keeps the keys of its node's pods to
// itself. Who gets a certificate in its own name has the key, can carry it away, and stays able to use it until the certificate ends.
//
// Lists alone decide. Whoever may create a pod chooses its service account, its labels and its token volumes, and often its Gateway, too.
type OwnNames struct {
	// Accounts are the service accounts, "namespace/name", of waypoints, gateways and sidecars. The zero value lists nobody.
	Accounts map[string]bool
	// Deployed says whether an account is that of a Gateway whose proxies this mesh runs itself; nil where it runs none.
	Deployed func(account string) bool
	// Lifetime is the longest that such a certificate lives; 0 is no limit of its own.
	Lifetime time.Duration
}

// DefaultOwnLifetime is the longest that a certificate in a pod's own name lives, unless something else is asked for.
const DefaultOwnLifetime = time.Hour

// may says why a caller may not have a certificate in its own name; it is nil if the caller may.
func (o OwnNames) may(caller Caller, pod *corev1.Pod) error {
	switch {
	case !o.lists(caller.Account()):
		return refuse("own_identity_not_listed", "pods of service account %s get no certificate in their own name; if they are waypoints, gateways or sidecars that this mesh does not run itself, list it in --own-identity-accounts (chart: control.ownIdentityAccounts)",
			caller.Account())
	case pod.Spec.HostNetwork:
		return refuse("own_identity_on_host_network", "pod %s/%s has hostNetwork and gets no certificate in its own name; give it a network of its own", pod.Namespace, pod.Name)
	}
	return nil
}

// lists says whether pods of an account may have a certificate in their own name.
func (o OwnNames) lists(account string) bool {
	return o.Accounts[account] || o.Deployed != nil && o.Deployed(account)
}

// limit shortens a lifetime that was asked for to what such a certificate may live.
func (o OwnNames) limit(asked time.Duration) time.Duration {
	if o.Lifetime == 0 {
		return asked
	}
	return min(asked, o.Lifetime)
}
