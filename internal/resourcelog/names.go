package resourcelog

import (
	"maps"
	"slices"
)

// nameIndex finds resources by the names that clients who do not want everything ask for.
type nameIndex struct {
	byAlias  map[string]map[string]struct{} // alias → names
	byParent map[string]map[string]struct{} // parent's name → names
	byNode   map[string]map[string]struct{} // node → names of what its proxy needs unasked
	byReader map[string]map[string]struct{} // identity → names of what is for it
}

func newNameIndex() *nameIndex {
	return &nameIndex{byAlias: map[string]map[string]struct{}{}, byParent: map[string]map[string]struct{}{}, byNode: map[string]map[string]struct{}{},
		byReader: map[string]map[string]struct{}{}}
}

func (x *nameIndex) add(r *Resource) {
	for _, a := range r.Aliases {
		put(x.byAlias, a, r.Name)
	}
	for _, p := range r.Parents {
		put(x.byParent, p, r.Name)
	}
	for _, id := range r.Readers {
		put(x.byReader, id, r.Name)
	}
	if r.Node != "" {
		put(x.byNode, r.Node, r.Name)
	}
}

func (x *nameIndex) remove(r *Resource) {
	for _, a := range r.Aliases {
		drop(x.byAlias, a, r.Name)
	}
	for _, p := range r.Parents {
		drop(x.byParent, p, r.Name)
	}
	for _, id := range r.Readers {
		drop(x.byReader, id, r.Name)
	}
	if r.Node != "" {
		drop(x.byNode, r.Node, r.Name)
	}
}

func put(m map[string]map[string]struct{}, key, name string) {
	if m[key] == nil {
		m[key] = map[string]struct{}{}
	}
	m[key][name] = struct{}{}
}

func drop(m map[string]map[string]struct{}, key, name string) {
	delete(m[key], name)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

// Lookup finds what a client that asked for a name needs: the resources that bear it as name or alias, and their children.
// Several resources may bear one alias (pods on their host's network share its address).
func (l *Log) Lookup(typeURL, name string) []*Resource {
	l.mu.RLock()
	defer l.mu.RUnlock()
	t := l.types[typeURL]
	if t == nil {
		return nil
	}
	found := map[string]*Resource{}
	add := func(n string) {
		if r := t.get(n); r != nil {
			found[n] = r
		}
	}
	add(name)
	for n := range t.index.byAlias[name] {
		add(n)
	}
	for _, n := range slices.Collect(maps.Keys(found)) {
		for child := range t.index.byParent[n] {
			add(child)
		}
	}
	out := make([]*Resource, 0, len(found))
	for _, n := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[n])
	}
	return out
}

// Reads says whether a resource of a type is for an identity.
func (l *Log) Reads(typeURL, identity string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	t := l.types[typeURL]
	return t != nil && len(t.index.byReader[identity]) > 0
}

// OnNode names what the proxy of a node needs without asking for it, sorted.
func (l *Log) OnNode(typeURL, node string) []string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	t := l.types[typeURL]
	if t == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.index.byNode[node]))
}
