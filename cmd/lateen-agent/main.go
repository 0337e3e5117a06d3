// Command lateen-agent captures the pods of one node for its node proxy.
// Everything it does is in internal/agent; this is only its process.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"lateen.dev/lateen/internal/agent"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := agent.Main(ctx, os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}
