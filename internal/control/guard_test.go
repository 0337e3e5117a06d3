package control

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"lateen.dev/lateen/internal/ca"
)

// tokens are what callers may have, and whose they are.
type tokens map[string]ca.Caller

func (t tokens) Verify(_ context.Context, token string) (ca.Caller, error) {
	caller, ok := t[token]
	if !ok {
		return ca.Caller{}, errors.New("no such token")
	}
	return caller, nil
}

// The port is served in clear to the whole cluster: a page there is for everybody, or for nobody who comes over the network.
func TestPagesAreForTheMachine(t *testing.T) {
	h := guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	const anywhere, here, loopback = "10.244.1.7:40000", "10.244.1.2:15014", "127.0.0.1:15014"
	for _, c := range []struct {
		path, from, to string
		want           int
	}{
		{"/metrics", anywhere, here, http.StatusTeapot},
		{"/ready", anywhere, here, http.StatusTeapot},
		{"/version", anywhere, here, http.StatusTeapot},
		{"/debug/objects", anywhere, here, http.StatusForbidden},
		{"/debug/ca", anywhere, here, http.StatusForbidden},
		{"/", anywhere, here, http.StatusForbidden},
		{"/metrics/", anywhere, here, http.StatusForbidden},
		{"/metrics/../debug/objects", anywhere, here, http.StatusForbidden},
		{"//debug/objects", anywhere, here, http.StatusForbidden},
		{"/debug/objects", "127.0.0.1:1", loopback, http.StatusTeapot},
		{"/debug/objects", "[::1]:1", "[::1]:15014", http.StatusTeapot},
		{"/debug/objects", "[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:15014", http.StatusTeapot},
		{"/debug/objects", anywhere, loopback, http.StatusForbidden},
		{"/debug/objects", "127.0.0.1:1", here, http.StatusForbidden},
		{"/debug/objects", "nonsense", loopback, http.StatusForbidden},
		{"/debug/objects", "127.0.0.1:1", "", http.StatusForbidden},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://control"+c.path, nil)
		r.URL.Path, r.RemoteAddr = c.path, c.from
		if addr, err := net.ResolveTCPAddr("tcp", c.to); c.to != "" && err == nil {
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(addr)))
		}
		// Headers of a proxy in between do not count, and no token opens a page that is served in clear.
		r.Header.Set("X-Forwarded-For", "127.0.0.1")
		r.Header.Set("Authorization", "Bearer node")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s from %s to %s: %d, want %d", c.path, c.from, c.to, w.Code, c.want)
		}
		if w.Header().Get("WWW-Authenticate") != "" {
			t.Errorf("%s asks for a token in clear", c.path)
		}
	}
}

// Without --kube the pages are guarded as well: --debug-listen may name any address.
func TestPagesOfALocalControlPlaneAreForTheMachine(t *testing.T) {
	own := ownAddress(t)
	p := runWith(t, t.TempDir(), func(o *Options) { o.DebugListen = ":0" })
	p.write("engine.yaml", base)
	_, port, err := net.SplitHostPort(p.control.DebugAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host, path string
		want       int
	}{
		{"127.0.0.1", "/debug/objects", http.StatusOK},
		{own, "/debug/objects", http.StatusForbidden},
		{own, "/debug/ca", http.StatusForbidden},
		{own, "/metrics", http.StatusOK},
	} {
		resp, err := http.Get("http://" + net.JoinHostPort(c.host, port) + c.path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s of %s: %d, want %d", c.path, c.host, resp.StatusCode, c.want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// ownAddress is one of this machine's that is not loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	t.Fatal("this machine has no IPv4 address but loopback, so nothing can ask from the network: give an interface one")
	return ""
}
