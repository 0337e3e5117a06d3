package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"lateen.dev/lateen/internal/engine/api"
)

// pollEvery is how often what is waited for is looked at.
const pollEvery = 300 * time.Millisecond

// poll calls look until it says that it is done, fails, or ctx ends; its error then says so.
func poll(ctx context.Context, look func(context.Context) (done bool, err error)) error {
	for {
		done, err := look(ctx)
		if err != nil && (ctx.Err() != nil || hurried(err)) {
			<-ctx.Done() // the answer is the same as if the time had ended between two looks
			return context.Cause(ctx)
		}
		if err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollEvery):
		}
	}
}

// defined waits until the kinds can be used.
func (c objects) defined(ctx context.Context, crds []*unstructured.Unstructured) error {
	waiting := slices.Clone(crds)
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		for len(waiting) > 0 {
			if waiting[0].GetKind() == "CustomResourceDefinition" {
				live, err := c.get(ctx, waiting[0])
				if err != nil || live == nil || !established(live) {
					return false, err
				}
			}
			waiting = waiting[1:]
		}
		return true, nil
	})
	if err != nil && ctx.Err() != nil && len(waiting) > 0 {
		return fmt.Errorf("the API server does not serve %s yet: %w; see kubectl describe crd %s", waiting[0].GetName(), err, waiting[0].GetName())
	}
	return err
}

// progressOf is how far a workload is.
type progressOf struct {
	done    bool
	ready   int32
	updated int32
	want    int32
}

func (p progressOf) String() string {
	if p.updated < p.want {
		return fmt.Sprintf("%d of %d replaced, %d ready", p.updated, p.want, p.ready)
	}
	return fmt.Sprintf("%d of %d ready", p.ready, p.want)
}

func deployed(d *appsv1.Deployment) progressOf {
	want := replicas(d.Spec.Replicas)
	s := d.Status
	return progressOf{want: want, updated: s.UpdatedReplicas, ready: s.AvailableReplicas,
		done: s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.AvailableReplicas == want && s.Replicas == want}
}

// spread looks at the pods themselves: for the status of a DaemonSet the oldest pod of a node speaks for it, also while that one only
// carries the connections that it had, which may take minutes, and its successor has long been at work.
func spread(d *appsv1.DaemonSet, pods []corev1.Pod) progressOf {
	updated, ready, both := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp != nil {
			continue
		}
		is, there := p.Labels[templateGeneration] == d.Annotations[appsv1.DeprecatedTemplateGeneration], podReady(p)
		updated[p.Spec.NodeName] = updated[p.Spec.NodeName] || is
		ready[p.Spec.NodeName] = ready[p.Spec.NodeName] || there
		both[p.Spec.NodeName] = both[p.Spec.NodeName] || is && there
	}
	want := d.Status.DesiredNumberScheduled
	return progressOf{want: want, updated: count(updated), ready: count(ready), done: d.Status.ObservedGeneration >= d.Generation && count(both) >= want}
}

// templateGeneration is the label by which the controller of DaemonSets tells old pods from new ones.
const templateGeneration = "pod-template-generation"

func count(nodes map[string]bool) int32 {
	n := int32(0)
	for _, is := range nodes {
		if is {
			n++
		}
	}
	return n
}

// rollouts tells how far Deployments and DaemonSets are, and what keeps their pods from starting.
type rollouts struct {
	client kubernetes.Interface
	server apiServer
}

func (c *Cluster) rollouts() rollouts { return rollouts{client: c.Client, server: apiServer(c.Host)} }

// rollout waits until a Deployment or DaemonSet runs as it is described. It ends early when a pod of it cannot ever start.
func (c rollouts) rollout(ctx context.Context, workload *unstructured.Unstructured, tell func(string)) (string, error) {
	var p progressOf
	var w watched
	shown := ""
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		var err error
		if p, w, err = c.progress(ctx, workload); err != nil || p.done {
			return p.done, err
		}
		if s := p.String(); s != shown {
			tell(s)
			shown = s
		}
		return false, c.hopeless(ctx, workload.GetNamespace(), w)
	})
	if err == nil {
		return fmt.Sprintf("%d of %d", p.ready, p.want), nil
	}
	if ctx.Err() == nil || errors.Is(ctx.Err(), context.Canceled) {
		return "", err
	}
	// Time is up; who asked for the state may ask a little longer.
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return "", c.unready(late, workload, p, w.selector, err)
}

// watched are the pods of a workload, and what the newest of them are like.
type watched struct {
	selector string
	template corev1.PodTemplateSpec
}

// of says whether a pod is as the workload is described now, rather than as it was before.
func (w watched) of(p *corev1.Pod) bool {
	for name, value := range w.template.Annotations {
		if p.Annotations[name] != value {
			return false
		}
	}
	return slices.EqualFunc(w.template.Spec.Containers, p.Spec.Containers, func(a, b corev1.Container) bool {
		return a.Image == b.Image && a.ImagePullPolicy == b.ImagePullPolicy && slices.Equal(a.Args, b.Args) && reflect.DeepEqual(a.Env, b.Env)
	})
}

func (c rollouts) progress(ctx context.Context, workload *unstructured.Unstructured) (progressOf, watched, error) {
	var p progressOf
	var w watched
	var selector *metav1.LabelSelector
	if workload.GetKind() == "Deployment" {
		d, err := c.client.AppsV1().Deployments(workload.GetNamespace()).Get(ctx, workload.GetName(), metav1.GetOptions{})
		if err != nil {
			return p, w, c.server.explain(err)
		}
		p, selector, w.template = deployed(d), d.Spec.Selector, d.Spec.Template
	} else {
		d, err := c.client.AppsV1().DaemonSets(workload.GetNamespace()).Get(ctx, workload.GetName(), metav1.GetOptions{})
		if err != nil {
			return p, w, c.server.explain(err)
		}
		pods, err := c.client.CoreV1().Pods(workload.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
		if err != nil {
			return p, w, c.server.explain(err)
		}
		p, selector, w.template = spread(d, pods.Items), d.Spec.Selector, d.Spec.Template
	}
	w.selector = metav1.FormatLabelSelector(selector)
	return p, w, nil
}

// mostRestarts is after how many restarts a container is taken for one that will not start.
const mostRestarts = 3

// hopeless is an error if a pod cannot start as it is, however long one waits. Pods from before, which are being replaced, do not count.
func (c rollouts) hopeless(ctx context.Context, namespace string, w watched) error {
	pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: w.selector})
	if err != nil {
		return c.server.explain(err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp != nil || !w.of(p) {
			continue
		}
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if t := stuck(p, s); t != nil {
				return &trouble{said: t, log: c.lastLines(ctx, p, s.Name)}
			}
		}
	}
	return nil
}

// stuck says why a container cannot start, and the fix; nil if it may yet.
func stuck(p *corev1.Pod, s corev1.ContainerStatus) *api.Error {
	w := s.State.Waiting
	name := "pod " + p.Namespace + "/" + p.Name
	if p.Spec.NodeName != "" {
		name += " on node " + p.Spec.NodeName
	}
	switch {
	case w == nil:
		return nil
	case w.Reason == "ErrImageNeverPull":
		return &api.Error{Code: 409, Message: fmt.Sprintf("%s cannot start: image %s is not on the node, and image.pullPolicy is Never", name, s.Image),
			Fix: "import the image into the node's container runtime, or let it be pulled with --set image.pullPolicy=IfNotPresent"}
	case w.Reason == "ImagePullBackOff", w.Reason == "InvalidImageName":
		return &api.Error{Code: 409, Message: fmt.Sprintf("%s cannot start: image %s cannot be pulled: %s", name, s.Image, strings.TrimSpace(w.Message)),
			Fix: "choose the registry that has Lateen's images with --set image.registry=HOST/PATH (make images makes them), name credentials for it with --set image.pullSecrets={NAME}, or correct --set image.tag"}
	case w.Reason == "CreateContainerConfigError" && !strings.Contains(w.Message, "istio-ca-root-cert"):
		return &api.Error{Code: 409, Message: fmt.Sprintf("%s cannot start: %s", name, w.Message), Fix: "make what it names, or take it out of the values"}
	case w.Reason == "CrashLoopBackOff" && s.RestartCount >= mostRestarts:
		why := "it ended again and again"
		if t := s.LastTerminationState.Terminated; t != nil {
			why = fmt.Sprintf("it ended %d times, last with exit code %d", s.RestartCount, t.ExitCode)
		}
		return &api.Error{Code: 409, Message: fmt.Sprintf("%s does not stay up: %s", name, why), Fix: fmt.Sprintf("its last lines say why; all are in kubectl logs -n %s %s --previous", p.Namespace, p.Name)}
	}
	return nil
}

// trouble is an error with the log lines concerned.
type trouble struct {
	said *api.Error
	log  []string
}

// Error implements error.
func (t *trouble) Error() string { return t.said.Error() }

// Unwrap gives the fix to whoever looks for it.
func (t *trouble) Unwrap() error { return t.said }

func logOf(err error) []string {
	var t *trouble
	if errors.As(err, &t) {
		return t.log
	}
	return nil
}

// unready says what is not as it should be when time is up: the pods concerned, the last event of each, and the last lines of one.
func (c rollouts) unready(ctx context.Context, workload *unstructured.Unstructured, p progressOf, selector string, cause error) error {
	t := &trouble{said: &api.Error{Code: 408, Fix: fmt.Sprintf("see what is in the way with kubectl describe %s -n %s %s", strings.ToLower(workload.GetKind()), workload.GetNamespace(), workload.GetName())}}
	message := fmt.Sprintf("%s: %s", called(workload), p)
	if cause != nil {
		message += fmt.Sprintf(" (%s)", cause)
		t.said.Fix += "; the command can be repeated and goes on where it ended"
	}
	pods, err := c.client.CoreV1().Pods(workload.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err == nil && len(pods.Items) == 0 {
		message += "; it has no pods" + c.lastEvent(ctx, workload.GetNamespace(), workload.GetKind(), workload.GetName())
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if podReady(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		message += fmt.Sprintf("; pod %s on node %s is not ready%s", pod.Name, orNone(pod.Spec.NodeName), c.lastEvent(ctx, pod.Namespace, "Pod", pod.Name))
		if t.log == nil && len(pod.Spec.Containers) > 0 {
			t.log = c.lastLines(ctx, pod, pod.Spec.Containers[0].Name)
		}
	}
	t.said.Message = message
	return t
}

func orNone(s string) string {
	if s == "" {
		return "(none yet)"
	}
	return s
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// lastEvent is what was said last about an object, in brackets; empty if nothing was.
func (c rollouts) lastEvent(ctx context.Context, namespace, kind, name string) string {
	events, err := c.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name})
	if err != nil || len(events.Items) == 0 {
		return ""
	}
	last := slices.MaxFunc(events.Items, func(a, b corev1.Event) int { return eventTime(a).Compare(eventTime(b)) })
	return fmt.Sprintf(" (%s: %s)", last.Reason, strings.TrimSpace(last.Message))
}

func eventTime(e corev1.Event) time.Time {
	if !e.LastTimestamp.IsZero() {
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}

// lastLines are the last lines that a container wrote, of its last run if the present one has not started.
func (c rollouts) lastLines(ctx context.Context, p *corev1.Pod, container string) []string {
	const count = 5
	for _, previous := range []bool{false, true} {
		n := int64(count)
		stream, err := c.client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: container, TailLines: &n, Previous: previous}).Stream(ctx)
		if err != nil {
			continue
		}
		b, _ := io.ReadAll(io.LimitReader(stream, 16<<10))
		_ = stream.Close()
		if text := strings.TrimSpace(string(b)); text != "" {
			return strings.Split(text, "\n")
		}
	}
	return nil
}
