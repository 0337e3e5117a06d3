package kubelet

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"lateen.dev/lateen/internal/agent/cgroup"
	"lateen.dev/lateen/internal/agent/redirect"
)

const (
	// watch is the time between two looks at whether the kubelet still is the one that is known: its cgroup may be
	// another after a restart, and probes would not pass.
	watch = time.Second
	// verify is the time between two looks at the rules.
	verify = 30 * time.Second
	// retry is the time after which rules that could not be written are tried again; it doubles up to watch. Others change the node's
	// rules, too, and a listing that is interrupted by that fails, while pods may be waiting.
	retry = 20 * time.Millisecond
)

// rules are those of the node's network.
type rules interface {
	// Pose lets the prober's connections to the targets pass, or, if these are nil, to those that stand; and nobody else use the probe addresses.
	Pose(p redirect.Prober, targets []netip.AddrPort) (changed bool, err error)
	// Guard lets nobody use them at all.
	Guard() (changed bool, err error)
	// Bridges lets nothing that comes to a bridge have them.
	Bridges() (changed bool, err error)
}

// kernel has the rules of this node.
type kernel struct{}

func (kernel) Pose(p redirect.Prober, targets []netip.AddrPort) (bool, error) {
	return redirect.PoseProbes(p, targets)
}
func (kernel) Guard() (bool, error)   { return redirect.GuardProbes(redirect.Prober{}) }
func (kernel) Bridges() (bool, error) { return redirect.GuardBridges() }

// Prober keeps the rules that let the kubelet's probes pass captured pods.
type Prober struct {
	names   []string
	proc    string
	log     *slog.Logger
	failed  func()
	repairs func()
	rules   rules

	wake    chan struct{}
	changed chan struct{}

	mu       sync.Mutex
	targets  []netip.AddrPort        // nil until they are known; the rules of an earlier agent's targets stay until then
	standing map[netip.AddrPort]bool // the targets that the rules were last written for
	blind    bool                    // there is no kubelet whose probes could pass

	// The fields below belong to Run.
	known    process
	failures int               // attempts in a row that failed
	said     map[string]string // the last obstacle that was logged, by the step that it blocks
	fresh    bool              // the rules are about to be made for a kubelet that was just found
	verified time.Time
}

// New makes a prober; Run starts it. failed and repaired are told of rules that could not be written, and of those that
// somebody else had changed.
func New(names []string, log *slog.Logger, failed, repaired func()) *Prober {
	return &Prober{
		names: names, proc: "/proc", log: log, failed: failed, repairs: repaired, rules: kernel{},
		wake: make(chan struct{}, 1), changed: make(chan struct{}, 1), said: map[string]string{},
	}
}

// Set says which addresses are probed of pods that are captured or about to be.
func (p *Prober) Set(targets []netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.targets != nil && slices.Equal(p.targets, targets) {
		return
	}
	p.targets = append([]netip.AddrPort{}, targets...)
	// An address that is no longer probed is about to lose its rule. The next pod at that address then has none.
	p.standing = among(p.standing, p.targets)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// among are those of a set that are in a list, too.
func among(set map[netip.AddrPort]bool, list []netip.AddrPort) map[netip.AddrPort]bool {
	out := make(map[netip.AddrPort]bool, len(list))
	for _, t := range list {
		if set[t] {
			out[t] = true
		}
	}
	return out
}

// Stand says whether the rules let the kubelet's probes pass to all of the targets, which Set has named. Where there is no kubelet nothing
// will, and nothing is to be waited for.
func (p *Prober) Stand(targets []netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.blind || !slices.ContainsFunc(targets, func(t netip.AddrPort) bool { return !p.standing[t] })
}

// Changed has a value when Stand may have come to say something else.
func (p *Prober) Changed() <-chan struct{} { return p.changed }

// stands notes what Stand is to say.
func (p *Prober) stands(note func()) {
	p.mu.Lock()
	note()
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Run keeps the rules until ctx ends. They stay then: the kubelet probes on without an agent.
func (p *Prober) Run(ctx context.Context) {
	for {
		p.look()
		if now := time.Now(); p.fresh || now.Sub(p.verified) >= verify {
			p.keep(now)
		}
		pause := watch
		if p.failures > 0 {
			pause = min(retry<<min(p.failures-1, 10), watch)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-p.wake:
			p.verified = time.Time{}
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// look finds the kubelet, unless the one that is known still runs.
func (p *Prober) look() {
	if p.known.PID != 0 && p.known.alive(p.proc) {
		return
	}
	found, err := find(p.proc, p.names)
	if p.says("find", err) && err != nil {
		p.log.Warn("probes of captured pods are subject to policy", "err", err)
	}
	if err != nil && p.known.PID == 0 && !p.blind { // reported once, since each report makes the listener look at all pods
		p.stands(func() { p.blind = true })
	}
	if err == nil {
		p.log.Info("the kubelet's probes pass captured pods, and so does "+found.limits(), "pid", found.PID)
		p.known, p.fresh = found, true
		p.stands(func() { p.blind = false })
	}
}

// keep makes the rules be what they should. What fails is tried again at the next look.
func (p *Prober) keep(now time.Time) {
	var changed bool
	write := func() (err error) {
		changed, err = p.rules.Guard()
		return err
	}
	var targets []netip.AddrPort
	if p.known.PID != 0 {
		p.mu.Lock()
		targets = p.targets
		p.mu.Unlock()
		write = func() error {
			return cgroup.AsInit(p.proc, func() (err error) {
				changed, err = p.rules.Pose(p.known.prober(), targets)
				return err
			})
		}
	}
	// Rules that were made for another kubelet, or before there was one, are not damaged.
	first := p.fresh || p.known.PID == 0
	err := write()
	if err != nil {
		p.failures++
		p.failed()
		if p.says("pose", err) {
			p.log.Error("let the kubelet's probes pass", "err", err)
		}
		return
	}
	p.failures = 0
	p.says("pose", nil)
	if p.known.PID != 0 {
		written := make(map[netip.AddrPort]bool, len(targets))
		for _, t := range targets {
			written[t] = true
		}
		p.stands(func() { p.standing = among(written, p.targets) })
	}
	bridges, err := p.rules.Bridges()
	if p.says("bridges", err) && err != nil {
		// Most networks have no bridges that the node's rules do not see.
		p.log.Warn("pods on a common bridge of this node may pose as its prober", "err", err)
	}
	if (changed || bridges) && !first {
		p.repairs()
		p.log.Warn("repaired the rules for probes: somebody else changed them")
	}
	p.verified, p.fresh = now, false
}

// says notes what is in the way of something, or that nothing is, and whether that is news.
func (p *Prober) says(what string, err error) (news bool) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	news = p.said[what] != text
	p.said[what] = text
	return news
}
