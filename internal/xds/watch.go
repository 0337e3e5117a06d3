package xds

import (
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"lateen.dev/lateen/internal/resourcelog"
)

// everything is the name that subscribes to all resources of a type.
const everything = "*"

// watch is what a client follows of one type.
type watch struct {
	log    *resourcelog.Log
	kind   *resourcelog.Kind
	caller resourcelog.Caller
	since  time.Time
	node   string // whose resources a client without wildcard needs unasked; empty: none's

	// cursor has passed what the client was sent. Where removals wait for something that resources do not wait for,
	// they have a cursor of their own; else it is nil.
	cursor, removals *resourcelog.Cursor

	wildcard bool
	names    map[string]struct{} // what a client without wildcard asked for, as it wrote it
	held     map[string]string   // name → version of what such a client has
	bytes    int                 // of the names that it asked for, and of what it said to have at the start
	lookups  queue               // names that were just subscribed

	resumed resumption

	// given are the names that the client has, or may have, of a kind with an audience; nil for other kinds. A removal of any other name
	// would tell the client of a resource that it may not have.
	given map[string]struct{}

	// broad are the names of which the client has, or may have kept, a version that holds for others than those that name it.
	// late are those whose present version must be named to hold; it waits for what removals wait for.
	broad, late map[string]struct{}

	answered    bool // the client was sent a response of this type
	more        bool // and the last one did not bring it all resources
	outstanding *outstanding

	// settled is the generation through which the client has answered for all resources; current is the same for removals, too.
	settled, current gate

	sent       uint64
	lastNonce  string
	complaints complaints
}

// resumption is what a client kept from an earlier stream.
type resumption struct {
	// retained is what a reconnecting client said it has; it is needed until its first reading is complete.
	retained map[string]string
	// Removals up to position catchUp are told by departed, not by the log.
	catchUp            uint64
	departed           map[string]struct{}
	departedGeneration uint64
}

// outstanding is a response that the client has not answered yet.
type outstanding struct {
	nonce            string
	at               time.Time
	resources        []*resourcelog.Resource
	settled, current gate // what the watch's become once it is answered
}

func newWatch(l *resourcelog.Log, kind *resourcelog.Kind, caller resourcelog.Caller, node string, now time.Time) *watch {
	w := &watch{log: l, kind: kind, caller: caller, node: node, since: now, cursor: l.Open(kind.TypeURL),
		broad: map[string]struct{}{}, late: map[string]struct{}{}, complaints: complaints{refused: map[string]refusal{}}}
	if len(kind.RemovedAfter) > 0 {
		w.removals = l.Open(kind.TypeURL)
	}
	if kind.Audience != nil {
		w.given = map[string]struct{}{}
	}
	return w
}

func (w *watch) close() {
	w.cursor.Close()
	if w.removals != nil {
		w.removals.Close()
	}
}

// begin reads the first request of a type: what is wanted, and what the client kept from an earlier stream.
func (w *watch) begin(req *discovery.DeltaDiscoveryRequest) {
	subscribe, unsubscribe := req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe()
	retained := req.GetInitialResourceVersions()
	for name, version := range retained {
		w.bytes += len(name) + len(version)
	}
	// A first request without names is the old way to ask for everything.
	wildcard := len(subscribe) == 0 || slices.Contains(subscribe, everything)
	if wildcard && !slices.Contains(unsubscribe, everything) {
		w.startWildcard(retained)
		return
	}
	w.startNamed(retained)
	w.change(subscribe, unsubscribe, false)
}

// startWildcard begins a reading of everything; what the client has in the same version need not be sent again.
func (w *watch) startWildcard(retained map[string]string) {
	w.wildcard = true
	w.names, w.held, w.lookups = nil, nil, queue{}
	w.resumed.retained = maps.Clone(retained)
	w.cursor.Rewind()
	w.resumed.catchUp, _ = w.log.Head(w.kind.TypeURL)
	if w.removals != nil {
		w.removals.Seek(w.resumed.catchUp)
	}
	w.depart(retained)
}

// startNamed begins at the head: what is asked for by name is looked up, not read.
func (w *watch) startNamed(retained map[string]string) {
	w.wildcard = false
	w.names, w.held = map[string]struct{}{}, map[string]string{}
	w.resumed.retained, w.lookups = nil, queue{}
	head, _ := w.log.Head(w.kind.TypeURL)
	w.cursor.Seek(head)
	if w.removals != nil {
		w.removals.Seek(head)
	}
	for _, name := range slices.Sorted(maps.Keys(retained)) {
		w.held[name] = retained[name]
		if r := w.get(name); r != nil && r.Version != retained[name] {
			w.lookups.push(name) // it changed while the client was away
		}
	}
	// Pods wait for their workload before they are served, and a proxy has no name to ask for it by.
	for _, name := range w.onNode() {
		w.lookups.push(name)
	}
	w.depart(retained)
}

// depart lists what the client has and the mesh no longer does, and what may hold for others than those that name it: a version that
// is not the present one tells nothing of itself.
func (w *watch) depart(retained map[string]string) {
	w.resumed.departed = map[string]struct{}{}
	w.broad, w.late = map[string]struct{}{}, map[string]struct{}{}
	_, w.resumed.departedGeneration = w.log.Head(w.kind.TypeURL)
	for name, version := range retained {
		if w.given != nil {
			w.given[name] = struct{}{}
		}
		r := w.get(name)
		if r == nil {
			w.resumed.departed[name] = struct{}{}
		}
		if w.removals != nil && (r == nil || r.Broad || r.Version != version) {
			w.broad[name] = struct{}{}
		}
	}
}

// size is how many names the watch keeps because of what its client sent or asked for.
func (w *watch) size() int {
	return len(w.names) + len(w.held) + len(w.resumed.retained) + w.lookups.len()
}

// change adds and removes names; subscriptions of a request come before its cancellations.
func (w *watch) change(subscribe, unsubscribe []string, again bool) {
	if slices.Contains(unsubscribe, everything) {
		if w.wildcard {
			w.startNamed(nil)
		}
	} else if slices.Contains(subscribe, everything) && !w.wildcard {
		w.startWildcard(w.held)
	}
	if w.wildcard {
		return // single names add nothing to everything
	}
	for _, n := range subscribe {
		if n == everything {
			continue
		}
		if _, known := w.names[n]; !known {
			w.names[n] = struct{}{}
			w.bytes += len(n)
		}
		w.lookups.push(n)
		if again {
			// The client would not ask for what it has: forget which version that was, so that it is sent again.
			for _, r := range w.lookup(n) {
				if _, has := w.held[r.Name]; has {
					w.held[r.Name] = ""
				}
			}
		}
	}
	dropped := false
	for _, n := range unsubscribe {
		if _, ok := w.names[n]; ok {
			delete(w.names, n)
			w.bytes -= len(n)
			dropped = true
		}
	}
	if dropped {
		w.forgetUncovered()
		w.lookups.keep(w.follows)
	}
}

// forgetUncovered stops following what no remaining subscription asks for. The client drops these by itself.
func (w *watch) forgetUncovered() {
	covered := map[string]struct{}{}
	for n := range w.names {
		for _, r := range w.lookup(n) {
			covered[r.Name] = struct{}{}
		}
	}
	for _, n := range w.onNode() {
		covered[n] = struct{}{}
	}
	for n := range w.held {
		if _, ok := covered[n]; !ok {
			delete(w.held, n)
			delete(w.broad, n)
			delete(w.late, n)
			delete(w.complaints.refused, n)
		}
	}
}

// follows says whether a client without wildcard needs what bears a name.
func (w *watch) follows(name string) bool {
	return w.knows(name) || w.serves(w.get(name))
}

// knows says whether a client without wildcard asked for a name or holds what bears it.
func (w *watch) knows(name string) bool {
	_, asked := w.names[name]
	_, holds := w.held[name]
	return asked || holds
}

// serves says whether a resource is one that the client needs to serve its node's pods.
func (w *watch) serves(r *resourcelog.Resource) bool {
	return r != nil && r.Node != "" && r.Node == w.node
}

// wants says whether a client without wildcard follows a resource. It is called while the log is read, so it must not call the log: a
// reader that locks the log a second time waits for a writer, which waits for the first lock.
func (w *watch) wants(r *resourcelog.Resource) bool {
	if w.knows(r.Name) || w.serves(r) {
		return true
	}
	for _, a := range r.Aliases {
		if _, ok := w.names[a]; ok {
			return true
		}
	}
	for _, p := range r.Parents {
		if _, ok := w.held[p]; ok {
			return true
		}
	}
	return false
}

// settle takes the client's answer to a response. An answer to any other than the outstanding one is stale and says nothing.
func (w *watch) settle(req *discovery.DeltaDiscoveryRequest, now time.Time) (nack *Nack, settled bool) {
	o := w.outstanding
	if o == nil || o.nonce != req.GetResponseNonce() {
		return nil, false
	}
	names := make([]string, 0, len(o.resources))
	versions := make(map[string]string, len(o.resources))
	for _, r := range o.resources {
		delete(w.complaints.refused, r.Name) // what was said of an earlier version is over
		names = append(names, r.Name)
		versions[r.Name] = r.Version
	}
	if e := req.GetErrorDetail(); e != nil {
		nack = complaint(e, names)
		nack.At, nack.Nonce = now, o.nonce
		w.complaints.take(nack, versions)
	}
	// A client applies what is good of a response it refuses; to send it again would change nothing.
	w.settled, w.current = o.settled, o.current
	w.outstanding = nil
	return nack, true
}

func (w *watch) state() State {
	// A generation that changed nothing of this type wakes nobody: a client that had everything before it has it, too.
	if w.outstanding == nil && w.current.open && w.lookups.len()+len(w.late) == 0 {
		if generation, ok := w.upToDate(); ok {
			w.current = gate{open: true, through: generation}
			w.settled = w.current
		}
	}
	only := ""
	if w.kind.Audience != nil && len(w.names) == 1 {
		for only = range w.names { //nolint:revive // the one there is
		}
	}
	return State{
		Type: w.kind.TypeURL, Wildcard: w.wildcard, Names: len(w.names), Only: only,
		SentGeneration: max(w.sent, w.current.through), AckedGeneration: w.current.through,
		Nonce: w.lastNonce, Outstanding: w.outstanding != nil, SentAt: w.sentAt(), LastNack: w.complaints.last, Refused: w.complaints.open(w.get),
	}
}

// upToDate says whether the log has nothing that this watch has not passed, and through which generation.
func (w *watch) upToDate() (generation uint64, ok bool) {
	none := func(resourcelog.Event) bool { return false }
	generation, ok = w.cursor.Read(resourcelog.Forever, none)
	if ok && w.removals != nil {
		_, ok = w.removals.Read(resourcelog.Forever, func(e resourcelog.Event) bool { return w.see(e).Resource != nil })
	}
	return generation, ok
}

func (w *watch) sentAt() time.Time {
	if w.outstanding == nil {
		return time.Time{}
	}
	return w.outstanding.at
}
