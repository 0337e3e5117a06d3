package deployer

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// metrics are what a deployer counts, and the registry that shows it.
type metrics struct {
	registry   *prometheus.Registry
	reconciles *prometheus.CounterVec
	errors     *prometheus.CounterVec
	took       prometheus.Histogram
	last       prometheus.Gauge
	gateways   *prometheus.GaugeVec

	mu     sync.Mutex
	told   map[cache.ObjectName]string // the reason of each Gateway's condition, as far as it is known
	length func() int                  // of the queue; nil while another replica leads
}

// unknownResult counts looks at Gateways of which nothing came out.
const unknownResult = "Unknown"

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), told: map[cache.ObjectName]string{},
		reconciles: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lateen_deployer_reconciles_total", Help: "Looks at a Gateway, by the reason of the condition that came of it."}, []string{"result"}),
		errors:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lateen_deployer_errors_total", Help: "Looks at a Gateway that failed and are repeated, by reason."}, []string{"reason"}),
		took:       prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lateen_deployer_reconcile_seconds", Help: "Seconds that a look at a Gateway takes, requests to the API server included.", Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}}),
		last:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "lateen_deployer_last_reconcile_seconds", Help: "Seconds that the last look at a Gateway took."}),
		gateways:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lateen_deployer_gateways", Help: "Gateways that are deployed here, by the reason of their condition."}, []string{"reason"}),
	}
	m.registry.MustRegister(m.reconciles, m.errors, m.took, m.last, m.gateways,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lateen_deployer_queue_length", Help: "Gateways that wait to be looked at."}, m.waiting),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// observe exposes whether this replica leads, and whether it is ready.
func (m *metrics) observe(leads func() bool, ready func() error) {
	flag := func(is bool) float64 {
		if is {
			return 1
		}
		return 0
	}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lateen_deployer_leader", Help: "1 while this replica is the one that deploys."}, func() float64 { return flag(leads()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lateen_deployer_ready", Help: "1 while this replica stands by, or leads and has read the cluster."}, func() float64 { return flag(ready() == nil) }))
}

// queued exposes the length of the queue of a replica that leads.
func (m *metrics) queued(length func() int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.length = length
}

func (m *metrics) waiting() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.length == nil {
		return 0
	}
	return float64(m.length())
}

// rest forgets the Gateways, which are another replica's from now on.
func (m *metrics) rest() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.length = nil
	clear(m.told)
	m.gateways.Reset()
}

// reconciled counts a look at a Gateway. reason is that of its condition; it is empty if none came of it, and the one from before holds.
func (m *metrics) reconciled(name cache.ObjectName, reason string, took time.Duration) {
	m.took.Observe(took.Seconds())
	m.last.Set(took.Seconds())
	if reason == "" {
		m.reconciles.WithLabelValues(unknownResult).Inc()
		return
	}
	m.reconciles.WithLabelValues(reason).Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	before, known := m.told[name]
	if known {
		m.gateways.WithLabelValues(before).Dec()
	}
	m.told[name] = reason
	m.gateways.WithLabelValues(reason).Inc()
}

// left forgets a Gateway that is gone, or not to be deployed any more.
func (m *metrics) left(name cache.ObjectName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before, known := m.told[name]; known {
		m.gateways.WithLabelValues(before).Dec()
		delete(m.told, name)
	}
}

// failed counts an error.
func (m *metrics) failed(err error) { m.errors.WithLabelValues(errorReason(err)).Inc() }

// errorReasons are the words of API servers that are counted by themselves. Others, which webhooks may choose, are one.
var errorReasons = []metav1.StatusReason{
	metav1.StatusReasonForbidden, metav1.StatusReasonUnauthorized, metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists, metav1.StatusReasonConflict,
	metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest, metav1.StatusReasonTooManyRequests, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout,
	metav1.StatusReasonInternalError, metav1.StatusReasonServiceUnavailable,
}

func errorReason(err error) string {
	var network net.Error
	switch reason := apierrors.ReasonForError(err); {
	case slices.Contains(errorReasons, reason):
		return string(reason)
	case errors.As(err, &network):
		return "Unreachable"
	}
	return "Other"
}

// Reference is the registry of a deployer in which each metric has a series, for the page that lists them all.
func Reference() *prometheus.Registry {
	m := newMetrics()
	m.observe(func() bool { return false }, func() error { return nil })
	m.reconciled(cache.NewObjectName("shop", "waypoint"), reasonDeployed, 0)
	m.errors.WithLabelValues("Other")
	return m.registry
}
