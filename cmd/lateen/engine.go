package main

import (
	"context"
	"sync"

	"lateen.dev/lateen/internal/cli"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local"
)

// localEngine makes meshes of network namespaces on this machine.
type localEngine struct {
	mu sync.Mutex
	// attached are the meshes that end with this process, by name: a handle that is collected would end its mesh.
	attached map[string]*local.Handle
}

// Start implements cli.Engine.
func (e *localEngine) Start(ctx context.Context, o cli.StartOptions, progress func(api.Event)) error {
	handle, err := local.Start(ctx, local.Options{Mesh: o.Mesh, Nodes: o.Nodes, Workers: o.Workers, NodeProxy: o.NodeProxy,
		Families: o.Families, Labels: o.Labels, ProxyEnv: o.ProxyEnv, Latency: o.Latency, CA: local.CAOptions{Dir: o.CADir, TTL: o.CertTTL, Aliases: o.TrustDomainAliases}, Version: cli.Version(), Attached: o.Attached}, progress)
	if err != nil || !o.Attached {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.attached == nil {
		e.attached = map[string]*local.Handle{}
	}
	e.attached[o.Mesh] = handle
	return nil
}

// Alive implements cli.Engine.
func (*localEngine) Alive(mesh string) bool { return local.Alive(mesh) }

// Stop implements cli.Engine.
func (e *localEngine) Stop(ctx context.Context, mesh string, progress func(api.Event)) error {
	if err := local.Down(ctx, mesh, progress); err != nil {
		return err
	}
	e.mu.Lock()
	handle := e.attached[mesh]
	delete(e.attached, mesh)
	e.mu.Unlock()
	if handle == nil {
		return nil
	}
	return handle.Close()
}
