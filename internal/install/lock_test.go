package install

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lively is a lock that gives signs of life often.
func lively(c *Cluster, verb string) *lock {
	l := c.lock(DefaultNamespace, verb)
	l.every, l.expires = 20*time.Millisecond, 30*time.Second
	return l
}

func TestTheSecondOfTwoCommandsIsToldWhoIsAtWork(t *testing.T) {
	c := cluster(t)
	first, second := lively(c, "upgrade"), lively(c, "uninstall")
	ctx, err := first.hold(t.Context(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	looked := ""
	_, err = second.hold(t.Context(), func(by string) { looked = by })
	if e := said(t, err); e.Code != 409 || !strings.Contains(e.Message, first.holder) || !strings.Contains(e.Message, "lateen upgrade of ") || !strings.Contains(e.Fix, "repeat the command") || looked != first.holder {
		t.Errorf("%v; looked at %q", e, looked)
	}
	if ctx.Err() != nil {
		t.Errorf("the first lost it: %v", context.Cause(ctx))
	}
	first.release(t.Context())
	if _, err := second.hold(t.Context(), func(by string) { t.Errorf("it waits for %s, who has ended", by) }); err != nil {
		t.Fatal(err)
	}
	second.release(t.Context())
	if list, err := c.Client.CoordinationV1().Leases(DefaultNamespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("%v %v stay behind", list.Items, err)
	}
}

// A command that was killed holds nobody up for ever.
func TestWhoGivesNoSignOfLifeIsNotWaitedFor(t *testing.T) {
	c := cluster(t)
	dead, next := lively(c, "install"), lively(c, "install")
	next.expires = 200 * time.Millisecond
	lease := dead.lease()
	future := metav1.NewMicroTime(time.Now().Add(time.Hour)) // by a clock that is wrong
	lease.Spec.RenewTime = &future
	if _, err := c.Client.CoordinationV1().Leases(DefaultNamespace).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	next.holder += " the next"
	if _, err := next.hold(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	next.release(t.Context())
}

func TestWhoLosesTheLeaseStops(t *testing.T) {
	c := cluster(t)
	l := lively(c, "upgrade")
	ctx, err := l.hold(t.Context(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer l.release(t.Context())
	if err := c.Client.CoordinationV1().Leases(DefaultNamespace).Delete(t.Context(), lockName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on")
	}
	if e := said(t, context.Cause(ctx)); !strings.Contains(e.Message, "lateen-system/lateen-install") {
		t.Error(e)
	}
}

// A plan is force-applied: made from a state that is no more, it would take back what another command has done since.
func TestAPlanOfAStateThatIsNoMoreIsNotCarriedOut(t *testing.T) {
	c := cluster(t)
	recorded(t, c, &Record{Namespace: DefaultNamespace, State: stateInstalled, Values: map[string]any{"log": map[string]any{"level": "debug"}}})
	i, err := c.PrepareUpgrade(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.PrepareRemoval(t.Context(), options(), false)
	if err != nil {
		t.Fatal(err)
	}
	// What the API server would do by itself.
	o, err := (&Record{Namespace: DefaultNamespace, State: stateInstalled, Values: map[string]any{"log": map[string]any{"level": "warn"}}}).object()
	if err != nil {
		t.Fatal(err)
	}
	o.SetResourceVersion("2")
	c.put(t, o)
	for what, run := range map[string]func(context.Context) error{"upgrade": i.Run, "uninstall": r.Run} {
		if e := said(t, run(t.Context())); e.Code != 409 || !strings.Contains(e.Message, "meanwhile") || !strings.Contains(e.Fix, "repeat") {
			t.Errorf("%s: %v", what, e)
		}
	}
	now, err := c.Find(t.Context())
	if err != nil || now.State != stateInstalled || now.Values["log"].(map[string]any)["level"] != "warn" {
		t.Errorf("%+v %v", now, err)
	}
}

func TestNobodyChangesWhatAnotherCommandChanges(t *testing.T) {
	c := cluster(t)
	recorded(t, c, &Record{Namespace: DefaultNamespace, State: stateInstalled})
	at := lively(c, "upgrade")
	if _, err := at.hold(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	defer at.release(t.Context())
	i, err := c.PrepareUpgrade(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.PrepareRemoval(t.Context(), options(), false)
	if err != nil {
		t.Fatal(err)
	}
	for what, run := range map[string]func(context.Context) error{"upgrade": i.Run, "uninstall": r.Run} {
		if e := said(t, run(t.Context())); !strings.Contains(e.Message, at.holder) {
			t.Errorf("%s: %v", what, e)
		}
	}
	if now, err := c.Find(t.Context()); err != nil || now.State != stateInstalled {
		t.Errorf("%+v %v", now, err)
	}
}
