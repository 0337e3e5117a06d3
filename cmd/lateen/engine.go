package main

import (
	"context"

	"lateen.dev/lateen/internal/cli"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local"
)

// localEngine makes meshes of network namespaces on this machine.
type localEngine struct{}

// Start implements cli.Engine.
func (localEngine) Start(ctx context.Context, o cli.StartOptions, progress func(api.Event)) error {
	_, err := local.Start(ctx, local.Options{Mesh: o.Mesh, Nodes: o.Nodes, Workers: o.Workers, NodeProxy: o.NodeProxy,
		Families: o.Families, Labels: o.Labels, ProxyEnv: o.ProxyEnv, Latency: o.Latency, CA: local.CAOptions{Dir: o.CADir, TTL: o.CertTTL, Aliases: o.TrustDomainAliases}, Version: cli.Version()}, progress)
	return err
}

// Stop implements cli.Engine.
func (localEngine) Stop(ctx context.Context, mesh string, progress func(api.Event)) error {
	return local.Down(ctx, mesh, progress)
}
