package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

func (s *session) start(ctx context.Context) error {
	if err := s.Up(ctx, s.event); err != nil {
		return fmt.Errorf("start the mesh: %w", err)
	}
	version, err := s.Mesh.Version(ctx)
	if err != nil {
		return err
	}
	s.results.Engine = version
	s.Progress.Abandon()
	return nil
}

func (s *session) deploy(ctx context.Context) error {
	files := []string{filepath.Join(s.options.Samples, "echo", "echo.yaml")}
	if !s.results.StandIn {
		files = append(files, filepath.Join(s.options.Samples, "bookinfo", "bookinfo.yaml"))
	}
	for _, file := range files {
		if err := s.apply(ctx, file); err != nil {
			return err
		}
	}
	s.Progress.Start("wait until every pod is ready")
	err := s.waitFor(ctx, "wait until every pod is ready", func(ctx context.Context) error {
		status, err := s.Mesh.Status(ctx)
		if err != nil {
			return err
		}
		var waiting []string
		for _, p := range pods(status) {
			if !p.Ready {
				waiting = append(waiting, strings.TrimSpace(p.Name+" "+p.Reason))
			}
		}
		if len(waiting) > 0 {
			return notYet("%s", strings.Join(waiting, ", "))
		}
		// What was applied last may have no pods yet, while those of before are ready.
		for _, app := range s.apps() {
			if _, err := pod(status, app); err != nil {
				return notYet("%s", err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	status, err := s.Mesh.Status(ctx)
	if err != nil {
		return err
	}
	s.Progress.Done(fmt.Sprintf("%d pods are ready", len(pods(status))))
	grid := printer.NewGrid("NODE", "POD", "IP", "SERVICE ACCOUNT")
	for _, p := range pods(status) {
		grid.Row(p.Node, p.Name, p.IP, p.ServiceAccount)
	}
	if err := grid.Print(s.Out, "  "); err != nil {
		return err
	}
	return s.apart(status)
}

// apps are the Deployments whose pods the demonstration cannot do without.
func (s *session) apps() []string {
	apps := []string{clientApp, echoTarget.app}
	if !s.results.StandIn {
		apps = append(apps, detailsTarget.app, "productpage", "ratings", "reviews")
	}
	return apps
}

// apart makes sure that what is measured crosses from one node to the other; otherwise there is nothing to listen to.
func (s *session) apart(status api.Status) error {
	client, err := pod(status, clientApp)
	if err != nil {
		return err
	}
	for _, to := range s.targets() {
		server, err := pod(status, to.app)
		if err != nil {
			return err
		}
		if server.Node == client.Node {
			return fmt.Errorf("%s and %s are both on node %s; give them different nodes in the samples (nodeSelector lateen.dev/node-index)",
				client.Name, server.Name, client.Node)
		}
	}
	return nil
}

func (s *session) apply(ctx context.Context, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the samples: %w; name their directory with --samples", err)
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return fmt.Errorf("find the samples: %w", err)
	}
	return s.applyDocument(ctx, api.Document{File: file, Dir: dir, Data: data})
}

func (s *session) applyDocument(ctx context.Context, document api.Document) error {
	result, err := s.Mesh.Apply(ctx, api.ApplyRequest{Documents: []api.Document{document}, Namespace: demoNamespace})
	if err != nil {
		return fmt.Errorf("apply %s: %w", document.File, err)
	}
	if len(result.Problems) > 0 {
		return fmt.Errorf("apply: %s", result.Problems[0])
	}
	return nil
}

// traffic is load that runs beside the acts: kept connections, which enrolment must not touch, and new ones, which it
// must take up without losing any.
type traffic struct {
	until time.Time
	done  chan struct{}
	kept  LoadResult
	fresh LoadResult
	err   error
	stop  context.CancelFunc
}

// trafficTime leaves room for both recordings and for the enrolment between them.
const (
	trafficTime   = 16 * time.Second
	recordSeconds = 3
)

func (s *session) startTraffic(ctx context.Context) *traffic {
	to := s.targets()[0]
	ctx, cancel := context.WithCancel(ctx)
	t := &traffic{until: time.Now().Add(trafficTime), done: make(chan struct{}), stop: cancel}
	kept := Load{URL: to.url, QPS: 100, Connections: 10, Duration: trafficTime}
	fresh := Load{URL: to.url, QPS: 20, Connections: 2, Duration: trafficTime, Fresh: true}
	go func() {
		defer close(t.done)
		other := make(chan error, 1)
		go func() {
			var err error
			t.fresh, err = s.load(ctx, fresh)
			other <- err
		}()
		var err error
		t.kept, err = s.load(ctx, kept)
		t.err = errors.Join(err, <-other)
	}()
	s.say("From %s to %s: %d requests/s on %d kept connections, %d requests/s each on a new one.",
		clientTarget, to.url, kept.QPS, kept.Connections, fresh.QPS)
	return t
}

// end stops traffic that an error has left running.
func (t *traffic) end() {
	t.stop()
	<-t.done
}

func (s *session) record(ctx context.Context, what string) (Wire, error) {
	s.Progress.Start(what)
	report, err := s.Mesh.Capture(ctx, api.CaptureRequest{Seconds: recordSeconds, PodsOnly: true})
	if err != nil {
		return Wire{}, fmt.Errorf("record between the nodes: %w", err)
	}
	wire := JudgeWire(report)
	s.Progress.Done(fmt.Sprintf("recorded %d packets of %d connections between the nodes", report.Packets, len(report.Connections)))
	if wire.Dropped > 0 {
		s.say("  The kernel dropped %d packets of the recording, so it is not complete.", wire.Dropped)
	}
	return wire, nil
}

func (s *session) listen(ctx context.Context) (err error) {
	s.traffic = s.startTraffic(ctx)
	defer func() {
		if err != nil {
			s.traffic.end()
		}
	}()
	// A moment for the first requests, so that the recording sees both kinds of connections at work.
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second):
	}
	wire, err := s.record(ctx, fmt.Sprintf("record between the nodes for %d s", recordSeconds))
	if err != nil {
		return err
	}
	s.results.Before = &wire
	readable := slices.Concat(wire.Readable, wire.Older)
	s.say("%d of %d connections are readable by anyone on the network, for example:", len(readable), len(readable)+len(wire.Encrypted))
	if i := slices.IndexFunc(readable, func(c api.CapturedConn) bool { return c.Class == api.ClassHTTP }); i >= 0 {
		s.say("  %s", describe(readable[i]))
		s.say("    %s", s.Style.Warn(FirstLine(readable[i])))
	} else {
		s.say("  (no HTTP was seen in the recording)")
	}
	return nil
}

// Denial is what a policy did to a request.
type Denial struct {
	Policy   string `json:"policy"`
	Before   uint64 `json:"answeredBefore"`
	Answered uint64 `json:"answered"`
	Errors   string `json:"errors"`
	LogLine  string `json:"logLine,omitempty"`
	After    uint64 `json:"answeredAfter"`
}

const denyName = "demo-no-client"

func denyPolicy(to target, principal string) string {
	return fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata:
  name: %s
  namespace: %s
spec:
  selector:
    matchLabels:
      app: %s
  action: DENY
  rules:
  - from:
    - source:
        principals: ["%s"]
`, denyName, demoNamespace, to.app, principal)
}

func (s *session) deny(ctx context.Context) error {
	to := s.targets()[0]
	status, err := s.Mesh.Status(ctx)
	if err != nil {
		return err
	}
	client, err := pod(status, clientApp)
	if err != nil {
		return err
	}
	server, err := pod(status, to.app)
	if err != nil {
		return err
	}
	denial := Denial{Policy: denyPolicy(to, strings.TrimPrefix(client.Identity, "spiffe://"))}
	few := Load{URL: to.url, QPS: 5, Connections: 1, Duration: time.Second, Fresh: true}
	first, err := s.load(ctx, few)
	if err != nil {
		return err
	}
	denial.Before = first.Counts.OK
	s.say("%s", indent(denial.Policy, "  | "))
	if err := s.applyDocument(ctx, api.Document{File: "policy", Dir: "/", Data: []byte(denial.Policy)}); err != nil {
		return err
	}
	s.Progress.Start("wait until the policy is in force")
	if err := s.waitFor(ctx, "wait until the policy is in force", func(ctx context.Context) error {
		result, err := s.load(ctx, few)
		if err != nil {
			return err
		}
		denial.Answered, denial.Errors = result.Counts.OK, result.ErrorText()
		if result.Counts.OK > 0 || result.Failures() == 0 {
			return notYet("%d requests still answered", result.Counts.OK)
		}
		return nil
	}); err != nil {
		return err
	}
	s.Progress.Done(fmt.Sprintf("requests from %s to %s fail now: %s", clientApp, to.name, denial.Errors))
	if denial.LogLine, err = s.refusal(ctx, server.Node, client.Identity); err != nil {
		return err
	}
	s.say("The proxy of the destination's node says why:")
	s.say("  %s", s.Style.Warn(strings.ReplaceAll(denial.LogLine, "\t", " ")))
	if _, err := s.Mesh.Delete(ctx, api.DeleteRequest{Keys: []api.Key{{Kind: "AuthorizationPolicy", Namespace: demoNamespace, Name: denyName}}}); err != nil {
		return fmt.Errorf("delete the policy: %w", err)
	}
	s.Progress.Start("delete the policy")
	if err := s.waitFor(ctx, "wait until the policy is gone", func(ctx context.Context) error {
		result, err := s.load(ctx, few)
		if err != nil {
			return err
		}
		denial.After = result.Counts.OK
		if result.Failures() > 0 || result.Counts.OK == 0 {
			return notYet("requests still fail: %s", result.ErrorText())
		}
		return nil
	}); err != nil {
		return err
	}
	s.Progress.Done(fmt.Sprintf("without the policy %d of %d requests are answered again", denial.After, denial.After))
	s.results.Denial = &denial
	return nil
}

// refusal finds the newest access line on a node that tells of a refused connection from an identity. The line is
// written when the connection has ended, a moment after the client noticed.
func (s *session) refusal(ctx context.Context, node, identity string) (string, error) {
	found := ""
	err := s.waitFor(ctx, "find the refusal in the access log", func(ctx context.Context) error {
		lines, err := s.accessLines(ctx, node)
		if err != nil {
			return err
		}
		for _, line := range slices.Backward(lines) {
			if line.Get("src.identity") == identity && strings.Contains(line.Get("error"), "policy") {
				found = line.Text
				return nil
			}
		}
		return notYet("no refusal of %s among %d access lines of %s", identity, len(lines), node)
	})
	return found, err
}

// accessTail is how many lines of a log are searched: more than the load of a few seconds writes.
const accessTail = 2000

func (s *session) accessLines(ctx context.Context, node string) ([]AccessLine, error) {
	stream, err := s.Mesh.ProxyLog(ctx, node, false, accessTail)
	if err != nil {
		return nil, fmt.Errorf("read the log of the proxy on %s: %w", node, err)
	}
	defer func() { _ = stream.Close() }()
	var lines []AccessLine
	scanner := bufio.NewScanner(stream)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if line, ok := ParseAccessLine(scanner.Text()); ok {
			lines = append(lines, line)
		}
	}
	return lines, scanner.Err()
}

func indent(text, with string) string {
	return with + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+with)
}
