package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const twoClusters = `
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: one, cluster: {server: "https://one.example:6443"}}
- {name: two, cluster: {server: "https://two.example:6443"}}
contexts:
- {name: one, context: {cluster: one, user: me}}
- {name: two, context: {cluster: two, user: me}}
users:
- {name: me, user: {token: secret}}
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigFindsTheClusterThatIsMeant(t *testing.T) {
	file := write(t, twoClusters)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct{ name, env, kubeconfig, context, want string }{
		{"file", "", file, "", "https://one.example:6443"},
		{"context", "", file, "two", "https://two.example:6443"},
		{"environment", file, "", "", "https://one.example:6443"},
		{"context of the environment's", file, "", "two", "https://two.example:6443"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", c.env)
			cfg, err := Config(c.kubeconfig, c.context)
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Host != c.want || cfg.QPS != requestsPerSecond || !strings.Contains(cfg.UserAgent, "/") {
				t.Errorf("host %s, %v requests a second, user agent %q", cfg.Host, cfg.QPS, cfg.UserAgent)
			}
		})
	}
}

func TestConfigSaysWhatIsMissing(t *testing.T) {
	file := write(t, twoClusters)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct{ name, kubeconfig, context, want string }{
		{"nothing", "", "", "--kubeconfig"},
		{"no file", "/nonexistent/config", "", "/nonexistent/config"},
		{"no context", file, "three", "kubectl config get-contexts"},
		{"no YAML", write(t, "{"), "", "correct the file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Config(c.kubeconfig, c.context); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s in it", err, c.want)
			}
		})
	}
}

var policies = schema.GroupResource{Group: "security.istio.io", Resource: "authorizationpolicies"}

func TestAwayTellsASilentServerFromARefusal(t *testing.T) {
	dial := &url.Error{Op: "Get", URL: "https://x/api", Err: fmt.Errorf("dial tcp: %w", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{context.Canceled, false},
		{fmt.Errorf("list: %w", dial), true},
		{apierrors.NewServiceUnavailable("starting"), true},
		{apierrors.NewInternalError(errors.New("etcd")), true},
		{apierrors.NewTooManyRequests("later", 1), true},
		{apierrors.NewForbidden(policies, "", errors.New("no")), false},
		{fmt.Errorf("list: %w", apierrors.NewUnauthorized("who")), false},
		{apierrors.NewResourceExpired("old"), false},
	} {
		if got := Away(c.err); got != c.want {
			t.Errorf("%v: away is %v", c.err, got)
		}
	}
	if got := Cause(fmt.Errorf("list: %w", dial)); got != "dial tcp: connection refused" {
		t.Errorf("the cause is %q", got)
	}
}

func TestRefusalNamesTheRuleThatIsMissing(t *testing.T) {
	forbidden := fmt.Errorf("list: %w", apierrors.NewForbidden(policies, "", errors.New("no")))
	got := Refusal(forbidden, policies.Group, policies.Resource, "list", "watch")
	want := `it may not list or watch authorizationpolicies.security.istio.io; its ClusterRole needs the rule {apiGroups: ["security.istio.io"], resources: ["authorizationpolicies"], verbs: [list, watch]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := Refusal(apierrors.NewUnauthorized("who"), "", "pods", "list"); !strings.Contains(got, "credentials") {
		t.Errorf("unauthorized: %s", got)
	}
	if got := Refusal(errors.New("EOF"), "", "pods", "list"); got != "" {
		t.Errorf("a broken connection is no refusal: %s", got)
	}
}

// A quota and a policy are refused with the code that is used for missing rights, which no rule fixes.
func TestWhatIsNotAdmittedIsNoMissingRight(t *testing.T) {
	for _, why := range []string{
		"exceeded quota: few, requested: configmaps=1, used: configmaps=1, limited: configmaps=1",
		"ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
		"unable to create new content in namespace x because it is being terminated",
	} {
		got := Refusal(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", errors.New(why)), "", "configmaps", "create")
		if strings.Contains(got, "ClusterRole") || !strings.Contains(got, why) {
			t.Errorf("%s: %s", why, got)
		}
	}
}

func TestBackoffStaysWithinHalfAMinute(t *testing.T) {
	b := Backoff()
	total := time.Duration(0)
	for i := range 200 {
		d := b.Step()
		if total += d; d <= 0 || d > 30*time.Second {
			t.Fatalf("wait %d is %s", i, d)
		}
	}
	if total < 100*15*time.Second {
		t.Errorf("200 waits are %s: a server that is away is asked too often", total)
	}
}

func TestUnusableTellsWhatIsNoAbsence(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it says that the client hangs up
	server.StartTLS()
	defer server.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	get := func(address string, proxy string) error {
		c := &http.Client{Transport: &http.Transport{Proxy: func(r *http.Request) (*url.URL, error) {
			if proxy == "" {
				return nil, nil
			}
			return url.Parse(proxy)
		}}}
		_, err := c.Get(address)
		return err
	}
	for _, c := range []struct {
		name     string
		err      error
		why, fix string
	}{
		{"an unknown authority", get(server.URL, ""), "its certificate is not accepted", "certificate-authority-data"},
		{"no TLS", get(strings.Replace(plain.URL, "http:", "https:", 1), ""), "does not speak TLS", "server in the kubeconfig"},
		{"a proxy that is away", get("https://api.example:6443", "http://127.0.0.1:1"), "the proxy on the way", "HTTPS_PROXY"},
		{"a plugin that is missing", &url.Error{Op: "Get", Err: errors.New("getting credentials: exec: executable aws not found")}, "credentials for it cannot be had", "users.exec"},
		{"the client's certificate", &url.Error{Op: "Get", Err: &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}}, "client's certificate", "client-certificate-data"},
		{"nobody there", get("https://127.0.0.1:1", ""), "", ""},
		{"a refusal", apierrors.NewForbidden(policies, "", errors.New("no")), "", ""},
		{"nothing", nil, "", ""},
	} {
		why, fix := Unusable(c.err)
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) || !strings.Contains(fix, c.fix) {
			t.Errorf("%s (%v): %q, fix %q", c.name, c.err, why, fix)
		}
	}
}
