package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
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
	full   = "a client that means no harm and uses all of the machine"
)

// many is how many connections such a client has, for each of another client.
const many = 16

// beside are the times of a polite client beside another one.
type beside struct {
	name string
	// run plays the other client until stop is closed. None: there is no other client.
	run func(stop <-chan struct{}) error
	// times of all rounds, and the 99th percentile of each round.
	times []time.Duration
	p99   []time.Duration
}

// measure prints what a polite client waits for beside each other client, as a table in Markdown. In each round the others come one
// after the other, in random order.
func measure(o options, here *target) error {
	rows := others(elsewhere(o))
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

// player is a client that plays its part on one connection, and again, until stop is closed.
type player struct {
	name string
	play func(dial abuse.Dial, stop <-chan struct{}) error
}

// errIdle reports a client that did not play once. Its row would look harmless.
var errIdle = errors.New("the machine left the client no time to play")

// players are all clients beside which a polite one is measured.
func players() []player {
	one := func(dial abuse.Dial, stop <-chan struct{}) error {
		answered, err := abuse.Busy(dial, stop)
		if err == nil && answered == 0 {
			err = errIdle
		}
		return err
	}
	list := []player{{busy, one}, {full, func(dial abuse.Dial, stop <-chan struct{}) error {
		failures := make(chan error, many)
		for range many {
			go func() { failures <- one(dial, stop) }()
		}
		var failure error
		for range many {
			failure = cmp.Or(failure, <-failures)
		}
		return failure
	}}}
	for _, c := range abuse.Clients {
		if c.Slow {
			continue
		}
		list = append(list, player{c.Name, func(dial abuse.Dial, stop <-chan struct{}) error {
			for played := false; ; played = true {
				select {
				case <-stop:
					if !played {
						return errIdle
					}
					return nil
				default:
				}
				if got := c.Run(dial); got != c.Want {
					return fmt.Errorf("the proxy said %s in place of %s", got, c.Want)
				}
			}
		}})
	}
	return list
}

// others are the rows of the table. run plays a client by its name.
func others(run func(name string, stop <-chan struct{}) error) []*beside {
	rows := []*beside{{name: nobody}}
	for _, p := range players() {
		rows = append(rows, &beside{name: p.name, run: func(stop <-chan struct{}) error { return run(p.name, stop) }})
	}
	return rows
}

// elsewhere plays a client in a process that runs only while the machine is idle, so its own cost is not measured. The times are a lower
// bound: a client on another machine would also send while the proxies work.
func elsewhere(o options) func(name string, stop <-chan struct{}) error {
	return func(name string, stop <-chan struct{}) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		cmd := exec.Command("chrt", "--idle", "0", self, "-play", name, "-waypoint", o.waypoint, "-port", strconv.Itoa(o.port), "-client-netns", o.client)
		// A session is a group of its own to the scheduler.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		input, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		<-stop
		_ = input.Close()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
		}
		return nil
	}
}

// playAlone plays the client of a name until the input ends.
func playAlone(o options, input io.Reader) error {
	all := players()
	i := slices.IndexFunc(all, func(p player) bool { return p.name == o.play })
	if i < 0 {
		return fmt.Errorf("there is no client %q", o.play)
	}
	dial, err := from(o, o.client)
	if err != nil {
		return err
	}
	// The write puts this process's session last where the scheduler groups tasks by session. Other kernels lack the file.
	_ = os.WriteFile("/proc/self/autogroup", []byte("19"), 0)
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		_, _ = io.Copy(io.Discard, input)
	}()
	return all[i].play(func() (net.Conn, error) { return dial(0) }, stop)
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

// table compares with the client that means no harm and uses all of the machine: what the others use of it is no harm by itself.
func table(rows []*beside) string {
	var out strings.Builder
	out.WriteString("| the other client | requests | p50, ms | p99, ms | p99 of the rounds, ms | p99, of that beside the third row |\n|---|---|---|---|---|---|\n")
	var base time.Duration
	for _, b := range rows {
		if b.name == full {
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
