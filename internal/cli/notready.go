package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
)

// nextStart begins the part of a container's message that changes from one look to the next.
const nextStart = "; next start in "

// podReady reports whether a pod's Ready condition is true.
func podReady(pod *corev1.Pod) bool {
	return conditionOf(pod, corev1.PodReady).Status == corev1.ConditionTrue
}

func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// podTrouble says in words why a pod is not ready: what its containers wait for or how they ended, else its conditions. It is empty if
// the pod's status does not say. crashed reports that a container ran and ended, so that its log may tell why.
func podTrouble(pod *corev1.Pod) (why string, crashed bool) {
	var parts []string
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	for _, c := range statuses {
		text, ended := containerTrouble(c)
		if text == "" {
			continue
		}
		if len(statuses) > 1 {
			text = "container " + c.Name + ": " + text
		}
		parts, crashed = append(parts, text), crashed || ended
	}
	if len(parts) > 0 {
		return strings.Join(parts, "; "), crashed
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReady} {
		if c := conditionOf(pod, kind); c.Status == corev1.ConditionFalse && c.Message+c.Reason != "" {
			return withoutNextStart(cmp.Or(c.Message, c.Reason)), false
		}
	}
	return "", false
}

// unscheduled is why a pod has no node. It is empty if the pod has one, if the scheduler has not said, and if the pod's own gates hold
// it back.
func unscheduled(pod *corev1.Pod) string {
	if c := conditionOf(pod, corev1.PodScheduled); c.Status == corev1.ConditionFalse && c.Reason != corev1.PodReasonSchedulingGated {
		return cmp.Or(c.Message, c.Reason)
	}
	return ""
}

func containerTrouble(c corev1.ContainerStatus) (why string, crashed bool) {
	switch waiting, last := c.State.Waiting, c.LastTerminationState.Terminated; {
	case waiting != nil && last != nil:
		return waiting.Reason + ": " + ending(last), true
	case waiting != nil && waiting.Reason == "ContainerCreating":
		return "", false // the usual course of things
	case waiting != nil:
		return strings.Trim(waiting.Reason+": "+withoutNextStart(waiting.Message), ": "), false
	case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
		return ending(c.State.Terminated), true
	}
	return "", false
}

// ending says how a container's process ended. A kubelet's message is what the process left, and its reason "Error" says nothing.
func ending(t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exited with code %d", t.ExitCode)
	if t.Signal != 0 {
		text = fmt.Sprintf("ended by signal %d", t.Signal)
	}
	if t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed" {
		text += " (" + t.Reason + ")"
	}
	return text
}

func withoutNextStart(message string) string {
	message, _, _ = strings.Cut(message, nextStart)
	return message
}

// deploymentTrouble names the difference between the wanted and the present state of a deployment, and the deployment's own reason for it
// if its conditions give one. It is empty if there is no difference.
func deploymentTrouble(d *appsv1.Deployment) string {
	text := missingPods(d)
	if text == "" || d.Status.ObservedGeneration < d.Generation {
		return text
	}
	if why := deploymentCondition(d); why != "" {
		text += "; " + why
	}
	return text
}

// deploymentCondition is the reason that a deployment's conditions give for a lack of pods: none can be made, or none became available in time.
func deploymentCondition(d *appsv1.Deployment) string {
	for _, wanted := range []struct {
		kind   appsv1.DeploymentConditionType
		status corev1.ConditionStatus
	}{{appsv1.DeploymentReplicaFailure, corev1.ConditionTrue}, {appsv1.DeploymentProgressing, corev1.ConditionFalse}} {
		for _, c := range d.Status.Conditions {
			if c.Type == wanted.kind && c.Status == wanted.status && c.Reason+c.Message != "" {
				return cmp.Or(c.Message, c.Reason)
			}
		}
	}
	return ""
}

// replicaFailure is why pods of a deployment cannot be made; empty if its conditions do not say so of its present generation.
func replicaFailure(d *appsv1.Deployment) string {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue && d.Status.ObservedGeneration >= d.Generation {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	return ""
}

// missingPods counts the pods that a deployment lacks or has in excess. It is empty if all are as they should be.
func missingPods(d *appsv1.Deployment) string {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	// A status of an earlier generation counts the pods of an earlier template. While old pods are there, they may be the available ones.
	switch s := d.Status; {
	case s.ObservedGeneration < d.Generation:
		return "its last change is not acted on yet"
	case s.UpdatedReplicas != want:
		return fmt.Sprintf("%d of %d pods of the present version", s.UpdatedReplicas, want)
	case s.Replicas > want:
		return fmt.Sprintf("%d pods, %d more than wanted", s.Replicas, s.Replicas-want)
	case s.Replicas != want:
		return fmt.Sprintf("%d of %d pods", s.Replicas, want)
	case s.AvailableReplicas != want:
		return fmt.Sprintf("%d of %d pods available", s.AvailableReplicas, want)
	}
	return ""
}

// readyCounts counts ready objects by kind.
type readyCounts map[string]int

// String is the counts for people, as in "6 pods, 1 deployment, 2 node proxies": pods and deployments first, proxies last.
func (t readyCounts) String() string {
	order := []string{"Pod", "Deployment"}
	for _, kind := range slices.Sorted(maps.Keys(t)) {
		if !slices.Contains(order, kind) && kind != nodeProxies {
			order = append(order, kind)
		}
	}
	var parts []string
	for _, kind := range append(order, nodeProxies) {
		if n := t[kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, noun(kind, n)))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing is here to wait for")
}

// nodeProxies stands among the kinds for the proxies that acknowledged the configuration.
const nodeProxies = "node proxy"

func noun(kind string, n int) string {
	known, ok := api.LookupKind(kind)
	switch {
	case kind == nodeProxies && n != 1:
		return "node proxies"
	case ok && n != 1:
		return known.Plural
	}
	return strings.ToLower(kind)
}
