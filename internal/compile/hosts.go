package compile

import (
	"maps"
	"slices"
	"strings"
	"time"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// hosts holds which object speaks for which host name: several may declare one.
type hosts struct {
	declared  map[model.Key][]string          // object → hosts
	claims    map[string]map[model.Key]bool   // host → objects
	owners    map[string]map[string]model.Key // host → namespace → the object that speaks for it there
	canonical map[string]model.Key            // host → the object that speaks for it everywhere else
	resources map[model.Key]map[string]bool   // object → names of its resources in the log
}

func newHosts() *hosts {
	return &hosts{declared: map[model.Key][]string{}, claims: map[string]map[model.Key]bool{}, owners: map[string]map[string]model.Key{},
		canonical: map[string]model.Key{}, resources: map[model.Key]map[string]bool{}}
}

// owner is the object that speaks for a host in a namespace, by the wire name "namespace/host".
func (h *hosts) owner(name string) (model.Key, bool) {
	namespace, host, _ := strings.Cut(name, "/")
	key, ok := h.owners[host][namespace]
	return key, ok
}

// speaks says whether an object speaks for a host in its namespace.
func (h *hosts) speaks(key model.Key, host string) bool { return h.owners[host][key.Namespace] == key }

// owned are the hosts of a ServiceEntry that it speaks for.
func (h *hosts) owned(se *networkingv1.ServiceEntry, key model.Key) []string {
	return slices.DeleteFunc(translate.EntryHosts(se), func(host string) bool { return !h.speaks(key, host) })
}

// claim is one object's claim to a host.
type claim struct {
	key       model.Key
	created   time.Time
	published bool // anybody sees it
	public    bool // other namespaces may
	stake     stake
}

func (x claim) isService() bool { return x.key.Kind == "Service" }

func (x claim) equal(y claim) bool {
	return x.key == y.key && x.public == y.public && x.published == y.published && x.stake == y.stake && x.created.Equal(y.created)
}

// before orders claims by right: a Service before ServiceEntries, then the older, then by name.
func (x claim) before(y claim) bool {
	switch {
	case x.isService() != y.isService():
		return x.isService()
	case !x.created.Equal(y.created):
		return x.created.Before(y.created)
	}
	return x.key.Compare(y.key) < 0
}

// speakers decides which object speaks for each host name, and marks the objects whose part in it changes.
type speakers struct {
	*facts
	hosts       *hosts
	names       *names
	selection   *model.Selection
	asks        *addresses
	assignments *Assignments
	allocator   *allocator
	places      *places
}

// settle finds who speaks for the hosts of the services that the batch touches, and touches those who gain or lose one.
func (s *speakers) settle(b *batch) {
	touched := map[string]bool{}
	for key := range b.stale[serviceOutput] {
		for _, h := range s.hosts.declared[key] {
			delete(s.hosts.claims[h], key)
			touched[h] = true
			s.names.retract(key, h)
		}
		now := s.declares(key)
		if key.Kind == "ServiceEntry" {
			s.allocator.noteInherited(key)
		}
		for _, h := range now {
			if s.hosts.claims[h] == nil {
				s.hosts.claims[h] = map[model.Key]bool{}
			}
			s.hosts.claims[h][key] = true
			touched[h] = true
			if key.Kind == "ServiceEntry" {
				s.names.declare(key, h)
			}
		}
		if len(now) == 0 {
			delete(s.hosts.declared, key)
		} else {
			s.hosts.declared[key] = now
		}
	}
	for h := range touched {
		s.settleHost(b, h)
	}
	for _, key := range slices.SortedFunc(maps.Keys(b.stale[serviceOutput]), model.Key.Compare) {
		s.allocator.reclaim(b, key)
	}
}

// settleHost follows Istio's rule: in a namespace a Service speaks for a host before ServiceEntries and an older entry before others; for
// namespaces that do not declare the host a Service speaks, else the oldest entry that others may see.
func (s *speakers) settleHost(b *batch, host string) {
	best := map[string]claim{}
	for key := range s.hosts.claims[host] {
		x := s.claim(key)
		x.public = x.public && (x.isService() || s.names.ofOthers(host, key.Namespace) == "")
		if y, ok := best[key.Namespace]; !ok || x.before(y) {
			best[key.Namespace] = x
		}
	}
	var canonical *claim
	for _, x := range best {
		if (x.isService() || x.public) && (canonical == nil || x.before(*canonical)) {
			canonical = &x
		}
	}
	old := s.hosts.canonical[host]
	var now model.Key
	if canonical != nil {
		now = canonical.key
	}
	changed := old != now
	if changed {
		s.retouch(b, old, now)
	}
	if canonical == nil {
		delete(s.hosts.canonical, host)
	} else {
		s.hosts.canonical[host] = now
	}
	owners := s.hosts.owners[host]
	for namespace, owner := range owners {
		if x, ok := best[namespace]; !ok || x.key != owner {
			delete(owners, namespace)
			s.retouch(b, owner)
			for _, addr := range s.assignments.Addresses[namespace+"/"+host] {
				for key := range s.asks.by[addr].all {
					b.mark(serviceOutput, key)
				}
			}
			changed = true
		}
	}
	for namespace, x := range best {
		if _, ok := owners[namespace]; !ok {
			if owners == nil {
				owners = map[string]model.Key{}
			}
			owners[namespace] = x.key
			s.retouch(b, x.key)
			changed = true
		}
	}
	if s.hosts.owners[host] = owners; len(owners) == 0 {
		delete(s.hosts.owners, host)
	}
	if changed {
		// Each says who speaks for the host in its namespace and elsewhere.
		for key := range s.hosts.claims[host] {
			b.mark(serviceOutput, key)
		}
	}
	if len(s.hosts.claims[host]) == 0 {
		delete(s.hosts.claims, host)
	}
}

// retouch has services compiled again, and the workloads that serve them.
func (s *speakers) retouch(b *batch, keys ...model.Key) {
	for _, key := range keys {
		if key == (model.Key{}) {
			continue
		}
		b.mark(serviceOutput, key)
		if svc, ok := s.store.Service(key); ok && len(svc.Spec.Selector) > 0 {
			s.selection.Chosen(key.Namespace, svc.Spec.Selector, b.workload)
		}
		if se, ok := s.store.ServiceEntry(key); ok {
			b.workload(key)
			if selector := se.Spec.WorkloadSelector.GetLabels(); len(selector) > 0 {
				s.selection.Chosen(key.Namespace, selector, b.workload)
			}
		}
	}
}
