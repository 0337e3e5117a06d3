package model

import (
	"testing"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func podObject(namespace, name, node string) *Object {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	return &Object{Key: PodKey(namespace, name), Value: pod}
}

func put(o *Object) Change { return Change{Key: o.Key, Object: o} }

func names(pods []*corev1.Pod) (out []string) {
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

func TestStoreFollowsPodsFromNodeToNode(t *testing.T) {
	s := NewStore()
	s.Apply([]Change{put(podObject("a", "one", "n1")), put(podObject("a", "two", "n1")), put(podObject("b", "three", ""))})
	if got := names(s.PodsOnNode("n1")); len(got) != 2 || got[0] != "one" {
		t.Fatalf("n1 has %v", got)
	}
	s.Apply([]Change{put(podObject("a", "one", "n2"))})
	s.Apply([]Change{{Key: PodKey("a", "two")}})
	if got := names(s.PodsOnNode("n1")); len(got) != 0 {
		t.Errorf("n1 still has %v", got)
	}
	if got := names(s.PodsOnNode("n2")); len(got) != 1 || got[0] != "one" {
		t.Errorf("n2 has %v", got)
	}
	if _, ok := s.Pod(PodKey("a", "two")); ok {
		t.Error("a removed pod is still there")
	}
}

func TestStoreStampsGenerationsAndDropsConditionsOfOldContent(t *testing.T) {
	s := NewStore()
	key := PodKey("a", "one")
	generation, changed := s.Apply([]Change{put(podObject("a", "one", "n1"))})
	if generation != 1 || len(changed) != 1 || changed[0].Old != nil || changed[0].New == nil {
		t.Fatalf("first: %d %+v", generation, changed)
	}
	s.SetConditions(key, []Condition{{Type: "Accepted"}})
	if e := s.Entries()[0]; e.Generation != 1 || len(e.Conditions) != 1 {
		t.Fatalf("entry %+v", e)
	}
	generation, changed = s.Apply([]Change{put(podObject("a", "one", "n2")), {Key: PodKey("a", "never-was")}})
	if generation != 2 || len(changed) != 1 || changed[0].Old == nil {
		t.Fatalf("second: %d %+v", generation, changed)
	}
	if e := s.Entries()[0]; e.Generation != 2 || len(e.Conditions) != 0 {
		t.Errorf("entry %+v: what was said of the old content must not stand for the new", e)
	}
	s.SetConditions(PodKey("a", "gone"), []Condition{{Type: "Accepted"}})
	if s.Len() != 1 {
		t.Error("a condition brought an object into being")
	}
}

func TestObjectsWithoutEffectAreCounted(t *testing.T) {
	s := NewStore()
	policy := func(name string) Key {
		return Key{Group: SecurityGroup, Kind: "AuthorizationPolicy", Namespace: "a", Name: name}
	}
	set := func(key Key, refused string, status Status) {
		s.Apply([]Change{{Key: key, Object: &Object{Key: key, Value: &securityv1.AuthorizationPolicy{}, Refused: refused}}})
		s.SetConditions(key, []Condition{{Type: "Accepted", Status: status}, {Type: "Other", Status: False}})
	}
	set(policy("in-force"), "", True)
	set(Key{Kind: "Service", Namespace: "a", Name: "of-no-effect"}, "", False)
	set(policy("with-a-stand-in"), "it is refused", False)
	if n := s.Ineffective(); n != 0 {
		t.Errorf("%d of those that are nobody's mistake, or counted elsewhere", n)
	}
	set(policy("for-waypoints"), "", False)
	if n := s.Ineffective(); n != 1 {
		t.Errorf("%d, and there is one", n)
	}
	set(policy("for-waypoints"), "", True)
	if n := s.Ineffective(); n != 0 {
		t.Errorf("%d after it was corrected", n)
	}
}

func TestStoreTellsOfEveryPartOfAReport(t *testing.T) {
	s := NewStore()
	key := GatewayKey("shop", "w")
	s.Apply([]Change{{Key: key, Object: &Object{Key: key}}})
	feed := s.Follow(func(Key) bool { return true })
	feed.Take()
	accepted := []Condition{{Type: "Accepted", Status: True}}
	for _, step := range []struct {
		name  string
		parts *Parts
		told  bool
	}{
		{"a listener", &Parts{Listeners: []ListenerConditions{{Name: "a", Conditions: accepted}}}, true},
		{"the same listener", &Parts{Listeners: []ListenerConditions{{Name: "a", Conditions: []Condition{{Type: "Accepted", Status: True, Generation: 2}}}}}, false},
		{"a listener of another name", &Parts{Listeners: []ListenerConditions{{Name: "b", Conditions: accepted}}}, true},
		{"a parent", &Parts{Parents: []ParentConditions{{Parent: ParentRef{Name: "p"}, Conditions: accepted}}}, true},
		{"another port of it", &Parts{Parents: []ParentConditions{{Parent: ParentRef{Name: "p", Port: 80}, Conditions: accepted}}}, true},
		{"no part", nil, true},
		{"an empty list of parts", &Parts{}, false},
	} {
		s.SetReport(key, Report{Parts: step.parts})
		if told := len(feed.Take()) > 0; told != step.told {
			t.Errorf("%s: told %v, want %v", step.name, told, step.told)
		}
	}
	if e, _ := s.Entry(key); len(e.Listeners()) != 0 || len(e.Parents()) != 0 {
		t.Errorf("%+v", e)
	}
}
