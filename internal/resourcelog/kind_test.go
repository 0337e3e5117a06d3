package resourcelog

import "testing"

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
		"no type URL":                   {{}},
		"one type URL twice":            {{TypeURL: "a"}, {TypeURL: "a"}},
		"a removal waits for no kind":   {{TypeURL: "a", RemovedAfter: []string{"b"}}},
		"a removal waits for its equal": {{TypeURL: "a", RemovedAfter: []string{"b"}}, {TypeURL: "b"}},
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
