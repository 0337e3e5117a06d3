// Package deployer owns the Deployments of waypoints on Kubernetes: it applies what package waypoint makes of a Gateway, and says in the
// Gateway's status what came of it. It is a program with an identity of its own, so that the control plane needs no right to run pods.
package deployer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/waypoint"
)

// FieldManager is how the API server remembers which fields are the deployer's.
const FieldManager = "lateen-deployer"

// The kinds of objects that the deployer reads or applies.
var (
	gateways    = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
	classes     = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	resources   = map[string]schema.GroupVersionResource{
		"ServiceAccount":          {Version: "v1", Resource: "serviceaccounts"},
		"Service":                 {Version: "v1", Resource: "services"},
		"Deployment":              deployments,
		"HorizontalPodAutoscaler": {Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
		"PodDisruptionBudget":     {Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	}
)

const (
	// lookAgain is how often every Gateway is looked at although nothing was heard: ConfigMaps with parameters are read, not watched, so
	// that the deployer needs no right to list those of all namespaces.
	lookAgain = 30 * time.Second
	// requestTimeout bounds all requests about one Gateway.
	requestTimeout = 30 * time.Second
	workers        = 2
)

// Options are what a deployer needs.
type Options struct {
	Client dynamic.Interface
	// Namespaces are those whose Gateways are deployed; none are all.
	Namespaces []string
	// DefaultsFrom are the namespaces whose ConfigMaps change all waypoints of a class.
	DefaultsFrom []string
	// IstioClass has Gateways of Istio's class istio-waypoint deployed as well.
	IstioClass bool
	// IstioNamespace is where a running Istio has its control plane, which deploys the Gateways of that class itself.
	IstioNamespace string
	Settings       waypoint.Settings
	Logger         *slog.Logger
	Now            func() time.Time
}

// Deployer follows Gateways and deploys them while it leads.
type Deployer struct {
	Options
	metrics *metrics
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]
	synced  atomic.Bool

	gateways map[string]cache.GenericLister // by namespace; "" has all
	classes  cache.GenericLister
}

// New returns a deployer that does nothing until Lead.
func New(o Options) *Deployer { return &Deployer{Options: o, metrics: newMetrics()} }

// scopes are the namespaces that are followed, each by itself.
func (d *Deployer) scopes() []string {
	if len(d.Namespaces) == 0 {
		return []string{""}
	}
	return d.Namespaces
}

// Lead deploys until ctx ends.
func (d *Deployer) Lead(ctx context.Context) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](500*time.Millisecond, time.Minute))
	d.queue, d.gateways = queue, map[string]cache.GenericLister{}
	d.metrics.queued(queue.Len)
	defer queue.ShutDown()
	defer d.metrics.rest()
	defer d.synced.Store(false)
	var informers []cache.SharedIndexInformer
	of := func(factory dynamicinformer.DynamicSharedInformerFactory, gvr schema.GroupVersionResource, heard func(*unstructured.Unstructured), but func(was, now *unstructured.Unstructured) bool) cache.GenericLister {
		generic := factory.ForResource(gvr)
		informer := generic.Informer()
		_, err := informer.AddEventHandler(handler(heard, but))
		if err == nil {
			err = informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
				d.Logger.Error("deployer: "+gvr.Resource+" cannot be followed; it is tried again", "error", kube.Cause(err))
			})
		}
		if err != nil { // only of an informer that runs already
			d.Logger.Error("deployer: follow "+gvr.Resource, "error", err)
		}
		informers = append(informers, informer)
		return generic.Lister()
	}
	whole := dynamicinformer.NewDynamicSharedInformerFactory(d.Client, 0)
	d.classes = of(whole, classes, func(*unstructured.Unstructured) { d.all() }, nothing)
	for _, namespace := range d.scopes() {
		factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(d.Client, 0, namespace, nil)
		d.gateways[namespace] = of(factory, gateways, func(u *unstructured.Unstructured) { queue.Add(cache.NewObjectName(u.GetNamespace(), u.GetName())) }, onlyStatus)
		of(factory, deployments, func(u *unstructured.Unstructured) {
			if name := u.GetLabels()[wellknown.GatewayName]; name != "" {
				queue.Add(cache.NewObjectName(u.GetNamespace(), name))
			}
			if u.GetLabels()[istiodLabel] == istiodName {
				d.all() // it comes or goes, which decides who deploys the Gateways of its class
			}
		}, nothing)
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, informer := range informers {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	for _, informer := range informers {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return
		}
	}
	d.synced.Store(true)
	d.all()
	for range workers {
		running.Go(func() { d.work(ctx) })
	}
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			queue.ShutDown()
			return
		case <-tick.C:
			d.all()
		}
	}
}

// handler calls heard with the object of every event, but for the updates that but names.
func handler(heard func(*unstructured.Unstructured), but func(was, now *unstructured.Unstructured) bool) cache.ResourceEventHandlerFuncs {
	each := func(o any) {
		if gone, is := o.(cache.DeletedFinalStateUnknown); is {
			o = gone.Obj
		}
		if u, is := o.(*unstructured.Unstructured); is {
			heard(u)
		}
	}
	update := func(was, now any) {
		before, isBefore := was.(*unstructured.Unstructured)
		after, isAfter := now.(*unstructured.Unstructured)
		if !isBefore || !isAfter || !but(before, after) {
			each(now)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: each, UpdateFunc: update, DeleteFunc: each}
}

// nothing has every update heard.
func nothing(_, _ *unstructured.Unstructured) bool { return false }

// onlyStatus says whether an update changes an object's status at most. The deployer's own conditions come back as such updates, and
// would each begin another look at the Gateway.
func onlyStatus(was, now *unstructured.Unstructured) bool {
	return equality.Semantic.DeepEqual(withoutStatus(was), withoutStatus(now))
}

// withoutStatus is an object without its status and without what the API server notes of each write. The object itself is the cache's.
func withoutStatus(u *unstructured.Unstructured) map[string]any {
	out := maps.Clone(u.Object)
	delete(out, "status")
	if meta, is := out["metadata"].(map[string]any); is {
		meta = maps.Clone(meta)
		delete(meta, "resourceVersion")
		delete(meta, "managedFields")
		out["metadata"] = meta
	}
	return out
}

// all has every Gateway looked at.
func (d *Deployer) all() {
	if !d.synced.Load() {
		return // the first look comes when everything was read
	}
	for _, lister := range d.gateways {
		list, err := lister.List(labels.Everything())
		if err != nil {
			d.Logger.Error("deployer: list Gateways", "error", err) // a lister of memory has no reason to fail
		}
		for _, o := range list {
			if u, is := o.(*unstructured.Unstructured); is {
				d.queue.Add(cache.NewObjectName(u.GetNamespace(), u.GetName()))
			}
		}
	}
}

func (d *Deployer) work(ctx context.Context) {
	for {
		name, shutdown := d.queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil {
			d.one(ctx, name)
		}
		d.queue.Done(name)
	}
}

func (d *Deployer) one(ctx context.Context, name cache.ObjectName) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	gw, class, err := d.find(name)
	served := gw != nil && waypoint.Serves(string(gw.Spec.GatewayClassName), class, d.IstioClass) && waypoint.Deployed(gw)
	if err == nil && served {
		began, reason := d.Now(), ""
		reason, err = d.reconcile(ctx, gw, class)
		d.metrics.reconciled(name, reason, d.Now().Sub(began))
	} else if err == nil {
		if d.metrics.left(name); gw != nil {
			err = d.withdraw(ctx, gw)
		}
	}
	if err != nil {
		d.metrics.failed(err)
		d.Logger.Warn("deployer: a waypoint is not as it should be; it is tried again", "gateway", name.String(), "error", kube.Cause(err))
		d.queue.AddRateLimited(name)
		return
	}
	d.queue.Forget(name)
}

// find returns a Gateway and its class; each is nil if there is none.
func (d *Deployer) find(name cache.ObjectName) (*gatewayv1.Gateway, *gatewayv1.GatewayClass, error) {
	lister, follows := d.gateways[""]
	if !follows {
		lister, follows = d.gateways[name.Namespace]
	}
	if !follows {
		return nil, nil, nil
	}
	o, err := lister.ByNamespace(name.Namespace).Get(name.Name)
	if err != nil {
		return nil, nil, nil // gone: its objects go by their owner
	}
	gw := &gatewayv1.Gateway{}
	if err := convert(o, gw); err != nil {
		return nil, nil, fmt.Errorf("read Gateway %s: %w", name, err)
	}
	o, err = d.classes.Get(string(gw.Spec.GatewayClassName))
	if err != nil {
		return gw, nil, nil
	}
	class := &gatewayv1.GatewayClass{}
	if err := convert(o, class); err != nil {
		return nil, nil, fmt.Errorf("read GatewayClass %s: %w", gw.Spec.GatewayClassName, err)
	}
	return gw, class, nil
}

func convert(from runtime.Object, to any) error {
	u, is := from.(*unstructured.Unstructured)
	if !is {
		return fmt.Errorf("it is a %T", from)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, to)
}
