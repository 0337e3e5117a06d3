package printer

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

// StatusOptions says how much of a mesh's state is written.
type StatusOptions struct {
	Wide bool // more columns, and every pod
	Pods bool // every pod, however many there are
	// Choose leaves out pods that it returns false for; nil chooses all.
	Choose func(api.PodState) bool
	Width  int // of the terminal, in characters; 0 is as wide as the text
	Now    time.Time
}

// Status writes the state of a mesh for people: the problems with their meaning, the parts of the mesh, and the enrolled pods.
func Status(w io.Writer, s api.Status, style term.Style, o StatusOptions) error {
	p := &page{w: w, style: style, width: o.Width, bring: "lateen apply -f FILE brings some"}
	if s.Engine == api.Kubernetes {
		p.bring = "lateen label namespace NAME istio.io/dataplane-mode=ambient brings those of a namespace"
	}
	p.line("Mesh %s, up since %s", style.Bold(s.Mesh), Age(s.Started, o.Now))
	if s.Latency > 0 {
		p.line("%s added to every round trip between nodes, in user space", s.Latency)
	}
	p.control(s.Control)
	p.unanswered(s)
	if ca := s.Control.CA; ca != nil {
		p.rotation(*ca, o.Now)
	}
	pods := s.Pods
	if o.Choose != nil {
		pods = slices.DeleteFunc(slices.Clone(pods), func(pod api.PodState) bool { return !o.Choose(pod) })
	}
	p.problems(s, pods)
	p.nodes(s)
	p.waypoints(s.Waypoints)
	p.draining(s.Nodes, o.Now)
	p.pods(pods, o)
	p.unmeshed(pods)
	p.outside(pods)
	p.exceptions(pods)
	return p.err
}

// page remembers the first error of writing, so that the functions below read as the page does.
type page struct {
	w     io.Writer
	style term.Style
	width int // of the terminal; 0 if there is none
	// bring is how pods come into the mesh.
	bring string
	err   error
}

func (p *page) line(format string, args ...any) {
	for i, arg := range args {
		if text, is := arg.(string); is && !painted(text) {
			args[i] = term.Escape(text)
		}
	}
	text := fmt.Sprintf(format, args...)
	for part := range strings.SplitSeq(text, "\n") {
		for _, line := range term.Fold(part, p.width, 2) {
			if p.err == nil {
				_, p.err = fmt.Fprintln(p.w, line)
			}
		}
	}
}

// painted tells whether a text is in one colour of term.Style as a whole.
func painted(text string) bool {
	return strings.HasPrefix(text, "\x1b[") && strings.HasSuffix(text, "\x1b[0m") && strings.Count(text, "\x1b") == 2
}

// mark writes a line about something that needs a look.
func (p *page) mark(text string) {
	for i, line := range term.Fold(term.Escape(text), max(p.width-len("  ! "), 0), 2) {
		lead := "   "
		if i == 0 {
			lead = "  " + p.style.Warn(term.MarkWarn)
		}
		if p.err == nil {
			_, p.err = fmt.Fprintln(p.w, lead+" "+line)
		}
	}
}

// grid writes a table. On a terminal that is too narrow the columns of names are shortened, and the spare ones left out.
func (p *page) grid(g *Grid, names, spare []int) {
	const indent = "  "
	if p.width > 0 {
		g.Fit(p.width-len(indent), names, spare)
	}
	if p.err == nil {
		p.err = g.Print(p.w, indent)
	}
}

func (p *page) control(c api.ControlState) {
	switch {
	case c.Error != "":
		p.line("%s Control plane: %s%s", p.style.Bad(term.MarkBad), c.Error, restarted(c.Process))
	case !c.Ready:
		p.line("%s Control plane: not ready%s", p.style.Bad(term.MarkBad), restarted(c.Process))
	default:
		p.line("%s Control plane: ready at generation %d, %s%s", p.style.Good(term.MarkGood), c.Generation, plural(len(c.Clients), "client"), restarted(c.Process))
	}
	if !c.Ready {
		p.line("  What is applied is not in force until it is ready; lateen logs control says why it is not.")
	}
}

// unanswered says what is not known while no control plane answers.
func (p *page) unanswered(s api.Status) {
	if len(s.Unknown) == 0 {
		return
	}
	p.line("")
	p.line("%s", p.style.Bold("Not known until the control plane answers"))
	for _, what := range s.Unknown {
		p.line("  %s %s", p.style.Warn(term.MarkWarn), what)
	}
	p.line("  Next: %s", strings.Join(s.Next, "\n        "))
}

func restarted(process api.Process) string {
	if process.Restarts == 0 {
		return ""
	}
	s := fmt.Sprintf("; restarted %d times", process.Restarts)
	if process.LastExit != "" {
		s += ", last because: " + process.LastExit
	}
	return s
}

func (p *page) nodes(s api.Status) {
	p.line("")
	p.line("%s", p.style.Bold("Nodes"))
	grid := NewGrid("NODE", "IP", "PROXY", "STATE", "GENERATION", "CONNECTIONS PER WORKER", "AGENT", "ENROLLED")
	for _, n := range s.Nodes {
		enrolled, pods := 0, 0
		for _, pod := range s.Pods {
			if pod.Node == n.Name && !pod.HostNetwork {
				pods++
				if pod.Redirection {
					enrolled++
				}
			}
		}
		grid.Row(n.Name, n.IP, proxyKind(n.Proxy), readiness(n.Proxy.Ready), generation(n.Proxy, s),
			workers(n.Proxy.WorkerConnections), agentState(n.Agent), fmt.Sprintf("%d of %d pods", enrolled, pods))
	}
	p.grid(grid, []int{0, 2, 6}, []int{5, 1, 4})
}

func (p *page) draining(nodes []api.NodeState, now time.Time) {
	grid := NewGrid("NODE", "PID", "CONNECTIONS", "DRAINING SINCE", "ENDS AT THE LATEST")
	for _, n := range nodes {
		for _, d := range n.Proxy.Draining {
			grid.Row(n.Name, fmt.Sprint(d.PID), fmt.Sprint(d.Connections), Age(d.Since, now)+" ago", minute(d.Until))
		}
	}
	if grid.Len() == 0 {
		return
	}
	p.line("")
	p.line("%s", p.style.Bold("Proxies that were replaced and still drain"))
	p.line("  Draining: no new connections; open ones are closed at the deadline.")
	p.grid(grid, []int{0, 4}, []int{1})
}

func proxyKind(x api.ProxyState) string {
	kind := "lateen-proxy"
	if x.Ztunnel {
		kind = "ztunnel"
		if name := filepath.Base(x.Path); name != kind {
			kind += " (" + name + ")"
		}
	}
	if x.Version != "" {
		kind += " " + x.Version
	}
	return kind
}

func readiness(ready bool) string {
	if ready {
		return "ready"
	}
	return "not ready"
}

// generation says which configuration the proxy runs. Being behind is normal for a moment after a change.
func generation(x api.ProxyState, s api.Status) string {
	switch c := s.Control; {
	case len(s.Unknown) > 0:
		return "not known"
	case x.AckedGeneration < c.Generation:
		return fmt.Sprintf("%d (of %d)", x.AckedGeneration, c.Generation)
	}
	return fmt.Sprint(x.AckedGeneration)
}

func workers(connections []int) string {
	parts := make([]string, len(connections))
	for i, n := range connections {
		parts[i] = fmt.Sprint(n)
	}
	return strings.Join(parts, " ")
}

func agentState(a api.AgentState) string {
	switch {
	case !a.Ready:
		return "not ready"
	case !a.ProxyConnected:
		return "ready, no proxy connected"
	}
	return "ready"
}

func (p *page) unmeshed(pods []api.PodState) {
	grid := NewGrid("POD", "DIRECTION", "LOCAL", "REMOTE")
	for _, pod := range pods {
		for _, c := range pod.Unmeshed {
			grid.Row(pod.Namespace+"/"+pod.Name, c.Direction, c.Local, c.Remote)
		}
	}
	if grid.Len() == 0 {
		return
	}
	p.line("")
	p.line("%s", p.style.Bold("Connections opened before enrolment"))
	p.line("  They go on outside the mesh, neither encrypted nor authorised, until one side closes them.")
	p.grid(grid, []int{0, 2, 3}, nil)
}

func (p *page) outside(pods []api.PodState) {
	by := outsiders(pods)
	for _, why := range slices.Sorted(maps.Keys(by)) {
		p.line("")
		p.line("%s", p.style.Bold("Pods outside the mesh"))
		p.line("  Each %s:", why)
		p.line("  %s", strings.Join(by[why], ", "))
	}
}

func outsiders(pods []api.PodState) map[string][]string {
	by := map[string][]string{}
	for _, pod := range pods {
		if pod.Mesh == outside {
			by[pod.MeshReason] = append(by[pod.MeshReason], pod.Namespace+"/"+pod.Name)
		}
	}
	return by
}

func (p *page) exceptions(pods []api.PodState) {
	grid := NewGrid("POD", "TRAFFIC")
	for _, pod := range pods {
		for _, e := range pod.Exceptions {
			grid.Row(pod.Namespace+"/"+pod.Name, e)
		}
	}
	if grid.Len() == 0 {
		return
	}
	p.line("")
	p.line("%s", p.style.Bold("Exceptions from the mesh"))
	p.line("  Traffic that annotations or the agent's settings lead past the proxy: not encrypted, and no policy holds there.")
	p.grid(grid, []int{0, 1}, nil)
}
