// Package dataplanes puts the services of an experiment on a data plane and takes them down again: no mesh, lateen, or a peer that
// was given by its path. It neither measures nor judges; package run drives it through the two interfaces here.
package dataplanes

import (
	"context"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/results"
)

// Topology is what a data plane is to carry.
type Topology struct {
	// Nodes is how many nodes the services are spread over, at least 1.
	Nodes int
	// Documents are objects as people apply them to Kubernetes; all of their pods are in the namespace default.
	Documents []api.Document
	// Generator names the pod that load starts from, as exec takes it: "deploy/client".
	Generator string
	// ProxyEnv is environment of lateen's own proxies, as NAME=VALUE; other planes ignore it.
	ProxyEnv []string
	// Workers is how many worker threads each proxy runs; 0 leaves it to the plane.
	Workers int
	// Latency is added to every round trip between nodes, in user space.
	Latency time.Duration
}

// Plane is one data plane that can take part in a comparison.
type Plane interface {
	// Describe is what the report says about the plane. NotRun is set if it can already be said that the plane cannot run
	// here, with the reason; Start is not called then.
	Describe() results.Plane
	// Start makes the plane carry a topology: when it returns every pod is ready and every new connection between pods goes
	// through the plane. When it fails, it has taken down what it started.
	Start(ctx context.Context, t Topology, progress func(what string)) (Bench, error)
}

// Bench is a plane at work. Its methods are called one at a time, except that Exec may be called beside any other.
type Bench interface {
	// Exec runs a command in a pod ("deploy/client") and returns its exit code. It ends with ctx.
	Exec(ctx context.Context, target string, command []string, streams api.Streams) (int, error)
	// Processes lists every process that the bench runs on, by role, as the host sees it; those that Exec started are not
	// among them. A process's descendants count as its own and need not be listed.
	Processes(ctx context.Context) ([]Process, error)
	// Carried is how many connections between pods the plane has carried so far; known is false where it cannot say.
	Carried(ctx context.Context) (connections uint64, known bool, err error)
	// Apply brings objects into being or changes them, and returns when they are in force on the plane.
	Apply(ctx context.Context, documents []api.Document) error
	// Delete removes objects that Apply brought, likewise.
	Delete(ctx context.Context, documents []api.Document) error
	// Scale sets the replicas of a deployment and returns when they are ready and on the plane.
	Scale(ctx context.Context, deployment string, replicas int) error
	// Down ends everything that Start and what came after it started. It must work after the context of Start has ended.
	Down(ctx context.Context) error
}

// Handshaker is a Bench whose proxies count TLS handshakes.
type Handshaker interface {
	// Handshakes is how many between two proxies have succeeded so far, each counted once; known is false where the plane
	// cannot say.
	Handshakes(ctx context.Context) (handshakes uint64, known bool, err error)
}

// Recorder is a Bench with a proxy that counts each request (Carried) and logs each in a line.
type Recorder interface {
	// Logged is how many lines the proxy has written about requests that began at a time or later. A line may be late by the time
	// after which the proxy empties its buffer, FlushTime at most.
	Logged(ctx context.Context, since time.Time) (lines uint64, err error)
}

// FlushTime is how long the lines of a log may wait in a proxy: Istio's setting of one second, and the time to write.
const FlushTime = 3 * time.Second

// Aimer is a Bench that takes load at a URL of its own.
type Aimer interface {
	// Aim turns a scenario's URL into the one to send load to.
	Aim(scenario string) (string, error)
}

// Process is a process of a bench.
type Process struct {
	Role string // RoleEngine or one of the roles of package results; results.RoleGenerator is the pod that load starts from
	Part string // the role of package results that tells this process apart within its Role; empty for most
	Name string // for people: "n1", "default/echo-1/echo"
	Node string
	PID  int // on the host
}

// RoleEngine is the role of what runs the bench and has no part in what is measured.
const RoleEngine = "engine"
