package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"lateen.dev/lateen/internal/agent/source"
)

// leaves is why nothing is captured any more.
const leaves = "the mesh leaves the node"

// Leave releases every pod and returns when none has anything of the mesh in it and the source knows so, or when ctx
// ends; the caller removes at once what is left then. Nothing is captured any more, but for what hung names.
func (a *Agent) Leave(ctx context.Context) error {
	a.capturer.leaving.Store(true)
	begin := func() {
		for _, p := range a.pods {
			switch {
			case !p.working:
				a.update(p, p.Pod, false, time.Now())
			case p.news == nil:
				// The pod's next turn releases it, whatever its object wants, since the mesh is leaving.
				p.news = &news{object: p.Pod}
			}
		}
	}
	if err := a.ask(ctx, begin); err != nil {
		return err
	}
	const pause = 50 * time.Millisecond
	for {
		left, learned := 0, false
		err := a.ask(ctx, func() {
			learned = !a.learned.IsZero()
			for _, p := range a.pods {
				if p.mayBeMeshed() {
					left++
				}
			}
		})
		if err == nil && learned && left == 0 {
			return nil
		}
		if err == nil {
			select {
			case <-time.After(pause):
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if !learned {
			return fmt.Errorf("which pods the node has was not learned in time: %w", err)
		}
		return fmt.Errorf("%d pods have not been released in time: %w", left, err)
	}
}

// hung names the pods in which the work that was under way at a time is not done: what the kernel was asked for then it may still do.
func (a *Agent) hung(ctx context.Context, since time.Time) (pods []string, err error) {
	err = a.ask(ctx, func() {
		for _, p := range a.pods {
			if p.working && !p.began.After(since) && !p.Ended {
				pods = append(pods, p.Namespace+"/"+p.Name)
			}
		}
	})
	slices.Sort(pods)
	return pods, err
}

// mayBeMeshed says whether anything of the mesh can be in the pod, or be written there by what is under way, or is said to be.
// In one that has ended nothing runs that could miss its network.
func (p *pod) mayBeMeshed() bool {
	return !p.Ended && (p.working || !p.observed || p.state != Plain || p.reporting || p.told.State == source.Enabled)
}
