// Package rollout decides which pods of a Deployment to make and which to end so that it becomes what its spec says.
// It is a function from what is there to what to do next; it is called again whenever a pod changes.
package rollout

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Pod is a pod of the Deployment.
type Pod struct {
	Name        string
	Hash        string // of the template it was made from
	Ready       bool
	Terminating bool
	Created     time.Time
}

// Wish is what the Deployment asks for.
type Wish struct {
	Replicas       int
	Hash           string // of the present template
	Recreate       bool   // all old pods end before the first new one starts
	MaxSurge       int    // how many pods more than Replicas there may be for a while
	MaxUnavailable int    // how many ready pods fewer than Replicas there may be for a while
}

// Steps are what to do now.
type Steps struct {
	Create int // pods of the present template
	Delete []string
}

// WishOf reads a Deployment. Percentages and defaults are Kubernetes' (25 %, surge rounded up, unavailable down, not both 0).
func WishOf(d *appsv1.Deployment, hash string) Wish {
	w := Wish{Replicas: 1, Hash: hash}
	if d.Spec.Replicas != nil {
		w.Replicas = max(int(*d.Spec.Replicas), 0)
	}
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		w.Recreate = true
		return w
	}
	surge, unavailable := intstr.FromString("25%"), intstr.FromString("25%")
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		if r.MaxSurge != nil {
			surge = *r.MaxSurge
		}
		if r.MaxUnavailable != nil {
			unavailable = *r.MaxUnavailable
		}
	}
	w.MaxSurge = scaled(surge, w.Replicas, true)
	w.MaxUnavailable = scaled(unavailable, w.Replicas, false)
	if w.MaxSurge == 0 && w.MaxUnavailable == 0 {
		w.MaxSurge = 1
	}
	return w
}

func scaled(v intstr.IntOrString, of int, roundUp bool) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&v, of, roundUp)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// Next says what to do now. What it says is safe to do at once and together: it never asks for more pods than Replicas+MaxSurge
// nor ends a ready pod that Replicas-MaxUnavailable needs, except when there are more than Replicas wants.
func Next(w Wish, pods []Pod) Steps {
	var fresh, old []Pod
	ready, terminatingOld := 0, false
	for _, p := range pods {
		switch {
		case p.Terminating:
			terminatingOld = terminatingOld || p.Hash != w.Hash
			continue
		case p.Hash == w.Hash:
			fresh = append(fresh, p)
		default:
			old = append(old, p)
		}
		if p.Ready {
			ready++
		}
	}
	var s Steps
	if surplus := len(fresh) - w.Replicas; surplus > 0 {
		slices.SortFunc(fresh, leastUseful)
		for _, p := range fresh[:surplus] {
			s.Delete = append(s.Delete, p.Name)
			if p.Ready {
				ready--
			}
		}
	}
	if w.Recreate {
		if len(old) > 0 || terminatingOld {
			for _, p := range old {
				s.Delete = append(s.Delete, p.Name)
			}
			return s
		}
		s.Create = max(w.Replicas-len(fresh), 0)
		return s
	}
	slices.SortFunc(old, leastUseful)
	spare := ready - (w.Replicas - w.MaxUnavailable)
	for _, p := range old {
		switch {
		case !p.Ready:
			s.Delete = append(s.Delete, p.Name)
		case spare > 0:
			s.Delete = append(s.Delete, p.Name)
			spare--
		}
	}
	room := w.Replicas + w.MaxSurge - len(fresh) - len(old)
	s.Create = max(min(w.Replicas-len(fresh), room), 0)
	return s
}

// leastUseful orders pods so that those to give up come first: not ready before ready, then the youngest.
func leastUseful(a, b Pod) int {
	if a.Ready != b.Ready {
		if b.Ready {
			return -1
		}
		return 1
	}
	if c := b.Created.Compare(a.Created); c != 0 {
		return c
	}
	return cmp.Compare(a.Name, b.Name)
}
