package source

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// maxSnapshot bounds one line: far more than a node's pods need.
	maxSnapshot = 64 << 20

	pauseMin = 50 * time.Millisecond
	pauseMax = 5 * time.Second

	reportTimeout = 10 * time.Second
)

// Engine is an engine behind its unix socket.
type Engine struct {
	node   string
	log    *slog.Logger
	client *http.Client
}

// NewEngine makes a source of the node's pods from the engine that listens on the unix socket.
func NewEngine(socket, node string, log *slog.Logger) *Engine {
	var dialer net.Dialer
	return &Engine{
		node: node, log: log,
		client: &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", socket)
			},
		}},
	}
}

// Run delivers a snapshot at first and after every change until ctx ends. While the engine is away nothing is
// delivered and Run tries again; connected is told of each change.
func (e *Engine) Run(ctx context.Context, deliver func(Snapshot), connected func(bool)) {
	defer e.client.CloseIdleConnections()
	pause := pauseMin
	for ctx.Err() == nil {
		err := e.watch(ctx, func(s Snapshot) {
			pause = pauseMin
			connected(true)
			deliver(s)
		})
		connected(false)
		if ctx.Err() != nil {
			return
		}
		e.log.Warn("the engine is away; captured pods stay captured", "err", err, "retry", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, pauseMax)
	}
}

// watch follows one stream of snapshots to its end.
func (e *Engine) watch(ctx context.Context, deliver func(Snapshot)) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/agent/v1/pods?node="+url.QueryEscape(e.node), nil)
	if err != nil {
		return err
	}
	response, err := e.client.Do(request)
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("watch pods: %w", refused(response))
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxSnapshot)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		snapshot, err := decode(line)
		if err != nil {
			return err
		}
		deliver(snapshot)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	return errors.New("watch pods: the engine ended the stream")
}

// decode reads one snapshot. One that names a pod twice, or a pod without a name, is refused as a whole: acting on half
// of it could release a captured pod.
func decode(line []byte) (Snapshot, error) {
	// Absent and empty (null is empty) differ: a line without pods is no snapshot, and reading it as "no pods" would
	// release them all.
	var fields map[string]json.RawMessage
	var s Snapshot
	if err := errors.Join(json.Unmarshal(line, &fields), json.Unmarshal(line, &s)); err != nil {
		return Snapshot{}, fmt.Errorf("read snapshot of pods: %w", err)
	}
	if fields["pods"] == nil {
		return Snapshot{}, errors.New(`read snapshot of pods: it has no "pods"`)
	}
	seen := map[string]bool{}
	for _, p := range s.Pods {
		switch {
		case p.UID == "" || p.Namespace == "" || p.Name == "":
			return Snapshot{}, fmt.Errorf("read snapshot of pods: pod %q in namespace %q has uid %q; all three are needed", p.Name, p.Namespace, p.UID)
		case seen[p.UID]:
			return Snapshot{}, fmt.Errorf("read snapshot of pods: uid %q is there twice", p.UID)
		}
		seen[p.UID] = true
	}
	return s, nil
}

// ErrGone says that the engine does not know the pod any more.
var ErrGone = errors.New("the engine does not know the pod any more")

// Report tells the engine about a pod's redirection.
func (e *Engine) Report(ctx context.Context, uid string, r Report) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut,
		"http://engine/agent/v1/pods/"+url.PathEscape(uid)+"/redirection", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := e.client.Do(request)
	if err != nil {
		return fmt.Errorf("report redirection: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return ErrGone
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("report redirection: %w", refused(response))
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

func refused(response *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
	return fmt.Errorf("the engine answered %s: %s", response.Status, strings.TrimSpace(string(text)))
}
