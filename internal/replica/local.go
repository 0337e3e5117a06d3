package replica

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/xds"
)

const (
	// lookEvery is the least time between two looks at all clients: an object is programmed at most so much later than it could be said.
	lookEvery = 150 * time.Millisecond
	// lookAgain is when it is looked again without a cause while something is waited for: nothing tells that the log has caught up with
	// a batch that changed no resource.
	lookAgain = time.Second
)

// Kinds says whether objects of a key's kind are followed: those whose authors are told what the proxies have of them.
func Kinds(key model.Key) bool {
	switch key.Group + "/" + key.Kind {
	case "/Service", model.SecurityGroup + "/AuthorizationPolicy", model.SecurityGroup + "/PeerAuthentication",
		model.SecurityGroup + "/RequestAuthentication",
		model.NetworkGroup + "/ServiceEntry", model.NetworkGroup + "/WorkloadEntry", model.GatewayGroup + "/Gateway":
		return true
	}
	return false
}

// Sources are where this replica's own knowledge comes from.
type Sources struct {
	Store   *model.Store
	Log     *resourcelog.Log
	Clients func() []xds.ClientState
	// Refusals are the conditions of objects that proxies refuse, or may.
	Refusals func([]xds.ClientState) map[model.Key]model.Condition
}

// Local is what this replica knows of its own clients. While everything is acknowledged it costs nothing: clients are looked at when an
// object has changed, when a client has come, and when answers may end what is waited for.
type Local struct {
	from Sources
	feed *model.Feed
	wake chan struct{}
	// interest says that answers matter, stirred that clients must be looked at in any case.
	interest, stirred atomic.Bool

	mu       sync.Mutex
	known    known
	pending  map[model.Key]uint64  // objects that are not acknowledged, and the model's generation of each
	refused  map[model.Key]bool    // objects of which a refusal is told
	said     map[model.Key]string  // what authors of ServiceEntries are told, which names the virtual addresses
	joined   map[string]attendance // by workload
	follower map[*Subscription]struct{}
}

// attendance is a client's stream.
type attendance struct {
	since    time.Time
	at       uint64 // the log's generation when it was first seen
	caughtUp bool
}

// NewLocal returns what knows nothing yet; see Run.
func NewLocal(from Sources) *Local {
	return &Local{from: from, feed: from.Store.Follow(Kinds), wake: make(chan struct{}, 1), known: newKnown(),
		pending: map[model.Key]uint64{}, refused: map[model.Key]bool{}, said: map[model.Key]string{}, joined: map[string]attendance{}, follower: map[*Subscription]struct{}{}}
}

// Answered tells that a client has answered a response. It costs nothing while no answer matters.
func (l *Local) Answered(refused bool) {
	if refused {
		l.stirred.Store(true)
	} else if !l.interest.Load() {
		return
	}
	nudge(l.wake)
}

// Connected tells that a client has come or gone.
func (l *Local) Connected() {
	l.stirred.Store(true)
	nudge(l.wake)
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run looks until ctx ends.
func (l *Local) Run(ctx context.Context) {
	again := time.NewTimer(lookAgain)
	defer again.Stop()
	for {
		l.look()
		pause := time.NewTimer(lookEvery)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		var timer <-chan time.Time
		if l.interest.Load() {
			again.Reset(lookAgain)
			timer = again.C
		}
		select {
		case <-ctx.Done():
			return
		case <-l.feed.Wake():
		case <-l.wake:
		case <-timer:
		}
	}
}

// look brings what is known up to date.
func (l *Local) look() {
	changed := l.feed.Take()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := newNews()
	for key := range changed {
		l.read(n, key)
	}
	if l.stirred.Swap(false) || len(l.pending) > 0 || len(l.refused) > 0 || l.absent() {
		l.count(n)
	}
	l.interest.Store(len(l.pending) > 0 || len(l.refused) > 0 || l.absent())
	l.tell(n)
}

// absent says whether a client is not caught up.
func (l *Local) absent() bool {
	for _, a := range l.joined {
		if !a.caughtUp {
			return true
		}
	}
	return false
}

// read takes note of an object's version.
func (l *Local) read(n news, key model.Key) {
	e, ok := l.from.Store.Entry(key)
	if !ok {
		if _, had := l.known.objects[key]; had {
			delete(l.known.objects, key)
			delete(l.pending, key)
			delete(l.refused, key)
			delete(l.said, key)
			n.objects[key] = struct{}{}
		}
		return
	}
	version, readdressed := VersionOf(e.Object), l.readdressed(e)
	was, had := l.known.objects[key]
	same := had && was.Version == version
	if same && l.pending[key] == 0 && !readdressed {
		return // something else is said of it, or a label changed, which all proxies had no need to hear
	}
	l.pending[key] = needed(e)
	// Until it is counted nobody has it.
	switch {
	case !same:
		was = Standing{Version: version} // a refusal of the version before is over
		delete(l.refused, key)
	case !readdressed:
		return
	}
	was.Waiting = max(1, len(l.joined))
	l.known.objects[key] = was
	n.objects[key] = struct{}{}
}

// readdressed says whether a ServiceEntry may have other virtual addresses than when it was read last. They are chosen after the entry is
// taken, and are no part of its version.
func (l *Local) readdressed(e model.Entry) bool {
	if e.Object.Kind != "ServiceEntry" || len(e.Conditions) == 0 {
		return false // it is being compiled
	}
	was, had := l.said[e.Object.Key]
	now := e.Conditions[0].Message
	l.said[e.Object.Key] = now
	return was != now && (had || e.Conditions[0].Reason == wellknown.ReasonAddressPending)
}

// needed is the generation that a proxy must have acknowledged to have an object. That of a ServiceEntry is the one in which it was compiled
// last, since its virtual addresses may have come after it. There is none yet while they are written down.
func needed(e model.Entry) uint64 {
	if e.Object.Kind != "ServiceEntry" || len(e.Conditions) == 0 {
		return e.Generation
	}
	if e.Conditions[0].Reason == wellknown.ReasonAddressPending {
		return resourcelog.Forever
	}
	return max(e.Generation, e.Conditions[0].Generation)
}

// mark is how far a client is.
type mark struct {
	workload string
	through  uint64
}

// count works out who has what. The log is asked before the clients: what they have acknowledged is then at least that.
func (l *Local) count(n news) {
	through := l.from.Log.Generation()
	clients := l.from.Clients()
	marks := l.attend(n, clients, through)
	slices.SortFunc(marks, func(a, b mark) int {
		switch {
		case a.through != b.through && a.through < b.through:
			return -1
		case a.through != b.through:
			return 1
		}
		return strings.Compare(a.workload, b.workload)
	})
	refusals := l.from.Refusals(clients)
	for key := range l.pending {
		l.set(n, key, through, marks, refusals)
	}
	for key := range refusals {
		if _, has := l.known.objects[key]; has && !l.refused[key] && l.pending[key] == 0 {
			l.set(n, key, through, nil, refusals)
		}
	}
	for key := range l.refused {
		if _, still := refusals[key]; !still || l.pending[key] == 0 {
			l.set(n, key, through, nil, refusals)
		}
	}
}

// attend takes note of who is connected, and returns how far those are who are caught up. Of two streams of one workload the
// younger counts: the other one is of a connection that is dead.
func (l *Local) attend(n news, clients []xds.ClientState, through uint64) []mark {
	last := make(map[string]*xds.ClientState, len(clients))
	for i := range clients {
		c := &clients[i]
		if was := last[c.Workload]; was == nil || was.Connected.Before(c.Connected) {
			last[c.Workload] = c
		}
	}
	var marks []mark
	for name, c := range last {
		a, known := l.joined[name]
		if !known || !a.since.Equal(c.Connected) {
			a = attendance{since: c.Connected, at: through}
		}
		has := acknowledged(c)
		a.caughtUp = a.caughtUp || len(c.Types) > 0 && has >= a.at
		l.joined[name] = a
		if now := (Proxy{Node: c.Node, CaughtUp: a.caughtUp}); l.known.proxies[name] != now {
			l.known.proxies[name] = now
			n.proxies[name] = struct{}{}
		}
		if a.caughtUp {
			marks = append(marks, mark{name, has})
		}
	}
	for name := range l.joined {
		if last[name] == nil {
			delete(l.joined, name)
			delete(l.known.proxies, name)
			n.proxies[name] = struct{}{}
		}
	}
	return marks
}

// acknowledged is the generation through which a client has acknowledged everything that it follows.
func acknowledged(c *xds.ClientState) uint64 {
	has := uint64(resourcelog.Forever)
	for _, t := range c.Types {
		has = min(has, t.AckedGeneration)
	}
	return has
}

// set works out how an object stands. Without its generation in the log nobody has it; once all have it, that stays so.
func (l *Local) set(n news, key model.Key, through uint64, marks []mark, refusals map[model.Key]model.Condition) {
	was := l.known.objects[key]
	now := Standing{Version: was.Version}
	if generation := l.pending[key]; generation > 0 {
		if generation > through {
			return // it is being compiled
		}
		now.Waiting, _ = slices.BinarySearchFunc(marks, generation, func(m mark, g uint64) int {
			if m.through < g {
				return -1
			}
			return 1
		})
		for _, m := range marks[:min(now.Waiting, maxNamed)] {
			now.WaitingFor = append(now.WaitingFor, m.workload)
		}
		if now.Waiting == 0 {
			delete(l.pending, key)
		}
	}
	delete(l.refused, key)
	if c, ok := refusals[key]; ok {
		now.Refusal, now.RefusalText = c.Reason, c.Message
		l.refused[key] = true
	}
	if !now.same(was) {
		l.known.objects[key] = now
		n.objects[key] = struct{}{}
	}
}
