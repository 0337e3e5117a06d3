package dataplanes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/dataplanes/envoy"
	"lateen.dev/lateen/internal/lab/dataplanes/envoy/istiod"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/waypoint"
)

// EnvoyWaypoint is lateen with a stock Envoy as the waypoint in front of all services of the topology. The Envoy has the listeners and
// filters that an istiod gives a waypoint, without those that a stock Envoy lacks. The node proxies are lateen's own. With one listener the
// Envoy has no tunnels: the node proxy ends them and begins them, and tells the Envoy by the PROXY protocol who the client is.
type EnvoyWaypoint struct {
	about       results.Plane
	local       *Local
	oneListener bool
	authority   func(mesh string) (*envoy.Authority, error)
}

// NewEnvoyWaypoint makes a plane of an Envoy's executable. mesh is the name of the mesh that Start makes.
func NewEnvoyWaypoint(engine Engine, mesh, name, path string, oneListener bool) *EnvoyWaypoint {
	listeners := results.ThreeListeners
	if oneListener {
		listeners = results.OneListener
	}
	return &EnvoyWaypoint{
		about: results.Plane{Name: name, Kind: results.KindEnvoyWaypoint, Path: path, SHA256: checksum(path), Settings: map[string]string{
			"configuration": "istiod " + istiod.Commit, "without": strings.Join(istiod.Lacking(oneListener), " "), "access_log": "stdout, Istio's text format",
			"telemetry": "counters", results.SettingListeners: listeners,
		}},
		local: NewLocal(engine, mesh, name, results.KindEnvoyWaypoint, ""), oneListener: oneListener, authority: meshsAuthority,
	}
}

// meshsAuthority reads the authority that a mesh of the local engine has made for itself. No control plane of Lateen's gives a certificate to a
// proxy that it does not configure.
func meshsAuthority(mesh string) (*envoy.Authority, error) {
	dir := filepath.Join(api.RunDir(mesh), "control")
	return envoy.ReadAuthority(filepath.Join(dir, "root-cert.pem"), filepath.Join(dir, "root-key.pem"), time.Now())
}

// set gives the plane's node proxies settings of their own.
func (w *EnvoyWaypoint) set(env []string) {
	w.local.set(env)
	maps.Copy(w.about.Settings, w.local.about.Settings)
}

// Describe implements Plane.
func (w *EnvoyWaypoint) Describe() results.Plane { return w.about }

// Start implements Plane.
func (w *EnvoyWaypoint) Start(ctx context.Context, t Topology, progress func(string)) (_ Bench, err error) {
	if w.about.Version, err = envoy.Version(ctx, w.about.Path); err != nil {
		return nil, err
	}
	local, err := w.local.StartLocal(ctx, t, progress)
	if err != nil {
		return nil, err
	}
	b := &envoyWaypointBench{waypointBench: &waypointBench{local}, plane: w}
	b.follow = b.update
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Down(context.WithoutCancel(ctx)))
		}
	}()
	progress("put an Envoy in front of the services")
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	if err := b.reconcile(ctx); err != nil {
		return nil, err
	}
	return b, b.bind(ctx)
}

// envoyWaypointBench is a mesh of lateen's whose services are behind an Envoy.
type envoyWaypointBench struct {
	*waypointBench
	plane   *EnvoyWaypoint
	dir     string // the lab's own
	workers int    // of the Envoy
	config  []byte // in force
	made    int    // configurations so far
}

// shown is the directory below the bench's own that the waypoint's pod sees. Nobody else reaches it, since the one above is closed. The
// pod's user is not known before there is a pod, so that its files are open to all.
func (b *envoyWaypointBench) shown() string { return filepath.Join(b.dir, "pod") }

// prepare makes the directory of the waypoint's pod, with the program and its keys.
func (b *envoyWaypointBench) prepare(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "lateen-lab-"); err != nil {
		return fmt.Errorf("make a directory for the waypoint: %w", err)
	}
	if err := os.Mkdir(b.shown(), 0o755); err != nil {
		return fmt.Errorf("make a directory for the waypoint: %w", err)
	}
	if err := copyProgram(b.plane.about.Path, filepath.Join(b.shown(), "envoy")); err != nil {
		return fmt.Errorf("copy the waypoint's program: %w", err)
	}
	authority, err := b.plane.authority(b.client.Mesh())
	if err != nil {
		return err
	}
	if err := authority.WriteKeys(b.shown(), waypointIdentity, os.Getuid()); err != nil {
		return err
	}
	for _, name := range []string{envoy.CertificateFile, envoy.KeyFile, envoy.RootsFile} {
		if err := os.Chmod(filepath.Join(b.shown(), name), 0o644); err != nil {
			return fmt.Errorf("make keys for the waypoint: %w", err)
		}
	}
	// As many workers as the waypoint of lateen's has, which follows the same rule as node proxies.
	page, err := b.client.ProxyMetrics(ctx, "n1")
	if err != nil {
		return fmt.Errorf("read the metrics of the proxy of n1: %w", err)
	}
	shares, err := workerConnections(page)
	if err != nil {
		return fmt.Errorf("read the metrics of the proxy of n1: %w", err)
	}
	b.workers = len(shares)
	b.plane.about.Settings["workers"] = strconv.Itoa(b.workers)
	return nil
}

// copyProgram makes a copy that all may run: a pod's user cannot reach every directory.
func copyProgram(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	copied, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(copied, source)
	return errors.Join(err, copied.Chmod(0o755), copied.Close())
}

// waypointIdentity is the identity of a waypoint that no control plane of the lab's makes.
const waypointIdentity = "spiffe://" + trustDomain + "/ns/" + waypointNamespace + "/sa/" + waypointName

// trustDomain is the local engine's.
const trustDomain = "cluster.local"

// reconcile gives the Envoy the configuration that fits the services, pods and policies there are. A pod with another configuration takes the
// place of the one before.
func (b *envoyWaypointBench) reconcile(ctx context.Context) error {
	services, err := b.services(ctx)
	if err != nil {
		return err
	}
	config, err := istiod.Bootstrap(istiod.Config{
		Name: waypointNamespace + "/" + waypointName, Dir: manifestDir, AdminPort: adminPort, Services: services, OneListener: b.plane.oneListener,
	})
	if err != nil {
		return err
	}
	if bytes.Equal(config, b.config) {
		return nil
	}
	b.made++
	name := fmt.Sprintf("envoy-%d.json", b.made)
	if err := os.WriteFile(filepath.Join(b.shown(), name), config, 0o644); err != nil {
		return fmt.Errorf("configure the waypoint: %w", err)
	}
	before, err := b.waypointPods(ctx)
	if err != nil {
		return err
	}
	document, err := b.objects(name)
	if err != nil {
		return err
	}
	if err := b.apply(ctx, []api.Document{document}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := b.wait(ctx, func(ctx context.Context) (string, error) { return b.replaced(ctx, before) }); err != nil {
		return err
	}
	b.config = config
	return b.wait(ctx, b.settled)
}

// services are those of the topology, as istiod knows them.
func (b *envoyWaypointBench) services(ctx context.Context) ([]istiod.Service, error) {
	status, err := b.client.Status(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := decoded[corev1.Pod](ctx, b.LocalBench, "Pod")
	if err != nil {
		return nil, err
	}
	var workloads []envoy.Workload
	for _, p := range b.pods(status) {
		i := slices.IndexFunc(pods, func(o *corev1.Pod) bool { return o.Name == p.Name })
		if i < 0 {
			return nil, fmt.Errorf("pod %s has just ended; look at its log", p.Name)
		}
		address, err := netip.ParseAddr(p.IP)
		if err != nil {
			return nil, fmt.Errorf("pod %s: address %q: %w", p.Name, p.IP, err)
		}
		workloads = append(workloads, envoy.Workload{Pod: pods[i], Address: address, Identity: p.Identity})
	}
	objects, err := decoded[corev1.Service](ctx, b.LocalBench, "Service")
	if err != nil {
		return nil, err
	}
	policies, err := decoded[securityv1.AuthorizationPolicy](ctx, b.LocalBench, "AuthorizationPolicy")
	if err != nil {
		return nil, err
	}
	return istiod.Services(objects, workloads, policies)
}

// waypointPods are the names of the waypoint's pods.
func (b *waypointBench) waypointPods(ctx context.Context) (names []string, err error) {
	status, err := b.client.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range status.Pods {
		if p.Namespace == waypointNamespace {
			names = append(names, p.Name)
		}
	}
	return names, nil
}

// replaced says what is missing until one pod is the waypoint, none of those before, and the control plane has heard of it.
func (b *envoyWaypointBench) replaced(ctx context.Context, before []string) (string, error) {
	status, err := b.client.Status(ctx)
	if err != nil {
		return "", err
	}
	name := ""
	for _, p := range status.Pods {
		switch {
		case p.Namespace != waypointNamespace:
			continue
		case slices.Contains(before, p.Name):
			return "the end of the waypoint's pod " + p.Name, nil
		case !p.Ready:
			return "the waypoint's pod " + p.Name + " (" + strings.TrimSpace(p.Phase+" "+p.Reason) + ")", nil
		case b.plane.oneListener && !p.Redirection:
			return strings.TrimSpace("the waypoint's pod " + p.Name + " to be captured " + p.MeshReason), nil
		}
		name = p.Name
	}
	if name == "" {
		return "the waypoint's pod", nil
	}
	if b.plane.oneListener { // no probe reaches a loopback address
		if _, err := b.get(ctx, adminPort, "/ready"); err != nil {
			return "the Envoy in pod " + name + " (" + err.Error() + ")", ctx.Err()
		}
	}
	page, err := b.client.ControlDebug(ctx, "debug/resources?type=Address")
	if unreachable := (*api.Error)(nil); errors.As(err, &unreachable) {
		return "the control plane (" + unreachable.Message + ")", nil
	} else if err != nil {
		return "", err
	}
	declared, err := declaredMeshed(page, waypointNamespace)
	if err != nil {
		return "", err
	}
	if !declared[name] {
		return "the control plane to hear of pod " + name, nil
	}
	return "", nil
}

// manifestDir is where the pod of a manifest sees the manifest's directory.
const manifestDir = api.RunRoot + "/manifest"

// adminPort is where the Envoy answers about itself in its pod.
const adminPort = 15000

// objects are a Gateway of Istio's class, which nobody deploys here, and the objects that Istio makes of one, with the Envoy in the pod. config
// is its configuration's name in the directory that the pod sees.
func (b *envoyWaypointBench) objects(config string) (api.Document, error) {
	metadata := map[string]any{"name": waypointName, "namespace": waypointNamespace}
	labels := map[string]string{wellknown.GatewayName: waypointName, wellknown.GatewayManaged: waypoint.Managed}
	podLabels := map[string]string{wellknown.Tunnel: "http", wellknown.DataplaneMode: "none"}
	container := map[string]any{
		"name": waypoint.Container, "image": "envoy", "command": append([]string{manifestDir + "/envoy"}, istiod.Arguments(manifestDir+"/"+config, b.workers)...),
		"readinessProbe": map[string]any{"tcpSocket": map[string]any{"port": waypoint.HBONEPort}, "periodSeconds": 1},
	}
	gateway := map[string]any{"name": waypointName, "namespace": waypointNamespace}
	if b.plane.oneListener { // the node proxy captures the pod, and takes the tunnels to it
		podLabels = map[string]string{wellknown.DataplaneMode: "ambient"}
		delete(container, "readinessProbe")
		gateway["annotations"] = map[string]string{wellknown.WaypointInboundBinding: fmt.Sprintf("PROXY/%d", istiod.ProxyPort)}
	}
	maps.Copy(podLabels, labels)
	selector := map[string]string{wellknown.GatewayName: waypointName}
	objects := []any{
		map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]string{"name": waypointNamespace}},
		map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
		map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": waypointName, "namespace": waypointNamespace, "labels": labels}, "spec": map[string]any{
			"selector": selector, "ports": []any{map[string]any{"name": "hbone", "port": waypoint.HBONEPort}},
		}},
		map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": map[string]any{
			"selector": map[string]any{"matchLabels": selector},
			"template": map[string]any{
				"metadata": map[string]any{"labels": podLabels},
				"spec": map[string]any{
					"serviceAccountName": waypointName, "terminationGracePeriodSeconds": 1,
					"nodeSelector": map[string]string{wellknown.NodeIndex: strconv.Itoa(b.topology.Nodes)}, "containers": []any{container},
				},
			},
		}},
		map[string]any{"apiVersion": model.GatewayGroup + "/v1", "kind": "Gateway", "metadata": gateway, "spec": map[string]any{
			"gatewayClassName": waypoint.IstioClass, "listeners": []any{meshListener()},
		}},
	}
	data, err := documents(objects)
	return api.Document{File: "waypoint.yaml", Dir: b.shown(), Data: data}, err
}

// documents writes objects one after the other, as people apply them.
func documents(objects []any) ([]byte, error) {
	var text bytes.Buffer
	for _, object := range objects {
		text.WriteString("---\n")
		if err := json.NewEncoder(&text).Encode(object); err != nil {
			return nil, fmt.Errorf("encode the waypoint's objects: %w", err)
		}
	}
	return text.Bytes(), nil
}

// Carried implements Bench by the Envoy's counters: requests, and connections that it relayed unread.
func (b *envoyWaypointBench) Carried(ctx context.Context) (uint64, bool, error) {
	page, err := b.get(ctx, adminPort, "/stats?filter="+url.QueryEscape(istiod.Carried))
	if err != nil {
		return 0, false, fmt.Errorf("read the counters of the waypoint: %w", err)
	}
	return total(envoy.ParseStats(string(page)), regexp.MustCompile(istiod.Carried)), true, nil
}

// total adds up the counters of a page whose names match.
func total(counters map[string]uint64, names *regexp.Regexp) (sum uint64) {
	for name, n := range counters {
		if names.MatchString(name) {
			sum += n
		}
	}
	return sum
}

// update gives the Envoy the configuration that fits, and returns once all services are bound.
func (b *envoyWaypointBench) update(ctx context.Context) error {
	if err := b.reconcile(ctx); err != nil {
		return err
	}
	return b.awaitBound(ctx)
}

// Down implements Bench.
func (b *envoyWaypointBench) Down(ctx context.Context) error {
	err := b.LocalBench.Down(ctx)
	if b.dir != "" {
		err = errors.Join(err, os.RemoveAll(b.dir))
	}
	return err
}
