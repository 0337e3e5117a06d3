// Package cli is the lateen command: it turns arguments into requests to the engine of a mesh and answers into text.
// The engine makes and keeps meshes; package printer lays answers out.
package cli

import (
	"context"
	"io"
	"os"
	"time"

	"lateen.dev/lateen/internal/check"
	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/install"
)

// Env is all that the commands reach outside of their arguments, so that a test can put something else in its place.
type Env struct {
	Stdin          io.Reader
	input          io.Reader   // Stdin, whose reading ends with the command's context
	interrupts     *interrupts // of the process; nil in a test
	Stdout, Stderr io.Writer
	// Out and Err say how the two streams may be written to.
	Out, Err term.Style
	// Connect returns a client for a mesh by name.
	Connect func(mesh string) *api.Client
	// Cluster reaches the Kubernetes cluster that a kubeconfig and a context in it name; empty are those that kubectl would take.
	Cluster func(kubeconfig, context string) (*install.Cluster, error)
	// Engine starts and ends meshes on this machine.
	Engine Engine
	// System is what the preflight checks look at.
	System check.System
	// Meshes lists the names of the meshes on this machine, for completion.
	Meshes func() []string
	Getwd  func() (string, error)
	// Getenv reads an environment variable; nil where there are none.
	Getenv func(name string) string
	Now    func() time.Time
}

// Engine starts and ends the engine of a mesh. Everything else goes through its socket.
type Engine interface {
	// Start returns when the mesh is ready or has failed to become so; progress is called for each event until then.
	Start(ctx context.Context, options StartOptions, progress func(api.Event)) error
	// Stop returns when the mesh and all that it started are gone. It wraps api.ErrNotRunning if there was none.
	Stop(ctx context.Context, mesh string, progress func(api.Event)) error
	// Alive reports whether the process of a mesh's engine runs, also while it does not answer.
	Alive(mesh string) bool
}

// StartOptions is what a user can choose about a mesh.
type StartOptions struct {
	Mesh  string
	Nodes int
	// Workers is the number of worker threads of each node proxy; 0 leaves it to the proxy.
	Workers int
	// NodeProxy maps a node's name to the executable of another node proxy, such as an unmodified ztunnel.
	NodeProxy map[string]string
	// Families are the IP families, IPv4 and IPv6, the one that counts first where there is room for one address.
	Families []string
	// Labels are labels of nodes, by the node's name.
	Labels map[string]map[string]string
	// ProxyEnv is what every node proxy finds in its environment besides the engine's own settings, as NAME=VALUE.
	ProxyEnv []string
	// Latency is added to a round trip between nodes, in user space.
	Latency time.Duration
	// CertTTL is how long workload certificates live; 0 leaves it to the control plane.
	CertTTL time.Duration
	// CADir is the directory of a plugged-in CA; without one the mesh makes a root of its own.
	CADir string
	// TrustDomainAliases are further names that peers and policies may have the mesh's trust domain by.
	TrustDomainAliases []string
	// Attached ends the mesh when this process ends, however it ends. Otherwise the mesh lives until it is stopped.
	Attached bool
}

// processEnv is the environment of this process.
func processEnv(engine Engine) Env {
	return Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Out: term.StyleOf(os.Stdout, os.Getenv), Err: term.StyleOf(os.Stderr, os.Getenv),
		Connect: api.New,
		Cluster: install.Connect,
		Engine:  engine,
		System:  check.Host{},
		Meshes:  meshesOnDisk,
		Getwd:   os.Getwd,
		Getenv:  os.Getenv,
		Now:     time.Now,
	}
}

// meshesOnDisk lists the run directories; a stale one among them does no harm in a completion.
func meshesOnDisk() []string {
	entries, err := os.ReadDir(api.RunRoot)
	if err != nil {
		return nil
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}
