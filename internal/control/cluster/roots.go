package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/model/wellknown"
)

const (
	// RootConfigMap holds the mesh's root certificates in every namespace, RootKey is its key. Both names are Istio's.
	RootConfigMap = "istio-ca-root-cert"
	RootKey       = "root-cert.pem"
	// publishers is how many namespaces are worked on at once.
	publishers = 4
	// leastRetry and longestRetry are the pauses after a namespace could not be written to, or was changed by somebody again.
	leastRetry, longestRetry = 200 * time.Millisecond, time.Minute
	// calmFor is how long what was put right must stay so until that is forgotten.
	calmFor = 5 * time.Minute
	// digestKey stands for the certificates in what is kept of a ConfigMap.
	digestKey = "digest"
)

// Labels that tell of another owner of root certificates: Istio's control plane, trust-manager, or whoever a tool says.
const (
	istioLabel        = wellknown.IstioConfig
	trustManagerLabel = "trust.cert-manager.io/bundle"
	managedByLabel    = wellknown.ManagedBy
)

// Roots keeps the mesh's root certificates in a ConfigMap of every namespace, for those who read them from a file: node proxies, before they
// have a certificate. It works while its Run does, in the leader.
type Roots struct {
	client    kubernetes.Interface
	namespace string
	istio     string
	logger    *slog.Logger

	bundle atomic.Pointer[string]
	state  atomic.Pointer[rootsState]

	mu       sync.Mutex
	foreign  map[string]bool   // namespaces left to others
	failed   map[string]string // what went wrong last, by namespace
	repaired map[string]repair // what others changed, by namespace
}

// repair is how often the same roots had to be put right in a namespace, without a rest between.
type repair struct {
	digest string
	times  int
	at     time.Time
}

// rootsState is what one run knows.
type rootsState struct {
	namespaces, maps cache.Store
	queue            workqueue.TypedRateLimitingInterface[string]
}

// NewRoots keeps nothing yet. If istio names the namespace of an Istio, what its control plane left is taken over; what others own stays
// theirs.
func NewRoots(client kubernetes.Interface, namespace, istio string, logger *slog.Logger) *Roots {
	return &Roots{client: client, namespace: namespace, istio: istio, logger: logger, foreign: map[string]bool{}, failed: map[string]string{}, repaired: map[string]repair{}}
}

// Publish says what every namespace is to hold from now on.
func (r *Roots) Publish(bundle []byte) {
	text := string(bundle)
	r.bundle.Store(&text)
	if s := r.state.Load(); s != nil {
		for _, name := range s.namespaces.ListKeys() {
			s.queue.Add(name)
		}
	}
}

// Run keeps the ConfigMaps until ctx ends.
func (r *Roots) Run(ctx context.Context) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](leastRetry, longestRetry))
	s := &rootsState{queue: queue}
	var namespaced, mapped func() bool
	s.namespaces, namespaced = follow(ctx, source(r.client, r.client.CoreV1().Namespaces(), ""), &corev1.Namespace{},
		func(n *corev1.Namespace) { n.Labels, n.Annotations, n.Spec = nil, nil, corev1.NamespaceSpec{} },
		func(n *corev1.Namespace, gone bool) {
			if gone {
				r.forget(n.Name)
			}
			queue.Add(n.Name)
		})
	s.maps, mapped = follow(ctx, source(r.client, r.client.CoreV1().ConfigMaps(metav1.NamespaceAll), RootConfigMap), &corev1.ConfigMap{}, abridge,
		func(c *corev1.ConfigMap, _ bool) { queue.Add(c.Namespace) })
	if !cache.WaitForCacheSync(ctx.Done(), namespaced, mapped) {
		queue.ShutDown()
		return
	}
	r.state.Store(s)
	defer r.state.Store(nil)
	for _, name := range s.namespaces.ListKeys() {
		queue.Add(name)
	}
	var workers sync.WaitGroup
	for range publishers {
		workers.Go(func() {
			for {
				name, shutdown := queue.Get()
				if shutdown {
					return
				}
				r.work(ctx, s, name)
				queue.Done(name)
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	workers.Wait()
}

// abridge leaves of a ConfigMap what has to be compared: a thousand namespaces need not hold a thousand copies of the roots.
func abridge(c *corev1.ConfigMap) {
	if c.Name != RootConfigMap {
		*c = corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace, ResourceVersion: c.ResourceVersion}}
		return
	}
	c.Data, c.BinaryData, c.Annotations = map[string]string{digestKey: digest(c.Data[RootKey])}, nil, nil
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

func (r *Roots) work(ctx context.Context, s *rootsState, namespace string) {
	bundle := r.bundle.Load()
	if bundle == nil {
		return // Publish asks again
	}
	if rest := r.rest(namespace, *bundle, time.Now()); rest > 0 {
		s.queue.AddAfter(namespace, rest)
		return
	}
	switch err := r.write(ctx, s, namespace, *bundle); {
	case err == nil:
		s.queue.Forget(namespace)
		r.well(namespace)
	case ctx.Err() != nil:
	default:
		r.tell(namespace, err)
		s.queue.AddRateLimited(namespace)
	}
}

// write brings one namespace up to date.
func (r *Roots) write(ctx context.Context, s *rootsState, namespace, bundle string) error {
	if !live(s.namespaces, namespace) {
		return nil
	}
	maps := r.client.CoreV1().ConfigMaps(namespace)
	have, ok, err := s.maps.GetByKey(namespace + "/" + RootConfigMap)
	if err != nil {
		return err
	}
	if !ok {
		_, err = maps.Create(kube.Quiet(ctx), rootMap(namespace, bundle), metav1.CreateOptions{FieldManager: fieldManager})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
			return nil // the namespace is going
		}
		if err == nil {
			r.repair(namespace, bundle, time.Now())
		}
		return err // also if it exists: the watch has not told of it yet
	}
	found := have.(*corev1.ConfigMap)
	if owner := r.owner(namespace, found.Labels); owner != "" {
		r.leaveTo(namespace, owner)
		return nil
	}
	r.keep(namespace)
	if r.done(found, digest(bundle)) {
		return nil
	}
	// What is kept is abridged; the rest of the object is not ours to lose.
	whole, err := maps.Get(kube.Quiet(ctx), RootConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && r.owner(namespace, whole.Labels) != "" {
		return nil // the watch will tell
	}
	if err != nil {
		return err
	}
	if whole.Data == nil {
		whole.Data = map[string]string{}
	}
	whole.Data[RootKey] = bundle
	if r.leftByIstio(whole.Labels) {
		for k, v := range labels() {
			whole.Labels[k] = v
		}
		for _, theirs := range []string{istioLabel, managedByLabel, trustManagerLabel} {
			delete(whole.Labels, theirs)
		}
	}
	_, err = maps.Update(kube.Quiet(ctx), whole, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) {
		return nil // the watch will tell
	}
	if err == nil {
		r.repair(namespace, bundle, time.Now())
	}
	return err
}

// done says whether a ConfigMap that is kept here holds the bundle of a digest.
func (r *Roots) done(c *corev1.ConfigMap, digest string) bool {
	return c.Data[digestKey] == digest && !r.leftByIstio(c.Labels)
}

// rest is how long a namespace waits until the same roots are put right in it once more: somebody who changes them again and again must not
// keep the control plane and the API server busy at a pace of his own.
func (r *Roots) rest(namespace, bundle string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	is, ok := r.repaired[namespace]
	if !ok || is.digest != digest(bundle) {
		return 0
	}
	if now.Sub(is.at) >= calmFor {
		delete(r.repaired, namespace)
		return 0
	}
	return max(0, is.at.Add(min(leastRetry<<min(is.times-1, 16), longestRetry)).Sub(now))
}

func (r *Roots) repair(namespace, bundle string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := r.repaired[namespace]
	if d := digest(bundle); is.digest != d {
		is = repair{digest: d}
	}
	is.times, is.at = is.times+1, now
	r.repaired[namespace] = is
}

func rootMap(namespace, bundle string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: RootConfigMap, Namespace: namespace, Labels: labels()}, Data: map[string]string{RootKey: bundle}}
}

func live(namespaces cache.Store, name string) bool {
	v, ok, err := namespaces.GetByKey(name)
	if err != nil || !ok {
		return false
	}
	n := v.(*corev1.Namespace)
	return n.DeletionTimestamp == nil && n.Status.Phase != corev1.NamespaceTerminating
}

// owner is who else keeps an object with these labels in a namespace, empty if nobody does. One without any owner's label is somebody's, too:
// whatever is put into a namespace here has labels. But the control plane's own namespace is nobody else's.
func (r *Roots) owner(namespace string, labels map[string]string) string {
	if ours(labels) || r.leftByIstio(labels) {
		return ""
	}
	if _, istio := labels[istioLabel]; istio {
		return "Istio's control plane (label " + istioLabel + ")"
	}
	if _, ok := labels[trustManagerLabel]; ok {
		return "trust-manager (label " + trustManagerLabel + ")"
	}
	for _, k := range []string{managedByLabel, partOfLabel} {
		if v := labels[k]; v != "" {
			return v + " (label " + k + ")"
		}
	}
	if namespace == r.namespace {
		return ""
	}
	return "whoever made it (it has no label " + nameLabel + ": " + lateen + ")"
}

// leftByIstio says whether labels are those of an Istio that is taken over.
func (r *Roots) leftByIstio(labels map[string]string) bool {
	_, istio := labels[istioLabel]
	return r.istio != "" && istio && !ours(labels)
}

// leaveTo leaves a namespace to another owner and says so once.
func (r *Roots) leaveTo(namespace, owner string) {
	r.mu.Lock()
	first, known := len(r.foreign) == 0, r.foreign[namespace]
	r.foreign[namespace] = true
	r.mu.Unlock()
	if first || !known && namespace == r.namespace {
		r.logger.Warn("cluster: root certificates belong to somebody else and are left alone; proxies that read them there may not trust this control plane: remove the other, or install with --take-over=istio",
			"configMap", namespace+"/"+RootConfigMap, "owner", owner)
	}
}

func (r *Roots) keep(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.foreign, namespace)
}

// well takes note that nothing is wrong in a namespace.
func (r *Roots) well(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failed, namespace)
}

// forget drops what is remembered of a namespace that is gone.
func (r *Roots) forget(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.foreign, namespace)
	delete(r.failed, namespace)
	delete(r.repaired, namespace)
}

// tell says what goes wrong, each reason for the first namespace that has it.
func (r *Roots) tell(namespace string, err error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return // somebody was quicker
	}
	why := kube.Refusal(err, "", "configmaps", "create", "update")
	if why == "" {
		why = kube.Cause(err)
	}
	r.mu.Lock()
	told := false
	for _, other := range r.failed {
		told = told || other == why
	}
	r.failed[namespace] = why
	r.mu.Unlock()
	if !told {
		r.logger.Error("cluster: the root certificates were not published; it is tried again", "configMap", namespace+"/"+RootConfigMap, "error", why)
	}
}

// Unpublished says whether the control plane's own namespace does not hold a bundle, and names the others that do not, with the reason where
// it is known. What is left to others does not count. Only the leader knows.
func (r *Roots) Unpublished(bundle []byte) (own bool, others []string) {
	s := r.state.Load()
	if s == nil {
		return true, nil
	}
	want := digest(string(bundle))
	for _, name := range s.namespaces.ListKeys() {
		if !live(s.namespaces, name) {
			continue
		}
		v, ok, err := s.maps.GetByKey(name + "/" + RootConfigMap)
		if err == nil && ok {
			if c := v.(*corev1.ConfigMap); r.owner(name, c.Labels) != "" || c.Data[digestKey] == want {
				continue
			}
		}
		if name == r.namespace {
			own = true
			continue
		}
		others = append(others, name)
	}
	if !own {
		_, there, err := s.namespaces.GetByKey(r.namespace)
		own = err != nil || !there // not even listed: nothing is known
	}
	slices.Sort(others)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, name := range others {
		if why := r.failed[name]; why != "" {
			others[i] = name + " (" + why + ")"
		}
	}
	return own, others
}

// Place is where the bundle is that the mesh was told to trust last.
func (r *Roots) Place() string { return "ConfigMap " + r.namespace + "/" + RootConfigMap }

// Known is the bundle that the mesh was told to trust last: that of the control plane's own namespace, or of the Istio that is taken over.
// No other namespace counts: whoever may write to it would choose what this mesh trusts, or keep it from starting.
func (r *Roots) Known(ctx context.Context) ([]byte, error) {
	places := []string{r.namespace}
	if r.istio != "" && r.istio != r.namespace {
		places = append(places, r.istio)
	}
	for _, namespace := range places {
		c, err := r.client.CoreV1().ConfigMaps(namespace).Get(kube.Quiet(ctx), RootConfigMap, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, r.explain(err, "get")
		case r.owner(namespace, c.Labels) == "" && c.Data[RootKey] != "":
			return []byte(c.Data[RootKey]), nil
		}
	}
	return nil, nil
}

func (r *Roots) explain(err error, verb string) error {
	if why := kube.Refusal(err, "", "configmaps", verb); why != "" {
		return fmt.Errorf("the root certificates in ConfigMaps %s: %s", RootConfigMap, why)
	}
	return fmt.Errorf("read the ConfigMaps %s: %w", RootConfigMap, err)
}
