package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"lateen.dev/lateen/internal/kube"
)

// presence follows which of the kinds that definitions bring there are, and has those followed, in the best version that is served.
//
// That a kind is gone is concluded from its definition alone: what discovery says, or an answer of "not found", may be the haste of an API
// server that starts, and to take policies for deleted then would open the mesh.
type presence struct {
	source *Source
	wake   chan struct{}

	// The source's lock guards all below.
	known    bool            // all definitions were listed
	names    map[string]bool // of definitions that matter here
	troubles troubles
}

func newPresence(s *Source) *presence {
	return &presence{source: s, wake: make(chan struct{}, 1), names: map[string]bool{}}
}

// findTime bounds how long it may take to hear which kinds of a group are served.
const findTime = 10 * time.Second

// looksAfter is how often it is asked which versions are served after a definition changed, with growing pauses, over twenty seconds or more: a
// definition is there before the API server serves what it says.
const looksAfter = 8

// has says whether a kind's definition is there. The source's lock is held.
func (p *presence) has(k *kind) bool { return p.names[k.fullName()] }

func (p *presence) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// followed is a kind that is followed in one version.
type followed struct {
	version string
	stop    context.CancelFunc
	done    chan struct{}
}

func (f *followed) end() {
	f.stop()
	<-f.done
}

// run starts and ends the following of kinds until ctx ends.
func (p *presence) run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { p.watch(ctx) })
	now := map[*kind]*followed{}
	backoff, looks := kube.Backoff(), 0
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			for _, f := range now {
				f.end()
			}
			return
		case <-p.wake:
			backoff, looks, retry = kube.Backoff(), 0, nil
		case <-retry:
			retry = nil
		}
		looks++
		if settled := p.settle(ctx, now); !settled || looks < looksAfter {
			retry = time.After(backoff.Step())
		}
	}
}

// settle brings what is followed in line with what is there; false if that is not known for all of it yet.
func (p *presence) settle(ctx context.Context, now map[*kind]*followed) (settled bool) {
	s := p.source
	settled = true
	served := map[string]*metav1.APIResourceList{}
	for _, k := range kinds {
		if !k.custom {
			continue
		}
		s.mu.Lock()
		has := p.known && p.has(k)
		gone := p.known && !has
		s.mu.Unlock()
		f := now[k]
		if gone && f != nil {
			f.end()
			delete(now, k)
			s.sinks[k].clear()
			s.logger.Info("kube: "+k.fullName()+" are no more: their definition is gone", "resource", k.fullName())
		}
		if !has {
			continue
		}
		version, err := p.version(ctx, k, served)
		s.mu.Lock()
		s.heard(k, &s.sinks[k].troubles, "find", err)
		s.mu.Unlock()
		switch {
		case err != nil:
			settled = false // what is followed goes on
			continue
		case f != nil && f.version == version:
			continue
		case f != nil:
			f.end()
		}
		inner, stop := context.WithCancel(ctx)
		next := &followed{version: version, stop: stop, done: make(chan struct{})}
		now[k] = next
		s.logger.Info("kube: following "+k.fullName(), "resource", k.fullName(), "version", version)
		go func() {
			defer close(next.done)
			s.follow(inner, k, version)
		}()
	}
	s.queue.nudge()
	return settled
}

// version is the best version of a kind that is served and understood. A definition is there before it is served.
func (p *presence) version(ctx context.Context, k *kind, served map[string]*metav1.APIResourceList) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	for _, version := range k.versions {
		gv := k.apiVersion(version)
		list, asked := served[gv]
		if !asked {
			list = &metav1.APIResourceList{}
			err := p.source.client.Discovery().RESTClient().Get().AbsPath("/apis", gv).Do(ctx).Into(list)
			if err != nil && !apierrors.IsNotFound(err) {
				return "", err
			}
			served[gv] = list
		}
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == k.resource }) {
			return version, nil
		}
	}
	return "", &unserved{k}
}

// unserved is a definition of which no version is served that is understood here.
type unserved struct{ kind *kind }

func (u *unserved) Error() string {
	return fmt.Sprintf("its definition is there, and none of the versions %s is served; install the definitions of this version of the mesh", strings.Join(u.kind.versions, ", "))
}

// Status makes it an answer of the API server, which it is.
func (u *unserved) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Message: u.Error()}
}

// watch follows the names of definitions.
func (p *presence) watch(ctx context.Context) {
	s := p.source
	definitions := s.metadata.Resource(crds.gvr(crds.versions[0]))
	from := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return definitions.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return definitions.Watch(ctx, o)
		},
	}
	s.reflect(ctx, crds, from, &metav1.PartialObjectMetadata{}, p, func(err error, verb string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.heard(crds, &p.troubles, verb, err)
	})
}

var _ cache.TransformingStore = (*presence)(nil)

// Transformer keeps nothing but the name of a definition.
func (p *presence) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		m, ok := o.(*metav1.PartialObjectMetadata)
		if !ok {
			return nil, &unexpected{o}
		}
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: m.Name, ResourceVersion: m.ResourceVersion}}, nil
	}
}

// Add implements cache.ReflectorStore.
func (p *presence) Add(o any) error { return p.Update(o) }

// Update implements cache.ReflectorStore.
func (p *presence) Update(o any) error { return p.set(o, true) }

// Delete implements cache.ReflectorStore.
func (p *presence) Delete(o any) error { return p.set(o, false) }

func (p *presence) set(o any, there bool) error {
	m, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return &unexpected{o}
	}
	if !matters(m.Name) {
		return nil
	}
	p.source.mu.Lock()
	if delete(p.names, m.Name); there {
		p.names[m.Name] = true
	}
	p.source.mu.Unlock()
	p.nudge()
	return nil
}

// Replace implements cache.ReflectorStore.
func (p *presence) Replace(list []any, _ string) error {
	names := map[string]bool{}
	for _, o := range list {
		m, ok := o.(*metav1.PartialObjectMetadata)
		if !ok {
			return &unexpected{o}
		}
		if matters(m.Name) {
			names[m.Name] = true
		}
	}
	p.source.mu.Lock()
	p.known, p.names = true, names
	p.source.mu.Unlock()
	p.nudge()
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to repeat.
func (p *presence) Resync() error { return nil }

func matters(name string) bool {
	return slices.ContainsFunc(kinds, func(k *kind) bool { return k.custom && k.fullName() == name })
}
