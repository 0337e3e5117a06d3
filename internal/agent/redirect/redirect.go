// Package redirect owns the packet rules and policy routes that lead a pod's TCP connections through the node proxy.
// It changes nothing that it did not make, and it does not decide which pods are captured.
package redirect

import (
	"errors"
	"fmt"

	"lateen.dev/lateen/internal/agent/netns"
)

// Mode is how much of the redirection stands in a pod's network namespace.
type Mode int

const (
	// Absent: nothing of ours is there; the pod's connections are plain.
	Absent Mode = iota
	// Draining: new connections are plain, and what those already redirected need to finish is in place.
	Draining
	// Capturing: new connections go through the proxy.
	Capturing
)

func (m Mode) String() string {
	switch m {
	case Absent:
		return "absent"
	case Draining:
		return "draining"
	case Capturing:
		return "capturing"
	}
	return fmt.Sprintf("Mode(%d)", int(m))
}

// Apply brings the namespace into the mode and says whether anything had to change. Applying twice is the same as
// applying once, and a damaged rule set is repaired in one transaction: there is no moment without rules.
func Apply(ns *netns.Namespace, mode Mode) (changed bool, err error) {
	err = ns.Do(func() error {
		if mode == Absent {
			changed, err = remove()
			return err
		}
		// Routes first: rules that mark packets need the routes that the marks select.
		routed, err := addRoutes()
		if err != nil {
			return err
		}
		ruled, err := replaceTable(mode)
		changed = routed || ruled
		return err
	})
	return changed, err
}

// Observe says which mode the namespace is in. A damaged rule set counts as what it still does to new connections: if
// any rule redirects, it captures.
func Observe(ns *netns.Namespace) (Mode, error) {
	mode := Absent
	err := ns.Do(func() (err error) {
		mode, err = observeTable()
		if err != nil || mode != Absent {
			return err
		}
		left, err := routesLeft()
		if left {
			mode = Draining
		}
		return err
	})
	return mode, err
}

func remove() (bool, error) {
	ruled, err := deleteTable()
	routed, routeErr := deleteRoutes()
	if ruled && err == nil {
		err = forgetConnections()
	}
	return ruled || routed, errors.Join(err, routeErr)
}
