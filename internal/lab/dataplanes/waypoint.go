package dataplanes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	prometheus "github.com/prometheus/common/model"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/meshconfig"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/waypoint"
)

// The waypoint of a plane has a namespace of its own, so that its pod is none of the topology's.
const (
	waypointNamespace = "waypoints"
	waypointName      = "waypoint"
)

// Waypoint is lateen with a waypoint in front of all services of the topology. A request passes the client's node proxy, the waypoint and the
// server's node proxy. The waypoint has the access log and the metrics that it has by default.
type Waypoint struct {
	*Local
}

// NewWaypoint makes a plane of this build's programs. A path is that of the lateen-proxy of another build, which then is the waypoint and both
// node proxies. mesh is the name of the mesh that Start makes.
func NewWaypoint(engine Engine, mesh, name, path string) *Waypoint {
	return &Waypoint{NewLocal(engine, mesh, name, results.KindWaypoint, path)}
}

// Start implements Plane.
func (w *Waypoint) Start(ctx context.Context, t Topology, progress func(string)) (_ Bench, err error) {
	local, err := w.StartLocal(ctx, t, progress)
	if err != nil {
		return nil, err
	}
	b := &waypointBench{local}
	b.follow = b.awaitBound
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Down(context.WithoutCancel(ctx)))
		}
	}()
	progress("put a waypoint in front of the services")
	document, err := waypointObjects(t.Nodes, w.proxyEnv(t))
	if err != nil {
		return nil, err
	}
	if err := b.apply(ctx, []api.Document{document}); err != nil {
		return nil, err
	}
	if err := b.bind(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// bind puts the waypoint in front of the services, and returns when connections to all of them go through it.
func (b *waypointBench) bind(ctx context.Context) error {
	name, in := waypointName, waypointNamespace
	labels := map[string]*string{wellknown.UseWaypoint: &name, wellknown.UseWaypointNamespace: &in}
	if _, err := b.client.Label(ctx, api.Key{Kind: "Namespace", Name: namespace}, labels); err != nil {
		return fmt.Errorf("label the namespace: %w", err)
	}
	return b.awaitBound(ctx)
}

// waypointObjects are a Gateway and what it needs. The pod runs on the last node, beside the server, and has the environment of the node
// proxies: as many workers, above all.
func waypointObjects(nodes int, env []string) (api.Document, error) {
	pod := map[string]any{"nodeSelector": map[string]string{wellknown.NodeIndex: strconv.Itoa(nodes)}}
	values := map[string]string{}
	for _, setting := range env {
		name, value, _ := strings.Cut(setting, "=")
		values[name] = value // the last one counts, as in a process's environment
	}
	var variables []any
	for _, name := range slices.Sorted(maps.Keys(values)) {
		variables = append(variables, map[string]string{"name": name, "value": values[name]})
	}
	if len(variables) > 0 {
		pod["containers"] = []any{map[string]any{"name": waypoint.Container, "env": variables}}
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": pod}}})
	if err != nil {
		return api.Document{}, fmt.Errorf("encode the waypoint's parameters: %w", err)
	}
	metadata := map[string]string{"name": waypointName, "namespace": waypointNamespace}
	data, err := documents([]any{
		map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]string{"name": waypointNamespace}},
		map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": map[string]string{"deployment": string(patch)}},
		map[string]any{"apiVersion": model.GatewayGroup + "/v1", "kind": "Gateway", "metadata": metadata, "spec": map[string]any{
			"gatewayClassName": waypoint.Class,
			"infrastructure":   map[string]any{"parametersRef": map[string]string{"group": "", "kind": "ConfigMap", "name": waypointName}},
			"listeners":        []any{meshListener()},
		}},
		// The log has the format that Istio's waypoints have by default, so that an Envoy in the waypoint's place writes as much.
		map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]string{"name": rootNamespace}},
		map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"name": meshconfig.ObjectName, "namespace": rootNamespace},
			"data": map[string]string{meshconfig.DataKey: "accessLogFile: /dev/stdout\n"}},
	})
	return api.Document{File: "waypoint.yaml", Data: data}, err
}

// rootNamespace is where the local engine has the objects of the mesh as a whole.
const rootNamespace = "istio-system"

// meshListener is the listener of a waypoint's Gateway, for services of all namespaces.
func meshListener() map[string]any {
	return map[string]any{
		"name": "mesh", "port": waypoint.HBONEPort, "protocol": "HBONE", "allowedRoutes": map[string]any{"namespaces": map[string]string{"from": "All"}},
	}
}

// waypointBench is a mesh of lateen's whose services are behind a waypoint.
type waypointBench struct {
	*LocalBench
}

// awaitBound waits until connections to every service go through the waypoint.
func (b *waypointBench) awaitBound(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := b.wait(ctx, b.bound); err != nil {
		return err
	}
	return b.wait(ctx, b.settled)
}

// bound names a service that is not bound to the waypoint yet, and why.
func (b *waypointBench) bound(ctx context.Context) (string, error) {
	list, err := b.client.Get(ctx, api.GetRequest{Kind: "Service", Namespace: namespace})
	if err != nil {
		return "", err
	}
	for _, item := range list.Items {
		var service struct {
			Status struct {
				Conditions []api.Condition `json:"conditions"`
			} `json:"status"`
		}
		if err := json.Unmarshal(item.Raw, &service); err != nil {
			return "", fmt.Errorf("read %s: %w", item.Key, err)
		}
		waiting := "the waypoint of service " + item.Key.Name
		for _, c := range slices.Concat(service.Status.Conditions, item.Conditions) {
			if c.Type != "WaypointBound" && c.Type != wellknown.WaypointBound {
				continue
			}
			if waiting += ": " + c.Message; c.Status == "True" {
				waiting = ""
			}
			break
		}
		if waiting != "" {
			return waiting, nil
		}
	}
	return "", nil
}

// Processes implements Bench. The waypoint is one of the proxies on the path, and is told apart as well.
func (b *waypointBench) Processes(ctx context.Context) ([]Process, error) {
	list, err := b.LocalBench.Processes(ctx)
	for i := range list {
		if strings.HasPrefix(list[i].Name, waypointNamespace+"/") {
			list[i].Role, list[i].Part = results.RoleProxies, results.RoleWaypoint
		}
	}
	return list, err
}

// Carried implements Bench by what the waypoint counted: requests, and connections that it relayed unread. Its connections to endpoints are kept
// for later requests, so that they say little.
func (b *waypointBench) Carried(ctx context.Context) (uint64, bool, error) {
	page, err := b.get(ctx, waypoint.MetricsPort, "/metrics")
	if err != nil {
		return 0, false, fmt.Errorf("read the metrics of the waypoint: %w", err)
	}
	n, err := throughWaypoint(page)
	return n, err == nil, err
}

// pageTime bounds how long the waypoint may take to answer about itself.
const pageTime = 10 * time.Second

// get reads a page that the waypoint serves in its pod's own network.
func (b *waypointBench) get(ctx context.Context, port int, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return b.client.Connect(ctx, api.ConnectRequest{Namespace: waypointNamespace, Target: "deploy/" + waypointName, Port: port})
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://waypoint"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, 16<<20))
}

// throughWaypoint adds up the requests and connections of a waypoint's metrics. One that has served none lists no series.
func throughWaypoint(page []byte) (uint64, error) {
	parser := expfmt.NewTextParser(prometheus.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return 0, fmt.Errorf("read the metrics of the waypoint: %w", err)
	}
	var total float64
	for _, name := range []string{"istio_requests_total", "istio_tcp_connections_opened_total"} {
		for _, m := range families[name].GetMetric() {
			total += m.GetCounter().GetValue() + m.GetUntyped().GetValue() // the type stands under a name without _total
		}
	}
	return uint64(total), nil
}

// Logged implements Recorder.
func (b *waypointBench) Logged(ctx context.Context, since time.Time) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	log, err := b.client.Logs(ctx, api.LogsRequest{Namespace: waypointNamespace, Target: "deploy/" + waypointName, Since: since})
	if err != nil {
		return 0, fmt.Errorf("read the log of the waypoint: %w", err)
	}
	defer log.Close()
	n, err := accessLines(log, since)
	if err != nil {
		return 0, fmt.Errorf("read the log of the waypoint: %w", err)
	}
	return n, nil
}

// startTimeFormat is how the access log tells when a request began, between brackets at the beginning of a line.
const startTimeFormat = "2006-01-02T15:04:05.000Z"

// accessLines counts the lines of an access log in Istio's text format that are of requests since a time. Others are what the proxy says of
// itself.
func accessLines(log io.Reader, since time.Time) (n uint64, err error) {
	first := since.UTC().Format(startTimeFormat)
	lines := bufio.NewReaderSize(log, 64<<10)
	for begun := true; ; {
		line, more, err := lines.ReadLine()
		if errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return n, err
		}
		if begun && len(line) > len(first)+3 && line[0] == '[' && string(line[len(first)+1:len(first)+4]) == `] "` && string(line[1:len(first)+1]) >= first {
			n++
		}
		begun = !more // a line longer than the buffer comes in pieces
	}
}
