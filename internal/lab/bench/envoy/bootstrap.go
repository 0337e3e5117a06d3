// Package envoy writes the configuration of one Envoy per pod: a pair of sidecars as a mesh would configure them, static
// from the start. It starts no process and makes no keys; package bench does.
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
	// AdminPort answers /ready and /stats on the loopback address only.
	AdminPort = 15000
	// OutboundPort takes what the pod dials, InboundPort what others dial to the pod; both are redirected there.
	OutboundPort = 15001
	InboundPort  = 15006
)

// Workers is how many worker threads a sidecar has, Istio's default.
const Workers = 2

// The files in Pod.Dir that the configuration names: a certificate chain, its key, and the roots that peers are verified by.
const (
	CertificateFile = "cert.pem"
	KeyFile         = "key.pem"
	RootsFile       = "roots.pem"
)

// Pod is what its proxy has to know.
type Pod struct {
	// Name is "namespace/pod"; it is the proxy's node id.
	Name string
	// Dir is the absolute directory with the key material; AccessLog the absolute file that a line per request goes to.
	Dir, AccessLog string
	// Callers are the SPIFFE identities that may send requests to the pod; with none nobody may.
	Callers []string
	// Services are those that the pod reaches through the mesh. Whatever else it dials is passed on as it is.
	Services []Service
}

// Service is HTTP on one port.
type Service struct {
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
func Arguments(config string) []string {
	return []string{"--config-path", config, "--concurrency", strconv.Itoa(Workers), "--disable-hot-restart", "--log-level", "warning"}
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
		"admin": object{"address": socketAddress("127.0.0.1", AdminPort)},
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

func (p Pod) check() error {
	if namespace, pod, _ := strings.Cut(p.Name, "/"); namespace == "" || pod == "" {
		return fmt.Errorf("name: write namespace/pod")
	}
	if !filepath.IsAbs(p.Dir) || !filepath.IsAbs(p.AccessLog) {
		return fmt.Errorf("directory %q and access log %q: give absolute paths", p.Dir, p.AccessLog)
	}
	if err := checkIdentities(p.Callers); err != nil {
		return fmt.Errorf("callers: %w", err)
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
