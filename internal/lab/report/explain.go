package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"lateen.dev/lateen/internal/lab/results"
)

// Explain writes, for every scenario, what was counted that tells why times and costs differ. It says nothing that was not
// counted; where nothing was, it says that.
func Explain(w io.Writer, r *results.Results) error {
	p := printer{w: w}
	for i := range r.Scenarios {
		o := &r.Scenarios[i]
		p.line("## %s", markdown(clean(strings.TrimSuffix(o.Scenario+": "+o.Title, ": "))))
		p.line("")
		cells, general := explanations(digests(r, o), o)
		items := len(general)
		for _, c := range cells {
			p.line("### %s", markdown(c.title))
			p.line("")
			for _, item := range c.items {
				p.line("- %s", markdown(item))
				items++
			}
			p.line("")
		}
		for _, item := range general {
			p.line("- %s", markdown(item))
		}
		if items == 0 {
			p.line("Nothing was counted that would explain a difference: system calls, sleeps and delayed acknowledgements are absent from the results.")
		}
		p.line("")
	}
	return p.err
}

// explanations are what explain says of each cell where there are several, and what is about the scenario or its only cell.
func explanations(ds []digest, o *results.Outcome) (cells []section, general []string) {
	for i := range ds {
		items := explain(&ds[i])
		switch {
		case len(ds) == 1:
			general = items
		case len(items) > 0:
			cells = append(cells, section{title: clean(ds[i].cell.Name), items: items})
		}
	}
	for _, n := range o.Notes {
		general = append(general, clean(n))
	}
	return cells, general
}

// A difference in what was counted is worth a sentence from here on.
const (
	fewerCalls   = 0.25 // calls per request
	worthSleeps  = 0.25 // sleeps per request
	worthConnect = 0.02 // ms
)

// Linux holds an acknowledgement back for 40 ms at first; what waits for it ends a little later.
const stallFrom, stallTo = 38.0, 60.0

// explain says in words what was counted in a cell.
func explain(d *digest) []string {
	base := d.side(d.baseline)
	if base == nil {
		return nil
	}
	var said []string
	say := func(format string, args ...any) {
		said = append(said, fmt.Sprintf(format, args...))
	}
	explainStall(d, base, say)
	for i := range d.sides {
		if s := &d.sides[i]; s != base && !alike(base.plane, s.plane) {
			explainCalls(base, s, say)
			explainSleeps(base, s, say)
			explainConnections(d, base, s, say)
			explainCPU(base, s, say)
		}
	}
	return said
}

type sayer func(format string, args ...any)

// stalled tells how a side's times show the timer of a delayed acknowledgement, empty if they do not.
func stalled(s *side) string {
	if p50, ok := s.get(results.ServiceP50); ok && p50 >= stallFrom && p50 < stallTo {
		return fmt.Sprintf("half of the requests took more than %s ms from sending to answer", number(p50))
	}
	if at := shareBetween(s.pooled, stallFrom, stallTo); at >= 0.1 {
		return fmt.Sprintf("%.0f %% of the response times lie between %.0f and %.0f ms", 100*at, stallFrom, stallTo)
	}
	return ""
}

func explainStall(d *digest, base *side, say sayer) {
	cause := " That is what a server meets that writes an answer in pieces without TCP_NODELAY: its kernel keeps a piece back until the one before is acknowledged."
	for i := range d.sides {
		s := &d.sides[i]
		if alike(base.plane, s.plane) {
			continue
		}
		times := stalled(s)
		acks, counted := results.DelayedACKs(s.get)
		switch {
		case times != "" && counted && acks >= results.ManyDelayedACKs:
			say("%s waits for delayed acknowledgements: the kernels counted %s for each request, held back until a timer of 40 ms ran out, and %s.%s", s.spoken(), number(acks), times, cause)
			cause = "" // once is enough
		case times != "" && counted:
			say("with %s %s, which looks like the 40 ms timer of a delayed acknowledgement; but the kernels of both ends counted only %s for each request.", s.spoken(), times, number(acks))
		case times != "":
			say("with %s %s, near the 40 ms after which a kernel sends a delayed acknowledgement; those were not counted in this run, so that it may be the service itself.", s.spoken(), times)
		case counted && s != base && stalled(base) != "":
			if was, ok := results.DelayedACKs(base.get); ok && was >= results.ManyDelayedACKs && acks < was/2 {
				say("with %s the kernels counted %s delayed acknowledgements for each request instead of %s, and the times show no stall of 40 ms: what the server's kernel waits for comes at once.", s.spoken(), number(acks), number(was))
			}
		}
	}
}

func explainCalls(base, s *side, say sayer) {
	at := func(s *side, role, call string) float64 {
		if v, ok := s.get(results.SyscallsPerRequest(role, call)); ok {
			return v
		}
		return math.NaN()
	}
	reads, were := at(s, results.RoleGenerator, results.CallsReads), at(base, results.RoleGenerator, results.CallsReads)
	writes := at(s, results.RoleApp, results.CallsWrites)
	if were-reads >= fewerCalls {
		text := fmt.Sprintf("with %s the client reads %s times for each answer instead of %s", s.spoken(), number(reads), number(were))
		if writes >= 2-fewerCalls {
			text += fmt.Sprintf(", although the application makes %s writes per request (its log is among them): what was written in pieces arrives together", number(writes))
		}
		say("%s.", text)
	} else if reads-were >= fewerCalls {
		say("with %s the client reads %s times for each answer instead of %s: answers arrive in more pieces.", s.spoken(), number(reads), number(were))
	}
	if r, w := at(s, results.RoleProxies, results.CallsReads), at(s, results.RoleProxies, results.CallsWrites); r+w > 0 {
		text := fmt.Sprintf("the proxies of %s together read %s times and write %s times for each request", s.spoken(), number(r), number(w))
		if all := at(s, results.RoleProxies, results.CallsAll); all > 0 {
			text += fmt.Sprintf(", of %s system calls", number(all))
		}
		say("%s.", text)
	}
	mine, ok := s.get(allCalls(results.RoleGenerator))
	theirs, okBase := base.get(allCalls(results.RoleGenerator))
	if ok && okBase && theirs > 0 && math.Abs(mine/theirs-1) >= 0.1 {
		say("the client makes %s system calls for each request with %s and %s with %s (%s).", number(mine), s.spoken(), number(theirs), base.spoken(), change(mine/theirs, asFactors(mine/theirs)))
	}
}

func explainSleeps(base, s *side, say sayer) {
	mine, ok := s.get(results.SwitchesPerRequest(results.RoleApp))
	theirs, okBase := base.get(results.SwitchesPerRequest(results.RoleApp))
	if ok && okBase && math.Abs(mine-theirs) >= worthSleeps {
		say("the application is woken %s times for each request with %s and %s times with %s.", number(mine), s.spoken(), number(theirs), base.spoken())
	}
}

func explainConnections(d *digest, base, s *side, say sayer) {
	if d.cell.Untimed {
		return
	}
	mine, ok := s.get(results.ConnectP50)
	theirs, okBase := base.get(results.ConnectP50)
	if !d.cell.Load.Keepalive && ok && okBase && math.Abs(mine-theirs) >= worthConnect {
		say("every request opens a connection; at the client that takes %s ms (P50) with %s and %s ms with %s. What the planes do behind an accepted connection, handshakes among it, is in the service time.",
			number(mine), s.spoken(), number(theirs), base.spoken())
	}
	if v, ok := s.get(results.HandshakesPerRequest); ok {
		switch {
		case d.cell.Load.Keepalive && v < 0.01: // connections that are kept say nothing
		case d.cell.Load.Keepalive:
			say("the proxies of %s make %s TLS handshakes for each request, on connections that stay open.", s.spoken(), number(v))
		case v == 0:
			say("the proxies of %s make no TLS handshake, although each request opens a connection: connections share tunnels that are there already.", s.spoken())
		case v < 0.5:
			say("the proxies of %s make %s TLS handshakes for each request, although each opens a connection: connections share tunnels that are there already.", s.spoken(), number(v))
		default:
			say("the proxies of %s make %s TLS handshakes for each request, each of which opens a connection.", s.spoken(), number(v))
		}
	}
}

func explainCPU(base, s *side, say sayer) {
	proxies, ok := s.get(cpuTotal(results.RoleProxies))
	if !ok || proxies <= 0 {
		return
	}
	text := fmt.Sprintf("the proxies of %s use %s µs of CPU time for each request", s.spoken(), number(proxies))
	if system, ok := s.get(results.CPUPerRequest(results.RoleProxies, "system")); ok {
		text += fmt.Sprintf(", %.0f %% of it in the kernel", 100*min(1, system/proxies))
		share := s.split[results.RoleProxies]
		if low, high := 100*(1-share.High), 100*(1-share.Low); high-low >= 1 {
			text += fmt.Sprintf(" (%.0f to %.0f %%)", low, high)
		}
	}
	if v, ok := s.get(results.SwitchesPerRequest(results.RoleProxies)); ok {
		text += fmt.Sprintf(", and go to sleep and are woken %s times", number(v))
	}
	gen, okGen := s.get(cpuTotal(results.RoleGenerator))
	genBase, okGenBase := base.get(cpuTotal(results.RoleGenerator))
	app, okApp := s.get(cpuTotal(results.RoleApp))
	appBase, okAppBase := base.get(cpuTotal(results.RoleApp))
	if okGen && okGenBase && okApp && okAppBase {
		text += fmt.Sprintf("; client and application together use %s instead of %s µs", number(gen+app), number(genBase+appBase))
	}
	say("%s.", text)
}
