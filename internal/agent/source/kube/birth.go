package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lateen.dev/lateen/internal/agent/cni"
	"lateen.dev/lateen/internal/agent/source"
)

// askTime bounds the questions to the API server about a pod that is being born.
const askTime = 1500 * time.Millisecond

// Born notes the network of a pod that is being born and says whether the pod is to be captured, and its uid. An error
// means that this cannot be told. The API server is asked only for what the watches have not told yet.
func (s *Source) Born(ctx context.Context, r cni.Request) (uid string, wanted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	pod, watched := s.find(r)
	if !watched {
		if pod, err = s.ask(ctx, r); err != nil {
			return "", false, err
		}
	}
	if !pod.Spec.HostNetwork {
		// The pod is known before its namespace is asked for and before its network is noted. A snapshot that is being made drops the namespaces
		// that no pod needs and the networks of pods that it does not know. The watch may have told of this pod since that snapshot began.
		s.mu.Lock()
		s.early[pod.UID] = earlyPod{pod: pod, since: time.Now()}
		s.mu.Unlock()
	}
	namespace, err := s.namespace(ctx, r.Namespace)
	if err != nil {
		return "", false, err
	}
	if !pod.Spec.HostNetwork {
		if err := s.note(pod, r); err != nil {
			return "", false, err
		}
		s.mu.Lock()
		delete(s.lost, pod.UID)
		s.mu.Unlock()
		s.change()
	}
	return string(pod.UID), source.Enrolled(described(pod, sandbox{}, s.opts.Own), namespace), nil
}

// note notes the network that a request names.
func (s *Source) note(pod *corev1.Pod, r cni.Request) error {
	id := sandboxUID(pod)
	if r.Op == cni.Check {
		// It tells nothing new of a sandbox that is known, and may be about an older one.
		if _, known := s.boxes.get(id); known {
			return nil
		}
	}
	// A request that waited for an agent may be of a sandbox that the runtime has given up since.
	box, err := s.finder.boxOf(r)
	if err != nil {
		return err
	}
	if err := s.boxes.born(id, box); err != nil {
		s.log.Warn("a restart of the agent will look for the pod's network", "pod", r.Namespace+"/"+r.Name, "err", err)
	}
	return nil
}

// asksAbout says whether a request is about the pod. Runtimes of old say no uid.
func asksAbout(p *corev1.Pod, r cni.Request) bool {
	return p.Namespace == r.Namespace && p.Name == r.Name && (r.UID == "" || sandboxUID(p) == r.UID)
}

// find looks for the pod among those that the watch has told of.
func (s *Source) find(r cni.Request) (*corev1.Pod, bool) {
	o, there, err := s.pods.GetStore().GetByKey(r.Namespace + "/" + r.Name)
	if err != nil || !there || !asksAbout(o.(*corev1.Pod), r) {
		return nil, false
	}
	return o.(*corev1.Pod), true
}

func (s *Source) ask(ctx context.Context, r cni.Request) (*corev1.Pod, error) {
	p, err := s.births.Pods(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask for pod %s/%s: %w", r.Namespace, r.Name, err)
	}
	if !asksAbout(p, r) {
		return nil, fmt.Errorf("ask for pod %s/%s: the API server has another one of that name", r.Namespace, r.Name)
	}
	trimmed, err := trimPod(p)
	return trimmed.(*corev1.Pod), err
}

// Part says of a pod whose sandbox goes that nothing runs in it any more, and returns when nothing of the mesh is open
// in it, or ctx ends.
func (s *Source) Part(ctx context.Context, r cni.Request) {
	pod, known := s.find(r)
	if !known {
		pod, known = s.findEarly(r)
	}
	id := r.UID
	if known {
		id = sandboxUID(pod)
	}
	if !s.boxes.going(id, r.Sandbox, r.NetNS) {
		return // a sandbox that the pod has no more
	}
	defer func() {
		if err := s.boxes.gone(id, r.Sandbox); err != nil {
			s.log.Warn("a network that is gone stays noted until the agent restarts", "pod", r.Namespace+"/"+r.Name, "err", err)
		}
		if known {
			// The watch tells of it if it is still there.
			s.forgetEarly(pod.UID)
		}
		s.change()
	}()
	s.mu.Lock()
	if !known || !s.synced {
		s.mu.Unlock()
		return
	}
	done := s.parting[pod.UID]
	if done == nil {
		done = make(chan struct{})
		s.parting[pod.UID] = done
	}
	s.mu.Unlock()
	s.change()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// parted ends the wait for a pod.
func (s *Source) parted(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done := s.parting[uid]; done != nil {
		close(done)
		delete(s.parting, uid)
	}
}

// gone says whether an error means that the pod is no more, or that another has its name.
func gone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) && errors.As(err, new(apierrors.APIStatus))
}
