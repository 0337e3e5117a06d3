// Package kubetest has what tests need around client-go's API servers in memory.
package kubetest

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
	kubetesting "k8s.io/client-go/testing"
)

// Watches counts the watches of each resource at an API server in memory. That server never tells of an object that is deleted after an informer has
// listed it and before it watches; a real one does. A test that deletes waits for the watch first.
type Watches struct {
	mu    sync.Mutex
	began map[string]int
}

// Count counts the watches that begin at server from now on.
func Count(server *kubetesting.Fake) *Watches {
	w := &Watches{began: map[string]int{}}
	next := server.WatchReactionChain
	server.PrependWatchReactor("*", func(action kubetesting.Action) (bool, watch.Interface, error) {
		for _, reactor := range next {
			if !reactor.Handles(action) {
				continue
			}
			if handled, stream, err := reactor.React(action); handled || err != nil {
				if err == nil {
					w.count(action.GetResource().Resource)
				}
				return handled, stream, err
			}
		}
		return false, nil, nil
	})
	return w
}

func (w *Watches) count(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began[resource]++
}

// Began says whether a watch of a resource has begun, like "configmaps". It may be called from any goroutine.
func (w *Watches) Began(resource string) func() bool {
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.began[resource] > 0
	}
}
