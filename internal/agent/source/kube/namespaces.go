package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"lateen.dev/lateen/internal/agent/source"
)

// The watches of pods and of namespaces are independent of each other. So a pod can be known before its namespace. The API server is then
// asked for the namespace: a pod of the mesh that was taken for one outside would run in plain text.

// namespace answers what the watch has told of a namespace, or else what the API server says of it.
func (s *Source) namespace(ctx context.Context, name string) (source.Namespace, error) {
	if o, there, err := s.namespaces.GetStore().GetByKey(name); err == nil && there {
		s.mu.Lock()
		defer s.mu.Unlock()
		return source.Namespace{Labels: newer(o.(*corev1.Namespace), s.read[name]).Labels}, nil
	}
	n, err := s.births.Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return source.Namespace{}, fmt.Errorf("ask for namespace %s: %w", name, err)
	}
	trimmed, err := trimNamespace(n)
	if err != nil {
		return source.Namespace{}, err
	}
	read := trimmed.(*corev1.Namespace)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read[name] = read
	return source.Namespace{Labels: read.Labels}, nil
}

// newer is what the watch told of a namespace, or what was read of it if that is newer: the watch may tell of older versions first. read may be
// nil. Versions that cannot be compared count as equal.
func newer(watched, read *corev1.Namespace) *corev1.Namespace {
	if read == nil {
		return watched
	}
	if order, err := resourceversion.CompareResourceVersion(watched.ResourceVersion, read.ResourceVersion); err == nil && order < 0 {
		return read
	}
	return watched
}

// namespacesLocked are the namespaces that are known. It has those asked for that are not and that have pods.
func (s *Source) namespacesLocked(pods map[types.UID]*corev1.Pod) map[string]source.Namespace {
	all := map[string]source.Namespace{}
	for _, o := range s.namespaces.GetStore().List() {
		n := o.(*corev1.Namespace)
		known := newer(n, s.read[n.Name])
		all[n.Name] = source.Namespace{Labels: known.Labels}
		if known == n {
			delete(s.read, n.Name) // from now on the watch tells of its changes
		}
	}
	var unknown []string
	seen := map[string]bool{}
	for _, p := range pods {
		name := p.Namespace
		if seen[name] {
			continue
		}
		seen[name] = true
		if _, there := all[name]; there {
			continue
		}
		if read, there := s.read[name]; there {
			all[name] = source.Namespace{Labels: read.Labels}
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
