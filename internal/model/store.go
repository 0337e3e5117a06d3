package model

import (
	"iter"
	"maps"
	"slices"
	"sync"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Change sets one object, or removes it when Object is nil.
type Change struct {
	Key    Key
	Object *Object
}

// Changed is what a Change did to the store.
type Changed struct {
	Key      Key
	Old, New *Object // nil: not there
}

// Entry is one object of the store with what became of it.
type Entry struct {
	Object     *Object
	Generation uint64 // the generation in which it got its present content
	Report
}

// Store holds the live objects. One goroutine writes; any number read.
type Store struct {
	mu         sync.RWMutex
	generation uint64
	entries    map[Key]*Entry
	byKind     map[groupKind]map[Key]*Entry
	podsByNode map[string]map[Key]*corev1.Pod
	feeds      []*Feed
}

type groupKind struct{ group, kind string }

// NewStore returns an empty store at generation 0.
func NewStore() *Store {
	return &Store{
		entries:    map[Key]*Entry{},
		byKind:     map[groupKind]map[Key]*Entry{},
		podsByNode: map[string]map[Key]*corev1.Pod{},
	}
}

// Apply takes a batch as one new generation and reports what it changed. A batch that changes nothing still counts:
// its generation tells that the objects were looked at.
func (s *Store) Apply(changes []Change) (generation uint64, changed []Changed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
	for _, c := range changes {
		old := s.entries[c.Key]
		if old == nil && c.Object == nil {
			continue
		}
		did := Changed{Key: c.Key, New: c.Object}
		if old != nil {
			did.Old = old.Object
		}
		s.unindex(c.Key, did.Old)
		if c.Object == nil {
			delete(s.entries, c.Key)
		} else {
			s.index(c.Key, &Entry{Object: c.Object, Generation: s.generation})
		}
		changed = append(changed, did)
		s.tell(c.Key)
	}
	return s.generation, changed
}

func (s *Store) index(key Key, e *Entry) {
	s.entries[key] = e
	gk := groupKind{key.Group, key.Kind}
	if s.byKind[gk] == nil {
		s.byKind[gk] = map[Key]*Entry{}
	}
	s.byKind[gk][key] = e
	if pod, ok := e.Object.Value.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		if s.podsByNode[pod.Spec.NodeName] == nil {
			s.podsByNode[pod.Spec.NodeName] = map[Key]*corev1.Pod{}
		}
		s.podsByNode[pod.Spec.NodeName][key] = pod
	}
}

func (s *Store) unindex(key Key, o *Object) {
	if o == nil {
		return
	}
	delete(s.byKind[groupKind{key.Group, key.Kind}], key)
	if pod, ok := o.Value.(*corev1.Pod); ok {
		onNode := s.podsByNode[pod.Spec.NodeName]
		delete(onNode, key)
		if len(onNode) == 0 {
			delete(s.podsByNode, pod.Spec.NodeName)
		}
	}
}

// SetConditions replaces what is said about an object by conditions of the object alone.
func (s *Store) SetConditions(key Key, conditions []Condition) {
	s.SetReport(key, Report{Conditions: conditions})
}

// SetReport replaces what is said about an object; an object that is gone has nothing to be said about.
func (s *Store) SetReport(key Key, report Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key]; e != nil {
		if !e.says(report) {
			s.tell(key)
		}
		e.Report = report
	}
}

// Entry returns one object with what became of it.
func (s *Store) Entry(key Key) (Entry, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.entries[key]
	if e == nil {
		return Entry{}, false
	}
	return *e, true
}

// Ineffective counts the objects written for the mesh of which the compiler says that they have no effect. What was refused before it came
// here, and has a stand-in, is not among them.
func (s *Store) Ineffective() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for kind, entries := range s.byKind {
		if kind.group != SecurityGroup && kind.group != NetworkGroup {
			continue
		}
		for _, e := range entries {
			if e.Object.Refused == "" && slices.ContainsFunc(e.Conditions, func(c Condition) bool { return c.Type == "Accepted" && c.Status == False }) {
				n++
			}
		}
	}
	return n
}

// Generation is the number of batches applied.
func (s *Store) Generation() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.generation
}

// Entries returns a copy of every entry, sorted by key.
func (s *Store) Entries() []Entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]Entry, 0, len(s.entries))
	for _, e := range s.entries {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return a.Object.Key.Compare(b.Object.Key) })
	return all
}

// value reads one typed object.
func value[T any](s *Store, key Key) (v T, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.entries[key]
	if e == nil {
		return v, false
	}
	v, ok = e.Object.Value.(T)
	return v, ok
}

// values copies all objects of one kind, in key order.
func values[T any](s *Store, group, kind string) iter.Seq2[Key, T] {
	s.mu.RLock()
	found := maps.Clone(s.byKind[groupKind{group, kind}])
	s.mu.RUnlock()
	return func(yield func(Key, T) bool) {
		for _, key := range slices.SortedFunc(maps.Keys(found), Key.Compare) {
			if v, ok := found[key].Object.Value.(T); ok && !yield(key, v) {
				return
			}
		}
	}
}

// The API groups of the kinds that are read here.
const (
	SecurityGroup = "security.istio.io"
	NetworkGroup  = "networking.istio.io"
	GatewayGroup  = "gateway.networking.k8s.io"
	// DiscoveryGroup is the group of EndpointSlices.
	DiscoveryGroup = "discovery.k8s.io"
)

// EndpointSliceController is by whom EndpointSlices are managed, as their label says, that list the pods which a Service selects.
const EndpointSliceController = "endpointslice-controller.k8s.io"

// PodKey names a pod.
func PodKey(namespace, name string) Key { return Key{Kind: "Pod", Namespace: namespace, Name: name} }

// ServiceKey names a service.
func ServiceKey(namespace, name string) Key {
	return Key{Kind: "Service", Namespace: namespace, Name: name}
}

// ServiceEntryKey names a ServiceEntry.
func ServiceEntryKey(namespace, name string) Key {
	return Key{Group: NetworkGroup, Kind: "ServiceEntry", Namespace: namespace, Name: name}
}

// WorkloadEntryKey names a WorkloadEntry.
func WorkloadEntryKey(namespace, name string) Key {
	return Key{Group: NetworkGroup, Kind: "WorkloadEntry", Namespace: namespace, Name: name}
}

// GatewayKey names a Gateway of the Gateway API.
func GatewayKey(namespace, name string) Key {
	return Key{Group: GatewayGroup, Kind: "Gateway", Namespace: namespace, Name: name}
}

// GatewayClassKey names a GatewayClass.
func GatewayClassKey(name string) Key {
	return Key{Group: GatewayGroup, Kind: "GatewayClass", Name: name}
}

// EndpointSliceKey names an EndpointSlice.
func EndpointSliceKey(namespace, name string) Key {
	return Key{Group: DiscoveryGroup, Kind: "EndpointSlice", Namespace: namespace, Name: name}
}

// NodeKey names a node.
func NodeKey(name string) Key { return Key{Kind: "Node", Name: name} }

// NamespaceKey names a namespace.
func NamespaceKey(name string) Key { return Key{Kind: "Namespace", Name: name} }

// Pod returns a live pod. The caller must not change it; that holds for all of the readers below.
func (s *Store) Pod(key Key) (*corev1.Pod, bool) { return value[*corev1.Pod](s, key) }

// Service returns a live service.
func (s *Store) Service(key Key) (*corev1.Service, bool) { return value[*corev1.Service](s, key) }

// ServiceEntry returns a live ServiceEntry.
func (s *Store) ServiceEntry(key Key) (*networkingv1.ServiceEntry, bool) {
	return value[*networkingv1.ServiceEntry](s, key)
}

// WorkloadEntry returns a live WorkloadEntry.
func (s *Store) WorkloadEntry(key Key) (*networkingv1.WorkloadEntry, bool) {
	return value[*networkingv1.WorkloadEntry](s, key)
}

// Gateway returns a live Gateway of the Gateway API.
func (s *Store) Gateway(key Key) (*gatewayv1.Gateway, bool) { return value[*gatewayv1.Gateway](s, key) }

// GatewayClass returns a live GatewayClass by name.
func (s *Store) GatewayClass(name string) (*gatewayv1.GatewayClass, bool) {
	return value[*gatewayv1.GatewayClass](s, GatewayClassKey(name))
}

// Node returns a node by name.
func (s *Store) Node(name string) (*corev1.Node, bool) { return value[*corev1.Node](s, NodeKey(name)) }

// Namespace returns a namespace by name.
func (s *Store) Namespace(name string) (*corev1.Namespace, bool) {
	return value[*corev1.Namespace](s, NamespaceKey(name))
}

// EndpointSlice returns a live EndpointSlice.
func (s *Store) EndpointSlice(key Key) (*discoveryv1.EndpointSlice, bool) {
	return value[*discoveryv1.EndpointSlice](s, key)
}

// AuthorizationPolicy returns a live policy.
func (s *Store) AuthorizationPolicy(key Key) (*securityv1.AuthorizationPolicy, bool) {
	return value[*securityv1.AuthorizationPolicy](s, key)
}

// RequestAuthentication returns a live policy.
func (s *Store) RequestAuthentication(key Key) (*securityv1.RequestAuthentication, bool) {
	return value[*securityv1.RequestAuthentication](s, key)
}

// ConfigMap returns a live ConfigMap.
func (s *Store) ConfigMap(key Key) (*corev1.ConfigMap, bool) {
	return value[*corev1.ConfigMap](s, key)
}

// PeerAuthentication returns a live policy.
func (s *Store) PeerAuthentication(key Key) (*securityv1.PeerAuthentication, bool) {
	return value[*securityv1.PeerAuthentication](s, key)
}

// Pods iterates over all pods in key order.
func (s *Store) Pods() iter.Seq2[Key, *corev1.Pod] { return values[*corev1.Pod](s, "", "Pod") }

// Services iterates over all services in key order.
func (s *Store) Services() iter.Seq2[Key, *corev1.Service] {
	return values[*corev1.Service](s, "", "Service")
}

// ServiceEntries iterates over all ServiceEntries in key order.
func (s *Store) ServiceEntries() iter.Seq2[Key, *networkingv1.ServiceEntry] {
	return values[*networkingv1.ServiceEntry](s, NetworkGroup, "ServiceEntry")
}

// WorkloadEntries iterates over all WorkloadEntries in key order.
func (s *Store) WorkloadEntries() iter.Seq2[Key, *networkingv1.WorkloadEntry] {
	return values[*networkingv1.WorkloadEntry](s, NetworkGroup, "WorkloadEntry")
}

// Gateways iterates over all Gateways of the Gateway API in key order.
func (s *Store) Gateways() iter.Seq2[Key, *gatewayv1.Gateway] {
	return values[*gatewayv1.Gateway](s, GatewayGroup, "Gateway")
}

// PeerAuthentications iterates over all PeerAuthentications in key order.
func (s *Store) PeerAuthentications() iter.Seq2[Key, *securityv1.PeerAuthentication] {
	return values[*securityv1.PeerAuthentication](s, SecurityGroup, "PeerAuthentication")
}

// PodsOnNode returns the pods that are scheduled to a node, in key order.
func (s *Store) PodsOnNode(node string) []*corev1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	onNode := s.podsByNode[node]
	pods := make([]*corev1.Pod, 0, len(onNode))
	for _, key := range slices.SortedFunc(maps.Keys(onNode), Key.Compare) {
		pods = append(pods, onNode[key])
	}
	return pods
}

// Len is the number of live objects.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.entries)
}
