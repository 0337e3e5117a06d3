package kube

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"lateen.dev/lateen/internal/kube"
)

// follow keeps a kind's sink in step with the API server until ctx ends.
func (s *Source) follow(ctx context.Context, k *kind, version string) {
	sink := s.sinks[k]
	s.mu.Lock()
	sink.version = version
	s.mu.Unlock()
	s.reflect(ctx, k, s.lister(k, version), k.example, sink, func(err error, verb string) {
		if err != nil && ctx.Err() != nil {
			return // a request that ends with the kind, or with the source, is no trouble
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.heard(k, &sink.troubles, verb, err)
	})
	s.observer.Left(k.resource)
}

// lister lists and watches a kind.
func (s *Source) lister(k *kind, version string) *cache.ListWatch {
	narrow := func(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = k.labels, k.fields }
	if k.custom {
		objects := s.dynamic.Resource(k.gvr(version))
		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				narrow(&o)
				return objects.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				narrow(&o)
				return objects.Watch(ctx, o)
			},
		}
	}
	var client rest.Interface = s.client.CoreV1().RESTClient()
	if k.group != "" {
		client = s.client.DiscoveryV1().RESTClient()
	}
	namespace := metav1.NamespaceAll
	if k.fields != "" {
		namespace = s.root
	}
	return cache.NewFilteredListWatchFromClient(client, k.resource, namespace, narrow)
}

// reflect runs a reflector whose requests are listened to.
func (s *Source) reflect(ctx context.Context, k *kind, from *cache.ListWatch, example runtime.Object, to cache.ReflectorStore, heard func(err error, verb string)) {
	heardWatch := func(o metav1.ListOptions, err error) {
		if o.SendInitialEvents != nil && err != nil && !kube.Away(err) && !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
			return // an older API server that does not list by watching; the reflector then lists
		}
		heard(err, "watch")
		s.observer.Following(k.resource, err == nil)
	}
	listened := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.ResourceVersion == "0" {
				// That asks for whatever the API server remembers, which may be older than what other replicas have been told of.
				o.ResourceVersion = ""
			}
			list, err := from.ListWithContext(ctx, o)
			heard(err, "list")
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := from.WatchWithContext(ctx, o)
			heardWatch(o, err)
			return w, err
		},
	}
	backoff := kube.Backoff()
	// What goes wrong is heard above. The library's own words would only repeat it, and panics it logs twice.
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(slog.DiscardHandler))
	cache.NewReflectorWithOptions(listened, example, to, cache.ReflectorOptions{Name: k.fullName(), TypeDescription: k.fullName(), Backoff: &backoff}).RunWithContext(ctx)
}
