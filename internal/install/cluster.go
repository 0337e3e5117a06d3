// Package install owns how a mesh comes onto a Kubernetes cluster, is replaced part by part, takes another mesh's place and goes again:
// what would change, in which order, what is waited for, and what is refused with its fix. What the objects are is the charts' affair.
package install

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/kube/clients"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Cluster is what an installation reaches.
type Cluster struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Host is the API server's address, for messages.
	Host string
	// Config is how it is reached; nil where there are only the clients.
	Config *rest.Config
}

// Connect finds a cluster as kubectl would.
func Connect(kubeconfig, context string) (*Cluster, error) {
	cfg, err := kube.Config(kubeconfig, context)
	if err != nil {
		return nil, err
	}
	client, err := clients.Typed(cfg)
	if err != nil {
		return nil, err
	}
	dynamic, err := clients.Dynamic(cfg)
	if err != nil {
		return nil, err
	}
	return &Cluster{Client: client, Dynamic: dynamic, Host: cfg.Host, Config: cfg}, nil
}

// OldestVersion is the first version of Kubernetes that the mesh runs on: it has ValidatingAdmissionPolicy in v1 and pods' appArmorProfile.
const OldestVersion = "1.30"

// Version asks the API server for its version, and refuses one that is too old.
func (c *Cluster) Version() (string, error) {
	info, err := c.Client.Discovery().ServerVersion()
	if err != nil {
		return "", c.explain(err)
	}
	v, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return "", fmt.Errorf("read the version %q of the API server: %w", info.GitVersion, err)
	}
	if v.LessThan(version.MustParseGeneric(OldestVersion)) {
		return info.GitVersion, &api.Error{Code: 409, Message: fmt.Sprintf("the cluster has Kubernetes %s; Lateen needs %s or later", info.GitVersion, OldestVersion), Fix: "upgrade the cluster"}
	}
	return info.GitVersion, nil
}

// apiServer is the address of an API server, which the errors name.
type apiServer string

func (c *Cluster) explain(err error) error { return apiServer(c.Host).explain(err) }

// explain gives an answer of the API server, or its absence, a fix.
func (s apiServer) explain(err error) error {
	var said *api.Error
	switch {
	case err == nil, errors.As(err, &said), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case apierrors.IsUnauthorized(err):
		return &api.Error{Code: 401, Message: fmt.Sprintf("the API server at %s does not accept the credentials of the kubeconfig", s), Fix: "log in to the cluster again, or choose others with --kubeconfig and --context"}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &api.Error{Code: 409, Message: "the API server refuses, because a namespace is being removed: " + kube.Cause(err), Fix: "wait until it is gone (kubectl describe namespace says what keeps it), and repeat the command"}
	case apierrors.IsForbidden(err):
		return &api.Error{Code: 403, Message: "the API server refuses: " + kube.Cause(err), Fix: "use credentials of a cluster administrator, or have one grant the right that is named; `lateen check --pre` lists all that are missing"}
	}
	if why, fix := kube.Unusable(err); why != "" {
		return &api.Error{Code: 502, Message: fmt.Sprintf("the API server at %s cannot be asked: %s", s, why), Fix: fix}
	}
	if kube.Away(err) {
		return &api.Error{Code: 503, Message: fmt.Sprintf("the API server at %s cannot be reached: %s", s, kube.Cause(err)), Fix: "see that the cluster runs and that this machine reaches it (kubectl cluster-info), or choose another with --kubeconfig and --context"}
	}
	return err
}

// resource says how the API server calls a kind.
type resource struct {
	schema.GroupVersionResource
	namespaced bool
}

func of(group, version, plural string, namespaced bool) resource {
	return resource{schema.GroupVersionResource{Group: group, Version: version, Resource: plural}, namespaced}
}

// resources are the kinds that the charts can have, also those of earlier versions: what is removed is looked for among them.
var resources = map[string]resource{
	"Namespace":                        of("", "v1", "namespaces", false),
	"ServiceAccount":                   of("", "v1", "serviceaccounts", true),
	"ConfigMap":                        of("", "v1", "configmaps", true),
	"Secret":                           of("", "v1", "secrets", true),
	"Service":                          of("", "v1", "services", true),
	"Deployment":                       of("apps", "v1", "deployments", true),
	"DaemonSet":                        of("apps", "v1", "daemonsets", true),
	"Role":                             of("rbac.authorization.k8s.io", "v1", "roles", true),
	"RoleBinding":                      of("rbac.authorization.k8s.io", "v1", "rolebindings", true),
	"ClusterRole":                      of("rbac.authorization.k8s.io", "v1", "clusterroles", false),
	"ClusterRoleBinding":               of("rbac.authorization.k8s.io", "v1", "clusterrolebindings", false),
	"PodDisruptionBudget":              of("policy", "v1", "poddisruptionbudgets", true),
	"HorizontalPodAutoscaler":          of("autoscaling", "v2", "horizontalpodautoscalers", true),
	"CustomResourceDefinition":         of("apiextensions.k8s.io", "v1", "customresourcedefinitions", false),
	"ValidatingAdmissionPolicy":        of("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", false),
	"ValidatingAdmissionPolicyBinding": of("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", false),
	"GatewayClass":                     of("gateway.networking.k8s.io", "v1", "gatewayclasses", false),
	"PodMonitor":                       of("monitoring.coreos.com", "v1", "podmonitors", true),
	"PrometheusRule":                   of("monitoring.coreos.com", "v1", "prometheusrules", true),
}

// definitions are the kinds that the chart lateen-crds has.
var definitions = []string{"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

// isDefinition tells what belongs to the kinds, and outlives the mesh, from what belongs to a component of it.
func isDefinition(o *unstructured.Unstructured) bool {
	return slices.Contains(definitions, o.GetKind()) && o.GetLabels()[wellknown.Component] == ""
}

// objects reads and writes single objects of the kinds that the charts have.
type objects struct {
	dynamic dynamic.Interface
	server  apiServer
}

func (c *Cluster) objects() objects { return objects{dynamic: c.Dynamic, server: apiServer(c.Host)} }

// of reaches the objects of one kind where another is.
func (c objects) of(like *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	r, known := resources[like.GetKind()]
	if !known {
		return nil, fmt.Errorf("the charts have a %s, which the installer does not know", like.GetKind())
	}
	if r.namespaced {
		return c.dynamic.Resource(r.GroupVersionResource).Namespace(like.GetNamespace()), nil
	}
	return c.dynamic.Resource(r.GroupVersionResource), nil
}

// get is an object as it is in the cluster; nil if it is not.
func (c objects) get(ctx context.Context, like *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	client, err := c.of(like)
	if err != nil {
		return nil, err
	}
	live, err := client.Get(ctx, like.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, c.server.explain(err)
}

// Labels by which an installation knows its own.
const (
	managedBy = wellknown.ManagedBy
	partOf    = wellknown.PartOf
	lateen    = "lateen"
	ours      = managedBy + "=" + lateen
)

// fieldManager is the installer's name in objects' managedFields.
const fieldManager = "lateen-install"

// apply makes an object what it should be, and returns what it would become with dryRun.
func (c objects) apply(ctx context.Context, o *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	client, err := c.of(o)
	if err != nil {
		return nil, err
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	out, err := client.Apply(ctx, o.GetName(), o, options)
	if err != nil {
		err = c.server.explain(err)
		var said *api.Error
		if errors.As(err, &said) {
			return nil, err
		}
		return nil, fmt.Errorf("apply %s: %w", called(o), err)
	}
	return out, nil
}

// called is an object as people name it.
func called(o *unstructured.Unstructured) string {
	return api.Key{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}.String()
}
