package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/engine/api"
)

// forward is one pair of ports: what listens here and what is connected to there.
type forward struct{ local, remote int }

func (cmds podCommands) portForwardCommand() *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use:   "port-forward TARGET [LOCAL:]REMOTE...",
		Short: "reach a port of a pod or service from this machine",
		Example: `  # Then open http://localhost:9080/productpage in a browser.
  lateen port-forward svc/productpage 9080:9080

  # Any free port here.
  lateen port-forward deploy/details-v1 :9080`,
		Args: atLeast(2, "TARGET and at least one [LOCAL:]REMOTE port"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var forwards []forward
			for _, arg := range args[1:] {
				f, err := parseForward(arg)
				if err != nil {
					return err
				}
				forwards = append(forwards, f)
			}
			return cmds.portForward(cmd.Context(), address, args[0], forwards)
		},
		ValidArgsFunction: cmds.app.completeTarget,
	}
	cmd.Flags().StringVar(&address, "address", "127.0.0.1", "address to listen on")
	cmds.app.namespaceFlag(cmd)
	return cmd
}

// parseForward reads "9080", "8080:9080" or ":9080" (any free local port).
func parseForward(s string) (forward, error) {
	local, remote, two := strings.Cut(s, ":")
	if !two {
		remote = local
	}
	f := forward{}
	var err error
	if f.remote, err = parsePort(remote, 1); err != nil {
		return f, usagef("port %q: %w", s, err)
	}
	if local != "" {
		if f.local, err = parsePort(local, 0); err != nil {
			return f, usagef("port %q: %w", s, err)
		}
	}
	return f, nil
}

func parsePort(s string, least int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > 65535 {
		return 0, errors.New("write LOCAL:REMOTE with numbers up to 65535, such as 8080:9080")
	}
	return n, nil
}

func (cmds podCommands) portForward(ctx context.Context, address, target string, forwards []forward) error {
	client := cmds.app.client()
	// One connection beforehand tells a wrong target now instead of at the first request.
	for _, f := range forwards {
		conn, err := client.Connect(ctx, api.ConnectRequest{Namespace: cmds.app.namespace, Target: target, Port: f.remote})
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	for _, f := range forwards {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(f.local)))
		if err != nil {
			return fmt.Errorf("listen on port %d: %w; choose another with LOCAL:REMOTE", f.local, err)
		}
		context.AfterFunc(ctx, func() { _ = listener.Close() })
		if err := cmds.app.printf("forwarding %s -> %s port %d\n", listener.Addr(), target, f.remote); err != nil {
			return err
		}
		serving.Go(func() { cmds.serveForward(ctx, client, listener, target, f.remote) })
	}
	cmds.app.next("stop with Ctrl-C")
	<-ctx.Done()
	return nil
}

func (cmds podCommands) serveForward(ctx context.Context, client *api.Client, listener net.Listener, target string, port int) {
	var relays sync.WaitGroup
	defer relays.Wait()
	for {
		here, err := listener.Accept()
		if err != nil {
			if ctx.Err() == nil {
				cmds.app.warn("port %d is no longer forwarded: %v", port, err)
			}
			return
		}
		relays.Go(func() {
			defer func() { _ = here.Close() }()
			there, err := client.Connect(ctx, api.ConnectRequest{Namespace: cmds.app.namespace, Target: target, Port: port})
			if err != nil {
				if ctx.Err() == nil {
					cmds.app.warn("connection from %s: %v", here.RemoteAddr(), err)
				}
				return
			}
			defer func() { _ = there.Close() }()
			stop := context.AfterFunc(ctx, func() {
				_ = here.Close()
				_ = there.Close()
			})
			defer stop()
			relay(here, there)
		})
	}
}

// relay copies both ways and passes the end of each direction on by itself, so that a half-closed request still gets
// its answer.
func relay(x, y net.Conn) {
	var both sync.WaitGroup
	oneWay := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite()
			return
		}
		_ = to.Close()
		_ = from.Close()
	}
	both.Go(func() { oneWay(x, y) })
	both.Go(func() { oneWay(y, x) })
	both.Wait()
}
