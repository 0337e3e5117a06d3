// Package isotope owns service graphs as Istio's isotope writes them: it reads and checks their YAML, draws them, makes
// Kubernetes manifests of them, and is the one service that acts each of them out. It puts nothing into a mesh and measures nothing.
package isotope

import "time"

// Topology is a graph of services.
type Topology struct {
	Services []Service
}

// Service is one of them; what the file left out stands here as its defaults say.
type Service struct {
	Name string
	// Namespace is empty where whoever applies the manifests decides.
	Namespace string
	// Cluster groups services; manifests can be made for one cluster at a time.
	Cluster string
	// Type is TypeHTTP or TypeGRPC. As with isotope itself it is a label: every service speaks HTTP/1.1.
	Type     string
	Replicas int
	// RbacPolicies is how many authorization policies the service's manifests bring, of which the last one admits everybody.
	RbacPolicies int
	Entrypoint   bool
	// ErrorRate is the share of requests, 0 to 1, that is answered with 500. Which ones is not left to chance: every 1/ErrorRate-th.
	ErrorRate    float64
	ResponseSize int64 // bytes
	Script       []Step
	Labels       map[string]string
}

// Types of services.
const (
	TypeHTTP = "http"
	TypeGRPC = "grpc"
)

// Step is one command, or several that run at the same time.
type Step struct {
	Commands []Command
	// Concurrent says that the step was written as a list, be it of one command.
	Concurrent bool
}

// Command is a call, or a pause where Call is nil.
type Command struct {
	Sleep time.Duration
	Call  *Call
}

// Call is a request to another service.
type Call struct {
	Service string
	// Host is where the request goes, host and port: "SERVICE:8080" unless the file says otherwise.
	Host    string
	Headers map[string]string
	Size    int64 // bytes of the request's body
	// Probability is in how many of 100 cases the call is made; 0 and 100 both mean always.
	Probability int
}

// certain says whether the call is made each time.
func (c *Call) certain() bool { return c.Probability == 0 || c.Probability == 100 }

// calls are those of a service, in the order of its script.
func (s *Service) calls() []*Call {
	var all []*Call
	for _, step := range s.Script {
		for _, c := range step.Commands {
			if c.Call != nil {
				all = append(all, c.Call)
			}
		}
	}
	return all
}

// Find returns a service by its name, or nil.
func (t *Topology) Find(name string) *Service {
	for i := range t.Services {
		if t.Services[i].Name == name {
			return &t.Services[i]
		}
	}
	return nil
}

// Entrypoints are the services that are marked as such; without a mark those that nobody calls.
func (t *Topology) Entrypoints() []string {
	var marked, uncalled []string
	called := map[string]bool{}
	for i := range t.Services {
		for _, c := range t.Services[i].calls() {
			called[c.Service] = true
		}
	}
	for i := range t.Services {
		s := &t.Services[i]
		if s.Entrypoint {
			marked = append(marked, s.Name)
		}
		if !called[s.Name] {
			uncalled = append(uncalled, s.Name)
		}
	}
	if len(marked) > 0 {
		return marked
	}
	return uncalled
}
