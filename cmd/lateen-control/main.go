// Command lateen-control is the control plane of the mesh: it reads configuration from a directory and serves identities
// and routing state to node proxies.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"lateen.dev/lateen/internal/control"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := control.Command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lateen-control:", err)
		os.Exit(1)
	}
}
