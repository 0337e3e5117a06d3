package local

import (
	"os"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/engine/local/logfile"
	"lateen.dev/lateen/internal/engine/local/podinit"
	"lateen.dev/lateen/internal/engine/local/podspec"
)

// end ends what runs in a pod and takes everything of it away.
func (l *lifecycle) end(p *pod) {
	var running []*podinit.Process
	var init *podinit.Pod
	drain := false
	var told <-chan struct{}
	var outputs []*logfile.Pipe
	var logs []*logfile.File
	l.state.update(func() {
		init = p.init
		drain = p.phase == corev1.PodRunning && !l.state.stopping
		told = l.state.told
		for _, c := range p.containers {
			c.ready = false
			logs = append(logs, c.log)
			if c.output != nil {
				outputs = append(outputs, c.output)
			}
			if c.running() {
				running = append(running, c.process)
			}
		}
	})
	if init != nil {
		if drain && len(running) > 0 {
			l.drain(p, told)
		}
		for _, proc := range running {
			_ = proc.Signal(syscall.SIGTERM)
		}
		grace := time.NewTimer(l.grace(p))
		for _, proc := range running {
			select {
			case <-proc.Done():
			case <-grace.C:
				grace.Reset(0)
			}
		}
		grace.Stop()
		init.Kill()
	}
	for _, output := range outputs {
		output.End(drainOutput)
	}
	for _, log := range logs {
		if err := log.Close(); err != nil {
			l.log.Error("close a log", "namespace", p.id.namespace, "pod", p.id.name, "err", err)
		}
	}
	l.awaitParting(p)
	if p.network && !p.id.onNodesNetwork() {
		if err := fabric.RemovePod(p.id.node.Node, l.dir.podNetNS(&p.id), p.id.port); err != nil {
			l.log.Error("remove the pod's network", "namespace", p.id.namespace, "pod", p.id.name, "err", err)
		}
	}
	if err := os.RemoveAll(l.dir.pod(p.id.namespace, p.id.name)); err != nil {
		l.log.Error("remove the pod's directory", "namespace", p.id.namespace, "pod", p.id.name, "err", err)
	}
	l.state.update(func() {
		l.state.pods = slices.DeleteFunc(l.state.pods, func(o *pod) bool { return o == p })
		if !p.id.onNodesNetwork() {
			p.id.node.ips.release(p.id.ip)
		}
	})
	close(p.done)
}

// drain waits until nobody is sent to a pod any more. told is closed once the lists of endpoints are written without it.
func (l *lifecycle) drain(p *pod, told <-chan struct{}) {
	patience := time.NewTimer(tellPatience)
	defer patience.Stop()
	select {
	case <-told:
	case <-patience.C:
		l.log.Warn("a pod is asked to end before the lists of endpoints are without it", "namespace", p.id.namespace, "pod", p.id.name, "after", tellPatience)
	}
	time.Sleep(drainDelay)
}

// awaitParting has the node's agent take a pod that has ended back from the proxy before its network goes: what peers are not
// told by then they wait for in vain.
func (l *lifecycle) awaitParting(p *pod) {
	wait := false
	l.state.update(func() {
		p.ended = true
		// A pod without redirection may still have meshed connections; agents answer for every pod.
		wait = l.feed.followed(p.id.node.name) && p.network && !p.id.onNodesNetwork() && !l.state.stopping
	})
	if !wait {
		return
	}
	patience := time.NewTimer(endedPatience)
	defer patience.Stop()
	select {
	case <-p.parted:
	case <-patience.C:
		l.log.Warn("a pod's network goes before its peers have heard that it ended", "namespace", p.id.namespace, "pod", p.id.name, "after", endedPatience)
	}
}

// grace is how long a pod may take to end. When the whole mesh ends nobody waits for the slowest.
func (l *lifecycle) grace(p *pod) time.Duration {
	g := time.Duration(podspec.GraceSeconds(&p.id.spec)) * time.Second
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	if p.graceLimit != nil {
		g = *p.graceLimit
	}
	if l.state.stopping {
		return min(g, downGrace)
	}
	return g
}

// downGrace bounds every pod's grace period when the mesh ends.
const downGrace = 3 * time.Second
