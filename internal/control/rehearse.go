package control

import (
	"log/slog"
	"sync"
	"time"

	"lateen.dev/lateen/internal/analyse"
	"lateen.dev/lateen/internal/compile"
	"lateen.dev/lateen/internal/log"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// analyser finds what is valid and does not do what its author meant.
func analyser(opts Options) func([]model.Entry) []analyse.Finding {
	return func(entries []model.Entry) []analyse.Finding {
		in := analyse.Read(opts.Mesh, entries)
		in.OwnIdentityAccounts = opts.OwnIdentityAccounts
		return analyse.Analyse(in)
	}
}

// rehearsal returns a function that applies changes to a copy of the store and returns the objects of that copy, with their conditions. The
// compiler that judges them is the one that serves proxies, so that it says what it would say; its output is dropped. A rehearsal takes
// as long, and as much memory for that time, as compiling the whole mesh does at a start; so there is one at a time.
func rehearsal(mesh translate.Mesh, store *model.Store) func([]model.Change) []model.Entry {
	var one sync.Mutex
	return func(changes []model.Change) []model.Entry {
		one.Lock()
		defer one.Unlock()
		copied := model.NewStore()
		discard := compile.New(mesh, copied, log.New(time.Now, log.AddressType, log.AuthorizationType), compile.NewAssignments(), slog.New(slog.DiscardHandler), nil)
		var all []model.Change
		for _, e := range store.Entries() {
			all = append(all, model.Change{Key: e.Object.Key, Object: e.Object})
		}
		discard.Apply(append(all, changes...))
		return copied.Entries()
	}
}
