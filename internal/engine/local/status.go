package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/proc"
	"lateen.dev/lateen/internal/model/wellknown"
)

// statusTimeout bounds how long one part of the mesh may take to say how it is.
const statusTimeout = 3 * time.Second

// trustDomain is the mesh's.
const trustDomain = "cluster.local"

// observer says how the parts of the mesh and its pods are, and what they have consumed. Its fields never change; the state's lock
// guards what it reads of nodes and pods, and each daemon's own lock what it reads of that.
type observer struct {
	mesh     string
	latency  time.Duration // added to a round trip between two nodes
	started  time.Time
	host     *hostView
	state    *state
	daemons  *daemons
	dir      runDir
	statuses *statusReader
}

func newObserver(mesh string, latency time.Duration, started time.Time, host *hostView, s *state, d *daemons, dir runDir, statuses *statusReader) *observer {
	return &observer{mesh: mesh, latency: latency, started: started, host: host, state: s, daemons: d, dir: dir, statuses: statuses}
}

// status asks every part of the mesh how it is, all at once.
func (o *observer) status(ctx context.Context) api.Status {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	host := o.host.pids()
	s := api.Status{Mesh: o.mesh, Started: o.started, Latency: o.latency, Nodes: make([]api.NodeState, len(o.state.nodes))}
	said := map[string]agentSaid{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	wg.Go(func() { s.Control, s.Problems = o.controlState(ctx, host) })
	for i, n := range o.state.nodes {
		s.Nodes[i] = api.NodeState{Name: n.name, Index: n.Index, IP: n.IP().String(), PodCIDR: n.PodCIDR().String()}
		wg.Go(func() {
			agent, pods := o.agentState(ctx, n, host)
			s.Nodes[i].Agent = agent
			mu.Lock()
			defer mu.Unlock()
			for uid, p := range pods {
				said[uid] = p
			}
		})
		wg.Go(func() { s.Nodes[i].Proxy = o.proxyState(ctx, n, host) })
	}
	wg.Wait()
	for i := range s.Nodes {
		s.Nodes[i].Proxy.AckedGeneration = ackedBy(s.Control.Clients, s.Nodes[i].Name)
	}
	s.Pods = o.podStates(said, host)
	s.Problems = append(s.Problems, o.state.unmade()...)
	return s
}

// ackedBy is the lowest generation that a node's proxy has acknowledged over all types.
func ackedBy(clients []api.ClientState, node string) uint64 {
	var lowest uint64
	first := true
	for _, c := range clients {
		if c.Node != node {
			continue
		}
		for _, t := range c.Types {
			if first || t.AckedGeneration < lowest {
				lowest, first = t.AckedGeneration, false
			}
		}
	}
	return lowest
}

// processState describes a daemon's process.
func processState(d *daemon, host map[int]int) api.Process {
	if d == nil {
		return api.Process{}
	}
	s := d.state()
	p := api.Process{Restarts: s.restarts, LastExit: s.lastExit}
	if s.process != nil {
		p.MeshPID, p.PID, p.Since = s.process.PID, host[s.process.PID], s.process.Started
		p.StartTime, _ = proc.StartTime("/proc", s.process.PID) // 0 if it has just ended
	}
	return p
}

func (o *observer) controlState(ctx context.Context, host map[int]int) (api.ControlState, []api.Problem) {
	s := api.ControlState{Process: processState(o.daemons.control, host)}
	_, err := fetchControl(ctx, "/ready")
	s.Ready = err == nil
	if err != nil {
		s.Error = err.Error()
		return s, nil
	}
	if b, err := fetchControl(ctx, "/debug/clients"); err != nil {
		s.Error = err.Error()
	} else if s.Generation, s.Clients, err = readClients(b); err != nil {
		s.Error = "its list of clients cannot be read: " + err.Error()
	}
	if b, err := fetchControl(ctx, "/debug/ca"); err == nil {
		var status api.CAStatus
		if json.Unmarshal(b, &status) == nil {
			s.CA = &status
		}
	}
	var problems []api.Problem
	if b, err := fetchControl(ctx, "/debug/problems"); err == nil {
		if err := json.Unmarshal(b, &problems); err != nil {
			s.Error = "its list of problems cannot be read: " + err.Error()
		}
		unplaced(problems, string(o.dir))
	}
	said, err := o.statuses.read(ctx, "")
	if err != nil {
		s.Error = err.Error()
	}
	for _, o := range said {
		for _, c := range o.Conditions {
			// Refusals of proxies stand among the clients, by the names of resources.
			if c.Status == "False" && c.Type != wellknown.Programmed {
				problems = append(problems, api.Problem{Object: o.Kind + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"), Message: c.Message})
			}
		}
	}
	return s, problems
}

// unplaced takes the places in the engine's own store off problems that name their object: users know the object, and not that file.
func unplaced(problems []api.Problem, store string) {
	for i, p := range problems {
		if p.Object != "" && strings.HasPrefix(p.File, strings.TrimSuffix(store, "/")+"/") {
			problems[i].File, problems[i].Line = "", 0
		}
	}
}

// readClients reads the control plane's page of its clients.
func readClients(b []byte) (generation uint64, clients []api.ClientState, err error) {
	var page struct {
		Generation uint64            `json:"generation"`
		Clients    []api.ClientState `json:"clients"`
	}
	if err := json.Unmarshal(b, &page); err != nil {
		return 0, nil, err
	}
	for _, client := range page.Clients {
		for _, t := range client.Types {
			for i := range t.Refused {
				written(&t.Refused[i])
			}
		}
	}
	return page.Generation, page.Clients, nil
}

// written makes a refusal speak of policies as their authors wrote them.
func written(refusal *api.Refusal) {
	refusal.Message = wellknown.Written(refusal.Message)
	for i, name := range refusal.Names {
		refusal.Names[i] = wellknown.Written(name)
	}
}

// agentSaid is what an agent says about one pod.
type agentSaid struct {
	UID                 string     `json:"uid"`
	State               string     `json:"state"`
	Reason              string     `json:"reason"`
	Since               time.Time  `json:"since"`
	UnmeshedConnections []api.Conn `json:"unmeshedConnections"`
	Exceptions          []string   `json:"exceptions"`
	Refused             []string   `json:"refused"`
}

func (o *observer) agentState(ctx context.Context, n *node, host map[int]int) (api.AgentState, map[string]agentSaid) {
	s := api.AgentState{Process: processState(n.agent, host)}
	b, err := fetchUnix(ctx, o.dir.agentSocket(n.name), "/v1/status")
	if err != nil {
		s.Error = err.Error()
		return s, nil
	}
	var said struct {
		ProxyConnected bool        `json:"proxyConnected"`
		Pods           []agentSaid `json:"pods"`
	}
	if err := json.Unmarshal(b, &said); err != nil {
		s.Error = "its status cannot be read: " + err.Error()
		return s, nil
	}
	s.Ready, s.ProxyConnected = true, said.ProxyConnected
	pods := map[string]agentSaid{}
	for _, p := range said.Pods {
		pods[p.UID] = p
	}
	return s, pods
}

func (o *observer) proxyState(ctx context.Context, n *node, host map[int]int) api.ProxyState {
	s := api.ProxyState{Process: processState(n.proxy, host), Ztunnel: n.program().ztunnel, Draining: o.predecessors(n, host)}
	if n.proxy != nil {
		s.Path = n.program().path
	}
	if err := n.proxyIsReady(ctx); err != nil {
		s.Error = err.Error()
	} else {
		s.Ready = true
	}
	b, err := n.askProxy(ctx, proxyMetrics, "/metrics")
	if err != nil {
		return s
	}
	s.Version, s.WorkerConnections = readProxyMetrics(b)
	return s
}

// readProxyMetrics finds the version and the connections per worker among a proxy's metrics.
func readProxyMetrics(b []byte) (version string, connections []int) {
	byWorker := map[int]int{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, labels, value, ok := metric(lines.Text())
		switch {
		case !ok:
		case name == "istio_build":
			version = labels["tag"]
		case name == "lateen_worker_connections":
			if w, err := strconv.Atoi(labels["worker"]); err == nil && w >= 0 {
				byWorker[w] += int(value)
			}
		}
	}
	workers := make([]int, 0, len(byWorker))
	for w := range byWorker {
		workers = append(workers, w)
	}
	sort.Ints(workers)
	for _, w := range workers {
		connections = append(connections, byWorker[w])
	}
	return version, connections
}

// metric reads one line of Prometheus' text format.
func metric(line string) (name string, labels map[string]string, value float64, ok bool) {
	if line == "" || line[0] == '#' {
		return "", nil, 0, false
	}
	labels = map[string]string{}
	head, rest := line, ""
	if i := strings.IndexByte(line, '{'); i >= 0 {
		j := strings.LastIndexByte(line, '}')
		if j < i {
			return "", nil, 0, false
		}
		head, rest = line[:i], line[j+1:]
		for s := line[i+1 : j]; s != ""; {
			key, after, found := strings.Cut(s, "=\"")
			if !found {
				break
			}
			end := 0
			for end < len(after) && after[end] != '"' {
				if after[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(after) {
				break
			}
			labels[strings.TrimLeft(key, ", ")] = after[:end]
			s = after[end+1:]
		}
	} else {
		head, rest, _ = strings.Cut(line, " ")
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return "", nil, 0, false
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	return strings.TrimSpace(head), labels, value, err == nil
}

// podStates describes all pods.
func (o *observer) podStates(said map[string]agentSaid, host map[int]int) []api.PodState {
	pids := o.state.containerPIDs(podProcesses())
	o.state.mu.Lock()
	defer o.state.mu.Unlock()
	out := make([]api.PodState, 0, len(o.state.pods))
	for _, p := range o.state.pods {
		s := api.PodState{
			Namespace: p.id.namespace, Name: p.id.name, UID: p.id.uid, Node: p.id.node.name, IP: p.id.ip.String(), ServiceAccount: p.id.serviceAccount(),
			Identity: "spiffe://" + trustDomain + "/ns/" + p.id.namespace + "/sa/" + p.id.serviceAccount(),
			Phase:    string(p.phase), Ready: p.ready(), Reason: p.unreadyWhy(), HostNetwork: p.id.spec.HostNetwork,
			Enrolled: o.state.enrolled(p), Redirection: p.redirection.enabled,
		}
		if s.Ready {
			s.Reason = ""
		}
		if a, ok := said[p.id.uid]; ok {
			s.Mesh, s.MeshReason, s.MeshSince, s.Unmeshed = a.State, a.Reason, a.Since, a.UnmeshedConnections
			s.Exceptions, s.ExceptionsRefused = a.Exceptions, a.Refused
		}
		if p.id.onNodesNetwork() {
			s.Mesh, s.MeshReason = "outside", outsideTheMesh
		}
		for _, c := range p.containers {
			if c.init {
				continue
			}
			cs := api.ContainerState{Name: c.spec.Name, UID: p.id.unixUID, Ready: c.ready, ExitCode: c.exitCode,
				Process: api.Process{Restarts: c.restarts, LastExit: c.lastExit}}
			if !c.running() {
				cs.Waiting = c.waiting
			} else if tree := pids[c]; len(tree) > 0 {
				cs.MeshPID, cs.PID, cs.Since = tree[0], host[tree[0]], c.started
				cs.StartTime, _ = proc.StartTime("/proc", tree[0]) // 0 if it has just ended
			}
			s.Containers = append(s.Containers, cs)
		}
		out = append(out, s)
	}
	sort.Slice(out, func(i, j int) bool {
		return out[i].Namespace+"/"+out[i].Name < out[j].Namespace+"/"+out[j].Name
	})
	return out
}
