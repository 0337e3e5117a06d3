package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/engine/local/podinit"
	"lateen.dev/lateen/internal/engine/local/proc"
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

// lifecycle takes pods from birth to end. Its fields never change; the state's lock guards what changes of pods and containers.
type lifecycle struct {
	state    *state
	feed     *agentFeed
	commands *podCommands
	prober   *prober
	tokens   *podTokens
	dir      runDir
	exe      string     // this program
	resolver netip.Addr // of names, which pods ask
	reaper   *proc.Reaper
	log      *slog.Logger
}

func newLifecycle(s *state, feed *agentFeed, commands *podCommands, tokens *podTokens, dir runDir, exe string, resolver netip.Addr, reaper *proc.Reaper, log *slog.Logger) *lifecycle {
	return &lifecycle{state: s, feed: feed, commands: commands, prober: newProber(s, commands), tokens: tokens, dir: dir, exe: exe,
		resolver: resolver, reaper: reaper, log: log}
}

// run takes a pod from birth to end.
func (l *lifecycle) run(ctx context.Context, p *pod) {
	err := l.bear(ctx, p)
	if err == nil {
		err = l.runContainers(ctx, p)
	}
	if err != nil && ctx.Err() == nil {
		l.log.Error("pod failed", "namespace", p.id.namespace, "pod", p.id.name, "err", err)
		l.state.update(func() { p.phase, p.reason = corev1.PodFailed, err.Error() })
	}
	// A pod whose work is done keeps its name and logs until it is deleted.
	<-ctx.Done()
	l.end(p)
}

// bear gives a pod its network and its view of the machine, and waits until it may start.
func (l *lifecycle) bear(ctx context.Context, p *pod) error {
	dir := l.dir.pod(p.id.namespace, p.id.name)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := p.id.writeFiles(dir, l.resolver); err != nil {
		return err
	}
	if p.id.ownName {
		if err := l.tokens.give(&p.id); err != nil {
			return err
		}
	}
	if !p.id.onNodesNetwork() {
		if err := fabric.AddPod(p.id.node.Node, l.dir.podNetNS(&p.id), p.id.port, p.id.ips...); err != nil {
			return fmt.Errorf("make the pod's network: %w", err)
		}
	}
	l.state.update(func() { p.network = true })
	log, err := os.OpenFile(l.dir.engineLog(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	init, err := podinit.Spawn(ctx, l.reaper, l.dir.podNetNS(&p.id), l.exe, []string{"lateen", PodVerb, p.id.namespace + "/" + p.id.name}, log, p.id.view(dir, l.dir.bin(), l.dir.roots()))
	if err != nil {
		return err
	}
	l.state.update(func() { p.init = init })
	return l.awaitCapture(ctx, p)
}

// awaitCapture holds a pod back that belongs into the mesh until its traffic is captured: nothing it sends may be in clear.
func (l *lifecycle) awaitCapture(ctx context.Context, p *pod) error {
	for {
		hold := false
		l.state.update(func() {
			hold = l.state.enrolled(p) && !p.redirection.enabled
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
func (l *lifecycle) runContainers(ctx context.Context, p *pod) error {
	for _, c := range p.containers {
		if c.init {
			if err := l.runContainer(ctx, p, c); err != nil {
				return err
			}
		}
	}
	l.state.update(func() { p.phase, p.started = corev1.PodRunning, time.Now() })
	var wg sync.WaitGroup
	errs := make([]error, len(p.containers))
	for i, c := range p.containers {
		if !c.init {
			wg.Go(func() { errs[i] = l.runContainer(ctx, p, c) })
		}
	}
	wg.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := errors.Join(errs...)
	if err == nil {
		l.state.update(func() { p.phase = corev1.PodSucceeded })
	}
	return err
}

// runContainer runs a container again and again as its pod's restart policy says. It returns nil when it has succeeded for
// good, and an error when it has failed for good or ctx ended.
func (l *lifecycle) runContainer(ctx context.Context, p *pod, c *container) error {
	backoff := backoffMin
	for {
		began := time.Now()
		proc, err := l.startContainer(ctx, p, c)
		if err == nil {
			err = l.watchContainer(ctx, p, c, proc)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		policy := p.id.spec.RestartPolicy
		switch {
		case closed(p.init.Done()):
			return errors.New("the pod's first process was killed, and the pod with it")
		case err == nil && (c.init || policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure):
			l.state.update(func() { c.done = true })
			return nil
		case err != nil && policy == corev1.RestartPolicyNever:
			l.state.update(func() { c.done = true })
			return fmt.Errorf("container %s: %w", c.spec.Name, err)
		}
		if time.Since(began) > backoffReset {
			backoff = backoffMin
		}
		why := "it ended, exited with code 0"
		if err != nil {
			why = err.Error()
		}
		l.log.Warn("container will start again", "namespace", p.id.namespace, "pod", p.id.name, "container", c.spec.Name, "why", why, "in", backoff)
		l.state.update(func() {
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

func (l *lifecycle) startContainer(ctx context.Context, p *pod, c *container) (*podinit.Process, error) {
	cmd, err := l.commands.of(p, c)
	if err != nil {
		return nil, err
	}
	// The pipe belongs to the pod's user, so that the container can open /dev/stdout.
	output, err := c.log.Pipe(p.id.unixUID)
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
	l.state.update(func() {
		c.output = output
		c.process, c.started, c.waiting, c.message = proc, time.Now(), "", ""
		c.ready = !c.init && c.spec.ReadinessProbe == nil
	})
	return proc, nil
}

// watchContainer waits for a container's end, probing it meanwhile. A nil error is an exit with code 0.
func (l *lifecycle) watchContainer(ctx context.Context, p *pod, c *container, proc *podinit.Process) error {
	if c.spec.ReadinessProbe != nil && !c.init {
		probing, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { l.prober.follow(probing, p, c) })
		defer wg.Wait()
		defer cancel()
	}
	select {
	case <-proc.Done():
	case <-ctx.Done():
		return ctx.Err() // end ends the process
	}
	exit := proc.Exit()
	c.output.Drain(drainOutput)
	l.state.update(func() {
		code := exit.Code
		c.process, c.ready, c.finished, c.exitCode, c.lastExit = nil, false, time.Now(), &code, exit.String()
	})
	if exit.Code != 0 {
		return errors.New(exit.String())
	}
	return nil
}
