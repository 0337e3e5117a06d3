// Command suitepeer has what the suites of tests/suites need beside programs of others: a server that echoes requests, clients and
// servers of WebSockets, a bridge from WebSockets over HTTP/1.1 to those over HTTP/2 (RFC 8441), and adapters that put a service
// between the clients and servers of the Connect conformance suite. It is made of Go's own HTTP, so it shares no code with the proxies.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

const usage = `usage:
  suitepeer serve ADDRESS                            echo requests and WebSockets
  suitepeer bridge ADDRESS TARGET                    take WebSockets over HTTP/1.1 and open them at TARGET over HTTP/2
  suitepeer websocket URL                            check the WebSockets of "suitepeer serve"
  suitepeer connect-server HOST BASE COMMAND...      start a conformance server, and say that it is at HOST
  suitepeer connect-client HOST PORT COMMAND...      start a conformance client, and send it to HOST and PORT`

const exitUsage = 64

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	var ended *exec.ExitError
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(exitUsage)
	case ctx.Err() != nil:
	case errors.As(err, &ended) && ended.ExitCode() > 0:
		os.Exit(ended.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "suitepeer:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong arguments")

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	verb, args := args[0], args[1:]
	switch {
	case verb == "serve" && len(args) == 1:
		return serve(ctx, args[0])
	case verb == "bridge" && len(args) == 2:
		listener, err := net.Listen("tcp", args[0])
		if err != nil {
			return err
		}
		return bridge(ctx, listener, args[1])
	case verb == "websocket" && len(args) == 1:
		return askWebSockets(ctx, args[0])
	case verb == "connect-server" && len(args) > 2:
		return connectServer(ctx, args[0], args[1], args[2:])
	case verb == "connect-client" && len(args) > 2:
		return connectClient(ctx, args[0], args[1], args[2:])
	}
	return errUsage
}
