package resourcelog

import (
	"testing"
	"time"
)

func TestKindsAreListedInTheirOrder(t *testing.T) {
	kinds := NewKinds(Kind{TypeURL: "c", Order: 2}, Kind{TypeURL: "b", Order: 1, RemovedAfter: []string{"c"}, Label: "bee"}, Kind{TypeURL: "a", Order: 2})
	got := ""
	for _, k := range kinds.All() {
		got += k.TypeURL
	}
	if got != "bac" {
		t.Errorf("the order is %s", got)
	}
	if kinds.Label("b") != "bee" || kinds.Label("c") != "c" || kinds.Label("d") != "d" || kinds.Of("d") != nil {
		t.Error("a label or a kind is wrong")
	}
}

func TestContradictingKindsAreRefused(t *testing.T) {
	for name, kinds := range map[string][]Kind{
		"no type URL":                    {{}},
		"one type URL twice":             {{TypeURL: "a"}, {TypeURL: "a"}},
		"a removal waits for no kind":    {{TypeURL: "a", RemovedAfter: []string{"b"}}},
		"for one role, without audience": {{TypeURL: "a", For: RoleNode}},
		"a removal waits for its equal":  {{TypeURL: "a", RemovedAfter: []string{"b"}}, {TypeURL: "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("the registry was made")
				}
			}()
			NewKinds(kinds...)
		})
	}
}

func TestAKindIsForProxiesOfItsRole(t *testing.T) {
	everybody := func(Caller, *Resource) bool { return true }
	node, waypoint := Caller{Role: RoleNode}, Caller{Role: RoleWaypoint}
	own, all := &Kind{TypeURL: "a", For: RoleWaypoint, Audience: everybody}, &Kind{TypeURL: "b"}
	if own.Admits(node, &Resource{}) || !own.Admits(waypoint, &Resource{}) || own.Serves(Caller{}) || !all.Admits(Caller{}, &Resource{}) {
		t.Error("a kind for waypoints is for others, too, or one for all is not")
	}
}

func TestTheLogKnowsForWhomResourcesAre(t *testing.T) {
	l := New(time.Now, NewKinds(Kind{TypeURL: "a"}))
	l.Append(1, []Change{{Type: "a", Name: "x", Resource: &Resource{Name: "x", Version: "1", Readers: []string{"shop/wp", "shop/other"}}}, {Type: "a", Name: "y", Resource: &Resource{Name: "y", Version: "1", Readers: []string{"shop/wp"}}}})
	if !l.Reads("a", "shop/wp") || !l.Reads("a", "shop/other") || l.Reads("a", "shop/none") || l.Reads("b", "shop/wp") {
		t.Error("at first")
	}
	l.Append(2, []Change{{Type: "a", Name: "x"}})
	if !l.Reads("a", "shop/wp") || l.Reads("a", "shop/other") {
		t.Error("after one is gone")
	}
}
