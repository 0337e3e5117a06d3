package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"lateen.dev/lateen/internal/agent/apiserver"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Installation tells an agent that is replaced from one whose mesh leaves the cluster, by the agent's DaemonSet.
type Installation struct {
	client          apiserver.Client
	namespace, name string
	log             *slog.Logger
	asked           chan struct{}

	mu   sync.Mutex
	seen types.UID
	gone bool
}

// NewInstallation knows the DaemonSet by its name.
func NewInstallation(client apiserver.Client, namespace, name string, log *slog.Logger) *Installation {
	return &Installation{client: client, namespace: namespace, name: name, log: log, asked: make(chan struct{})}
}

// Asked is closed when the DaemonSet's annotation asks the agents to leave their nodes.
func (i *Installation) Asked() <-chan struct{} { return i.asked }

// Run watches the DaemonSet until ctx ends.
func (i *Installation) Run(ctx context.Context) {
	one := fields.OneTermEqualSelector("metadata.name", i.name).String()
	sets := i.client.DaemonSets(i.namespace)
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = one
			return sets.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = one
			return sets.Watch(ctx, o)
		},
	}, i.client)
	informer := cache.NewSharedIndexInformerWithOptions(lw, &appsv1.DaemonSet{}, cache.SharedIndexInformerOptions{ObjectDescription: "daemonset"})
	_ = informer.SetTransform(func(object any) (any, error) {
		if d, ok := object.(*appsv1.DaemonSet); ok {
			meta := trimMeta(d.ObjectMeta, nil)
			meta.Annotations = only(d.Annotations, []string{wellknown.Uninstall})
			return &appsv1.DaemonSet{ObjectMeta: meta}, nil
		}
		return object, nil
	})
	said := false
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if !said && ctx.Err() == nil && apierrors.IsForbidden(err) {
			said = true
			i.log.Warn("the agent cannot watch its DaemonSet, and takes nothing off the node when the mesh is uninstalled: it needs get, list and watch of it", "err", err)
		}
	})
	see := func(object any) {
		if d, ok := object.(*appsv1.DaemonSet); ok && d.Name == i.name {
			i.saw(d)
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, object any) { see(object) },
		DeleteFunc: func(any) {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.gone = true
		},
	})
	informer.RunWithContext(ctx)
}

func (i *Installation) saw(d *appsv1.DaemonSet) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen, i.gone = d.UID, d.DeletionTimestamp != nil
	if d.Annotations[wellknown.Uninstall] != "true" {
		return
	}
	select {
	case <-i.asked:
	default:
		close(i.asked)
	}
}

// Leaving says, of an agent that begins, whether the mesh is leaving its node already: started anew meanwhile it would capture what
// has just been released, and who waits has its word that it has. When that cannot be told the answer is no.
func (i *Installation) Leaving(ctx context.Context) bool {
	const limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	d, err := i.client.DaemonSets(i.namespace).Get(ctx, i.name, metav1.GetOptions{})
	return err == nil && d.Annotations[wellknown.Uninstall] == "true"
}

// Over says, of an agent that is told to end, whether the mesh leaves the cluster: its DaemonSet was there and is being
// deleted, or is gone. When that cannot be told the answer is no: what is captured then stays captured.
func (i *Installation) Over(ctx context.Context) bool {
	const limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	d, err := i.client.DaemonSets(i.namespace).Get(ctx, i.name, metav1.GetOptions{})
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case err == nil:
		return d.DeletionTimestamp != nil
	case apierrors.IsNotFound(err):
		return i.seen != "" || i.gone
	default:
		// The agent's own rights may have been deleted before it: then the watch, which outlives them, has told.
		return i.gone
	}
}

// Left says at the agent's pod that its node is as it was before the mesh, but for what stays in pods.
func (i *Installation) Left(ctx context.Context, pod string, stays []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{wellknown.Uninstalled: leftBut(stays)}}})
	if err != nil {
		return err
	}
	_, err = i.client.Pods(i.namespace).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("say at pod %s that the node is left: %w", pod, err)
	}
	return nil
}

// leftBut is the annotation's value.
func leftBut(stays []string) string {
	if len(stays) == 0 {
		return "true"
	}
	const most = 5
	more := ""
	if left := len(stays) - most; left > 0 {
		more = fmt.Sprintf("; and %d more", left)
	}
	return "true, but for " + strings.Join(stays[:min(len(stays), most)], "; ") + more
}
