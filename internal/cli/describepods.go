package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

// pod says where a pod runs, how its containers are, and what the mesh does with it.
func (s *surroundings) pod(object api.Object) (*printer.PodDescription, error) {
	pod, err := decode[corev1.Pod](object)
	if err != nil {
		return nil, err
	}
	summary, err := printer.SummaryOfPod(object)
	if err != nil {
		return nil, err
	}
	d := &printer.PodDescription{PodSummary: summary, ServiceAccount: pod.Spec.ServiceAccountName, Containers: containersOf(pod), HostNetwork: pod.Spec.HostNetwork}
	for _, owner := range pod.OwnerReferences {
		d.ControlledBy = owner.Kind + "/" + owner.Name
	}
	for _, ip := range pod.Status.PodIPs {
		d.IPs = append(d.IPs, ip.IP)
	}
	status, err := s.status()
	if err != nil {
		return nil, err
	}
	for _, p := range status.Pods {
		if p.Namespace == pod.Namespace && p.Name == pod.Name {
			d.Mesh = &printer.MeshDescription{State: p.Mesh, Reason: p.MeshReason, Since: p.MeshSince, Enrolled: p.Enrolled, Identity: p.Identity,
				Exceptions: p.Exceptions, ExceptionsRefused: p.ExceptionsRefused, Unmeshed: len(p.Unmeshed)}
			if d.Reason == "" {
				d.Reason = p.Reason
			}
		}
	}
	policies, err := s.policies()
	if err != nil {
		return nil, err
	}
	for _, p := range policies {
		if p.selects(pod.Namespace, pod.Labels) {
			d.Policies = append(d.Policies, p.summary())
		}
	}
	services, err := s.in("Service", pod.Namespace)
	if err != nil {
		return nil, err
	}
	for _, o := range services {
		svc, err := decode[corev1.Service](o)
		if err != nil {
			return nil, err
		}
		if len(svc.Spec.Selector) > 0 && matches(svc.Spec.Selector, pod.Labels) {
			d.Services = append(d.Services, svc.Name)
		}
	}
	return d, nil
}

// decode reads an object as its type.
func decode[T any](object api.Object) (*T, error) {
	var value T
	if err := json.Unmarshal(object.Raw, &value); err != nil {
		return nil, fmt.Errorf("read %s: %w", object.Key, err)
	}
	return &value, nil
}

// summaries are pods in a list, by name.
func summaries(pods []api.Object) ([]printer.PodSummary, error) {
	var found []printer.PodSummary
	for _, o := range pods {
		summary, err := printer.SummaryOfPod(o)
		if err != nil {
			return nil, err
		}
		found = append(found, summary)
	}
	return byName(found, func(p printer.PodSummary) string { return p.Namespace + "/" + p.Name }), nil
}

// containersOf are the containers of a pod with their states, those of the spec that have none included.
func containersOf(pod *corev1.Pod) []printer.ContainerDescription {
	var found []printer.ContainerDescription
	add := func(specs []corev1.Container, states []corev1.ContainerStatus, init bool) {
		for _, spec := range specs {
			c := printer.ContainerDescription{Name: spec.Name, Init: init, Image: spec.Image, Command: append(slices.Clone(spec.Command), spec.Args...), State: "Waiting"}
			for _, p := range spec.Ports {
				c.Ports = append(c.Ports, fmt.Sprintf("%d/%s", p.ContainerPort, protocolOf(p.Protocol)))
			}
			i := slices.IndexFunc(states, func(s corev1.ContainerStatus) bool { return s.Name == spec.Name })
			if i >= 0 {
				c.Ready, c.Restarts = states[i].Ready, states[i].RestartCount
				c.State, c.Reason, c.Since = stateOf(states[i].State)
				c.LastState, c.LastReason, _ = stateOf(states[i].LastTerminationState)
			}
			found = append(found, c)
		}
	}
	add(pod.Spec.InitContainers, pod.Status.InitContainerStatuses, true)
	add(pod.Spec.Containers, pod.Status.ContainerStatuses, false)
	return found
}

// deployment says how far a deployment is and which pods are its own.
func (s *surroundings) deployment(object api.Object) (*printer.DeploymentDescription, error) {
	deployment, err := decode[appsv1.Deployment](object)
	if err != nil {
		return nil, err
	}
	d := &printer.DeploymentDescription{Replicas: 1, Updated: deployment.Status.UpdatedReplicas, Ready: deployment.Status.ReadyReplicas, Available: deployment.Status.AvailableReplicas,
		Strategy: string(deployment.Spec.Strategy.Type), ServiceAccount: deployment.Spec.Template.Spec.ServiceAccountName, PodLabels: deployment.Spec.Template.Labels}
	if d.Strategy == "" {
		d.Strategy = string(appsv1.RollingUpdateDeploymentStrategyType)
	}
	if deployment.Spec.Replicas != nil {
		d.Replicas = *deployment.Spec.Replicas
	}
	for _, c := range deployment.Status.Conditions {
		d.Conditions = append(d.Conditions, api.Condition{Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time})
	}
	d.Containers = containersOf(&corev1.Pod{Spec: deployment.Spec.Template.Spec})
	for i := range d.Containers {
		d.Containers[i].State = "" // of a template
	}
	if deployment.Spec.Selector == nil {
		return d, nil
	}
	d.Selector, d.Expressions = deployment.Spec.Selector.MatchLabels, deployment.Spec.Selector.MatchExpressions
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("read spec.selector: %w", err)
	}
	list, err := s.client.Get(s.ctx, api.GetRequest{Kind: "Pod", Namespace: deployment.Namespace, Owners: true})
	if err != nil {
		return nil, err
	}
	var pods []api.Object
	for _, o := range list.Items {
		pod, err := decode[corev1.Pod](o)
		if err != nil {
			return nil, err
		}
		if selector.Matches(labels.Set(pod.Labels)) && !controlledByOther(pod, o.Owners, deployment.UID) {
			pods = append(pods, o)
		}
	}
	d.Pods, err = summaries(pods)
	return d, err
}

// controlledByOther tells whether a pod has a controller, and the object with this UID is neither that nor among the controller's owners. A
// selector alone may match the pods of another object.
func controlledByOther(pod *corev1.Pod, owners []string, uid types.UID) bool {
	controller := metav1.GetControllerOf(pod)
	return controller != nil && controller.UID != uid && !slices.Contains(owners, string(uid))
}

// service says where a service leads.
func (s *surroundings) service(object api.Object) (*printer.ServiceDescription, error) {
	svc, err := decode[corev1.Service](object)
	if err != nil {
		return nil, err
	}
	d := &printer.ServiceDescription{Type: string(svc.Spec.Type), Selector: svc.Spec.Selector, ClusterIPs: svc.Spec.ClusterIPs, ExternalName: svc.Spec.ExternalName}
	if d.Type == "" {
		d.Type = string(corev1.ServiceTypeClusterIP)
	}
	if len(d.ClusterIPs) == 0 && svc.Spec.ClusterIP != "" {
		d.ClusterIPs = []string{svc.Spec.ClusterIP}
	}
	var pods []api.Object
	if len(svc.Spec.Selector) > 0 {
		all, err := s.in("Pod", svc.Namespace)
		if err != nil {
			return nil, err
		}
		pods = slices.DeleteFunc(all, func(o api.Object) bool { return !matches(svc.Spec.Selector, labelsIn(o)) })
	}
	for _, p := range svc.Spec.Ports {
		port := printer.PortDescription{Name: p.Name, Port: p.Port, Protocol: protocolOf(p.Protocol), TargetPort: p.TargetPort.String()}
		if port.TargetPort == "0" || port.TargetPort == "" {
			port.TargetPort = strconv.Itoa(int(p.Port))
		}
		for _, o := range pods {
			pod, err := decode[corev1.Pod](o)
			if err != nil {
				return nil, err
			}
			summary, err := printer.SummaryOfPod(o)
			if err != nil {
				return nil, err
			}
			number := targetOf(port.TargetPort, pod)
			if number == "" || pod.Status.PodIP == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
				continue
			}
			port.Endpoints = append(port.Endpoints, printer.Endpoint{Address: net.JoinHostPort(pod.Status.PodIP, number), Pod: pod.Name, Node: pod.Spec.NodeName, Ready: summary.IsReady})
		}
		byName(port.Endpoints, func(e printer.Endpoint) string { return e.Pod })
		d.Ports = append(d.Ports, port)
	}
	return d, nil
}

// targetOf is the number of a port of a pod, which may be given by its name; empty if the pod has none of that name.
func targetOf(target string, pod *corev1.Pod) string {
	if _, err := strconv.Atoi(target); err == nil {
		return target
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == target {
				return strconv.Itoa(int(p.ContainerPort))
			}
		}
	}
	return ""
}

func protocolOf(p corev1.Protocol) string {
	if p == "" {
		return string(corev1.ProtocolTCP)
	}
	return string(p)
}

// stateOf is the state of a container in a word, why, and since when.
func stateOf(s corev1.ContainerState) (state, reason string, since time.Time) {
	switch {
	case s.Running != nil:
		return "Running", "", s.Running.StartedAt.Time
	case s.Terminated != nil:
		reason := fmt.Sprintf("exit code %d", s.Terminated.ExitCode)
		if s.Terminated.Reason != "" && s.Terminated.Reason != "Error" && s.Terminated.Reason != "Completed" {
			reason = s.Terminated.Reason + ", " + reason
		}
		if s.Terminated.Message != "" {
			reason += ": " + s.Terminated.Message
		}
		return "Terminated", reason, s.Terminated.FinishedAt.Time
	case s.Waiting != nil:
		return "Waiting", strings.TrimSuffix(s.Waiting.Reason+": "+s.Waiting.Message, ": "), time.Time{}
	}
	return "", "", time.Time{}
}
