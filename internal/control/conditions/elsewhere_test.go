package conditions

import (
	"strings"
	"testing"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/replica"
	kubesource "lateen.dev/lateen/internal/source/kube"
)

// Replicas may have different versions of a refused policy in force: one that has started since knows no earlier one. The author is told of both.
func TestWhatOtherReplicasHaveInForceIsTold(t *testing.T) {
	const isBefore, isStrictest, isNothing = "the version before it is in force", "strictest reading, since no earlier version is known there: it denies more", "nothing of it has effect"
	was, now := replica.Version{UID: "u1", Generation: 1}, replica.Version{UID: "u1", Generation: 2}
	for name, c := range map[string]struct {
		here     int64 // the generation that is in force here; 0 if none
		versions map[string]replica.Version
		want     map[string]string // by replica
	}{
		"all have the version before": {1, map[string]replica.Version{"b": was, "c": was}, nil},
		"one has started since":       {1, map[string]replica.Version{"b": was, "c": now}, map[string]string{"c": isStrictest}},
		"one has none of it":          {1, map[string]replica.Version{"b": {}, "c": now}, map[string]string{"b": isNothing, "c": isStrictest}},
		"this one has started since":  {2, map[string]replica.Version{"b": was, "c": now}, map[string]string{"b": isBefore}},
		"this one has none of it":     {0, map[string]replica.Version{"b": was, "c": {}}, map[string]string{"b": isBefore}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.writer.Versions = func(model.Key) map[string]replica.Version { return c.versions }
			if c.here > 0 {
				r.put(policy, "u1", c.here, &securityv1.AuthorizationPolicy{}, nil)
			}
			r.refusals[policy] = kubesource.Refused{Key: policy, Generation: 2, Strictest: "it denies more", Condition: model.Condition{Message: strings.Repeat("long ", maxMessage)}}
			want, ok := r.writer.want(policy, written{})
			if !ok || len(want.conditions[0].Message) > maxMessage {
				t.Fatalf("%d bytes are to be written", len(want.conditions[0].Message))
			}
			// What the proxies have of it is told beside that.
			if has := want.conditions[1]; has.Status != string(model.False) || strings.Contains(has.Message, "strictest reading") != (c.here == 2) || (has.Reason == wellknown.ReasonStandIn) != (c.here == 2) {
				t.Errorf("with generation %d in force it is told %+v", c.here, has)
			}
			// And who reads the pages is told what the status says.
			told, ok := r.writer.Refusal(r.refusals[policy])
			if !ok || len(told) != len(want.conditions) {
				t.Fatalf("the pages say %+v", told)
			}
			for i, c := range told {
				if w := want.conditions[i]; c.Type != w.Type || string(c.Status) != w.Status || c.Reason != w.Reason || c.Message != w.Message {
					t.Errorf("the pages say %+v, and the status %+v", c, w)
				}
			}
			_, note, _ := strings.Cut(want.conditions[0].Message, "…")
			if strings.Count(note, "For proxies of replica") != len(c.want) {
				t.Errorf("told: %s", note)
			}
			for name, what := range c.want {
				if _, rest, found := strings.Cut(note, "replica "+name+" "); !found || !strings.Contains(strings.Split(rest, ". ")[0], what) {
					t.Errorf("of %s is told: %s", name, note)
				}
			}
		})
	}
}
