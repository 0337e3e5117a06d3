package local

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/local/logfile"
	"lateen.dev/lateen/internal/engine/local/podinit"
	"lateen.dev/lateen/internal/model/wellknown"
)

// pod is one pod. The state's lock guards its fields unless they never change after it is made.
type pod struct {
	// Never changed.
	id     podIdentity
	cancel context.CancelFunc
	wakeup chan struct{} // something it waits for may have happened
	parted chan struct{} // closed when the agent says that the ends of its connections have left
	done   chan struct{} // closed when nothing of it is left

	// Guarded.
	labels      map[string]string
	annotations map[string]string
	phase       corev1.PodPhase
	reason      string // why it does not run, for people
	network     bool   // its network namespace is there
	stopping    bool
	graceLimit  *time.Duration // in place of the grace period of its spec, if it was deleted with one
	ended       bool           // its processes are gone; its network is there until its connections' ends have left
	deleted     time.Time
	started     time.Time
	init        *podinit.Pod
	containers  []*container // init containers first
	redirection redirection
}

// redirection is what the agent last said about a pod.
type redirection struct {
	enabled bool
	err     string
}

// container is one container of a pod. Its fields are guarded by the state's lock unless they never change.
type container struct {
	spec *corev1.Container // never changed
	init bool              // never changed

	waiting  string // reason code while it does not run, as Kubernetes writes it
	message  string // the same in words
	process  *podinit.Process
	started  time.Time
	finished time.Time
	restarts int
	lastExit string
	exitCode *int
	ready    bool
	done     bool          // an init container that has succeeded, or one that will not be started again
	log      *logfile.File // never changed
	output   *logfile.Pipe // of the last run; its container's goroutine's own until the pod ends
}

func (c *container) running() bool { return c.process != nil }

// stop asks the pod to end; it returns at once. The state's lock must be held.
func (p *pod) stop() {
	if p.stopping {
		return
	}
	p.stopping, p.deleted = true, time.Now()
	p.cancel()
}

// stopWithin is stop with a grace period in seconds in place of the pod's own; nil leaves that. A pod that is stopping already can
// be given less time only until its processes were asked to end. The state's lock must be held.
func (p *pod) stopWithin(seconds *int64) {
	if seconds != nil {
		limit := time.Duration(*seconds) * time.Second
		p.graceLimit = &limit
	}
	p.stop()
}

// wake makes the pod look again at what it waits for.
func (p *pod) wake() {
	select {
	case p.wakeup <- struct{}{}:
	default:
	}
}

// ready says whether every container is. The state's lock must be held.
func (p *pod) ready() bool {
	if p.phase != corev1.PodRunning || p.stopping {
		return false
	}
	for _, c := range p.containers {
		if !c.init && !c.ready {
			return false
		}
	}
	return true
}

// identities hands out one unix user per service account, from firstPodUID up, and never the same twice.
type identities struct {
	mu   sync.Mutex
	uids map[string]int
}

const firstPodUID = 200000

// controlUID is the unix user of the control plane, which needs no privileges; no pod ever has it.
const controlUID = firstPodUID - 1

func (i *identities) of(namespace, account string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.uids == nil {
		i.uids = map[string]int{}
	}
	key := namespace + "/" + account
	uid, ok := i.uids[key]
	if !ok {
		uid = firstPodUID + len(i.uids)
		i.uids[key] = uid
	}
	return uid
}

// The label by which users put pods into the mesh, and its values.
const (
	modeAmbient = wellknown.ModeAmbient
	modeNone    = wellknown.ModeNone
)

// modeWarning says that a value of the label does not do what its author may expect; empty if it is a good one.
func modeWarning(labels map[string]string) string {
	return wellknown.UnknownMode(labels)
}

// ownAnnotations are an author's, without the one by which the mesh says that a pod is captured: peers would dial a tunnel
// that nobody serves.
func ownAnnotations(given map[string]string) map[string]string {
	own := maps.Clone(given)
	delete(own, wellknown.Redirection)
	return own
}

// captureWarning says that an author cannot say that a pod is captured; empty if none tries.
func captureWarning(annotations map[string]string) string {
	if _, given := annotations[wellknown.Redirection]; !given {
		return ""
	}
	return fmt.Sprintf("annotation %s is ignored: the mesh alone sets it, once a pod is captured; label the pod or its namespace %s=%s to have it captured",
		wellknown.Redirection, wellknown.DataplaneMode, modeAmbient)
}

// enrolled says whether labels put a pod into the mesh. A pod on the network of its node is never captured.
func enrolled(hostNetwork bool, podLabels, namespaceLabels map[string]string) bool {
	return !hostNetwork && wellknown.Enrolled(podLabels, namespaceLabels)
}
