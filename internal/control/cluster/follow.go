package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"lateen.dev/lateen/internal/kube"
)

// object is a kind that is followed.
type object interface {
	runtime.Object
	metav1.Object
}

// watcher lists and watches a kind, as client-go's typed clients do.
type watcher[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// source is the objects of one name, or all if that is empty. Lists and watches go by name, so that a role may allow those names alone.
func source[L runtime.Object](client kubernetes.Interface, objects watcher[L], name string) cache.ListerWatcher {
	narrow := func(o metav1.ListOptions) metav1.ListOptions {
		if name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}
		return o
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, narrow(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return objects.Watch(ctx, narrow(o))
		},
	}, client)
}

// follow calls changed for every object of a source that comes, changes or goes; gone says which. The store that it returns holds what
// there is, as keep left it; synced is true once all was listed. It runs until ctx ends.
func follow[T object](ctx context.Context, from cache.ListerWatcher, example T, keep func(T), changed func(o T, gone bool)) (store cache.Store, synced func() bool) {
	tell := func(o any, gone bool) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if o, ok := o.(T); ok {
			changed(o, gone)
		}
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: from, ObjectType: example,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { tell(o, false) },
			UpdateFunc: func(_, o any) { tell(o, false) },
			DeleteFunc: func(o any) { tell(o, true) },
		},
		Transform: func(o any) (any, error) {
			if o, ok := o.(T); ok {
				o.SetManagedFields(nil)
				keep(o)
			}
			return o, nil
		}})
	go controller.RunWithContext(kube.Quiet(ctx))
	return store, controller.HasSynced
}
