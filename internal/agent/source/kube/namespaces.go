package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lateen.dev/lateen/internal/agent/source"
)

// The watches of pods and of namespaces are independent of each other. So a pod can be known before its namespace. The API server is then
// asked for the namespace: a pod of the mesh that was taken for one outside would run in plain text.

// namespace answers what the watch has told of a namespace, or else what the API server says of it.
func (s *Source) namespace(ctx context.Context, name string) (source.Namespace, error) {
	if o, there, err := s.namespaces.GetStore().GetByKey(name); err == nil && there {
		return source.Namespace{Labels: o.(*corev1.Namespace).Labels}, nil
	}
	n, err := s.births.Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return source.Namespace{}, fmt.Errorf("ask for namespace %s: %w", name, err)
	}
	trimmed, err := trimNamespace(n)
	if err != nil {
		return source.Namespace{}, err
	}
	read := source.Namespace{Labels: trimmed.(*corev1.Namespace).Labels}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read[name] = read
	return read, nil
}

// namespacesLocked are the namespaces that are known. It has those asked for that are not and that have pods.
func (s *Source) namespacesLocked(pods map[types.UID]*corev1.Pod) map[string]source.Namespace {
	all := map[string]source.Namespace{}
	for _, o := range s.namespaces.GetStore().List() {
		n := o.(*corev1.Namespace)
		all[n.Name] = source.Namespace{Labels: n.Labels}
		delete(s.read, n.Name) // from now on the watch tells of its changes
	}
	var unknown []string
	seen := map[string]bool{}
	for _, p := range pods {
		name := p.Namespace
		if _, there := all[name]; there || seen[name] {
			continue
		}
		seen[name] = true
		if read, there := s.read[name]; there {
			all[name] = read
		} else {
			unknown = append(unknown, name)
		}
	}
	for name := range s.read {
		if !seen[name] {
			delete(s.read, name)
		}
	}
	select {
	case <-s.unknown:
	default:
	}
	if len(unknown) > 0 {
		s.unknown <- unknown
	}
	return all
}

// readNamespaces asks for the namespaces that the watch has not told of until ctx ends. A question that failed is repeated.
func (s *Source) readNamespaces(ctx context.Context) {
	pace := searcher{}
	for {
		var names []string
		select {
		case names = <-s.unknown:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(pace.due(time.Now())):
		case <-ctx.Done():
			return
		}
		if err := s.readAll(ctx, names); err == nil {
			pace = searcher{}
		} else {
			pace.done(time.Now())
			s.log.Debug("whether pods are enrolled is not known before their namespace is", "err", err)
		}
		s.change()
	}
}

// readAll asks for namespaces. An API server that does not answer is not asked for the next one.
func (s *Source) readAll(ctx context.Context, names []string) error {
	var missing error
	for _, name := range names {
		asked, cancel := context.WithTimeout(ctx, askTime)
		_, err := s.namespace(asked, name)
		cancel()
		switch {
		case apierrors.IsNotFound(err):
			missing = err // its pods are about to go
		case err != nil:
			return err
		}
	}
	return missing
}
