package control

import (
	"context"
	"errors"
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

func TestPagesAreForTheMachineAndForNodeProxies(t *testing.T) {
	pages := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	verifier := tokens{"node": {Namespace: "lateen-system", ServiceAccount: "lateen-node"}, "pod": {Namespace: "shop", ServiceAccount: "web"}}
	h := guard(pages, verifier, map[string]bool{"lateen-system/lateen-node": true})
	const anywhere = "10.244.1.7:40000"
	for _, c := range []struct {
		path, from string
		headers    []string
		want       int
	}{
		{"/metrics", anywhere, nil, http.StatusTeapot},
		{"/ready", anywhere, nil, http.StatusTeapot},
		{"/version", anywhere, nil, http.StatusTeapot},
		{"/debug/objects", anywhere, nil, http.StatusUnauthorized},
		{"/", anywhere, nil, http.StatusUnauthorized},
		{"/metrics/../debug/objects", anywhere, nil, http.StatusUnauthorized},
		{"/debug/objects", "127.0.0.1:1", nil, http.StatusTeapot},
		{"/debug/objects", "[::1]:1", nil, http.StatusTeapot},
		{"/debug/objects", "[::ffff:127.0.0.1]:1", nil, http.StatusTeapot},
		{"/debug/objects", "nonsense", nil, http.StatusUnauthorized},
		{"/debug/objects", anywhere, []string{"Bearer node"}, http.StatusTeapot},
		{"/debug/objects", anywhere, []string{"Bearer pod"}, http.StatusForbidden},
		{"/debug/objects", anywhere, []string{"Bearer other"}, http.StatusUnauthorized},
		{"/debug/objects", anywhere, []string{"Bearer node", "Bearer node"}, http.StatusUnauthorized},
		{"/debug/objects", anywhere, []string{"Basic node"}, http.StatusUnauthorized},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://control"+c.path, nil)
		r.URL.Path, r.RemoteAddr = c.path, c.from
		r.Header["Authorization"] = c.headers
		// What a proxy in between claims does not count.
		r.Header.Set("X-Forwarded-For", "127.0.0.1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s from %s with %v: %d, want %d", c.path, c.from, c.headers, w.Code, c.want)
		}
	}
}
