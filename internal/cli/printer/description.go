package printer

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/engine/api"
)

// Description is an object with what belongs to it: the answer of describe. One of the kind's own fields is set.
type Description struct {
	Kind        string            `json:"kind"`
	APIVersion  string            `json:"apiVersion"`
	Namespace   string            `json:"namespace,omitempty"`
	Name        string            `json:"name"`
	UID         string            `json:"uid,omitempty"`
	Created     time.Time         `json:"created,omitzero"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// State and Reason are the control plane's judgement in a word, as in get. Conditions, Problems and Findings are its full text.
	State      string          `json:"state,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Conditions []api.Condition `json:"conditions,omitempty"`
	Problems   []string        `json:"problems,omitempty"`
	Findings   []api.Finding   `json:"findings,omitempty"` // of the control plane's analysis

	Pod        *PodDescription        `json:"pod,omitempty"`
	Deployment *DeploymentDescription `json:"deployment,omitempty"`
	Service    *ServiceDescription    `json:"service,omitempty"`
	Policy     *PolicyDescription     `json:"policy,omitempty"`
	Holds      *NamespaceDescription  `json:"holds,omitempty"` // of a namespace
	Node       *NodeDescription       `json:"node,omitempty"`
	// Fields are the fields of a kind that has no description of its own.
	Fields map[string]any `json:"fields,omitempty"`
}

// stateText is the state with its reason, or with where the reason stands.
func (d Description) stateText() string {
	if len(d.Findings) > 0 && d.Reason == Reasons(d.Findings) {
		return d.State + ", see Findings"
	}
	return strings.TrimSuffix(d.State+": "+d.Reason, ": ")
}

// asWritten is the control plane's message about an object that does what it says.
const asWritten = "the object is accepted as it is written"

// untold are the conditions without the messages that the state or the findings have. That an object is accepted as it is written is
// left out as well if it is not in force so.
func (d Description) untold() []api.Condition {
	conditions := slices.Clone(d.Conditions)
	for i := range conditions {
		c := &conditions[i]
		switch {
		case c.Message == asWritten && slices.Contains([]string{StateIneffective, StateRefusesAll, StatePartial}, d.State):
			c.Reason, c.Message = "", ""
		case c.Message != "" && (strings.Contains(d.Reason, c.Message) || Covers(d.Findings, c.Message)):
			c.Message = ""
		}
	}
	return conditions
}

// PodSummary is a pod in a list, with what get pods -o wide tells of it.
type PodSummary struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Ready     string `json:"readyContainers"` // "1/2"
	IsReady   bool   `json:"ready"`
	Status    string `json:"status"`
	Reason    string `json:"reason,omitempty"`
	IP        string `json:"ip,omitempty"`
	Node      string `json:"node,omitempty"`
}

// PodDescription is what belongs to a pod.
type PodDescription struct {
	PodSummary
	IPs            []string               `json:"ips,omitempty"`
	HostNetwork    bool                   `json:"hostNetwork,omitempty"`
	ServiceAccount string                 `json:"serviceAccount,omitempty"`
	ControlledBy   string                 `json:"controlledBy,omitempty"` // "Deployment/web"
	Containers     []ContainerDescription `json:"containers"`
	Mesh           *MeshDescription       `json:"mesh,omitempty"`
	Services       []string               `json:"services,omitempty"` // that lead to it
	Policies       []PolicySummary        `json:"policies"`           // that select it
}

// MeshDescription is what the mesh does with a pod; the fields are as in api.PodState.
type MeshDescription struct {
	State             string    `json:"state"`
	Reason            string    `json:"reason,omitempty"`
	Since             time.Time `json:"since,omitzero"`
	Enrolled          bool      `json:"enrolled"`
	Identity          string    `json:"identity,omitempty"`
	Exceptions        []string  `json:"exceptions,omitempty"`
	ExceptionsRefused []string  `json:"exceptionsRefused,omitempty"`
	Unmeshed          int       `json:"unmeshedConnections,omitempty"` // how many were opened before it was enrolled and are still open
}

// ContainerDescription is a container of a pod, or of a template.
type ContainerDescription struct {
	Name       string    `json:"name"`
	Init       bool      `json:"init,omitempty"`
	Image      string    `json:"image,omitempty"`
	Command    []string  `json:"command,omitempty"`
	Ports      []string  `json:"ports,omitempty"` // "8080/TCP"
	State      string    `json:"state,omitempty"` // "Running", "Waiting" or "Terminated"; empty in a template
	Reason     string    `json:"reason,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	LastState  string    `json:"lastState,omitempty"`
	LastReason string    `json:"lastReason,omitempty"`
	Ready      bool      `json:"ready"`
	Restarts   int32     `json:"restarts"`
}

// PolicySummary is a policy in a list.
type PolicySummary struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Action    string `json:"action"` // of an AuthorizationPolicy, or the mode of a PeerAuthentication
	State     string `json:"state"`  // "live", "dry-run", …
}

// DeploymentDescription is what belongs to a Deployment.
type DeploymentDescription struct {
	Replicas  int32             `json:"replicas"` // wanted
	Updated   int32             `json:"updated"`
	Ready     int32             `json:"ready"`
	Available int32             `json:"available"`
	Strategy  string            `json:"strategy"`
	Selector  map[string]string `json:"selector,omitempty"`
	// Expressions are the selector's requirements beside its labels.
	Expressions    []metav1.LabelSelectorRequirement `json:"selectorExpressions,omitempty"`
	PodLabels      map[string]string                 `json:"podLabels,omitempty"`
	ServiceAccount string                            `json:"serviceAccount,omitempty"`
	Containers     []ContainerDescription            `json:"containers"`
	Conditions     []api.Condition                   `json:"conditions,omitempty"`
	Pods           []PodSummary                      `json:"pods"`
}

// ServiceDescription is what belongs to a Service.
type ServiceDescription struct {
	Type         string            `json:"type"`
	ExternalName string            `json:"externalName,omitempty"`
	ClusterIPs   []string          `json:"clusterIPs,omitempty"`
	Selector     map[string]string `json:"selector,omitempty"`
	Ports        []PortDescription `json:"ports"`
}

// PortDescription is a port of a Service with the endpoints behind it.
type PortDescription struct {
	Name       string     `json:"name,omitempty"`
	Port       int32      `json:"port"`
	Protocol   string     `json:"protocol"`
	TargetPort string     `json:"targetPort"` // a number or the name of a container's port
	Endpoints  []Endpoint `json:"endpoints"`
}

// Endpoint is an address behind a Service.
type Endpoint struct {
	Address string `json:"address"` // with its port
	Pod     string `json:"pod"`
	Node    string `json:"node"`
	Ready   bool   `json:"ready"`
}

// PolicyDescription is what a policy decides, and about whom.
type PolicyDescription struct {
	Action    string            `json:"action"` // or the mode of a PeerAuthentication
	DryRun    bool              `json:"dryRun,omitempty"`
	Scope     string            `json:"scope"` // in words
	Selector  map[string]string `json:"selector,omitempty"`
	Rules     []string          `json:"rules,omitempty"`     // in words
	NoRules   string            `json:"noRules,omitempty"`   // what it means that there are none
	PortModes map[string]string `json:"portModes,omitempty"` // of a PeerAuthentication
	Pods      []PodSummary      `json:"pods"`                // that it selects
}

// NamespaceDescription is what is in a namespace.
type NamespaceDescription struct {
	Mode    string       `json:"dataplaneMode,omitempty"` // the label that puts its pods into the mesh
	Pods    []PodSummary `json:"pods"`
	Objects []Held       `json:"objects,omitempty"`
}

// Held are the objects of a kind in a namespace.
type Held struct {
	Kind  string   `json:"kind"`
	Names []string `json:"names"`
}

// NodeDescription is what runs on a node.
type NodeDescription struct {
	Ready           bool         `json:"ready"`
	Addresses       []string     `json:"addresses,omitempty"`
	PodCIDR         string       `json:"podCIDR,omitempty"`
	Agent           string       `json:"agent,omitempty"` // in words
	Proxy           string       `json:"proxy,omitempty"` // in words
	AckedGeneration uint64       `json:"ackedGeneration,omitempty"`
	Generation      uint64       `json:"generation,omitempty"` // of the control plane
	Pods            []PodSummary `json:"pods"`
}

// SummaryOfPod is a pod as get shows it.
func SummaryOfPod(object api.Object) (PodSummary, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(object.Raw, &pod); err != nil {
		return PodSummary{}, err
	}
	cells, _, err := podCells(object, time.Time{})
	if err != nil {
		return PodSummary{}, err
	}
	s := PodSummary{Namespace: object.Key.Namespace, Name: object.Key.Name, Ready: cells[0], Status: cells[1], IsReady: podReady(pod), IP: pod.Status.PodIP, Node: pod.Spec.NodeName}
	s.Reason = pod.Status.Message
	if i := slices.IndexFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Waiting != nil && c.State.Waiting.Message != "" }); s.Reason == "" && i >= 0 {
		s.Reason = "container " + pod.Status.ContainerStatuses[i].Name + ": " + pod.Status.ContainerStatuses[i].State.Waiting.Message
	}
	return s, nil
}
