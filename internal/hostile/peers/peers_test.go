package peers

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/hostile/cases"
	"lateen.dev/lateen/internal/hostile/client"
	"lateen.dev/lateen/internal/hostile/upstream"
)

// program is where a proxy is on this machine.
func program(kind Kind) string {
	if kind == Envoy {
		cache, _ := os.UserCacheDir()
		kept, _ := filepath.Glob(filepath.Join(cache, "lateen/envoy-*/envoy"))
		if len(kept) > 0 {
			return kept[len(kept)-1]
		}
	}
	for _, dir := range []string{"", "/usr/sbin/"} {
		if path, err := exec.LookPath(dir + string(kind)); err == nil {
			return path
		}
	}
	return ""
}

// lacking are valid requests that a proxy refuses in the version that Debian 12 has.
var lacking = map[Kind]string{Nginx: "HTTP/2: valid: trailers", HAProxy: "HTTP/2: valid: padding"}

func TestConfiguredProxiesForwardWhatIsValidAndDenyThePath(t *testing.T) {
	for _, kind := range []Kind{Envoy, Nginx, HAProxy} {
		t.Run(string(kind), func(t *testing.T) {
			path := program(kind)
			if path == "" {
				t.Skipf("there is no %s on this machine", kind)
			}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := upstream.Serve(listener)
			defer server.Close()
			lanes := Lanes(kind, []int{listener.Addr().(*net.TCPAddr).Port})
			peer, err := Start(kind, path, t.TempDir(), lanes)
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Stop()
			sent := 0
			for _, c := range cases.Generate(1, 2000) {
				rule := c.Rules[0]
				port, version := lanes[0].HTTP1, "HTTP/1"
				if c.HTTP2 {
					port, version = lanes[0].HTTP2, "HTTP/2"
				}
				isValid, isDenied := strings.Contains(rule, "valid"), strings.HasSuffix(rule, "denied path")
				if len(c.Rules) > 1 || rule == lacking[kind] || !isValid && !isDenied || isValid && !slices.Equal(c.Want, []int{200}) {
					continue
				}
				conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
				if err != nil {
					t.Fatal(err)
				}
				answer := client.Send(conn, c, 5*time.Second)
				if len(answer.Statuses) == 0 || answer.Statuses[0] != c.Want[0] {
					t.Errorf("%s: %s: %.200q: %+v", version, rule, c.Bytes, answer)
				}
				for _, r := range server.Take() {
					if r.Fault != "" || isDenied && !r.Partial && r.Target != cases.ClosingPath {
						t.Errorf("%s: %s: %+v", version, rule, r)
					}
				}
				sent++
			}
			if sent < 50 {
				t.Errorf("only %d requests were sent", sent)
			}
		})
	}
}
