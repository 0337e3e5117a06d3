package control

import (
	"context"
	"slices"
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
	// settleAgain is when it is looked again without a cause while an acknowledgement is waited for. Each of these tells of itself, so this bounds what
	// an oversight costs.
	settleAgain = 5 * time.Second
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
	timer := time.NewTimer(settleAgain)
	defer timer.Stop()
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.compile.Unsettled():
		case <-c.waypoints.wake:
		case <-timer.C:
		}
		c.waypoints.waiting.Store(true) // what is answered from here on is looked at
		acks, at := c.compile.Settle(func() []compile.GatewayProxy { return gatewayProxies(c.xds.ClientsOf(resourcelog.RoleWaypoint)) })
		c.waypoints.waiting.Store(acks)
		timer.Stop()
		if wait, needed := settleWithin(time.Now(), acks, at); needed {
			timer.Reset(wait)
		}
		pause := time.NewTimer(settlePause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// settleWithin is when it is to be looked again at the latest. needed is false if nothing is waited for.
func settleWithin(now time.Time, acks bool, at time.Time) (wait time.Duration, needed bool) {
	if at.IsZero() {
		return settleAgain, acks
	}
	wait = max(at.Sub(now), 0)
	if acks {
		wait = min(wait, settleAgain)
	}
	return wait, true
}

// gatewayProxies says how far the proxies of Gateways are. One that follows no Gateway yet is left out.
func gatewayProxies(clients []xds.ClientState) (out []compile.GatewayProxy) {
	for _, c := range clients {
		p := compile.GatewayProxy{Identity: c.Identity, Through: resourcelog.Forever, Refused: map[string]bool{}, RefusedPolicies: map[string]bool{}}
		follows := map[string]bool{}
		for _, t := range c.Types {
			follows[t.Type] = true
			p.Through = min(p.Through, t.AckedGeneration)
			switch t.Type {
			case resourcekind.Gateway:
				p.Gateway = t.Only
			case resourcekind.Binding:
				refused(p.Refused, t)
			case resourcekind.RequestAuthorization, resourcekind.RequestAuthentication:
				refused(p.RefusedPolicies, t)
			}
		}
		// A proxy that does not follow a kind of policies, since it has not asked yet or is too old for it, does not have them.
		if slices.ContainsFunc(resourcekind.Mesh.All(), func(k *resourcelog.Kind) bool { return k.For == resourcelog.RoleWaypoint && !follows[k.TypeURL] }) {
			p.Through = 0
		}
		if p.Gateway != "" {
			out = append(out, p)
		}
	}
	return out
}

// refused notes the names of which a client refuses the present version, or may refuse it.
func refused(names map[string]bool, of xds.State) {
	for _, nack := range of.Refused {
		for _, list := range [][]string{nack.Names, nack.Unnamed} {
			for _, name := range list {
				names[name] = true
			}
		}
	}
}
