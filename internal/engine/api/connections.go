package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Connection is one connection as a node's proxy or a waypoint's sees it, or an event of one.
type Connection struct {
	Node  string `json:"node,omitempty"`  // empty for a waypoint's
	Event string `json:"event,omitempty"` // while following: "opened", "closed", "missed" (see Count) or "watching"
	Count uint64 `json:"count,omitempty"` // with "missed": how many events were lost because nobody read in time
	ID    string `json:"id,omitempty"`    // unique in one process of the node's proxy; empty if it was refused at once
	// Pair is the same in what the proxies of both ends tell of a connection: the parent-id of the traceparent that the client's proxy
	// sends with its request, 16 hex digits. It is empty where no request was sent or received.
	Pair      string `json:"pair,omitempty"`
	Direction string `json:"direction,omitempty"`
	// Source is the client, Destination the next hop of an outbound and the application of an inbound connection.
	Source       ConnectionEnd `json:"source,omitzero"`
	Destination  ConnectionEnd `json:"destination,omitzero"`
	Service      string        `json:"service,omitempty"` // the host name of the service that was addressed
	Wanted       string        `json:"wanted,omitempty"`  // the address that the client asked for
	Tunnelled    bool          `json:"tunnelled,omitempty"`
	Tunnel       uint64        `json:"tunnel,omitempty"`
	AllowedBy    string        `json:"allowedBy,omitempty"`    // the policy that let it in, if one had to
	Denial       *Denial       `json:"denied,omitempty"`       // the policies by which this proxy refused or ended it
	DeniedByPeer bool          `json:"deniedByPeer,omitempty"` // the server's proxy refused it by a policy
	Retried      bool          `json:"retried,omitempty"`      // an attempt that failed; its connection went to another endpoint
	WouldDeny    *Denial       `json:"wouldDeny,omitempty"`    // the policies in dry run that would refuse it
	State        string        `json:"state,omitempty"`        // "opening", "open" or "cut"
	Seconds      float64       `json:"seconds,omitempty"`
	Bytes        Bytes         `json:"bytes"`
	Flags        string        `json:"flags,omitempty"`
	Error        string        `json:"error,omitempty"` // why it did not end well
}

// ClientConnection is a connection of a client as a waypoint's proxy sees it.
type ClientConnection struct {
	Connection
	Protocol string `json:"protocol,omitempty"` // "HTTP/1.1", "HTTP/2" or "TCP"
	Requests *int   `json:"requests,omitempty"` // under way; nil if the proxy reads no requests
}

// Bytes counts the bytes of a connection by their way, whichever end tells of it.
type Bytes struct {
	ClientToServer uint64 `json:"clientToServer"`
	ServerToClient uint64 `json:"serverToClient"`
}

// Denial names policies that refuse a connection, as namespace/name and as node proxies know them: those that stand for
// PeerAuthentications have names that no object has.
type Denial struct {
	By          []string `json:"by,omitempty"`          // each refuses it alone
	NoneMatched []string `json:"noneMatched,omitempty"` // ALLOW policies of which none matches
	NotKnown    []string `json:"notKnown,omitempty"`    // they cover the workload, and the proxy could not read them
	Unnamed     int      `json:"unnamed,omitempty"`     // further policies, which the proxy counts and does not name
}

// ConnectionEnd is one end of a connection, as far as the proxy knows it.
type ConnectionEnd struct {
	Address   string `json:"address,omitempty"`
	Workload  string `json:"workload,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Identity  string `json:"identity,omitempty"` // proven by TLS, or the one that the mesh gives to who has the address
}

// Verdict is how a connection stands or ended, in one word or three.
type Verdict string

// The verdicts, the gravest first.
const (
	Denied       Verdict = "denied"         // a policy refused or ended it at the proxy that tells
	DeniedByPeer Verdict = "denied by peer" // a policy refused it at the server's proxy
	Failed       Verdict = "failed"
	Retried      Verdict = "retried"    // an attempt failed, and its connection went to another endpoint
	WouldDeny    Verdict = "would deny" // a policy in dry run would refuse it
	OK           Verdict = "ok"
	Open         Verdict = "open"
)

// Verdict is how the proxy that tells of the connection sees it.
func (c Connection) Verdict() Verdict {
	switch {
	case c.Retried:
		return Retried
	case c.DeniedByPeer:
		return DeniedByPeer
	case c.Flags == "DENY":
		return Denied
	case c.Error != "":
		return Failed
	case c.WouldDeny != nil:
		return WouldDeny
	case c.Event != "closed":
		return Open
	}
	return OK
}

// PodUse is what one pod's connections came to since its proxy serves it. Bytes are those that the pod received and sent, be it the
// client or the server.
type PodUse struct {
	Node          string  `json:"node"`
	Namespace     string  `json:"namespace"`
	Pod           string  `json:"pod"`
	Identity      string  `json:"identity"`
	Open          uint64  `json:"open"`
	Opened        uint64  `json:"opened"`
	Denied        uint64  `json:"denied"` // by policies, at either end
	Failed        uint64  `json:"failed"` // for other reasons
	ReceivedBytes uint64  `json:"receivedBytes"`
	SentBytes     uint64  `json:"sentBytes"`
	CPUSeconds    float64 `json:"cpuSeconds"` // of the proxy's workers
}

// ConnectionFilter chooses connections; what is empty chooses all.
type ConnectionFilter struct {
	Namespace string // of either end
	Pod       string // of either end: a name, or the beginning of one followed by *
	Peer      string // either end's name or identity
	Service   string // its name, with or without namespace and domain
	Direction string // "inbound" or "outbound"
	Only      string // "denied" or "failed"
}

func (f ConnectionFilter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"namespace": f.Namespace, "pod": f.Pod, "peer": f.Peer, "service": f.Service,
		"direction": f.Direction, "only": f.Only} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// Connections lists the open connections of a node's proxy.
func (c *Client) Connections(ctx context.Context, node string, f ConnectionFilter) ([]Connection, error) {
	body, err := c.engine.stream(ctx, "/v1/nodes/"+url.PathEscape(node)+"/proxy/connections", f.query())
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var page struct {
		Connections []Connection `json:"connections"`
	}
	if err := json.NewDecoder(body).Decode(&page); err != nil {
		return nil, fmt.Errorf("read the connections of %s: %w", node, err)
	}
	for i := range page.Connections {
		page.Connections[i].Node = node
	}
	return page.Connections, nil
}

// WaypointConnections lists the connections of the clients of a waypoint's pod. The page is bounded: truncated says that there are more.
func (c *Client) WaypointConnections(ctx context.Context, namespace, pod string, f ConnectionFilter) (list []ClientConnection, truncated bool, err error) {
	body, err := c.engine.stream(ctx, "/v1/pods/"+url.PathEscape(namespace)+"/"+url.PathEscape(pod)+"/proxy/connections", f.query())
	if err != nil {
		return nil, false, err
	}
	defer body.Close()
	var page struct {
		Connections []ClientConnection `json:"connections"`
		Truncated   bool               `json:"truncated"`
	}
	if err := json.NewDecoder(io.LimitReader(body, longestAnswer)).Decode(&page); err != nil {
		return nil, false, fmt.Errorf("read the connections of pod %s/%s: %w", namespace, pod, err)
	}
	return page.Connections, page.Truncated, nil
}

// NoWaypoint refuses a question that only pods of waypoints answer.
func NoWaypoint(namespace, pod string) *Error {
	return &Error{Code: http.StatusBadRequest, Message: fmt.Sprintf("pod %s/%s is no waypoint's and lists no connections", namespace, pod),
		Fix: "`lateen waypoint list -A` lists waypoints; the connections of other pods are listed by their nodes' proxies"}
}

// FollowConnections passes on every connection that opens or closes on a node's proxy, until ctx ends, tell refuses one
// with an error, or the proxy ends.
func (c *Client) FollowConnections(ctx context.Context, node string, f ConnectionFilter, tell func(Connection) error) error {
	q := f.query()
	q.Set("follow", "true")
	body, err := c.engine.stream(ctx, "/v1/nodes/"+url.PathEscape(node)+"/proxy/connections", q)
	if err != nil {
		return err
	}
	defer body.Close()
	decoder := json.NewDecoder(bufio.NewReader(body))
	for {
		connection := Connection{Node: node}
		if err := decoder.Decode(&connection); err != nil {
			if ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return ctx.Err()
			}
			return fmt.Errorf("read the connections of %s: %w", node, err)
		}
		if err := tell(connection); err != nil {
			return err
		}
	}
}

// PodUses lists what the pods on a node come to.
func (c *Client) PodUses(ctx context.Context, node string) ([]PodUse, error) {
	var page struct {
		Pods []PodUse `json:"pods"`
	}
	b, err := c.engine.read(ctx, "/v1/nodes/"+url.PathEscape(node)+"/proxy/pods")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &page); err != nil {
		return nil, fmt.Errorf("read the pods of %s: %w", node, err)
	}
	for i := range page.Pods {
		page.Pods[i].Node = node
	}
	return page.Pods, nil
}
