// Package kube owns the Kubernetes source: it follows an API server's objects and hands them on as changes of the model, with what is wrong
// with them. It keeps no copy of an object that the model has, and does not know what objects mean to the mesh or where they go.
package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"lateen.dev/lateen/internal/kube/clients"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
)

// Observer hears how it goes, for metrics.
type Observer interface {
	// Event counts what the API server tells of a resource, whether it changes anything or not.
	Event(resource string)
	// Delivered is how long the oldest change of a batch took from the API server's event until it was applied.
	Delivered(time.Duration)
	// Following says whether a resource is followed at present, Left that it is none any more that is to be followed.
	Following(resource string, now bool)
	Left(resource string)
}

// Options are what a source needs.
type Options struct {
	Config   *rest.Config
	Logger   *slog.Logger
	Observer Observer // may be nil
	// RootNamespace is where the ConfigMap of the mesh's settings is; empty: none is followed.
	RootNamespace string
}

// Source follows a cluster.
type Source struct {
	logger   *slog.Logger
	observer Observer
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	host     string
	root     string
	kinds    []*kind // that are followed where the API server has them

	queue    *queue
	presence *presence

	mu sync.Mutex // guards all below
	// sinks are those of all kinds that are followed, or were.
	sinks  map[*kind]*sink
	reach  reach
	loaded bool
	// judge hears of objects whose present version is refused, or is not any more.
	judge func(model.Key)
}

// New sets up clients. It asks the API server nothing yet.
func New(opts Options) (*Source, error) {
	s := &Source{logger: opts.Logger, observer: opts.Observer, host: opts.Config.Host, root: opts.RootNamespace, queue: newQueue(), sinks: map[*kind]*sink{}}
	if s.observer == nil {
		s.observer = unobserved{}
	}
	var err [3]error
	s.client, err[0] = clients.Typed(opts.Config)
	s.dynamic, err[1] = clients.Dynamic(opts.Config)
	s.metadata, err[2] = clients.Metadata(opts.Config)
	if err := errors.Join(err[:]...); err != nil {
		return nil, err
	}
	s.presence = newPresence(s)
	for _, k := range kinds {
		if k.fields == "" || s.root != "" {
			s.kinds = append(s.kinds, k)
			s.sinks[k] = newSink(s, k)
		}
	}
	return s, nil
}

// Run hands the cluster's objects to apply, all at once at first and then every change as it comes, until ctx ends. While apply is busy
// changes gather, and go out as one batch after it. It calls apply from one goroutine.
//
// The first batch waits until every kind that the API server has was listed: half of the objects would be told to proxies as the
// absence of the other half, and policies that are not read yet as consent.
func (s *Source) Run(ctx context.Context, apply func([]model.Change)) error {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.logger.Info("kube: following the cluster", "apiServer", s.host)
	for _, k := range s.kinds {
		if !k.custom {
			group.Go(func() { s.follow(ctx, k, k.versions[0]) })
		}
	}
	group.Go(func() { s.presence.run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.queue.wake:
		}
		first := !s.isLoaded()
		if first && s.Ready() != nil {
			continue
		}
		changes, oldest := s.queue.take()
		if len(changes) == 0 && !first {
			continue
		}
		apply(changes)
		if first {
			s.mu.Lock()
			s.loaded = true
			s.mu.Unlock()
			continue
		}
		s.observer.Delivered(time.Since(oldest))
	}
}

func (s *Source) isLoaded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded
}

// Ready says why not everything has been read yet, and nil from then on.
func (s *Source) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded {
		return nil
	}
	var waiting []string
	if !s.presence.known {
		waiting = append(waiting, crds.fullName()+s.presence.troubles.because())
	}
	for _, k := range s.kinds {
		sink := s.sinks[k]
		switch {
		case sink.listed, k.custom && s.presence.known && !s.presence.has(k):
		case k.custom && !s.presence.known:
		default:
			waiting = append(waiting, k.fullName()+sink.troubles.because())
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	if s.reach.away {
		return fmt.Errorf("the API server %s cannot be reached: %s", s.host, s.reach.cause)
	}
	return fmt.Errorf("not read yet: %s", strings.Join(waiting, "; "))
}

// Note is what people who look at a control plane that is ready should know all the same; empty if there is nothing.
func (s *Source) Note() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reach.note(s.host)
}

// Problems lists what is wrong now: with objects, and with what is to be read.
func (s *Source) Problems() []files.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []files.Problem
	if note := s.reach.note(s.host); note != "" {
		out = append(out, files.Problem{Severity: files.Warning, Message: note, Fix: "see whether it runs and can be reached from here; nothing has to be restarted then"})
	}
	out = append(out, s.presence.troubles.problems(crds)...)
	for _, k := range s.kinds {
		out = append(out, s.sinks[k].troubles.problems(k)...)
		var own []files.Problem
		for _, e := range s.sinks[k].objects {
			own = append(own, e.problems...)
		}
		slices.SortFunc(own, func(a, b files.Problem) int {
			return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Field, b.Field), strings.Compare(a.Message, b.Message))
		})
		out = append(out, own...)
	}
	return out
}

// Refused is an object of which the present version is not taken. An earlier one may be live.
type Refused struct {
	Key model.Key
	// UID is that of the object, and Generation the metadata.generation of the version that is refused.
	UID        types.UID
	Generation int64
	// Condition says what is wrong with which field, and the fix. Its own Generation is not set.
	Condition model.Condition
	// Strictest says how this version counts where no earlier one is known; empty if it does not.
	Strictest string
}

// Refused lists the objects whose present version is not taken, in key order.
func (s *Source) Refused() []Refused {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Refused
	for _, sink := range s.sinks {
		for key, e := range sink.objects {
			if e.refused {
				out = append(out, Refused{Key: key, UID: e.uid, Generation: e.generation, Condition: condition(&e), Strictest: e.strictest})
			}
		}
	}
	slices.SortFunc(out, func(a, b Refused) int { return a.Key.Compare(b.Key) })
	return out
}

// Refusal is what Refused lists of one object.
func (s *Source) Refusal(key model.Key) (Refused, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, sink := range s.sinks {
		if k.group != key.Group || k.name != key.Kind {
			continue
		}
		e, ok := sink.objects[key]
		if !ok || !e.refused {
			return Refused{}, false
		}
		return Refused{Key: key, UID: e.uid, Generation: e.generation, Condition: condition(&e), Strictest: e.strictest}, true
	}
	return Refused{}, false
}

// Hear calls f when an object's present version comes to be refused, or is not any more. Call it before Run; f must not block, nor ask the
// source anything.
func (s *Source) Hear(f func(model.Key)) { s.judge = f }

func (s *Source) judged(key model.Key) {
	if s.judge != nil {
		s.judge(key)
	}
}

// Resource is as what a kind is followed at present; false if it is not.
func (s *Source) Resource(group, name string) (schema.GroupVersionResource, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, sink := range s.sinks {
		if k.group == group && k.name == name {
			return k.gvr(sink.version), sink.listed
		}
	}
	return schema.GroupVersionResource{}, false
}

// condition tells an object's author what is wrong with it.
func condition(e *entry) model.Condition {
	var parts []string
	for _, p := range e.problems {
		if p.Severity != files.Refused {
			continue
		}
		p.File, p.Object = "", ""
		parts = append(parts, p.Error())
	}
	fate := "the object has no effect"
	switch {
	case e.effect != "":
		fate = "the policy is in force in its strictest reading, since no earlier version of it is known here: " + e.effect
	case e.live != nil:
		fate = "the version before it stays in force"
	}
	return model.Condition{Type: "Accepted", Status: model.False, Reason: "Invalid", Message: strings.Join(parts, "; ") + ". Until then " + fate}
}

type unobserved struct{}

func (unobserved) Event(string)            {}
func (unobserved) Delivered(time.Duration) {}
func (unobserved) Following(string, bool)  {}
func (unobserved) Left(string)             {}
