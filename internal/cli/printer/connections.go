package printer

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// Names says how the ends of connections are written. The zero value writes all of every name.
type Names struct {
	Home  string // the namespace that is left out; empty if none is
	Short bool   // a pod of a Deployment goes by the Deployment's name, and a client without a name goes without its port
}

// hashes are what a Deployment's pods have behind its name: those of the ReplicaSet and of the pod, in the letters that Kubernetes
// takes for them.
var hashes = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}$`)

// levels are the ways to write names, the most complete first.
func levels(home string) []Names { return []Names{{}, {Home: home}, {Home: home, Short: true}} }

// Source is the client: its pod where that is known, else its address.
func (n Names) Source(c api.Connection) string {
	if c.Source.Workload == "" && n.Short {
		if at := strings.LastIndexByte(c.Source.Address, ':'); at > 0 {
			return c.Source.Address[:at]
		}
	}
	return n.end(c.Source, "")
}

func (n Names) end(e api.ConnectionEnd, port string) string {
	if e.Workload == "" {
		return e.Address
	}
	name := e.Workload
	if n.Short {
		name = hashes.ReplaceAllString(name, "")
	}
	if e.Namespace != n.Home {
		name = e.Namespace + "/" + name
	}
	if port != "" {
		name += ":" + port
	}
	return name
}

// Destination is where a connection goes: for an inbound one the pod, for an outbound one what the client asked for.
func (n Names) Destination(c api.Connection) string {
	if c.Direction == "inbound" {
		return n.end(c.Destination, port(c.Destination.Address))
	}
	wanted := c.Wanted
	if wanted == "" {
		wanted = c.Destination.Address
	}
	if c.Service != "" {
		name, rest, _ := strings.Cut(c.Service, ".")
		namespace, _, found := strings.Cut(rest, ".svc.")
		switch {
		case !found:
			name = c.Service
		case namespace != n.Home:
			name += "." + namespace
		}
		return name + ":" + port(wanted)
	}
	if c.Destination.Workload != "" {
		return n.end(c.Destination, port(wanted))
	}
	return wanted
}

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// Peer is the service account that the other side of a connection proved to be, or that it proved nothing.
func (n Names) Peer(c api.Connection) string {
	if !c.Tunnelled {
		return "plaintext"
	}
	identity := c.Destination.Identity
	if c.Direction == "inbound" {
		identity = c.Source.Identity
	}
	_, path, _ := strings.Cut(strings.TrimPrefix(identity, "spiffe://"), "/ns/")
	namespace, account, _ := strings.Cut(path, "/sa/")
	if namespace == n.Home {
		return account
	}
	return namespace + "/" + account
}

// Duration writes a time in seconds with two or three digits that matter, in at most eight characters.
func Duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case seconds <= 0:
		return ""
	case seconds < 0.001:
		return fmt.Sprintf("%.0fµs", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.1fms", seconds*1e3)
	case seconds < 100:
		return fmt.Sprintf("%.1fs", seconds)
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 100*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}
