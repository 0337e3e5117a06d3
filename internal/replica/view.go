package replica

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// appLabel with controlApp is how pods of the control plane are known.
const (
	appLabel   = "app"
	controlApp = "lateen-control"
)

const (
	// followFor is how long the others are followed after somebody asked, if nobody else needs it.
	followFor = time.Minute
	// firstReports is how long who asks waits for those who were not followed before.
	firstReports = 3 * time.Second
)

// Options are what a View needs.
type Options struct {
	Local *Local
	Store *model.Store
	// Namespace and Pod are where this replica is. Without a pod's name there are no others.
	Namespace, Pod string
	// Proxies says whether a pod of a service account ("namespace/name") is a node proxy.
	Proxies func(account string) bool
	// Dial opens a connection to a replica by its address.
	Dial   func(address string) (*grpc.ClientConn, error)
	Port   int
	Logger *slog.Logger
	Now    func() time.Time
}

// View is what all replicas know together, as seen from one. The others are followed while somebody needs it.
type View struct {
	Options
	feed *model.Feed
	look chan struct{}

	mu       sync.Mutex
	replicas map[string]*other // by pod
	proxies  map[string]string // pods that are node proxies ("namespace/name") → their nodes
	leads    bool
	asked    time.Time
	woken    chan struct{} // closed when a replica's first reports are in, or not to be had
	hear     []func(keys []model.Key, everything bool)
}

// NewView returns a view that follows nobody yet; see Run.
func NewView(o Options) *View {
	v := &View{Options: o, replicas: map[string]*other{}, proxies: map[string]string{}, woken: make(chan struct{}), look: make(chan struct{}, 1)}
	v.feed = o.Store.Follow(func(key model.Key) bool { return key.Group == "" && key.Kind == "Pod" })
	return v
}

// Hear calls f when what is known together may have changed: of some objects, or of everything. Call it before Run; f must not block.
func (v *View) Hear(f func(keys []model.Key, everything bool)) { v.hear = append(v.hear, f) }

func (v *View) tell(keys []model.Key, everything bool) {
	for _, f := range v.hear {
		f(keys, everything)
	}
}

// Run keeps the view until ctx ends.
func (v *View) Run(ctx context.Context) {
	var following sync.WaitGroup
	defer following.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	own := v.Local.Subscribe()
	defer own.Close()
	const lookAround = 5 * time.Second // who stopped asking is noticed so late
	tick := time.NewTicker(lookAround)
	defer tick.Stop()
	for {
		v.around(ctx, &following)
		select {
		case <-ctx.Done():
			return
		case <-own.Wake():
			for r := own.Take(); r != nil; r = own.Take() {
				keys := make([]model.Key, 0, len(r.GetObjects()))
				for _, o := range r.GetObjects() {
					keys = append(keys, model.Key{Group: o.GetGroup(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()})
				}
				v.tell(keys, len(r.GetClients())+len(r.GetClientsGone()) > 0)
			}
		case <-v.feed.Wake():
		case <-v.look:
		case <-tick.C:
		}
	}
}

// around looks which replicas and proxies there are, and follows the former if somebody needs it.
func (v *View) around(ctx context.Context, following *sync.WaitGroup) {
	changed := v.feed.Take()
	v.mu.Lock()
	everything := false
	for key := range changed {
		pod, ok := v.Store.Pod(key)
		everything = v.proxy(key, pod, ok) || everything
		everything = v.replica(key, pod, ok) || everything
	}
	wanted := v.wanted()
	for _, o := range v.replicas {
		switch {
		case wanted && o.cancel == nil:
			var own context.Context
			own, o.cancel = context.WithCancel(ctx)
			address := o.address
			following.Go(func() { v.follow(own, o, address) })
		case !wanted && o.cancel != nil:
			o.stop()
		}
	}
	v.mu.Unlock()
	if everything {
		v.tell(nil, true)
	}
}

func (v *View) wanted() bool { return v.leads || v.Now().Sub(v.asked) < followFor }

// running is a pod that has begun and is not to end.
func running(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
}

// proxy takes note of a pod that is a node proxy, or no more.
func (v *View) proxy(key model.Key, pod *corev1.Pod, exists bool) (changed bool) {
	name := key.Namespace + "/" + key.Name
	if !exists || !running(pod) || v.Proxies == nil || !v.Proxies(pod.Namespace+"/"+pod.Spec.ServiceAccountName) || model.Static(pod) {
		_, had := v.proxies[name]
		delete(v.proxies, name)
		return had
	}
	was, had := v.proxies[name]
	v.proxies[name] = pod.Spec.NodeName
	return !had || was != pod.Spec.NodeName
}

// replica takes note of a pod that is another replica, or no more.
func (v *View) replica(key model.Key, pod *corev1.Pod, exists bool) (changed bool) {
	if key.Namespace != v.Namespace || key.Name == v.Pod || v.Pod == "" {
		return false
	}
	o := v.replicas[key.Name]
	// A node may make static pods here with any label. Each would be a replica that does not answer, and hold up every Programmed condition.
	if !exists || !running(pod) || pod.Labels[appLabel] != controlApp || pod.Status.PodIP == "" || model.Static(pod) {
		if o == nil {
			return false
		}
		o.stop()
		delete(v.replicas, key.Name)
		return true
	}
	ready := len(pod.Status.Conditions) > 0 && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if o != nil && o.uid == string(pod.UID) && o.address == pod.Status.PodIP {
		changed = o.ready != ready
		o.ready = ready
		return changed
	}
	if o != nil {
		o.stop()
	}
	v.replicas[key.Name] = &other{name: key.Name, uid: string(pod.UID), address: pod.Status.PodIP, ready: ready, known: newKnown()}
	return true
}

// Lead has the others followed for as long as ctx lasts.
func (v *View) Lead(ctx context.Context) {
	v.lead(true)
	<-ctx.Done()
	v.lead(false)
}

func (v *View) lead(now bool) {
	v.mu.Lock()
	v.leads = now
	v.mu.Unlock()
	nudge(v.look)
}

// Ask has the others followed for a while, and waits for their first reports, but not long.
func (v *View) Ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstReports)
	defer cancel()
	v.mu.Lock()
	before := v.wanted()
	v.asked = v.Now()
	v.mu.Unlock()
	if !before {
		nudge(v.look)
	}
	for {
		v.mu.Lock()
		waiting := false
		for _, o := range v.replicas {
			waiting = waiting || !o.complete && o.trouble == ""
		}
		woken := v.woken
		v.mu.Unlock()
		if !waiting {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-woken:
		}
	}
}

// Verdict is what all replicas together say of whether the proxies have an object.
type Verdict struct {
	Status  model.Status
	Reason  string
	Message string
}

// Of judges a version of an object. The others must be followed: see Lead and Ask.
func (v *View) Of(key model.Key, version Version) Verdict {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.of(key, version, v.present())
}

// Page returns what judges as Of does, for many objects at once: which proxies there are it looks at only now, since to look at all of them
// for each object takes seconds where there are thousands of both.
func (v *View) Page() func(key model.Key, version Version) Verdict {
	v.mu.Lock()
	p := v.present()
	v.mu.Unlock()
	return func(key model.Key, version Version) Verdict {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.of(key, version, p)
	}
}

// presence is which proxies there are.
type presence struct {
	nodes map[string]string // of all that are known
	any   bool              // one of them is connected to a replica that tells
	// behind are those that are not caught up, lost those that are connected to no replica that tells.
	behind, lost []string
}

// present looks at all proxies. The lock is held.
func (v *View) present() presence {
	p := presence{nodes: map[string]string{}}
	connected := map[string]bool{}
	look := func(k *known, tells bool) {
		for name, proxy := range k.proxies {
			p.nodes[name] = proxy.Node
			if tells {
				connected[name] = true
			}
		}
		if tells {
			p.behind = append(p.behind, k.behind()...)
		}
	}
	v.Local.mu.Lock()
	look(&v.Local.known, true)
	v.Local.mu.Unlock()
	for _, o := range v.replicas {
		look(&o.known, o.complete)
	}
	for name, node := range v.proxies {
		if p.nodes[name] = node; !connected[name] {
			p.lost = append(p.lost, name)
		}
	}
	slices.Sort(p.lost)
	p.any = len(connected) > 0
	return p
}

// of judges by the proxies that there are. The lock is held.
func (v *View) of(key model.Key, version Version, p presence) Verdict {
	proxies := p.behind[:len(p.behind):len(p.behind)]
	var replicas, refused, doubted, unnamed []string
	more := 0
	judge := func(name string, s Standing, has bool) {
		switch {
		case !has || s.Version != version:
			replicas = append(replicas, name+" does not know this version of it yet")
		default:
			proxies = append(proxies, s.WaitingFor...)
			more += max(0, s.Waiting-len(s.WaitingFor))
			switch s.Refusal {
			case wellknown.ReasonRefused:
				refused = append(refused, s.RefusalText)
			case wellknown.ReasonMayBeRefused:
				doubted = append(doubted, s.RefusalText)
			case "":
			default:
				unnamed = append(unnamed, s.RefusalText)
			}
		}
	}
	v.Local.mu.Lock()
	own, has := v.Local.known.objects[key]
	v.Local.mu.Unlock()
	judge("this replica", own, has)
	for _, o := range v.sorted() {
		switch {
		case o.complete:
			s, has := o.known.objects[key]
			judge("replica "+o.name, s, has)
		case o.ready || len(o.known.proxies) > 0:
			replicas = append(replicas, "replica "+o.name+" cannot be asked"+o.because())
		}
	}
	for _, r := range []struct {
		texts  []string
		status model.Status
		reason string
	}{{refused, model.False, wellknown.ReasonRefused}, {doubted, model.Unknown, wellknown.ReasonMayBeRefused}, {unnamed, model.Unknown, wellknown.ReasonRefusalUnnamed}} {
		if len(r.texts) > 0 {
			return Verdict{r.status, r.reason, strings.Join(some(r.texts, 0), "; ")}
		}
	}
	var waiting []string
	if names := mergeNames(proxies); len(names) > 0 || more > 0 {
		waiting = append(waiting, "not acknowledged yet by "+people(names, p.nodes, more))
	}
	if len(p.lost) > 0 {
		waiting = append(waiting, "connected to no replica: "+people(p.lost, p.nodes, 0))
	}
	if len(replicas) > 0 {
		waiting = append(waiting, strings.Join(some(replicas, 0), ", "))
	}
	switch {
	case len(waiting) > 0:
		return Verdict{model.False, wellknown.ReasonAwaited, strings.Join(waiting, "; ")}
	case !p.any:
		return Verdict{model.Unknown, wellknown.ReasonNoProxies, "no node proxy is connected to the control plane"}
	}
	return Verdict{model.True, wellknown.ReasonProgrammed, "every node proxy has acknowledged it"}
}

// Versions says which version of an object each of the other replicas has, as far as they can be asked: the zero one if none.
func (v *View) Versions(key model.Key) map[string]Version {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := map[string]Version{}
	for _, o := range v.replicas {
		if o.complete {
			out[o.name] = o.known.objects[key].Version
		}
	}
	return out
}

// people names proxies by their nodes, the first few of them.
func people(names []string, nodes map[string]string, more int) string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		if node := nodes[name]; node != "" {
			name = "the proxy of node " + node + " (" + name + ")"
		} else {
			name = "proxy " + name
		}
		out = append(out, name)
	}
	return strings.Join(some(out, more), ", ")
}

// some are the first few texts, and how many more there are.
func some(texts []string, more int) []string {
	if len(texts) > maxNamed {
		more += len(texts) - maxNamed
		texts = texts[:maxNamed:maxNamed]
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return texts
}

// sorted are the other replicas by name. The lock is held.
func (v *View) sorted() []*other {
	out := make([]*other, 0, len(v.replicas))
	for _, o := range v.replicas {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b *other) int { return strings.Compare(a.name, b.name) })
	return out
}

// Unasked is how many other replicas should be known by now and do not answer.
func (v *View) Unasked() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, o := range v.replicas {
		if o.cancel != nil && !o.complete && o.ready {
			n++
		}
	}
	return n
}

// State is what can be told about a replica.
type State struct {
	Replica string `json:"replica"`
	Address string `json:"address,omitempty"`
	Self    bool   `json:"self,omitempty"`
	// Asked says that it answers, or is the one that tells; Error why it does not.
	Asked   bool         `json:"asked"`
	Error   string       `json:"error,omitempty"`
	Objects int          `json:"objects"`
	Proxies []ProxyState `json:"proxies"`
}

// ProxyState is a proxy that is connected to a replica.
type ProxyState struct {
	Workload string `json:"workload"`
	Node     string `json:"node"`
	CaughtUp bool   `json:"caughtUp"`
}

// States are all replicas, and the proxies that run and are connected to none.
type States struct {
	Replicas    []State      `json:"replicas"`
	Unconnected []ProxyState `json:"unconnected"`
}

// States tells of all replicas, this one first.
func (v *View) States() States {
	v.mu.Lock()
	defer v.mu.Unlock()
	connected := map[string]bool{}
	of := func(s State, k *known) State {
		s.Objects, s.Proxies = len(k.objects), []ProxyState{}
		for name, p := range k.proxies {
			connected[name] = true
			s.Proxies = append(s.Proxies, ProxyState{Workload: name, Node: p.Node, CaughtUp: p.CaughtUp})
		}
		slices.SortFunc(s.Proxies, func(a, b ProxyState) int { return strings.Compare(a.Workload, b.Workload) })
		return s
	}
	v.Local.mu.Lock()
	out := States{Replicas: []State{of(State{Replica: v.Pod, Self: true, Asked: true}, &v.Local.known)}, Unconnected: []ProxyState{}}
	v.Local.mu.Unlock()
	for _, o := range v.sorted() {
		out.Replicas = append(out.Replicas, of(State{Replica: o.name, Address: o.address, Asked: o.complete, Error: o.trouble}, &o.known))
	}
	for name, node := range v.proxies {
		if !connected[name] {
			out.Unconnected = append(out.Unconnected, ProxyState{Workload: name, Node: node})
		}
	}
	slices.SortFunc(out.Unconnected, func(a, b ProxyState) int { return strings.Compare(a.Workload, b.Workload) })
	return out
}
