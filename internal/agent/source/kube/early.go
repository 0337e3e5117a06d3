package kube

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lateen.dev/lateen/internal/agent/cni"
)

// earlyPod is a pod that may have been born before the watch told of it. Its end the watch may never tell of either.
type earlyPod struct {
	pod   *corev1.Pod
	since time.Time // when it was last known to be there
}

// earlyTime is how long the watch may take to tell of a pod before the API server is asked whether it is there.
const earlyTime = time.Minute

// findEarly looks for the pod of a request among those that the watch has not told of.
func (s *Source) findEarly(r cni.Request) (*corev1.Pod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.early {
		if asksAbout(e.pod, r) {
			return e.pod, true
		}
	}
	return nil, false
}

func (s *Source) forgetEarly(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.early, uid)
}

// watchEarly asks for the pods that the watch goes on not to tell of until ctx ends, and forgets those that are no more.
func (s *Source) watchEarly(ctx context.Context) {
	tick := time.NewTicker(s.earlyTime / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, p := range s.overdue(time.Now()) {
			if s.isGone(ctx, p) {
				s.forgetEarly(p.UID)
				s.change()
			}
		}
	}
}

// overdue are the pods that the watch should have told of, each once in earlyTime.
func (s *Source) overdue(now time.Time) (pods []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, e := range s.early {
		if now.Sub(e.since) >= s.earlyTime {
			s.early[uid] = earlyPod{pod: e.pod, since: now}
			pods = append(pods, e.pod)
		}
	}
	return pods
}

// isGone says whether the API server knows the pod no more. An API server that does not answer says nothing.
func (s *Source) isGone(ctx context.Context, p *corev1.Pod) bool {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	now, err := s.client.Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	if err != nil {
		return gone(err)
	}
	return now.UID != p.UID
}
