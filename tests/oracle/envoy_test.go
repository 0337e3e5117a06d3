//go:build envoy

package oracle

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	securityapi "istio.io/api/security/v1beta1"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/lab/dataplanes/envoy/rbac"
)

// object is a JSON object of Envoy's configuration.
type object = map[string]any

// The fields by which Envoy learns of which case a request is, and who the peer is.
const (
	caseField = "x-oracle-case"
	peerField = "x-oracle-peer"
)

const typePrefix = "type.googleapis.com/envoy.extensions."

// bootstrap is the configuration of an Envoy that answers 200 to a request that the policies of its case admit, and 403 to others. Paths
// are normalised as Istio has it at each level.
func bootstrap(all []testCase) object {
	escaped := map[l7.PathNormalization]string{
		l7.PathNormalization_BASE: "KEEP_UNCHANGED", l7.PathNormalization_MERGE_SLASHES: "KEEP_UNCHANGED",
		l7.PathNormalization_DECODE_AND_MERGE_SLASHES: "UNESCAPE_AND_FORWARD",
	}
	var listeners []object
	for n, d := range destinations {
		level := request{destination: d}.level()
		var routes []object
		for i, c := range all {
			if c.requests[0].destination == d {
				routes = append(routes, route(i, c))
			}
		}
		listeners = append(listeners, object{
			"name":    fmt.Sprintf("destination-%d", n),
			"address": object{"socket_address": object{"address": d.Addr().String(), "port_value": d.Port()}},
			"filter_chains": []object{{"filters": []object{typed("http", "filters.network.http_connection_manager.v3.HttpConnectionManager", object{
				"stat_prefix":                      "oracle",
				"codec_type":                       "HTTP1",
				"normalize_path":                   true,
				"merge_slashes":                    level != l7.PathNormalization_BASE,
				"path_with_escaped_slashes_action": escaped[level],
				"use_remote_address":               false,
				"route_config":                     object{"virtual_hosts": []object{{"name": "all", "domains": []string{"*"}, "routes": routes}}},
				"http_filters": []object{
					typed("peer", "filters.http.set_filter_state.v3.Config", object{"on_request_headers": []object{{
						"object_key": rbac.PeerPrincipal, "factory_key": "envoy.string", "skip_if_empty": true,
						"format_string": object{"omit_empty_values": true, "text_format_source": object{"inline_string": "%REQ(" + peerField + ")%"}},
					}}}),
					typed("audit", "filters.http.rbac.v3.RBAC", object{}),
					typed("deny", "filters.http.rbac.v3.RBAC", object{}),
					typed("allow", "filters.http.rbac.v3.RBAC", object{}),
					typed("router", "filters.http.router.v3.Router", object{}),
				},
			})}}},
		})
	}
	return object{"static_resources": object{"listeners": listeners}}
}

func typed(name, kind string, config object) object {
	config["@type"] = typePrefix + kind
	return object{"name": name, "typed_config": config}
}

// route is that of a case: its policies, and an answer of its own.
func route(n int, c testCase) object {
	filters := object{}
	for name, action := range map[string]securityapi.AuthorizationPolicy_Action{
		"audit": securityapi.AuthorizationPolicy_AUDIT, "deny": securityapi.AuthorizationPolicy_DENY, "allow": securityapi.AuthorizationPolicy_ALLOW,
	} {
		config := rbac.Filter(c.policies, action, c.domains())
		if config == nil {
			continue
		}
		filters[name] = object{"@type": typePrefix + "filters.http.rbac.v3.RBACPerRoute", "rbac": config}
	}
	return object{
		"match":           object{"prefix": "/", "headers": []object{{"name": caseField, "string_match": object{"exact": strconv.Itoa(n)}}}},
		"direct_response": object{"status": http.StatusOK}, "typed_per_filter_config": filters,
	}
}

// patience bounds every wait; what is awaited takes milliseconds.
const patience = 60 * time.Second

// startEnvoy runs the Envoy of LATEEN_ORACLE_ENVOY until the test ends.
func startEnvoy(t *testing.T, all []testCase) {
	t.Helper()
	config, err := json.Marshal(bootstrap(all))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "envoy.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Getenv("LATEEN_ORACLE_ENVOY"), "--config-path", file, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("start the Envoy that LATEEN_ORACLE_ENVOY names: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		ended <- nil
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		conn, err := net.Dial("tcp", destinations[len(destinations)-1].String())
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("Envoy ended: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("Envoy listens on none of %v: %v", destinations, err)
		}
	}
}

// client keeps one connection for each pair of addresses.
type client struct {
	t     *testing.T
	conns map[string]*conn
}

type conn struct {
	net.Conn
	reader *bufio.Reader
}

// status sends a request and returns the status of its answer.
func (c *client) status(n int, r request) int {
	c.t.Helper()
	key := r.source.String() + " " + r.destination.String()
	open := c.conns[key]
	if open == nil {
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(r.source, 0)), Timeout: patience}
		dialled, err := dialer.Dial("tcp", r.destination.String())
		if err != nil {
			c.t.Fatal(err)
		}
		open = &conn{dialled, bufio.NewReader(dialled)}
		c.conns[key] = open
	}
	more := []field{{caseField, strconv.Itoa(n)}}
	if r.peer != nil {
		more = append(more, field{peerField, "spiffe://" + r.peer.String()})
	}
	_ = open.SetDeadline(time.Now().Add(patience))
	if _, err := open.Write(r.head(more...)); err != nil {
		c.t.Fatalf("%s: %v", r, err)
	}
	answer, err := http.ReadResponse(open.reader, &http.Request{Method: r.method})
	if err != nil {
		c.t.Fatalf("%s: %v", r, err)
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		c.t.Fatalf("%s: %v", r, err)
	}
	if answer.Close {
		_ = open.Close()
		delete(c.conns, key)
	}
	return answer.StatusCode
}

func TestEnvoyDecidesAsIstiosReadingAndOtherwiseThanTheEngineForKnownReasonsAlone(t *testing.T) {
	if os.Getenv("LATEEN_ORACLE_ENVOY") == "" {
		t.Fatal("set LATEEN_ORACLE_ENVOY to the path of an Envoy; tests/accept/56-policy-oracle.sh does so")
	}
	all := drawn(t, true)
	answers := engineDecides(t, all)
	startEnvoy(t, all)
	c := &client{t: t, conns: map[string]*conn{}}
	diff := &differences{t: t}
	decisions, alike, reasons := 0, 0, map[string]int{}
	for n, one := range all {
		for i, r := range one.requests {
			status := c.status(n, r)
			if diff.engine(n, one, r, answers[n][i]); refuses(r) {
				continue
			}
			decisions++
			allowed, passes := status == http.StatusOK, isAllow(answers[n][i])
			if status != http.StatusOK && status != http.StatusForbidden {
				diff.report(n, one, r, "Envoy answers %d", status)
				continue
			}
			if want, _ := istios.decide(one, r); isAllow(want) != allowed {
				diff.report(n, one, r, "Envoy answers %d, the reference of Istio's reading says %q, the engine %q", status, want, answers[n][i])
			}
			if passes == allowed {
				alike++
				continue
			}
			reason := departure(one, r, passes)
			if reason == "" {
				diff.report(n, one, r, "Envoy answers %d, the engine says %q, and no known departure explains it", status, answers[n][i])
			}
			reasons[reason]++
		}
	}
	diff.end(decisions)
	t.Logf("%d decisions, %d alike; departures: %v", decisions, alike, reasons)
}

// departures are the ways in which the engine reads policies otherwise than Istio does, and Istio otherwise than the engine.
var departures = []struct {
	name string
	take func(m *reading)
}{
	{"an empty alternative of an ALLOW rule", func(m *reading) { m.emptyAllowsNobody = true }},
	{"one form of hosts", func(m *reading) { m.canonicalHosts = true }},
	{"request.headers[host]", func(m *reading) { m.canonicalHosts, m.foldedHostHeader = true, true }},
	{"escapes of paths", func(m *reading) { m.escapesAsTheyCame, m.canonicalPatterns = false, true }},
	{"decoded paths", func(m *reading) { m.escapesAsTheyCame, m.canonicalPatterns, m.decodedPaths = false, true, true }},
	{"several fields of a name", func(m *reading) { m.cautiousFields = true }},
	{"bytes of templates", func(m *reading) { m.fewBytes = false }},
	{"a list with a value that cannot be read", func(m *reading) { m.wholeLists = true }},
	{"peers as regular expressions", func(m *reading) { m.regexPeers = false }},
}

// departure names the departures that turn Istio's reading into the engine's decision: one, or two together; empty if none do.
func departure(c testCase, r request, allowed bool) string {
	explains := func(m reading) bool {
		verdict, _ := m.decide(c, r)
		return isAllow(verdict) == allowed
	}
	for i := range departures {
		m := istios
		if departures[i].take(&m); explains(m) {
			return departures[i].name
		}
	}
	for i := range departures {
		for j := range i {
			m := istios
			departures[i].take(&m)
			if departures[j].take(&m); explains(m) {
				return departures[j].name + " and " + departures[i].name
			}
		}
	}
	return ""
}
