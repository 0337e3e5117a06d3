package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

type reportResult struct {
	uid    string
	report source.Report
	err    error
}

// due is what the engine should know of the pod.
func (p *pod) due(explain time.Duration, now time.Time) source.Report {
	switch {
	case p.parted:
		return source.Report{State: source.Parted}
	case p.Ended:
		return p.told
	case p.state == Captured:
		return source.Report{State: source.Enabled, Error: strings.Join(p.refused, "; ")}
	case p.want && !now.Before(p.wantSince.Add(explain)):
		return source.Report{State: source.Disabled, Error: p.why(now)}
	case p.want && p.told.State == source.Disabled:
		// The state has not lasted long enough for a report; the former report stays.
		return p.told
	}
	return source.Report{State: source.Disabled}
}

// report tells the engine what it does not know yet. One report of a pod is under way at a time, so that the last one
// sent is the last one received.
func (a *Agent) report(ctx context.Context, p *pod, now time.Time) {
	report := p.due(a.opts.Explain, now)
	if report.State == source.Disabled && p.want && a.heldByIstio(p) {
		return
	}
	if !p.observed && !p.parted && !p.working || p.reporting || report == p.told && !p.repeat || now.Before(p.reportAt) {
		return
	}
	// The end of a pod is nobody's write, and somebody waits for it.
	if report.State != source.Parted && !p.writes.take(now) {
		return
	}
	p.reporting, p.repeat = true, false
	uid := p.UID
	a.reports.Go(func() {
		err := a.source.Report(ctx, uid, report)
		select {
		case a.reported <- reportResult{uid: uid, report: report, err: err}:
		case <-ctx.Done():
		}
	})
}

// heldByIstio says whether a pod is captured by an Istio whose place is about to be taken. While this mesh has no proxy yet, what Istio wrote is
// true, and peers that were told otherwise would send in clear.
func (a *Agent) heldByIstio(p *pod) bool {
	return a.opts.Alone != nil && !a.opts.Alone() && p.Annotations[wellknown.Redirection] == string(source.Enabled)
}

// relieve finds out which pods an Istio holds that are not captured yet. Whoever takes its place waits for the agents to be ready before
// anything of Istio's goes, so until there are none the agent is not.
func (a *Agent) relieve() {
	before := a.held.Load()
	if before == nil || !a.ready.Load() {
		return
	}
	var held []string
	for _, p := range a.pods {
		// A pod without a network is not held by Istio, whatever its annotation says: the author of a pod can write the annotation.
		networked := p.NetNS != "" || p.IP != ""
		if p.want && p.state != Captured && networked && !p.Ended && !p.Terminating && a.heldByIstio(p) {
			held = append(held, p.Namespace+"/"+p.Name)
		}
	}
	if len(held) == 0 {
		a.held.Store(nil)
		return
	}
	slices.Sort(held)
	if len(*before) == 0 {
		a.log.Info(fmt.Sprintf("the agent is ready once it has captured the pods that Istio holds: %d, this one among them", len(held)), "pod", held[0])
	}
	a.held.Store(&held)
}

// settle notes how a report went.
func (a *Agent) settle(r reportResult, now time.Time) {
	p := a.pods[r.uid]
	if p == nil {
		return
	}
	p.reporting = false
	if errors.Is(r.err, source.ErrGone) {
		r.err = nil // there is nothing more to say
	}
	if r.report.State != source.Parted {
		p.writes.went(r.err, now)
	}
	if r.err != nil {
		a.metrics.captureError(stepReport)
		a.log.Warn("the engine does not know of a pod's redirection yet", "pod", p.Namespace+"/"+p.Name, "state", r.report.State, "err", r.err)
		p.reportAt = now.Add(retryFirst)
		return
	}
	p.told, p.reportAt = r.report, time.Time{}
}
