package kube

import (
	"reflect"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
)

// sink is where the objects of one kind arrive. It holds what the model holds, the very objects, so that it can tell what changed and
// what is gone. Its reflector alone calls it; s.mu of the source guards what others look at.
type sink struct {
	source   *Source
	kind     *kind
	interner *interner

	version  string // as which the kind is followed
	objects  map[model.Key]entry
	listed   bool
	troubles troubles
}

// entry is an object of the API server.
type entry struct {
	live     *model.Object // what the model has of it; nil if nothing
	problems []files.Problem
	// refused says that the present version, of this generation, was not taken. Then effect says how live stands in for it; it is empty if
	// live is the version before.
	refused    bool
	effect     string
	generation int64
	uid        types.UID // of an object whose present version was not taken
	// strictest says how the present version would count where no earlier one is known; empty if it would not.
	strictest string
}

// reading is an object on its way into the sink.
type reading struct {
	meta     metav1.ObjectMeta
	value    any // nil if it is refused
	problems []files.Problem
	// strictest stands in for a policy that is refused where no earlier version of it is known, and effect says how; nil for all others.
	strictest any
	effect    string
}

// GetObjectMeta lets the client library see which object this is.
func (r *reading) GetObjectMeta() metav1.Object { return &r.meta }

func newSink(s *Source, k *kind) *sink {
	return &sink{source: s, kind: k, interner: newInterner(), objects: map[model.Key]entry{}}
}

var _ cache.TransformingStore = (*sink)(nil)

// Transformer has a list's objects cut down to what is kept one by one as they arrive, so that not all of them are in memory whole at
// any time.
func (s *sink) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return s.read(o) }
}

// read takes what is kept of an object.
func (s *sink) read(o any) (*reading, error) {
	if r, ok := o.(*reading); ok {
		return r, nil
	}
	object, ok := o.(runtime.Object)
	if !ok {
		return nil, &unexpected{o}
	}
	m, err := apimeta.Accessor(object)
	if err != nil {
		return nil, err
	}
	r := &reading{meta: metav1.ObjectMeta{Namespace: s.interner.text(m.GetNamespace()), Name: m.GetName(), UID: m.GetUID(), Generation: m.GetGeneration(), ResourceVersion: m.GetResourceVersion()}}
	s.kind.read(s.kind, s.interner, object, r)
	return r, nil
}

// unexpected is something that no API server sends.
type unexpected struct{ what any }

func (u *unexpected) Error() string { return "unexpected " + reflect.TypeOf(u.what).String() }

// Add implements cache.ReflectorStore.
func (s *sink) Add(o any) error { return s.Update(o) }

// Update implements cache.ReflectorStore.
func (s *sink) Update(o any) error {
	s.source.observer.Event(s.kind.resource)
	r, err := s.read(o)
	if err != nil {
		return err
	}
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	s.source.queue.put(s.set(nil, r))
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *sink) Delete(o any) error {
	s.source.observer.Event(s.kind.resource)
	m, err := apimeta.Accessor(o)
	if err != nil {
		return err
	}
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	s.source.queue.put(s.remove(nil, s.kind.key(m.GetNamespace(), m.GetName())))
	return nil
}

// Replace implements cache.ReflectorStore: these are all objects that there are.
func (s *sink) Replace(list []any, _ string) error {
	readings := make([]*reading, 0, len(list))
	present := make(map[model.Key]bool, len(list))
	for i, o := range list {
		r, err := s.read(o)
		if err != nil {
			return err
		}
		list[i] = nil // it is not needed whole any more
		readings = append(readings, r)
		present[s.kind.key(r.meta.Namespace, r.meta.Name)] = true
	}
	s.source.mu.Lock()
	var changes []model.Change
	for _, r := range readings {
		changes = s.set(changes, r)
	}
	for key := range s.objects {
		if !present[key] {
			changes = s.remove(changes, key)
		}
	}
	// In the queue first: once all kinds are listed, what is in the queue is taken for all that there is.
	s.source.queue.put(changes)
	s.listed = true
	s.source.mu.Unlock()
	s.source.queue.nudge() // the last of the kinds may be an empty one
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to repeat.
func (s *sink) Resync() error { return nil }

// clear removes everything: the API server has the kind no more.
func (s *sink) clear() {
	s.source.mu.Lock()
	var changes []model.Change
	for key := range s.objects {
		changes = s.remove(changes, key)
	}
	s.source.queue.put(changes)
	s.listed, s.troubles = false, troubles{}
	s.source.mu.Unlock()
	s.source.queue.nudge()
}

// set takes an object's present version, unless it is refused: then the version before it stays, if it was the same object's. Without one, as
// after a start, a policy counts in its strictest reading: what was in force before the start must not end with it.
func (s *sink) set(changes []model.Change, r *reading) []model.Change {
	key := s.kind.key(r.meta.Namespace, r.meta.Name)
	old := s.objects[key]
	next := entry{live: old.live, problems: r.problems, generation: r.meta.Generation, refused: r.value == nil, strictest: r.effect}
	s.tell(key, old.problems, r.problems)
	value, stays := r.value, false
	if next.refused {
		next.uid = r.meta.UID
		// What is no custom resource is more than its author's will: a pod that stayed as it was would keep an address that is another's by now.
		if stays = (s.kind.custom || s.kind.stays) && old.live != nil && old.effect == "" && old.live.Value.(metav1.Object).GetUID() == r.meta.UID; !stays {
			value, next.effect = r.strictest, r.effect
		}
	}
	if s.kind.final != nil && value != nil && old.live != nil {
		s.kind.final(old.live.Value, value)
	}
	switch {
	case stays:
	case value == nil:
		if next.live = nil; old.live != nil {
			changes = append(changes, model.Change{Key: key})
		}
	case old.live != nil && old.live.Refused == next.standsIn() && same(old.live.Value, value):
	default:
		next.live = &model.Object{Key: key, APIVersion: s.kind.apiVersion(s.version), Value: value, Refused: next.standsIn()}
		changes = append(changes, model.Change{Key: key, Object: next.live})
		if next.refused {
			s.source.logger.Warn("kube: no earlier version of a refused policy is known, and it is in force in its strictest reading: "+next.effect, "object", key.String())
		}
	}
	s.objects[key] = next
	if old.refused || next.refused {
		s.source.judged(key)
	}
	return changes
}

// standsIn says of what stands in for a refused version what is wrong with that; empty for what is as it was written.
func (e *entry) standsIn() string {
	if e.effect == "" {
		return ""
	}
	return condition(e).Message
}

func (s *sink) remove(changes []model.Change, key model.Key) []model.Change {
	old, ok := s.objects[key]
	if !ok {
		return changes
	}
	delete(s.objects, key)
	if old.refused {
		s.source.judged(key)
	}
	if old.live != nil {
		changes = append(changes, model.Change{Key: key})
	}
	return changes
}

// tell logs problems that are new.
func (s *sink) tell(key model.Key, old, now []files.Problem) {
	said := make(map[string]bool, len(old))
	for _, p := range old {
		said[p.Error()] = true
	}
	for _, p := range now {
		if said[p.Error()] {
			continue
		}
		log := s.source.logger.Error
		if p.Severity == files.Warning {
			log = s.source.logger.Warn
		}
		log("kube: "+p.Error(), "object", key.String(), "field", p.Field)
	}
}

// same says whether two versions of an object differ in nothing that is kept.
func same(a, b any) bool {
	specA, specB := spec(a), spec(b)
	if specA == nil || specB == nil {
		return reflect.DeepEqual(a, b)
	}
	// Messages keep notes for their encoders, which DeepEqual would take for content.
	return proto.Equal(specA, specB) && sameAllocated(a, b) && reflect.DeepEqual(objectMeta(a), objectMeta(b))
}

func spec(o any) proto.Message {
	switch o := o.(type) {
	case *securityv1.AuthorizationPolicy:
		return &o.Spec
	case *securityv1.PeerAuthentication:
		return &o.Spec
	case *securityv1.RequestAuthentication:
		return &o.Spec
	case *networkingv1.ServiceEntry:
		return &o.Spec
	case *networkingv1.WorkloadEntry:
		return &o.Spec
	}
	return nil
}

func objectMeta(o any) metav1.Object { return o.(metav1.ObjectMetaAccessor).GetObjectMeta() }
