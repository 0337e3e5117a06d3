// Package zds is the agent's side of ZDS: it keeps every connected node proxy told which pods are handed to it, with
// their network namespaces. It does not decide which pods those are, and it does not touch the namespaces.
//
// The protocol (Istio's istio.workload.zds): the proxy says hello; the agent sends add (with the namespace's file
// descriptor), keep, del and snapshot_sent, one at a time, and each is acknowledged before the next. After
// snapshot_sent the proxy drops what it was not told of. Additions go to the newest connection, since an older one
// belongs to a proxy that is being replaced; deletions go to all.
package zds

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/socket"
)

// Workload is a pod to hand to the proxy. Without NetNS the proxy is told to keep the pod as it knows it.
type Workload struct {
	UID, Namespace, Name, ServiceAccount string

	NetNS *netns.Namespace
}

// same says whether a proxy that was told of a need not be told of b.
func same(a, b Workload) bool {
	if a.NetNS == nil || b.NetNS == nil {
		// A proxy that has the pod keeps it also when the namespace can be opened no more.
		return b.NetNS == nil
	}
	return !replaces(b, a)
}

// replaces says whether a proxy that was told of old must let go of it before it can have w.
func replaces(w, old Workload) bool {
	return w.NetNS != nil && old.NetNS != nil && (w.NetNS.ID() != old.NetNS.ID() ||
		w.Namespace != old.Namespace || w.Name != old.Name || w.ServiceAccount != old.ServiceAccount)
}

// Status is what the proxies know of a pod.
type Status struct {
	Connected bool   // a proxy is connected and has said hello
	Accepted  bool   // the newest proxy acknowledged the pod: it listens there
	Refusal   string // why the newest proxy did not, if it said so
	Known     bool   // any proxy has been told of the pod and not yet acknowledged its deletion
}

// Options are a server's limits and observers; zero values mean the defaults.
type Options struct {
	Log        *slog.Logger
	AckTimeout time.Duration // how long a proxy may take for one answer; 10 s
	RetryMin   time.Duration // first pause before a refused pod is offered again; 1 s, doubling
	RetryMax   time.Duration // longest such pause; 15 s
	AcceptGap  time.Duration // least time between two connections; 200 ms
	// Sent is called for each request by its kind ("add", "keep", "del", "snapshot_sent") with its result ("ok",
	// "refused", "failed").
	Sent func(kind, result string)
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.AckTimeout, 10*time.Second)
	set(&o.RetryMin, time.Second)
	set(&o.RetryMax, 15*time.Second)
	set(&o.AcceptGap, 200*time.Millisecond)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Sent == nil {
		o.Sent = func(string, string) {}
	}
	return o
}

// Server keeps proxies in step with the set of pods that Put and Drop make.
type Server struct {
	opts     Options
	listener *net.UnixListener
	complete chan struct{} // closed once the set is the whole truth
	changed  chan struct{}

	mu       sync.Mutex
	desired  map[string]Workload
	sessions []*session // oldest first
	started  bool
}

// Listen opens the socket at path, replacing one that an earlier agent left.
func Listen(path string, opts Options) (*Server, error) {
	// A client of this socket receives every pod's namespace, so the socket is for root alone.
	l, err := socket.Listen("unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("listen for node proxies: %w", err)
	}
	return &Server{
		opts: opts.withDefaults(), listener: l,
		complete: make(chan struct{}), changed: make(chan struct{}, 1),
		desired: map[string]Workload{},
	}, nil
}

// Complete says that the pods put so far are all there are. Until then no proxy is told anything: it would drop the
// pods that the agent has not learned of yet.
func (s *Server) Complete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started = true
		close(s.complete)
	}
}

// Put hands a pod to the proxies.
func (s *Server) Put(w Workload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.desired[w.UID]; ok && same(old, w) {
		return
	}
	s.desired[w.UID] = w
	s.wakeLocked()
}

// Drop takes a pod back from all proxies. Status says when they have acknowledged it.
func (s *Server) Drop(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.desired[uid]; ok {
		delete(s.desired, uid)
		s.wakeLocked()
	}
}

// Status says what the proxies know of a pod.
func (s *Server) Status(uid string) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{Connected: len(s.sessions) > 0}
	for i, session := range s.sessions {
		d, told := session.told[uid]
		if !told {
			continue
		}
		status.Known = true
		if newest := i == len(s.sessions)-1; newest {
			w, wanted := s.desired[uid]
			status.Accepted = d.accepted && wanted && same(d.workload, w)
			status.Refusal = d.refusal
		}
	}
	return status
}

// Completed is closed once the set is the whole truth.
func (s *Server) Completed() <-chan struct{} { return s.complete }

// Find answers a pod that is handed to the proxies.
func (s *Server) Find(uid string) (Workload, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.desired[uid]
	return w, ok
}

// FindIn answers the pod that is handed to the proxies with a network namespace, by its inode.
func (s *Server) FindIn(inode uint64) (Workload, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.desired {
		if w.NetNS != nil && w.NetNS.ID().Inode == inode {
			return w, true
		}
	}
	return Workload{}, false
}

// Connections counts the connected proxies.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Changed delivers a value after any Status may have changed; several changes can be one value.
func (s *Server) Changed() <-chan struct{} { return s.changed }

// Serve accepts proxies until ctx ends, then closes their connections. The socket's file stays, so that a proxy
// can tell an agent that restarts from one that is not installed.
func (s *Server) Serve(ctx context.Context) error {
	// The gap: a proxy that connects in a loop must not keep the agent busy with snapshots.
	err := socket.Serve(ctx, s.listener, s.opts.AcceptGap, func(number int, conn *net.UnixConn) func(context.Context) {
		log := s.opts.Log.With("connection", number)
		return func(ctx context.Context) {
			err := s.serve(ctx, conn, log)
			if err != nil && ctx.Err() == nil {
				log.Warn("node proxy disconnected", "err", err)
			} else {
				log.Info("node proxy disconnected")
			}
		}
	})
	if err != nil {
		return fmt.Errorf("accept node proxies: %w", err)
	}
	return nil
}

func (s *Server) wakeLocked() {
	for _, session := range s.sessions {
		session.wakeUp()
	}
	s.notifyLocked()
}

func (s *Server) notifyLocked() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
