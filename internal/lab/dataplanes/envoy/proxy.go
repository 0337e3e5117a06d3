package envoy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"lateen.dev/lateen/internal/agent/netns"
)

// configFile and logFile are in Pod.Dir beside the files that the configuration names.
const (
	configFile = "envoy.json"
	logFile    = "envoy.log"
)

// Version asks a program for its version; it fails for one that is no Envoy.
func Version(ctx context.Context, program string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.WaitDelay = time.Second
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", program, err)
	}
	// "envoy  version: 9e558093/1.40.0/Clean/RELEASE/BoringSSL"
	_, version, found := strings.Cut(string(text), "version: ")
	parts := strings.Split(strings.TrimSpace(version), "/")
	if !found || len(parts) < 2 {
		return "", fmt.Errorf("%s is no Envoy: asked for its version it says %.80q", program, strings.TrimSpace(string(text)))
	}
	return parts[1], nil
}

// Proxy is one Envoy in a pod. One that ends is started again, as a kubelet would.
type Proxy struct {
	launcher *Launcher
	ns       *netns.Namespace
	program  string
	workers  int
	pod      Pod
	admin    *http.Client
	stop     context.CancelFunc
	done     chan struct{}

	mu     sync.Mutex
	pid    int // 0 while none runs
	failed error
}

// Start runs a proxy for a pod whose keys are in its directory already. It does not wait for it to be ready.
func Start(l *Launcher, ns *netns.Namespace, program string, workers int, pod Pod) (*Proxy, error) {
	config, err := Bootstrap(pod)
	if err != nil {
		return nil, err
	}
	if err := writeFor(filepath.Join(pod.Dir, configFile), config, UserID); err != nil {
		return nil, fmt.Errorf("configure the proxy of pod %s: %w", pod.Name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	socket := filepath.Join(pod.Dir, AdminSocket)
	p := &Proxy{
		launcher: l, ns: ns, program: program, workers: workers, pod: pod, stop: cancel, done: make(chan struct{}),
		admin: &http.Client{Timeout: adminTime, Transport: &http.Transport{
			DisableKeepAlives: true, // it must not find the socket of one that has ended
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
		}},
	}
	cmd, err := p.launch()
	if err != nil {
		cancel()
		return nil, err
	}
	go p.supervise(ctx, cmd)
	return p, nil
}

func (p *Proxy) launch() (*exec.Cmd, error) {
	// A socket that is left over would keep the next one from binding.
	if err := os.Remove(filepath.Join(p.pod.Dir, AdminSocket)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("start the proxy of pod %s: %w", p.pod.Name, err)
	}
	log, err := os.OpenFile(filepath.Join(p.pod.Dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start the proxy of pod %s: %w", p.pod.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(p.program, Arguments(filepath.Join(p.pod.Dir, configFile), p.workers)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.pod.Dir, []string{"PATH=/usr/bin:/bin"}, log, log
	if err := p.launcher.start(p.ns, UserID, cmd); err != nil {
		if errors.Is(err, os.ErrPermission) {
			err = fmt.Errorf("%w: the proxy runs as user %d, who may not run it there; copy it to a directory that is open to all", err, UserID)
		}
		return nil, fmt.Errorf("start the proxy of pod %s: %w", p.pod.Name, err)
	}
	p.mu.Lock()
	p.pid = cmd.Process.Pid
	p.mu.Unlock()
	return cmd, nil
}

// A proxy that ends sooner than this, so often in a row, will not come up any more.
const (
	shortLife  = 5 * time.Second
	shortLives = 3
)

// supervise waits for the program and starts it again until it is told to stop.
func (p *Proxy) supervise(ctx context.Context, cmd *exec.Cmd) {
	defer close(p.done)
	for lives := 1; ; lives++ {
		started := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		var err error
		select {
		case err = <-ended:
		case <-ctx.Done():
			_ = cmd.Process.Kill()
			<-ended
		}
		p.mu.Lock()
		p.pid = 0
		p.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > shortLife {
			lives = 0
		}
		if lives >= shortLives {
			p.fail(fmt.Errorf("the proxy of pod %s ended (%v): %s", p.pod.Name, err, p.lastWords()))
			return
		}
		if cmd, err = p.launch(); err != nil {
			p.fail(err)
			return
		}
	}
}

func (p *Proxy) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = err
}

// lastWords is the end of the proxy's log.
func (p *Proxy) lastWords() string {
	text, err := os.ReadFile(filepath.Join(p.pod.Dir, logFile))
	if err != nil {
		return err.Error()
	}
	text = bytes.TrimSpace(text)
	return string(text[max(0, len(text)-500):])
}

// Pod is what the proxy was configured for.
func (p *Proxy) Pod() Pod { return p.pod }

// PID is the process on the host; 0 for the moment in which it is being started again. The error is set when it has been given up.
func (p *Proxy) PID() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid, p.failed
}

// Stop ends the proxy and waits for its end. The pod's connections fail from then on.
func (p *Proxy) Stop() {
	p.stop()
	<-p.done
}

// readyTime bounds the start of a proxy, adminTime one question to it.
const (
	readyTime = time.Minute
	adminTime = 10 * time.Second
)

// Ready waits until the proxy takes connections.
func (p *Proxy) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for {
		text, err := p.ask(ctx, "/ready")
		if err == nil && strings.TrimSpace(text) == "LIVE" {
			return nil
		}
		if _, failed := p.PID(); failed != nil {
			return failed
		}
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ctx.Err()
			}
			return fmt.Errorf("the proxy of pod %s was not ready within %s (%q, %v): %s", p.pod.Name, readyTime, strings.TrimSpace(text), err, p.lastWords())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Stats are the proxy's counters and gauges whose names match a regular expression.
func (p *Proxy) Stats(ctx context.Context, filter string) (map[string]uint64, error) {
	text, err := p.ask(ctx, "/stats?filter="+url.QueryEscape(filter))
	if err != nil {
		return nil, fmt.Errorf("read the counters of the proxy of pod %s: %w", p.pod.Name, err)
	}
	return ParseStats(text), nil
}

// WorkerConnections is how many connections each worker of the listener on a port has now.
func (p *Proxy) WorkerConnections(ctx context.Context, port, workers int) ([]float64, error) {
	name := func(worker int) string {
		return fmt.Sprintf("listener.0.0.0.0_%d.worker_%d.downstream_cx_active", port, worker)
	}
	gauges, err := p.Stats(ctx, fmt.Sprintf(`^listener\.0\.0\.0\.0_%d\.worker_\d+\.downstream_cx_active$`, port))
	if err != nil {
		return nil, err
	}
	var counts []float64
	for worker := range workers {
		n, there := gauges[name(worker)]
		if !there {
			return nil, fmt.Errorf("the proxy of pod %s has no counter %s", p.pod.Name, name(worker))
		}
		counts = append(counts, float64(n))
	}
	return counts, nil
}

// ParseStats reads lines of "name: number"; other values, those of texts and histograms, are left out.
func ParseStats(text string) map[string]uint64 {
	counters := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(line, ": ")
		if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64); found && err == nil {
			counters[name] = n
		}
	}
	return counters
}

// longestAnswer bounds what is read of the proxy, in bytes.
const longestAnswer = 16 << 20

func (p *Proxy) ask(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://admin"+path, nil)
	if err != nil {
		return "", err
	}
	response, err := p.admin.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, longestAnswer))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s", response.Status)
	}
	return string(text), err
}
