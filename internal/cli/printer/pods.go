package printer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
)

// screenful is the most pods that are listed one by one. Of more pods, those without a problem are counted by namespace.
const screenful = 30

func (p *page) pods(pods []api.PodState, o StatusOptions) {
	p.line("")
	p.line("%s", p.style.Bold("Pods"))
	if len(pods) == 0 && o.Choose != nil {
		p.line("  none of those that are asked for")
		return
	}
	if len(pods) == 0 {
		p.line("  none; %s", p.bring)
		return
	}
	// Pods with a problem come first; the others keep their order.
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b api.PodState) int { return cmp.Compare(order(a), order(b)) })
	if len(pods) > screenful && !o.Pods && !o.Wide {
		p.counted(pods)
		all := len(pods)
		pods = slices.DeleteFunc(pods, func(pod api.PodState) bool { return !troubled(pod) })
		more := max(0, len(pods)-screenful)
		pods = pods[:len(pods)-more]
		switch {
		case len(pods) == 0:
			p.line("  lateen status --pods lists all %d.", all)
			return
		case more > 0:
			p.line("  These are not as they should be, and %d more; lateen status --pods lists all %d:", more, all)
		default:
			p.line("  These are not as they should be; lateen status --pods lists all %d:", all)
		}
	}
	draw := func(heading string, written func(api.PodState) string) *Grid {
		headings := []string{"NAMESPACE", "POD", "NODE", "STATE", "MESH", heading}
		if o.Wide {
			headings = append(headings, "IP", "PROCESSES")
		}
		grid := NewGrid(headings...).Copied(0, 1, 5)
		for _, pod := range pods {
			identity := ""
			if pod.Redirection {
				identity = written(pod)
			}
			row := []string{pod.Namespace, pod.Name, pod.Node, podState(pod), meshState(pod), identity}
			if o.Wide {
				row = append(row, pod.IP, processes(pod))
			}
			grid.Row(row...)
		}
		return grid
	}
	grid := draw("IDENTITY", func(pod api.PodState) string { return pod.Identity })
	domain, own := sharedIdentity(pods)
	narrow := func() bool { return p.width > 0 && grid.Width()+len("  ") > p.width }
	if narrow() && domain != "" {
		grid = draw("IDENTITY", func(pod api.PodState) string { return strings.TrimPrefix(pod.Identity, domain) })
	}
	if narrow() && own {
		grid = draw("SERVICE ACCOUNT", func(pod api.PodState) string { return pod.Identity[strings.LastIndexByte(pod.Identity, '/')+1:] })
	}
	names, spare := []int{1, 5, 0, 3, 4}, []int{2, 5}
	if o.Wide {
		names, spare = append(names, 7), []int{7, 6, 2, 5}
	}
	p.grid(grid, names, spare)
	for _, pod := range pods {
		if longReason(pod) && crash(pod) == "" {
			p.mark(pod.Namespace + "/" + pod.Name + ": " + pod.Reason)
		}
	}
}

// sharedIdentity is the scheme and trust domain that all identities of captured pods begin with, empty if there are several. own says
// that each identity is of the pod's own namespace as well, so that the service account alone tells it.
func sharedIdentity(pods []api.PodState) (domain string, own bool) {
	own = true
	for _, pod := range pods {
		if !pod.Redirection || pod.Identity == "" {
			continue
		}
		at := strings.Index(pod.Identity, "/ns/")
		if at < 0 || domain != "" && pod.Identity[:at+1] != domain {
			return "", false
		}
		domain = pod.Identity[:at+1]
		account, found := strings.CutPrefix(pod.Identity, domain+"ns/"+pod.Namespace+"/sa/")
		own = own && found && !strings.Contains(account, "/")
	}
	return domain, own && domain != ""
}

// counted writes how many pods each namespace has.
func (p *page) counted(pods []api.PodState) {
	type count struct{ all, ready, captured, troubled int }
	by := map[string]*count{}
	for _, pod := range pods {
		c := by[pod.Namespace]
		if c == nil {
			c = &count{}
			by[pod.Namespace] = c
		}
		c.all++
		if pod.Ready {
			c.ready++
		}
		if pod.Redirection {
			c.captured++
		}
		if troubled(pod) {
			c.troubled++
		}
	}
	grid := NewGrid("NAMESPACE", "PODS", "READY", "CAPTURED", "WITH PROBLEMS").Right(1, 2, 3, 4)
	for _, namespace := range slices.Sorted(maps.Keys(by)) {
		c := by[namespace]
		grid.Row(namespace, fmt.Sprint(c.all), fmt.Sprint(c.ready), fmt.Sprint(c.captured), fmt.Sprint(c.troubled))
	}
	p.grid(grid, []int{0}, nil)
}

// crash says that a container of a pod was started again and does not run, and why; empty if there is none. A container that has not run yet
// needs no attention.
func crash(pod api.PodState) string {
	for _, c := range pod.Containers {
		if c.Waiting != "" && c.Restarts > 0 && !pod.Ready {
			return strings.TrimSuffix(c.Waiting+": "+pod.Reason, ": ")
		}
	}
	return ""
}

// troubled says whether a pod is not as it should be: it does not run well, or is not where its labels want it.
func troubled(pod api.PodState) bool {
	ended := pod.Phase == "Succeeded"
	return !ended && (!pod.Ready || pod.Enrolled != pod.Redirection)
}

func order(pod api.PodState) int {
	if troubled(pod) {
		return 0
	}
	return 1
}

// podState is how a pod is, in the words of kubectl and of lateen get pods.
func podState(pod api.PodState) string {
	state := pod.Phase
	if pod.Ready {
		state = "Ready"
	}
	for _, c := range pod.Containers {
		if c.Waiting != "" && !pod.Ready {
			state = c.Waiting
		}
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
