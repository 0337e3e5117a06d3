package agent

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/diag"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

func captured(t *testing.T) *rig {
	r := newRig(t)
	r.label(true)
	r.accept()
	r.is(Captured, "")
	r.events = nil
	return r
}

func TestAPodThatNobodyEnrolledIsLeftAlone(t *testing.T) {
	r := newRig(t)
	r.learn()
	r.step(time.Hour)
	r.did("complete")
	r.is(Plain, "")
}

func TestTheProxyListensBeforeAnythingIsRedirected(t *testing.T) {
	r := newRig(t)
	r.label(true)
	r.did("put a", "complete")
	r.is(Pending, "waiting for the node proxy")
	r.accept()
	r.did("apply capturing", "report enabled")
	r.is(Captured, "")
}

func TestWithoutAProxyAPodStaysPlainAndSaysWhy(t *testing.T) {
	r := newRig(t)
	r.connected = false
	r.label(true)
	r.did("put a", "complete")
	r.is(Pending, "no node proxy is connected")
	r.step(time.Second)
	r.did("report disabled: no node proxy is connected; connections stay plain until one is")
	r.step(time.Hour)
	r.did()
	r.connected = true
	r.accept()
	r.did("apply capturing", "report enabled")
}

func TestARefusalIsReported(t *testing.T) {
	r := newRig(t)
	r.label(true)
	r.refusal = "port 15001 is in use"
	r.step(time.Second)
	r.did("put a", "complete", "report disabled: the node proxy refused: port 15001 is in use")
	r.is(Pending, "port 15001")
}

func TestCapturedPodsStayCapturedWithoutProxyAndEngine(t *testing.T) {
	r := captured(t)
	r.connected = false
	r.accepted = map[string]bool{}
	r.step(time.Hour)
	r.is(Captured, "no node proxy is connected")
	r.did()
	if r.mode != redirect.Capturing {
		t.Errorf("mode %v", r.mode)
	}
	r.connected = true
	r.accept()
	r.is(Captured, "")
	r.did()
}

func TestReleaseWaitsForSendersAndForMeshedConnections(t *testing.T) {
	r := captured(t)
	r.carried = 2
	r.label(false)
	r.did("apply draining", "report disabled")
	r.is(Releasing, "other proxies")
	r.step(time.Hour)
	r.did()
	r.is(Releasing, "meshed connections to finish: 2")
	r.carried = 0
	r.known = true
	r.step(time.Second)
	r.did("drop")
	r.is(Releasing, "let go")
	// A last connection that came in before the proxy heard of it.
	r.known, r.carried = false, 1
	r.step(time.Second)
	r.did()
	r.carried = 0
	r.step(time.Second)
	r.did("apply absent")
	r.is(Plain, "")
	r.step(time.Hour)
	r.did()
}

// The rules also serve plain connections, if the kernel changed their ports: what the proxy knows nothing of.
func TestReleaseWaitsForConnectionsThatTheKernelTranslates(t *testing.T) {
	r := newRig(t)
	r.deadline = time.Minute
	r.start()
	r.label(true)
	r.accept()
	r.did("put a", "complete", "apply capturing", "report enabled")
	r.changed = 1
	r.label(false)
	r.did("apply draining", "report disabled")
	r.step(30 * time.Second)
	r.did("drop")
	r.is(Releasing, "whose port the kernel translates to finish: 1; cut at ")
	r.changed = 0
	r.step(time.Second)
	r.did("apply absent")
	r.is(Plain, "")

	// And not for ever.
	r.label(true)
	r.accept()
	r.changed = 2
	r.label(false)
	r.did("put a", "apply capturing", "report enabled", "apply draining", "report disabled")
	r.step(59 * time.Second)
	r.did("drop")
	r.step(time.Second)
	r.did("apply absent")
	w := httptest.NewRecorder()
	r.agent.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if !strings.Contains(w.Body.String(), "lateen_agent_connections_cut_total 2\n") {
		t.Error("the two that were cut are not counted")
	}
}

// A pod whose connections cannot be read is released all the same, at its deadline.
func TestAPodWhoseConnectionsCannotBeReadIsReleasedAtTheDeadline(t *testing.T) {
	r := newRig(t)
	r.deadline = time.Minute
	r.start()
	r.label(true)
	r.accept()
	r.settleErr = errKernel
	r.label(false)
	r.did("put a", "complete", "apply capturing", "report enabled", "apply draining", "report disabled")
	r.step(59 * time.Second)
	r.did("drop")
	r.is(Releasing, errKernel.Error())
	r.step(time.Second)
	r.did("apply absent")
	r.is(Plain, "")
}

func TestReleaseWaitsForTheGraceAlsoWithoutConnections(t *testing.T) {
	r := captured(t)
	r.label(false)
	r.step(r.agent.capturer.grace - time.Millisecond)
	r.did("apply draining", "report disabled")
	r.step(2 * time.Millisecond)
	r.did("drop", "apply absent")
}

func TestReleaseDoesNotNeedAProxy(t *testing.T) {
	r := captured(t)
	r.connected = false
	r.label(false)
	r.step(time.Minute)
	r.did("apply draining", "report disabled", "drop", "apply absent")
	r.is(Plain, "")
}

func TestAPodEnrolledAgainWhileItIsReleased(t *testing.T) {
	r := captured(t)
	r.carried = 1
	r.label(false)
	r.step(time.Minute)
	r.did("apply draining", "report disabled")
	r.label(true)
	r.did("apply capturing", "report enabled")
	r.is(Captured, "")

	// And again, after the proxy was told to let go.
	r.label(false)
	r.carried, r.known = 0, true
	r.step(time.Minute)
	r.did("apply draining", "report disabled", "drop")
	r.known = false
	r.label(true)
	r.accept()
	r.did("put a", "apply capturing", "report enabled")
}

func TestAPodThatIsGoneIsTakenBackAtOnce(t *testing.T) {
	r := captured(t)
	r.snapshot.Pods = nil
	r.learn()
	r.did("drop")
	if len(r.agent.pods) != 0 {
		t.Error("still known")
	}
}

func TestPodsThatEndAreNotCapturedButStayCaptured(t *testing.T) {
	r := newRig(t)
	r.snapshot.Pods[0].Terminating = true
	r.label(true)
	r.accept()
	r.did("complete")

	r = captured(t)
	r.snapshot.Pods[0].Terminating = true
	r.learn()
	r.step(time.Hour)
	r.did()
	r.is(Captured, "")
}

func TestPendingPodsCanBeGivenUp(t *testing.T) {
	r := newRig(t)
	r.connected = false
	r.label(true)
	r.step(time.Second)
	r.events = nil
	r.label(false)
	r.did("drop", "report disabled")
	r.is(Plain, "")
}

func TestFailedRulesAreTriedAgainWithPauses(t *testing.T) {
	r := newRig(t)
	r.label(true)
	r.applyErr = errKernel
	r.accept()
	r.is(Pending, "the kernel says no")
	attempts := 0
	for range 600 {
		r.step(100 * time.Millisecond)
	}
	for _, e := range r.events {
		if e == "apply failed" {
			attempts++
		}
	}
	if attempts < 5 || attempts > 20 {
		t.Errorf("%d attempts in a minute", attempts)
	}
	r.events, r.applyErr = nil, nil
	r.step(time.Minute)
	r.did("apply capturing", "report enabled")
}

func TestAReleaseThatFailsIsTriedAgain(t *testing.T) {
	r := captured(t)
	r.applyErr = errKernel
	r.label(false)
	r.did("apply failed")
	r.is(Captured, "the kernel says no")
	r.applyErr = nil
	r.step(time.Minute)
	r.did("apply draining", "report disabled")
}

func TestDamageIsRepaired(t *testing.T) {
	r := captured(t)
	r.mode = redirect.Absent
	r.step(r.agent.capturer.verify + time.Second)
	r.did("apply capturing")
}

// Peers of a pod that Istio has captured are not told that it is plain because this mesh has no proxy yet.
func TestWhatIstioSaysOfAPodStandsUntilItIsCapturedHere(t *testing.T) {
	r := newRig(t)
	r.connected = false
	r.snapshot.Pods[0].Annotations[wellknown.Redirection] = string(source.Enabled)
	r.label(true)
	r.step(time.Minute)
	r.is(Pending, "no node proxy is connected")
	r.did("put a", "complete")
	r.connected = true
	r.accept()
	r.did("apply capturing") // that it is enabled is told already

	// Without an Istio it is what a former life of the node left.
	r = newRig(t)
	r.connected, r.alone = false, true
	r.snapshot.Pods[0].Annotations[wellknown.Redirection] = string(source.Enabled)
	r.label(true)
	r.step(time.Minute)
	r.did("put a", "complete", "report disabled", "report disabled: no node proxy is connected; connections stay plain until one is")
}

// Whoever takes the place of an Istio waits for the agents before anything of it goes.
func TestAnAgentIsNotReadyBeforeItHasThePodsThatIstioHolds(t *testing.T) {
	ready := func(r *rig) (bool, string) {
		w := httptest.NewRecorder()
		r.agent.HealthHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ready", nil))
		return w.Code == http.StatusOK, w.Body.String()
	}
	r := newRig(t)
	r.connected = false
	r.snapshot.Pods[0].Annotations[wellknown.Redirection] = string(source.Enabled)
	r.label(true)
	if ok, text := ready(r); ok || !strings.Contains(text, "default/a") {
		t.Errorf("ready %v: %s", ok, text)
	}
	if !r.complete {
		t.Error("the proxy is not told that it knows all pods")
	}
	r.connected = true
	r.accept()
	r.is(Captured, "")
	if ok, text := ready(r); !ok {
		t.Errorf("a captured pod: %s", text)
	}
	// What comes later is none of the taking over.
	r.connected = false
	r.label(false)
	r.label(true)
	if ok, text := ready(r); !ok {
		t.Errorf("once ready: %s", text)
	}

	for what, change := range map[string]func(*rig){
		"a pod that ended":            func(r *rig) { r.snapshot.Pods[0].Ended = true },
		"a pod that is being deleted": func(r *rig) { r.snapshot.Pods[0].Terminating = true },
		"a pod that nobody holds":     func(r *rig) { r.snapshot.Pods[0].Annotations = nil },
		"a pod without a network":     func(r *rig) { r.snapshot.Pods[0].NetNS, r.snapshot.Pods[0].IP = "", "" },
		"no Istio":                    func(r *rig) { r.alone = true },
	} {
		r := newRig(t)
		r.connected = false
		r.snapshot.Pods[0].Annotations[wellknown.Redirection] = string(source.Enabled)
		change(r)
		r.label(true)
		if ok, text := ready(r); !ok {
			t.Errorf("%s: %s", what, text)
		}
	}
}

// While an Istio captures pods its rules are its own; once it is gone, those that it left would cut off a pod that is released.
func TestWhatIstioLeftGoesOnceItIsGone(t *testing.T) {
	r := captured(t)
	r.istios = true
	r.step(time.Hour)
	r.did()
	r.alone = true
	r.step(time.Hour)
	r.did("Istio's rules removed")
	r.istios = true
	r.label(false)
	r.did("apply draining", "Istio's rules removed", "report disabled")

	r = newRig(t)
	r.istios, r.alone = true, true
	r.label(true)
	r.accept()
	r.did("put a", "complete", "apply capturing", "Istio's rules removed", "report enabled")
}

func TestAnAgentThatStartsTakesOver(t *testing.T) {
	tests := []struct {
		name      string
		mode      redirect.Mode
		annotated bool
		enrolled  bool
		did       []string
		state     State
	}{
		{"captured and enrolled", redirect.Capturing, true, true, []string{"put a", "complete"}, Captured},
		{"captured, the report was lost", redirect.Capturing, false, true, []string{"put a", "complete", "report enabled"}, Captured},
		{"captured, no longer enrolled", redirect.Capturing, true, false,
			[]string{"put a", "apply draining", "complete", "report disabled"}, Releasing},
		{"being released", redirect.Draining, false, false, []string{"put a", "complete"}, Releasing},
		{"being released, enrolled again", redirect.Draining, false, true, []string{"put a", "complete"}, Releasing},
		{"plain, the report was lost", redirect.Absent, true, false, []string{"complete", "report disabled"}, Plain},
		{"plain and enrolled", redirect.Absent, false, true, []string{"put a", "complete"}, Pending},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.mode = tt.mode
			if tt.annotated {
				r.snapshot.Pods[0].Annotations = map[string]string{wellknown.Redirection: "enabled"}
			}
			r.label(tt.enrolled)
			r.did(tt.did...)
			if got := r.pod().state; got != tt.state {
				t.Errorf("state %s, want %s", got, tt.state)
			}
		})
	}
}

// The proxy must not be told "that was all" without a captured pod, whatever is wrong with the pod.
func TestACapturedPodOutOfReachIsKept(t *testing.T) {
	r := newRig(t)
	r.mode = redirect.Capturing
	r.snapshot.Pods[0].Annotations = map[string]string{wellknown.Redirection: "enabled"}
	r.openErr = errKernel
	r.label(true)
	r.did("put a", "complete")
	if w := r.put[unit]; w.NetNS != nil {
		t.Error("a namespace that cannot be opened was handed over")
	}
	r.openErr = nil
	r.step(time.Minute)
	r.accept()
	r.is(Captured, "")
	if w := r.put[unit]; w.NetNS == nil {
		t.Error("the namespace was never handed over")
	}
	r.did()
}

func TestPodsOnTheNodesNetworkAreNotLookedInto(t *testing.T) {
	r := newRig(t)
	r.openErr = errKernel
	r.snapshot.Pods[0].HostNetwork = true
	r.label(true)
	r.step(time.Hour)
	r.did("complete")
	r.is(Plain, "")
}

func TestAPodWithoutNetworkWaitsForOne(t *testing.T) {
	r := newRig(t)
	r.snapshot.Pods[0].NetNS = ""
	r.label(true)
	r.is(Pending, "no network yet")
	r.snapshot.Pods[0].NetNS = "/run/netns/a"
	r.learn()
	r.accept()
	r.is(Captured, "")
}

func TestALostReportIsRepeated(t *testing.T) {
	r := newRig(t)
	r.reportErr = errKernel
	r.label(true)
	r.accept()
	r.events, r.reportErr = nil, nil
	r.step(time.Minute)
	r.did("report enabled")
	// The engine forgot.
	r.snapshot.Pods[0].Annotations = nil
	r.learn()
	r.did("report enabled")
	// A snapshot from before a report does not undo it.
	old := r.snapshot
	old.Pods = []source.Pod{old.Pods[0]}
	old.Pods[0].Annotations = map[string]string{wellknown.Redirection: "enabled"}
	r.label(false)
	r.events = nil
	old.Namespaces = r.snapshot.Namespaces
	r.agent.learn(old, r.now)
	r.settle()
	r.did("report disabled")
}

func TestListsOlderConnectionsWhileTheyLive(t *testing.T) {
	connection := func(remote string, cookie uint64) diag.Socket {
		return diag.Socket{
			Local: netip.MustParseAddrPort("10.0.0.1:40000"), Remote: netip.MustParseAddrPort(remote),
			State: diag.Established, Cookie: cookie,
		}
	}
	r := newRig(t)
	r.older = []diag.Socket{connection("10.0.0.2:80", 1), connection("10.0.0.3:80", 2)}
	r.label(true)
	r.accept()
	// The first ends; another one appears that was not there at enrolment.
	r.older = []diag.Socket{connection("10.0.0.3:80", 2), connection("10.0.0.4:80", 3)}
	got := alive(r.listing(), r.pod().unmeshed)
	if len(got) != 1 || got[0].Remote != "10.0.0.3:80" || got[0].Direction != diag.Outbound || !got[0].OpenedBefore.Equal(r.now) {
		t.Errorf("got %+v", got)
	}
}

// The kernel is told of clients' open connections before the rules are there: the first delivery may come with the rules.
func TestOlderConnectionsOfClientsAreTrackedBeforeTheRules(t *testing.T) {
	at := netip.MustParseAddrPort
	r := newRig(t)
	r.older = []diag.Socket{
		{Local: at("10.0.0.1:8080"), State: diag.Listen},
		{Local: at("10.0.0.1:8080"), Remote: at("10.0.0.2:40000"), State: diag.Established, Cookie: 1},
		{Local: at("10.0.0.1:41000"), Remote: at("10.0.0.3:80"), State: diag.Established, Cookie: 2}, // its port is taken in the pod
	}
	r.label(true)
	r.accept()
	r.did("put a", "complete", "track [{10.0.0.2:40000 10.0.0.1:8080}] at absent", "apply capturing",
		"track [{10.0.0.2:40000 10.0.0.1:8080}] at capturing", "report enabled")
}

// Nothing sees a connection end before the rules are there: tracked for longer, it would have its client's next one dropped.
func TestConnectionsThatEndBeforeTheRulesAreTrackedNoLonger(t *testing.T) {
	at := netip.MustParseAddrPort
	r := newRig(t)
	open := []diag.Socket{
		{Local: at("10.0.0.1:8080"), State: diag.Listen},
		{Local: at("10.0.0.1:8080"), Remote: at("10.0.0.2:40000"), State: diag.Established, Cookie: 1},
		{Local: at("10.0.0.1:8080"), Remote: at("10.0.0.2:40001"), State: diag.Established, Cookie: 2},
		{Local: at("10.0.0.1:8080"), Remote: at("10.0.0.2:40002"), State: diag.Established, Cookie: 3},
	}
	r.older, r.applyErr = open[:2], errKernel
	r.label(true)
	r.accept()
	r.did("put a", "complete", "track [{10.0.0.2:40000 10.0.0.1:8080}] at absent", "apply failed",
		"untrack [{10.0.0.2:40000 10.0.0.1:8080}] at absent")
	r.older, r.applyErr = open, nil
	r.meanwhile = func() {
		closing := open[2]
		closing.State = diag.LastAck
		r.older = []diag.Socket{open[0], open[1], closing}
	}
	r.step(time.Second)
	r.did("track [{10.0.0.2:40000 10.0.0.1:8080} {10.0.0.2:40001 10.0.0.1:8080} {10.0.0.2:40002 10.0.0.1:8080}] at absent", "apply capturing",
		"untrack [{10.0.0.2:40002 10.0.0.1:8080}] at capturing", "track [{10.0.0.2:40000 10.0.0.1:8080}] at capturing", "report enabled")
}

// A connection that is tracked as open and has no socket has ended, whoever opened it. The agent looks once, soon after the capture.
func TestConnectionsThatHalfEndedBeforeTheRulesAreTrackedNoLonger(t *testing.T) {
	at := netip.MustParseAddrPort
	r := newRig(t)
	r.older = []diag.Socket{{Local: at("10.0.0.1:41000"), Remote: at("10.0.0.3:80"), State: diag.Established, Cookie: 1}}
	r.tracked = []redirect.Older{
		{Client: at("10.0.0.1:41000"), Pod: at("10.0.0.3:80")},
		{Client: at("10.0.0.1:41001"), Pod: at("10.0.0.3:80")},
		{Client: at("10.0.0.2:40000"), Pod: at("10.0.0.1:8080")},
	}
	r.label(true)
	r.accept()
	r.did("put a", "complete", "apply capturing", "report enabled")
	r.step(forgetAfter)
	r.did("untrack [{10.0.0.1:41001 10.0.0.3:80} {10.0.0.2:40000 10.0.0.1:8080}] at capturing")
	r.step(time.Hour)
	r.did()
}

// What a status says of older connections is the same after the agent has started again, and it is still only those.
func TestOlderConnectionsAreKnownAfterARestart(t *testing.T) {
	connection := func(remote string, cookie uint64) diag.Socket {
		return diag.Socket{
			Local: netip.MustParseAddrPort("10.0.0.1:40000"), Remote: netip.MustParseAddrPort(remote),
			State: diag.Established, Cookie: cookie,
		}
	}
	r := newRig(t)
	r.stateFile = filepath.Join(t.TempDir(), "state.json")
	r.start()
	r.older = []diag.Socket{connection("10.0.0.2:80", 1)}
	r.label(true)
	r.accept()
	at := r.now
	r.step(time.Hour)
	r.older = append(r.older, connection("10.0.0.3:80", 2)) // an exception from capture, say
	r.start()
	r.label(true)
	got := alive(r.listing(), r.pod().unmeshed)
	if len(got) != 1 || got[0].Remote != "10.0.0.2:80" || !got[0].OpenedBefore.Equal(at) {
		t.Errorf("got %+v, want one from before %s", got, at)
	}

	// Without a usable file it is what can be seen, from now.
	if err := os.WriteFile(r.stateFile, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.label(true)
	if got := alive(r.listing(), r.pod().unmeshed); len(got) != 2 || !got[0].OpenedBefore.Equal(r.now) {
		t.Errorf("got %+v, want two from before %s", got, r.now)
	}
	if m, err := readMemory(r.stateFile); err != nil || len(m) != 1 {
		t.Errorf("the file was not written anew: %v, %v", m, err)
	}
}

func TestAReleaseHasADeadline(t *testing.T) {
	r := newRig(t)
	r.deadline = time.Minute
	r.start()
	r.label(true)
	r.accept()
	r.did("put a", "complete", "apply capturing", "report enabled")
	r.carried, r.known = 2, true
	r.label(false)
	r.did("apply draining", "report disabled")
	r.step(59 * time.Second)
	r.did()
	r.is(Releasing, "meshed connections to finish: 2; cut at "+r.now.Add(time.Second).UTC().Format(time.TimeOnly))
	r.step(time.Second)
	r.did("drop")
	r.is(Releasing, "let go")
	// The proxy cuts them as it lets go.
	r.carried, r.known = 0, false
	r.step(time.Second)
	r.did("apply absent")
	r.is(Plain, "")
}

// A pod that has ended keeps its network until what the proxy had in it is closed.
func TestAPodThatHasEndedIsReportedOnceItsConnectionsAre(t *testing.T) {
	r := captured(t)
	r.carried, r.known = 1, true
	r.snapshot.Pods[0].Terminating, r.snapshot.Pods[0].Ended = true, true
	r.learn()
	r.did("drop")
	r.step(time.Hour)
	r.did() // the proxy has not let go
	r.known = false
	r.step(time.Millisecond)
	r.did() // a connection is open
	r.carried = 0
	r.step(partLook)
	r.did("report parted")
	if r.mode != redirect.Capturing {
		t.Errorf("mode %v: nothing may be plain in a pod's last moment", r.mode)
	}
	r.learn()
	r.step(time.Hour)
	r.did()
}

func TestAPlainPodThatHasEndedIsWaitedForByNobody(t *testing.T) {
	r := newRig(t)
	r.learn()
	r.events = nil
	r.snapshot.Pods[0].Terminating, r.snapshot.Pods[0].Ended = true, true
	r.learn()
	r.did("report parted")
}

// An agent that was restarted meanwhile knows nothing of the pod but what the engine says.
func TestAnAgentThatComesAfterThePodsEndLooksAtItsConnections(t *testing.T) {
	r := captured(t)
	r.carried = 1
	r.snapshot.Pods[0].Terminating, r.snapshot.Pods[0].Ended = true, true
	r.start()
	r.learn()
	r.did("complete")
	r.carried = 0
	r.step(partLook)
	r.did("report parted")
}
