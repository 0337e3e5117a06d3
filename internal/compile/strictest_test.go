package compile

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/translate"
)

// attempt is a connection as a policy sees it.
type attempt struct {
	namespace string
	ip        netip.Addr
	port      uint32
}

func attempts() (all []attempt) {
	for _, namespace := range []string{"a", "b", "c"} {
		for _, ip := range []string{"10.0.0.1", "10.1.0.1"} {
			for _, port := range []uint32{80, 81} {
				all = append(all, attempt{namespace, netip.MustParseAddr(ip), port})
			}
		}
	}
	return all
}

// forbids says whether a policy alone speaks against a connection, as a proxy decides.
func forbids(p *security.Authorization, c attempt) bool {
	return slices.ContainsFunc(p.Rules, c.matches) == (p.Action == security.Action_DENY)
}

func (c attempt) matches(r *security.Rule) bool {
	return !slices.ContainsFunc(r.Clauses, func(clause *security.Clause) bool { return !slices.ContainsFunc(clause.Matches, c.meets) })
}

func (c attempt) meets(m *security.Match) bool {
	named := func(s *security.StringMatch) bool { return s.GetExact() == c.namespace }
	from := func(a *security.Address) bool {
		addr, _ := netip.AddrFromSlice(a.Address)
		return netip.PrefixFrom(addr, int(a.Length)).Contains(c.ip)
	}
	fields := 0
	ok := true
	need := func(given int, met, want bool) {
		if given > 0 {
			fields++
			ok = ok && met == want
		}
	}
	need(len(m.Namespaces), slices.ContainsFunc(m.Namespaces, named), true)
	need(len(m.NotNamespaces), slices.ContainsFunc(m.NotNamespaces, named), false)
	need(len(m.SourceIps), slices.ContainsFunc(m.SourceIps, from), true)
	need(len(m.NotSourceIps), slices.ContainsFunc(m.NotSourceIps, from), false)
	need(len(m.DestinationPorts), slices.Contains(m.DestinationPorts, c.port), true)
	need(len(m.NotDestinationPorts), slices.Contains(m.NotDestinationPorts, c.port), false)
	return ok && fields > 0
}

// spoiler writes policies and spoils them.
type spoiler struct{ *rand.Rand }

func (s spoiler) some(values ...string) (out []any) {
	for _, v := range values {
		if s.IntN(2) == 0 {
			out = append(out, v)
		}
	}
	if len(out) == 0 {
		out = append(out, values[0])
	}
	return out
}

// fields gives at least one of some fields.
func (s spoiler) fields(of map[string][]string) map[string]any {
	names := slices.Sorted(maps.Keys(of))
	out := map[string]any{}
	for _, name := range names {
		if s.IntN(2) == 0 {
			out[name] = s.some(of[name]...)
		}
	}
	if len(out) == 0 {
		out[names[0]] = s.some(of[names[0]]...)
	}
	return out
}

func (s spoiler) list(most int, one func() any) []any {
	var out []any
	for range 1 + s.IntN(most) {
		out = append(out, one())
	}
	return out
}

func (s spoiler) policy() map[string]any {
	spec := map[string]any{"action": []string{"ALLOW", "DENY"}[s.IntN(2)], "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}}
	spec["rules"] = s.list(3, func() any {
		rule := map[string]any{}
		if s.IntN(3) > 0 {
			rule["from"] = s.list(2, func() any {
				return map[string]any{"source": s.fields(map[string][]string{"namespaces": {"a", "b"}, "notNamespaces": {"b", "c"}, "ipBlocks": {"10.0.0.1", "10.1.0.0/16"}, "notIpBlocks": {"10.0.0.0/16"}})}
			})
		}
		if s.IntN(3) > 0 {
			rule["to"] = s.list(2, func() any {
				return map[string]any{"operation": s.fields(map[string][]string{"ports": {"80", "81"}, "notPorts": {"81"}})}
			})
		}
		if s.IntN(3) == 0 {
			rule["when"] = s.list(2, func() any {
				if s.IntN(2) == 0 {
					return map[string]any{"key": "destination.port", "values": s.some("80", "81")}
				}
				return map[string]any{"key": "source.namespace", "notValues": s.some("a", "b")}
			})
		}
		return rule
	})
	return spec
}

// spoil changes something at a random place below v into what no reader understands. What was there before is what the author means.
func (s spoiler) spoil(v any) any {
	switch v := v.(type) {
	case map[string]any:
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(v)), func(k string) bool { return k == "action" || k == "matchLabels" })
		if len(keys) == 0 || s.IntN(4) == 0 {
			v["ofALaterVersion"] = []any{true, "x", []any{}, map[string]any{"a": 1}}[s.IntN(4)]
			return v
		}
		k := keys[s.IntN(len(keys))]
		if k == "key" {
			v[k] = "no.such.key"
			return v
		}
		v[k] = s.spoil(v[k])
		return v
	case []any:
		switch s.IntN(5) {
		case 0:
			return append(v, "") // no value, no clause and no rule
		case 1:
			return append(v, nil)
		case 2:
			return []any{"text", 7, map[string]any{}, []any{}}[s.IntN(4)]
		}
		i := s.IntN(len(v))
		v[i] = s.spoil(v[i])
		return v
	}
	return []any{"", 7, nil, map[string]any{}}[s.IntN(4)]
}

// rename gives one or more fields at random places names that no version has yet.
func (s spoiler) rename(v any) (renamed int) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if k == "action" || k == "matchLabels" || k == "app" || s.IntN(4) > 0 {
				renamed += s.rename(v[k])
				continue
			}
			v[k+"OfALaterVersion"] = v[k]
			delete(v, k)
			renamed++
		}
	case []any:
		for i := range v {
			renamed += s.rename(v[i])
		}
	}
	return renamed
}

var spoiledKey = model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: "shop", Name: "p"}

func served(t *testing.T, spec map[string]any) []byte {
	t.Helper()
	data, err := json.Marshal(map[string]any{"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": map[string]any{"name": "p", "namespace": "shop", "uid": "u"}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// deniesAll says whether a policy has a rule that every connection matches.
func deniesAll(p *security.Authorization) bool {
	return slices.ContainsFunc(p.Rules, func(r *security.Rule) bool { return len(r.Clauses) == 0 })
}

// A policy of a later version may have fields anywhere that are not known here. None that denies comes to deny everybody for it, none that
// allows allows more, and where a DENY lets in whom the policy keeps out, its author is told.
func TestFieldsOfALaterVersionNeverDenyEverybody(t *testing.T) {
	read, less := 0, 0
	for seed := range uint64(6_000) {
		s := spoiler{rand.New(rand.NewPCG(seed, 11))} //nolint:gosec // a test
		spec := s.policy()
		value, _ := files.Served(spoiledKey, served(t, spec))
		want, _ := translate.Authorization(mesh, value.(*securityv1.AuthorizationPolicy))
		if s.rename(spec) == 0 || deniesAll(want) {
			continue
		}
		bad := served(t, spec)
		standsIn, effect := files.Strictest(spoiledKey, bad)
		if standsIn == nil {
			t.Fatalf("seed %d: nothing stands in for %s", seed, bad)
		}
		read++
		got, _ := translate.Authorization(mesh, standsIn.(*securityv1.AuthorizationPolicy))
		if got.Action == security.Action_DENY && deniesAll(got) {
			t.Fatalf("seed %d: everybody is denied by %s", seed, bad)
		}
		opened := slices.ContainsFunc(attempts(), func(c attempt) bool { return forbids(want, c) && !forbids(got, c) })
		if opened && (got.Action == security.Action_ALLOW || !strings.Contains(effect, "denies nobody")) {
			t.Fatalf("seed %d: more is let in, of which is said %q\nserved: %s\nread:   %v", seed, effect, bad, got)
		}
		if opened {
			less++
		}
	}
	if read < 1000 || less < 50 || less > read/2 {
		t.Errorf("%d policies, of which %d deny less, say little", read, less)
	}
}

// Whatever of a policy cannot be read: what stands in for it lets in nobody whom the policy keeps out, and no other workloads are left out. But
// if only fields or attributes of a later version keep it from being read, it does not deny everybody for them.
func TestTheStrictestReadingLetsInNobodyElse(t *testing.T) {
	key := spoiledKey
	raw := func(spec map[string]any) []byte { return served(t, spec) }
	spoiled, lets, known := 0, 0, 0
	for seed := range uint64(20_000) {
		s := spoiler{rand.New(rand.NewPCG(seed, 9))} //nolint:gosec // a test
		spec := s.policy()
		meant, problems := files.Served(key, raw(spec))
		if meant == nil {
			t.Fatalf("seed %d: %v", seed, problems)
		}
		written := string(raw(spec))
		bad := raw(s.spoil(spec).(map[string]any))
		if value, _ := files.Served(key, bad); value != nil {
			continue
		}
		spoiled++
		standsIn, effect := files.Strictest(key, bad)
		if standsIn == nil || effect == "" {
			t.Fatalf("seed %d: nothing stands in for %s", seed, bad)
		}
		for k, v := range standsIn.(*securityv1.AuthorizationPolicy).Spec.Selector.GetMatchLabels() {
			if k != "app" || v != "web" {
				t.Fatalf("seed %d: it selects %s=%s", seed, k, v)
			}
		}
		want, _ := translate.Authorization(mesh, meant.(*securityv1.AuthorizationPolicy))
		got, _ := translate.Authorization(mesh, standsIn.(*securityv1.AuthorizationPolicy))
		if got == nil || got.Namespace != want.Namespace || got.Name != want.Name {
			t.Fatalf("seed %d: proxies are told %v", seed, got)
		}
		for _, c := range attempts() {
			switch {
			case forbids(want, c) && !forbids(got, c) && ofALaterVersion(effect, string(bad)):
				known++
			case forbids(want, c) && !forbids(got, c):
				t.Fatalf("seed %d: %v is let in\nmeant:  %s\nserved: %s\nread:   %v", seed, c, written, bad, got)
			case !forbids(got, c):
				lets++
			}
		}
	}
	if spoiled < 1000 || lets < 1000 || known > lets/20 {
		t.Errorf("%s says little", fmt.Sprintf("%d policies of which %d connections were let in, %d of them against their rules", spoiled, lets, known))
	}
}

// ofALaterVersion says whether the author of a policy that a spoiler wrote is told that fields or attributes of a later version deny nobody.
func ofALaterVersion(effect, policy string) bool {
	return strings.Contains(effect, "denies nobody") && (strings.Contains(policy, "ofALaterVersion") || strings.Contains(policy, "no.such.key"))
}

// What stands in for a refused policy is said to be that.
func TestAStandInIsNotAccepted(t *testing.T) {
	p := newPlane(t)
	change := changes(t, authorization("shop", "p", "action: DENY, rules: [{}]"))
	change[0].Object.Refused = "the port is wrong"
	p.Apply(change)
	if c := p.condition(change[0].Key); c.Status != model.False || c.Reason != "Invalid" || c.Message != "the port is wrong" {
		t.Errorf("its author is told %+v", c)
	}
	if p.log.Get(resourcekind.Authorization, "shop/p") == nil {
		t.Error("it is not in force")
	}
	peers := changes(t, peerAuthentication("shop", "x", "mtls: {mode: STRICT}"))
	peers[0].Object.Refused = "the mode is wrong"
	p.Apply(peers)
	if c := p.condition(peers[0].Key); c.Status != model.False || c.Message != "the mode is wrong" {
		t.Errorf("its author is told %+v", c)
	}
}
