package agent

import (
	"time"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/agent/zds"
)

// State is where a pod stands between plain and captured.
type State string

// States.
const (
	Plain     State = "plain"     // not enrolled, and nothing of ours is in its namespace
	Pending   State = "pending"   // to be captured; its connections are still plain
	Captured  State = "captured"  // its new connections go through the proxy
	Releasing State = "releasing" // new connections are plain; meshed ones are finishing
)

// pod is one pod of the node. It belongs to the agent's loop.
type pod struct {
	source.Pod
	want      bool
	wantSince time.Time // when want last changed

	settings redirect.Settings // what passes by the proxy, once captured
	refused  []string          // what asks for more of that and cannot be followed, and why
	read     bool              // both are what the annotations say

	progress

	working bool          // it is being advanced: progress is what it was when that began
	began   time.Time     // when that was
	waits   time.Time     // since when it waits for a turn, as one whose work takes long; zero if it does not
	news    *news         // what a snapshot said meanwhile
	took    time.Duration // to advance it, when there last was something to do
	rest    time.Time     // not before then, if that was long
	stirred bool          // something has happened since it was last advanced
	before  *remembered   // what an earlier agent noted

	probing   bool          // its probed addresses count
	told      source.Report // what the engine was told last
	repeat    bool          // the engine's object says something else
	reporting bool          // a report is under way
	reportAt  time.Time     // not before then, after a failed report
	writes    rateLimit     // of its reports
}

// progress is how far the pod has come: what advancing it changes, and nothing else.
type progress struct {
	state  State
	reason string // why the state is not what the user wants, or what it waits for
	since  time.Time

	applied redirect.Settings // what the rules were last made from

	ns       *netns.Namespace // held from the first attempt to capture until the release
	looked   bool             // it was tried to learn what stands in its namespace
	observed bool             // what stands in its namespace is known
	again    time.Time        // when to look again, apart from events
	probesBy time.Time        // until when the rules for its probes are waited for, once it could be captured otherwise
	failures int              // attempts in a row that failed
	listing  time.Duration    // what it last took to list its sockets

	graceUntil time.Time            // while releasing: when senders have learned
	cutAt      time.Time            // while releasing: when meshed connections are not waited for any longer; zero for never
	takenBack  bool                 // while releasing: the proxy has been told to let go
	unmeshed   map[uint64]time.Time // captured: cookies of connections that are older than the capture, and its time
	disowned   uint64               // captured: how many packets of its own had the proxy's mark, since the rules were written
	capturedAt time.Time            // captured: when, also across restarts of the agent
	forget     bool                 // captured: connections that only ended under the rules are still to be looked for

	parted bool // the pod has ended, and nothing of the proxy's in it is open
}

// anew begins with a pod as if it were another: its network is. So what work in the old one took says nothing any more.
func (p *pod) anew(now time.Time) {
	*p = pod{progress: progress{state: Plain, since: now}, reporting: p.reporting, told: p.told, writes: p.writes, probing: p.probing, stirred: true}
}

// The steps of capture at which things fail, as the metric names them.
const (
	stepNamespace = "namespace"
	stepProxy     = "proxy"
	stepRules     = "rules"
	stepSockets   = "sockets"
	stepReport    = "report"
	stepPlugin    = "plugin" // the CNI plugin cannot be installed
)

func (p *pod) become(s State, reason string, now time.Time) {
	if p.state != s {
		p.state, p.since = s, now
		p.failures, p.takenBack = 0, false
	}
	p.reason = reason
	p.again, p.probesBy = time.Time{}, time.Time{}
}

// fail notes why nothing was done, and sets the time of the next attempt.
func (p *pod) fail(reason string, now time.Time) {
	p.reason = reason
	const first, longest = 200 * time.Millisecond, 10 * time.Second
	p.again = now.Add(min(first<<min(p.failures, 10), longest))
	p.failures++
}

// pause is the time until the next look: longer where a look takes long, so that it is never most of what is done.
func (p *pod) pause(least time.Duration) time.Duration {
	const share, longest = 10, 10 * time.Second
	return max(least, min(share*p.listing, longest))
}

// overdue says whether a released pod's connections are not waited for any longer.
func (p *pod) overdue(now time.Time) bool { return !p.cutAt.IsZero() && !now.Before(p.cutAt) }

// workload is the pod as the proxy is told of it.
func (p *pod) workload() zds.Workload {
	return zds.Workload{UID: p.UID, Namespace: p.Namespace, Name: p.Name, ServiceAccount: p.ServiceAccount, NetNS: p.ns}
}
