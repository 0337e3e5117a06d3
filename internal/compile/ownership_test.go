package compile

import (
	"strings"
	"testing"

	"lateen.dev/lateen/internal/model"
)

// TestOneOfSeveralSelectingPeerAuthenticationsCountsAndTheOthersAreTold follows two of them through what can change between them.
func TestOneOfSeveralSelectingPeerAuthenticationsCountsAndTheOthersAreTold(t *testing.T) {
	p := newPlane(t)
	first, second := policyKey("PeerAuthentication", "shop", "a"), policyKey("PeerAuthentication", "shop", "b")
	told := func(key model.Key, status model.Status, reason, message string) {
		t.Helper()
		if c := p.condition(key); c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
			t.Errorf("%s is told %+v, want %s %s %q", key, c, status, reason, message)
		}
	}
	p.put(pod("shop", "one", "10.0.0.1", "web"))
	p.put(peerAuthentication("shop", "a", "selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}"))
	told(first, model.True, "Accepted", "")
	p.put(peerAuthentication("shop", "b", "selector: {matchLabels: {app: web}}, mtls: {mode: PERMISSIVE}"))
	told(first, model.True, "Accepted", "")
	told(second, model.False, "Conflicted", "none of its 1 workloads: PeerAuthentication shop/a")
	p.put(peerAuthentication("shop", "b", "selector: {matchLabels: {tier: front}}, mtls: {mode: PERMISSIVE}"))
	told(second, model.True, "Accepted", "")
	both := strings.Replace(pod("shop", "two", "10.0.0.2", "web"), "app: web", "app: web, tier: front", 1)
	p.put(both)
	told(second, model.False, "Conflicted", "none of its 1 workloads")
	p.put(strings.Replace(pod("shop", "three", "10.0.0.3", "other"), "app: other", "app: other, tier: front", 1))
	told(second, model.True, "Conflicted", "1 of its 2 workloads")
	p.remove(model.PodKey("shop", "two"))
	told(second, model.True, "Accepted", "")
	p.put(both)
	p.remove(first)
	told(second, model.True, "Accepted", "")
}

// TestPeerAuthenticationsAreToldOfPodsThatNobodyCaptures follows a pod on its node's network through what selects it.
func TestPeerAuthenticationsAreToldOfPodsThatNobodyCaptures(t *testing.T) {
	p := newPlane(t)
	selecting, broad := policyKey("PeerAuthentication", "shop", "a"), policyKey("PeerAuthentication", "shop", "all")
	told := func(key model.Key, status model.Status, reason, message string) {
		t.Helper()
		if c := p.condition(key); c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
			t.Errorf("%s is told %+v, want %s %s %q", key, c, status, reason, message)
		}
	}
	captured := pod("shop", "one", "10.0.0.1", "web")
	host := strings.Replace(pod("shop", "host", "10.9.0.1", "web"), "spec: {", "spec: {hostNetwork: true, ", 1)
	if !strings.Contains(host, "hostNetwork") {
		t.Fatal("the helper makes pods of another form now")
	}
	p.put(captured)
	p.put(peerAuthentication("shop", "a", "selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}"))
	p.put(peerAuthentication("shop", "all", "mtls: {mode: STRICT}"))
	told(selecting, model.True, "Accepted", "")
	told(broad, model.True, "Accepted", "")
	p.put(host)
	told(selecting, model.True, "HostNetwork", "no effect on pods with hostNetwork (shop/host)")
	told(broad, model.True, "HostNetwork", "shop/host")
	p.remove(model.PodKey("shop", "one"))
	told(selecting, model.False, "HostNetwork", "it selects nothing else")
	told(broad, model.True, "HostNetwork", "shop/host")
	p.put(peerAuthentication("shop", "a", "selector: {matchLabels: {app: web}}, mtls: {mode: PERMISSIVE}"))
	told(selecting, model.True, "Accepted", "")
	p.put(peerAuthentication("shop", "a", "selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}"))
	p.remove(model.PodKey("shop", "host"))
	p.put(captured)
	told(selecting, model.True, "Accepted", "")
	told(broad, model.True, "Accepted", "")
}
