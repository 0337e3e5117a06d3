package printer

import (
	"fmt"
	"io"
	"strings"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

// boundKinds are the kinds whose labels choose a waypoint, with the words for them, in the order in which they are shown.
var boundKinds = []struct{ kind, one, many string }{
	{"Namespace", "namespace", "namespaces"}, {"Service", "service", "services"}, {"ServiceEntry", "ServiceEntry", "ServiceEntries"},
	{"WorkloadEntry", "WorkloadEntry", "WorkloadEntries"}, {"Pod", "pod", "pods"},
}

// Waypoints writes a table of waypoints.
func Waypoints(w io.Writer, list []api.WaypointState, style term.Style, width int) error {
	p := &page{w: w, style: style, width: width}
	p.waypointGrid(list, "")
	return p.err
}

func (p *page) waypointGrid(list []api.WaypointState, indent string) {
	grid := NewGrid("NAMESPACE", "NAME", "TRAFFIC", "VERSION", "PROGRAMMED", "PODS", "BOUND")
	for _, s := range list {
		grid.Row(s.Namespace, s.Name, s.Traffic, s.Version, s.Programmed, waypointPods(s), boundCount(s.Bound))
	}
	if p.width > 0 {
		grid.Fit(p.width-len(indent), []int{1, 6}, []int{3})
	}
	if p.err == nil {
		p.err = grid.Print(p.w, indent)
	}
}

func waypointPods(s api.WaypointState) string {
	if s.Wanted == 0 && s.Ready == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d ready", s.Ready, s.Wanted)
}

// boundCount says how many objects of each kind choose a waypoint.
func boundCount(keys []api.Key) string {
	var parts []string
	for _, k := range boundKinds {
		if n := len(ofKind(keys, k.kind)); n == 1 {
			parts = append(parts, "1 "+k.one)
		} else if n > 1 {
			parts = append(parts, fmt.Sprintf("%d %s", n, k.many))
		}
	}
	return strings.Join(parts, ", ")
}

func ofKind(keys []api.Key, kind string) (out []api.Key) {
	for _, k := range keys {
		if k.Kind == kind {
			out = append(out, k)
		}
	}
	return out
}

// WaypointStatus writes for each waypoint how it is, and what is bound to it.
func WaypointStatus(w io.Writer, list []api.WaypointState, style term.Style, width int) error {
	p := &page{w: w, style: style, width: width}
	for i, s := range list {
		if i > 0 {
			p.line("")
		}
		mark := style.Good(term.MarkGood)
		if s.Programmed != "True" {
			mark = style.Bad(term.MarkBad)
		}
		name := style.Bold(s.Namespace + "/" + s.Name)
		switch s.Programmed {
		case "True":
			p.line("%s %s: programmed", mark, name)
		case "False":
			p.line("%s %s: not programmed: %s", mark, name, s.Reason)
		default:
			p.line("%s %s: not known whether it is programmed: %s", mark, name, s.Reason)
		}
		p.line("  class %s, for traffic of %s", s.Class, traffic(s.Traffic))
		if s.Version != "" {
			p.line("  version %s", s.Version)
		}
		if pods := waypointPods(s); pods != "" {
			p.line("  pods: %s", pods)
		}
		if len(s.Bound) == 0 {
			p.line("  nothing uses it: no label istio.io/use-waypoint names it")
		}
		for _, k := range boundKinds {
			if keys := ofKind(s.Bound, k.kind); len(keys) > 0 {
				p.line("  %s: %s", k.many, boundNames(keys, s.Namespace))
			}
		}
		for _, u := range s.Unbound {
			p.line("  %s %s is not bound: %s", style.Bad(term.MarkBad), u.Object, u.Message)
		}
	}
	return p.err
}

// traffic is what the label istio.io/waypoint-for says, in words.
func traffic(value string) string {
	switch value {
	case "service":
		return "services"
	case "workload":
		return "workloads"
	case "all":
		return "services and workloads"
	case "none":
		return "nothing"
	}
	return fmt.Sprintf("%q, which is nothing", value)
}

// boundNames lists objects; those of other namespaces have that before their names.
func boundNames(keys []api.Key, namespace string) string {
	const most = 20
	var names []string
	for i, k := range keys {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(keys)-most))
			break
		}
		name := k.Name
		if k.Namespace != "" && k.Namespace != namespace {
			name = k.Namespace + "/" + name
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// waypoints are a part of the page of the whole mesh.
func (p *page) waypoints(list []api.WaypointState) {
	if len(list) == 0 {
		return
	}
	p.line("")
	p.line("%s", p.style.Bold("Waypoints"))
	p.waypointGrid(list, "  ")
	for _, s := range list {
		if s.Programmed != "True" && s.Reason != "" {
			p.mark(s.Namespace + "/" + s.Name + ": " + s.Reason)
		}
	}
}
