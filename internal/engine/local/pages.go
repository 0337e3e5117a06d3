package local

import (
	"context"
	"net"
	"net/http"

	"lateen.dev/lateen/internal/engine/local/netns"
)

// dialProxy connects to the pages of a node's proxy. Lateen's own has all of them on a socket in the node's directory, which
// nobody but root reaches: whatever listens on ports of the node may be a pod's. A stock proxy has nothing but those ports.
func (n *node) dialProxy(port string) dialer {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", n.admin)
		if err == nil || !n.stock {
			return conn, err
		}
		return netns.Dial(ctx, n.NetNS, "tcp4", port, nil)
	}
}

// askProxy gets a page of a node's proxy; port is where a stock one has it.
func (n *node) askProxy(ctx context.Context, port, path string) ([]byte, error) {
	return get(ctx, n.dialProxy(port), "http://"+port+path)
}

// tellProxy posts to a page of a node's proxy.
func (n *node) tellProxy(ctx context.Context, path string) ([]byte, error) {
	return ask(ctx, n.dialProxy(proxyAdmin), http.MethodPost, "http://"+proxyAdmin+path)
}

func (n *node) proxyIsReady(ctx context.Context) error {
	_, err := n.askProxy(ctx, proxyReadyURL, "/healthz/ready")
	return err
}

// agentIsReady asks on the agent's own socket, for the same reason.
func (e *Engine) agentIsReady(ctx context.Context, n *node) error {
	_, err := fetchUnix(ctx, e.agentSocket(n), "/ready")
	return err
}
