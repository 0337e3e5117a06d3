package agent

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"lateen.dev/lateen/internal/agent/keeper"
)

// Metrics are the agent's metrics, in a registry of their own.
type Metrics struct {
	registry       *prometheus.Registry
	captured       prometheus.Gauge
	pods           *prometheus.GaugeVec
	errors         *prometheus.CounterVec
	repairs        prometheus.Counter
	cut            prometheus.Counter
	zdsConnections prometheus.Gauge
	zdsMessages    *prometheus.CounterVec
	source         prometheus.Gauge
	lost           *prometheus.CounterVec
}

// NewMetrics makes the metrics, all at zero.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		captured: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lateen_agent_captured_pods", Help: "Pods whose new connections go through the node proxy."}),
		pods: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lateen_agent_pods", Help: "Pods of the node by state: plain, pending, captured, releasing."}, []string{"state"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lateen_agent_capture_errors_total", Help: "Failed attempts to capture or release a pod, by step."}, []string{"step"}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lateen_agent_repairs_total", Help: "Redirections that somebody else had changed and that were put right."}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lateen_agent_connections_cut_total", Help: "Meshed connections of released pods that did not end before the deadline."}),
		zdsConnections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lateen_agent_zds_connections", Help: "Connected node proxies."}),
		zdsMessages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lateen_agent_zds_messages_total", Help: "Requests to node proxies, by kind and result."}, []string{"kind", "result"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lateen_agent_connections_lost_total", Help: "Connections that a node proxy had open when it was killed, by direction as the pod sees it."}, []string{"direction"}),
		source: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lateen_agent_source_connected", Help: "1 while the engine delivers the node's pods."}),
	}
	m.registry.MustRegister(m.captured, m.pods, m.errors, m.repairs, m.cut, m.zdsConnections, m.zdsMessages, m.source, m.lost,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, d := range []keeper.Direction{keeper.Inbound, keeper.Outbound} {
		m.lost.WithLabelValues(string(d))
	}
	for _, step := range []string{stepNamespace, stepProxy, stepRules, stepSockets, stepReport} {
		m.errors.WithLabelValues(step)
	}
	return m
}

// Handler serves the metrics in Prometheus' format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Sent counts a request to a proxy.
func (m *Metrics) Sent(kind, result string) { m.zdsMessages.WithLabelValues(kind, result).Inc() }

// Lost counts connections that were lost with a proxy.
func (m *Metrics) Lost(lost []keeper.Lost) {
	for _, l := range lost {
		m.lost.WithLabelValues(string(l.Direction)).Inc()
	}
}

func (m *Metrics) captureError(step string) { m.errors.WithLabelValues(step).Inc() }

func (m *Metrics) observe(states map[State]int, connections int, sourceConnected bool) {
	for _, s := range []State{Plain, Pending, Captured, Releasing} {
		m.pods.WithLabelValues(string(s)).Set(float64(states[s]))
	}
	m.captured.Set(float64(states[Captured]))
	m.zdsConnections.Set(float64(connections))
	m.source.Set(0)
	if sourceConnected {
		m.source.Set(1)
	}
}
