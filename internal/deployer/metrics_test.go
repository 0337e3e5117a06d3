package deployer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// value is that of a metric's series with a label of this value, or with none; of a histogram it is how many values it has.
func (m *metrics) value(name, label string) float64 {
	families, err := m.registry.Gather()
	if err != nil {
		return -1
	}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if f.GetName() == name && (label == "" || len(s.GetLabel()) == 1 && s.GetLabel()[0].GetValue() == label) {
				return s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

func TestLooksAndErrorsAreCounted(t *testing.T) {
	r := newRig(t, plainGateway)
	r.lead()
	m := r.deployer.metrics
	r.eventually("the Gateway counts as deployed", func() bool { return m.value("lateen_deployer_gateways", "Deployed") == 1 })
	if m.value("lateen_deployer_reconciles_total", "Deployed") < 1 || m.value("lateen_deployer_reconcile_seconds", "") < 1 {
		t.Error("the look is not counted")
	}
	r.mu.Lock()
	r.refuse["Deployment"] = apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "waypoint", nil)
	r.mu.Unlock()
	r.deployer.all()
	r.eventually("the refusal is counted", func() bool { return m.value("lateen_deployer_errors_total", "Forbidden") > 0 })
	r.eventually("the Gateway counts as refused", func() bool {
		return m.value("lateen_deployer_gateways", "Refused") == 1 && m.value("lateen_deployer_gateways", "Deployed") == 0
	})
	r.eventually("they are watched", r.watches.Began("gateways"))
	if err := r.client.Tracker().Delete(gateways, "shop", "waypoint"); err != nil {
		t.Fatal(err)
	}
	r.eventually("a Gateway that is gone does not count", func() bool { return m.value("lateen_deployer_gateways", "Refused") == 0 })
}

func TestAReplicaThatResignsForgetsItsGateways(t *testing.T) {
	m := newMetrics()
	m.queued(func() int { return 3 })
	m.reconciled(cache.NewObjectName("shop", "waypoint"), "Deployed", time.Second)
	if m.waiting() != 3 || m.value("lateen_deployer_last_reconcile_seconds", "") != 1 {
		t.Error("it does not count")
	}
	m.rest()
	if n := m.value("lateen_deployer_gateways", "Deployed"); n != 0 || m.waiting() != 0 {
		t.Errorf("it goes on to count %v", n)
	}
}

func TestErrorsAreCountedByTheirReason(t *testing.T) {
	for want, err := range map[string]error{
		"Forbidden":   fmt.Errorf("apply: %w", apierrors.NewForbidden(schema.GroupResource{}, "x", nil)),
		"Conflict":    errors.Join(errors.New("a"), apierrors.NewConflict(schema.GroupResource{}, "x", nil)),
		"Unreachable": fmt.Errorf("look: %w", &url.Error{Op: "Get", URL: "https://10.0.0.1", Err: errors.New("connection refused")}),
		"Other":       errors.New("it cannot be read"),
	} {
		if got := errorReason(err); got != want {
			t.Errorf("%v counts as %s, want %s", err, got, want)
		}
	}
}

func TestMetricsAreServedBesideReadiness(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	m := newMetrics()
	ready := func() error { return errors.New("the cluster is not read") }
	m.observe(func() bool { return true }, ready)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	began := make(chan struct{})
	go func() {
		done <- serve(ctx, address, m.registry, ready, func(ctx context.Context) { close(began); <-ctx.Done() })
	}()
	<-began
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if code, body := get("/metrics"); code != http.StatusOK || !strings.Contains(body, "\nlateen_deployer_leader 1\n") || !strings.Contains(body, "\nlateen_deployer_ready 0\n") || !strings.Contains(body, "\ngo_goroutines ") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get("/ready"); code != http.StatusServiceUnavailable || !strings.Contains(body, "the cluster is not read") {
		t.Errorf("%d %s", code, body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
