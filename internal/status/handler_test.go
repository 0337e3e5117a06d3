package status

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/log"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/xds"
)

func get(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func newSources() Sources {
	return Sources{Store: model.NewStore(), Log: log.New(time.Now, log.AddressType, log.AuthorizationType), Version: "v1",
		Problems: func() []files.Problem { return nil }, Clients: func() []xds.ClientState { return nil },
		Ready: func() error { return nil }, Metrics: NewMetrics("v1", func() time.Time { return time.Unix(2000000000, 0) })}
}

func TestReadinessSaysWhatIsMissing(t *testing.T) {
	s := newSources()
	var missing error
	s.Ready = func() error { return missing }
	h := Handler(s)
	if code, body := get(h, "/ready"); code != http.StatusOK || body != "ready\n" {
		t.Errorf("%d %q", code, body)
	}
	missing = errors.New("the configuration directory has not been read yet")
	if code, body := get(h, "/ready"); code != http.StatusServiceUnavailable || !strings.Contains(body, "has not been read yet") {
		t.Errorf("%d %q", code, body)
	}
}

func TestPagesOfAnEmptyMeshAreEmptyLists(t *testing.T) {
	h := Handler(newSources())
	for _, path := range []string{"/debug/objects", "/debug/problems", "/debug/resources", "/debug/resources?type=address"} {
		if code, body := get(h, path); code != http.StatusOK || strings.TrimSpace(body) != "[]" {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if code, body := get(h, "/debug/resources?type=Cluster"); code != http.StatusNotFound || !strings.Contains(body, log.AddressType) {
		t.Errorf("an unknown type: %d %q", code, body)
	}
	if code, _ := get(h, "/nothing"); code != http.StatusNotFound {
		t.Errorf("an unknown page: %d", code)
	}
}

func TestMetricsCountWhatTheyAreToldOf(t *testing.T) {
	s := newSources()
	m := s.Metrics
	m.RegisterState(func() float64 { return 7 }, func() float64 { return 3 }, func() float64 { return 2 }, func(string) float64 { return 5 })
	m.Connected(2)
	m.Connected(-1)
	m.Sent(log.AddressType, 100, 4)
	m.Settled(log.AddressType, 20*time.Millisecond, false)
	m.Settled(log.AuthorizationType, 0, true)
	m.Issued()
	m.Refused("unauthenticated")
	m.Refused("not_on_node")
	m.Compiled(time.Millisecond)
	_, body := get(Handler(s), "/metrics")
	for _, want := range []string{
		`pilot_xds{version="v1"} 1`, `pilot_xds_pushes{type="wds"} 1`, `pilot_xds_pushes{type="wads"} 0`, `pilot_total_xds_rejects{type="wads"} 1`,
		`lateen_control_push_bytes_total{type="wds"} 100`, `lateen_control_push_resources_total{type="wds"} 4`, `lateen_control_answers_total{type="wads"} 1`,
		`pilot_proxy_convergence_time_count 1`, `citadel_server_csr_count 3`, `citadel_server_success_cert_issuance_count 1`,
		`citadel_server_authentication_failure_count 1`, `lateen_control_certificates_refused_total{reason="not_on_node"} 1`,
		`citadel_server_root_cert_expiry_timestamp 2e+09`, `lateen_control_generation 7`, `lateen_control_objects 3`, `lateen_control_problems 2`,
		`lateen_control_resources{type="wads"} 5`, `lateen_control_compile_seconds_count 1`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
}
