package translate

import (
	"testing"
	"time"

	securityapi "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStrictnessIsFoundWhereThePoliciesDenyPlaintext goes through mesh × namespace × workload × port modes. An object is found exactly
// where the attached policies deny plaintext, and it is the nearest one that sets a mode.
func TestStrictnessIsFoundWhereThePoliciesDenyPlaintext(t *testing.T) {
	const unset = securityapi.PeerAuthentication_MutualTLS_UNSET
	for _, meshMode := range modes {
		for _, nsMode := range modes {
			for _, wlMode := range modes {
				for _, portMode := range modes {
					meshWide, nsWide, wl := peerAuthentication("istio-system", "m", false, meshMode), peerAuthentication("shop", "n", false, nsMode), peerAuthentication("shop", "w", true, wlMode)
					wl.Spec.PortLevelMtls = map[uint32]*securityapi.PeerAuthentication_MutualTLS{8080: tls(portMode)}
					inherited := Inherited(meshWide, nsWide)
					for port, onPort := range map[uint32]securityapi.PeerAuthentication_MutualTLS_Mode{8080: portMode, 9090: unset} {
						denied := false
						for _, name := range PeerAuthenticationPolicies(mesh, wl, inherited) {
							policy := StaticStrict(mesh)
							if name != "istio-system/istio_converted_static_strict" {
								policy = PeerAuthentication(wl, inherited)
							}
							denied = denied || denies(t, policy, port)
						}
						want := ""
						for _, candidate := range []struct {
							name string
							mode securityapi.PeerAuthentication_MutualTLS_Mode
						}{{"w", onPort}, {"w", wlMode}, {"n", nsMode}, {"m", meshMode}} {
							if candidate.mode != unset {
								want = candidate.name
								break
							}
						}
						all := []*securityv1.PeerAuthentication{meshWide, nsWide, wl}
						got, strict := FindStrictness(all, mesh.RootNamespace, "shop", map[string]string{"app": "web", "version": "v1"}, port)
						if strict != denied || strict && (got.PeerAuthentication.Name != want || got.OnPort != (onPort != unset)) {
							t.Errorf("mesh %v, namespace %v, workload %v, port %v: got %+v strict %v, want %s strict %v", meshMode, nsMode, wlMode, onPort, got, strict, want, denied)
						}
					}
				}
			}
		}
	}
}

func TestStrictnessOfTheOldestObjectThatCoversTheWorkload(t *testing.T) {
	const strict, permissive = securityapi.PeerAuthentication_MutualTLS_STRICT, securityapi.PeerAuthentication_MutualTLS_PERMISSIVE
	at := func(pa *securityv1.PeerAuthentication, minute int) *securityv1.PeerAuthentication {
		pa.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC))
		return pa
	}
	all := []*securityv1.PeerAuthentication{
		at(peerAuthentication("shop", "late", false, permissive), 2), at(peerAuthentication("shop", "early", false, strict), 1),
		at(peerAuthentication("shop", "web-only", true, permissive), 0), at(peerAuthentication("other", "elsewhere", false, permissive), 0),
	}
	if got, is := FindStrictness(all, mesh.RootNamespace, "shop", map[string]string{"app": "db"}, 80); !is || got.PeerAuthentication.Name != "early" {
		t.Errorf("db: got %+v, %v", got, is)
	}
	if got, is := FindStrictness(all, mesh.RootNamespace, "shop", map[string]string{"app": "web"}, 80); is {
		t.Errorf("web is permissive by an object of its own: got %+v", got)
	}
	if got, is := FindStrictness(all, mesh.RootNamespace, "third", nil, 80); is {
		t.Errorf("nothing covers namespace third: got %+v", got)
	}
}

func TestPoliciesThatStandForPeerAuthentications(t *testing.T) {
	for policy, want := range map[string]struct {
		own string
		is  bool
	}{
		"istio_converted_static_strict":       {"", true},
		"converted_peer_authentication_web":   {"web", true},
		"no-client":                           {"no-client", false},
		"istio_converted_static_strict_other": {"istio_converted_static_strict_other", false},
	} {
		if own, is := FromPeerAuthentication(policy); own != want.own || is != want.is {
			t.Errorf("%s: got %q, %v", policy, own, is)
		}
	}
}
