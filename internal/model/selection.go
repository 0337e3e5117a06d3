package model

import (
	"maps"
	"slices"
	"strings"
)

// Selection answers which selectors choose a workload and which workloads a selector chooses; a workload is whatever has labels and
// was put: a pod, a WorkloadEntry. It matches selectors against the distinct label sets of a namespace, never workload by workload:
// a thousand replicas of one template cost one match. It is not safe for concurrent use.
type Selection struct {
	namespaces map[string]*selectionNamespace
	meshWide   map[Key]map[string]string // selectors that look into every namespace
	version    uint64                    // of meshWide
}

type selectionNamespace struct {
	sets      map[string]*labelSet // by fingerprint
	workloads map[Key]selected
	selectors map[Key]map[string]string
	version   uint64 // of selectors
}

// selected keeps all labels of a workload: a selector may name one that is not part of its set.
type selected struct {
	labels map[string]string
	set    *labelSet
}

// labelSet is what workloads of one template have in common.
type labelSet struct {
	labels    map[string]string
	workloads map[Key]struct{}
	// chosenBy caches the selectors that choose this set; it is good for one version of the selectors.
	chosenBy             []Key
	version, meshVersion uint64
}

// perPod are labels that Kubernetes gives each replica its own value of. Left in, every replica would be a set of its own.
var perPod = []string{"apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index", "statefulset.kubernetes.io/pod-name"}

// NewSelection returns an empty index.
func NewSelection() *Selection {
	return &Selection{namespaces: map[string]*selectionNamespace{}, meshWide: map[Key]map[string]string{}, version: 1}
}

func (x *Selection) namespace(name string) *selectionNamespace {
	ns := x.namespaces[name]
	if ns == nil {
		ns = &selectionNamespace{sets: map[string]*labelSet{}, workloads: map[Key]selected{}, selectors: map[Key]map[string]string{}, version: 1}
		x.namespaces[name] = ns
	}
	return ns
}

// Put records a workload's labels.
func (x *Selection) Put(key Key, labels map[string]string) {
	x.Delete(key)
	ns := x.namespace(key.Namespace)
	shared := labels
	if slices.ContainsFunc(perPod, func(l string) bool { _, has := labels[l]; return has }) {
		shared = maps.Clone(labels)
		for _, l := range perPod {
			delete(shared, l)
		}
	}
	print := fingerprint(shared)
	set := ns.sets[print]
	if set == nil {
		set = &labelSet{labels: shared, workloads: map[Key]struct{}{}}
		ns.sets[print] = set
	}
	set.workloads[key] = struct{}{}
	ns.workloads[key] = selected{labels: labels, set: set}
}

// Delete forgets a workload.
func (x *Selection) Delete(key Key) {
	ns := x.namespaces[key.Namespace]
	if ns == nil {
		return
	}
	w, ok := ns.workloads[key]
	if !ok {
		return
	}
	delete(ns.workloads, key)
	delete(w.set.workloads, key)
	if len(w.set.workloads) == 0 {
		delete(ns.sets, fingerprint(w.set.labels))
	}
	x.prune(key.Namespace)
}

// PutSelector records a selector that looks into one namespace, or into all when namespace is empty.
// An empty selector chooses every workload; callers for whom it means none do not put it.
func (x *Selection) PutSelector(owner Key, namespace string, selector map[string]string) {
	if namespace == "" {
		x.meshWide[owner] = selector
		x.version++
		return
	}
	ns := x.namespace(namespace)
	ns.selectors[owner] = selector
	ns.version++
}

// DeleteSelector forgets a selector; namespace must be the one it was put with.
func (x *Selection) DeleteSelector(owner Key, namespace string) {
	if namespace == "" {
		delete(x.meshWide, owner)
		x.version++
		return
	}
	ns := x.namespaces[namespace]
	if ns == nil {
		return
	}
	delete(ns.selectors, owner)
	ns.version++
	x.prune(namespace)
}

func (x *Selection) prune(namespace string) {
	if ns := x.namespaces[namespace]; len(ns.workloads) == 0 && len(ns.selectors) == 0 {
		delete(x.namespaces, namespace)
	}
}

// Chosen calls visit for each workload that a selector chooses in one namespace, or in all when namespace is empty.
func (x *Selection) Chosen(namespace string, selector map[string]string, visit func(workload Key)) {
	if namespace == "" {
		for name := range x.namespaces {
			x.Chosen(name, selector, visit)
		}
		return
	}
	ns := x.namespaces[namespace]
	if ns == nil {
		return
	}
	if namesPerPod(selector) {
		for key, w := range ns.workloads {
			if chooses(selector, w.labels) {
				visit(key)
			}
		}
		return
	}
	for _, set := range ns.sets {
		if chooses(selector, set.labels) {
			for key := range set.workloads {
				visit(key)
			}
		}
	}
}

// ChosenBy returns the owners of all selectors that choose a workload, in key order.
func (x *Selection) ChosenBy(key Key) []Key {
	ns := x.namespaces[key.Namespace]
	if ns == nil {
		return nil
	}
	w, ok := ns.workloads[key]
	if !ok {
		return nil
	}
	set := w.set
	if set.version != ns.version || set.meshVersion != x.version {
		set.chosenBy = nil
		for _, selectors := range []map[Key]map[string]string{ns.selectors, x.meshWide} {
			for owner, selector := range selectors {
				if !namesPerPod(selector) && chooses(selector, set.labels) {
					set.chosenBy = append(set.chosenBy, owner)
				}
			}
		}
		slices.SortFunc(set.chosenBy, Key.Compare)
		set.version, set.meshVersion = ns.version, x.version
	}
	own := x.chosenByOwnLabels(ns, w)
	if len(own) == 0 {
		return set.chosenBy
	}
	own = append(own, set.chosenBy...)
	slices.SortFunc(own, Key.Compare)
	return own
}

// chosenByOwnLabels finds the rare selectors that name a label which differs from replica to replica.
func (x *Selection) chosenByOwnLabels(ns *selectionNamespace, w selected) []Key {
	if len(w.labels) == len(w.set.labels) {
		return nil // it has no such label
	}
	var owners []Key
	for _, selectors := range []map[Key]map[string]string{ns.selectors, x.meshWide} {
		for owner, selector := range selectors {
			if namesPerPod(selector) && chooses(selector, w.labels) {
				owners = append(owners, owner)
			}
		}
	}
	return owners
}

func namesPerPod(selector map[string]string) bool {
	return slices.ContainsFunc(perPod, func(l string) bool { _, has := selector[l]; return has })
}

func chooses(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// fingerprint writes a label set as one string; no label holds the separators.
func fingerprint(labels map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(k)
		b.WriteByte(0)
		b.WriteString(labels[k])
		b.WriteByte(0)
	}
	return b.String()
}
