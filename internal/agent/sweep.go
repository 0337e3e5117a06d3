package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/redirect"
	podsource "lateen.dev/lateen/internal/agent/source/kube"
)

// sweeper removes redirections from the networks of a node's pods, whoever they belong to. What is in a pod's network can be
// in the pod's hands: one may not be changed, or only in an hour. Nobody else waits for that one.
type sweeper struct {
	limit time.Duration // for all
	each  time.Duration // for one
	bare  func(ns *netns.Namespace) (had bool, err error)
}

func newSweeper() sweeper { return sweeper{limit: 30 * time.Second, each: 5 * time.Second, bare: bare} }

// sweptAtOnce is how many networks are worked on at the same time.
const sweptAtOnce = 8

// swept is what a sweep has done.
type swept struct {
	count  int
	stays  []string // networks that may still have a redirection, and why
	failed error    // an error that no pod can have caused
}

// errEnter is the error of a network that cannot be entered, which is the agent's own fault.
type errEnter struct{ error }

// bare removes the redirection from a network, if there is one.
func bare(ns *netns.Namespace) (had bool, err error) {
	if err := ns.Do(func() error { return nil }); err != nil {
		return false, errEnter{err}
	}
	const tries, pause = 3, 200 * time.Millisecond
	for i := range tries {
		if i > 0 {
			time.Sleep(pause)
		}
		var mode redirect.Mode
		if mode, err = redirect.Observe(ns); err == nil && mode != redirect.Absent {
			had = true
			_, err = redirect.Apply(ns, redirect.Absent, redirect.Settings{})
		}
		if err == nil {
			break
		}
	}
	return had, err
}

// sweep works on the pods' own networks, by the node's folder of mounted networks, its /proc and the file that an agent noted networks in.
func (s sweeper) sweep(mounts, proc, boxes string) (done swept) {
	all, unseen, err := podsource.OwnNetworks(proc, mounts, boxes)
	if err != nil {
		done.failed = err
		return done
	}
	done.stays = unseen
	ctx, cancel := context.WithTimeout(context.Background(), s.limit)
	defer cancel()
	type outcome struct {
		name string
		had  bool
		err  error
	}
	nodes, turns, outcomes := ownNetworks(), make(chan struct{}, sweptAtOnce), make(chan outcome)
	for _, ns := range all {
		go func() {
			name := ns.Name()
			select {
			case turns <- struct{}{}:
				defer func() { <-turns }()
			case <-ctx.Done():
				ns.Close()
				outcomes <- outcome{name: name, err: errors.New("there was no time for it")}
				return
			}
			worked := make(chan outcome, 1)
			go func() {
				defer ns.Close()
				o := outcome{name: name}
				if !nodes[ns.ID()] {
					o.had, o.err = s.bare(ns)
				}
				worked <- o
			}()
			select {
			case o := <-worked:
				outcomes <- o
			case <-time.After(s.each):
				outcomes <- outcome{name: name, err: fmt.Errorf("it is not done after %s", s.each)}
			}
		}()
	}
	for range all {
		o := <-outcomes
		var own errEnter
		switch {
		case errors.As(o.err, &own):
			done.failed = errors.Join(done.failed, fmt.Errorf("remove the redirection in %s: %w", o.name, o.err))
		case o.err != nil:
			done.stays = append(done.stays, fmt.Sprintf("%s: %v", o.name, o.err))
		case o.had:
			done.count++
		}
	}
	return done
}
