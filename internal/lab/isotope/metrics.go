package isotope

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the five series of isotope's service, by the same names, labels and buckets, so that its dashboards fit.
type metrics struct {
	registry     *prometheus.Registry
	incoming     prometheus.Counter
	outgoing     *prometheus.CounterVec
	outgoingSize *prometheus.HistogramVec
	duration     *prometheus.HistogramVec
	responseSize *prometheus.HistogramVec
}

var (
	durationBuckets = []float64{
		0.007, 0.008, 0.009, 0.01, 0.011, 0.012, 0.014, 0.016, 0.018, 0.02, 0.025, 0.03, 0.035, 0.04, 0.045, 0.05, 0.06, 0.07, 0.08, 0.09,
		0.1, 0.12, 0.14, 0.16, 0.18, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5,
	}
	sizeBuckets = prometheus.ExponentialBuckets(1, 10, 10)
)

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		incoming: prometheus.NewCounter(prometheus.CounterOpts{Name: "service_incoming_requests_total", Help: "Number of requests sent to this service."}),
		outgoing: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "service_outgoing_requests_total", Help: "Number of requests sent from this service."},
			[]string{"destination_service"}),
		outgoingSize: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "service_outgoing_request_size", Help: "Size in bytes of requests sent from this service.",
			Buckets: sizeBuckets}, []string{"destination_service"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "service_request_duration_seconds", Help: "Duration in seconds it took to serve requests to this service.",
			Buckets: durationBuckets}, []string{"code"}),
		responseSize: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "service_response_size", Help: "Size in bytes of responses sent from this service.",
			Buckets: sizeBuckets}, []string{"code"}),
	}
	m.registry.MustRegister(m.incoming, m.outgoing, m.outgoingSize, m.duration, m.responseSize)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *metrics) called(host string, size int64) {
	m.outgoing.WithLabelValues(host).Inc()
	m.outgoingSize.WithLabelValues(host).Observe(float64(size))
}

func (m *metrics) answered(status, size int, took time.Duration) {
	code := strconv.Itoa(status)
	m.duration.WithLabelValues(code).Observe(took.Seconds())
	m.responseSize.WithLabelValues(code).Observe(float64(size))
}
