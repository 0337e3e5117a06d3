package agent

import (
	"time"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/agent/zds"
	"lateen.dev/lateen/internal/model/wellknown"
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

	settings redirect.Settings // the traffic that bypasses the proxy once the pod is captured
	refused  []string          // annotations that ask for a bypass and cannot be honoured, each with the reason
	read     bool              // settings and refused are those of the present annotations

	progress

	working bool        // it is being advanced: progress has the state from before
	began   time.Time   // when the advance began
	waits   time.Time   // since when it waits for a turn, as one whose work takes long; zero if it does not
	news    *news       // the pod's object in a snapshot that came during the advance
	work    work        // the last advance
	stirred bool        // something has happened since it was last advanced
	before  *remembered // the record of an earlier agent

	announced announced     // what others were told of it, apart from reports
	told      source.Report // the last report to the engine
	repeat    bool          // the engine's object differs from told
	reporting bool          // a report is under way
	reportAt  time.Time     // no further report before this time, after a failed one
	writes    rateLimit     // limits the pod's reports
}

// work is what the last advance of a pod that had something to do has cost.
type work struct {
	took time.Duration // its duration
	rest time.Time     // no further advance before this time, after a long one
}

// announced is what was said of a pod to the node's prober and to the proxies.
type announced struct {
	probes bool // its probed addresses count
	end    bool // the pod is being deleted
}

// progress is the part of a pod's state that advancing it changes.
type progress struct {
	state  State
	reason string    // why the state is not what the user wants, or what it waits for
	since  time.Time // when the state last changed

	applied redirect.Settings // the settings of the rules that were last written

	ns       *netns.Namespace // held from the first attempt to capture until the release
	looked   bool             // an attempt was made to observe the rules in its namespace
	observed bool             // the rules in its namespace are known
	again    time.Time        // when to look again, apart from events
	probesBy time.Time        // until when the rules for its probes are waited for, once it could be captured otherwise
	failures int              // attempts in a row that failed
	listing  time.Duration    // duration of the last listing of its sockets

	graceUntil time.Time            // while releasing: when senders have learned
	cutAt      time.Time            // while releasing: when meshed connections are not waited for any longer; zero for never
	takenBack  bool                 // while releasing: the proxy has been told to let go
	unmeshed   map[uint64]time.Time // captured: cookies of connections that are older than the capture, and its time
	disowned   uint64               // captured: how many packets of its own had the proxy's mark, since the rules were written
	capturedAt time.Time            // captured: when, also across restarts of the agent
	forget     bool                 // captured: connections that only ended under the rules are still to be looked for

	parted bool // the pod has ended, and nothing of the proxy's in it is open
}

// anew resets a pod whose network was replaced. The durations measured in the old network are forgotten as well.
func (p *pod) anew(now time.Time) {
	*p = pod{progress: progress{state: Plain, since: now}, reporting: p.reporting, told: p.told, writes: p.writes, announced: announced{probes: p.announced.probes}, stirred: true}
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

// unjudged is why a pod is neither captured nor left alone.
const unjudged = "the agent has not learned of the pod's namespace, which says whether the pod is to be in the mesh"

// enrolledSoFar says whether a pod counts as enrolled that cannot be judged now: it stays as it was. object is what is new of it.
func (p *pod) enrolledSoFar(object source.Pod) bool {
	switch {
	case p.news != nil && !p.news.gone:
		return p.news.want
	case p.read:
		return p.want
	}
	return object.Annotations[wellknown.Redirection] == string(source.Enabled) // an earlier agent captured it
}

// asWanted says whether the pod is captured, or known not to be enrolled.
func (p *pod) asWanted() bool {
	return p.state == Captured || !p.want && !p.Unjudged
}

// overdue says whether a released pod's connections are not waited for any longer.
func (p *pod) overdue(now time.Time) bool { return !p.cutAt.IsZero() && !now.Before(p.cutAt) }

// workload is the pod as the proxy is told of it.
func (p *pod) workload() zds.Workload {
	return zds.Workload{UID: p.UID, Namespace: p.Namespace, Name: p.Name, ServiceAccount: p.ServiceAccount, NetNS: p.ns}
}
