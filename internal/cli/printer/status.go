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

// Status writes the state of a mesh for people: the parts of the mesh, who is enrolled, and everything that is not as
// it should be, each with what it means.
func Status(w io.Writer, s api.Status, style term.Style, wide bool, now time.Time) error {
	p := &page{w: w, style: style, bring: "lateen apply -f FILE brings some"}
	if s.Engine == api.Kubernetes {
		p.bring = "lateen label namespace NAME istio.io/dataplane-mode=ambient brings those of a namespace"
	}
	p.line("Mesh %s, up since %s", style.Bold(s.Mesh), Age(s.Started, now))
	if s.Latency > 0 {
		p.line("%s added to every round trip between nodes, in user space", s.Latency)
	}
	p.control(s.Control)
	p.unanswered(s)
	if ca := s.Control.CA; ca != nil {
		p.rotation(*ca, now)
	}
	p.nodes(s)
	p.draining(s.Nodes, now)
	p.pods(s.Pods, wide)
	p.unmeshed(s.Pods)
	p.outside(s.Pods)
	p.exceptions(s.Pods)
	p.problems(s)
	return p.err
}

// page remembers the first error of writing, so that the functions below read as the page does.
type page struct {
	w     io.Writer
	style term.Style
	// bring is how pods come into the mesh.
	bring string
	err   error
}

func (p *page) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *page) grid(g *Grid) {
	if p.err == nil {
		p.err = g.Print(p.w, "  ")
	}
}

func (p *page) control(c api.ControlState) {
	switch {
	case c.Error != "":
		p.line("%s Control plane: %s%s", p.style.Bad(term.MarkBad), c.Error, restarted(c.Process))
	case !c.Ready:
		p.line("%s Control plane: not ready%s", p.style.Bad(term.MarkBad), restarted(c.Process))
	default:
		p.line("%s Control plane: ready at generation %d, %d clients%s", p.style.Good(term.MarkGood), c.Generation, len(c.Clients), restarted(c.Process))
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
	p.grid(grid)
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
	p.grid(grid)
}

func proxyKind(x api.ProxyState) string {
	kind := "lateen-proxy"
	if x.Stock {
		kind = "stock (" + filepath.Base(x.Path) + ")"
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

func (p *page) pods(pods []api.PodState, wide bool) {
	p.line("")
	p.line("%s", p.style.Bold("Pods"))
	heading := []string{"NAMESPACE", "POD", "NODE", "STATE", "MESH", "IDENTITY"}
	if wide {
		heading = append(heading, "IP", "PROCESSES")
	}
	grid := NewGrid(heading...)
	for _, pod := range pods {
		identity := ""
		if pod.Redirection {
			identity = pod.Identity
		}
		row := []string{pod.Namespace, pod.Name, pod.Node, podState(pod), meshState(pod), identity}
		if wide {
			row = append(row, pod.IP, processes(pod))
		}
		grid.Row(row...)
	}
	if grid.Len() == 0 {
		p.line("  none; %s", p.bring)
		return
	}
	p.grid(grid)
	for _, pod := range pods {
		if longReason(pod) {
			p.line("  %s %s/%s: %s", p.style.Warn(term.MarkWarn), pod.Namespace, pod.Name, pod.Reason)
		}
	}
}

func podState(pod api.PodState) string {
	state := pod.Phase
	if pod.Ready {
		state = "Ready"
	}
	if pod.Reason != "" && !longReason(pod) {
		state += " (" + pod.Reason + ")"
	}
	return state
}

// longReason says whether why a pod is as it is stands below the table: in it one such sentence moves every row beyond the screen.
func longReason(pod api.PodState) bool { return len(pod.Reason) > 40 }

// outside is the state of pods that can never be captured; what that means is said once for all of them.
const outside = "outside"

// releasing is the state of pods that leave the mesh, in JSON.
const releasing = "releasing"

func meshState(pod api.PodState) string {
	state := pod.Mesh
	if state == "" {
		state = "unknown"
	}
	if state == releasing {
		state = "leaving the mesh"
	}
	if pod.MeshReason != "" && state != outside {
		state += " (" + pod.MeshReason + ")"
	}
	return state
}

func processes(pod api.PodState) string {
	var parts []string
	for _, c := range pod.Containers {
		parts = append(parts, fmt.Sprintf("%s pid %d uid %d", c.Name, c.PID, c.UID))
	}
	return strings.Join(parts, ", ")
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
	p.grid(grid)
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
	p.grid(grid)
}

func (p *page) problems(s api.Status) {
	lines := findings(s)
	if len(lines) == 0 {
		return
	}
	p.line("")
	p.line("%s", p.style.Bold("Needs attention"))
	for _, line := range lines {
		p.line("  %s %s", p.style.Warn(term.MarkWarn), line)
	}
}

// maxRefusedNames bounds how many resources a line names.
const maxRefusedNames = 20

// refusedNames are the resources that a refusal is about, and how many it may be about.
func refusedNames(r api.Refusal) string {
	names := r.Names
	if more := len(names) - maxRefusedNames; more > 0 {
		names = append(names[:maxRefusedNames:maxRefusedNames], fmt.Sprintf("and %d more", more))
	}
	text := strings.Join(names, ", ")
	switch {
	case r.Others > 0 && text == "":
		return fmt.Sprintf("it names nothing; there were %d", r.Others)
	case r.Others > 0:
		return fmt.Sprintf("%s; it may mean %d others, too", text, r.Others)
	}
	return text
}

// findings collects what does not work as someone meant it to.
func findings(s api.Status) []string {
	var lines []string
	for _, problem := range s.Problems {
		// A refusal that knows its line says more than another problem of the same object that does not. A remark on an
		// object that was taken says nothing of whether it has an effect.
		better := func(p api.Problem) bool { return p.File != "" && p.Refused() && p.Object == problem.Object }
		if problem.File == "" && problem.Object != "" && slices.ContainsFunc(s.Problems, better) {
			continue
		}
		lines = append(lines, problem.String())
	}
	for _, pod := range s.Pods {
		if pod.Enrolled && !pod.Redirection && pod.MeshReason != "" {
			lines = append(lines, fmt.Sprintf("pod %s/%s is not in the mesh: %s", pod.Namespace, pod.Name, pod.MeshReason))
		}
	}
	for _, pod := range s.Pods {
		for _, why := range pod.ExceptionsRefused {
			lines = append(lines, fmt.Sprintf("pod %s/%s: %s", pod.Namespace, pod.Name, why))
		}
	}
	for _, client := range s.Control.Clients {
		for _, t := range client.Types {
			for _, r := range t.Refused {
				lines = append(lines, fmt.Sprintf("node %s refuses part of its %s: %s (%s)", client.Node, t.Type, r.Message, refusedNames(r)))
			}
		}
	}
	for _, n := range s.Nodes {
		for name, part := range map[string]struct {
			process api.Process
			err     string
		}{"proxy": {n.Proxy.Process, n.Proxy.Error}, "agent": {n.Agent.Process, n.Agent.Error}} {
			if part.err != "" {
				lines = append(lines, fmt.Sprintf("%s of node %s: %s", name, n.Name, part.err))
			}
			if part.process.Restarts > 0 {
				lines = append(lines, fmt.Sprintf("%s of node %s%s", name, n.Name, strings.Replace(restarted(part.process), ";", "", 1)))
			}
		}
	}
	slices.Sort(lines)
	return lines
}
