// Package apiserver owns what a node's agent asks of a Kubernetes API server, and a client that can do that and nothing else. Kubernetes' own
// client registers every kind of every API group, which are a third of a program and seven megabytes of memory.
package apiserver

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"lateen.dev/lateen/internal/kube"
)

// Client asks an API server. Its parts are called as those of Kubernetes' own client are, and behave like them.
type Client interface {
	Pods(namespace string) Pods
	Namespaces() Namespaces
	Events(namespace string) Events
	DaemonSets(namespace string) DaemonSets
	ServiceAccounts(namespace string) ServiceAccounts
}

// Pods are asked for, followed, and annotated.
type Pods interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Pod, error)
	List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, as types.PatchType, patch []byte, o metav1.PatchOptions, of ...string) (*corev1.Pod, error)
}

// Namespaces are asked for and followed.
type Namespaces interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Namespace, error)
	List(ctx context.Context, o metav1.ListOptions) (*corev1.NamespaceList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Events are written.
type Events interface {
	Create(ctx context.Context, event *corev1.Event, o metav1.CreateOptions) (*corev1.Event, error)
}

// DaemonSets are asked for and followed: the agents' own.
type DaemonSets interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*appsv1.DaemonSet, error)
	List(ctx context.Context, o metav1.ListOptions) (*appsv1.DaemonSetList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// ServiceAccounts give tokens.
type ServiceAccounts interface {
	CreateToken(ctx context.Context, name string, request *authenticationv1.TokenRequest, o metav1.CreateOptions) (*authenticationv1.TokenRequest, error)
}

// kinds are the ones that there are in requests and answers. A whole group's would be kept by the linker with all that they refer to.
var kinds = func() *runtime.Scheme {
	s := runtime.NewScheme()
	core, apps, authentication := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, authenticationv1.SchemeGroupVersion
	s.AddKnownTypes(core, &corev1.Pod{}, &corev1.PodList{}, &corev1.Namespace{}, &corev1.NamespaceList{}, &corev1.Event{}, &corev1.EventList{})
	s.AddKnownTypes(apps, &appsv1.DaemonSet{}, &appsv1.DaemonSetList{})
	s.AddKnownTypes(authentication, &authenticationv1.TokenRequest{})
	for _, gv := range []schema.GroupVersion{core, apps, authentication} {
		metav1.AddToGroupVersion(s, gv)
	}
	return s
}()

var (
	codecs     = serializer.NewCodecFactory(kinds)
	parameters = runtime.NewParameterCodec(kinds)
)

// client speaks of two groups, with one budget for both.
type client struct{ core, apps rest.Interface }

// New makes a client with a budget of its own for what it asks.
func New(cfg *rest.Config) (Client, error) {
	cfg = kube.InProtobuf(cfg)
	cfg.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(kinds, codecs).WithoutConversion()
	if cfg.RateLimiter == nil && cfg.QPS > 0 { // else each group would have a budget
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, max(cfg.Burst, 1))
	}
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up a client of %s: %w", cfg.Host, err)
	}
	of := func(gv schema.GroupVersion, path string) (rest.Interface, error) {
		cfg := rest.CopyConfig(cfg)
		cfg.GroupVersion, cfg.APIPath = &gv, path
		c, err := rest.RESTClientForConfigAndClient(cfg, hc)
		if err != nil {
			return nil, fmt.Errorf("set up a client of %s: %w", cfg.Host, err)
		}
		return c, nil
	}
	c := &client{}
	if c.core, err = of(corev1.SchemeGroupVersion, "/api"); err != nil {
		return nil, err
	}
	c.apps, err = of(appsv1.SchemeGroupVersion, "/apis")
	return c, err
}

func (c *client) Pods(namespace string) Pods {
	return kind[corev1.Pod, corev1.PodList, *corev1.Pod, *corev1.PodList]{c.core, "pods", namespace}
}

func (c *client) Namespaces() Namespaces {
	return kind[corev1.Namespace, corev1.NamespaceList, *corev1.Namespace, *corev1.NamespaceList]{c.core, "namespaces", ""}
}

func (c *client) Events(namespace string) Events {
	return kind[corev1.Event, corev1.EventList, *corev1.Event, *corev1.EventList]{c.core, "events", namespace}
}

func (c *client) DaemonSets(namespace string) DaemonSets {
	return kind[appsv1.DaemonSet, appsv1.DaemonSetList, *appsv1.DaemonSet, *appsv1.DaemonSetList]{c.apps, "daemonsets", namespace}
}

func (c *client) ServiceAccounts(namespace string) ServiceAccounts {
	return accounts{c.core, namespace}
}

type accounts struct {
	client    rest.Interface
	namespace string
}

// CreateToken implements ServiceAccounts.
func (a accounts) CreateToken(ctx context.Context, name string, request *authenticationv1.TokenRequest, o metav1.CreateOptions) (*authenticationv1.TokenRequest, error) {
	out := &authenticationv1.TokenRequest{}
	err := a.client.Post().Namespace(a.namespace).Resource("serviceaccounts").Name(name).SubResource("token").VersionedParams(&o, parameters).Body(request).Do(ctx).Into(out)
	return out, err
}
