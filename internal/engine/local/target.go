package local

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"lateen.dev/lateen/internal/engine/api"
)

// steerTime bounds how long a request waits for the pods of what was applied; it takes milliseconds unless the engine is ending.
const steerTime = 10 * time.Second

// targetSteered finds the pod that a user means as target does, and where there is none, once more when what was applied until now has
// its pods: `apply` does not wait for them, and whoever asks for the pod in the next line is to find it. The state's lock must be
// held; it is given up meanwhile.
func (a *podAccess) targetSteered(ctx context.Context, namespace, target string) (*pod, *corev1.Service, error) {
	p, svc, err := a.target(namespace, target)
	if err == nil {
		return p, svc, nil
	}
	steered := a.state.steered
	a.state.mu.Unlock()
	a.state.kick()
	ctx, cancel := context.WithTimeout(ctx, steerTime)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-steered:
	}
	a.state.mu.Lock()
	return a.target(namespace, target)
}

// target finds the pod that a user means by "pod", "pod/name", "deploy/name" or "svc/name": of several, the first that is
// ready, else the first that runs. svc is the service if it is one. The state's lock must be held.
func (a *podAccess) target(namespace, target string) (p *pod, svc *corev1.Service, err error) {
	if namespace == "" {
		namespace = defaultNamespace
	}
	kindName, name, ok := strings.Cut(target, "/")
	if !ok {
		kindName, name = "pod", target
	}
	kind, known := api.LookupKind(kindName)
	if !known {
		return nil, nil, &api.Error{Code: http.StatusBadRequest, Message: fmt.Sprintf("%q is no kind that has pods", kindName), Fix: "use pod/NAME, deploy/NAME or svc/NAME"}
	}
	key := api.Key{Kind: kind.Name, Namespace: namespace, Name: name}
	var candidates []*pod
	switch kind.Name {
	case "Pod":
		for _, p := range a.state.pods {
			if p.id.namespace == namespace && p.id.name == name {
				return p, nil, nil
			}
		}
		if n := a.state.nodes.ofProxyPod(namespace, name); n != nil {
			return nil, nil, &api.Error{Code: http.StatusBadRequest, Message: name + " is the proxy of node " + n.name + " and has no pod of its own here",
				Fix: "its log is in " + a.dir.node(n.name)}
		}
		return nil, nil, notFound(key)
	case "Deployment", "Service":
		o := a.state.store.find(key)
		if o == nil {
			return nil, nil, notFound(key)
		}
		mine := func(p *pod) bool { return p.id.owner == o.Key }
		if v, ok := o.Value.(*corev1.Service); ok {
			svc = v
			if len(v.Spec.Selector) == 0 {
				return nil, nil, &api.Error{Code: http.StatusBadRequest, Message: key.String() + " has no selector and therefore no pods"}
			}
			selector := labels.SelectorFromSet(v.Spec.Selector)
			mine = func(p *pod) bool { return p.id.namespace == namespace && selector.Matches(labels.Set(p.labels)) }
		}
		for _, p := range a.state.pods {
			if mine(p) && !p.stopping {
				candidates = append(candidates, p)
			}
		}
	default:
		return nil, nil, &api.Error{Code: http.StatusBadRequest, Message: "a " + kind.Name + " has no pods", Fix: "use pod/NAME, deploy/NAME or svc/NAME"}
	}
	if len(candidates) == 0 {
		return nil, nil, &api.Error{Code: http.StatusConflict, Message: key.String() + " has no pods right now", Fix: "see `lateen get pods -n " + namespace + "`"}
	}
	rank := func(p *pod) int {
		switch {
		case p.ready():
			return 0
		case p.phase == corev1.PodRunning:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(candidates, func(a, b *pod) int { return rank(a) - rank(b) })
	return candidates[0], svc, nil
}

// containerOf finds a container of a pod by name; without a name, its first main one.
func (p *pod) containerOf(name string) (*container, error) {
	var names []string
	for _, c := range p.containers {
		if name == c.spec.Name || name == "" && !c.init {
			return c, nil
		}
		names = append(names, c.spec.Name)
	}
	return nil, &api.Error{Code: http.StatusNotFound, Message: fmt.Sprintf("pod %s has no container %q", p.id.name, name), Fix: "it has " + strings.Join(names, ", ")}
}
