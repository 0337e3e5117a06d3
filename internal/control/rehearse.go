package control

import (
	"log/slog"
	"sync"
	"time"

	"lateen.dev/lateen/internal/analyse"
	"lateen.dev/lateen/internal/compile"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/translate"
)

// analyser returns a function that analyses objects with the options of this control plane.
func analyser(opts Options) func([]model.Entry) []analyse.Finding {
	return func(entries []model.Entry) []analyse.Finding {
		in := analyse.Read(opts.Mesh, entries)
		in.OwnIdentityAccounts = opts.OwnIdentityAccounts
		return analyse.Analyse(in)
	}
}

// rehearsal returns a function that applies changes to a copy of the store and returns the objects of that copy, with their conditions. The
// conditions come from the compiler that serves proxies, so they are the ones that applying gives. The compiled resources are dropped. A rehearsal
// takes the time and the memory of a start, which compiles the whole mesh; so only one runs at a time.
func rehearsal(mesh translate.Mesh, store *model.Store) func([]model.Change) []model.Entry {
	var one sync.Mutex
	return func(changes []model.Change) []model.Entry {
		one.Lock()
		defer one.Unlock()
		copied := model.NewStore()
		discard := compile.New(mesh, copied, resourcelog.New(time.Now, resourcekind.Mesh), compile.NewAssignments(), slog.New(slog.DiscardHandler), nil)
		var all []model.Change
		for _, e := range store.Entries() {
			all = append(all, model.Change{Key: e.Object.Key, Object: e.Object})
		}
		discard.Apply(append(all, changes...))
		return copied.Entries()
	}
}
