// Package apiservertest has what tests of the agent share: its client over the stand-in that Kubernetes' own client has. It has no behaviour of
// its own.
package apiservertest

import (
	"k8s.io/client-go/kubernetes"

	"lateen.dev/lateen/internal/agent/apiserver"
)

// Over asks another client.
func Over(c kubernetes.Interface) apiserver.Client { return over{c} }

type over struct{ client kubernetes.Interface }

func (o over) Pods(namespace string) apiserver.Pods     { return o.client.CoreV1().Pods(namespace) }
func (o over) Namespaces() apiserver.Namespaces         { return o.client.CoreV1().Namespaces() }
func (o over) Events(namespace string) apiserver.Events { return o.client.CoreV1().Events(namespace) }
func (o over) DaemonSets(namespace string) apiserver.DaemonSets {
	return o.client.AppsV1().DaemonSets(namespace)
}
func (o over) ServiceAccounts(namespace string) apiserver.ServiceAccounts {
	return o.client.CoreV1().ServiceAccounts(namespace)
}

// IsWatchListSemanticsUnSupported says what the stand-in says of itself: its watches do not begin with what there is.
func (o over) IsWatchListSemanticsUnSupported() bool { return true }
