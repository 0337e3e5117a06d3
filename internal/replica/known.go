// Package replica owns what is known of the proxies' acknowledgements: of those that are connected to this replica of the control plane,
// of those of the others, and of all together. It does not know how objects are compiled, nor where it is written down what it concludes.
package replica

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	wire "lateen.dev/lateen/internal/gen/replica"
	"lateen.dev/lateen/internal/model"
)

// maxNamed bounds how many proxies are named to have something against one object, or not to have answered for it.
const maxNamed = 5

// Version is a version of an object that all replicas mean alike. The model's generation is each replica's own.
type Version struct {
	UID        string
	Generation int64
	// Digest is that of what the mesh reads, for a kind without metadata.generation.
	Digest string
}

// VersionOf is the version of an object.
func VersionOf(o *model.Object) Version {
	v := Version{}
	if m, ok := o.Value.(metav1.Object); ok {
		v.UID, v.Generation = string(m.GetUID()), m.GetGeneration()
	}
	if v.Generation == 0 {
		v.Digest = o.Digest()
	}
	return v
}

// Standing is how an object stands with the proxies of one replica.
type Standing struct {
	Version Version
	// Waiting is how many proxies that are caught up have not acknowledged it, WaitingFor the first of them.
	Waiting    int
	WaitingFor []string
	// Refusal is the reason of the condition Programmed if a proxy refuses it, or may; RefusalText says more.
	Refusal, RefusalText string
}

func (s Standing) same(o Standing) bool {
	return s.Version == o.Version && s.Waiting == o.Waiting && slices.Equal(s.WaitingFor, o.WaitingFor) && s.Refusal == o.Refusal && s.RefusalText == o.RefusalText
}

// Proxy is one that is connected to a replica.
type Proxy struct {
	Node string
	// CaughtUp says that it has acknowledged all that there was when it connected.
	CaughtUp bool
}

// known is what one replica knows. Whoever holds it has a lock of its own.
type known struct {
	objects map[model.Key]Standing
	proxies map[string]Proxy // by workload, "namespace/pod"
}

func newKnown() known {
	return known{objects: map[model.Key]Standing{}, proxies: map[string]Proxy{}}
}

// behind are the proxies that are not caught up.
func (k *known) behind() (names []string) {
	for name, p := range k.proxies {
		if !p.CaughtUp {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// news is what of it others have to hear.
type news struct {
	objects map[model.Key]struct{}
	proxies map[string]struct{}
}

func newNews() news {
	return news{objects: map[model.Key]struct{}{}, proxies: map[string]struct{}{}}
}

func (n news) empty() bool { return len(n.objects)+len(n.proxies) == 0 }

// report renders news for the wire.
func (k *known) report(n news) *wire.Report {
	r := &wire.Report{}
	for _, key := range slices.SortedFunc(maps.Keys(n.objects), model.Key.Compare) {
		o := &wire.Object{Group: key.Group, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name}
		if s, ok := k.objects[key]; ok {
			o.Uid, o.Generation, o.Digest = s.Version.UID, s.Version.Generation, s.Version.Digest
			o.Waiting, o.WaitingFor = uint32(s.Waiting), s.WaitingFor //nolint:gosec // a number of connections
			o.Refusal, o.RefusalText = s.Refusal, s.RefusalText
		} else {
			o.Gone = true
		}
		r.Objects = append(r.Objects, o)
	}
	for _, name := range slices.Sorted(maps.Keys(n.proxies)) {
		if p, ok := k.proxies[name]; ok {
			r.Clients = append(r.Clients, &wire.Client{Workload: name, Node: p.Node, CaughtUp: p.CaughtUp})
		} else {
			r.ClientsGone = append(r.ClientsGone, name)
		}
	}
	return r
}

// take brings what is known of another replica up to date by its report, and says what that was about.
func (k *known) take(r *wire.Report) (keys []model.Key, proxies bool) {
	for _, o := range r.GetObjects() {
		key := model.Key{Group: o.GetGroup(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
		keys = append(keys, key)
		if o.GetGone() {
			delete(k.objects, key)
			continue
		}
		k.objects[key] = Standing{
			Version: Version{UID: o.GetUid(), Generation: o.GetGeneration(), Digest: o.GetDigest()},
			Waiting: int(o.GetWaiting()), WaitingFor: o.GetWaitingFor()[:min(len(o.GetWaitingFor()), maxNamed)],
			Refusal: o.GetRefusal(), RefusalText: o.GetRefusalText(),
		}
	}
	for _, c := range r.GetClients() {
		k.proxies[c.GetWorkload()] = Proxy{Node: c.GetNode(), CaughtUp: c.GetCaughtUp()}
	}
	for _, name := range r.GetClientsGone() {
		delete(k.proxies, name)
	}
	return keys, len(r.GetClients())+len(r.GetClientsGone()) > 0
}

// mergeNames joins lists of names, each once, in order.
func mergeNames(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.SortFunc(all, cmp.Compare[string])
	return slices.Compact(all)
}
