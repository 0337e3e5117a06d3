package apiserver

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// pointer is a pointer to T that is an object of Kubernetes.
type pointer[T any] interface {
	*T
	runtime.Object
}

// kind asks about one kind. The generic client that Kubernetes has for that (gentype) brings what tests of it need, a megabyte.
type kind[T, L any, PT pointer[T], PL pointer[L]] struct {
	client              rest.Interface
	resource, namespace string
}

// Get asks for an object.
func (k kind[T, L, PT, PL]) Get(ctx context.Context, name string, o metav1.GetOptions) (PT, error) {
	out := PT(new(T))
	err := k.client.Get().NamespaceIfScoped(k.namespace, k.namespace != "").Resource(k.resource).Name(name).VersionedParams(&o, parameters).Do(ctx).Into(out)
	return out, err
}

// List asks for all objects.
func (k kind[T, L, PT, PL]) List(ctx context.Context, o metav1.ListOptions) (PL, error) {
	out := PL(new(L))
	err := k.client.Get().NamespaceIfScoped(k.namespace, k.namespace != "").Resource(k.resource).VersionedParams(&o, parameters).Timeout(timeout(o)).Do(ctx).Into(out)
	return out, err
}

// Watch follows all objects.
func (k kind[T, L, PT, PL]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return k.client.Get().NamespaceIfScoped(k.namespace, k.namespace != "").Resource(k.resource).VersionedParams(&o, parameters).Timeout(timeout(o)).Watch(ctx)
}

// Create makes an object.
func (k kind[T, L, PT, PL]) Create(ctx context.Context, object PT, o metav1.CreateOptions) (PT, error) {
	out := PT(new(T))
	err := k.client.Post().NamespaceIfScoped(k.namespace, k.namespace != "").Resource(k.resource).VersionedParams(&o, parameters).Body(object).Do(ctx).Into(out)
	return out, err
}

// Patch changes an object, or a part of it that has a path of its own.
func (k kind[T, L, PT, PL]) Patch(ctx context.Context, name string, as types.PatchType, patch []byte, o metav1.PatchOptions, of ...string) (PT, error) {
	out := PT(new(T))
	err := k.client.Patch(as).NamespaceIfScoped(k.namespace, k.namespace != "").Resource(k.resource).Name(name).SubResource(of...).VersionedParams(&o, parameters).Body(patch).Do(ctx).Into(out)
	return out, err
}

// timeout is how long the API server may take, as it is asked to.
func timeout(o metav1.ListOptions) time.Duration {
	if o.TimeoutSeconds == nil {
		return 0
	}
	return time.Duration(*o.TimeoutSeconds) * time.Second
}
