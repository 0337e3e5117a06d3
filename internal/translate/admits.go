package translate

import (
	"strings"

	"lateen.dev/lateen/internal/gen/security"
)

// Peer is an identity that connects to workloads.
type Peer struct{ TrustDomain, Namespace, Account string }

// Principal is the identity without the scheme spiffe://.
func (p Peer) Principal() string {
	return p.TrustDomain + "/ns/" + p.Namespace + "/sa/" + p.Account
}

// PeerOf is the identity of a Gateway's proxies, which this mesh serves. trustDomain is the mesh's.
func PeerOf(w *Waypoint, trustDomain string) Peer {
	namespace, account, _ := strings.Cut(w.Identity, "/")
	return Peer{TrustDomain: trustDomain, Namespace: namespace, Account: account}
}

// Match says whether connections of a peer match a policy.
type Match int

// The matches, by how many connections of the peer they cover. Some says that it depends on more than the identity: an address, a port.
const (
	NoConnection Match = iota
	SomeConnections
	EveryConnection
)

// MatchOf says which connections of a peer a policy matches, as far as its identity tells.
func MatchOf(policy *security.Authorization, peer Peer) Match {
	best := NoConnection
	for _, rule := range policy.Rules {
		of := EveryConnection
		for _, clause := range rule.Clauses {
			if len(clause.Matches) == 0 {
				continue
			}
			any := NoConnection
			for _, m := range clause.Matches {
				any = max(any, matchOf(m, peer))
			}
			of = min(of, any)
		}
		best = max(best, of)
	}
	return best
}

func matchOf(m *security.Match, peer Peer) Match {
	texts := func(patterns []*security.StringMatch, text string) bool {
		for _, p := range patterns {
			switch p := p.MatchType.(type) {
			case *security.StringMatch_Exact:
				if p.Exact == text {
					return true
				}
			case *security.StringMatch_Prefix:
				if strings.HasPrefix(text, p.Prefix) {
					return true
				}
			case *security.StringMatch_Suffix:
				if strings.HasSuffix(text, p.Suffix) {
					return true
				}
			case *security.StringMatch_Presence:
				if text != "" {
					return true
				}
			}
		}
		return false
	}
	accounts := func(all []*security.ServiceAccountMatch) bool {
		for _, a := range all {
			if a.Namespace == peer.Namespace && a.ServiceAccount == peer.Account {
				return true
			}
		}
		return false
	}
	principal := peer.Principal()
	switch {
	case !Names(m) && len(m.Extensions) == 0:
		return NoConnection // proxies skip it: it had fields of requests alone
	case len(m.Namespaces) > 0 && !texts(m.Namespaces, peer.Namespace), texts(m.NotNamespaces, peer.Namespace),
		len(m.Principals) > 0 && !texts(m.Principals, principal), texts(m.NotPrincipals, principal),
		len(m.ServiceAccounts) > 0 && !accounts(m.ServiceAccounts), accounts(m.NotServiceAccounts):
		return NoConnection
	case len(m.SourceIps)+len(m.NotSourceIps)+len(m.DestinationIps)+len(m.NotDestinationIps)+len(m.DestinationPorts)+len(m.NotDestinationPorts)+len(m.Extensions) > 0:
		return SomeConnections
	}
	return EveryConnection
}

// AllowWaypoint is the policy by which a workload admits its waypoint: Istio's PILOT_AUTO_ALLOW_WAYPOINT_POLICY. Unless other ALLOW policies hold for the
// workload it refuses everybody else.
func AllowWaypoint(w *Waypoint, trustDomain string) *security.Authorization {
	principal := &security.StringMatch{MatchType: &security.StringMatch_Exact{Exact: PeerOf(w, trustDomain).Principal()}}
	return &security.Authorization{Name: allowWaypoint + w.Name, Namespace: w.Namespace, Scope: security.Scope_WORKLOAD_SELECTOR, Action: security.Action_ALLOW,
		Rules: []*security.Rule{{Clauses: []*security.Clause{{Matches: []*security.Match{{Principals: []*security.StringMatch{principal}}}}}}}}
}

// AllowWaypointName is the name by which workloads name that policy.
func AllowWaypointName(w *Waypoint) string { return w.Namespace + "/" + allowWaypoint + w.Name }

// allowWaypoint begins the names of those policies. No object's name has an underscore.
const allowWaypoint = "lateen_allow_waypoint_"
