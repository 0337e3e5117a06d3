// Package status owns what the control plane tells people and monitors about itself: metrics, readiness and dumps.
// It changes nothing and keeps nothing but counters.
package status

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"lateen.dev/lateen/internal/resourcekind"
)

// Metrics are the control plane's counters. Names that istiod has keep its names and meaning, so that dashboards go on working.
type Metrics struct {
	Registry *prometheus.Registry

	connected   *prometheus.GaugeVec
	pushes      *prometheus.CounterVec
	pushBytes   *prometheus.CounterVec
	resources   *prometheus.CounterVec
	rejects     *prometheus.CounterVec
	convergence prometheus.Histogram
	answers     *prometheus.CounterVec
	compile     prometheus.Histogram
	events      *prometheus.CounterVec
	delivered   prometheus.Histogram
	following   *prometheus.GaugeVec

	statusWrites *prometheus.CounterVec
	statusLag    prometheus.Histogram

	csrs     prometheus.Counter
	issued   prometheus.Counter
	refusals *prometheus.CounterVec
	unauthed prometheus.Counter
	streams  prometheus.Counter
	crowded  *prometheus.CounterVec
}

// delayBuckets start below a millisecond: the aim is 30 ms, and istiod's first bucket of 100 ms would hide all of it.
var delayBuckets = []float64{.0005, .001, .0025, .005, .01, .02, .03, .05, .1, .25, .5, 1, 3, 10, 30}

// NewMetrics registers everything on a registry of its own. version is the program's.
func NewMetrics(version string, rootExpiry func() time.Time) *Metrics {
	m := &Metrics{
		Registry:  prometheus.NewRegistry(),
		connected: gauge("pilot_xds", "Number of endpoints connected to this pilot using XDS.", "version"),
		pushes:    counter("pilot_xds_pushes", "Responses sent to proxies, by type.", "type"),
		pushBytes: counter("lateen_control_push_bytes_total", "Bytes of resources sent to proxies, by type.", "type"),
		resources: counter("lateen_control_push_resources_total", "Resources sent to proxies, by type.", "type"),
		rejects:   counter("pilot_total_xds_rejects", "Responses that proxies refused, by type.", "type"),
		answers:   counter("lateen_control_answers_total", "Responses that proxies answered, by type.", "type"),
		convergence: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "pilot_proxy_convergence_time",
			Help: "Seconds from a change of the configuration to a proxy's acknowledgement of it.", Buckets: delayBuckets}),
		compile: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lateen_control_compile_seconds",
			Help: "Seconds from a batch of changed objects to the resources made of it.", Buckets: delayBuckets}),
		events: counter("lateen_control_events_total", "What the API server told of objects, by resource, whether it changed anything or not.", "resource"),
		delivered: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lateen_control_event_seconds",
			Help: "Seconds from the first of a batch of events of the API server to the resources made of them.", Buckets: delayBuckets}),
		following:    gauge("lateen_control_following", "1 if a resource of the API server is followed at present, by resource.", "resource"),
		statusWrites: counter("lateen_status_writes_total", "Attempts to write an object's conditions, by kind and by what came of them: written, unchanged, gone, conflict, refused or away.", "kind", "result"),
		statusLag: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lateen_status_lag_seconds",
			Help: "Seconds from the first cause to write an object's conditions until they were written.", Buckets: []float64{.25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}}),
		csrs:     prometheus.NewCounter(prometheus.CounterOpts{Name: "citadel_server_csr_count", Help: "Certificate requests received."}),
		issued:   prometheus.NewCounter(prometheus.CounterOpts{Name: "citadel_server_success_cert_issuance_count", Help: "Certificates issued."}),
		refusals: counter("lateen_control_certificates_refused_total", "Certificate requests refused, by reason.", "reason"),
		unauthed: prometheus.NewCounter(prometheus.CounterOpts{Name: "citadel_server_authentication_failure_count", Help: "Certificate requests whose caller was not authenticated."}),
		crowded:  counter("lateen_control_connections_closed_total", "Connections closed because too many were open, by port (proxies, pages) and by whose: that of a caller who was there and is not known, or the one that came.", "port", "whose"),
		streams:  prometheus.NewCounter(prometheus.CounterOpts{Name: "lateen_control_streams_refused_total", Help: "Discovery streams whose caller was not authenticated."}),
	}
	expiry := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "citadel_server_root_cert_expiry_timestamp", Help: "Unix time, in seconds, when the root certificate expires."},
		func() float64 { return float64(rootExpiry().Unix()) })
	info := gauge("pilot_info", "Pilot version and build information.", "version")
	info.WithLabelValues(version).Set(1)
	m.Registry.MustRegister(m.connected, m.pushes, m.pushBytes, m.resources, m.rejects, m.answers, m.convergence, m.compile, m.events, m.delivered, m.following, m.statusWrites, m.statusLag,
		m.csrs, m.issued, m.refusals, m.unauthed, m.streams, m.crowded, expiry, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.connected = m.connected.MustCurryWith(prometheus.Labels{"version": version})
	m.connected.WithLabelValues().Set(0)
	for _, k := range resourcekind.Mesh.All() {
		m.pushes.WithLabelValues(k.Label)
		m.rejects.WithLabelValues(k.Label)
	}
	return m
}

// RegisterState exposes what is read rather than counted.
func (m *Metrics) RegisterState(generation func() float64, objects func() float64, problems func() float64, live func(typeURL string) float64) {
	m.Registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lateen_control_generation", Help: "Number of the configuration's present generation."}, generation),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lateen_control_objects", Help: "Objects that are live."}, objects),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lateen_control_problems", Help: "Things that are wrong with the configuration now, and objects for the mesh that have no effect."}, problems),
	)
	for _, k := range resourcekind.Mesh.All() {
		m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lateen_control_resources",
			Help: "Resources that are live, by type.", ConstLabels: prometheus.Labels{"type": k.Label}}, func() float64 { return live(k.TypeURL) }))
	}
}

// RegisterSettings exposes how much of the mesh's settings has no effect.
func (m *Metrics) RegisterSettings(unserved func() float64) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lateen_control_mesh_config_unserved_fields", Help: "Fields of the MeshConfig that no proxy of the mesh goes by."}, unserved))
}

// RegisterReady exposes whether a replica serves what it should; ready answers what it waits for, or nil.
func (m *Metrics) RegisterReady(ready func() error) {
	m.flag("lateen_control_ready", "1 while this replica has read everything and serves proxies.", func() bool { return ready() == nil })
}

// RegisterLeader exposes whether a replica is the one that writes.
func (m *Metrics) RegisterLeader(leads func() bool) {
	m.flag("lateen_control_leader", "1 while this replica is the one that writes to the cluster.", leads)
}

// Crowded counts connections that are closed because too many are open on a port: one that was there, or the one that came.
func (m *Metrics) Crowded(port string) func(replaced bool) {
	there, came := m.crowded.WithLabelValues(port, "there"), m.crowded.WithLabelValues(port, "came")
	return func(replaced bool) {
		if replaced {
			there.Inc()
			return
		}
		came.Inc()
	}
}

func (m *Metrics) flag(name, help string, is func() bool) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if is() {
			return 1
		}
		return 0
	}))
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Connected counts streams.
func (m *Metrics) Connected(delta int) { m.connected.WithLabelValues().Add(float64(delta)) }

// Sent counts a response.
func (m *Metrics) Sent(typeURL string, bytes, resources int) {
	t := resourcekind.Mesh.Label(typeURL)
	m.pushes.WithLabelValues(t).Inc()
	m.pushBytes.WithLabelValues(t).Add(float64(bytes))
	m.resources.WithLabelValues(t).Add(float64(resources))
}

// Settled counts a proxy's answer; delay is 0 if no change was waiting for it.
func (m *Metrics) Settled(typeURL string, delay time.Duration, refused bool) {
	t := resourcekind.Mesh.Label(typeURL)
	m.answers.WithLabelValues(t).Inc()
	if refused {
		m.rejects.WithLabelValues(t).Inc()
	}
	if delay > 0 {
		m.convergence.Observe(delay.Seconds())
	}
}

// Compiled records how long a batch of changes took.
func (m *Metrics) Compiled(took time.Duration) { m.compile.Observe(took.Seconds()) }

// Event counts what an API server told of a resource.
func (m *Metrics) Event(resource string) { m.events.WithLabelValues(resource).Inc() }

// Delivered records how long after its first event a batch was compiled.
func (m *Metrics) Delivered(took time.Duration) { m.delivered.Observe(took.Seconds()) }

// Following says whether a resource of the API server is followed.
func (m *Metrics) Following(resource string, now bool) {
	value := 0.0
	if now {
		value = 1
	}
	m.following.WithLabelValues(resource).Set(value)
}

// Left says that a resource is none any more that is to be followed.
func (m *Metrics) Left(resource string) { m.following.DeleteLabelValues(resource) }

// StreamRefused counts a discovery stream whose caller was turned away.
func (m *Metrics) StreamRefused() { m.streams.Inc() }

// Issued counts a certificate.
func (m *Metrics) Issued() {
	m.csrs.Inc()
	m.issued.Inc()
}

// Refused counts a refused certificate request.
func (m *Metrics) Refused(reason string) {
	m.csrs.Inc()
	if reason == "unauthenticated" {
		m.unauthed.Inc()
	}
	m.refusals.WithLabelValues(reason).Inc()
}

// StatusWritten counts an attempt to write an object's conditions.
func (m *Metrics) StatusWritten(kind, result string) {
	m.statusWrites.WithLabelValues(kind, result).Inc()
}

// StatusLag records how long after its first cause a write came.
func (m *Metrics) StatusLag(took time.Duration) { m.statusLag.Observe(took.Seconds()) }

// RegisterReplicas exposes what one of several replicas reads of its own part in it.
func (m *Metrics) RegisterReplicas(waiting, unasked func() float64) {
	m.Registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lateen_status_queue_length", Help: "Objects whose conditions wait to be looked at or written, in the replica that leads."}, waiting),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lateen_control_replicas_unasked", Help: "Other replicas that should answer what their proxies have acknowledged and do not."}, unasked),
	)
}
