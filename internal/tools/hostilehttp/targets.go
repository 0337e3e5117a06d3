package main

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/hostile/abuse"
	"lateen.dev/lateen/internal/hostile/cases"
	"lateen.dev/lateen/internal/hostile/client"
	"lateen.dev/lateen/internal/hostile/peers"
	"lateen.dev/lateen/internal/hostile/report"
	"lateen.dev/lateen/internal/hostile/upstream"
)

// target is a proxy with a server of its own for each lane.
type target struct {
	name string
	dial func(lane int, http2 bool) (net.Conn, error)
	// polite dials from another pod. It is there for the proxy under test alone.
	polite func(lane int) (net.Conn, error)
	lanes  []*upstream.Lane
	// door has the servers that mean harm. The proxy under test alone has one.
	door *abuse.Door

	// These are kept of the proxy under test alone.
	mu sync.Mutex
	// escapes are said of the cases that were sent, however often one was.
	escapes []string
	// late are the requests that came when their cases were over.
	late []upstream.Record
}

func (t *target) close() {
	for _, l := range t.lanes {
		l.Close()
	}
	if t.door != nil {
		t.door.Close()
	}
}

// waypoint is the proxy under test. It has a lane more than the comparison needs, for clients that mean harm and those beside them, and a
// port behind that for servers that mean harm.
func waypoint(o options) (*target, error) {
	client, err := from(o, o.client)
	if err != nil {
		return nil, err
	}
	polite, err := from(o, cmp.Or(o.polite, o.client))
	if err != nil {
		return nil, err
	}
	behind, err := netns.Open(o.upstream)
	if err != nil {
		return nil, fmt.Errorf("the server's pod: %w", err)
	}
	defer func() { _ = behind.Close() }()
	t := &target{name: report.Here, polite: polite}
	t.dial = func(lane int, _ bool) (net.Conn, error) { return client(lane) }
	for lane := range o.lanes + 2 {
		var listener net.Listener
		err := behind.Do(func() (err error) {
			listener, err = net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", o.port+lane))
			return err
		})
		if err != nil {
			t.close()
			return nil, fmt.Errorf("a server in the pod: %w", err)
		}
		if lane > o.lanes {
			t.door = abuse.Open(listener)
			break
		}
		t.lanes = append(t.lanes, upstream.Serve(listener))
	}
	return t, nil
}

// from dials the Service's ports from a pod, by the file of its network namespace.
func from(o options, pod string) (func(lane int) (net.Conn, error), error) {
	inside, err := netns.Open(pod)
	if err != nil {
		return nil, fmt.Errorf("the client's pod: %w", err)
	}
	return func(lane int) (conn net.Conn, err error) {
		err = inside.Do(func() (err error) {
			conn, err = net.Dial("tcp", net.JoinHostPort(o.waypoint, fmt.Sprint(o.port+lane)))
			return err
		})
		return conn, err
	}, nil
}

// dialer opens connections of one lane.
func (t *target) dialer(lane int) abuse.Dial {
	return func() (net.Conn, error) { return t.dial(lane, false) }
}

// politely opens connections of one lane from the pod of a polite client.
func (t *target) politely(lane int) abuse.Dial {
	return func() (net.Conn, error) { return t.polite(lane) }
}

// peer starts another proxy. stop ends it.
func peer(kind peers.Kind, program string, count int) (t *target, stop func(), err error) {
	dir, err := os.MkdirTemp("", "hostile-"+string(kind)+"-")
	if err != nil {
		return nil, nil, err
	}
	t = &target{name: string(kind)}
	remove := func() {
		t.close()
		_ = os.RemoveAll(dir)
	}
	var ports []int
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			remove()
			return nil, nil, err
		}
		t.lanes = append(t.lanes, upstream.Serve(listener))
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	lanes := peers.Lanes(kind, ports)
	running, err := peers.Start(kind, program, dir, lanes)
	if err != nil {
		remove()
		return nil, nil, err
	}
	t.dial = func(lane int, http2 bool) (net.Conn, error) {
		port := lanes[lane].HTTP1
		if http2 {
			port = lanes[lane].HTTP2
		}
		return net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	}
	return t, func() { running.Stop(); remove() }, nil
}

// quiet is for how long a proxy may be silent before a case is over. A case that then differs from what the page says is sent once
// more with more time, by itself.
const (
	quiet     = 1500 * time.Millisecond
	moreQuiet = 6 * time.Second
)

// send sends a case through a lane and returns what became of it. What escapes the proxy under test counts, even if the case is sent again.
func (t *target) send(lane int, c cases.Case, silence time.Duration) (report.Outcome, error) {
	before := t.lanes[lane].Take()
	conn, err := t.dial(lane, c.HTTP2)
	if err != nil {
		return report.Outcome{}, fmt.Errorf("connect to %s: %w", t.name, err)
	}
	answer := client.Send(conn, c, silence)
	records := t.lanes[lane].Take()
	outcome := report.Outcome{Answer: answer}
	for _, r := range records {
		// Some proxies still send what the case before on this lane began.
		if r.Case() != "" && r.Case() != fmt.Sprint(c.Number) {
			before = append(before, r)
		} else {
			outcome.Records = append(outcome.Records, r)
		}
	}
	if t.name == report.Here {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.late = append(t.late, before...)
		for _, e := range report.Escapes(c, outcome) {
			t.escapes = append(t.escapes, describe(c)+": "+e)
		}
	}
	return outcome, nil
}

// escaped says what should not have come through, in the case of any that was sent. It waits for what comes late.
func (t *target) escaped(list []cases.Case) []string {
	time.Sleep(quiet)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lanes {
		t.late = append(t.late, l.Take()...)
	}
	return slices.Concat(t.escapes, report.Late(list, t.late))
}

// sendAll sends all cases through all targets, on so many lanes of each.
func sendAll(targets []*target, list []cases.Case, lanes int) ([]map[string]report.Outcome, error) {
	outcomes := make([]map[string]report.Outcome, len(list))
	for i := range outcomes {
		outcomes[i] = map[string]report.Outcome{}
	}
	var (
		mu     sync.Mutex
		failed error
		wait   sync.WaitGroup
	)
	for _, t := range targets {
		for lane := range lanes {
			wait.Go(func() {
				for i := lane; i < len(list); i += lanes {
					outcome, err := t.send(lane, list[i], quiet)
					mu.Lock()
					outcomes[i][t.name] = outcome
					if err != nil && failed == nil {
						failed = err
					}
					stop := failed != nil
					mu.Unlock()
					if stop {
						return
					}
				}
			})
		}
	}
	wait.Wait()
	return outcomes, failed
}
