package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"lateen.dev/lateen/internal/hostile/abuse"
	"lateen.dev/lateen/internal/hostile/cases"
	"lateen.dev/lateen/internal/hostile/report"
)

// compare sends the cases, judges what became of them, and plays clients that mean harm. Or it measures what a polite client beside
// such clients waits for.
func compare(o options, t *tally) error {
	if o.waypoint == "" || o.client == "" || o.upstream == "" {
		return errors.New("name the Service and both network namespaces: -waypoint, -client-netns, -upstream-netns")
	}
	here, err := waypoint(o)
	if err != nil {
		return err
	}
	defer here.close()
	if o.measure > 0 {
		return measure(o, here)
	}
	targets := []*target{here}
	var present []string
	for _, kind := range slices.Sorted(maps.Keys(o.programs)) {
		program := *o.programs[kind]
		if program == "" {
			continue
		}
		other, stop, err := peer(kind, program, o.lanes)
		if err != nil {
			return err
		}
		defer stop()
		targets = append(targets, other)
		present = append(present, string(kind))
	}
	var slow sync.WaitGroup
	if o.abuse {
		playSlow(o, t, here, &slow)
	}
	began := time.Now()
	list := cases.Generate(o.seed, o.cases)
	outcomes, err := sendAll(targets, list, o.lanes)
	if err != nil {
		return err
	}
	fmt.Printf("    %d requests through %d proxies in %.0f s\n", len(list), len(targets), time.Since(began).Seconds())
	if err := judge(o, t, targets, present, list, outcomes); err != nil {
		return err
	}
	if o.abuse {
		play(o, t, here)
	}
	slow.Wait()
	return nil
}

// judge prints what the outcomes come to.
func judge(o options, t *tally, targets []*target, present []string, list []cases.Case, outcomes []map[string]report.Outcome) error {
	text, err := os.ReadFile(o.page)
	if err != nil && !o.write {
		return fmt.Errorf("the page of differences: %w", err)
	}
	var rows []report.Row
	if err == nil {
		if rows, err = report.Parse(string(text)); err != nil {
			return fmt.Errorf("%s: %w", o.page, err)
		}
	}
	page := report.TableOf(rows)
	if err := sendAgain(o, targets, page, list, outcomes); err != nil {
		return err
	}
	observed := report.Observe(list, outcomes)
	if o.write {
		rows = report.Update(page, observed, present, cases.Rules())
		if err := os.WriteFile(o.page, []byte(report.Render(rows)), 0o644); err != nil {
			return err
		}
		page = report.TableOf(rows)
	}
	if len(present) > 0 {
		t.check(report.Unlisted(page, observed), "what reaches the servers behind %s differs as %s says", strings.Join(present, ", "), o.page)
	}
	if len(present) > 0 && o.seed == pageSeed && o.cases == pageCases {
		if err := lookAgain(targets, present, page, observed, list); err != nil {
			return err
		}
		t.check(report.Gone(page, observed, present), "every difference that the page names occurs")
	}
	t.check(report.Unreasoned(rows), "every difference has a reason")
	wrong := targets[0].escaped(list)
	for i, c := range list {
		for _, v := range report.Unexpected(c, outcomes[i][report.Here]) {
			wrong = append(wrong, fmt.Sprintf("%s: %s", describe(c), v))
		}
	}
	t.check(wrong, "%d requests: none reaches the server in another form than it was judged, or is answered otherwise than its rule says", len(list))
	return nil
}

// sendAgain repeats the cases whose answers differ from what is expected, one at a time and with patience: what a busy machine did to
// them does not count. What escaped the first time does.
func sendAgain(o options, targets []*target, page report.Table, list []cases.Case, outcomes []map[string]report.Outcome) error {
	const most = 200
	again := 0
	for i, c := range list {
		expected := len(report.Unexpected(c, outcomes[i][report.Here])) == 0
		for _, t := range targets[1:] {
			d := report.Differences(c, outcomes[i], t.name)
			// The row that is about to be written is not on the page yet.
			isListed := len(d) == 0 || c.Timing || len(c.Rules) > 1 || page.Covers(c.Rules[0], t.name, d) || o.write && !outcomes[i][t.name].Waits()
			expected = expected && isListed
		}
		if expected || again == most {
			continue
		}
		again++
		for _, t := range targets {
			outcome, err := t.send(0, c, moreQuiet)
			if err != nil {
				return err
			}
			outcomes[i][t.name] = outcome
		}
	}
	if again > 0 {
		fmt.Printf("    %d requests were sent once more\n", again)
	}
	return nil
}

// lookAgain repeats the cases of rules whose differences were not all seen, one at a time, and adds what is seen then.
func lookAgain(targets []*target, present []string, page, observed report.Table, list []cases.Case) error {
	gone := report.GoneRules(page, observed, present)
	for _, c := range list {
		if len(c.Rules) != 1 || !slices.Contains(gone, c.Rules[0]) {
			continue
		}
		outcomes := map[string]report.Outcome{}
		for _, t := range targets {
			outcome, err := t.send(0, c, quiet)
			if err != nil {
				return err
			}
			outcomes[t.name] = outcome
		}
		observed.Merge(report.Observe([]cases.Case{c}, []map[string]report.Outcome{outcomes}))
	}
	return nil
}

func describe(c cases.Case) string {
	text := fmt.Sprintf("%q", c.Bytes)
	if len(text) > 300 {
		text = text[:300] + "…"
	}
	return fmt.Sprintf("case %d (%s) %s", c.Number, strings.Join(c.Rules, " + "), text)
}

// playSlow begins with the clients that take longer than a minute.
func playSlow(o options, t *tally, here *target, wait *sync.WaitGroup) {
	for _, c := range abuse.Clients {
		if c.Slow {
			wait.Go(func() { t.said(c, c.Run(here.dialer(o.lanes))) })
		}
	}
}

// play has all other clients mean harm at once and servers one after the other, and a polite client beside them.
func play(o options, t *tally, here *target) {
	polite := abuse.Begin(here.politely(o.lanes), 20*time.Millisecond)
	time.Sleep(3 * time.Second)
	before := polite.Lap()
	var wait sync.WaitGroup
	said := make([]string, len(abuse.Clients))
	for i, c := range abuse.Clients {
		if !c.Slow {
			wait.Go(func() { said[i] = c.Run(here.dialer(0)) })
		}
	}
	heard := make([]string, len(abuse.Servers))
	wait.Go(func() {
		for i, s := range abuse.Servers {
			heard[i] = here.door.Play(here.dialer(o.lanes+1), s)
		}
	})
	var unread int64
	var unreadErr error
	wait.Go(func() { unread, unreadErr = abuse.Unread(here.dialer(1), here.lanes[1]) })
	wait.Wait()
	// The request that is on its way counts, if only its end tells that it starved.
	polite.End()
	during := polite.Lap()
	for i, c := range abuse.Clients {
		if !c.Slow {
			t.said(c, said[i])
		}
	}
	for i, s := range abuse.Servers {
		t.got(s, heard[i])
	}
	// What the kernels and both proxies keep of a connection.
	const most = 64 << 20
	var problems []string
	switch {
	case unreadErr != nil:
		problems = []string{unreadErr.Error()}
	case unread > most:
		problems = []string{fmt.Sprintf("more than %d", most)}
	}
	t.check(problems, "a client that reads nothing of an answer without end: the server can write %d KiB of it", unread>>10)
	starved := slices.Concat(before.Failed, during.Failed)
	if len(before.Times) == 0 || len(during.Times) == 0 {
		starved = append(starved, fmt.Sprintf("it got %d answers before the others began, and %d beside them", len(before.Times), len(during.Times)))
	}
	t.check(starved, "a polite client is answered all along: %d requests, p50 %.1f ms, p99 %.1f ms; before %.1f and %.1f ms", len(during.Times),
		milliseconds(during.Percentile(50)), milliseconds(during.Percentile(99)), milliseconds(before.Percentile(50)), milliseconds(before.Percentile(99)))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (t *tally) said(c abuse.Client, got string) {
	var problems []string
	if got != c.Want {
		problems = []string{"want " + c.Want}
	}
	t.check(problems, "%s: %s", c.Name, got)
}

func (t *tally) got(s abuse.Server, got string) {
	var problems []string
	if got != s.Want {
		problems = []string{"want " + s.Want}
	}
	t.check(problems, "a server with %s: %s", s.Name, got)
}
