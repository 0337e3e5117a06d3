package printer

import (
	"fmt"
	"io"
	"strconv"
	"time"
)

// MeshState is how a mesh of this machine is.
type MeshState string

// The states of a mesh.
const (
	MeshRunning MeshState = "running"
	MeshSilent  MeshState = "silent"  // its engine runs and does not answer
	MeshStopped MeshState = "stopped" // only files are left
	MeshUnknown MeshState = "unknown" // root alone may ask
)

// Mesh is one mesh of this machine in a list. Fields of a mesh that does not answer are empty.
type Mesh struct {
	Name  string    `json:"name"`
	State MeshState `json:"state"`
	Nodes int       `json:"nodes,omitempty"`
	// Pods counts the pods that could be enrolled, Enrolled those whose traffic is captured. They are nil if nobody answered.
	Pods     *int      `json:"pods,omitempty"`
	Enrolled *int      `json:"enrolled,omitempty"`
	Version  string    `json:"version,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	// Reason says what is wrong with it, and Fix is the command or the advice that puts it right.
	Reason string `json:"reason,omitempty"`
	Fix    string `json:"fix,omitempty"`
}

// Meshes writes a table of meshes that is no wider than so many columns; 0 is a pipe, in which nothing is cut.
func Meshes(w io.Writer, meshes []Mesh, columns int, now time.Time) error {
	g := NewGrid("NAME", "STATE", "NODES", "PODS", "ENROLLED", "VERSION", "AGE").Right(2, 3, 4)
	for _, m := range meshes {
		nodes := ""
		if m.Nodes > 0 {
			nodes = strconv.Itoa(m.Nodes)
		}
		g.Row(m.Name, string(m.State), nodes, count(m.Pods), count(m.Enrolled), m.Version, Age(m.Since, now))
	}
	if columns > 0 {
		g.Fit(columns, []int{0, 5}, []int{5})
	}
	return g.Print(w, "")
}

func count(n *int) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}
