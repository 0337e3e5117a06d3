package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"regexp"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/results"
)

var targetName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,30}[a-z0-9])?$`)

// ports are those that a URL of a scheme means when it names none; 0 where it must name one.
var ports = map[string]string{"http": "80", "https": "443", "grpc": "80", "grpcs": "443", "tcp": ""}

// ParseTarget reads NAME=URL: a service that is there already, on whatever data plane, to send load to from this machine.
func ParseTarget(name, address string) (Spec, error) {
	s := Spec{Name: name, Kind: results.KindUnderTest, URL: address}
	if !targetName.MatchString(name) {
		return s, fmt.Errorf("target %q: name it with up to 32 lower-case letters, digits, dots and dashes: NAME=URL", name)
	}
	u, err := url.Parse(address)
	if err != nil {
		return s, fmt.Errorf("target %s: %w", name, err)
	}
	port, known := ports[u.Scheme]
	switch {
	case !known:
		return s, fmt.Errorf("target %s: %q: write a URL that begins with http://, https://, grpc://, grpcs:// or tcp://", name, address)
	case u.Hostname() == "":
		return s, fmt.Errorf("target %s: %q names no host", name, address)
	case u.Port() == "" && port == "":
		return s, fmt.Errorf("target %s: %q names no port, and %s:// has none of its own", name, address, u.Scheme)
	case u.User != nil:
		return s, fmt.Errorf("target %s: a URL with a password would stand in every report: send it with the scenario's headers", name)
	}
	return s, nil
}

// Target is a plane of somebody else's making: a URL. It starts and ends nothing but the generator.
type Target struct {
	about     results.Plane
	url       *url.URL
	generator string
}

// NewTarget makes a plane of a URL that ParseTarget has read; generator is the load generator's executable.
func NewTarget(s Spec, generator string) (*Target, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, fmt.Errorf("target %s: %w", s.Name, err)
	}
	return &Target{results.Plane{Name: s.Name, Kind: s.Kind, Settings: map[string]string{"url": s.URL}}, u, generator}, nil
}

// Describe implements Plane.
func (t *Target) Describe() results.Plane { return t.about }

// lookTime bounds the first look at a target.
const lookTime = 5 * time.Second

// Start implements Plane: it sees that somebody listens there.
func (t *Target) Start(ctx context.Context, _ Topology, progress func(string)) (Bench, error) {
	progress("connect")
	port := t.url.Port()
	if port == "" {
		port = ports[t.url.Scheme]
	}
	d := net.Dialer{Timeout: lookTime}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(t.url.Hostname(), port))
	if err != nil {
		return nil, fmt.Errorf("nobody answers: %w", err)
	}
	return t, conn.Close()
}

// Aim turns a scenario's URL on this target: its scheme, host and port, and its path and query too if it has a path.
func (t *Target) Aim(scenario string) (string, error) {
	u, err := url.Parse(scenario)
	if err != nil {
		return "", fmt.Errorf("url of the scenario: %w", err)
	}
	u.Scheme, u.Host = t.url.Scheme, t.url.Host
	if t.url.Path != "" || t.url.RawQuery != "" {
		u.Path, u.RawPath, u.RawQuery = t.url.Path, t.url.RawPath, t.url.RawQuery
	}
	return u.String(), nil
}

// endGenerator is how long an interrupted generator may take to write what it has.
const endGenerator = 5 * time.Second

// Exec implements Bench; the generator alone runs here, whatever pod is named.
func (t *Target) Exec(ctx context.Context, _ string, command []string, streams api.Streams) (int, error) {
	cmd := exec.CommandContext(ctx, t.generator, command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = endGenerator
	// A terminal's Ctrl-C is passed on by ctx; and nothing goes on when this program has died.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = streams.Stdin, streams.Stdout, streams.Stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", t.generator, err)
	}
	return 0, nil
}

// Processes implements Bench: what a target runs on is not known here.
func (t *Target) Processes(context.Context) ([]Process, error) { return nil, nil }

// Carried implements Bench: a target cannot say.
func (t *Target) Carried(context.Context) (uint64, bool, error) { return 0, false, nil }

// errGiven is returned for what only a plane of the lab's own can do.
var errGiven = errors.New("the services behind a URL are not the lab's to change")

// Apply implements Bench; it always fails.
func (t *Target) Apply(context.Context, []api.Document) error { return errGiven }

// Delete implements Bench; it always fails.
func (t *Target) Delete(context.Context, []api.Document) error { return errGiven }

// Scale implements Bench; it always fails.
func (t *Target) Scale(context.Context, string, int) error { return errGiven }

// Down implements Bench.
func (t *Target) Down(context.Context) error { return nil }
