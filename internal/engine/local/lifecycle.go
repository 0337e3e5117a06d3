package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/engine/local/logfile"
	"lateen.dev/lateen/internal/engine/local/podinit"
	"lateen.dev/lateen/internal/engine/local/podspec"
)

// Pods see these directories of the machine below api.RunRoot, and nothing else there.
const (
	podBinDir      = api.RunRoot + "/bin"
	podManifestDir = api.RunRoot + "/manifest"
)

// maxHostname is the longest label of a name, and maxFullHostname the longest host name that the kernel takes, in bytes.
const (
	maxHostname     = 63
	maxFullHostname = 64
)

const (
	// drainDelay is the time between taking a pod out of every list of endpoints and asking it to end, so that those who
	// would still connect to it have heard. It begins when the lists are written; tellPatience bounds the wait for that.
	drainDelay   = 200 * time.Millisecond
	tellPatience = 5 * time.Second
	// endedPatience bounds the wait for the ends of a pod's connections to leave. Node proxies end in order what can, and
	// cut the rest (LAST_WORDS); peers that are gone themselves acknowledge nothing.
	endedPatience = 5 * time.Second
	// scratchSize bounds a pod's own /tmp and the like, in bytes each. Pages are only taken when written.
	scratchSize = 512 << 20

	// drainOutput bounds the wait for the last lines of a container that has ended: something that it started, or gave its
	// output to, may still have it.
	drainOutput = time.Second

	// crashLoop is the reason of a container that waits for its next start, as Kubernetes writes it.
	crashLoop = "CrashLoopBackOff"

	backoffMin   = 200 * time.Millisecond
	backoffMax   = 10 * time.Second
	backoffReset = 30 * time.Second // a container that ran this long starts again without delay
)

// runPod takes a pod from birth to end.
func (e *Engine) runPod(ctx context.Context, p *pod) {
	err := e.bearPod(ctx, p)
	if err == nil {
		err = e.runContainers(ctx, p)
	}
	if err != nil && ctx.Err() == nil {
		e.log.Error("pod failed", "namespace", p.namespace, "pod", p.name, "err", err)
		e.state.update(func() { p.phase, p.reason = corev1.PodFailed, err.Error() })
	}
	// A pod whose work is done keeps its name and logs until it is deleted.
	<-ctx.Done()
	e.endPod(p)
}

// bearPod gives a pod its network and its view of the machine, and waits until it may start.
func (e *Engine) bearPod(ctx context.Context, p *pod) error {
	dir := e.dir.pod(p.namespace, p.name)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := p.writeFiles(dir, e.families[0].DNSIP); err != nil {
		return err
	}
	if !p.onNodesNetwork() {
		if err := fabric.AddPod(p.node.Node, e.dir.podNetNS(p), p.port, p.ips...); err != nil {
			return fmt.Errorf("make the pod's network: %w", err)
		}
	}
	e.state.update(func() { p.network = true })
	log, err := os.OpenFile(e.dir.engineLog(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	init, err := podinit.Spawn(ctx, e.daemons.reaper, e.dir.podNetNS(p), e.exe, []string{"lateen", PodVerb, p.namespace + "/" + p.name}, log, p.view(dir, e.dir.bin()))
	if err != nil {
		return err
	}
	e.state.update(func() { p.init = init })
	return e.awaitCapture(ctx, p)
}

// podNetNS is the network namespace of a pod.
func (d runDir) podNetNS(p *pod) string {
	if p.onNodesNetwork() {
		return p.node.NetNS
	}
	return d.netns(p.uid)
}

// writeFiles writes the pod's own versions of files of the machine into a directory.
func (p *pod) writeFiles(dir string, resolver fmt.Stringer) error {
	if name := p.hostname(); len(name) > maxFullHostname {
		return fmt.Errorf("the kernel takes host names of up to %d bytes, and setHostnameAsFQDN asks for %q; leave it out or shorten the names", maxFullHostname, name)
	}
	for name, text := range map[string]string{"hosts": p.hosts(), "hostname": p.hostname() + "\n", "resolv.conf": p.resolvConf(resolver), "nsswitch.conf": nsswitch()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// nsswitch is the machine's own configuration of name lookups, but with names of hosts from files and DNS only: a resolver
// daemon of the machine would not know the mesh's names.
func nsswitch() string {
	const hosts = "hosts: files dns\n"
	b, err := os.ReadFile("/etc/nsswitch.conf")
	if err != nil {
		return hosts
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "hosts:") {
			out.WriteString(line)
		}
	}
	if s := out.String(); s != "" && !strings.HasSuffix(s, "\n") {
		out.WriteString("\n")
	}
	return out.String() + hosts
}

// view is what the pod sees of the machine: the files in dir, and the programs in bin.
func (p *pod) view(dir, bin string) podinit.Setup {
	s := podinit.Setup{
		Hostname: p.hostname(),
		Files:    map[string]string{},
		Dirs:     map[string]string{podBinDir: bin},
		Hidden:   api.RunRoot,
		Scratch:  []string{"/tmp", "/var/tmp", "/dev/shm", "/run/nscd"}, ScratchMax: scratchSize,
	}
	if p.dir != "" {
		s.Dirs[podManifestDir] = p.dir
	}
	for _, name := range []string{"hosts", "hostname", "resolv.conf", "nsswitch.conf"} {
		// A file that the machine lacks cannot be covered, and nothing is added to the machine.
		if _, err := os.Stat("/etc/" + name); err == nil {
			s.Files["/etc/"+name] = filepath.Join(dir, name)
		}
	}
	return s
}

// awaitCapture holds a pod back that belongs into the mesh until its traffic is captured: nothing it sends may be in clear.
func (e *Engine) awaitCapture(ctx context.Context, p *pod) error {
	for {
		hold := false
		e.state.update(func() {
			hold = e.state.enrolled(p) && !p.redirection.enabled
			p.reason = ""
			if hold {
				p.reason = "waiting for the node's agent to capture the pod"
				if p.redirection.err != "" {
					p.reason += ": " + p.redirection.err
				}
			}
		})
		if !hold {
			return nil
		}
		select {
		case <-p.wakeup:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// runContainers runs init containers in turn, then all others together, until the pod's work is done or it is asked to end.
func (e *Engine) runContainers(ctx context.Context, p *pod) error {
	for _, c := range p.containers {
		if c.init {
			if err := e.runContainer(ctx, p, c); err != nil {
				return err
			}
		}
	}
	e.state.update(func() { p.phase, p.started = corev1.PodRunning, time.Now() })
	var wg sync.WaitGroup
	errs := make([]error, len(p.containers))
	for i, c := range p.containers {
		if !c.init {
			wg.Go(func() { errs[i] = e.runContainer(ctx, p, c) })
		}
	}
	wg.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := errors.Join(errs...)
	if err == nil {
		e.state.update(func() { p.phase = corev1.PodSucceeded })
	}
	return err
}

// runContainer runs a container again and again as its pod's restart policy says. It returns nil when it has succeeded for
// good, and an error when it has failed for good or ctx ended.
func (e *Engine) runContainer(ctx context.Context, p *pod, c *container) error {
	backoff := backoffMin
	for {
		began := time.Now()
		proc, err := e.startContainer(ctx, p, c)
		if err == nil {
			err = e.watchContainer(ctx, p, c, proc)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		policy := p.spec.RestartPolicy
		switch {
		case closed(p.init.Done()):
			return errors.New("the pod's first process was killed, and the pod with it")
		case err == nil && (c.init || policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure):
			e.state.update(func() { c.done = true })
			return nil
		case err != nil && policy == corev1.RestartPolicyNever:
			e.state.update(func() { c.done = true })
			return fmt.Errorf("container %s: %w", c.spec.Name, err)
		}
		if time.Since(began) > backoffReset {
			backoff = backoffMin
		}
		why := "it ended, exited with code 0"
		if err != nil {
			why = err.Error()
		}
		e.log.Warn("container will start again", "namespace", p.namespace, "pod", p.name, "container", c.spec.Name, "why", why, "in", backoff)
		e.state.update(func() {
			c.waiting, c.message = crashLoop, fmt.Sprintf("%s; next start in %s", why, backoff)
			c.restarts++
		})
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return ctx.Err()
		}
		backoff = min(2*backoff, backoffMax)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (e *Engine) startContainer(ctx context.Context, p *pod, c *container) (*podinit.Process, error) {
	cmd, err := e.commandOf(p, c)
	if err != nil {
		return nil, err
	}
	// The pipe belongs to the pod's user, so that the container can open /dev/stdout.
	output, err := c.log.Pipe(p.unixUID)
	if err != nil {
		return nil, err
	}
	defer output.Started()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	c.log.Begin()
	proc, err := p.init.Start(ctx, cmd, [3]*os.File{null, output.Writer, output.Writer})
	if err != nil {
		return nil, err
	}
	e.state.update(func() {
		c.output = output
		c.process, c.started, c.waiting, c.message = proc, time.Now(), "", ""
		c.ready = !c.init && c.spec.ReadinessProbe == nil
	})
	return proc, nil
}

// watchContainer waits for a container's end, probing it meanwhile. A nil error is an exit with code 0.
func (e *Engine) watchContainer(ctx context.Context, p *pod, c *container, proc *podinit.Process) error {
	if c.spec.ReadinessProbe != nil && !c.init {
		probing, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { e.probe(probing, p, c) })
		defer wg.Wait()
		defer cancel()
	}
	select {
	case <-proc.Done():
	case <-ctx.Done():
		return ctx.Err() // endPod ends the process
	}
	exit := proc.Exit()
	c.output.Drain(drainOutput)
	e.state.update(func() {
		code := exit.Code
		c.process, c.ready, c.finished, c.exitCode, c.lastExit = nil, false, time.Now(), &code, exit.String()
	})
	if exit.Code != 0 {
		return errors.New(exit.String())
	}
	return nil
}

// endPod ends what runs in a pod and takes everything of it away.
func (e *Engine) endPod(p *pod) {
	var running []*podinit.Process
	var init *podinit.Pod
	drain := false
	var told <-chan struct{}
	var outputs []*logfile.Pipe
	var logs []*logfile.File
	e.state.update(func() {
		init = p.init
		drain = p.phase == corev1.PodRunning && !e.state.stopping
		told = e.state.told
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
			e.drain(p, told)
		}
		for _, proc := range running {
			_ = proc.Signal(syscall.SIGTERM)
		}
		grace := time.NewTimer(e.grace(p))
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
			e.log.Error("close a log", "namespace", p.namespace, "pod", p.name, "err", err)
		}
	}
	e.awaitParting(p)
	if p.network && !p.onNodesNetwork() {
		if err := fabric.RemovePod(p.node.Node, e.dir.podNetNS(p), p.port); err != nil {
			e.log.Error("remove the pod's network", "namespace", p.namespace, "pod", p.name, "err", err)
		}
	}
	if err := os.RemoveAll(e.dir.pod(p.namespace, p.name)); err != nil {
		e.log.Error("remove the pod's directory", "namespace", p.namespace, "pod", p.name, "err", err)
	}
	e.state.update(func() {
		e.state.pods = slices.DeleteFunc(e.state.pods, func(o *pod) bool { return o == p })
		if !p.onNodesNetwork() {
			p.node.ips.release(p.ip)
		}
	})
	close(p.done)
}

// drain waits until nobody is sent to a pod any more. told is closed once the lists of endpoints are written without it.
func (e *Engine) drain(p *pod, told <-chan struct{}) {
	patience := time.NewTimer(tellPatience)
	defer patience.Stop()
	select {
	case <-told:
	case <-patience.C:
		e.log.Warn("a pod is asked to end before the lists of endpoints are without it", "namespace", p.namespace, "pod", p.name, "after", tellPatience)
	}
	time.Sleep(drainDelay)
}

// awaitParting has the node's agent take a pod that has ended back from the proxy before its network goes: what peers are not
// told by then they wait for in vain.
func (e *Engine) awaitParting(p *pod) {
	wait := false
	e.state.update(func() {
		p.ended = true
		// A pod without redirection may still have meshed connections; agents answer for every pod.
		watched := false
		for w := range e.watchers {
			watched = watched || w.node == p.node.name
		}
		wait = watched && p.network && !p.onNodesNetwork() && !e.state.stopping
	})
	if !wait {
		return
	}
	patience := time.NewTimer(endedPatience)
	defer patience.Stop()
	select {
	case <-p.parted:
	case <-patience.C:
		e.log.Warn("a pod's network goes before its peers have heard that it ended", "namespace", p.namespace, "pod", p.name, "after", endedPatience)
	}
}

// grace is how long a pod may take to end. When the whole mesh ends nobody waits for the slowest.
func (e *Engine) grace(p *pod) time.Duration {
	g := time.Duration(podspec.GraceSeconds(&p.spec)) * time.Second
	e.state.mu.Lock()
	defer e.state.mu.Unlock()
	if p.graceLimit != nil {
		g = *p.graceLimit
	}
	if e.state.stopping {
		return min(g, downGrace)
	}
	return g
}

// downGrace bounds every pod's grace period when the mesh ends.
const downGrace = 3 * time.Second

func (e *Engine) commandOf(p *pod, c *container) (podinit.Command, error) {
	e.state.mu.Lock()
	facts := podspec.Facts{
		Name: p.name, Namespace: p.namespace, UID: p.uid, Labels: p.labels, Annotations: p.annotations,
		PodIP: p.ip.String(), PodIPs: texts(p.ips), HostIP: p.node.IP().String(), HostIPs: texts(p.node.IPs()), NodeName: p.node.name, ServiceAccount: p.serviceAccount(),
		Base: []string{"PATH=" + podBinDir + ":" + e.path, "HOME=/tmp", "HOSTNAME=" + p.hostname()},
	}
	e.state.mu.Unlock()
	if p.dir != "" {
		facts.Base = append(facts.Base, "LATEEN_MANIFEST_DIR="+podManifestDir)
	}
	cmd, err := podspec.CommandOf(c.spec, facts)
	if err != nil {
		return podinit.Command{}, err
	}
	return podinit.Command{Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, UID: p.unixUID}, nil
}
