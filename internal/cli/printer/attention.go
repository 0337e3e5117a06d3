package printer

import (
	"fmt"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
)

func (p *page) problems(s api.Status, pods []api.PodState) {
	s.Pods = pods
	lines := findings(s)
	if len(lines) == 0 {
		return
	}
	p.line("")
	p.line("%s", p.style.Bold("Needs attention"))
	for _, line := range lines {
		p.mark(line)
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
	for _, problem := range OnePerObject(s.Problems) {
		lines = append(lines, problem.String())
	}
	for _, pod := range s.Pods {
		if why := crash(pod); why != "" {
			lines = append(lines, fmt.Sprintf("pod %s/%s: %s", pod.Namespace, pod.Name, why))
		}
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

// OnePerObject joins the problems of each object into one. If the object has a refusal with a place in a file, its problems without a place are left
// out. So is a problem whose text another problem of the object contains.
func OnePerObject(problems []api.Problem) (out []api.Problem) {
	by := map[string][]api.Problem{}
	var objects []string
	for _, p := range problems {
		if p.Object == "" {
			out = append(out, p)
			continue
		}
		if by[p.Object] == nil {
			objects = append(objects, p.Object)
		}
		by[p.Object] = append(by[p.Object], p)
	}
	for _, object := range objects {
		out = append(out, joined(by[object]))
	}
	return out
}

func joined(problems []api.Problem) api.Problem {
	placed := func(p api.Problem) bool { return p.File != "" && p.Refused() }
	if slices.ContainsFunc(problems, placed) {
		problems = slices.DeleteFunc(slices.Clone(problems), func(p api.Problem) bool { return p.File == "" })
	}
	var kept []api.Problem
	for i, p := range problems {
		_, gist, _ := strings.Cut(p.Message, ": ")
		said := slices.ContainsFunc(problems[i+1:], func(q api.Problem) bool {
			return strings.Contains(q.Message, p.Message) || gist != "" && strings.Contains(q.Message, gist)
		}) ||
			slices.ContainsFunc(kept, func(q api.Problem) bool { return strings.Contains(q.Message, p.Message) })
		if !said {
			kept = append(kept, p)
		}
	}
	one := kept[0]
	if len(kept) == 1 {
		return one
	}
	var texts []string
	for _, p := range kept {
		p.File, p.Line, p.Object = "", 0, ""
		texts = append(texts, p.String())
		if p.Refused() {
			one.Severity = p.Severity
		}
	}
	one.Field, one.Fix, one.Message = "", "", strings.Join(texts, ". ")
	return one
}
