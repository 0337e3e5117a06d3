package dataplanes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/dataplanes/envoy"
	"lateen.dev/lateen/internal/lab/results"
)

// Sidecars is a plane of one Envoy in each pod, as a sidecar mesh has it, on a local mesh of kind none.
type Sidecars struct {
	about    results.Plane
	local    *Local
	settings envoy.Settings
}

// NewSidecars makes a plane of an Envoy's executable. mesh is the name of the mesh that Start makes.
func NewSidecars(engine Engine, mesh, name, path string, settings envoy.Settings) *Sidecars {
	balance := "reuse_port"
	if settings.ExactBalance {
		balance = "exact"
	}
	return &Sidecars{
		about: results.Plane{
			Name: name, Kind: results.KindEnvoy, Path: path, SHA256: checksum(path), Settings: map[string]string{
				"between_proxies": string(settings.Protocol) + "+mTLS", "connection_balance": balance, "workers": strconv.Itoa(envoy.Workers), "access_log": "file", "authorization": "RBAC",
				// What a sidecar mesh's own Envoys have besides, and these do not, would cost more.
				"configuration": "static", "telemetry": "counters",
			},
		},
		local: NewLocal(engine, mesh, name, results.KindNone, ""), settings: settings,
	}
}

// Describe implements Plane.
func (s *Sidecars) Describe() results.Plane { return s.about }

// Start implements Plane.
func (s *Sidecars) Start(ctx context.Context, t Topology, progress func(string)) (_ Bench, err error) {
	if s.about.Version, err = envoy.Version(ctx, s.about.Path); err != nil {
		return nil, err
	}
	local, err := s.local.StartLocal(ctx, t, progress)
	if err != nil {
		return nil, err
	}
	b := &sidecarBench{LocalBench: local, plane: s, workers: t.Workers, launcher: envoy.NewLauncher(), sidecars: map[string]*sidecar{}}
	b.follow = b.reconcileReady
	if b.workers == 0 {
		b.workers = envoy.Workers
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Down(context.WithoutCancel(ctx)))
		}
	}()
	if b.dir, err = os.MkdirTemp("", "lateen-lab-"); err != nil {
		return nil, fmt.Errorf("make a directory for the proxies: %w", err)
	}
	// Each proxy's own directory in it is closed to everybody else.
	if err := os.Chmod(b.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a directory for the proxies: %w", err)
	}
	if b.authority, err = envoy.NewAuthority(time.Now()); err != nil {
		return nil, err
	}
	progress("put a proxy into each pod")
	if err := b.reconcile(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// sidecarBench is a local mesh with a proxy in each pod.
type sidecarBench struct {
	*LocalBench
	plane     *Sidecars
	launcher  *envoy.Launcher
	authority *envoy.Authority
	dir       string
	workers   int                 // of each proxy
	made      int                 // directories so far
	sidecars  map[string]*sidecar // by pod, "namespace/name"
}

// sidecar is a pod with its proxy.
type sidecar struct {
	ns    *netns.Namespace
	dir   string
	proxy *envoy.Proxy
	node  string
}

func (s *sidecar) end() {
	if s.proxy != nil {
		s.proxy.Stop()
	}
	_ = s.ns.Close()
	_ = os.RemoveAll(s.dir)
}

// reconcile gives each pod the proxy that it should have: new pods get one, before those that reach them learn of them; gone pods
// lose theirs, and one whose configuration has changed is started anew.
func (b *sidecarBench) reconcile(ctx context.Context) error {
	workloads, err := b.workloads(ctx)
	if err != nil {
		return err
	}
	services, err := decoded[corev1.Service](ctx, b.LocalBench, "Service")
	if err != nil {
		return err
	}
	list, err := b.client.Get(ctx, api.GetRequest{Kind: "AuthorizationPolicy", Namespace: namespace})
	if err != nil {
		return err
	}
	var policies []envoy.Policy
	for _, item := range list.Items {
		policy, err := envoy.ParsePolicy(item.Raw)
		if err != nil {
			return err
		}
		policies = append(policies, policy)
	}
	pods, err := envoy.Pods(workloads, services, policies, b.plane.settings)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, pod := range pods {
		there[pod.Name] = true
	}
	for name, s := range b.sidecars {
		if !there[name] {
			s.end()
			delete(b.sidecars, name)
		}
	}
	for _, fresh := range []bool{true, false} {
		for _, pod := range pods {
			s := b.sidecars[pod.Name]
			switch {
			case fresh != (s.proxy == nil):
				continue
			case !fresh && reflect.DeepEqual(s.proxy.Pod(), pod):
				continue
			}
			if err := b.serve(ctx, s, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// probeAddress is where the engine's probes of pods come from, as in every mesh that captures them.
var probeAddress = netip.MustParseAddr("169.254.7.127")

// serve starts a pod's proxy, in place of the one that it has.
func (b *sidecarBench) serve(ctx context.Context, s *sidecar, pod envoy.Pod) error {
	first := s.proxy == nil
	if !first {
		s.proxy.Stop()
	}
	var err error
	if s.proxy, err = envoy.Start(b.launcher, s.ns, b.plane.about.Path, b.workers, pod); err != nil {
		return err
	}
	if err := s.proxy.Ready(ctx); err != nil {
		return err
	}
	if !first {
		return nil
	}
	if err := b.launcher.Redirect(ctx, s.ns, envoy.Redirection(probeAddress)); err != nil {
		return fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	return nil
}

// workloads are the pods as their proxies have to know them. Those that were not known before get a directory with keys.
func (b *sidecarBench) workloads(ctx context.Context) ([]envoy.Workload, error) {
	status, err := b.client.Status(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := decoded[corev1.Pod](ctx, b.LocalBench, "Pod")
	if err != nil {
		return nil, err
	}
	byName := map[string]*corev1.Pod{}
	for _, o := range objects {
		byName[o.Name] = o
	}
	var list []envoy.Workload
	for _, p := range b.pods(status) {
		name := p.Namespace + "/" + p.Name
		object := byName[p.Name]
		if object == nil || len(p.Containers) == 0 || p.Containers[0].PID == 0 {
			return nil, fmt.Errorf("pod %s has just ended; look at its log", name)
		}
		address, err := netip.ParseAddr(p.IP)
		if err != nil {
			return nil, fmt.Errorf("pod %s: address %q: %w", name, p.IP, err)
		}
		if b.sidecars[name] == nil {
			if err := b.prepare(name, p); err != nil {
				return nil, err
			}
		}
		list = append(list, envoy.Workload{Pod: object, Address: address, Identity: p.Identity, Dir: b.sidecars[name].dir})
	}
	// In the same order each time: only what has changed is started anew.
	slices.SortFunc(list, func(a, b envoy.Workload) int { return strings.Compare(a.Pod.Name, b.Pod.Name) })
	return list, nil
}

// prepare opens a pod's namespace and makes the directory of its proxy.
func (b *sidecarBench) prepare(name string, p api.PodState) error {
	ns, err := netns.Open(fmt.Sprintf("/proc/%d/ns/net", p.Containers[0].PID))
	if err != nil {
		return fmt.Errorf("pod %s: %w", name, err)
	}
	b.made++
	s := &sidecar{ns: ns, dir: filepath.Join(b.dir, strconv.Itoa(b.made)), node: p.Node}
	b.sidecars[name] = s
	if err := errors.Join(os.Mkdir(s.dir, 0o700), os.Chown(s.dir, envoy.UserID, envoy.UserID)); err != nil {
		return fmt.Errorf("make a directory for the proxy of pod %s: %w", name, err)
	}
	return b.authority.WriteKeys(s.dir, p.Identity, envoy.UserID)
}

// decoded are the objects of a kind in the namespace of the pods.
func decoded[T any](ctx context.Context, b *LocalBench, kind string) ([]*T, error) {
	list, err := b.client.Get(ctx, api.GetRequest{Kind: kind, Namespace: namespace})
	if err != nil {
		return nil, err
	}
	var objects []*T
	for _, item := range list.Items {
		object := new(T)
		if err := json.Unmarshal(item.Raw, object); err != nil {
			return nil, fmt.Errorf("read %s: %w", item.Key, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// Processes implements Bench. The proxies are the lab's children, not the pods'.
func (b *sidecarBench) Processes(ctx context.Context) ([]Process, error) {
	list, err := b.LocalBench.Processes(ctx)
	if err != nil {
		return nil, err
	}
	for name, s := range b.sidecars {
		pid, err := s.proxy.PID()
		if err != nil {
			return nil, err
		}
		if pid != 0 {
			list = append(list, Process{Role: results.RoleProxies, Name: name + "/envoy", Node: s.node, PID: pid})
		}
	}
	return list, nil
}

// Workers implements Balanced by the listeners' counters.
func (b *sidecarBench) Workers(ctx context.Context) (map[string][]float64, error) {
	shares := map[string][]float64{}
	for name, s := range b.sidecars {
		port, direction := envoy.InboundPort, results.Inbound
		if b.generator(name + "/") {
			port, direction = envoy.OutboundPort, results.Outbound
		}
		workers, err := s.proxy.WorkerConnections(ctx, port, b.workers)
		if err != nil {
			return nil, err
		}
		keepBusier(shares, direction, workers)
	}
	return shares, nil
}

// Carried implements Bench by what RBAC let in, all of which came with a certificate: connections of TCP, and requests of HTTP, for
// whose sake the proxies keep their connections, so that those say little.
func (b *sidecarBench) Carried(ctx context.Context) (uint64, bool, error) {
	return b.total(ctx, envoy.AdmittedCounters...)
}

// Handshakes implements Handshaker by the servers' side.
func (b *sidecarBench) Handshakes(ctx context.Context) (uint64, bool, error) {
	return b.total(ctx, fmt.Sprintf("listener.0.0.0.0_%d.ssl.handshake", envoy.InboundPort))
}

// total adds counters of all proxies up. A proxy that has counted nothing may not list one.
func (b *sidecarBench) total(ctx context.Context, names ...string) (uint64, bool, error) {
	var quoted []string
	for _, name := range names {
		quoted = append(quoted, regexp.QuoteMeta(name))
	}
	filter := "^(" + strings.Join(quoted, "|") + ")$"
	var total uint64
	for _, s := range b.sidecars {
		counters, err := s.proxy.Stats(ctx, filter)
		if err != nil {
			return 0, false, err
		}
		for _, name := range names {
			total += counters[name]
		}
	}
	return total, true, nil
}

// reconcileReady gives pods their proxies once all pods are ready.
func (b *sidecarBench) reconcileReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := b.wait(ctx, b.ready); err != nil {
		return err
	}
	return b.reconcile(ctx)
}

// Down implements Bench. The proxies are ended by what is known of them here, whatever has become of their pods.
func (b *sidecarBench) Down(ctx context.Context) error {
	for name, s := range b.sidecars {
		s.end()
		delete(b.sidecars, name)
	}
	if b.launcher != nil {
		b.launcher.Close()
		b.launcher = nil
	}
	err := b.LocalBench.Down(ctx)
	if b.dir != "" {
		err = errors.Join(err, os.RemoveAll(b.dir))
	}
	return err
}
