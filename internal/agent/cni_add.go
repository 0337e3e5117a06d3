package agent

import (
	"context"
	"strings"
	"time"

	"lateen.dev/lateen/internal/agent/cni"
)

// captureTime is how long the birth of a pod waits for its capture. The runtime then tries again from the beginning.
const captureTime = 10 * time.Second

// partTime is how long the end of a pod's network waits for the ends of its connections.
const partTime = 3 * time.Second

// nursery is where pods are born and end, as the CNI plugin tells.
type nursery interface {
	Born(ctx context.Context, r cni.Request) (uid string, wanted bool, err error)
	Part(ctx context.Context, r cni.Request)
}

// cniHandler answers the CNI plugin: the source knows the pod, and the agent captures it.
type cniHandler struct {
	nursery nursery
	agent   interface {
		Await(ctx context.Context, uid, netns string) error
		Captured(ctx context.Context, uid string) (ok bool, reason string, err error)
	}
	limit time.Duration // captureTime
}

// Add captures the pod before anything runs in it, if it is to be.
func (h cniHandler) Add(ctx context.Context, r cni.Request, working func()) cni.Answer {
	uid, wanted, err := h.nursery.Born(ctx, r)
	switch {
	case err != nil:
		return cni.Answer{Verdict: cni.Unknown, Reason: err.Error()}
	case !wanted:
		return cni.Answer{Verdict: cni.Outside}
	}
	working()
	ctx, cancel := context.WithTimeout(ctx, h.limit)
	defer cancel()
	if err := h.agent.Await(ctx, uid, r.NetNS); err != nil {
		// The part of the reason that is about running pods is cut off: this pod has not started.
		reason, _, _ := strings.Cut(err.Error(), "; connections stay plain")
		return cni.Answer{Verdict: cni.Failed, Reason: reason}
	}
	return cni.Answer{Verdict: cni.Done}
}

// Del lets the pod's connections end before its network goes.
func (h cniHandler) Del(ctx context.Context, r cni.Request) {
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	h.nursery.Part(ctx, r)
}

// Check says whether the pod is as its owner wants it.
func (h cniHandler) Check(ctx context.Context, r cni.Request) cni.Answer {
	uid, wanted, err := h.nursery.Born(ctx, r)
	switch {
	case err != nil:
		return cni.Answer{Verdict: cni.Unknown, Reason: err.Error()}
	case !wanted:
		return cni.Answer{Verdict: cni.Outside}
	}
	switch ok, reason, err := h.agent.Captured(ctx, uid); {
	case err != nil:
		return cni.Answer{Verdict: cni.Unknown, Reason: err.Error()}
	case !ok:
		return cni.Answer{Verdict: cni.Failed, Reason: reason}
	}
	return cni.Answer{Verdict: cni.Done}
}
