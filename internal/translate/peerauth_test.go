package translate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	securityapi "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/gen/security"
)

var modes = []securityapi.PeerAuthentication_MutualTLS_Mode{
	securityapi.PeerAuthentication_MutualTLS_UNSET, securityapi.PeerAuthentication_MutualTLS_DISABLE,
	securityapi.PeerAuthentication_MutualTLS_PERMISSIVE, securityapi.PeerAuthentication_MutualTLS_STRICT,
}

func tls(m securityapi.PeerAuthentication_MutualTLS_Mode) *securityapi.PeerAuthentication_MutualTLS {
	return &securityapi.PeerAuthentication_MutualTLS{Mode: m}
}

func peerAuthentication(namespace, name string, selects bool, m securityapi.PeerAuthentication_MutualTLS_Mode) *securityv1.PeerAuthentication {
	pa := &securityv1.PeerAuthentication{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	pa.Spec.Mtls = tls(m)
	if selects {
		pa.Spec.Selector = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "web"}}
	}
	return pa
}

// denies evaluates a policy for a peer without identity, as a proxy does.
func denies(t *testing.T, p *security.Authorization, port uint32) bool {
	t.Helper()
	for _, rule := range p.Rules {
		matched := true
		for _, clause := range rule.Clauses {
			matched = matched && slices.ContainsFunc(clause.Matches, func(m *security.Match) bool {
				if len(m.NotPrincipals) != 1 || m.NotPrincipals[0].GetPresence() == nil {
					t.Fatalf("a match that is not about anonymous peers: %v", m)
				}
				return (len(m.DestinationPorts) == 0 || slices.Contains(m.DestinationPorts, port)) && !slices.Contains(m.NotDestinationPorts, port)
			})
		}
		if matched {
			return true
		}
	}
	return false
}

// TestEveryCombinationOfModesDeniesPlaintextExactlyWhereItIsStrict goes through mesh × namespace × workload × port modes and compares
// what the attached policies deny with the rule that the documentation gives: the nearest mode that is set counts.
func TestEveryCombinationOfModesDeniesPlaintextExactlyWhereItIsStrict(t *testing.T) {
	const strict, unset = securityapi.PeerAuthentication_MutualTLS_STRICT, securityapi.PeerAuthentication_MutualTLS_UNSET
	for _, meshMode := range modes {
		for _, nsMode := range modes {
			for _, wlMode := range modes {
				for _, portMode := range modes {
					nearest := func(candidates ...securityapi.PeerAuthentication_MutualTLS_Mode) bool {
						for _, m := range candidates {
							if m != unset {
								return m == strict
							}
						}
						return false
					}
					wantPort, wantOther := nearest(portMode, wlMode, nsMode, meshMode), nearest(wlMode, nsMode, meshMode)

					inherited := Inherited(peerAuthentication("istio-system", "m", false, meshMode), peerAuthentication("shop", "n", false, nsMode))
					wl := peerAuthentication("shop", "w", true, wlMode)
					wl.Spec.PortLevelMtls = map[uint32]*securityapi.PeerAuthentication_MutualTLS{8080: tls(portMode)}
					published := map[string]*security.Authorization{"istio-system/istio_converted_static_strict": StaticStrict(mesh)}
					if p := PeerAuthentication(wl, inherited); p != nil {
						published[p.Namespace+"/"+p.Name] = p
					}
					gotPort, gotOther := false, false
					for _, name := range PeerAuthenticationPolicies(mesh, wl, inherited) {
						p := published[name]
						if p == nil {
							t.Fatalf("%v %v %v %v: workload names %s, which does not exist", meshMode, nsMode, wlMode, portMode, name)
						}
						if p.Action != security.Action_DENY || p.Scope != security.Scope_WORKLOAD_SELECTOR {
							t.Fatalf("policy %v", p)
						}
						gotPort = gotPort || denies(t, p, 8080)
						gotOther = gotOther || denies(t, p, 9090)
					}
					if gotPort != wantPort || gotOther != wantOther {
						t.Errorf("mesh %v, namespace %v, workload %v, port %v: plaintext denied on the port %v, on others %v; want %v, %v",
							meshMode, nsMode, wlMode, portMode, gotPort, gotOther, wantPort, wantOther)
					}
				}
			}
		}
	}
}

func TestNamesAreIstiosSoThatLogsReadAlike(t *testing.T) {
	wl := peerAuthentication("shop", "web", true, securityapi.PeerAuthentication_MutualTLS_STRICT)
	wl.Spec.PortLevelMtls = map[uint32]*securityapi.PeerAuthentication_MutualTLS{8080: tls(securityapi.PeerAuthentication_MutualTLS_PERMISSIVE)}
	if got := PeerAuthenticationPolicies(mesh, wl, Permissive); !slices.Equal(got, []string{"shop/converted_peer_authentication_web"}) {
		t.Errorf("got %v", got)
	}
	if got := PeerAuthenticationPolicies(mesh, nil, Strict); !slices.Equal(got, []string{"istio-system/istio_converted_static_strict"}) {
		t.Errorf("got %v", got)
	}
}

func TestTheOldestOfAScopeCountsAndTheOthersAreTold(t *testing.T) {
	at := func(name string, minute int) *securityv1.PeerAuthentication {
		pa := peerAuthentication("shop", name, false, securityapi.PeerAuthentication_MutualTLS_STRICT)
		pa.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC))
		return pa
	}
	old, young, twin := at("z-old", 1), at("a-young", 2), at("y-old", 1)
	winner := Oldest([]*securityv1.PeerAuthentication{young, old, twin})
	if winner != twin {
		t.Fatalf("winner is %s", winner.Name)
	}
	if c := PeerAuthenticationConditions(young, winner); c[0].Status != "False" || c[0].Reason != "Conflicted" {
		t.Errorf("the loser is told %v", c)
	}
	if c := PeerAuthenticationConditions(twin, winner); c[0].Status != "True" {
		t.Errorf("the winner is told %v", c)
	}
	if Oldest(nil) != nil {
		t.Error("something came of nothing")
	}
}

func TestConditionsSayWhatIsNotAsWritten(t *testing.T) {
	for i, pa := range []*securityv1.PeerAuthentication{
		peerAuthentication("shop", "x", false, securityapi.PeerAuthentication_MutualTLS_DISABLE),
		func() *securityv1.PeerAuthentication {
			pa := peerAuthentication("shop", "x", true, securityapi.PeerAuthentication_MutualTLS_STRICT)
			pa.Spec.PortLevelMtls = map[uint32]*securityapi.PeerAuthentication_MutualTLS{80: tls(securityapi.PeerAuthentication_MutualTLS_DISABLE)}
			return pa
		}(),
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if c := PeerAuthenticationConditions(pa, nil); c[0].Reason != "UnsupportedValue" || c[0].Status != "True" {
				t.Errorf("DISABLE is told %v", c)
			}
		})
	}
}
