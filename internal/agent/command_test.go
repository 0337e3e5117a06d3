package agent

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestArguments(t *testing.T) {
	full := []string{"--node", "n", "--engine-socket", "e", "--zds-socket", "z", "--status-socket", "s"}
	for name, args := range map[string][]string{
		"node":           full[2:],
		"zds-socket":     append(full[:4:4], full[6:]...),
		"flag provided":  append(full[:8:8], "--nonsense"),
		"more":           append(full[:8:8], "more"),
		"invalid value":  append(full[:8:8], "--log-level", "loud"),
		"Usage of":       {"--help"},
		"status-socket ": {"-h"},
	} {
		var stderr bytes.Buffer
		if code := Main(t.Context(), args, &stderr); code != exitUsage {
			t.Errorf("%v: exit code %d", args, code)
		}
		if !strings.Contains(stderr.String(), name) {
			t.Errorf("%v: %q does not name %q", args, stderr.String(), name)
		}
	}
}

func TestSaysWhatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	for _, missing := range []string{"--zds-socket", "--status-socket"} {
		args := []string{"--node", "n", "--engine-socket", "e", "--http", ""}
		for _, f := range []string{"--zds-socket", "--status-socket"} {
			path := filepath.Join(dir, f)
			if f == missing {
				path = filepath.Join(dir, "nowhere", f)
			}
			args = append(args, f, path)
		}
		var stderr bytes.Buffer
		if code := Main(t.Context(), args, &stderr); code != exitError || !strings.Contains(stderr.String(), "nowhere") {
			t.Errorf("exit code %d: %s", code, stderr.String())
		}
	}
}

func TestHealthAndMetrics(t *testing.T) {
	r := newRig(t)
	h := r.agent.HealthHandler()
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	if code, _ := get("/ready"); code != http.StatusServiceUnavailable {
		t.Errorf("ready before the pods are known: %d", code)
	}
	r.label(true)
	r.accept()
	r.applyErr = os.ErrPermission
	r.label(false)
	if code, _ := get("/ready"); code != http.StatusOK {
		t.Errorf("not ready: %d", code)
	}
	_, text := get("/metrics")
	for _, line := range []string{
		"lateen_agent_captured_pods 1", `lateen_agent_capture_errors_total{step="rules"} 1`,
		`lateen_agent_pods{state="captured"} 1`, "lateen_agent_zds_connections 1",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s", line)
		}
	}
}

func TestLogsAreJSONOnRequest(t *testing.T) {
	full := []string{"--node", "n1", "--engine-socket", "e", "--zds-socket", "z", "--status-socket", "s"}
	for format, want := range map[string]string{"json": `"level":"INFO","msg":"here","node":"n1"}`, "text": "level=INFO msg=here node=n1"} {
		s, err := parse(append(full, "--log-format", format), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		s.logger(&out).Debug("not said")
		s.logger(&out).Info("here")
		if got := strings.TrimSpace(out.String()); !strings.HasSuffix(got, want) || strings.Contains(got, "\n") || (format == "json") != json.Valid([]byte(got)) {
			t.Errorf("%s: %s", format, got)
		}
	}
	if _, err := parse(append(full, "--log-format", "xml"), io.Discard); err == nil || !strings.Contains(err.Error(), `--log-format "xml" is neither text nor json`) {
		t.Errorf("xml: %v", err)
	}
}
