package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// version says who answers.
func (e *Engine) version(ctx context.Context) (api.Version, error) {
	v := api.Version{Mesh: e.Host, Version: e.Version}
	nodes, err := e.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return v, e.refused(err)
	}
	for _, n := range nodes.Items {
		v.Nodes = append(v.Nodes, n.Name)
	}
	return v, nil
}

// status is the state of the mesh: what the API server says of its parts and pods, and what the replicas of the control plane say of
// their proxies.
func (e *Engine) status(ctx context.Context) (*api.Status, error) {
	s := &api.Status{Mesh: e.Host, Engine: api.Kubernetes}
	nodes, err := e.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, e.refused(err)
	}
	if d, err := e.Client.AppsV1().Deployments(e.Namespace).Get(ctx, "lateen-control", metav1.GetOptions{}); err == nil {
		s.Started = d.CreationTimestamp.Time
	}
	answered := false
	if s.Control, s.Problems, answered, err = e.control(ctx); err != nil {
		return nil, err
	}
	if !answered {
		if err := e.unanswered(ctx, s); err != nil {
			return nil, err
		}
	}
	agents, err := e.pods(ctx, "agent")
	if err != nil {
		return nil, err
	}
	proxies, err := e.pods(ctx, "node")
	if err != nil {
		return nil, err
	}
	for i, n := range nodes.Items {
		s.Nodes = append(s.Nodes, node(i+1, &n, agents, proxies, s.Control.Clients))
	}
	s.Pods, err = e.meshed(ctx)
	return s, err
}

// control asks every replica and joins what they say; answered says that one has said anything.
func (e *Engine) control(ctx context.Context) (s api.ControlState, problems []api.Problem, answered bool, err error) {
	pods, err := e.pods(ctx, "control")
	if err != nil {
		return s, nil, false, err
	}
	views := make([]view, len(pods))
	var group sync.WaitGroup
	for i := range pods {
		group.Go(func() { views[i] = e.look(ctx, &pods[i]) })
	}
	group.Wait()
	for i := range pods {
		s.Restarts += restarts(&pods[i])
		if v := views[i]; v.err != nil {
			s.Error = strings.TrimPrefix(s.Error+"; "+v.err.Error(), "; ")
		} else if ready(&pods[i]) {
			s.Ready = true
		}
		for _, p := range views[i].problems {
			if !slices.Contains(problems, p) {
				problems = append(problems, p)
			}
		}
		s.CA = cmp.Or(s.CA, views[i].ca)
	}
	if len(pods) == 0 {
		s.Error = "it has no pods"
	}
	s.Generation, s.Clients = join(views)
	return s, problems, asked(views), nil
}

// view is what one replica says.
type view struct {
	generation uint64
	clients    []api.ClientState
	problems   []api.Problem
	ca         *api.CAStatus
	err        error
}

func (e *Engine) look(ctx context.Context, p *corev1.Pod) (v view) {
	if !ready(p) {
		v.err = fmt.Errorf("pod %s is not ready%s", p.Name, e.waitsFor(ctx, p))
		return v
	}
	var page struct {
		Generation uint64            `json:"generation"`
		Clients    []api.ClientState `json:"clients"`
	}
	b, _, err := e.read(ctx, p, controlPages, "/debug/clients")
	if err == nil {
		err = json.Unmarshal(b, &page)
	}
	if err != nil {
		v.err = err
		return v
	}
	v.generation, v.clients = page.Generation, page.Clients
	if b, _, err := e.read(ctx, p, controlPages, "/debug/problems"); err == nil {
		v.err = json.Unmarshal(b, &v.problems)
	}
	if b, _, err := e.read(ctx, p, controlPages, "/debug/ca"); err == nil {
		v.ca = &api.CAStatus{}
		if json.Unmarshal(b, v.ca) != nil {
			v.ca = nil
		}
	}
	for _, c := range v.clients {
		for _, t := range c.Types {
			for i := range t.Refused {
				t.Refused[i].Message = wellknown.Written(t.Refused[i].Message)
				for j, name := range t.Refused[i].Names {
					t.Refused[i].Names[j] = wellknown.Written(name)
				}
			}
		}
	}
	return v
}

// waitsFor is what a replica that is not ready says that it waits for, such as a right that it lacks, behind a colon; empty if it does not
// answer.
func (e *Engine) waitsFor(ctx context.Context, p *corev1.Pod) string {
	if p.Status.Phase != corev1.PodRunning {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	resp, err := e.ask(ctx, p, controlPages, http.MethodGet, "/ready")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if text := strings.Join(strings.Fields(string(b)), " "); resp.StatusCode != http.StatusOK && text != "" {
		return ": " + text
	}
	return ""
}

// join makes one list of the replicas' clients. Each replica counts generations of its own, so a client's are moved to where they would be if
// its replica's were the latest of all: how far it is behind stays.
func join(views []view) (generation uint64, clients []api.ClientState) {
	for _, v := range views {
		generation = max(generation, v.generation)
	}
	for _, v := range views {
		ahead := generation - v.generation
		for _, c := range v.clients {
			c.Types = slices.Clone(c.Types)
			for i := range c.Types {
				c.Types[i].SentGeneration += ahead
				c.Types[i].AckedGeneration += ahead
			}
			clients = append(clients, c)
		}
	}
	slices.SortStableFunc(clients, func(a, b api.ClientState) int { return strings.Compare(a.Node, b.Node) })
	return generation, clients
}

func restarts(p *corev1.Pod) int {
	n := 0
	for _, c := range p.Status.ContainerStatuses {
		n += int(c.RestartCount)
	}
	return n
}

// node joins what is known of one.
func node(index int, n *corev1.Node, agents, proxies []corev1.Pod, clients []api.ClientState) api.NodeState {
	s := api.NodeState{Name: n.Name, Index: index, PodCIDR: n.Spec.PodCIDR}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && s.IP == "" {
			s.IP = a.Address
		}
	}
	if p := on(agents, n.Name); p != nil {
		s.Agent.Ready, s.Agent.Process, s.Agent.Error = ready(p), process(p), why(p)
	} else {
		s.Agent.Error = "no pod of lateen-agent is here"
	}
	if p := on(proxies, n.Name); p != nil {
		s.Proxy.Ready, s.Proxy.Process, s.Proxy.Error = ready(p), process(p), why(p)
		s.Proxy.Version, s.Proxy.Path = p.Labels[wellknown.AppVersion], p.Spec.Containers[0].Image
	} else {
		s.Proxy.Error = "no pod of lateen-node is here"
	}
	// An agent is ready when it can hand pods over; whether the proxy took them shows in what it acknowledges.
	s.Agent.ProxyConnected = s.Agent.Ready && s.Proxy.Ready
	s.Proxy.AckedGeneration = acked(clients, n.Name)
	return s
}

// on is the pod on a node that counts: pods are sorted by age, and one that is ready goes before others.
func on(pods []corev1.Pod, node string) *corev1.Pod {
	var found *corev1.Pod
	for i := range pods {
		if p := &pods[i]; p.Spec.NodeName == node && (found == nil || !ready(found) && ready(p)) {
			found = p
		}
	}
	return found
}

func process(p *corev1.Pod) api.Process {
	out := api.Process{Since: p.CreationTimestamp.Time, Restarts: restarts(p)}
	for _, c := range p.Status.ContainerStatuses {
		if t := c.LastTerminationState.Terminated; t != nil {
			out.LastExit = fmt.Sprintf("exit code %d: %s", t.ExitCode, t.Reason)
		}
	}
	return out
}

// why says what keeps a pod from being ready; empty if nothing does.
func why(p *corev1.Pod) string {
	if ready(p) {
		return ""
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			return strings.TrimSuffix(fmt.Sprintf("pod %s: %s: %s", p.Name, w.Reason, w.Message), ": ")
		}
	}
	return "pod " + p.Name + " is not ready"
}

// acked is the lowest generation that a node's proxy has acknowledged over all types; of two that change places the further one counts.
func acked(clients []api.ClientState, node string) uint64 {
	var best uint64
	for _, c := range clients {
		if c.Node != node || len(c.Types) == 0 {
			continue
		}
		lowest := c.Types[0].AckedGeneration
		for _, t := range c.Types {
			lowest = min(lowest, t.AckedGeneration)
		}
		best = max(best, lowest)
	}
	return best
}

// meshed are the pods that are in the mesh, or should be, or are to leave it.
func (e *Engine) meshed(ctx context.Context) ([]api.PodState, error) {
	namespaces, err := e.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, e.refused(err)
	}
	labels := map[string]map[string]string{}
	for _, n := range namespaces.Items {
		labels[n.Name] = n.Labels
	}
	pods, err := e.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, e.refused(err)
	}
	domain := "cluster.local"
	if m, err := e.Client.CoreV1().ConfigMaps(e.Namespace).Get(ctx, "lateen-mesh", metav1.GetOptions{}); err == nil {
		domain = cmp.Or(m.Data["TRUST_DOMAIN"], domain)
	}
	out := []api.PodState{}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil {
			continue
		}
		if s := podState(p, enrolled(p.Labels, labels[p.Namespace], capturable(p)), domain); s.Enrolled || s.Redirection {
			out = append(out, s)
		}
	}
	return out, nil
}

// redirected says whether an agent has captured the pod. Who makes a pod can write the annotation himself; it means nothing on a pod that is
// on no node, or that no agent captures.
func redirected(p *corev1.Pod) bool {
	return p.Annotations[wellknown.Redirection] == "enabled" && p.Spec.NodeName != "" && capturable(p)
}

// capturable says whether agents capture pods like this one: it has a network and an identity of its own.
func capturable(p *corev1.Pod) bool { return !p.Spec.HostNetwork && !model.Static(p) }

func podState(p *corev1.Pod, enrolled bool, domain string) api.PodState {
	account, identified := model.Account(p)
	s := api.PodState{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName, IP: p.Status.PodIP, ServiceAccount: account,
		Phase: string(p.Status.Phase), Ready: ready(p), Reason: why(p),
		Enrolled: enrolled, Redirection: redirected(p), HostNetwork: p.Spec.HostNetwork}
	if identified {
		s.Identity = fmt.Sprintf("spiffe://%s/ns/%s/sa/%s", domain, p.Namespace, account)
	}
	switch {
	case s.Redirection && enrolled:
		s.Mesh = "captured"
	case s.Redirection:
		s.Mesh = "releasing"
	case enrolled:
		s.Mesh = "pending"
	default:
		s.Mesh = "plain"
	}
	for _, c := range p.Status.ContainerStatuses {
		state := api.ContainerState{Name: c.Name, Ready: c.Ready, Process: api.Process{Restarts: int(c.RestartCount)}}
		if w := c.State.Waiting; w != nil {
			state.Waiting = w.Reason
		}
		s.Containers = append(s.Containers, state)
	}
	return s
}
