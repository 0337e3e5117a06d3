package agent

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

func TestReadsExceptions(t *testing.T) {
	everyone := redirect.Settings{InboundPorts: []uint16{9100}, OutboundRanges: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}
	for _, c := range []struct {
		annotations map[string]string
		want        []string
		refused     string // a part of the one refusal
	}{
		{want: []string{"inbound ports 9100", "outbound to 10.9.0.0/16"}},
		{
			annotations: map[string]string{wellknown.ExcludeInboundPorts: "22, 9100", wellknown.ExcludeOutboundPorts: "3306"},
			want:        []string{"inbound ports 22, 9100", "outbound ports 3306", "outbound to 10.9.0.0/16"},
		},
		{
			annotations: map[string]string{wellknown.ExcludeInboundPorts: "22,ssh", wellknown.ExcludeOutboundPorts: "3306"},
			want:        []string{"inbound ports 9100", "outbound ports 3306", "outbound to 10.9.0.0/16"},
			refused:     `excludeInboundPorts: "ssh" is no port`,
		},
		{
			annotations: map[string]string{wellknown.ExcludeOutboundIPRanges: "10.1.2.3/8"},
			want:        []string{"inbound ports 9100", "outbound to 10.9.0.0/16"},
			refused:     "write 10.0.0.0/8",
		},
		{annotations: map[string]string{wellknown.BypassInboundCapture: "true"}, want: []string{"inbound: all but tunnels", "outbound to 10.9.0.0/16"}},
		{
			annotations: map[string]string{wellknown.BypassInboundCapture: "yes"}, want: []string{"inbound ports 9100", "outbound to 10.9.0.0/16"},
			refused: `"yes" is neither true nor false`,
		},
		{annotations: map[string]string{wellknown.DNSCapture: "false"}, want: []string{"DNS", "inbound ports 9100", "outbound to 10.9.0.0/16"}},
		{annotations: map[string]string{wellknown.DNSCapture: "true"}, want: []string{"inbound ports 9100", "outbound to 10.9.0.0/16"}},
		{
			annotations: map[string]string{wellknown.DNSCapture: "off"}, want: []string{"inbound ports 9100", "outbound to 10.9.0.0/16"},
			refused: `"off" is neither true nor false`,
		},
		{annotations: map[string]string{wellknown.IncludeOutboundIPRanges: "*"}, want: []string{"inbound ports 9100", "outbound to 10.9.0.0/16"}},
		{annotations: map[string]string{wellknown.IncludeOutboundIPRanges: ""}, want: []string{"inbound ports 9100", "outbound to 10.9.0.0/16", "outbound: all"}},
		{
			annotations: map[string]string{wellknown.IncludeOutboundIPRanges: "fd00::/8"},
			want:        []string{"inbound ports 9100", "outbound to 10.9.0.0/16", "outbound to all but fd00::/8"},
		},
		{
			annotations: map[string]string{wellknown.IncludeOutboundIPRanges: "fd00::/8", wellknown.ExcludeOutboundIPRanges: "fd01::/16"},
			want:        []string{"inbound ports 9100", "outbound to 10.9.0.0/16", "outbound to all but fd00::/8"},
			refused:     "leave out",
		},
		{
			annotations: map[string]string{wellknown.IncludeOutboundIPRanges: "fd00::/8,x"},
			want:        []string{"inbound ports 9100", "outbound to 10.9.0.0/16"}, refused: `"x" is no address range`,
		},
		{annotations: map[string]string{wellknown.RerouteVirtualInterfaces: "net/1"}, want: []string{"inbound ports 9100", "outbound to 10.9.0.0/16"}, refused: "no name"},
	} {
		s, refused := settingsOf(everyone, c.annotations)
		if got := s.Exceptions(); !slices.Equal(got, c.want) {
			t.Errorf("%v: %q, want %q", c.annotations, got, c.want)
		}
		if c.refused == "" && len(refused) > 0 || c.refused != "" && (len(refused) != 1 || !strings.Contains(refused[0], c.refused)) {
			t.Errorf("%v: refused %q, want one with %q", c.annotations, refused, c.refused)
		}
	}
	if !slices.Equal(everyone.InboundPorts, []uint16{9100}) {
		t.Errorf("what holds for all became %v", everyone.InboundPorts)
	}
}

// status asks the agent as its page does, with the test for its loop.
func status(t *testing.T, r *rig) Status {
	t.Helper()
	type answer struct {
		s   Status
		err error
	}
	got := make(chan answer, 1)
	go func() {
		s, err := r.agent.Status(t.Context())
		got <- answer{s, err}
	}()
	(<-r.agent.questions)()
	a := <-got
	if a.err != nil {
		t.Fatal(a.err)
	}
	return a.s
}

// A pod whose annotation is wrong is captured whole, and its object says why.
func TestCapturesWithoutAnExceptionThatCannotBeRead(t *testing.T) {
	r := newRig(t)
	r.snapshot.Pods[0].Annotations = map[string]string{wellknown.ExcludeInboundPorts: "9090,http"}
	r.label(true)
	r.accept()
	r.is(Captured, "")
	if got := r.settings.Exceptions(); len(got) != 0 {
		t.Errorf("passes by: %v", got)
	}
	r.did("put a", "complete", "apply capturing",
		`report enabled: annotation traffic.sidecar.istio.io/excludeInboundPorts: "http" is no port; write numbers from 1 to 65535, separated by commas`)
	s := status(t, r)
	if len(s.Pods[0].Refused) != 1 || len(s.Pods[0].Exceptions) != 0 {
		t.Errorf("status %+v", s.Pods[0])
	}

	// The fix is applied at once, and the complaint is taken back.
	r.snapshot.Pods[0].Annotations = map[string]string{wellknown.ExcludeInboundPorts: "9090", wellknown.Redirection: "enabled"}
	r.learn()
	r.step(time.Second)
	r.did("apply capturing", "report enabled")
	if s := status(t, r); !slices.Equal(s.Pods[0].Exceptions, []string{"inbound ports 9090"}) || s.Pods[0].Refused != nil {
		t.Errorf("status %+v", s.Pods[0])
	}
}

// A pod's author decides how long its annotations are, and not how much the agent keeps and writes of them.
func TestALongAnnotationIsRefusedInFewWords(t *testing.T) {
	for _, name := range []string{
		wellknown.DNSCapture, wellknown.BypassInboundCapture, wellknown.ExcludeInboundPorts, wellknown.ExcludeOutboundPorts,
		wellknown.ExcludeOutboundIPRanges, wellknown.IncludeOutboundIPRanges, wellknown.RerouteVirtualInterfaces,
	} {
		for _, value := range []string{
			strings.Repeat("\x01", 250<<10), strings.Repeat("\x01", maxAnnotation), strings.Repeat(",", maxAnnotation), strings.Repeat("1,", 250<<10),
			strings.Repeat(" ", maxAnnotation) + "1", strings.Repeat("1,", 1000), strings.Repeat("eth0,", 800) + "eth0", strings.Repeat("\xff", 100),
		} {
			s, refused := settingsOf(redirect.Settings{}, map[string]string{name: value})
			if len(refused) != 1 || len(refused[0]) > 600 || !strings.Contains(refused[0], name) {
				t.Errorf("%s with %d bytes: %d refusals of %d bytes", name, len(value), len(refused), len(strings.Join(refused, "")))
			}
			if !s.Equal(redirect.Settings{}) {
				t.Errorf("%s with %d bytes has an effect: %v", name, len(value), s.Exceptions())
			}
		}
	}
}

func TestAnnotationsThatSayNothingNewAreNotReadAgain(t *testing.T) {
	r := newRig(t)
	r.snapshot.Pods = nil
	for i := range 110 {
		r.snapshot.Pods = append(r.snapshot.Pods, source.Pod{
			UID: fmt.Sprint(i), Namespace: "default", Name: fmt.Sprint(i), NetNS: "/x",
			Annotations: map[string]string{wellknown.ExcludeInboundPorts: strings.Repeat("x,", maxAnnotation/2)},
		})
	}
	r.agent.learn(r.snapshot, r.now)
	kept := 0
	for _, p := range r.agent.pods {
		kept += len(strings.Join(p.refused, ""))
	}
	if kept == 0 || kept > 110*600 {
		t.Errorf("%d bytes are kept of what is refused", kept)
	}
	// Reading them again would take this over.
	r.agent.opts.Exceptions.BypassDNS = true
	r.agent.learn(r.snapshot, r.now)
	if got := r.agent.pods["0"].settings.Exceptions(); len(got) != 0 {
		t.Errorf("what says nothing new is read again: %v", got)
	}
	r.agent.opts.Exceptions.BypassDNS = false
	r.snapshot.Pods[0].Annotations = map[string]string{wellknown.ExcludeInboundPorts: "22"}
	r.agent.learn(r.snapshot, r.now)
	if got := r.agent.pods["0"].settings.Exceptions(); !slices.Equal(got, []string{"inbound ports 22"}) {
		t.Errorf("what is new is not read: %v", got)
	}
}

// A pod can ask for so much that it is captured in name only: somebody who looks at the node sees that.
func TestPodsThatAskForExceptionsAreCounted(t *testing.T) {
	r := newRig(t)
	counted := func(want string) {
		t.Helper()
		w := httptest.NewRecorder()
		r.agent.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if !strings.Contains(w.Body.String(), "\nlateen_agent_excepted_pods "+want+"\n") {
			t.Errorf("not counted %s", want)
		}
	}
	r.agent.opts.Exceptions.BypassDNS = true // what holds for all is not counted
	r.label(true)
	r.accept()
	counted("0")
	r.snapshot.Pods[0].Annotations = map[string]string{wellknown.ExcludeOutboundIPRanges: "0.0.0.0/0", wellknown.Redirection: "enabled"}
	r.learn()
	counted("1")
}
