package dataplanes

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"lateen.dev/lateen/internal/lab/dataplanes/envoy"
	"lateen.dev/lateen/internal/lab/results"
)

// Spec names a plane before it is made.
type Spec struct {
	// Name is unique in a run: the kind, with a suffix where the kind takes part twice.
	Name string
	Kind string
	// Path is the peer's executable. It is empty for none, and for lateen and waypoint unless another build of lateen-proxy takes part.
	Path string
	// URL is where a plane of kind results.KindUnderTest is.
	URL string
	// ProxyEnv is environment of the node proxies besides the topology's, as NAME=VALUE. Pairs of Envoys have none.
	ProxyEnv []string
	// Workers is how many worker threads each of the plane's proxies runs where the topology does not say; 0 leaves it to the plane.
	Workers int
	// Envoy is how a pair of Envoys is set; nothing for other kinds.
	Envoy envoy.Settings
	// OneListener is for an Envoy in the waypoint's place: the node proxy does its tunnels.
	OneListener bool
}

// peerKinds are those that a path makes a plane of, in the order in which help lists them.
var peerKinds = []string{results.KindZtunnel, ztunnelOne, results.KindEnvoy, envoyHTTP1, envoyBalanced, results.KindEnvoyWaypoint, envoyOneListener}

// lateenProxy is the name of Lateen's own node proxy.
const lateenProxy = "lateen-proxy"

// ztunnelOne is an unmodified ztunnel of one worker thread; of itself it has two.
const ztunnelOne = results.KindZtunnel + "-one"

// Further names of pairs of Envoys, which are of kind envoy.
const (
	envoyHTTP1    = results.KindEnvoy + "-http1"    // HTTP/1.1 between the two, as Istio's have it unless told to upgrade
	envoyBalanced = results.KindEnvoy + "-balanced" // and listeners that balance connections exactly
)

// envoyOneListener is the name of an Envoy of one listener in the waypoint's place, which is of kind envoy-waypoint.
const envoyOneListener = results.KindEnvoy + "-one-listener"

// envoys are the settings by name.
var envoys = map[string]envoy.Settings{
	results.KindEnvoy: {Protocol: envoy.HTTP2},
	envoyHTTP1:        {Protocol: envoy.HTTP1},
	envoyBalanced:     {Protocol: envoy.HTTP1, ExactBalance: true},
}

// planeName is a name that a user gives to a plane. It is a part of the name of the plane's mesh.
var planeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$`)

// ParseSpec reads "none", "lateen", "waypoint", KIND=PATH or KIND:NAME=PATH and checks that the plane can be run. With a path, lateen and waypoint
// are of another build of lateen-proxy. The error lists the kinds.
func ParseSpec(text string) (Spec, error) {
	kind, path, given := strings.Cut(text, "=")
	kind, name, named := strings.Cut(kind, ":")
	s := Spec{Name: kind, Kind: kind, Path: path}
	if named {
		if s.Name = name; !planeName.MatchString(name) {
			return s, fmt.Errorf("peer %s: name %q: use up to 20 lower-case letters, digits and dashes", kind, name)
		}
	}
	ours := kind == results.KindLateen || kind == results.KindWaypoint
	switch {
	case kind == results.KindNone && given:
		return s, fmt.Errorf("%s takes no path", kind)
	case ours && given && !named:
		return s, fmt.Errorf("another build of %s needs a name: write %s:NAME=%s", kind, kind, cmp.Or(path, "PATH"))
	case (kind == results.KindNone || ours) && !given:
		return s, nil
	case absences[kind] != "" && !given:
		return s, nil // Describe says why it cannot run
	case absences[kind] == "" && !isPeer(kind) && !ours:
		return s, fmt.Errorf("unknown plane %q: use %s, %s, %s, or one of %s with =PATH", kind, results.KindNone, results.KindLateen, results.KindWaypoint, strings.Join(peerKinds, ", "))
	case path == "":
		plane, _, _ := strings.Cut(text, "=")
		return s, fmt.Errorf("peer %s has no path: write %s=PATH", plane, plane)
	}
	if settings, ok := envoys[kind]; ok {
		s.Kind, s.Envoy = results.KindEnvoy, settings
	}
	if kind == ztunnelOne {
		s.Kind, s.Workers = results.KindZtunnel, 1
	}
	if kind == envoyOneListener {
		s.Kind, s.OneListener = results.KindEnvoyWaypoint, true
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return s, fmt.Errorf("peer %s: %w", kind, err)
	}
	s.Path = absolute
	info, err := os.Stat(absolute)
	if err != nil {
		return s, fmt.Errorf("peer %s: %w", kind, err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return s, fmt.Errorf("peer %s: %s is not an executable file", kind, absolute)
	}
	if ours && filepath.Base(absolute) != lateenProxy {
		return s, fmt.Errorf("peer %s: the program must be called %s, by which the engine knows Lateen's own", name, lateenProxy)
	}
	if s.Kind == results.KindEnvoy || s.Kind == results.KindEnvoyWaypoint {
		if _, err := envoy.Version(context.Background(), absolute); err != nil {
			return s, fmt.Errorf("peer %s: %w", kind, err)
		}
	}
	return s, nil
}

// absences are the kinds that can be named and cannot run here, with the reason: a report stands beside their published rows.
var absences = map[string]string{
	results.KindCilium:  "Cilium attaches eBPF programs to a node's devices and owns its pod network: it needs a cluster of its own",
	results.KindLinkerd: "linkerd2-proxy learns destinations, policies and its identity from Linkerd's control plane alone, and there is none here: it needs a cluster with Linkerd",
}

func isPeer(kind string) bool {
	for _, k := range peerKinds {
		if k == kind {
			return true
		}
	}
	return false
}

// Maker makes planes on this machine.
type Maker struct {
	Engine Engine
	// Prefix begins the names of all meshes.
	Prefix string
	// Generator finds the load generator's executable, for targets outside the engine.
	Generator func() (string, error)
}

// Plane makes the plane that a spec names.
func (m Maker) Plane(s Spec) (Plane, error) {
	if why := absences[s.Kind]; why != "" {
		return absent{results.Plane{Name: s.Name, Kind: s.Kind, Path: s.Path, NotRun: why}}, nil
	}
	mesh := m.Prefix + "-" + s.Name
	switch s.Kind {
	case results.KindNone, results.KindLateen, results.KindZtunnel:
		l := NewLocal(m.Engine, mesh, s.Name, s.Kind, s.Path)
		l.set(s.ProxyEnv)
		if s.Workers > 0 {
			l.setWorkers(s.Workers)
		}
		return l, nil
	case results.KindWaypoint:
		w := NewWaypoint(m.Engine, mesh, s.Name, s.Path)
		w.set(s.ProxyEnv)
		return w, nil
	case results.KindEnvoyWaypoint:
		w := NewEnvoyWaypoint(m.Engine, mesh, s.Name, s.Path, s.OneListener)
		w.set(s.ProxyEnv)
		return w, nil
	case results.KindUnderTest:
		generator, err := m.Generator()
		if err != nil {
			return nil, err
		}
		return NewTarget(s, generator)
	case results.KindEnvoy:
		return NewSidecars(m.Engine, mesh, s.Name, s.Path, s.Envoy), nil
	}
	return nil, fmt.Errorf("unknown peer %q", s.Kind)
}

// absent is a plane that cannot run here.
type absent struct{ about results.Plane }

// Describe implements Plane.
func (a absent) Describe() results.Plane { return a.about }

// Start implements Plane; it always fails.
func (a absent) Start(context.Context, Topology, func(string)) (Bench, error) {
	return nil, fmt.Errorf("%s cannot run here: %s", a.about.Name, a.about.NotRun)
}
