package cli

import (
	"context"
	"slices"
	"time"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

// effectPatience bounds the wait for the control plane's opinion on what was applied; lateen status has it in any case.
const effectPatience = time.Second

// partial are the kinds of which a part may have no effect.
var partial = []string{"AuthorizationPolicy", "PeerAuthentication", "Service", "ServiceEntry", "WorkloadEntry", "Gateway"}

// warnPartial names the objects among the results that are not in force as they are written.
func (a *app) warnPartial(ctx context.Context, result api.ApplyResult) {
	waiting := map[api.Key]bool{}
	for _, r := range result.Results {
		if slices.Contains(partial, r.Key.Kind) {
			waiting[r.Key] = true
		}
	}
	// The first look is late enough for what is said to be about the new version of an object.
	for deadline := time.Now().Add(effectPatience); len(waiting) > 0 && time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollTime):
		}
		for key := range waiting {
			list, err := a.client().Get(ctx, api.GetRequest{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name})
			if err != nil || len(list.Items) != 1 {
				delete(waiting, key) // gone already
				continue
			}
			state, reason := printer.State(list.Items[0])
			if state == printer.StateUnknown {
				continue
			}
			delete(waiting, key)
			if state != printer.StateLive {
				a.warn("%s: %s", key, reason)
			}
		}
	}
	if len(waiting) == 0 {
		return
	}
	if status, err := a.client().Status(ctx); err == nil && !status.Control.Ready {
		a.warn("not in force yet: the control plane is not ready; lateen status%s says more", a.meshFlag())
	}
}
