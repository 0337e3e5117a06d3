// Package api is the contract between a local engine and whoever asks it something over its unix socket:
// the requests, the answers and a typed client. It holds no behaviour of the engine itself; package local has that.
package api

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// RunRoot is the directory that holds one run directory per mesh.
const RunRoot = "/run/lateen"

// DefaultMesh is the name of the mesh that a user gets who names none.
const DefaultMesh = "default"

// RunDir is the run directory of a mesh: its socket, its objects, its logs.
func RunDir(mesh string) string { return filepath.Join(RunRoot, mesh) }

// SocketPath is the engine's socket of a mesh.
func SocketPath(mesh string) string { return filepath.Join(RunDir(mesh), "engine.sock") }

// Version says which engine answers.
type Version struct {
	Mesh    string    `json:"mesh"`
	Version string    `json:"version"`
	Nodes   []string  `json:"nodes"`
	PID     int       `json:"pid"` // the engine's pid as seen from the host
	Started time.Time `json:"started"`
}

// Event is one line of progress while a mesh goes up or down.
type Event struct {
	Phase   string     `json:"phase"`           // stable name: "network", "control", "agents", "proxies", "ready", "pods", "engine"
	Message string     `json:"message"`         // for people
	State   EventState `json:"state"`           // what happened to the phase
	Error   string     `json:"error,omitempty"` // with EventFailed: what failed
	Fix     string     `json:"fix,omitempty"`   // with EventFailed: what to do about it
	Log     []string   `json:"log,omitempty"`   // with EventFailed: the last lines of the log concerned
}

// ReplaceRequest asks for another process in the place of a node's proxy.
type ReplaceRequest struct {
	Binary       string  `json:"binary,omitempty"`  // absolute path; the present one if empty
	Ztunnel      bool    `json:"ztunnel,omitempty"` // Binary is an unmodified ztunnel
	DrainSeconds float64 `json:"drainSeconds"`      // how long connections may go on in the process that is replaced
	Wait         bool    `json:"wait,omitempty"`    // answer only when that has ended
}

// EventState is the state of a phase.
type EventState string

// The states of a phase.
const (
	EventStarted EventState = "started"
	EventGoesOn  EventState = "goes on" // how far a phase is that was started
	EventDone    EventState = "done"
	EventFailed  EventState = "failed"
)

// Key names one object. Namespace is empty for cluster-scoped kinds.
type Key struct {
	// Group is the API group of a kind whose name several groups have (see SharedKind), and empty for any other kind. In a request for
	// such a kind an empty group means the only object of the name; the engine refuses a name that several have.
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// UnmarshalJSON implements json.Unmarshaler. The control plane writes the group of every kind; it is dropped where the kind tells it, so
// that keys of the same object are equal.
func (k *Key) UnmarshalJSON(b []byte) error {
	type plain Key
	if err := json.Unmarshal(b, (*plain)(k)); err != nil {
		return err
	}
	kind, _ := LookupKind(k.Kind)
	k.Group = SharedGroup(kind.Name, k.Group)
	return nil
}

// Word is the kind as users write it, in lower case. It has the group behind it if the kind alone means that of another group.
func (k Key) Word() string {
	word := strings.ToLower(k.Kind)
	if groups := SharedKind(k.Kind); k.Group != "" && len(groups) > 0 && k.Group != groups[0] {
		word += "." + k.Group
	}
	return word
}

// String is the key as users write it: kind/name, lower case, with the namespace in front if there is one.
func (k Key) String() string {
	s := k.Word() + "/" + k.Name
	if k.Namespace != "" {
		return k.Namespace + "/" + s
	}
	return s
}

// Problem is one thing wrong with what a user gave, in terms of what the user gave.
type Problem struct {
	// Severity is SeverityWarning if the object was taken nevertheless; anything else is a refusal.
	Severity string `json:"severity,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Object   string `json:"object,omitempty"` // "Service shop/web", as far as it could be read
	Field    string `json:"field,omitempty"`
	Message  string `json:"message"`
	Fix      string `json:"fix,omitempty"`
}

// SeverityWarning marks a problem with an object that was taken but may not do what its author expects.
const SeverityWarning = "warning"

// Refused says whether what the problem is about was not taken because of it.
func (p Problem) Refused() bool { return p.Severity != SeverityWarning }

// String is the problem on one line: file:line: object: field: message; fix.
func (p Problem) String() string {
	var parts []string
	switch {
	case p.File != "" && p.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d", p.File, p.Line))
	case p.File != "":
		parts = append(parts, p.File)
	}
	for _, s := range []string{p.Object, p.Field, p.Message} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	s := strings.Join(parts, ": ")
	if p.Fix != "" {
		s += "; " + p.Fix
	}
	return s
}

// Document is one file that a user hands to apply or delete.
type Document struct {
	File string `json:"file"` // as the user named it; "-" for standard input
	Dir  string `json:"dir"`  // absolute directory of the file: LATEEN_MANIFEST_DIR of the containers it declares
	Data []byte `json:"data"`
}

// ApplyRequest brings the objects of some documents into being, or changes them.
type ApplyRequest struct {
	Documents []Document `json:"documents"`
	Namespace string     `json:"namespace,omitempty"` // for objects that name none; "default" if empty
	DryRun    bool       `json:"dryRun,omitempty"`
	// Diff asks, with DryRun, for each object as it is and as it would be.
	Diff bool `json:"diff,omitempty"`
}

// Action is what became of one object.
type Action string

// The actions of apply, patch and delete.
const (
	Created    Action = "created"
	Configured Action = "configured"
	Unchanged  Action = "unchanged"
	Deleted    Action = "deleted"
)

// ObjectResult is what apply, patch or delete did with one object.
type ObjectResult struct {
	Key      Key      `json:"key"`
	Action   Action   `json:"action"`
	Warnings []string `json:"warnings,omitempty"` // for example: this kind has no effect yet
	// Before and After are the object as it is, without its status, and as apply would leave it, with ApplyRequest.Diff. Before is empty
	// if there is none.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Conditions and Findings are what the control plane would say of the object. They are there after a dry run alone.
	Conditions []Condition `json:"conditions,omitempty"`
	Findings   []Finding   `json:"findings,omitempty"`
}

// ApplyResult answers apply and delete. Good documents count even when others are refused:
// the caller reports Problems and exits 1 if there are any.
type ApplyResult struct {
	Results  []ObjectResult `json:"results"`
	Problems []Problem      `json:"problems,omitempty"`
	// Unasked is why the control plane could not be asked what a dry run would come to.
	Unasked string `json:"unasked,omitempty"`
}

// DeleteRequest removes the objects of some documents, or those named.
type DeleteRequest struct {
	Documents      []Document `json:"documents,omitempty"`
	Namespace      string     `json:"namespace,omitempty"` // for objects that name none
	Keys           []Key      `json:"keys,omitempty"`
	IgnoreNotFound bool       `json:"ignoreNotFound,omitempty"`
	Wait           bool       `json:"wait,omitempty"` // answer only when the pods that go with them are gone
	DryRun         bool       `json:"dryRun,omitempty"`
	// GraceSeconds is how long pods may take to end, in place of their own terminationGracePeriodSeconds; nil leaves that.
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`
}

// RestartedAt is the annotation of a pod template by which kubectl rollout restart makes a Deployment replace its pods: the time as in RFC 3339.
const RestartedAt = "kubectl.kubernetes.io/restartedAt"

// PatchRequest changes an object by a JSON merge patch (RFC 7386): labels, replicas, anything.
type PatchRequest struct {
	Key    Key             `json:"key"`
	Patch  json.RawMessage `json:"patch"`
	DryRun bool            `json:"dryRun,omitempty"`
	// UID and Generation are a precondition: the metadata.uid and metadata.generation of the object that the patch was made for. An object
	// that differs is not changed, and the answer is an error with the code 409. Empty and 0 match any object.
	UID        string `json:"uid,omitempty"`
	Generation int64  `json:"generation,omitempty"`
}

// GetRequest asks for objects of one kind.
type GetRequest struct {
	Kind          string // a kind, in any spelling that LookupKind knows
	Group         string // as Key.Group; empty means the objects of all groups that have a kind of the name
	Namespace     string // "default" if empty; ignored for cluster-scoped kinds and with AllNamespaces
	Name          string // one object; not found is an error then
	AllNamespaces bool
	Selector      string // label selector as kubectl's -l
	Owners        bool   // with Object.Owners, which may cost the engine another question
}

// Condition is what a part of the mesh says about an object.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"` // "True", "False", "Unknown"
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Object is one object with its state.
type Object struct {
	Key        Key             `json:"key"`
	APIVersion string          `json:"apiVersion"`
	Raw        json.RawMessage `json:"raw"`                  // the whole object as JSON, status included
	Created    time.Time       `json:"created,omitzero"`     // when it was first applied
	File       string          `json:"file,omitempty"`       // the file it was last applied from
	Conditions []Condition     `json:"conditions,omitempty"` // what the control plane says about it
	Problems   []Problem       `json:"problems,omitempty"`   // why (parts of) it are not live
	Findings   []Finding       `json:"findings,omitempty"`   // what is valid in it and can hardly be meant
	// Judged says that the control plane has read the object as it is now: what it says, or does not say, is about this version.
	Judged bool `json:"judged,omitempty"`
	// Ignored is why nothing acts on the object; empty if something does.
	Ignored string `json:"ignored,omitempty"`
	// Owners are the UIDs of what owns it by way of another, if that was asked for: a Deployment owns pods by way of a ReplicaSet.
	// Its own owners are in Raw.
	Owners []string `json:"owners,omitempty"`
}

// ObjectList answers get.
type ObjectList struct {
	Items []Object `json:"items"`
	// Unasked is why the control plane could not be asked about them: then they have no conditions, whatever it would say.
	Unasked string `json:"unasked,omitempty"`
}

// LogsRequest asks for what a container wrote, or a part of the mesh (see Client.PartLog).
type LogsRequest struct {
	Namespace  string
	Target     string // "pod", "pod/name", "deploy/name" (its first ready pod) or "svc/name"
	Container  string // the first one if empty
	Follow     bool
	Tail       int       // last lines; 0 means all
	Since      time.Time // lines that were written at this time or later; zero means all
	Previous   bool      // lines of the run before the present one
	Timestamps bool      // each line after the time when it was written, as in RFC 3339
}

// ExecRequest runs a command in a pod: in its namespaces, with its uid, without privileges.
type ExecRequest struct {
	Namespace string   `json:"namespace"`
	Target    string   `json:"target"` // as in LogsRequest
	Container string   `json:"container,omitempty"`
	Command   []string `json:"command"`
	Stdin     bool     `json:"stdin,omitempty"`
	TTY       bool     `json:"tty,omitempty"`
	Size      Size     `json:"size,omitzero"` // of the terminal, with TTY
	Term      string   `json:"term,omitempty"`
}

// Size is the size of a terminal in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// ConnectRequest opens one TCP connection to a port of a pod, from inside the pod's network namespace.
type ConnectRequest struct {
	Namespace string `json:"namespace"`
	Target    string `json:"target"` // as in LogsRequest; with "svc/", Port is the service's port
	Port      int    `json:"port"`
}

// Error is a refusal of the engine. Code is an HTTP status: 400 the request, 404 no such thing, 409 not now.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"error"`
	Fix     string `json:"fix,omitempty"`
}

// Error implements error.
func (e *Error) Error() string {
	if e.Fix == "" {
		return e.Message
	}
	return e.Message + "; " + e.Fix
}
