// Package kube tells the agent which pods its node has on Kubernetes, and writes back which of them are captured. It
// watches the node's own pods and the namespaces' labels, and knows where the pods' network namespaces are; it decides
// nothing about them.
package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"lateen.dev/lateen/internal/agent/apiserver"
	"lateen.dev/lateen/internal/agent/cni"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Options are a source's.
type Options struct {
	Node string
	// Own is the namespace of the mesh's own parts.
	Own string
	// File keeps across restarts where pods' networks are.
	File string
	// Proc is the node's /proc, Mounts the folder where its runtime mounts network namespaces.
	Proc, Mounts string
	Log          *slog.Logger
	// Births asks about pods that are being born, if not nil: their asking waits for nothing else that is asked or written.
	Births apiserver.Client
	// Cgroup is where the processes of a pod are, by the uid that the runtime knows it by; nil if that is not to be known.
	Cgroup func(uid string) (redirect.Cgroup, bool)
	// Known is told what is to be captured, as the plugin is to know it without an agent, whenever that may have changed.
	Known func(cni.State)
}

// Source is the API server as a source of one node's pods.
type Source struct {
	opts   Options
	log    *slog.Logger
	client apiserver.Client
	births apiserver.Client
	finder *finder
	boxes  *sandboxes

	pods, namespaces cache.SharedIndexInformer
	changed          chan struct{}
	unknown          chan []string // the newest list of namespaces of pods that the watch has not reported
	health           *health
	earlyTime        time.Duration

	mu      sync.Mutex
	synced  bool
	early   map[types.UID]earlyPod       // pods that started before the watch reported them
	read    map[string]*corev1.Namespace // namespaces that were asked for before the watch reported this version or a newer one
	parting map[types.UID]chan struct{}  // per pod that has ended: closed when it has no open connection of the mesh
	says    map[types.UID]source.State   // the state last written to each pod's annotation
	events  map[types.UID]lastEvent      // the last event written about each pod
	lost    map[types.UID]error          // why a pod's network could not be found
	loose   map[types.UID]bool           // pods whose missing cgroup was logged
}

// New makes a source; Run starts it.
func New(client apiserver.Client, opts Options) (*Source, error) {
	f, err := newFinder(opts.Proc, opts.Mounts)
	if err != nil {
		return nil, err
	}
	boxes, err := loadSandboxes(opts.File)
	if err != nil {
		opts.Log.Warn("networks of running pods are looked for", "err", err)
	}
	s := &Source{
		opts: opts, log: opts.Log, client: client, births: client, finder: f, boxes: boxes, changed: make(chan struct{}, 1), unknown: make(chan []string, 1),
		earlyTime: earlyTime, early: map[types.UID]earlyPod{}, read: map[string]*corev1.Namespace{}, parting: map[types.UID]chan struct{}{}, says: map[types.UID]source.State{},
		events: map[types.UID]lastEvent{}, lost: map[types.UID]error{}, loose: map[types.UID]bool{},
	}
	if opts.Births != nil {
		s.births = opts.Births
	}
	s.health = newHealth(opts.Log)
	// The watch includes pods that have ended. The agent waits for the open connections of such a pod until the runtime removes its
	// network. A watch without ended pods would report only that the pod is gone, and peers would not learn of the ends of its
	// connections. trimPod decides how little is kept of such a pod.
	mine := fields.OneTermEqualSelector("spec.nodeName", opts.Node).String()
	s.pods, err = s.informer("pods", &corev1.Pod{}, trimPod,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = mine
			return client.Pods("").List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = mine
			return client.Pods("").Watch(ctx, o)
		})
	if err != nil {
		return nil, err
	}
	s.namespaces, err = s.informer("namespaces", &corev1.Namespace{}, trimNamespace,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.Namespaces().List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Namespaces().Watch(ctx, o)
		})
	return s, err
}

func (s *Source) informer(
	kind string, example runtime.Object, trim cache.TransformFunc,
	list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error),
) (cache.SharedIndexInformer, error) {
	list, watch = s.health.ofList(kind, list), s.health.ofWatch(kind, watch)
	i := cache.NewSharedIndexInformerWithOptions(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: watch}, s.client),
		example, cache.SharedIndexInformerOptions{ObjectDescription: kind})
	if err := i.SetTransform(trim); err != nil {
		return nil, err
	}
	// The log says it once, not at every attempt.
	if err := i.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return nil, err
	}
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { s.change() }, UpdateFunc: func(any, any) { s.change() }, DeleteFunc: func(any) { s.change() },
	})
	return i, err
}

func (s *Source) change() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Run delivers a snapshot at first and after every change until ctx ends. While the API server is away what is known
// stays so; connected is told of each change.
func (s *Source) Run(ctx context.Context, deliver func(source.Snapshot), connected func(bool)) {
	s.health.tell(connected)
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { s.pods.RunWithContext(ctx) })
	all.Go(func() { s.namespaces.RunWithContext(ctx) })
	all.Go(func() { s.watchEarly(ctx) })
	all.Go(func() { s.readNamespaces(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), s.pods.HasSynced, s.namespaces.HasSynced) {
		return
	}
	s.mu.Lock()
	s.synced = true
	s.mu.Unlock()
	search := searcher{}
	for {
		snapshot, missing := s.snapshot()
		var wait <-chan time.Time
		if len(missing) > 0 {
			if pause := search.due(time.Now()); pause > 0 {
				wait = time.After(pause)
			} else {
				s.search(missing)
				search.done(time.Now())
				snapshot, missing = s.snapshot()
				if len(missing) > 0 {
					wait = time.After(search.due(time.Now()))
				}
			}
		}
		if len(missing) == 0 {
			search = searcher{}
		}
		deliver(snapshot)
		select {
		case <-s.changed:
		case <-wait:
		case <-ctx.Done():
			return
		}
	}
}

// searcher spaces the searches for networks: each reads all of /proc.
type searcher struct {
	pause time.Duration
	next  time.Time
}

func (s *searcher) due(now time.Time) time.Duration { return s.next.Sub(now) }

func (s *searcher) done(now time.Time) {
	const first, longest = 500 * time.Millisecond, 10 * time.Second
	s.pause = min(max(2*s.pause, first), longest)
	s.next = now.Add(s.pause)
}

// snapshot is all that the agent is to know, and the pods whose networks are to be looked for.
func (s *Source) snapshot() (source.Snapshot, map[string][]netip.Addr) {
	snapshot := source.Snapshot{Pods: []source.Pod{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	pods := s.podsLocked()
	alive, missing := map[string]bool{}, map[string][]netip.Addr{}
	present := map[types.UID]bool{}
	for uid, p := range pods {
		id := sandboxUID(p)
		box, located := s.boxes.get(id)
		if located && !box.of(p.Namespace, p.Name) {
			box, located = sandbox{}, false
			s.lost[uid] = errTwice
		} else {
			alive[id] = true
			// An earlier agent may have recorded that the network of the pod is gone.
			if at := addresses(p); len(at) > 0 && !terminal(p) && (!located || box.gone() && box.stale && p.DeletionTimestamp == nil) {
				missing[id] = at
			}
		}
		pod := described(p, box, s.opts.Own)
		if !located {
			if terminal(p) {
				continue // its network is gone, or will not be used any more
			}
			why := s.lost[uid]
			if why != nil {
				pod.Lost = why.Error()
			}
			believed := p.Annotations[wellknown.Redirection] == string(source.Enabled)
			if !believed && why == nil {
				continue // it has no network yet
			}
		}
		s.belongLocked(p, &pod)
		present[uid] = true
		snapshot.Pods = append(snapshot.Pods, pod)
	}
	// The namespaces come after the networks. So a pod whose birth was told is judged by a namespace that is no older than the one that
	// its birth was answered by.
	snapshot.Namespaces = s.namespacesLocked(pods)
	for i := range snapshot.Pods {
		pod := &snapshot.Pods[i]
		_, there := snapshot.Namespaces[pod.Namespace]
		pod.Unjudged = !there && source.DecidedByNamespace(*pod)
	}
	if s.opts.Known != nil {
		s.opts.Known(known(pods, snapshot.Namespaces, s.opts.Own))
	}
	slices.SortFunc(snapshot.Pods, func(a, b source.Pod) int { return cmp.Compare(a.UID, b.UID) })
	if err := s.boxes.keep(func(uid string) bool { return alive[uid] }); err != nil {
		s.log.Warn("a restart of the agent will look for pods' networks", "err", err)
	}
	s.forgetLocked(pods, present)
	return snapshot, missing
}

// belongLocked finds the pod's cgroup. It can come after the network, on nodes with cgroups of both versions.
func (s *Source) belongLocked(p *corev1.Pod, pod *source.Pod) {
	if s.opts.Cgroup == nil || terminal(p) {
		return
	}
	var found bool
	if pod.Cgroup, found = s.opts.Cgroup(sandboxUID(p)); !found && p.Status.Phase == corev1.PodRunning && !s.loose[p.UID] {
		s.loose[p.UID] = true
		s.log.Warn("the pod's cgroup was not found: where it is captured, a process with CAP_NET_RAW in it can leave the capture by the node proxy's mark; take that capability from its containers",
			"pod", p.Namespace+"/"+p.Name)
	}
}

// podsLocked are the node's pods that have networks of their own.
func (s *Source) podsLocked() map[types.UID]*corev1.Pod {
	pods := map[types.UID]*corev1.Pod{}
	for uid, e := range s.early {
		pods[uid] = e.pod
	}
	for _, o := range s.pods.GetStore().List() {
		p := o.(*corev1.Pod)
		pods[p.UID] = p
		delete(s.early, p.UID)
	}
	maps.DeleteFunc(pods, func(_ types.UID, p *corev1.Pod) bool { return p.Spec.HostNetwork })
	return pods
}

// known is what the plugin is to know of the pods and their namespaces.
func known(pods map[types.UID]*corev1.Pod, namespaces map[string]source.Namespace, own string) cni.State {
	var state cni.State
	for name, n := range namespaces {
		if n.Enrols() {
			state.EnrolledNamespaces = append(state.EnrolledNamespaces, name)
		}
	}
	for _, p := range pods {
		if terminal(p) {
			continue // nothing is started in it any more
		}
		n := namespaces[p.Namespace]
		if wanted := source.Enrolled(described(p, sandbox{}, own), n); wanted != n.Enrols() {
			state.Except(p.Namespace, p.Name, sandboxUID(p), wanted)
		}
	}
	return state
}

// forgetLocked drops what is known of pods that are no more.
func (s *Source) forgetLocked(pods map[types.UID]*corev1.Pod, present map[types.UID]bool) {
	for uid, done := range s.parting {
		if !present[uid] {
			close(done)
			delete(s.parting, uid)
		}
	}
	gone := func(uid types.UID) bool { return pods[uid] == nil }
	maps.DeleteFunc(s.says, func(uid types.UID, _ source.State) bool { return gone(uid) })
	maps.DeleteFunc(s.events, func(uid types.UID, _ lastEvent) bool { return gone(uid) })
	maps.DeleteFunc(s.lost, func(uid types.UID, _ error) bool { return gone(uid) })
	maps.DeleteFunc(s.loose, func(uid types.UID, _ bool) bool { return gone(uid) })
}

// errTwice: whoever may make pods can make one that poses as the mirror of somebody's static pod.
var errTwice = fmt.Errorf("another pod of the node has the same %s; which of them is the static pod cannot be told", source.ConfigHash)

// search looks for the networks of pods that run and were not announced: their births fell into a time without agent.
func (s *Source) search(missing map[string][]netip.Addr) {
	found, why := s.finder.find(missing)
	s.mu.Lock()
	defer s.mu.Unlock()
	pods := s.podsLocked()
	claims := map[string]int{}
	for _, p := range pods {
		if len(addresses(p)) > 0 {
			claims[sandboxUID(p)]++
		}
	}
	for uid, p := range pods {
		id := sandboxUID(p)
		if n, there := found[id]; there && len(addresses(p)) > 0 {
			if claims[id] > 1 {
				s.lost[uid] = errTwice
				continue
			}
			box := sandbox{NetNS: n.path, Device: n.id.Device, Inode: n.id.Inode, held: n.held}
			if id != string(uid) {
				// Another pod can claim the sandbox of a static pod, so the name is kept with it.
				box.Namespace, box.Name = p.Namespace, p.Name
			}
			if err := s.boxes.found(id, box); err != nil {
				s.log.Warn("a restart of the agent will look for pods' networks", "err", err)
			}
			delete(s.lost, uid)
			delete(found, id)
		} else if err := why[id]; err != nil {
			s.lost[uid] = fmt.Errorf("the network of the pod was not found: %w", err)
		}
	}
	for _, n := range found {
		// The pod has gone meanwhile.
		sandbox{held: n.held}.close()
	}
}
