package control

import (
	"testing"
	"time"

	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/xds"
)

// follower is a waypoint's proxy that has acknowledged all kinds through a generation, but for some.
func follower(through uint64, without string) xds.ClientState {
	c := xds.ClientState{Client: xds.Client{Identity: "shop/wp", Role: resourcelog.RoleWaypoint}}
	for _, k := range resourcekind.Mesh.All() {
		if k.TypeURL != without {
			c.Types = append(c.Types, xds.State{Type: k.TypeURL, AckedGeneration: through, Only: "shop/wp"})
		}
	}
	return c
}

func TestAProxyThatDoesNotFollowAKindOfPoliciesHasAcknowledgedNothing(t *testing.T) {
	for without, want := range map[string]uint64{"": 7, resourcekind.RequestAuthorization: 0, resourcekind.RequestAuthentication: 0, resourcekind.Binding: 0, resourcekind.Authorization: 7} {
		got := gatewayProxies([]xds.ClientState{follower(7, without)})
		if len(got) != 1 || got[0].Through != want || got[0].Gateway != "shop/wp" {
			t.Errorf("without %q: %+v, want through %d", without, got, want)
		}
	}
	if got := gatewayProxies([]xds.ClientState{follower(7, resourcekind.Gateway)}); len(got) != 0 {
		t.Errorf("one that follows no Gateway: %+v", got)
	}
	late := follower(7, "")
	late.Types[0].AckedGeneration = 3
	if got := gatewayProxies([]xds.ClientState{late}); got[0].Through != 3 {
		t.Errorf("one that lags with one kind: %+v", got)
	}
}

func TestARefusalCountsForAllThatItMayMean(t *testing.T) {
	c := follower(7, "")
	for i := range c.Types {
		switch c.Types[i].Type {
		case resourcekind.Binding:
			c.Types[i].Refused = []xds.Nack{{Names: []string{"shop/a"}, Unnamed: []string{"shop/b"}}}
		case resourcekind.RequestAuthorization:
			c.Types[i].Refused = []xds.Nack{{Names: []string{"shop/p"}}}
		case resourcekind.RequestAuthentication:
			c.Types[i].Refused = []xds.Nack{{Unnamed: []string{"shop/q"}}}
		}
	}
	p := gatewayProxies([]xds.ClientState{c})[0]
	if !p.Refused["shop/a"] || !p.Refused["shop/b"] || !p.RefusedPolicies["shop/p"] || !p.RefusedPolicies["shop/q"] || len(p.Refused)+len(p.RefusedPolicies) != 4 {
		t.Errorf("%+v", p)
	}
}

func TestItIsLookedAgainWhenTimeChangesSomething(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, c := range map[string]struct {
		acks   bool
		at     time.Time
		wait   time.Duration
		needed bool
	}{
		"nothing is waited for":            {false, time.Time{}, settleAgain, false},
		"an acknowledgement is":            {true, time.Time{}, settleAgain, true},
		"a time is":                        {false, now.Add(time.Minute), time.Minute, true},
		"a time and an acknowledgement":    {true, now.Add(time.Minute), settleAgain, true},
		"a near time, an acknowledgement":  {true, now.Add(time.Second), time.Second, true},
		"a time that has passed meanwhile": {false, now.Add(-time.Second), 0, true},
	} {
		if wait, needed := settleWithin(now, c.acks, c.at); needed != c.needed || needed && wait != c.wait {
			t.Errorf("%s: %v %v, want %v %v", name, wait, needed, c.wait, c.needed)
		}
	}
}
