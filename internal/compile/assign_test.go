package compile

import "testing"

// A policy that is bound to other workloads and back again has the name that it had, unless it counts together with others that change with
// it: a proxy that lags may have workloads that name it so, and would give it its new content before the others.
func TestANameThatProxiesMayStillHaveIsNotUsedForContentThatMustWait(t *testing.T) {
	for name, shared := range map[string]*sharedAssignments{"alone": nil, "among several control planes": {}} {
		t.Run(name, func(t *testing.T) {
			back := func(anew bool) (first, last string) {
				a := NewAssignments()
				a.shared = shared
				first = a.policyName("p", "p", "A", "1", false, false)
				a.policyName("p", "p", "B", "1", false, false)
				return first, a.policyName("p", "p", "A", "2", false, anew)
			}
			if first, last := back(false); first != last {
				t.Errorf("it was %s and is %s", first, last)
			}
			if first, last := back(true); first == last {
				t.Errorf("it is %s again", last)
			}
		})
	}
}

// Nor does a name come back that was made for it, however many edits lie between: it may have been edited in place under that name.
func TestANameThatWasMadeDoesNotComeBack(t *testing.T) {
	for name, shared := range map[string]*sharedAssignments{"alone": nil, "among several control planes": {}} {
		t.Run(name, func(t *testing.T) {
			a := NewAssignments()
			a.shared = shared
			a.policyName("p", "p", "B", "0", false, false)
			made := map[string]bool{}
			for range 3 {
				again := a.policyName("p", "p", "B", "1", false, true)
				if made[again] {
					t.Fatalf("it is %s again", again)
				}
				made[again] = true
				a.policyName("p", "p", "B", "2", false, false) // in place
				a.policyName("p", "p", "X", "2", false, false)
			}
		})
	}
}
