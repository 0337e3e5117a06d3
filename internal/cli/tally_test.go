package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

var (
	byPolicy = explained{printer.Reason{"denied by AuthorizationPolicy default/x"}, []api.Key{{Kind: "AuthorizationPolicy", Namespace: "default", Name: "x"}}}
	rehearse = explained{printer.Reason{"dry run: AuthorizationPolicy default/y would deny"}, []api.Key{{Kind: "AuthorizationPolicy", Namespace: "default", Name: "y"}}}
	refused  = api.Connection{Event: "closed", Flags: "DENY", Error: "no"}
	byPeer   = api.Connection{Event: "closed", Flags: "CONNECT", Error: "401", DeniedByPeer: true}
	broken   = api.Connection{Event: "closed", Flags: "CONNECT", Error: "reset"}
	would    = api.Connection{Event: "closed", WouldDeny: &api.Denial{By: []string{"default/y"}}}
	retried  = api.Connection{Event: "closed", Flags: "CONNECT", Error: "unreachable", Retried: true}
	fine     = api.Connection{Event: "closed"}
)

// of is the connection at its client's end, and at at its server's.
func of(pair string, c api.Connection) api.Connection {
	c.Pair, c.Direction = pair, "outbound"
	return c
}

func at(pair string, c api.Connection) api.Connection {
	c.Pair, c.Direction = pair, "inbound"
	return c
}

func TestTallyCountsConnectionsAndNotTheirEnds(t *testing.T) {
	for name, test := range map[string]struct {
		seen []api.Connection
		want []string
	}{
		"a refusal at both ends": {
			[]api.Connection{of("1", byPeer), at("1", refused), at("2", refused), of("2", byPeer)},
			[]string{"2 connections ended: 2 denied, 0 failed", "2 denied by AuthorizationPolicy default/x"},
		},
		"a refusal at the client's end alone": {
			[]api.Connection{of("1", byPeer)},
			[]string{"1 connection ended: 1 denied, 0 failed"},
		},
		"one that a policy ended later looks broken to its client": {
			[]api.Connection{of("1", broken), at("1", refused)},
			[]string{"1 connection ended: 1 denied, 0 failed", "1 denied by AuthorizationPolicy default/x"},
		},
		"failures at both ends, and one of plaintext that has one": {
			[]api.Connection{of("1", broken), at("1", broken), broken, broken},
			[]string{"3 connections ended: 0 denied, 3 failed"},
		},
		"a policy in dry run": {
			[]api.Connection{of("1", fine), at("1", would), at("2", would), of("2", fine), of("3", fine), at("3", fine)},
			[]string{"3 connections ended: 0 denied, 0 failed, 2 would be denied", "2 would be denied by default/y"},
		},
		"an attempt at a dead endpoint, then another one": {
			[]api.Connection{of("1", retried), of("2", fine), at("2", fine)},
			[]string{"1 connection ended: 0 denied, 0 failed"},
		},
		"a client that repeats its number": {
			[]api.Connection{at("1", refused), at("1", refused)},
			[]string{"2 connections ended: 2 denied, 0 failed", "2 denied by AuthorizationPolicy default/x"},
		},
		"nothing": {nil, []string{"0 connections ended: 0 denied, 0 failed"}},
	} {
		tally := newTally()
		for _, c := range test.seen {
			reason := explained{}
			switch c.Verdict() {
			case api.Denied:
				reason = byPolicy
			case api.WouldDeny:
				reason = rehearse
			}
			tally.add(c, reason, now)
		}
		if got := tally.lines(); !slices.Equal(got, test.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

func TestTallyForgetsEndsThatNeverCome(t *testing.T) {
	tally := newTally()
	tally.add(of("1", fine), explained{}, now)
	tally.add(of("2", fine), explained{}, now.Add(pairsLive+time.Second))
	if _, kept := tally.pairs["1"]; kept || len(tally.pairs) != 1 {
		t.Errorf("it keeps %v", tally.pairs)
	}
}

func TestTallySuggestsTheObjectsThatRefuseMost(t *testing.T) {
	tally := newTally()
	strict := explained{printer.Reason{"plaintext refused"}, []api.Key{{Kind: "PeerAuthentication", Namespace: "shop", Name: "strict"}}}
	for i, reason := range []explained{byPolicy, strict, strict} {
		tally.add(refused, reason, now.Add(time.Duration(i)))
	}
	want := []string{"lateen get peerauthentication strict -n shop --name m", "lateen get authorizationpolicy x -n default --name m"}
	if got := tally.commands(" --name m"); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
