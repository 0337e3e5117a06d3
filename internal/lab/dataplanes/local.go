package dataplanes

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"lateen.dev/lateen/internal/demo"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Engine starts and ends meshes on this machine.
type Engine interface {
	Start(ctx context.Context, options EngineOptions, progress func(api.Event)) error
	Stop(ctx context.Context, mesh string, progress func(api.Event)) error
	Client(mesh string) *api.Client
}

// EngineOptions are what a plane chooses about its mesh.
type EngineOptions struct {
	Mesh      string
	Nodes     int
	NodeProxy map[string]string // node -> executable; this build's own where it is absent
	ProxyEnv  []string
	Latency   time.Duration // added to round trips between nodes
}

// namespace is where the pods of a topology are.
const namespace = "default"

// Local is a plane that the local engine makes: no mesh at all, lateen, or another node proxy in lateen's place.
type Local struct {
	about  results.Plane
	mesh   string
	engine Engine
	env    []string // of its node proxies, besides the topology's

	workers int // of each proxy where the topology does not say; 0 is the proxy's own choice
}

// NewLocal makes a plane of a kind: results.KindNone, results.KindLateen, or results.KindZtunnel with its executable. For KindLateen path is
// the node proxy of another build, or empty. mesh is the name of the mesh that Start makes.
func NewLocal(engine Engine, mesh, name, kind, path string) *Local {
	l := &Local{mesh: mesh, engine: engine, about: results.Plane{Name: name, Kind: kind, Path: path}}
	if path != "" {
		l.about.SHA256 = checksum(path)
	}
	return l
}

// set gives the plane's node proxies settings of their own.
func (l *Local) set(env []string) {
	l.env = env
	for _, setting := range env {
		name, value, _ := strings.Cut(setting, "=")
		l.describe(name, value)
	}
}

// setWorkers says how many worker threads each proxy runs where the topology does not say.
func (l *Local) setWorkers(workers int) {
	l.workers = workers
	l.describe("workers", strconv.Itoa(workers))
}

// describe adds a setting to the plane's description. Two planes with different settings are no witnesses of noise.
func (l *Local) describe(name, value string) {
	if l.about.Settings == nil {
		l.about.Settings = map[string]string{}
	}
	l.about.Settings[name] = value
}

func checksum(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Describe implements Plane.
func (l *Local) Describe() results.Plane { return l.about }

// Start implements Plane.
func (l *Local) Start(ctx context.Context, t Topology, progress func(string)) (Bench, error) {
	b, err := l.StartLocal(ctx, t, progress)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// proxyEnv is the environment of the plane's proxies under a topology, as NAME=VALUE.
func (l *Local) proxyEnv(t Topology) (env []string) {
	switch l.about.Kind {
	case results.KindNone:
		return nil
	case results.KindLateen, results.KindWaypoint, results.KindEnvoyWaypoint:
		env = slices.Concat(t.ProxyEnv, l.env)
	case results.KindZtunnel:
		env = slices.Clone(l.env)
	}
	if workers := cmp.Or(t.Workers, l.workers); workers > 0 {
		env = append(env, fmt.Sprintf("%s=%d", workerThreads, workers))
	}
	return env
}

// startTime bounds what a topology may take to become ready, and what a change of it may take to be in force. Tests make it shorter.
var startTime = 3 * time.Minute

// StartLocal is Start for planes that are built upon this one.
func (l *Local) StartLocal(ctx context.Context, t Topology, progress func(string)) (_ *LocalBench, err error) {
	options := EngineOptions{Mesh: l.mesh, Nodes: t.Nodes, NodeProxy: map[string]string{}, ProxyEnv: l.proxyEnv(t), Latency: t.Latency}
	for i := range t.Nodes {
		if l.about.Path != "" {
			options.NodeProxy[fmt.Sprintf("n%d", i+1)] = l.about.Path
		}
	}
	progress("start the mesh")
	b := &LocalBench{plane: l, topology: t, client: l.engine.Client(l.mesh), account: procstat.Host()}
	// An engine that fails to start leaves its logs behind; what they have to say is in its error.
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Down(context.WithoutCancel(ctx)))
		}
	}()
	if err := l.engine.Start(ctx, options, func(api.Event) {}); err != nil {
		return nil, fmt.Errorf("start the mesh: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	progress("wait for the pods")
	if err := b.Apply(ctx, t.Documents); err != nil {
		return nil, err
	}
	if err := b.wait(ctx, b.ready); err != nil {
		return nil, err
	}
	if b.meshed() {
		progress("put the pods into the mesh")
		ambient := "ambient"
		if _, err := b.client.Label(ctx, api.Key{Kind: "Namespace", Name: namespace}, map[string]*string{wellknown.DataplaneMode: &ambient}); err != nil {
			return nil, fmt.Errorf("label the namespace: %w", err)
		}
		b.enrolled = true
		if err := b.wait(ctx, b.settled); err != nil {
			return nil, err
		}
	}
	status, err := b.client.Status(ctx)
	if err != nil {
		return nil, err
	}
	if b.meshed() && len(status.Nodes) > 0 {
		l.about.Version = status.Nodes[0].Proxy.Version
	}
	return b, nil
}

// LocalBench is a mesh of the local engine with the services of a topology.
type LocalBench struct {
	plane    *Local
	topology Topology
	client   *api.Client
	account  procstat.Reader
	enrolled bool
	// follow brings what a plane adds to the mesh up to date, after a change of objects. None: it adds nothing.
	follow func(context.Context) error
}

// Client is the mesh's own API.
func (b *LocalBench) Client() *api.Client { return b.client }

func (b *LocalBench) meshed() bool { return b.plane.about.Kind != results.KindNone }

// Exec implements Bench.
func (b *LocalBench) Exec(ctx context.Context, target string, command []string, streams api.Streams) (int, error) {
	return b.client.Exec(ctx, api.ExecRequest{Namespace: namespace, Target: target, Command: command}, streams)
}

// Processes implements Bench. Without a mesh what the engine always starts has no part in anything.
func (b *LocalBench) Processes(ctx context.Context) ([]Process, error) {
	usage, err := b.client.Usage(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the processes of %s: %w", b.plane.about.Name, err)
	}
	var list []Process
	for _, c := range usage.Components {
		p := Process{Role: RoleEngine, Name: c.Name, Node: c.Node, PID: c.PID}
		if p.PID == 0 {
			continue // it has just ended
		}
		switch {
		case c.Kind == "container" && b.generator(c.Name):
			// The pod's init, below which Exec starts programs and which takes their CPU time over when they have ended.
			if p.PID, err = b.account.Parent(c.PID); err != nil {
				return nil, err
			}
			p.Role = results.RoleGenerator
		case c.Kind == "container":
			p.Role = results.RoleApp
		case !b.meshed():
		case c.Kind == "proxy":
			p.Role = results.RoleProxies
		case c.Kind == "agent":
			p.Role = results.RoleAgent
		case c.Kind == "control":
			p.Role = results.RoleControl
		}
		list = append(list, p)
	}
	return list, nil
}

// generator says whether a container, "namespace/pod/container", belongs to the pod that load starts from.
func (b *LocalBench) generator(container string) bool {
	parts := strings.Split(container, "/")
	kind, name, _ := strings.Cut(b.topology.Generator, "/")
	if len(parts) != 3 || parts[0] != namespace {
		return false
	}
	if kind == "pod" {
		return parts[1] == name
	}
	// A pod of a Deployment is called after it, with two parts behind.
	return ofDeployment(parts[1], name)
}

func ofDeployment(pod, deployment string) bool {
	rest, ok := strings.CutPrefix(pod, deployment+"-")
	return ok && strings.Count(rest, "-") == 1
}

// Carried implements Bench by what the destinations' proxies verified.
func (b *LocalBench) Carried(ctx context.Context) (uint64, bool, error) {
	if !b.meshed() {
		return 0, false, nil
	}
	pages, err := b.metrics(ctx)
	if err != nil {
		return 0, false, err
	}
	flows, err := demo.Flows(pages)
	if err != nil {
		return 0, false, err
	}
	var carried uint64
	for _, f := range flows {
		if f.MutualTLS {
			carried += f.Connections
		}
	}
	return carried, true, nil
}

// metrics are the pages of every node's proxy.
func (b *LocalBench) metrics(ctx context.Context) ([][]byte, error) {
	var pages [][]byte
	for i := range b.topology.Nodes {
		page, err := b.client.ProxyMetrics(ctx, fmt.Sprintf("n%d", i+1))
		if err != nil {
			return nil, fmt.Errorf("read the metrics of the proxy of n%d: %w", i+1, err)
		}
		pages = append(pages, page)
	}
	return pages, nil
}

// Handshakes implements Handshaker. An unmodified ztunnel does not count them.
func (b *LocalBench) Handshakes(ctx context.Context) (uint64, bool, error) {
	if b.plane.about.Kind != results.KindLateen {
		return 0, false, nil
	}
	pages, err := b.metrics(ctx)
	if err != nil {
		return 0, false, err
	}
	var sum uint64
	for _, page := range pages {
		n, err := handshakes(page)
		if err != nil {
			return 0, false, err
		}
		sum += n
	}
	return sum, true, nil
}

// handshakes reads those that a proxy began from its metrics.
func handshakes(page []byte) (uint64, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return 0, fmt.Errorf("read a node proxy's metrics: %w", err)
	}
	var sum float64
	for _, metric := range families["lateen_tunnels_opened_total"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "reporter" && label.GetValue() == "source" {
				sum += metric.GetCounter().GetValue() + metric.GetUntyped().GetValue() // the type stands under a name without _total
			}
		}
	}
	return uint64(sum), nil
}

// Apply implements Bench.
func (b *LocalBench) Apply(ctx context.Context, documents []api.Document) error {
	if err := b.apply(ctx, documents); err != nil {
		return err
	}
	return b.followed(ctx)
}

// followed returns once what the plane adds has followed a change.
func (b *LocalBench) followed(ctx context.Context) error {
	if b.follow == nil {
		return nil
	}
	return b.follow(ctx)
}

// apply changes objects of the mesh alone.
func (b *LocalBench) apply(ctx context.Context, documents []api.Document) error {
	return b.change(ctx, func(ctx context.Context) (api.ApplyResult, error) {
		return b.client.Apply(ctx, api.ApplyRequest{Documents: documents})
	})
}

// Delete implements Bench.
func (b *LocalBench) Delete(ctx context.Context, documents []api.Document) error {
	if err := b.change(ctx, func(ctx context.Context) (api.ApplyResult, error) {
		return b.client.Delete(ctx, api.DeleteRequest{Documents: documents, IgnoreNotFound: true, Wait: true})
	}); err != nil {
		return err
	}
	return b.followed(ctx)
}

// noticeTime is how long the control plane may take to see a change; one that changes nothing on the wire shows in no
// generation.
const noticeTime = 5 * time.Second

func (b *LocalBench) change(ctx context.Context, change func(context.Context) (api.ApplyResult, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	before, err := b.client.Status(ctx)
	if err != nil {
		return err
	}
	result, err := change(ctx)
	if err != nil {
		return fmt.Errorf("change the objects: %w", err)
	}
	for _, p := range result.Problems {
		if p.Refused() {
			return fmt.Errorf("change the objects: %s", p)
		}
	}
	if !b.enrolled {
		return nil
	}
	noticed := time.Now().Add(noticeTime)
	return b.wait(ctx, func(ctx context.Context) (string, error) {
		status, err := b.client.Status(ctx)
		if err != nil {
			return "", err
		}
		if status.Control.Generation == before.Control.Generation && time.Now().Before(noticed) {
			return "the control plane", nil
		}
		return b.settled(ctx)
	})
}

// Scale implements Bench.
func (b *LocalBench) Scale(ctx context.Context, deployment string, replicas int) error {
	if _, err := b.client.Scale(ctx, namespace, deployment, replicas); err != nil {
		return fmt.Errorf("scale %s to %d: %w", deployment, replicas, err)
	}
	if err := b.scaled(ctx); err != nil {
		return fmt.Errorf("scale %s to %d: %w", deployment, replicas, err)
	}
	return b.followed(ctx)
}

// scaled returns once the pods that are to be there are ready, and captured if they are to be.
func (b *LocalBench) scaled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := b.wait(ctx, b.ready); err != nil || !b.enrolled {
		return err
	}
	return b.wait(ctx, b.settled)
}

// downTime bounds the end of a mesh.
const downTime = time.Minute

// Down implements Bench.
func (b *LocalBench) Down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downTime)
	defer cancel()
	if err := b.plane.engine.Stop(ctx, b.plane.mesh, func(api.Event) {}); err != nil && !errors.Is(err, api.ErrNotRunning) {
		return fmt.Errorf("end the mesh %s: %w", b.plane.mesh, err)
	}
	return nil
}

const pollTime = 100 * time.Millisecond

// wait looks until nothing is waited for any more.
func (b *LocalBench) wait(ctx context.Context, look func(context.Context) (waiting string, err error)) error {
	last := ""
	for {
		waiting, err := look(ctx)
		if err == nil && waiting == "" {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if waiting != "" {
			last = waiting
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("gave up waiting for %s", last)
			}
			return ctx.Err()
		case <-time.After(pollTime):
		}
	}
}

// ready says what is missing until every pod that the objects ask for runs and nothing else does.
func (b *LocalBench) ready(ctx context.Context) (string, error) {
	list, err := b.client.Get(ctx, api.GetRequest{Kind: "Deployment", Namespace: namespace})
	if err != nil {
		return "", err
	}
	wanted := map[string]int{}
	for _, object := range list.Items {
		var d struct {
			Spec struct {
				Replicas *int `json:"replicas"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(object.Raw, &d); err != nil {
			return "", fmt.Errorf("read %s: %w", object.Key, err)
		}
		wanted[object.Key.Name] = 1
		if d.Spec.Replicas != nil {
			wanted[object.Key.Name] = *d.Spec.Replicas
		}
	}
	status, err := b.client.Status(ctx)
	if err != nil {
		return "", err
	}
	there := map[string]int{}
	for _, p := range b.pods(status) {
		if !p.Ready {
			return "pod " + p.Name + " (" + strings.TrimSpace(p.Phase+" "+p.Reason) + ")", nil
		}
		for name := range wanted {
			if ofDeployment(p.Name, name) {
				there[name]++
			}
		}
	}
	for name, n := range wanted {
		if there[name] != n {
			return fmt.Sprintf("deployment %s (%d of %d pods)", name, there[name], n), nil
		}
	}
	return "", nil
}

func (b *LocalBench) pods(status api.Status) []api.PodState {
	var pods []api.PodState
	for _, p := range status.Pods {
		if p.Namespace == namespace && !p.HostNetwork {
			pods = append(pods, p)
		}
	}
	return pods
}

// settled says what is missing until every pod is captured and every proxy knows it. The capture is the agents' to tell, what
// the proxies know is what the control plane has declared and they have acknowledged.
func (b *LocalBench) settled(ctx context.Context) (string, error) {
	status, err := b.client.Status(ctx)
	if err != nil {
		return "", err
	}
	pods := b.pods(status)
	for _, p := range pods {
		if !p.Redirection {
			return strings.TrimSpace("pod " + p.Name + " to be captured " + p.MeshReason), nil
		}
	}
	page, err := b.client.ControlDebug(ctx, "debug/resources?type=Address")
	if unreachable := (*api.Error)(nil); errors.As(err, &unreachable) {
		return "the control plane (" + unreachable.Message + ")", nil
	} else if err != nil {
		return "", err
	}
	declared, err := declaredMeshed(page, namespace)
	if err != nil {
		return "", err
	}
	for _, p := range pods {
		if !declared[p.Name] {
			return "the control plane to hear of pod " + p.Name, nil
		}
	}
	// Anew: what the control plane has declared is in the generation that it names from now on.
	if status, err = b.client.Status(ctx); err != nil {
		return "", err
	}
	for _, n := range status.Nodes {
		if n.Proxy.AckedGeneration < status.Control.Generation {
			return fmt.Sprintf("the proxy of %s (generation %d of %d)", n.Name, n.Proxy.AckedGeneration, status.Control.Generation), nil
		}
	}
	return "", nil
}

// declaredMeshed reads which pods of a namespace the control plane has its proxies reach by HBONE.
func declaredMeshed(page []byte, in string) (map[string]bool, error) {
	var resources []struct {
		Content struct {
			Workload struct {
				Namespace      string `json:"namespace"`
				Name           string `json:"name"`
				TunnelProtocol string `json:"tunnelProtocol"`
			} `json:"workload"`
		} `json:"content"`
	}
	if err := json.Unmarshal(page, &resources); err != nil {
		return nil, fmt.Errorf("read what the control plane declares: %w", err)
	}
	declared := map[string]bool{}
	for _, r := range resources {
		if w := r.Content.Workload; w.Namespace == in && w.TunnelProtocol == "HBONE" {
			declared[w.Name] = true
		}
	}
	return declared, nil
}
