package cli

import (
	"context"
	"maps"
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
	// Nothing is said of an object until the control plane has read this version of it.
	for deadline := time.Now().Add(effectPatience); len(waiting) > 0 && time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollTime):
		}
		for _, kind := range kindsOf(waiting) {
			// All of a kind at once: each question costs the control plane a list of everything.
			list, err := a.client().Get(ctx, api.GetRequest{Kind: kind, AllNamespaces: true})
			if err != nil {
				return
			}
			for _, object := range list.Items {
				if !waiting[object.Key] {
					continue
				}
				state, reason := printer.State(object)
				if state == printer.StateUnknown {
					continue
				}
				delete(waiting, object.Key)
				if state != printer.StateLive {
					a.warn("%s: %s", object.Key, reason)
				}
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

func kindsOf(keys map[api.Key]bool) []string {
	kinds := map[string]bool{}
	for key := range keys {
		kinds[key.Kind] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}
