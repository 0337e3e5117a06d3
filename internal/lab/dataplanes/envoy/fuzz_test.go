package envoy

import (
	"fmt"
	"strings"
	"testing"
)

// Whatever policy is accepted can be configured, and names the ports and principals that it was read from.
func FuzzParsePolicy(f *testing.F) {
	for _, spec := range []string{
		`{}`, `{"action":"DENY"}`, `{"rules":[{"from":[{"source":{"principals":["a/ns/b/sa/c"]}}],"to":[{"operation":{"ports":["80","81"]}}]}]}`,
		`{"selector":{"matchLabels":{"app":"x"}},"rules":[{"from":[{"source":{"principals":["*"]}}]}]}`, `{"rules":[{"to":[{"operation":{"ports":["0"]}}]}]}`,
	} {
		f.Add([]byte(`{"metadata":{"name":"p","namespace":"default"},"spec":` + spec + `}`))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		policy, err := ParsePolicy(object)
		if err != nil {
			return
		}
		workload := world()[1].Pod
		workload.Namespace = policy.Metadata.Namespace
		rules, err := rulesFor(workload, []Policy{policy})
		if err != nil {
			t.Fatalf("accepted, and then refused: %v", err)
		}
		p := pod("default/echo-1")
		p.Admits = rules
		if _, err := Bootstrap(p); err != nil {
			t.Fatal(err)
		}
		for i, r := range rules {
			if want := len(policy.Spec.Rules[i].From); len(r.Callers) < want {
				t.Errorf("rule %d admits %v of %d sources", i, r.Callers, want)
			}
			for _, caller := range r.Callers {
				if strings.Contains(caller, "*") {
					t.Errorf("rule %d admits %q", i, caller)
				}
			}
		}
	})
}

// What is read back is what stood there.
func FuzzParseStats(f *testing.F) {
	f.Add("http.inbound.rbac.allowed: 5\nlistener.0.0.0.0_15006.worker_0.downstream_cx_active: 3\n")
	f.Add("a: b\nrequests: P0(1,2)\nx: -1\ny: 18446744073709551616\n: 3\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name, n := range ParseStats(text) {
			if !strings.Contains(text, name+": ") || !strings.Contains(text, fmt.Sprint(n)) {
				t.Errorf("%q is %d, which does not stand in %q", name, n, text)
			}
		}
	})
}
