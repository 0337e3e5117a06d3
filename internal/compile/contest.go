package compile

import (
	"maps"
	"slices"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// contests holds what becomes of PeerAuthentications that select workloads: one counts for a workload, however many select it.
type contests struct {
	standing map[model.Key]*standing
	// selecting are, by workload, those that select it.
	selecting map[model.Key][]model.Key
}

// standing is how one PeerAuthentication fares.
type standing struct {
	chosen int                     // workloads that it selects
	lost   map[model.Key]model.Key // those for which another one counts, and which
}

func newContests() contests {
	return contests{standing: map[model.Key]*standing{}, selecting: map[model.Key][]model.Key{}}
}

func peerKey(pa *securityv1.PeerAuthentication) model.Key {
	return model.Key{Group: model.SecurityGroup, Kind: "PeerAuthentication", Namespace: pa.Namespace, Name: pa.Name}
}

// contest notes which PeerAuthentications select a workload, none if it is gone. All that are concerned are told anew.
func (c *Compiler) contest(b *batch, workload model.Key, selecting []*securityv1.PeerAuthentication) {
	for _, key := range c.contests.selecting[workload] {
		b.told[key] = true
		s := c.contests.standing[key]
		s.chosen--
		delete(s.lost, workload)
		if s.chosen == 0 {
			delete(c.contests.standing, key)
		}
	}
	delete(c.contests.selecting, workload)
	winner := translate.Oldest(selecting)
	for _, pa := range selecting {
		key := peerKey(pa)
		b.told[key] = true
		s := c.contests.standing[key]
		if s == nil {
			s = &standing{lost: map[model.Key]model.Key{}}
			c.contests.standing[key] = s
		}
		s.chosen++
		if pa != winner {
			s.lost[workload] = peerKey(winner)
		}
		c.contests.selecting[workload] = append(c.contests.selecting[workload], key)
	}
}

// tellPeers gives PeerAuthentications their conditions, once it is known for which workloads they count.
func (c *Compiler) tellPeers(b *batch) {
	for key, pa := range c.store.PeerAuthentications() {
		if !b.peers && !b.told[key] {
			continue
		}
		var winner *securityv1.PeerAuthentication
		switch {
		case translate.Selects(pa):
		case pa.Namespace == c.mesh.RootNamespace:
			winner = c.peers.mesh
		default:
			winner = c.peers.namespaces[pa.Namespace]
		}
		conditions := translate.PeerAuthenticationConditions(pa, winner)
		if s := c.contests.standing[key]; s != nil {
			winners := map[string]bool{}
			for _, by := range s.lost {
				winners[by.Namespace+"/"+by.Name] = true
			}
			conditions = translate.Overruled(conditions, slices.Sorted(maps.Keys(winners)), len(s.lost), s.chosen)
		}
		c.conditions(b, key, conditions)
	}
}
