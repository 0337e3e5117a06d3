package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

func TestWritesAreAllowedAtAPace(t *testing.T) {
	var p rateLimit
	now := time.Unix(1000, 0)
	allowed := 0
	for range 1000 {
		if p.take(now) {
			allowed++
		} else if next := p.next(); !next.After(now) || next.Sub(now) > refillEvery {
			t.Fatalf("the next is allowed at %v, in %v", next, next.Sub(now))
		}
		now = now.Add(100 * time.Millisecond)
	}
	// 100 seconds.
	if least, most := 100/5, burstWrites+100/5+1; allowed < least || allowed > most {
		t.Errorf("%d writes in 100 s, want %d to %d", allowed, least, most)
	}
	now = now.Add(time.Hour)
	for i := range burstWrites {
		if !p.take(now) {
			t.Errorf("after an hour write %d must wait", i)
		}
	}
	if p.take(now) {
		t.Error("after an hour there is no bound")
	}
}

// Somebody rewrites the annotation of a pod again and again: the agent does not answer each time, but in the end it does.
func TestWhoRewritesAnAnnotationIsAnsweredAtAPace(t *testing.T) {
	r := newRig(t)
	r.label(true)
	r.accept()
	r.events = nil
	for range 100 {
		r.snapshot.Pods[0].Annotations = map[string]string{wellknown.Redirection: "disabled"}
		r.learn()
		r.step(10 * time.Millisecond)
	}
	if n := len(r.events); n > burstWrites {
		t.Errorf("%d reports in a second: %v", n, r.events)
	}
	r.step(10 * time.Second)
	if got := r.snapshot.Pods[0].Annotations[wellknown.Redirection]; got != "enabled" {
		t.Errorf("the annotation stays %q", got)
	}
}

// What is told of one pod without end does not keep others' from being told.
func TestAPodsPaceIsItsOwn(t *testing.T) {
	r := newRig(t)
	r.label(true)
	r.accept()
	for i := range 100 {
		r.snapshot.Pods[0].Refused = []string{fmt.Sprint("reason ", i)}
		r.learn()
	}
	other := r.snapshot.Pods[0]
	other.UID, other.Name, other.NetNS, other.Annotations, other.Refused = "u2", "b", "/run/netns/b", map[string]string{}, nil
	r.agent.capturer.networks.open = func(string) (*netns.Namespace, error) { return netns.New() }
	r.snapshot.Pods = append(r.snapshot.Pods, other)
	r.learn()
	r.accepted["u2"] = true
	r.settle()
	if got := r.agent.pods["u2"].told; got != (source.Report{State: source.Enabled}) {
		t.Errorf("of the other pod was told %v", got)
	}
	r.step(10 * time.Second)
	if got := r.agent.pods[unit].told.Error; got != "reason 99" {
		t.Errorf("in the end %q was told", got)
	}
}

// stern is an engine that counts what it is told of each pod, and answers some pods' with an error.
type stern struct {
	*rig
	answers map[string]error
	asked   map[string]int
}

func (s *stern) Report(ctx context.Context, uid string, report source.Report) error {
	s.mu.Lock()
	s.asked[uid]++
	err := s.answers[uid]
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.rig.Report(ctx, uid, report)
}

// A write that an engine cannot take can cost it seconds: who has pods of which it can take none must not have it asked again and again.
func TestWritesThatFailAreRepeatedEverMoreSeldom(t *testing.T) {
	for _, x := range []struct {
		err     error
		most    int // in half an hour
		patient time.Duration
	}{
		{errors.New("it takes too long"), 70, retryLongest},
		{fmt.Errorf("no: %w", source.ErrRefused), 20, refusedLongest},
	} {
		r := newRig(t)
		s := &stern{rig: r, answers: map[string]error{unit: x.err}, asked: map[string]int{}}
		r.agent.source = s
		r.label(true)
		r.accept()
		for range 1800 {
			r.step(time.Second)
		}
		if n := s.asked[unit]; n > x.most || n < 5 {
			t.Errorf("%v: %d writes in half an hour, want 5 to %d", x.err, n, x.most)
		}
		// A network of its own more does not make it begin again.
		before := s.asked[unit]
		r.snapshot.Pods[0].NetNS = "/run/netns/moved"
		r.learn()
		if n := s.asked[unit]; n > before+1 {
			t.Errorf("%v: %d writes at once after the pod has another network", x.err, n-before)
		}
		// Once it is taken all is as ever.
		s.answers = nil
		r.step(x.patient)
		r.accept()
		r.step(x.patient)
		if got := r.agent.pods[unit]; got.told.State != source.Enabled || got.writes.failures != 0 {
			t.Errorf("%v: in the end %v was told, %d failures in a row", x.err, got.told, got.writes.failures)
		}
	}
}

// A refusal hangs on the pod as it was. Once that is another the write is made again soon, yet no sooner than one that fails for any reason.
func TestARefusedWriteIsMadeAgainWhenThePodChanges(t *testing.T) {
	r := newRig(t)
	s := &stern{rig: r, answers: map[string]error{unit: fmt.Errorf("no: %w", source.ErrRefused)}, asked: map[string]int{}}
	r.agent.source = s
	r.label(true)
	r.accept()
	for range 1800 {
		r.step(time.Second)
	}
	s.answers = nil
	r.snapshot.Pods[0].Version = "another"
	r.learn()
	r.step(retryLongest)
	r.accept()
	r.step(time.Second)
	if got := r.agent.pods[unit].told.State; got != source.Enabled {
		t.Errorf("after the pod has changed %q is told", got)
	}
	// Who changes it all the time has no more of them made than this.
	s.answers, s.asked = map[string]error{unit: fmt.Errorf("no: %w", source.ErrRefused)}, map[string]int{}
	for i := range 300 {
		r.snapshot.Pods[0].Annotations = map[string]string{wellknown.Redirection: "disabled"}
		r.snapshot.Pods[0].Version = fmt.Sprint(i)
		r.learn()
		r.step(time.Second)
	}
	if n := s.asked[unit]; n > 20 {
		t.Errorf("%d writes in 300 s", n)
	}
}
