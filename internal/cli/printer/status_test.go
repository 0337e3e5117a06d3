package printer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

func TestStatusFitsTheTerminal(t *testing.T) {
	s := api.Status{Mesh: "default", Control: api.ControlState{Ready: true, Generation: 1234}}
	for i := range 2 {
		s.Nodes = append(s.Nodes, api.NodeState{Name: fmt.Sprintf("n%d", i), IP: "10.243.0.11", Agent: api.AgentState{Ready: true},
			Proxy: api.ProxyState{Ready: true, Ztunnel: true, Path: "/opt/a-ztunnel-of-a-long-name", WorkerConnections: []int{1234, 1234, 1234}}})
	}
	s.Pods = append(s.Pods, api.PodState{Namespace: "bookinfo-production", Name: "productpage-v1-7d8b9c4f6-x2x9k", Node: "n1", Phase: "Running", Reason: "waits for the agent", Enrolled: true, Redirection: true,
		Mesh: "pending", MeshReason: "no proxy is connected", Identity: "spiffe://cluster.local/ns/bookinfo-production/sa/bookinfo-productpage",
		Exceptions: []string{"inbound port 9999 is reached directly, by annotation traffic.sidecar.istio.io/excludeInboundPorts"},
		Unmeshed:   []api.Conn{{Local: "[fd00:10:244:1::2]:40000", Remote: "[fd00:10:96::20]:9080", Direction: "outbound"}}})
	s.Problems = []api.Problem{{Object: "AuthorizationPolicy bookinfo-production/l7", Message: strings.Repeat("node proxies cannot judge methods; ", 8)}}
	for _, width := range []int{80, 100, 160} {
		for _, colour := range []bool{false, true} {
			var b strings.Builder
			if err := Status(&b, s, term.Style{Colour: colour}, StatusOptions{Width: width, Now: time.Now()}); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.String()) {
				if got := term.Width(strings.TrimSuffix(line, "\n")); got > width {
					t.Errorf("%d of %d columns: %s", got, width, line)
				}
			}
			if strings.Count(strings.Join(strings.Fields(b.String()), " "), "node proxies cannot") < 8 {
				t.Errorf("text was cut at %d columns:\n%s", width, b.String())
			}
		}
	}
}

// A pod that crashes is called in status as it is in get.
func TestAWaitingContainerIsAPodsState(t *testing.T) {
	pod := api.PodState{Phase: "Running", Containers: []api.ContainerState{{Name: "a"}, {Name: "b", Waiting: "CrashLoopBackOff"}}, Reason: "container b: exited with code 3"}
	if got := podState(pod); got != "CrashLoopBackOff (container b: exited with code 3)" {
		t.Errorf("got %s", got)
	}
	pod.Namespace, pod.Name = "shop", "web"
	pod.Containers[1].Restarts, pod.Reason = 4, "container b: exited with code 3; next start in 40 s"
	var b strings.Builder
	if err := Status(&b, api.Status{Pods: []api.PodState{pod}}, term.Style{}, StatusOptions{Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Count(text, pod.Reason) != 1 || !strings.Contains(text, "! pod shop/web: CrashLoopBackOff: "+pod.Reason+"\n") {
		t.Errorf("got\n%s", text)
	}
	if pod.Ready, pod.Reason = true, ""; podState(pod) != "Ready" || crash(pod) != "" {
		t.Errorf("got %s", podState(pod))
	}
}

// On a terminal a reason is never cut: it stands below a table that it would make too wide.
func TestReasonsStandBelowATableThatIsTooNarrow(t *testing.T) {
	policy := api.Object{Key: api.Key{Kind: "AuthorizationPolicy", Namespace: "default", Name: "l7"}, Conditions: []api.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted"}},
		Findings: []api.Finding{{Severity: "warning", State: "partial", Message: strings.Repeat("refuses ALL connections ", 12)}}}
	for _, width := range []int{0, 80, 100, 160} {
		var b strings.Builder
		if err := Objects(&b, []api.Object{policy}, Options{Format: Wide, Namespaces: true, Width: width}); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if strings.Count(strings.Join(strings.Fields(text), " "), "refuses ALL connections") != 12 || strings.Contains(text, "default/l7: refuses") != (width > 0) {
			t.Errorf("%d columns:\n%s", width, text)
		}
		for line := range strings.Lines(text) {
			if width > 0 && term.Width(line)-1 > width {
				t.Errorf("%d columns: %s", width, line)
			}
		}
	}
}
