package agent

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"lateen.dev/lateen/internal/agent/cni"
	"lateen.dev/lateen/internal/agent/listenerstore"
)

// Metrics are the agent's metrics, in a registry of their own.
type Metrics struct {
	registry       *prometheus.Registry
	captured       prometheus.Gauge
	excepted       prometheus.Gauge
	pods           *prometheus.GaugeVec
	errors         *prometheus.CounterVec
	repairs        prometheus.Counter
	disowned       prometheus.Counter
	cut            prometheus.Counter
	zdsConnections prometheus.Gauge
	zdsMessages    *prometheus.CounterVec
	source         prometheus.Gauge
	lost           *prometheus.CounterVec
	births         *prometheus.HistogramVec
	pluginIn       prometheus.Gauge
}

// NewMetrics makes the metrics, all at zero.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		captured: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lateen_agent_captured_pods", Help: "Pods whose new connections go through the node proxy."}),
		excepted: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lateen_agent_excepted_pods", Help: "Captured pods of which more passes by the node proxy than the agent's flags say, because their annotations ask for it."}),
		pods: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lateen_agent_pods", Help: "Pods of the node by state: plain, pending, captured, releasing."}, []string{"state"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lateen_agent_capture_errors_total", Help: "Failed attempts to capture or release a pod, by step."}, []string{"step"}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lateen_agent_repairs_total", Help: "Redirections that somebody else had changed and that were put right."}),
		disowned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lateen_agent_forged_marks_total", Help: "Packets to be captured that a pod's own processes had marked as the node proxy's, and that were captured all the same."}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lateen_agent_connections_cut_total", Help: "Connections of released pods that needed their rules and did not end before the deadline."}),
		zdsConnections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lateen_agent_zds_connections", Help: "Connected node proxies."}),
		zdsMessages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lateen_agent_zds_messages_total", Help: "Requests to node proxies, by kind and result."}, []string{"kind", "result"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lateen_agent_connections_lost_total", Help: "Connections that a node proxy had open when it was killed, by direction as the pod sees it."}, []string{"direction"}),
		source: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lateen_agent_source_connected", Help: "1 while the engine delivers the node's pods."}),
		births: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "lateen_agent_cni_request_duration_seconds", Help: "Time to answer the CNI plugin, by operation (add, del, check) and verdict (done, outside, failed, unknown).",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}}, []string{"op", "verdict"}),
		pluginIn: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lateen_agent_cni_installed", Help: "1 while the CNI plugin stands in the node's network configuration."}),
	}
	m.registry.MustRegister(m.captured, m.excepted, m.pods, m.errors, m.repairs, m.disowned, m.cut, m.zdsConnections, m.zdsMessages, m.source, m.lost, m.births, m.pluginIn,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, d := range []listenerstore.Direction{listenerstore.Inbound, listenerstore.Outbound} {
		m.lost.WithLabelValues(string(d))
	}
	for _, step := range []string{stepNamespace, stepProxy, stepRules, stepSockets, stepReport, stepPlugin} {
		m.errors.WithLabelValues(step)
	}
	return m
}

// Handler serves the metrics in Prometheus' format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Sent counts a request to a proxy.
func (m *Metrics) Sent(kind, result string) { m.zdsMessages.WithLabelValues(kind, result).Inc() }

// Lost counts connections that were lost with a proxy.
func (m *Metrics) Lost(lost []listenerstore.Lost) {
	for _, l := range lost {
		m.lost.WithLabelValues(string(l.Direction)).Inc()
	}
}

// Answered counts an answer to the CNI plugin.
func (m *Metrics) Answered(op cni.Op, v cni.Verdict, took time.Duration) {
	m.births.WithLabelValues(string(op), string(v)).Observe(took.Seconds())
}

// installed notes whether the CNI plugin is in place, and whether it had to be put right.
func (m *Metrics) installed(err error, repaired bool) {
	if err != nil {
		m.pluginIn.Set(0)
		m.captureError(stepPlugin)
		return
	}
	m.pluginIn.Set(1)
	if repaired {
		m.repairs.Inc()
	}
}

func (m *Metrics) captureError(step string) { m.errors.WithLabelValues(step).Inc() }

func (m *Metrics) observe(states map[State]int, excepted, connections int, sourceConnected bool) {
	m.excepted.Set(float64(excepted))
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
