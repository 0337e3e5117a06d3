// Package redirect owns the packet rules and policy routes that lead a pod's TCP connections through the node proxy, and
// those on the node that keep the way past them, which health checks have, to the prober.
// It changes nothing that it did not make but what an Istio that is gone left in pods, and it does not decide which pods are captured.
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

// Apply brings the namespace into the mode, with the settings if it captures, and says whether anything had to change. Applying twice is the same as
// applying once, and a damaged rule set is repaired in one transaction: there is no moment without rules.
func Apply(ns *netns.Namespace, mode Mode, s Settings) (changed bool, err error) {
	err = ns.Do(func() error {
		if mode == Absent {
			changed, err = remove()
			return err
		}
		if err := s.Own.enter(); err != nil {
			return err
		}
		// Routes first: rules that mark packets need the routes that the marks select.
		routed, err := addRoutes()
		if err != nil {
			return err
		}
		zoned, err := zone().put()
		if err != nil {
			return err
		}
		ruled, err := replaceTable(ourTable(), ruleset(ourTable(), mode, s))
		changed = routed || zoned || ruled
		return err
	})
	return changed, err
}

// Observe says which mode the namespace is in. If any rule about new connections stands, the pod is captured, however
// damaged the rule set is: it is to be repaired, not released.
func Observe(ns *netns.Namespace) (Mode, error) {
	mode := Absent
	err := ns.Do(func() (err error) {
		mode, err = observeTable()
		if err != nil || mode != Absent {
			return err
		}
		routes, err := routesLeft()
		if err != nil {
			return err
		}
		zoned, err := tableLeft(zone().table())
		if routes || zoned {
			mode = Draining
		}
		return err
	})
	return mode, err
}

func remove() (bool, error) {
	ruled, err := deleteTable(ourTable())
	zoned, zoneErr := deleteTable(zone().table())
	routed, routeErr := deleteRoutes()
	if err = errors.Join(err, zoneErr); ruled && err == nil {
		err = forgetConnections()
	}
	return ruled || zoned || routed, errors.Join(err, routeErr)
}
