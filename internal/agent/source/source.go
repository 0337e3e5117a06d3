// Package source tells the agent which pods its node has, and reports back which of them are captured. It speaks to
// the engine that owns the pods; it does not decide anything about them.
package source

import (
	"errors"
	"net/netip"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/redirect"
)

// Pod is a pod of the node as the engine knows it.
type Pod struct {
	UID            string            `json:"uid"`
	Namespace      string            `json:"namespace"`
	Name           string            `json:"name"`
	ServiceAccount string            `json:"serviceAccount"`
	IP             string            `json:"ip"`
	HostNetwork    bool              `json:"hostNetwork"`
	Labels         map[string]string `json:"labels"`
	Annotations    map[string]string `json:"annotations"`
	NetNS          string            `json:"netns"` // where its network namespace is mounted
	Terminating    bool              `json:"terminating"`
	Ended          bool              `json:"ended"` // nothing runs in it any more; its network waits for the Parted report
	// Version changes with anything of the pod's object, what is not read of it here as well; empty if the source has none.
	Version string `json:"-"`
	// Network identifies that namespace, if the source noted which it is: a path that leads elsewhere is not followed.
	Network netns.ID `json:"-"`
	// Held is that namespace, open, where no path leads to it for as long as the pod lives. The source closes it.
	Held *netns.Namespace `json:"-"`
	// Lost says why its network namespace could not be found, if it should be there.
	Lost string `json:"lost,omitempty"`
	// Cgroup is where the pod's processes are, if it was found.
	Cgroup redirect.Cgroup `json:"-"`
	// Probed are the addresses of the pod that its node's kubelet connects to.
	Probed []netip.AddrPort `json:"probed,omitempty"`
	// Unjudged: the pod's namespace decides whether it is enrolled, and the source does not know the namespace yet.
	Unjudged bool `json:"-"`
	// Refused says what else was asked for the pod and is not followed.
	Refused []string `json:"refused,omitempty"`
}

// Namespace is what the agent needs of a namespace's object.
type Namespace struct {
	Labels map[string]string `json:"labels"`
}

// Snapshot is everything on the node at one moment.
type Snapshot struct {
	Pods       []Pod                `json:"pods"`
	Namespaces map[string]Namespace `json:"namespaces"`
}

// State is what a report says of a pod's redirection.
type State string

// States.
const (
	Enabled  State = "enabled"
	Disabled State = "disabled"
	// Parted says of a pod that has ended that what the proxy had in it is closed, and that its peers have heard so.
	Parted State = "parted"
)

// Report is what the engine is told of one pod.
type Report struct {
	State State  `json:"state"`
	Error string `json:"error"` // why a pod is not captured as it should be, or empty
}

// ErrRefused says that a report was understood and refused: the same one will be again.
var ErrRefused = errors.New("the engine refuses it")
