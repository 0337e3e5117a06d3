package model

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestAFeedHasWhatChangedOnce(t *testing.T) {
	s := NewStore()
	a, b, pod := ServiceKey("shop", "a"), ServiceKey("shop", "b"), PodKey("shop", "p")
	set := func(key Key) Change { return Change{Key: key, Object: &Object{Key: key, Value: &corev1.Service{}}} }
	s.Apply([]Change{set(a), set(pod)})
	f := s.Follow(func(k Key) bool { return k.Kind == "Service" })
	expect := func(what string, want ...Key) {
		t.Helper()
		got := []Key{}
		for k := range f.Take() {
			got = append(got, k)
		}
		slices.SortFunc(got, Key.Compare)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	select {
	case <-f.Wake():
	default:
		t.Error("what is there already wakes nobody")
	}
	expect("what was there before", a)
	s.Apply([]Change{set(a), set(b), set(pod)})
	s.Apply([]Change{set(a)})
	expect("two changes", a, b)
	s.SetConditions(a, []Condition{{Type: "Accepted", Status: True, Generation: 3}})
	s.SetConditions(pod, []Condition{{Type: "Accepted", Status: True}})
	expect("a condition", a)
	s.SetConditions(a, []Condition{{Type: "Accepted", Status: True, Generation: 4}})
	expect("the same of another generation")
	s.Apply([]Change{{Key: b}, {Key: ServiceKey("shop", "never")}})
	expect("a removal", b)
	if e, ok := s.Entry(a); !ok || e.Generation != 3 || len(e.Conditions) != 1 {
		t.Errorf("%+v %v", e, ok)
	}
}
