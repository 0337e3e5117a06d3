package cli

import "context"

// warnDraining names the nodes on which a node proxy that was replaced still has connections: neither tap nor top sees them. An empty
// node stands for all of them. Nothing is said if the engine does not tell.
func (cmds lifecycleCommands) warnDraining(ctx context.Context, node string) {
	status, err := cmds.app.client().Status(ctx)
	if err != nil {
		return
	}
	for _, n := range status.Nodes {
		count := 0
		for _, d := range n.Proxy.Draining {
			count += d.Connections
		}
		if count > 0 && (node == "" || node == n.Name) {
			cmds.app.warn("not shown: %d TCP connections of %s in a node proxy that was replaced and still drains; `lateen status` tells until when", count, n.Name)
		}
	}
}
