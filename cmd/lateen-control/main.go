// Command lateen-control is the control plane of the mesh: it reads configuration from a directory and serves identities
// and routing state to node proxies. Its verb deployer is a program with an identity of its own, which runs waypoints on Kubernetes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"lateen.dev/lateen/internal/control"
	"lateen.dev/lateen/internal/deployer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	command := control.Command()
	command.AddCommand(deployer.Command())
	err := command.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lateen-control:", err)
		os.Exit(1)
	}
}
