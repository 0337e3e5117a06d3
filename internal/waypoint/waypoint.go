// Package waypoint owns the objects that a waypoint is made of, as a function of its Gateway and of what surrounds it. It reads nothing and
// applies nothing: the deployer of Kubernetes and the local engine do.
package waypoint

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Settings are what an installation says of all its waypoints.
type Settings struct {
	// Image, PullPolicy and PullSecrets are those of the proxy's container.
	Image       string
	PullPolicy  corev1.PullPolicy
	PullSecrets []string
	// Control is the URL of the control plane, for configuration and certificates.
	Control string
	// TrustDomain and its aliases, the cluster, the network and the DNS suffix are those of the mesh.
	TrustDomain             string
	TrustDomainAliases      []string
	ClusterID, Network      string
	ClusterDomain           string
	LogLevel, LogFormat     string
	Version                 string
	Resources               corev1.ResourceRequirements
	TerminationGraceSeconds int64
}

// Input is a Gateway and what bears on its objects.
type Input struct {
	Gateway *gatewayv1.Gateway
	// Parameters is the ConfigMap that the Gateway's parametersRef names; nil if it names none, or if there is none.
	Parameters *corev1.ConfigMap
	// Defaults are the ConfigMaps of the root namespace with the label that names the Gateway's class. The oldest one counts.
	Defaults []corev1.ConfigMap
	Settings Settings
}

// Objects are what a waypoint is made of. Those that it does not have are nil.
type Objects struct {
	// ServiceAccount is nil where the Gateway names an account, which somebody else makes, whatever its name is.
	ServiceAccount *corev1.ServiceAccount
	Service        *corev1.Service
	Deployment     *appsv1.Deployment
	Autoscaler     *autoscalingv2.HorizontalPodAutoscaler
	Budget         *policyv1.PodDisruptionBudget
}

// The reasons of a Refusal, as conditions of the Gateway have them.
const (
	ReasonInvalid    = "Invalid"
	ReasonParameters = "InvalidParameters"
)

// Refusal is why no objects can be made for a Gateway. The message names the object, the field and the cure.
type Refusal struct{ Reason, Message string }

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

func refuse(reason, format string, args ...any) error {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Build makes the objects of a Gateway. Its error is a *Refusal.
func Build(in Input) (Objects, error) {
	if err := check(in.Gateway); err != nil {
		return Objects{}, err
	}
	layers, err := layersOf(in)
	if err != nil {
		return Objects{}, err
	}
	base := Objects{Service: service(in.Gateway), Deployment: deployment(in), Autoscaler: autoscaler(in.Gateway), Budget: budget(in.Gateway)}
	if !NamesAccount(in.Gateway) {
		base.ServiceAccount = serviceAccount(in.Gateway)
	}
	return layers.apply(base)
}
