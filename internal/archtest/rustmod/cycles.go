package rustmod

import (
	"maps"
	"slices"
	"strings"
)

// Cycles lists the sets of modules that use one another, each sorted: of single files, and of siblings with all below them. The
// root takes part as a file.
func (c *Crate) Cycles() [][]string {
	all := components(c.uses)
	for parent := range c.modules {
		siblings := map[string]map[string]bool{}
		for from, tos := range c.uses {
			a, is := below(parent, from)
			if !is {
				continue
			}
			for to := range tos {
				if b, is := below(parent, to); is && a != b {
					if siblings[a] == nil {
						siblings[a] = map[string]bool{}
					}
					siblings[a][b] = true
				}
			}
		}
		all = append(all, components(siblings)...)
	}
	slices.SortFunc(all, slices.Compare)
	return slices.CompactFunc(all, slices.Equal)
}

// below is the child of a module that another module is, or is below of.
func below(parent, name string) (child string, is bool) {
	rest := name
	if parent != "" {
		if rest, is = strings.CutPrefix(name, parent+"::"); !is {
			return "", false
		}
	}
	if rest == "" {
		return "", false
	}
	first, _, _ := strings.Cut(rest, "::")
	if parent == "" {
		return first, true
	}
	return parent + "::" + first, true
}

// components are the strongly connected components of more than one node (Tarjan 1972), each sorted.
func components(edges map[string]map[string]bool) [][]string {
	var found [][]string
	var stack []string
	index, low, open := map[string]int{}, map[string]int{}, map[string]bool{}
	var visit func(string)
	visit = func(v string) {
		index[v] = len(index) + 1
		low[v] = index[v]
		stack, open[v] = append(stack, v), true
		for _, w := range slices.Sorted(maps.Keys(edges[v])) {
			if index[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if open[w] {
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] != index[v] {
			return
		}
		first := slices.Index(stack, v)
		if component := slices.Sorted(slices.Values(stack[first:])); len(component) > 1 {
			found = append(found, component)
		}
		for _, w := range stack[first:] {
			open[w] = false
		}
		stack = stack[:first]
	}
	for _, v := range slices.Sorted(maps.Keys(edges)) {
		if index[v] == 0 {
			visit(v)
		}
	}
	return found
}
