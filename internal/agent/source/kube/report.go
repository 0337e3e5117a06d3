package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lateen.dev/lateen/internal/agent/source"
	apikube "lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/model/wellknown"
)

const reportTime = 10 * time.Second

// lastEvent is what was last written about a pod.
type lastEvent struct {
	message string
	at      time.Time
	spent   int // events of the burst that are not made up for
}

const (
	// eventGap is the least time between two events that say the same of a pod.
	eventGap = 5 * time.Minute
	// eventBurst is how many events about a pod are written at once, eventEvery the time after which one more may be: who
	// changes a pod again and again has no more of them written.
	eventBurst = 3
	eventEvery = 30 * time.Second
)

// next says whether an event may be written now, and what is noted then.
func (l lastEvent) next(message string, now time.Time) (lastEvent, bool) {
	since := now.Sub(l.at)
	spent := max(l.spent-int(since/eventEvery), 0)
	if l.message == message && since < eventGap || spent >= eventBurst {
		return l, false
	}
	return lastEvent{message: message, at: now, spent: spent + 1}, true
}

// Reasons of the agent's events.
const (
	reasonFailed    = "CaptureFailed"
	reasonRefused   = "CaptureExceptionRefused"
	reasonUnwritten = "CaptureAnnotationRefused"
)

// Report writes a pod's redirection to its annotation, and what is wrong as an event.
func (s *Source) Report(ctx context.Context, uid string, r source.Report) error {
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	id := types.UID(uid)
	if r.State == source.Parted {
		s.parted(id)
		return nil
	}
	pod := s.byUID(id)
	if pod == nil {
		return source.ErrGone
	}
	if s.differs(pod, r.State) {
		if err := s.annotate(ctx, pod, r.State); err != nil {
			if gone(err) {
				s.forgetEarly(id)
				s.change()
				return source.ErrGone
			}
			if refused(err) {
				// The pod is captured, and peers do not learn of it: whoever looks at the pod should.
				s.event(ctx, pod, reasonUnwritten, "what the agent has to say of the pod's capture cannot be written: "+err.Error())
				err = fmt.Errorf("%w: %w", source.ErrRefused, err)
			}
			return fmt.Errorf("annotate the pod: %w", err)
		}
	}
	if r.Error != "" {
		reason, message := reasonFailed, "the pod is to be in the mesh and is not captured yet: "+r.Error
		if r.State == source.Enabled {
			reason, message = reasonRefused, "the pod is captured without the exception: "+r.Error
		}
		s.event(ctx, pod, reason, message)
	}
	return nil
}

// refused says whether the API server has judged a write and refused it, so that the same one is refused again. What the agent has no right
// to is not the pod's fault, nor its owner's to fix.
func refused(err error) bool {
	return apikube.Inadmissible(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

func (s *Source) byUID(uid types.UID) *corev1.Pod {
	for _, o := range s.pods.GetStore().List() {
		if p := o.(*corev1.Pod); p.UID == uid {
			return p
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.early[uid].pod
}

// differs says whether the annotation may say something else: what the watch tells can be older than the last write.
func (s *Source) differs(pod *corev1.Pod, state source.State) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	written, wrote := s.says[pod.UID]
	reads := source.Disabled
	if pod.Annotations[wellknown.Redirection] == string(source.Enabled) {
		reads = source.Enabled
	}
	return reads != state || wrote && written != state
}

func (s *Source) annotate(ctx context.Context, pod *corev1.Pod, state source.State) error {
	var value any
	if state == source.Enabled {
		value = string(source.Enabled)
	}
	// The uid makes the API server refuse it for another pod of that name.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]any{wellknown.Redirection: value},
	}})
	if err != nil {
		return err
	}
	// The subresource lets metadata change, and of the pod nothing that makes it run something else.
	if _, err := s.client.Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says[pod.UID] = state
	return nil
}

// event says at the pod why it is not as its owner wants it. It is a help to people, and nothing depends on it.
func (s *Source) event(ctx context.Context, pod *corev1.Pod, reason, message string) {
	const longest = 1024 // events.k8s.io/v1, note
	message = cut(message, longest)
	now := time.Now()
	s.mu.Lock()
	last, news := s.events[pod.UID].next(message, now)
	if news {
		s.events[pod.UID] = last
	}
	s.mu.Unlock()
	if !news {
		return
	}
	_, err := s.client.Events(pod.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: eventName(pod.Name, now)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		},
		Reason: reason, Message: message, Type: corev1.EventTypeWarning, Count: 1,
		FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now),
		Source: corev1.EventSource{Component: "lateen-agent", Host: s.opts.Node}, ReportingController: wellknown.ReportingAgent, ReportingInstance: s.opts.Node,
	}, metav1.CreateOptions{})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("an event about a pod could not be written", "pod", pod.Namespace+"/"+pod.Name, "err", err)
	}
}

// eventName is that of an event about a pod, as long as a name may be at most.
func eventName(pod string, now time.Time) string {
	const longest = 253 // DNS subdomain
	suffix := fmt.Sprintf(".%x", now.UnixNano())
	// A shortened name must not end with a character that a label of a name cannot end with.
	return strings.TrimRight(cut(pod, longest-len(suffix)), "-.") + suffix
}

// cut keeps as much of a text as fits, and no part of a letter.
func cut(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	for longest > 0 && !utf8.RuneStart(text[longest]) {
		longest--
	}
	return text[:longest]
}
