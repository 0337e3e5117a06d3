package cpscale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/results"
)

// measurement is one under way.
type measurement struct {
	Options
	next    func() (resource string, change func() error)
	control *control
	fleet   *fleet
	plane   string
	facts   []results.Fact
}

// Groups of facts: the columns of the table.
const (
	atStart = "start"
	atRest  = "at rest"
)

func changes(rate float64) string {
	if rate == 1 {
		return "1 change/s"
	}
	return strconv.FormatFloat(rate, 'g', 4, 64) + " changes/s"
}

// fact notes a number. promised is the most that the design allows, 0 where it says nothing; it is about a mesh of a certain size.
func (m *measurement) fact(group, name string, value float64, unit string, promised float64, note string) {
	if m.Services < promisedServices || m.Proxies < promisedProxies {
		promised = 0
	}
	m.facts = append(m.facts, results.Fact{Plane: m.plane, Group: group, Name: name, Value: value, Unit: unit, Target: promised, Note: note})
}

// OthersShare names the fact of how much of the machine, in hundredths, was not the measurement's own in a setting.
const OthersShare = "other processes and hypervisor"

// Names of facts.
const (
	factCPU       = "CPU"
	factUser      = "of it user"
	factSystem    = "of it system"
	factMemory    = "memory (PSS)"
	factEach      = "until a proxy has a change, "
	factLast      = "until the last proxy has a change, "
	factAnswered  = "until a proxy has a change that the API server has taken, "
	answeredNote  = "from the API server's answer to the write to the proxy's acknowledgement"
	factRSS       = "memory (RSS)"
	factOther     = OthersShare
	factHarness   = "CPU of the proxies together"
	memoryAnchor  = "PSS of the control plane at the end of the setting"
	ackNote       = "from before the file is written to the proxy's acknowledgement, over all changes and proxies; those of one change are not independent"
	lastNote      = "over changes; a percentile needs 100 of them beyond it"
	patience      = 2 * time.Minute
	samplesBeyond = 100
)

// sample is a look at the books.
type sample struct {
	at            time.Time
	control, self procstat.Usage
	machine       procstat.Machine
	bytes         int64
}

func (m *measurement) look() (sample, error) {
	used, err := m.Account.Read([]int{m.control.cmd.Process.Pid, os.Getpid()})
	if err != nil {
		return sample{}, err
	}
	machine, err := m.Account.Machine()
	if err != nil {
		return sample{}, err
	}
	control, running := used[m.control.cmd.Process.Pid]
	if !running {
		return sample{}, errors.New("the control plane ended: " + m.control.said.String())
	}
	s := sample{at: time.Now(), control: control, self: used[os.Getpid()], machine: machine}
	if m.fleet != nil {
		s.bytes, _ = m.fleet.received()
	}
	return s, nil
}

// charge notes what the control plane used between two looks.
func (m *measurement) charge(group string, before, after sample, promised bool) error {
	passed := after.at.Sub(before.at).Seconds()
	used := after.control.Sub(before.control)
	cores := used.CPU.Seconds() / passed
	limit := func(v float64) float64 {
		if promised {
			return v
		}
		return 0
	}
	m.fact(group, factCPU, cores, "cores", limit(promisedCores), "")
	// By ticks alone the split would be chance: the changes come at a rate, and may be in step with them.
	if both := used.User + used.System; both > 0 && m.ExactSplit {
		user := float64(used.User) / float64(both)
		m.fact(group, factUser, cores*user, "cores", 0, "")
		m.fact(group, factSystem, cores*(1-user), "cores", 0, "")
	}
	pss, err := m.Account.PSS([]int{m.control.cmd.Process.Pid})
	if err != nil {
		return err
	}
	m.fact(group, factMemory, float64(pss[m.control.cmd.Process.Pid])/1e6, "MB", limit(promisedMB), memoryAnchor)
	if rss, err := residentBytes(m.control.cmd.Process.Pid); err == nil {
		m.fact(group, factRSS, float64(rss)/1e6, "MB", 0, memoryAnchor)
	}
	own := used.CPU + after.self.Sub(before.self).CPU
	m.fact(group, factHarness, after.self.Sub(before.self).CPU.Seconds()/passed, "cores", 0, "this program's own; it shares the processors with the control plane")
	shares, err := procstat.SharesOf(before.machine, after.machine, own)
	if err != nil {
		return err
	}
	m.fact(group, factOther, 100*(shares.Other+shares.Steal), "% of the machine", 0, "")
	return nil
}

// residentBytes is what the kernel says of a process's pages in memory, those included that others share.
func residentBytes(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, err
	}
	return resident * int64(os.Getpagesize()), nil
}

// connect brings all proxies to where they have everything.
func (m *measurement) connect(ctx context.Context) error {
	m.Progress(fmt.Sprintf("connect %d proxies", m.Proxies))
	m.fleet = newFleet(m.Proxies)
	before, err := m.look()
	if err != nil {
		return err
	}
	if err := m.fleet.connect(ctx, m.control.address, m.control.tls, m.control.token); err != nil {
		m.fleet.close()
		return err
	}
	m.Progress("wait until all proxies have everything")
	done := make(chan struct{})
	go func() { <-m.fleet.complete; close(done) }()
	if err := m.fleet.wait(ctx, "all proxies to have everything", 5*time.Minute, done); err != nil {
		m.fleet.complete <- time.Now() // nobody waits for it any more
		m.fleet.close()
		return err
	}
	after, err := m.look()
	if err != nil {
		m.fleet.close()
		return err
	}
	passed := after.at.Sub(before.at).Seconds()
	m.fact(atStart, "until all proxies have everything", passed, "s", 0, "from the first connection")
	m.fact(atStart, "sent to each proxy", float64(after.bytes-before.bytes)/float64(m.Proxies)/1e3, "kB", 0, "")
	m.fact(atStart, "CPU time", after.control.Sub(before.control).CPU.Seconds(), "s", 0, "handshakes, tokens and the first answers")
	return m.charge(atStart, before, after, false)
}

// settleTime is left to the control plane's collector after the proxies have come, before anything is measured.
const settleTime = 3 * time.Second

func (m *measurement) rest(ctx context.Context) error {
	m.Progress("measure at rest")
	if err := m.pause(ctx, settleTime); err != nil {
		return err
	}
	before, err := m.look()
	if err != nil {
		return err
	}
	if err := m.pause(ctx, time.Duration(m.Rest*float64(time.Second))); err != nil {
		return err
	}
	after, err := m.look()
	if err != nil {
		return err
	}
	return m.charge(atRest, before, after, true)
}

// pause waits; a proxy that is lost meanwhile ends it.
func (m *measurement) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case err := <-m.fleet.failed:
		return fmt.Errorf("a proxy lost its stream: %w", err)
	case <-m.control.ended:
		return errors.New("the control plane ended: " + m.control.said.String())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// churn makes changes at a rate, on time whether the earlier ones have arrived or not.
func (m *measurement) churn(ctx context.Context, rate float64) error {
	group := changes(rate)
	count := max(1, int(rate*m.Seconds))
	m.Progress(fmt.Sprintf("%s for %g s", group, m.Seconds))
	before, err := m.look()
	if err != nil {
		return err
	}
	var made []*change
	late := []time.Duration{}
	for i := range count {
		due := before.at.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if err := m.pause(ctx, max(0, time.Until(due))); err != nil {
			return err
		}
		late = append(late, max(0, time.Since(due)))
		resource, write := m.next()
		c, err := m.fleet.expect(resource)
		if err != nil {
			return fmt.Errorf("%s: %w", group, err)
		}
		if err := write(); err != nil {
			return fmt.Errorf("change an object: %w", err)
		}
		c.written = time.Since(c.made)
		made = append(made, c)
	}
	for _, c := range made {
		if err := m.fleet.wait(ctx, "all proxies to have a change", patience, c.done); err != nil {
			return fmt.Errorf("%s: %w", group, err)
		}
	}
	// As long as the changes take, also where the last one arrives at once.
	if err := m.pause(ctx, max(0, time.Until(before.at.Add(time.Duration(m.Seconds*float64(time.Second)))))); err != nil {
		return err
	}
	after, err := m.look()
	if err != nil {
		return err
	}
	if err := m.charge(group, before, after, true); err != nil {
		return err
	}
	m.fact(group, "changes", float64(count), "", 0, "nine in ten are a pod that becomes ready or unready, one a service's port")
	m.fact(group, "sent for a change to each proxy", float64(after.bytes-before.bytes)/float64(count)/float64(m.Proxies), "bytes", 0, "within TLS")
	m.fact(group, "CPU time for a change", after.control.Sub(before.control).CPU.Seconds()*1e3/float64(count), "ms", 0, "")
	m.delays(group, made)
	slices.Sort(late)
	m.fact(group, "changes made late by, at most", late[len(late)-1].Seconds()*1e3, "ms", 0, "this program's own lateness; it is not in the times above")
	return nil
}

// delays notes how long the changes took.
func (m *measurement) delays(group string, made []*change) {
	var each, last, after []float64
	for _, c := range made {
		slowest := 0.0
		for i := range c.delays {
			d := float64(c.delays[i].Load()) / 1e6
			each = append(each, d)
			slowest = max(slowest, d)
			after = append(after, max(0, d-float64(c.written)/1e6))
		}
		last = append(last, slowest)
	}
	if m.Kubeconfig != "" {
		slices.Sort(after)
		for _, p := range []float64{50, 99} {
			if v, ok := percentile(after, p); ok {
				m.fact(group, factAnswered+"P"+strconv.FormatFloat(p, 'g', -1, 64), v, "ms", 0, answeredNote)
			}
		}
	}
	slices.Sort(each)
	slices.Sort(last)
	for _, p := range []float64{50, 99} {
		promised := 0.0
		if p == 99 {
			promised = promisedMillis
		}
		if v, ok := percentile(each, p); ok {
			m.fact(group, factEach+"P"+strconv.FormatFloat(p, 'g', -1, 64), v, "ms", promised, ackNote)
		}
		if v, ok := percentile(last, p); ok {
			m.fact(group, factLast+"P"+strconv.FormatFloat(p, 'g', -1, 64), v, "ms", promised, lastNote)
		}
	}
	sum := 0.0
	for _, v := range last {
		sum += v
	}
	m.fact(group, factLast+"mean", sum/float64(len(last)), "ms", 0, "over changes")
	m.fact(group, factLast+"longest", last[len(last)-1], "ms", 0, "of all changes")
}

// percentile is one of sorted values, unless fewer than 100 lie beyond it.
func percentile(sorted []float64, p float64) (float64, bool) {
	n := len(sorted)
	rank := int(float64(n)*p/100 + 0.5)
	if n == 0 || n-rank < samplesBeyond {
		return 0, false
	}
	return sorted[max(0, rank-1)], true
}
