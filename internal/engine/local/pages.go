package local

import (
	"context"
	"net"
	"net/http"

	"lateen.dev/lateen/internal/engine/local/netns"
)

// dialProxy connects to the pages of a node's proxy. Lateen's own has all of them on a socket in the node's directory, which
// nobody but root reaches: whatever listens on ports of the node may be a pod's. Ztunnel has nothing but those ports.
func (n *node) dialProxy(port string) dialer {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		what := n.program()
		if !what.sure {
			conn, err := n.ownPages(ctx, "", "")
			if err == nil || !what.ztunnel {
				return conn, err
			}
		}
		return what.dial(port)(ctx, "", "")
	}
}

// dial connects to a port of the network that the program is in.
func (p program) dial(port string) dialer {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return netns.Dial(ctx, p.netns, "tcp4", port, nil)
	}
}

// ownPages connects to the socket that Lateen's own proxies have for their pages.
func (n *node) ownPages(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", n.admin)
}

// askProxy gets a page of a node's proxy; port is where ztunnel has it.
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
func agentIsReady(ctx context.Context, socket string) error {
	_, err := fetchUnix(ctx, socket, "/ready")
	return err
}
