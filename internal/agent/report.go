package agent

import (
	"context"
	"errors"
	"strings"
	"time"

	"lateen.dev/lateen/internal/agent/source"
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
		return source.Report{State: source.Disabled, Error: p.reason}
	case p.want && p.told.State == source.Disabled:
		// Not long enough to be worth a word; what was said before stands.
		return p.told
	}
	return source.Report{State: source.Disabled}
}

// report tells the engine what it does not know yet. One report of a pod is under way at a time, so that the last one
// sent is the last one received.
func (a *Agent) report(ctx context.Context, p *pod, now time.Time) {
	report := p.due(a.opts.Explain, now)
	if !p.observed && !p.parted || p.reporting || report == p.told && !p.repeat || now.Before(p.reportAt) {
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

// settle notes how a report went.
func (a *Agent) settle(r reportResult, now time.Time) {
	p := a.pods[r.uid]
	if p == nil {
		return
	}
	p.reporting = false
	if r.err != nil && !errors.Is(r.err, source.ErrGone) {
		a.metrics.captureError(stepReport)
		a.log.Warn("the engine does not know of a pod's redirection yet", "pod", p.Namespace+"/"+p.Name, "state", r.report.State, "err", r.err)
		const retry = time.Second
		p.reportAt = now.Add(retry)
		return
	}
	p.told, p.reportAt = r.report, time.Time{}
}
