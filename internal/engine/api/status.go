package api

import "time"

// Status is the state of a whole mesh.
type Status struct {
	Mesh    string    `json:"mesh"`
	Engine  string    `json:"engine,omitempty"` // Kubernetes, or empty of the local one
	Started time.Time `json:"started"`
	// Latency is what was added to every round trip between nodes, in user space.
	Latency time.Duration `json:"latency,omitempty"`
	Control ControlState  `json:"control"`
	Nodes   []NodeState   `json:"nodes"`
	Pods    []PodState    `json:"pods"`
	// Problems are refused or ineffective objects, as the control plane reports them.
	Problems []Problem `json:"problems,omitempty"`
	// Findings are what the control plane's analysis says of objects, for readers that want more than the problems' words.
	Findings []Finding `json:"findings,omitempty"`
	// Unknown is what nobody can tell while no control plane answers, and Next what to do then. Problems are what it has left in the objects' status.
	Unknown []string `json:"unknown,omitempty"`
	Next    []string `json:"next,omitempty"`
	// Waypoints are put together from the objects by whoever asked; the engine leaves them out.
	Waypoints []WaypointState `json:"waypoints,omitempty"`
}

// Kubernetes is the engine of a mesh that a cluster has.
const Kubernetes = "kubernetes"

// Process is one supervised process.
type Process struct {
	PID       int       `json:"pid"`       // on the host; 0 if not running
	MeshPID   int       `json:"meshPid"`   // in the mesh's own pid namespace
	StartTime uint64    `json:"startTime"` // clock ticks since boot: pid and start time together name a process for good
	Since     time.Time `json:"since,omitzero"`
	Restarts  int       `json:"restarts"`
	LastExit  string    `json:"lastExit,omitempty"` // why it ended last time
}

// ControlState is the state of the control plane.
type ControlState struct {
	Process
	Ready      bool          `json:"ready"`
	Generation uint64        `json:"generation"`
	Clients    []ClientState `json:"clients,omitempty"`
	CA         *CAStatus     `json:"ca,omitempty"`    // if it could be asked
	Error      string        `json:"error,omitempty"` // why the above could not be read
}

// Predecessor is a node proxy that was replaced and keeps its connections until they end.
type Predecessor struct {
	PID         int       `json:"pid"`
	Since       time.Time `json:"since"`       // when it was replaced
	Until       time.Time `json:"until"`       // when what is left is cut
	Connections int       `json:"connections"` // TCP connections that it has open, tunnels among them
}

// ClientState is one xDS client of the control plane.
type ClientState struct {
	Node           string      `json:"node"`
	ConnectedSince time.Time   `json:"connectedSince,omitzero"`
	Types          []TypeState `json:"types,omitempty"`
}

// TypeState is what one client has of one resource type.
type TypeState struct {
	Type            string    `json:"type"`
	SentGeneration  uint64    `json:"sentGeneration"`
	AckedGeneration uint64    `json:"ackedGeneration"`
	Refused         []Refusal `json:"refused,omitempty"` // what it has not taken to this day
}

// Refusal is what a client complains about.
type Refusal struct {
	Message string   `json:"message"`
	Names   []string `json:"names"`            // of resources
	Others  int      `json:"others,omitempty"` // how many resources it may mean, too
}

// NodeState is one node with its agent and its proxy.
type NodeState struct {
	Name    string     `json:"name"`
	Index   int        `json:"index"` // from 1
	IP      string     `json:"ip"`
	PodCIDR string     `json:"podCIDR"`
	Agent   AgentState `json:"agent"`
	Proxy   ProxyState `json:"proxy"`
}

// AgentState is one node agent.
type AgentState struct {
	Process
	Ready          bool   `json:"ready"`
	ProxyConnected bool   `json:"proxyConnected"`
	Error          string `json:"error,omitempty"`
}

// ProxyState is one node proxy.
type ProxyState struct {
	Process
	Path              string `json:"path"`    // the executable
	Ztunnel           bool   `json:"ztunnel"` // the executable is an unmodified ztunnel, by `up --node-proxy` or `proxy replace --ztunnel`
	Ready             bool   `json:"ready"`
	Version           string `json:"version,omitempty"`
	AckedGeneration   uint64 `json:"ackedGeneration"`             // the lowest over its resource types
	WorkerConnections []int  `json:"workerConnections,omitempty"` // open connections per worker, if the proxy tells
	// Draining are those that it replaced and that have not ended yet, the oldest first.
	Draining []Predecessor `json:"draining,omitempty"`
	Error    string        `json:"error,omitempty"`
}

// PodState is one pod as the mesh sees it.
type PodState struct {
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	UID            string `json:"uid"`
	Node           string `json:"node"`
	IP             string `json:"ip"`
	ServiceAccount string `json:"serviceAccount"`
	Identity       string `json:"identity"` // SPIFFE id it has when enrolled
	Phase          string `json:"phase"`
	Ready          bool   `json:"ready"`
	Reason         string `json:"reason,omitempty"` // why it is not ready, in words
	// Containers are its processes, main containers in the order of the spec.
	Containers []ContainerState `json:"containers,omitempty"`
	// Mesh is the agent's view: "captured", "pending", "releasing" or "plain"; empty if the agent could not be asked;
	// "outside" of a pod that can never be captured.
	Mesh        string    `json:"mesh"`
	MeshReason  string    `json:"meshReason,omitempty"`
	MeshSince   time.Time `json:"meshSince,omitzero"`
	Enrolled    bool      `json:"enrolled"`                      // labels ask for capture
	Redirection bool      `json:"redirection"`                   // capture is live
	Unmeshed    []Conn    `json:"unmeshedConnections,omitempty"` // opened before enrolment and still alive
	// Exceptions say what of a captured pod's traffic passes by the mesh, as its annotations ask: no policy holds there.
	Exceptions []string `json:"exceptions,omitempty"`
	// ExceptionsRefused are annotations that ask for more of that and have no effect, each with the reason.
	ExceptionsRefused []string `json:"exceptionsRefused,omitempty"`
	HostNetwork       bool     `json:"hostNetwork,omitempty"` // shares its node's network; never enrolled
}

// ContainerState is one container of a pod.
type ContainerState struct {
	Name string `json:"name"`
	Process
	UID      int    `json:"uid"` // unix uid, one per service account
	Ready    bool   `json:"ready"`
	Waiting  string `json:"waiting,omitempty"`  // reason for not running
	ExitCode *int   `json:"exitCode,omitempty"` // of the last run
}

// Conn is a TCP connection of a pod that the mesh does not carry.
type Conn struct {
	Local        string    `json:"local"`
	Remote       string    `json:"remote"`
	Direction    string    `json:"direction"`    // "inbound" or "outbound"
	OpenedBefore time.Time `json:"openedBefore"` // it was there already at this time: when the pod was enrolled
}

// Usage is what the parts of the mesh have consumed so far. Take it twice and subtract.
type Usage struct {
	Time       time.Time        `json:"time"`
	Components []ComponentUsage `json:"components"`
}

// ComponentUsage is the consumption of one component: all threads of one process, or all processes of one container.
type ComponentUsage struct {
	Kind      string `json:"kind"` // "control", "agent", "proxy", "engine" or "container"
	Name      string `json:"name"` // "lateen-control", "n1" for agents and proxies, "namespace/pod/container"
	Node      string `json:"node,omitempty"`
	PID       int    `json:"pid"`       // on the host
	Restarts  int    `json:"restarts"`  // if it differs between two samples their difference means nothing
	CPUNanos  uint64 `json:"cpuNanos"`  // time on a CPU, user and system together, from the scheduler: exact
	UserTicks uint64 `json:"userTicks"` // 10 ms ticks: how CPUNanos splits, roughly
	SysTicks  uint64 `json:"sysTicks"`
	RSSBytes  uint64 `json:"rssBytes"`
	Threads   int    `json:"threads"`
}

// WaypointState is a waypoint as its Gateway, its Deployment and the labels of what uses it tell. The engine does not answer with it:
// whoever asks puts it together from the objects.
type WaypointState struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Class     string `json:"class"`
	Traffic   string `json:"traffic"`           // what it takes: service, workload, all or none
	Version   string `json:"version,omitempty"` // of its proxies
	// Programmed is "True", "False" or "Unknown", as a condition is; Reason says why it is not "True".
	Programmed string `json:"programmed"`
	Reason     string `json:"reason,omitempty"`
	// Ready and Wanted count its pods, of those that the mesh runs.
	Ready  int `json:"ready"`
	Wanted int `json:"wanted"`
	// Bound are the objects whose labels choose it, as kind/name or namespace/kind/name.
	Bound []Key `json:"bound,omitempty"`
	// Unbound are the objects that ask for it, themselves or by their namespaces, and whose connections do not go through it.
	Unbound []UnboundObject `json:"unbound,omitempty"`
}

// UnboundObject is an object whose connections do not go through the waypoint that it asks for. Message says why, and where they go.
type UnboundObject struct {
	Object  Key    `json:"object"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}
