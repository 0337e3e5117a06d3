package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
)

// Client talks to the engine of one mesh. It is safe for concurrent use.
type Client struct {
	mesh   string
	engine *transport
}

// ErrNotRunning is what every method returns, wrapped, when no engine answers.
var ErrNotRunning = errors.New("mesh is not running")

// New returns a client for a mesh by name. It does not connect yet.
func New(mesh string) *Client { return NewAt(mesh, SocketPath(mesh)) }

// NewAt returns a client for an engine that listens on a given socket.
func NewAt(mesh, socket string) *Client {
	return NewOver(mesh, func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, mesh, socket) })
}

// NewOver returns a client for an engine that is reached by other means than a socket.
func NewOver(mesh string, dial func(context.Context) (net.Conn, error)) *Client {
	return &Client{mesh: mesh, engine: newTransport(dial)}
}

// Dial connects to the engine. It wraps ErrNotRunning if none is there.
func (c *Client) Dial(ctx context.Context) (net.Conn, error) { return c.engine.dial(ctx) }

// Mesh is the name of the mesh this client talks to.
func (c *Client) Mesh() string { return c.mesh }

// Version asks the engine who it is; it serves as a ping.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var v Version
	return v, c.engine.call(ctx, http.MethodGet, "/v1/version", nil, nil, &v)
}

// Apply creates or changes objects.
func (c *Client) Apply(ctx context.Context, r ApplyRequest) (ApplyResult, error) {
	var res ApplyResult
	return res, c.engine.call(ctx, http.MethodPost, "/v1/apply", nil, r, &res)
}

// Delete removes objects.
func (c *Client) Delete(ctx context.Context, r DeleteRequest) (ApplyResult, error) {
	var res ApplyResult
	return res, c.engine.call(ctx, http.MethodPost, "/v1/delete", nil, r, &res)
}

// Patch changes one object by a JSON merge patch.
func (c *Client) Patch(ctx context.Context, r PatchRequest) (ObjectResult, error) {
	var res ObjectResult
	return res, c.engine.call(ctx, http.MethodPost, "/v1/patch", nil, r, &res)
}

// Label sets labels of an object; a nil value removes the label.
func (c *Client) Label(ctx context.Context, key Key, labels map[string]*string) (ObjectResult, error) {
	return c.patchMetadata(ctx, key, "labels", labels)
}

// Annotate sets annotations of an object; a nil value removes the annotation.
func (c *Client) Annotate(ctx context.Context, key Key, annotations map[string]*string) (ObjectResult, error) {
	return c.patchMetadata(ctx, key, "annotations", annotations)
}

func (c *Client) patchMetadata(ctx context.Context, key Key, field string, values map[string]*string) (ObjectResult, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{field: values}})
	if err != nil {
		return ObjectResult{}, err
	}
	return c.Patch(ctx, PatchRequest{Key: key, Patch: patch})
}

// Scale sets the number of replicas of a Deployment.
func (c *Client) Scale(ctx context.Context, namespace, deployment string, replicas int) (ObjectResult, error) {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	return c.Patch(ctx, PatchRequest{Key: Key{Kind: "Deployment", Namespace: namespace, Name: deployment}, Patch: patch})
}

// Get lists objects of a kind.
func (c *Client) Get(ctx context.Context, r GetRequest) (ObjectList, error) {
	q := url.Values{"kind": {r.Kind}, "namespace": {r.Namespace}, "name": {r.Name}, "selector": {r.Selector}}
	if r.Group != "" {
		q.Set("group", r.Group)
	}
	if r.AllNamespaces {
		q.Set("all", "true")
	}
	if r.Owners {
		q.Set("owners", "true")
	}
	var res ObjectList
	return res, c.engine.call(ctx, http.MethodGet, "/v1/objects", q, nil, &res)
}

// Status reports the state of the whole mesh.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.engine.call(ctx, http.MethodGet, "/v1/status", nil, nil, &s)
}

// Usage reports the CPU time and memory of every component.
func (c *Client) Usage(ctx context.Context) (Usage, error) {
	var u Usage
	return u, c.engine.call(ctx, http.MethodGet, "/v1/usage", nil, nil, &u)
}

// ProxyMetrics reads a node proxy's Prometheus metrics.
func (c *Client) ProxyMetrics(ctx context.Context, node string) ([]byte, error) {
	return c.engine.read(ctx, "/v1/nodes/"+url.PathEscape(node)+"/proxy/metrics")
}

// ProxyConfigDump reads a node proxy's configuration as JSON.
func (c *Client) ProxyConfigDump(ctx context.Context, node string) ([]byte, error) {
	return c.engine.read(ctx, "/v1/nodes/"+url.PathEscape(node)+"/proxy/config_dump")
}

// ProxyLogLevel sets what a node proxy logs, as RUST_LOG says it, and answers what it logs then. An empty level changes nothing.
func (c *Client) ProxyLogLevel(ctx context.Context, node, level string) ([]byte, error) {
	q := url.Values{}
	if level != "" {
		q.Set("level", level)
	}
	body, err := c.engine.open(ctx, http.MethodPost, "/v1/nodes/"+url.PathEscape(node)+"/proxy/logging", q, nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return whole(body, longestAnswer)
}

// AgentStatus reads a node agent's own status as JSON.
func (c *Client) AgentStatus(ctx context.Context, node string) ([]byte, error) {
	return c.engine.read(ctx, "/v1/nodes/"+url.PathEscape(node)+"/agent/status")
}

// ControlDebug reads a page of the control plane's loopback endpoint, such as "metrics" or "debug/objects".
func (c *Client) ControlDebug(ctx context.Context, page string) ([]byte, error) {
	return c.engine.read(ctx, "/v1/control/"+page)
}

// RootNamespace asks the control plane for the namespace whose policies hold for the whole mesh. It is empty if the control plane does not name it.
func (c *Client) RootNamespace(ctx context.Context) (string, error) {
	page, err := c.ControlDebug(ctx, "debug/mesh")
	if err != nil {
		return "", err
	}
	var mesh struct {
		RootNamespace string `json:"rootNamespace"`
	}
	if err := json.Unmarshal(page, &mesh); err != nil {
		return "", fmt.Errorf("read the control plane's page of the mesh: %w", err)
	}
	return mesh.RootNamespace, nil
}

// CA says how it stands with the mesh's certificate authority.
func (c *Client) CA(ctx context.Context) (CAStatus, error) {
	var s CAStatus
	return s, c.engine.call(ctx, http.MethodGet, "/v1/control/debug/ca", nil, nil, &s)
}

// RotateCA asks for another root certificate in the place of the mesh's.
func (c *Client) RotateCA(ctx context.Context) error {
	return c.engine.call(ctx, http.MethodPost, "/v1/ca/rotate", nil, struct{}{}, &struct{}{})
}

// Capture records the links between nodes for some seconds and reports what each TCP connection carried.
func (c *Client) Capture(ctx context.Context, r CaptureRequest) (CaptureReport, error) {
	var rep CaptureReport
	return rep, c.engine.call(ctx, http.MethodGet, "/v1/capture", captureQuery(r), nil, &rep)
}

// CapturePcap records the links between nodes and returns the packets as a pcap file. The caller closes it.
func (c *Client) CapturePcap(ctx context.Context, r CaptureRequest) (io.ReadCloser, error) {
	return c.engine.stream(ctx, "/v1/capture.pcap", captureQuery(r))
}

// Down asks the engine to end the mesh in order and passes on its progress. It returns when the engine is gone or ctx ends.
// Package local's Down does more: it also ends an engine that does not answer and removes what it left.
func (c *Client) Down(ctx context.Context, progress func(Event)) error {
	body, err := c.engine.open(ctx, http.MethodPost, "/v1/down", nil, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	return ReadEvents(body, progress)
}

// ReplaceProxy puts another process in the place of a node's proxy. If that fails, the one before goes on.
func (c *Client) ReplaceProxy(ctx context.Context, node string, r ReplaceRequest, progress func(Event)) error {
	body, err := c.engine.open(ctx, http.MethodPost, "/v1/nodes/"+url.PathEscape(node)+"/proxy/replace", nil, r)
	if err != nil {
		return err
	}
	defer body.Close()
	return ReadEvents(body, progress)
}

// ReadEvents reads progress events, one JSON object a line, until the stream ends or an event says that something failed.
func ReadEvents(r io.Reader, progress func(Event)) error {
	dec := json.NewDecoder(r)
	for {
		var e Event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read progress of the engine: %w", err)
		}
		if progress != nil {
			progress(e)
		}
		if e.State == EventFailed {
			return &Error{Code: http.StatusInternalServerError, Message: e.Error, Fix: e.Fix}
		}
	}
}

// Streams are the ends of an exec session. Nil ones are not connected.
type Streams struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Resize <-chan Size // new sizes of the terminal, with TTY
}

// Exec runs a command in a pod and returns its exit code. An error means that it could not be run or was lost.
// Stdin is read in the background; a read that blocks forever outlives the call, as a terminal's does.
func (c *Client) Exec(ctx context.Context, r ExecRequest, s Streams) (int, error) {
	r.Stdin = s.Stdin != nil
	conn, err := c.engine.upgrade(ctx, "/v1/exec", r)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	var mu sync.Mutex // one frame at a time
	send := func(t FrameType, p []byte) error {
		mu.Lock()
		defer mu.Unlock()
		return WriteFrame(conn, t, p)
	}
	done := make(chan struct{})
	defer close(done)
	if s.Stdin != nil {
		go func() {
			buf := make([]byte, 32<<10)
			for {
				n, err := s.Stdin.Read(buf)
				if n > 0 && send(FrameStdin, buf[:n]) != nil {
					return
				}
				if err != nil {
					_ = send(FrameStdinEOF, nil)
					return
				}
			}
		}()
	}
	if s.Resize != nil {
		go func() {
			for {
				select {
				case size, ok := <-s.Resize:
					if !ok {
						return
					}
					p, _ := json.Marshal(size)
					if send(FrameResize, p) != nil {
						return
					}
				case <-done:
					return
				}
			}
		}()
	}
	return readExec(ctx, conn, s)
}

func readExec(ctx context.Context, conn io.Reader, s Streams) (int, error) {
	for {
		t, p, err := ReadFrame(conn)
		if err != nil {
			return 0, fmt.Errorf("exec: the engine ended the session: %w", cause(ctx, err))
		}
		var w io.Writer
		switch t {
		case FrameStdout:
			w = s.Stdout
		case FrameStderr:
			w = s.Stderr
		case FrameExit:
			var exit Exit
			if err := json.Unmarshal(p, &exit); err != nil {
				return 0, fmt.Errorf("exec: read exit frame: %w", err)
			}
			if exit.Error != "" {
				return exit.Code, &Error{Code: http.StatusBadRequest, Message: exit.Error}
			}
			return exit.Code, nil
		}
		if w != nil {
			if _, err := w.Write(p); err != nil {
				return 0, fmt.Errorf("exec: write output: %w", err)
			}
		}
	}
}

// Connect opens a TCP connection to a port of a pod from inside the pod, for port-forward.
func (c *Client) Connect(ctx context.Context, r ConnectRequest) (net.Conn, error) {
	return c.engine.upgrade(ctx, "/v1/connect", r)
}

func captureQuery(r CaptureRequest) url.Values {
	q := url.Values{"seconds": {strconv.Itoa(r.Seconds)}}
	if r.PodsOnly {
		q.Set("podsOnly", "true")
	}
	return q
}
