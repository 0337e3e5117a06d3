package kube

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// interner has equal parts of objects share their memory: ten thousand pods have a few hundred different sets of labels, owners and ports
// between them. What it hands out nobody may change. It is not safe for concurrent use.
type interner struct {
	texts     table[string]
	labelSets table[map[string]string]
	owners    table[[]metav1.OwnerReference]
	portSets  table[[]corev1.Container]
	key       []byte
}

// Limits of the memory of one sort: so many values, so many bytes of their keys, and none whose key is longer than that. A set of labels has
// some hundred bytes, and may have a million: whoever may change a pod may give it another such set a second, and a set that is
// remembered stays when its pod is long gone. With more, what was handed out stays shared and what comes is not shared with it.
const (
	most      = 1 << 14
	mostBytes = 4 << 20
	longest   = 4 << 10
)

func newInterner() *interner { return &interner{} }

// table is what is remembered of one sort.
type table[V any] struct {
	by    map[string]V
	bytes int // of keys
}

// remember keeps the table from growing without end: the parts of objects that are gone are not told apart from others.
func (t *table[V]) remember(key string, v V) V {
	if len(key) > longest {
		return v
	}
	if t.by == nil {
		t.by = map[string]V{}
	}
	if len(t.by) >= most || t.bytes+len(key) > mostBytes {
		clear(t.by)
		t.bytes = 0
	}
	t.by[key] = v
	t.bytes += len(key)
	return v
}

func (in *interner) text(s string) string {
	if s == "" {
		return ""
	}
	if same, ok := in.texts.by[s]; ok {
		return same
	}
	return in.texts.remember(s, s)
}

// perReplica are labels whose values differ from replica to replica: a set with one of them is nobody else's.
var perReplica = []string{"apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index", "statefulset.kubernetes.io/pod-name"}

func (in *interner) labels(all map[string]string) map[string]string {
	if len(all) == 0 {
		return nil
	}
	size := 0
	for k, v := range all {
		size += len(k) + len(v) + 2
	}
	if size > longest || slices.ContainsFunc(perReplica, func(l string) bool { _, has := all[l]; return has }) {
		return all
	}
	in.key = in.key[:0]
	for _, k := range slices.Sorted(maps.Keys(all)) {
		in.key = append(append(append(append(in.key, k...), 0), all[k]...), 0)
	}
	if same, ok := in.labelSets.by[string(in.key)]; ok {
		return same
	}
	return in.labelSets.remember(string(in.key), all)
}

// isController is what the one owner that is kept says of itself.
var isController = true

// owner keeps the owner that controls the object, by version, kind and name.
func (in *interner) owner(all []metav1.OwnerReference) []metav1.OwnerReference {
	i := slices.IndexFunc(all, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller })
	if i < 0 {
		return nil
	}
	o := all[i]
	own := []metav1.OwnerReference{{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, Controller: &isController}}
	if len(o.APIVersion)+len(o.Kind)+len(o.Name)+2 > longest {
		return own
	}
	in.key = append(append(append(append(append(in.key[:0], o.APIVersion...), 0), o.Kind...), 0), o.Name...)
	if same, ok := in.owners.by[string(in.key)]; ok {
		return same
	}
	return in.owners.remember(string(in.key), own)
}

// ports are the named ports of a pod as those of one container; nil if no port has a name.
func (in *interner) ports(o *corev1.Pod) []corev1.Container {
	named := ports(o)
	if len(named) == 0 {
		return nil
	}
	own := []corev1.Container{{Ports: named}}
	in.key = in.key[:0]
	for _, p := range named {
		if in.key = append(append(in.key, p.Name...), 0); len(in.key) > longest {
			return own
		}
		in.key = append(strconv.AppendInt(in.key, int64(p.ContainerPort), 10), 0)
	}
	if same, ok := in.portSets.by[string(in.key)]; ok {
		return same
	}
	return in.portSets.remember(string(in.key), own)
}
