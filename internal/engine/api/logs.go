package api

import (
	"context"
	"io"
	"net/url"
	"strconv"
	"time"
)

// The parts of a mesh that have a log.
const (
	PartProxy   = "proxy"   // of a node
	PartAgent   = "agent"   // of a node
	PartControl = "control" // the control plane
)

// Logs streams what a container wrote, stdout and stderr together. The caller closes it.
func (c *Client) Logs(ctx context.Context, r LogsRequest) (io.ReadCloser, error) {
	q := r.query()
	q.Set("namespace", r.Namespace)
	q.Set("target", r.Target)
	q.Set("container", r.Container)
	return c.engine.stream(ctx, "/v1/logs", q)
}

// PartLog streams the log of a part of the mesh: of its only process, or of the one on a node. Namespace, Target and Container of the
// request do not count. The caller closes it.
func (c *Client) PartLog(ctx context.Context, part, node string, r LogsRequest) (io.ReadCloser, error) {
	path := "/v1/" + part + "/log"
	if part != PartControl {
		path = "/v1/nodes/" + url.PathEscape(node) + "/" + part + "/log"
	}
	return c.engine.stream(ctx, path, r.query())
}

// ProxyLog streams a node proxy's log: its access log and what else it says.
func (c *Client) ProxyLog(ctx context.Context, node string, follow bool, tail int) (io.ReadCloser, error) {
	return c.PartLog(ctx, PartProxy, node, LogsRequest{Follow: follow, Tail: tail})
}

// AgentLog streams a node agent's log.
func (c *Client) AgentLog(ctx context.Context, node string, follow bool, tail int) (io.ReadCloser, error) {
	return c.PartLog(ctx, PartAgent, node, LogsRequest{Follow: follow, Tail: tail})
}

// ControlLog streams the control plane's log.
func (c *Client) ControlLog(ctx context.Context, follow bool, tail int) (io.ReadCloser, error) {
	return c.PartLog(ctx, PartControl, "", LogsRequest{Follow: follow, Tail: tail})
}

// query says which lines are asked for.
func (r LogsRequest) query() url.Values {
	q := url.Values{}
	for name, asked := range map[string]bool{"follow": r.Follow, "previous": r.Previous, "timestamps": r.Timestamps} {
		if asked {
			q.Set(name, "true")
		}
	}
	if r.Tail > 0 {
		q.Set("tail", strconv.Itoa(r.Tail))
	}
	if !r.Since.IsZero() {
		q.Set("since", r.Since.UTC().Format(time.RFC3339Nano))
	}
	return q
}
