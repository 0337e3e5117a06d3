// Package envoy runs one Envoy per pod: a pair of sidecars as a mesh would configure them, static from the start, with keys of
// their own. It knows a pod by its network namespace and makes none; package dataplanes chooses the pods.
package envoy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The ports of the proxy in its pod, as Istio's sidecars have them.
const (
	// OutboundPort takes what the pod dials, InboundPort what others dial to the pod; both are redirected there.
	OutboundPort = 15001
	InboundPort  = 15006
)

// Workers is how many worker threads a sidecar has unless told otherwise, Istio's default.
const Workers = 2

// Protocol is what two proxies speak to each other inside TLS.
type Protocol string

// Istio's sidecars speak HTTP/1.1 unless told to upgrade.
const (
	HTTP1 Protocol = "HTTP/1.1"
	HTTP2 Protocol = "HTTP/2"
)

// The files in Pod.Dir that the configuration names: a certificate chain, its key, the roots that peers are verified by, the
// socket that answers /ready and /stats, and the log with a line for each request.
const (
	AdminSocket = "admin.sock"
	AccessLog   = "access.log"

	CertificateFile = "cert.pem"
	KeyFile         = "key.pem"
	RootsFile       = "roots.pem"
)

// Pod is what its proxy has to know.
type Pod struct {
	// Name is "namespace/pod"; it is the proxy's node id.
	Name string
	// Dir is the absolute directory of the proxy's files.
	Dir string
	Settings
	// Admits says who may send anything to the pod: whom any of the rules admits. Without a rule nobody may.
	Admits []Rule
	// TCP are ports of the pod's application that take bytes; on all others it takes requests of HTTP. Sorted, each once.
	TCP []uint16
	// Services are those that the pod reaches through the mesh. Whatever else it dials is passed on as it is.
	Services []Service
}

// Settings are those in which one pair of proxies may differ from another.
type Settings struct {
	// Protocol is what a proxy speaks to other proxies; it understands both.
	Protocol Protocol
	// ExactBalance has listeners give each connection to the worker with the fewest; otherwise the kernel chooses one by the
	// addresses, Envoy's default.
	ExactBalance bool
}

// Rule admits callers to ports.
type Rule struct {
	Name    string   // unique in a pod
	Callers []string // SPIFFE identities, at least one
	Ports   []uint16 // of the application; all if empty
}

// Service is one port of a service.
type Service struct {
	// TCP says that its bytes are carried as they come; otherwise it is HTTP.
	TCP bool
	// Name is "namespace/service", unique among a pod's services with the same port.
	Name    string
	Address netip.Addr // that the pod dials
	Port    uint16     // likewise
	// Endpoints are the addresses of the pods behind it, with the application's port; there is at least one.
	Endpoints []netip.AddrPort
	// Identities are the SPIFFE identities that those pods may prove; at least one.
	Identities []string
}

// Arguments is the command line, without the program, of a proxy whose configuration is in a file.
func Arguments(config string, workers int) []string {
	return []string{"--config-path", config, "--concurrency", strconv.Itoa(workers), "--disable-hot-restart", "--log-level", "warning"}
}

// object is a JSON object; its keys are written in order, so that equal configurations are equal bytes.
type object = map[string]any

// Bootstrap returns the configuration of a pod's proxy as JSON.
func Bootstrap(p Pod) ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("configure the proxy of pod %q: %w", p.Name, err)
	}
	clusters := []object{passthrough("outbound_passthrough"), passthrough("inbound_application")}
	for _, s := range p.Services {
		clusters = append(clusters, p.cluster(s))
	}
	namespace, _, _ := strings.Cut(p.Name, "/")
	text, err := json.MarshalIndent(object{
		"node":  object{"id": p.Name, "cluster": namespace},
		"admin": object{"address": object{"pipe": object{"path": filepath.Join(p.Dir, AdminSocket), "mode": 0o600}}},
		"static_resources": object{
			"listeners": []object{p.outbound(), p.inbound()},
			"clusters":  clusters,
		},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("configure the proxy of pod %q: %w", p.Name, err)
	}
	return append(text, '\n'), nil
}

// longestDir leaves room for the socket's name: the kernel takes paths of 107 bytes.
const longestDir = 107 - 1 - len(AdminSocket)

func (p Pod) check() error {
	if namespace, pod, _ := strings.Cut(p.Name, "/"); namespace == "" || pod == "" {
		return fmt.Errorf("name: write namespace/pod")
	}
	if !filepath.IsAbs(p.Dir) || len(p.Dir) > longestDir {
		return fmt.Errorf("directory %q: give an absolute path of at most %d bytes", p.Dir, longestDir)
	}
	if p.Protocol != HTTP1 && p.Protocol != HTTP2 {
		return fmt.Errorf("protocol %q: use %s or %s", p.Protocol, HTTP1, HTTP2)
	}
	for i, r := range p.Admits {
		switch {
		case r.Name == "" || slices.ContainsFunc(p.Admits[:i], func(o Rule) bool { return o.Name == r.Name }):
			return fmt.Errorf("rule %q: its name is empty or taken by another rule", r.Name)
		case len(r.Callers) == 0:
			return fmt.Errorf("rule %q: it names no caller", r.Name)
		}
		if err := checkIdentities(r.Callers); err != nil {
			return fmt.Errorf("rule %q: callers: %w", r.Name, err)
		}
	}
	for i, port := range p.TCP {
		if port == 0 || i > 0 && port <= p.TCP[i-1] {
			return fmt.Errorf("TCP ports %v: give each once, in order, from 1 on", p.TCP)
		}
	}
	for i, s := range p.Services {
		same := func(o Service) bool {
			return o.cluster() == s.cluster() || o.Address == s.Address && o.Port == s.Port
		}
		switch {
		case s.Name == "" || !s.Address.Is4() || s.Port == 0:
			return fmt.Errorf("service %q: give it a name, an IPv4 address and a port; the pods' traffic is redirected over IPv4 only", s.Name)
		case slices.ContainsFunc(p.Services[:i], same):
			return fmt.Errorf("service %q: its name or address is taken by another service on port %d", s.Name, s.Port)
		case len(s.Endpoints) == 0 || slices.ContainsFunc(s.Endpoints, func(e netip.AddrPort) bool { return !e.IsValid() || e.Port() == 0 }):
			return fmt.Errorf("service %q: endpoints %v: give at least one, each with an address and a port", s.Name, s.Endpoints)
		case len(s.Identities) == 0:
			return fmt.Errorf("service %q: without an identity none of its pods could be verified", s.Name)
		}
		if err := checkIdentities(s.Identities); err != nil {
			return fmt.Errorf("service %q: identities: %w", s.Name, err)
		}
	}
	return nil
}

func checkIdentities(list []string) error {
	for _, identity := range list {
		if rest, ok := strings.CutPrefix(identity, "spiffe://"); !ok || rest == "" {
			return fmt.Errorf("%q is no SPIFFE identity: write spiffe://trust-domain/...", identity)
		}
	}
	return nil
}

func (s Service) cluster() string { return fmt.Sprintf("outbound|%d|%s", s.Port, s.Name) }
