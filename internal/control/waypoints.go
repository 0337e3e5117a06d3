package control

import (
	"context"
	"sync/atomic"
	"time"

	"lateen.dev/lateen/internal/compile"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/xds"
)

const (
	// settlePause is the least time between two looks at what the proxies of waypoints have acknowledged.
	settlePause = 50 * time.Millisecond
	// settleAgain is when it is looked again without a cause while something is waited for: time passes, and nothing tells that the log has caught up
	// with a batch that changed no resource.
	settleAgain = 500 * time.Millisecond
)

// waypoints has objects go behind the waypoints that they ask for once those are ready. While nothing waits for that it costs nothing.
type waypoints struct {
	// waiting says that acknowledgements matter.
	waiting atomic.Bool
	wake    chan struct{}
}

// answered tells that a client has come, gone or answered. It does not block.
func (w *waypoints) answered() {
	if !w.waiting.Load() {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// settleWaypoints looks until ctx ends.
func (c *Control) settleWaypoints(ctx context.Context) {
	again := time.NewTicker(settleAgain)
	defer again.Stop()
	for {
		var timer <-chan time.Time
		if c.waypoints.waiting.Load() {
			timer = again.C
		}
		select {
		case <-ctx.Done():
			return
		case <-c.compile.Unsettled():
		case <-c.waypoints.wake:
		case <-timer:
		}
		c.waypoints.waiting.Store(true) // what is answered from here on is looked at
		c.waypoints.waiting.Store(c.compile.Settle(gatewayProxies(c.xds.ClientsOf(resourcelog.RoleWaypoint))))
		pause := time.NewTimer(settlePause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// gatewayProxies says how far the proxies of Gateways are. One that follows no Gateway yet is left out.
func gatewayProxies(clients []xds.ClientState) (out []compile.GatewayProxy) {
	for _, c := range clients {
		p := compile.GatewayProxy{Identity: c.Identity, Through: resourcelog.Forever, Refused: map[string]bool{}}
		bound := false
		for _, t := range c.Types {
			p.Through = min(p.Through, t.AckedGeneration)
			switch t.Type {
			case resourcekind.Gateway:
				p.Gateway = t.Only
			case resourcekind.Binding:
				bound = true
				for _, nack := range t.Refused {
					for _, name := range nack.Names {
						p.Refused[name] = true
					}
				}
			}
		}
		if p.Gateway != "" && bound {
			out = append(out, p)
		}
	}
	return out
}
