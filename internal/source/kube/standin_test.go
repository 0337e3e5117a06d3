package kube

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	securityapi "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/model"
)

// denial is a policy that denies web's port to some, by addresses, of which the second is as given.
func denial(block string) object {
	return object{"metadata": object{"name": "p", "namespace": "shop"}, "spec": object{"action": "DENY", "selector": object{"matchLabels": object{"app": "web"}},
		"rules": []object{{"from": []object{{"source": object{"ipBlocks": []string{"10.0.0.1", block}}}}, "to": []object{{"operation": object{"ports": []string{"80"}}}}}}}}
}

func (c *cluster) policy() *securityv1.AuthorizationPolicy {
	if o := c.get(policyKey); o != nil {
		return o.Value.(*securityv1.AuthorizationPolicy)
	}
	return nil
}

func TestARefusedPolicyIsInForceAfterAStart(t *testing.T) {
	api := newAPIServer(t)
	api.definePolicies("v1")
	api.put(policies, denial("10.0.0.2"))
	running := follow(t, api).loaded()
	api.put(policies, denial("nonsense"))
	eventually(t, "it is refused", func() bool { return len(running.source.Refused()) == 1 })
	if p := running.policy(); p == nil || len(p.Spec.Rules[0].From) != 1 {
		t.Fatalf("the running one has %v", p)
	}
	// A replica that starts now, or the next version of the mesh, knows no earlier version.
	started := follow(t, api).loaded()
	p := started.policy()
	if p == nil {
		t.Fatal("after the start the policy is gone, and who was denied is let in")
	}
	rules := p.Spec.Rules
	if p.Spec.Action != securityapi.AuthorizationPolicy_DENY || p.Spec.Selector.MatchLabels["app"] != "web" || len(rules) != 1 || len(rules[0].From) != 0 || rules[0].To[0].Operation.Ports[0] != "80" {
		t.Errorf("it stands for %v", &p.Spec)
	}
	r := started.source.Refused()
	if len(r) != 1 || !strings.Contains(r[0].Condition.Message, "strictest reading") || !strings.Contains(r[0].Condition.Message, "ipBlocks[1]") || r[0].Condition.Status != model.False {
		t.Fatalf("its author is told %+v", r)
	}
	if o := started.get(policyKey); o.Refused != r[0].Condition.Message {
		t.Errorf("the model says %q", o.Refused)
	}
	if log := started.logged(); strings.Count(log, "strictest reading") != 1 {
		t.Errorf("the log: %s", log)
	}
	// Another version that is refused stands in for itself.
	again := denial("nonsense")
	again["spec"].(object)["rules"].([]object)[0]["to"] = []object{{"operation": object{"ports": []string{"81"}}}}
	api.put(policies, again)
	eventually(t, "the next", func() bool { return started.policy().Spec.Rules[0].To[0].Operation.Ports[0] == "81" })
	// A good version ends it on both.
	api.put(policies, denial("10.0.0.3"))
	for _, c := range []*cluster{running, started} {
		eventually(t, "the good one", func() bool {
			// The stand-in of the refused version has no source.
			from := c.policy().Spec.Rules[0].From
			return len(from) > 0 && from[0].Source.IpBlocks[1] == "10.0.0.3"
		})
		if len(c.source.Refused()) != 0 || c.get(policyKey).Refused != "" {
			t.Error("it is refused still")
		}
	}
	// From here both have a version that is good.
	api.put(policies, denial("nonsense"))
	for _, c := range []*cluster{running, started} {
		eventually(t, "refused", func() bool { return len(c.source.Refused()) == 1 })
		if m := c.source.Refused()[0].Condition.Message; c.policy().Spec.Rules[0].From[0].Source.IpBlocks[1] != "10.0.0.3" || !strings.Contains(m, "the version before it stays in force") {
			t.Errorf("told %s", m)
		}
		if r, _ := c.source.Refusal(policyKey); !strings.Contains(r.Strictest, "which is more") {
			t.Errorf("where it is not known how the policy was before, it counts like this: %q", r.Strictest)
		}
	}
	api.delete(policies, "shop", "p")
	for _, c := range []*cluster{running, started} {
		eventually(t, "gone", func() bool { return c.policy() == nil })
	}
}

// A cluster may have definitions of a later Istio, whose fields the server keeps. A policy with one is not in force as if the field were not there:
// one that allows allows less, one that denies goes on denying what is known of it, and not everybody.
func TestFieldsOfALaterVersionAreSeen(t *testing.T) {
	for _, c := range []struct {
		name, action string
		source       object
		spec, told   string
	}{
		{"an ALLOW rule", "ALLOW", object{"namespaces": []string{"b"}, "moods": []string{"good"}}, `selector:{match_labels:{key:"app" value:"web"}}`, "allows what those of its rules allow that can be read"},
		{"a DENY rule", "DENY", object{"namespaces": []string{"b"}, "moods": []string{"bad"}}, `selector:{match_labels:{key:"app" value:"web"}} rules:{from:{source:{namespaces:"b"}}} action:DENY`, "which is more"},
		{"a DENY rule of nothing else", "DENY", object{"moods": []string{"bad"}}, `selector:{match_labels:{key:"app" value:"web"}} action:DENY`, "denies nobody"},
	} {
		api := newAPIServer(t)
		api.definePolicies("v1")
		api.put(policies, object{"metadata": object{"name": "p", "namespace": "shop"}, "spec": object{"action": c.action, "selector": object{"matchLabels": object{"app": "web"}},
			"rules": []object{{"from": []object{{"source": c.source}}}}}})
		started := follow(t, api).loaded()
		p := started.policy()
		if p == nil {
			t.Fatalf("%s: it is gone", c.name)
		}
		if got := strings.Join(strings.Fields(p.Spec.String()), " "); got != c.spec {
			t.Errorf("%s: it stands for %s", c.name, got)
		}
		r := started.source.Refused()
		if len(r) != 1 || r[0].Condition.Status != model.False {
			t.Fatalf("%s: its author is told %+v", c.name, r)
		}
		for _, part := range []string{"spec.rules[0].from[0].source.moods", "unknown field", "later version", "strictest reading", c.told} {
			if !strings.Contains(r[0].Condition.Message, part) {
				t.Errorf("%s: nothing is said of %q: %s", c.name, part, r[0].Condition.Message)
			}
		}
	}
}

// A label that no pod can have is read as it is written: it chooses nobody, whether the policy is new or there was a version before, and
// wherever it is read. The version before stays in force where it is known.
func TestALabelThatNoPodCanHaveChoosesNobody(t *testing.T) {
	api := newAPIServer(t)
	api.definePolicies("v1")
	allow := func(app string) object {
		return object{"metadata": object{"name": "p", "namespace": "shop"}, "spec": object{"action": "ALLOW", "selector": object{"matchLabels": object{"app": app}},
			"rules": []object{{"from": []object{{"source": object{"namespaces": []string{"shop"}}}}}}}}
	}
	nobody := func(c *cluster) {
		t.Helper()
		eventually(t, "it is refused", func() bool { return len(c.source.Refused()) == 1 })
		if p := c.policy(); p != nil {
			t.Errorf("it is in force as %v", &p.Spec)
		}
		if m := c.source.Refused()[0].Condition.Message; !strings.Contains(m, "spec.selector.matchLabels.app") || !strings.Contains(m, "the object has no effect") {
			t.Errorf("its author is told %s", m)
		}
	}
	running := follow(t, api).loaded()
	api.put(policies, allow("web "))
	nobody(running)
	api.put(policies, allow("a web"))
	eventually(t, "the next is read", func() bool {
		r := running.source.Refused()
		return len(r) == 1 && strings.Contains(r[0].Condition.Message, "a web")
	})
	nobody(running)
	nobody(follow(t, api).loaded())
	api.put(policies, allow("web"))
	eventually(t, "a good one", func() bool { return running.policy() != nil })
	api.put(policies, allow("web "))
	eventually(t, "it is refused", func() bool { return len(running.source.Refused()) == 1 })
	if p := running.policy(); p == nil || p.Spec.Selector.MatchLabels["app"] != "web" {
		t.Errorf("where the version before is known, %v is in force", p)
	}
	nobody(follow(t, api).loaded())
}

func TestWhatARefusedEntryMeansIsNotGuessed(t *testing.T) {
	api := newAPIServer(t)
	api.define(model.NetworkGroup, "serviceentries", "ServiceEntry", "v1")
	api.put(entries, object{"metadata": object{"name": "e", "namespace": "shop"}, "spec": object{"hosts": []string{"*"}}})
	c := follow(t, api).loaded()
	if r := c.source.Refused(); len(r) != 1 || !strings.Contains(r[0].Condition.Message, "the object has no effect") || c.has() != "" {
		t.Errorf("%s; refused: %+v", c.has(), r)
	}
}

// Once all kinds are listed, what is in the queue is taken for all that there is. Nothing may be listed before it is in the queue.
func TestNoKindIsListedBeforeItsObjectsAreQueued(t *testing.T) {
	source, err := New(Options{Config: newAPIServer(t).config(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var sink *sink
	for k, s := range source.sinks {
		if k.name == "Namespace" {
			sink = s
		}
	}
	source.queue.mu.Lock() // its objects cannot get in
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := sink.Replace([]any{&reading{value: &securityv1.AuthorizationPolicy{}}}, "1"); err != nil {
			t.Error(err)
		}
	}()
	// It is either on its way, or waits for the queue with the source's lock: then that cannot be had for long.
	for busy, deadline := 0, time.Now().Add(patience); busy < 50 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if !source.mu.TryLock() {
			busy++
			continue
		}
		busy = 0
		listed := sink.listed
		source.mu.Unlock()
		if listed {
			t.Error("a kind is listed, and its objects are not in the queue")
			break
		}
	}
	source.queue.mu.Unlock()
	<-done
	if changes, _ := source.queue.take(); len(changes) != 1 || !sink.listed {
		t.Errorf("%d changes, listed: %v", len(changes), sink.listed)
	}
}
