package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"lateen.dev/lateen/internal/hostile/abuse"
)

// Times and numbers of a measurement.
const (
	// across is how many connections another client has at a time.
	across = 4
	// block is for how long the polite client is measured beside one other.
	block = 2 * time.Second
	// pause is between two requests of the polite client.
	pause = 5 * time.Millisecond
	// settle is the pause in which connections of the last client end.
	settle = 300 * time.Millisecond
)

// Names of the clients that mean no harm.
const (
	nobody = "nobody"
	busy   = "a busy client that means no harm"
)

// beside are the times of a polite client beside another one.
type beside struct {
	name string
	// run does what the other client does on one connection, and again, until stop is closed. None: there is no other client.
	run func(stop <-chan struct{}) error
	// times of all rounds, and the 99th percentile of each round.
	times []time.Duration
	p99   []time.Duration
}

// measure prints what a polite client waits for beside each other client, as a table in Markdown. In each round the others come one
// after the other, in random order.
func measure(o options, here *target) error {
	rows := others(here.dialer(0))
	for range o.measure {
		for _, i := range rand.Perm(len(rows)) {
			served, err := rows[i].round(here.politely(o.lanes), func() { time.Sleep(block) })
			if err != nil {
				return fmt.Errorf("%s: %w", rows[i].name, err)
			}
			if len(served.Failed) > 0 || len(served.Times) == 0 {
				return fmt.Errorf("beside %s the polite client got %d answers, and failed %d times: %s", rows[i].name, len(served.Times), len(served.Failed),
					strings.Join(slices.Compact(served.Failed), "; "))
			}
			rows[i].times = append(rows[i].times, served.Times...)
			rows[i].p99 = append(rows[i].p99, served.Percentile(99))
		}
	}
	fmt.Print(table(rows))
	return nil
}

// others are all clients beside which a polite one is measured.
func others(dial abuse.Dial) []*beside {
	rows := []*beside{{name: nobody}, {name: busy, run: func(stop <-chan struct{}) error {
		_, err := abuse.Busy(dial, stop)
		return err
	}}}
	for _, c := range abuse.Clients {
		if c.Slow {
			continue
		}
		rows = append(rows, &beside{name: c.Name, run: func(stop <-chan struct{}) error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				if got := c.Run(dial); got != c.Want {
					return fmt.Errorf("the proxy said %s in place of %s", got, c.Want)
				}
			}
		}})
	}
	return rows
}

// round measures a polite client beside this one until wait returns. The polite client sends one request at a time, so a pause of the
// proxy is one of its times, however long it was.
func (b *beside) round(dial abuse.Dial, wait func()) (abuse.Served, error) {
	stop := make(chan struct{})
	var others sync.WaitGroup
	failures := make(chan error, across)
	if b.run != nil {
		for range across {
			others.Go(func() {
				if err := b.run(stop); err != nil {
					failures <- err
				}
			})
		}
	}
	time.Sleep(settle)
	polite := abuse.Begin(dial, pause)
	wait()
	// The request that is on its way counts: it may be the one that waits longest.
	polite.End()
	served := polite.Lap()
	close(stop)
	others.Wait()
	time.Sleep(settle)
	select {
	case err := <-failures:
		return served, err
	default:
		return served, nil
	}
}

// table compares with the busy client. The busy client uses as much of the machine, and means no harm.
func table(rows []*beside) string {
	var out strings.Builder
	out.WriteString("| the other client | requests | p50, ms | p99, ms | p99 of the rounds, ms | p99, of that beside a busy client |\n|---|---|---|---|---|---|\n")
	var base time.Duration
	for _, b := range rows {
		if b.name == busy {
			base = b.percentile(99)
		}
	}
	for _, b := range rows {
		p99 := b.percentile(99)
		fmt.Fprintf(&out, "| %s | %d | %.2f | %.2f | %.2f–%.2f | %.2f |\n", b.name, len(b.times), milliseconds(b.percentile(50)), milliseconds(p99),
			milliseconds(slices.Min(b.p99)), milliseconds(slices.Max(b.p99)), float64(p99)/float64(max(base, 1)))
	}
	return out.String()
}

// percentile is that of all rounds together.
func (b *beside) percentile(hundredths int) time.Duration {
	slices.Sort(b.times)
	return abuse.Served{Times: b.times}.Percentile(hundredths)
}
