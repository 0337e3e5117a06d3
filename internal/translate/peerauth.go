package translate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/emptypb"
	securityapi "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/model"
)

// Names of the policies that PeerAuthentications become. They are Istio's, so that logs and dumps read alike;
// the underscore keeps them apart from any object's own name.
const (
	staticStrictName    = "istio_converted_static_strict"
	convertedNamePrefix = "converted_peer_authentication_"
)

// Mode is a PeerAuthentication's mode without DISABLE, which node proxies treat as PERMISSIVE.
type Mode int

// The modes; Unset inherits.
const (
	Unset Mode = iota
	Permissive
	Strict
)

func mode(m *securityapi.PeerAuthentication_MutualTLS) Mode {
	switch m.GetMode() {
	case securityapi.PeerAuthentication_MutualTLS_STRICT:
		return Strict
	case securityapi.PeerAuthentication_MutualTLS_PERMISSIVE, securityapi.PeerAuthentication_MutualTLS_DISABLE:
		return Permissive
	}
	return Unset
}

// Selects says whether a PeerAuthentication is about some workloads of its namespace rather than about the namespace or the mesh.
// A selector without labels is none, so that in the root namespace it speaks for the mesh, as to Istio's sidecars. In Istio's ambient mode it speaks
// for that namespace alone. One that selects there speaks for that namespace's own workloads; Istio ignores it in either mode. Both
// times this mesh is the stricter one.
func Selects(pa *securityv1.PeerAuthentication) bool {
	return len(pa.Spec.GetSelector().GetMatchLabels()) > 0
}

// Oldest picks the one PeerAuthentication of a scope that counts: the oldest, and of equally old ones the first by name.
func Oldest(candidates []*securityv1.PeerAuthentication) *securityv1.PeerAuthentication {
	if len(candidates) == 0 {
		return nil
	}
	return slices.MinFunc(candidates, func(a, b *securityv1.PeerAuthentication) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// Inherited is the mode that workloads of a namespace have when no PeerAuthentication selects them; mesh and namespace may be nil.
func Inherited(mesh, namespace *securityv1.PeerAuthentication) Mode {
	for _, pa := range []*securityv1.PeerAuthentication{namespace, mesh} {
		if pa != nil {
			if m := mode(pa.Spec.Mtls); m != Unset {
				return m
			}
		}
	}
	return Permissive
}

// StaticStrict is the policy that strict workloads name: whoever has no identity is denied.
func StaticStrict(mesh Mesh) *security.Authorization {
	return &security.Authorization{
		Name:      staticStrictName,
		Namespace: mesh.RootNamespace,
		Scope:     security.Scope_WORKLOAD_SELECTOR,
		Action:    security.Action_DENY,
		Rules:     []*security.Rule{denyAnonymous(nil, nil)},
	}
}

// denyAnonymous matches peers without an identity on the given ports, or on all but the given ones.
func denyAnonymous(on, except []uint32) *security.Rule {
	return &security.Rule{Clauses: []*security.Clause{{Matches: []*security.Match{{
		NotPrincipals:       []*security.StringMatch{{MatchType: &security.StringMatch_Presence{Presence: &emptypb.Empty{}}}},
		DestinationPorts:    on,
		NotDestinationPorts: except,
	}}}}}
}

// portModes resolves a selecting PeerAuthentication under what it inherits: its mode for most ports, and the ports that differ from it.
func portModes(pa *securityv1.PeerAuthentication, inherited Mode) (base Mode, differing []uint32) {
	if base = mode(pa.Spec.Mtls); base == Unset {
		base = inherited
	}
	for _, port := range slices.Sorted(maps.Keys(pa.Spec.PortLevelMtls)) {
		if m := mode(pa.Spec.PortLevelMtls[port]); m != Unset && m != base {
			differing = append(differing, port)
		}
	}
	return base, differing
}

// PeerAuthentication translates one that selects workloads and makes ports differ. It returns nil for all others: the static policy
// says what they say. Exceptions to a strict mode are part of one policy because proxies obey every DENY that matches.
func PeerAuthentication(pa *securityv1.PeerAuthentication, inherited Mode) *security.Authorization {
	if !Selects(pa) {
		return nil
	}
	base, differing := portModes(pa, inherited)
	if len(differing) == 0 {
		return nil
	}
	rule := denyAnonymous(differing, nil)
	if base == Strict {
		rule = denyAnonymous(nil, differing)
	}
	return &security.Authorization{
		Name:      convertedNamePrefix + pa.Name,
		Namespace: pa.Namespace,
		Scope:     security.Scope_WORKLOAD_SELECTOR,
		Action:    security.Action_DENY,
		Rules:     []*security.Rule{rule},
	}
}

// PeerAuthenticationPolicies names the policies that a workload must carry: selecting is the PeerAuthentication that
// counts for it, or nil, and inherited what holds without one.
func PeerAuthenticationPolicies(mesh Mesh, selecting *securityv1.PeerAuthentication, inherited Mode) []string {
	base := inherited
	if selecting != nil {
		var differing []uint32
		if base, differing = portModes(selecting, inherited); len(differing) > 0 {
			return []string{selecting.Namespace + "/" + convertedNamePrefix + selecting.Name}
		}
	}
	if base == Strict {
		return []string{mesh.RootNamespace + "/" + staticStrictName}
	}
	return nil
}

// PeerAuthenticationConditions tells the author of pa what came of it; winner is the one that counts for pa's scope.
func PeerAuthenticationConditions(pa, winner *securityv1.PeerAuthentication) []model.Condition {
	switch {
	case winner != nil && winner.Name != pa.Name:
		return []model.Condition{rejected("Conflicted", fmt.Sprintf("PeerAuthentication %s/%s has the same scope and came first", winner.Namespace, winner.Name))}
	case disables(pa):
		return []model.Condition{partly("node proxies treat DISABLE as PERMISSIVE: they accept plaintext and go on encrypting among themselves")}
	}
	return []model.Condition{accepted()}
}

// Overruled tells the author of a PeerAuthentication that selects workloads that other ones count for lost of the chosen ones.
func Overruled(conditions []model.Condition, winners string, lost, chosen int) []model.Condition {
	came := "PeerAuthentication " + winners + " selects them, too, and came first"
	switch {
	case lost == 0:
		return conditions
	case lost == chosen:
		return []model.Condition{rejected("Conflicted", fmt.Sprintf("it counts for none of its %d workloads: %s", chosen, came))}
	}
	part := partly(fmt.Sprintf("it does not count for %d of its %d workloads: %s", lost, chosen, came))
	part.Reason = "Conflicted"
	for _, c := range conditions {
		if c.Reason != accepted().Reason {
			part.Message += ". " + c.Message
		}
	}
	return []model.Condition{part}
}

// Uncaptured tells the author of a PeerAuthentication that demands mTLS which pods cannot give it: those on their node's
// network. chosen is how many workloads it selects; 0 if it selects none in particular.
func Uncaptured(pa *securityv1.PeerAuthentication, conditions []model.Condition, pods []string, chosen int) []model.Condition {
	if len(pods) == 0 || !demands(pa) || slices.ContainsFunc(conditions, func(c model.Condition) bool { return c.Status == model.False }) {
		return conditions
	}
	const named = 3
	names := strings.Join(pods[:min(len(pods), named)], ", ")
	if more := len(pods) - named; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	why := fmt.Sprintf("it has no effect on pods with hostNetwork (%s): their node's network is never captured, so they accept plaintext", names)
	if len(pods) == chosen {
		return []model.Condition{rejected("HostNetwork", "it selects nothing else, and "+why)}
	}
	part := partly(why)
	part.Reason = "HostNetwork"
	for _, c := range conditions {
		if c.Reason != accepted().Reason {
			part.Message += ". " + c.Message
		}
	}
	return []model.Condition{part}
}

// Shut tells the author of a PeerAuthentication that admits plaintext that its whole namespace refuses it because of another one.
func Shut(pa *securityv1.PeerAuthentication, conditions []model.Condition, by *securityv1.PeerAuthentication) []model.Condition {
	strict := mode(pa.Spec.Mtls) == Strict && !slices.ContainsFunc(slices.Collect(maps.Values(pa.Spec.PortLevelMtls)), func(m *securityapi.PeerAuthentication_MutualTLS) bool { return mode(m) == Permissive })
	if strict {
		return conditions
	}
	return closed(conditions, fmt.Sprintf("all workloads of the namespace refuse plaintext, since PeerAuthentication %s/%s is refused and its selector cannot be read: correct or delete that one", by.Namespace, by.Name))
}

// Closed tells the author of the PeerAuthentication that counts that by, which is refused and came first, keeps out plaintext that it
// admits: from lost of the chosen workloads, or from all that are in its scope if it chooses none.
func Closed(pa *securityv1.PeerAuthentication, conditions []model.Condition, by string, lost, chosen int) []model.Condition {
	whose := "its workloads"
	if chosen > 0 {
		whose = fmt.Sprintf("%d of its %d workloads", lost, chosen)
	}
	return closed(conditions, fmt.Sprintf("%s refuse plaintext that it admits, since PeerAuthentication %s is refused, came first and counts beside it in its strictest reading: correct or delete that one", whose, by))
}

func closed(conditions []model.Condition, why string) []model.Condition {
	if slices.ContainsFunc(conditions, func(c model.Condition) bool { return c.Status == model.False }) {
		return conditions
	}
	part := partly(why)
	part.Reason = "Conflicted"
	for _, c := range conditions {
		if c.Reason != accepted().Reason {
			part.Message += ". " + c.Message
		}
	}
	return []model.Condition{part}
}

// Closes says whether a PeerAuthentication refuses plaintext on a port on which other, or what is inherited where that is nil, admits it.
func Closes(pa, other *securityv1.PeerAuthentication, inherited Mode) bool {
	if other == nil {
		return false
	}
	base, differing := portModes(pa, inherited)
	otherBase, otherDiffering := portModes(other, inherited)
	strict := func(base Mode, differing []uint32, port uint32) bool {
		return (base == Strict) != slices.Contains(differing, port)
	}
	// A port that neither names is as good as any.
	for _, port := range append([]uint32{0}, slices.Concat(differing, otherDiffering)...) {
		if strict(base, differing, port) && !strict(otherBase, otherDiffering, port) {
			return true
		}
	}
	return false
}

// demands says whether a PeerAuthentication refuses plaintext on any port.
func demands(pa *securityv1.PeerAuthentication) bool {
	if mode(pa.Spec.Mtls) == Strict {
		return true
	}
	for _, m := range pa.Spec.PortLevelMtls {
		if mode(m) == Strict {
			return true
		}
	}
	return false
}

func disables(pa *securityv1.PeerAuthentication) bool {
	if pa.Spec.GetMtls().GetMode() == securityapi.PeerAuthentication_MutualTLS_DISABLE {
		return true
	}
	for _, m := range pa.Spec.PortLevelMtls {
		if m.GetMode() == securityapi.PeerAuthentication_MutualTLS_DISABLE {
			return true
		}
	}
	return false
}
