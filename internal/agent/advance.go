package agent

import (
	"sync"
	"time"

	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/agent/zds"
	"lateen.dev/lateen/internal/model/wellknown"
)

const (
	// atOnce is how many pods are worked on at the same time: most of the work is waiting for the kernel.
	atOnce = 16
	// patience is how long the loop waits for the pods that it has set out to advance.
	patience = 500 * time.Millisecond
	// slow is work that the loop does not wait for the next time: what a pod has in its network (sockets, rules, addresses)
	// is the pod's doing, and listing it may take as long as the pod likes.
	slow = 100 * time.Millisecond
	// trifle is what a look takes that had nothing to do. It says nothing of what work takes.
	trifle = time.Millisecond
)

// job is one pod being advanced. It works on a copy: the loop goes on with what it knew.
type job struct {
	pod   *pod
	copy  pod
	round int  // in which round of the loop it began
	begun bool // otherwise it had no turn
	took  time.Duration
	slow  string // the namespace whose turn it has in the slow queue; empty for none
}

// finished are jobs that are done and that the loop has not taken over yet.
type finished struct {
	mu   sync.Mutex
	jobs []*job
	wake chan struct{}
}

// add leaves a value in wake exactly while there are jobs: the loop must not be woken for nothing.
func (f *finished) add(j *job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs = append(f.jobs, j)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *finished) take() []*job {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.wake:
	default:
	}
	jobs := f.jobs
	f.jobs = nil
	return jobs
}

// news is what a snapshot said of a pod while it was being advanced.
type news struct {
	object source.Pod
	want   bool
	gone   bool
}

// advanceAll advances every pod, several at once: they have nothing in common but what is safe to share. A pod that takes
// long is left to itself, and the others go on; it says when it is done.
func (a *Agent) advanceAll(now time.Time) {
	turns, over := make(chan struct{}, atOnce), make(chan struct{})
	a.rounds++
	waiting := 0
	var called []*pod
	for _, p := range a.pods {
		switch {
		case p.working:
		case p.work.took < a.slow:
			waiting++
			a.begin(p, now, &job{round: a.rounds}, turns, over)
		case p.calls(now):
			called = append(called, p)
		}
	}
	a.beginSlow(called, now)
	timer := time.NewTimer(a.patience)
	defer timer.Stop()
	for waiting > 0 {
		select {
		case <-a.finished.wake:
			waiting -= a.takeOver(now)
		case <-timer.C:
			waiting = 0
		}
	}
	// A pod that had no turn so far gets one in the next round, before the pods that took all turns of this one.
	close(over)
	a.remember()
}

// begin starts to advance a pod as soon as there is a turn, unless that is over before. Without turns it has one already.
func (a *Agent) begin(p *pod, now time.Time, j *job, turns chan struct{}, over <-chan struct{}) {
	p.working, p.began, p.waits, p.stirred = true, now, time.Time{}, false
	j.pod, j.copy = p, *p
	if c, known := a.kept[p.UID]; known {
		j.copy.before = &c
	}
	go func() {
		defer a.finished.add(j)
		if turns != nil {
			select {
			case turns <- struct{}{}:
			case <-over:
				return
			}
			defer func() { <-turns }()
		}
		j.begun = true
		began := time.Now()
		a.capturer.advance(&j.copy, now)
		j.took = time.Since(began)
	}()
}

// takeOver takes over what is done, and says how much of it this round was waiting for.
func (a *Agent) takeOver(now time.Time) (awaited int) {
	for _, j := range a.finished.take() {
		if j.round == a.rounds {
			awaited++
		}
		if j.slow != "" {
			a.slowQueue.leave(j.slow)
		}
		p := j.pod
		p.working = false
		if j.begun {
			p.progress = j.copy.progress
			if j.took >= trifle {
				p.work.took = j.took
			}
			if p.work.took >= a.slow {
				p.work.rest = now.Add(min(p.work.took, 5*time.Second))
			}
			a.announceEnd(p)
		}
		if n := p.news; n != nil {
			p.news = nil
			if n.gone {
				a.forget(p)
			} else {
				a.update(p, n.object, n.want && !a.capturer.leaving.Load(), now)
			}
		}
	}
	// The call comes before the wait: pods that are to be captured need its result, and the pods of this round may take long.
	a.tellProbed()
	return awaited
}

// stir has all pods looked at: what they wait for may have happened.
func (a *Agent) stir() {
	for _, p := range a.pods {
		p.stirred = true
	}
}

// finishLearning tells the proxies that they know all pods, once every pod has been looked at. Until then they are told of
// none, so one that takes long is not waited for for long: a proxy that has it is told to keep it.
func (a *Agent) finishLearning(now time.Time) {
	if a.ready.Load() || a.learned.IsZero() {
		return
	}
	const longest = 2 * time.Second
	late := now.Sub(a.learned) >= longest
	for _, p := range a.pods {
		switch {
		case p.looked || p.Ended:
		case !late:
			return
		case p.Annotations[wellknown.Redirection] == string(source.Enabled):
			a.zds.Put(zds.Workload{UID: p.UID, Namespace: p.Namespace, Name: p.Name, ServiceAccount: p.ServiceAccount})
		}
	}
	a.zds.Complete()
	a.ready.Store(true)
}
