package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Enrolment is what putting the namespace into the mesh did to what ran meanwhile.
type Enrolment struct {
	Seconds   float64    `json:"seconds"` // from the label to the last pod
	Pods      int        `json:"pods"`
	UnderLoad bool       `json:"underLoad"` // it ended before the load did
	Restarted []string   `json:"restarted"` // processes that are not the same as before
	Kept      LoadResult `json:"kept"`
	Fresh     LoadResult `json:"fresh"`
	Unmeshed  []api.Conn `json:"unmeshed"`
}

func (s *session) enrol(ctx context.Context) (err error) {
	defer s.traffic.end()
	before, err := s.Mesh.Status(ctx)
	if err != nil {
		return err
	}
	s.Progress.Start("label the namespace " + wellknown.DataplaneMode + "=" + ambient)
	began := time.Now()
	if err := s.label(ctx, true); err != nil {
		return err
	}
	if err := s.waitFor(ctx, "wait until every pod is in the mesh", func(ctx context.Context) error { return s.captured(ctx, true) }); err != nil {
		return err
	}
	e := &Enrolment{Seconds: time.Since(began).Seconds(), Pods: len(pods(before)), UnderLoad: time.Now().Before(s.traffic.until)}
	if err := s.waitFor(ctx, "wait until new connections are meshed", func(ctx context.Context) error { return s.effective(ctx, true) }); err != nil {
		return err
	}
	s.Progress.Done(fmt.Sprintf("%d pods enrolled after %.1f s", e.Pods, e.Seconds))
	after, err := s.Mesh.Status(ctx)
	if err != nil {
		return err
	}
	for _, p := range pods(after) {
		e.Unmeshed = append(e.Unmeshed, p.Unmeshed...)
	}
	wire, err := s.record(ctx, fmt.Sprintf("record between the nodes for %d s", recordSeconds))
	if err != nil {
		return err
	}
	s.results.After = &wire
	s.Progress.Start("let the load come to its end")
	select {
	case <-s.traffic.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.traffic.err != nil {
		return s.traffic.err
	}
	s.Progress.Done("the load came to its end")
	last, err := s.Mesh.Status(ctx)
	if err != nil {
		return err
	}
	e.Restarted = changed(processes(before), processes(last))
	e.Kept, e.Fresh = s.traffic.kept, s.traffic.fresh
	s.results.Enrolment = e
	s.tellEnrolment(e)
	return s.tellWire(wire, after)
}

// process identifies a process for good: pids are reused, pids with their start time are not.
type process struct {
	pid      int
	start    uint64
	restarts int
}

func processes(status api.Status) map[string]process {
	found := map[string]process{}
	for _, p := range pods(status) {
		for _, c := range p.Containers {
			found[p.Name+"/"+c.Name] = process{c.PID, c.StartTime, c.Restarts}
		}
	}
	return found
}

// changed names the processes of before that are gone or others now.
func changed(before, after map[string]process) []string {
	names := []string{}
	for name, was := range before {
		if is, there := after[name]; !there || is != was {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *session) tellEnrolment(e *Enrolment) {
	failed := e.Kept.Failures() + e.Fresh.Failures()
	good := s.Style.Good
	if failed > 0 || len(e.Restarted) > 0 || !e.UnderLoad {
		good = s.Style.Warn
	}
	s.say("%s", good(fmt.Sprintf("%d of %d requests failed", failed, e.Kept.Requests()+e.Fresh.Requests())))
	if failed > 0 {
		s.say("  kept connections: %s; new ones: %s", orNone(e.Kept.ErrorText()), orNone(e.Fresh.ErrorText()))
	}
	if len(e.Restarted) == 0 {
		s.say("No process was restarted: pid and start time of every process are what they were.")
	} else {
		s.say("These processes are not the ones from before: %s", strings.Join(e.Restarted, ", "))
	}
	if !e.UnderLoad {
		s.say("Enrolment took longer than the load ran, so this does not show it under load to its end.")
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// mostShown bounds the lists in the story; --json has all of them.
const mostShown = 5

func (s *session) tellWire(wire Wire, status api.Status) error {
	records := 0
	for _, c := range wire.Encrypted {
		records += c.Records
	}
	s.say("On the wire now: %s, in which every byte seen belongs to one of %d TLS records.", plural(len(wire.Encrypted), "encrypted connection"), records)
	for _, c := range wire.Encrypted[:min(mostShown, len(wire.Encrypted))] {
		s.say("  %s", describe(c))
	}
	var known []api.Conn
	grid := printer.NewGrid("POD", "DIRECTION", "LOCAL", "REMOTE")
	for _, p := range pods(status) {
		known = append(known, p.Unmeshed...)
		for _, c := range p.Unmeshed {
			if grid.Len() < mostShown {
				grid.Row(p.Name, c.Direction, c.Local, c.Remote)
			}
		}
	}
	unexplained := wire.Unexplained(known)
	if len(wire.Older) > 0 {
		s.say("%s opened before enrolment went on in the clear and undisturbed; lateen status lists:", plural(len(wire.Older), "connection"))
		if err := grid.Print(s.Out, "  "); err != nil {
			return err
		}
		if len(known) > mostShown {
			s.say("  and %d more", len(known)-mostShown)
		}
	}
	if len(unexplained) == 0 {
		s.say("%s", s.Style.Good("No connection opened after enrolment carried anything readable."))
		return nil
	}
	s.say("%s", s.Style.Bad(fmt.Sprintf("Readable although opened after enrolment, or not listed as older: %s", plural(len(unexplained), "connection"))))
	for _, c := range unexplained[:min(mostShown, len(unexplained))] {
		s.say("  %s: %s", describe(c), FirstLine(c))
	}
	return nil
}

func (s *session) identify(ctx context.Context) error {
	if !s.results.StandIn {
		s.Progress.Start("ask for the product page a few times")
		result, err := s.load(ctx, Load{URL: page, QPS: 5, Connections: 2, Duration: 3 * time.Second, Fresh: true})
		if err != nil {
			return err
		}
		if result.Failures() > 0 {
			s.Progress.Warn("some product pages failed: " + result.ErrorText())
		} else {
			s.Progress.Done(fmt.Sprintf("%d product pages in %.0f ms at the median", result.Counts.OK, result.ResponseTime.P50))
		}
	}
	flows, err := s.flows(ctx)
	if err != nil {
		return err
	}
	s.results.Flows = flows
	grid := printer.NewGrid("SOURCE", "DESTINATION", "MUTUAL TLS", "CONNECTIONS", "BYTES IN", "BYTES OUT").Right(3, 4, 5)
	for _, f := range BetweenIdentities(flows) {
		if f.Connections == 0 {
			continue // seen by its source only: the destination is outside the mesh
		}
		mtls := "no"
		if f.MutualTLS {
			mtls = "yes"
		}
		grid.Row(ShortIdentity(f.Source), ShortIdentity(f.Destination), mtls, fmt.Sprint(f.Connections), printer.Bytes(f.Received), printer.Bytes(f.Sent))
	}
	if grid.Len() == 0 {
		return errors.New("the node proxies have counted no connection between identities")
	}
	s.say("As the proxy of each destination verified and counted it (all in trust domain cluster.local):")
	if err := grid.Print(s.Out, "  "); err != nil {
		return err
	}
	return s.tellBothLogs(ctx)
}

// tellBothLogs shows that both ends of a connection log both identities.
func (s *session) tellBothLogs(ctx context.Context) error {
	status, err := s.Mesh.Status(ctx)
	if err != nil {
		return err
	}
	client, err := pod(status, clientApp)
	if err != nil {
		return err
	}
	server, err := pod(status, s.targets()[0].app)
	if err != nil {
		return err
	}
	s.say("The newest lines of both access logs about %s and %s:", client.Name, server.Name)
	for _, end := range []struct{ node, direction string }{{client.Node, "outbound"}, {server.Node, "inbound"}} {
		lines, err := s.accessLines(ctx, end.node)
		if err != nil {
			return err
		}
		told := "no such line"
		for _, line := range slices.Backward(lines) {
			if line.Get("direction") == end.direction && line.Get("src.identity") == client.Identity &&
				line.Get("dst.identity") == server.Identity && !line.Failed() {
				told = fmt.Sprintf("src.identity=%s dst.identity=%s bytes_sent=%s bytes_recv=%s",
					line.Get("src.identity"), line.Get("dst.identity"), line.Get("bytes_sent"), line.Get("bytes_recv"))
				break
			}
		}
		s.say("  %s %-8s  %s", end.node, end.direction, told)
	}
	return nil
}
