package kube

import "testing"

func TestAStartAsksForWhatIsInForceNow(t *testing.T) {
	api := newAPIServer(t)
	api.lists = true // as API servers before 1.32, which do not list by watching
	api.definePolicies("v1")
	api.put(policies, policyObject("80"))
	follow(t, api).loaded()
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.remembered > 0 {
		t.Errorf("%d lists may be answered with what the API server remembers, which may be older than what other replicas were told", api.remembered)
	}
}
