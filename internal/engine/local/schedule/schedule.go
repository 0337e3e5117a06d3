// Package schedule picks the node for a pod. It is a function of what it is told and keeps no books.
package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Node is a candidate.
type Node struct {
	Name   string
	Labels map[string]string
	Pods   int // how many pods it has
	Same   int // how many of them belong to the same owner as the new one
	Free   int // how many more have an address
	// Cannot says why the node cannot take this pod; empty if it can.
	Cannot string
}

// Pick chooses the node with the fewest pods of the same owner, then the fewest pods, then the first in the list.
// nodeName, if not empty, binds the pod to that node; selector limits the choice by labels.
func Pick(nodes []Node, nodeName string, selector map[string]string) (string, error) {
	if nodeName != "" {
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == nodeName })
		if i < 0 {
			return "", fmt.Errorf("there is no node %q; nodes are %s", nodeName, names(nodes))
		}
		if why := nodes[i].Cannot; why != "" {
			return "", fmt.Errorf("node %s cannot take the pod: %s", nodeName, why)
		}
		return nodeName, nil
	}
	var cannot []string
	best, fits := -1, false
	for i, n := range nodes {
		if !matches(selector, n.Labels) {
			continue
		}
		if n.Cannot != "" {
			cannot = append(cannot, n.Name+": "+n.Cannot)
			continue
		}
		fits = true
		if n.Free <= 0 {
			continue
		}
		if best < 0 || less(n, nodes[best]) {
			best = i
		}
	}
	switch {
	case best >= 0:
		return nodes[best].Name, nil
	case len(cannot) > 0:
		return "", fmt.Errorf("no fitting node can take the pod: %s", strings.Join(cannot, "; "))
	case fits:
		return "", fmt.Errorf("no fitting node has a free pod address; delete pods, or start the mesh with more --nodes")
	}
	return "", fmt.Errorf("no node has the labels %s that nodeSelector asks for; see `lateen get nodes -o yaml`", labels(selector))
}

func less(a, b Node) bool {
	if a.Same != b.Same {
		return a.Same < b.Same
	}
	return a.Pods < b.Pods
}

func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func names(nodes []Node) string {
	var s []string
	for _, n := range nodes {
		s = append(s, n.Name)
	}
	return strings.Join(s, ", ")
}

func labels(m map[string]string) string {
	var s []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		s = append(s, k+"="+m[k])
	}
	return strings.Join(s, ",")
}
