// Package listenerstore holds duplicates of the sockets that node proxies listen on in pods. The next proxy takes over the same
// sockets, so that no connection is refused. The package also counts the connections that a killed proxy lost. It does not
// accept from a socket, and does not decide which pods exist.
//
// The store holds a socket as long as a proxy that does not drain listens on it, or a proxy that has just connected may ask
// for it. Clients of a socket that no proxy accepts from would wait, where the kernel should refuse them.
package listenerstore

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"lateen.dev/lateen/internal/agent/socket"
)

// Pod is a pod as the agent has handed it to the proxies.
type Pod struct {
	Namespace, Name string
	Inode           uint64 // of its network namespace; 0 if it cannot be opened any more
}

// Options configure a Server; zero values mean the defaults.
type Options struct {
	Log *slog.Logger
	// Pod describes a pod that was handed to the proxies; false if no such pod has this uid.
	Pod func(uid string) (Pod, bool)
	// Complete is closed once Pod knows every pod; nil if it always does. Proxies wait for that.
	Complete <-chan struct{}
	// PodIn describes the pod of a network namespace that was handed to the proxies; false if there is none.
	PodIn func(inode uint64) (Pod, bool)
	// Ledgers is the directory in which proxies name their ledgers; empty if they do not. Connections that a proxy lost while no
	// agent ran are reported when the next proxy connects.
	Ledgers string
	// Lost is called with the connections that a proxy had open when it was killed.
	Lost func([]Lost)
	// TakeTimeout is how long a held socket waits for a connected proxy to ask for it; 10 s.
	TakeTimeout time.Duration
	// ExitTimeout is how long a process may take to end after its connection has closed; 5 s.
	ExitTimeout time.Duration
}

// Server holds sockets for the proxies that connect to it.
type Server struct {
	opts     Options
	listener *net.UnixListener
	peer     func(*net.UnixConn) descriptor // peer, except in tests

	mu          sync.Mutex
	sockets     *socketTable
	migrator    *migrator
	sessions    map[*session]bool
	terminating map[string]bool
}

// Listen opens the socket at path, replacing one that an earlier agent left.
func Listen(path string, opts Options) (*Server, error) {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.Complete == nil {
		complete := make(chan struct{})
		close(complete)
		opts.Complete = complete
	}
	if opts.Pod == nil {
		opts.Pod = func(string) (Pod, bool) { return Pod{}, false }
	}
	if opts.PodIn == nil {
		opts.PodIn = func(uint64) (Pod, bool) { return Pod{}, false }
	}
	if opts.Lost == nil {
		opts.Lost = func([]Lost) {}
	}
	if opts.ExitTimeout == 0 {
		opts.ExitTimeout = 5 * time.Second
	}
	if opts.TakeTimeout == 0 {
		opts.TakeTimeout = 10 * time.Second
	}
	// A client of this socket receives the listeners of pods.
	l, err := socket.Listen("unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("listen for proxies that give sockets: %w", err)
	}
	migrator := newMigrator(opts.Log)
	return &Server{opts: opts, listener: l, peer: peer, sockets: newSocketTable(migrator.close), migrator: migrator, sessions: map[*session]bool{}, terminating: map[string]bool{}}, nil
}

// Serve serves proxies until ctx ends, and then closes the held duplicates. The proxies go on listening.
func (s *Server) Serve(ctx context.Context) error {
	err := socket.Serve(ctx, s.listener, 0, func(number int, conn *net.UnixConn) func(context.Context) {
		session := newSession(s, conn, s.opts.Log.With("listener_store", number))
		return func(ctx context.Context) {
			err := session.run()
			s.end(ctx, session, err)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sockets.clear()
	s.migrator.stop()
	if err != nil {
		return fmt.Errorf("accept proxies that give sockets: %w", err)
	}
	return nil
}

// Forget closes the held sockets of a pod.
func (s *Server) Forget(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.terminating, uid)
	s.sockets.forget(uid)
}

// Terminating tells the proxies that a pod is being deleted. It still has its network.
func (s *Server) Terminating(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.terminating[uid] = true
	for session := range s.sessions {
		session.tell(terminatingMessage(uid))
	}
}

// Held counts the sockets that are held.
func (s *Server) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sockets.count()
}

func (s *Server) join(session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[session] = true
	s.sockets.join(session.id)
	for uid := range s.terminating {
		session.tell(terminatingMessage(uid))
	}
}

// leave closes the sockets that only this proxy listened on, unless a connected proxy may still ask for them.
func (s *Server) leave(session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sockets.leave(session.id)
	time.AfterFunc(s.opts.TakeTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sockets.closeOrphans()
	})
}

// end handles the end of a proxy's connection. If the proxy was killed, it reports the lost connections.
func (s *Server) end(ctx context.Context, session *session, err error) {
	s.leave(session)
	s.mu.Lock()
	delete(s.sessions, session)
	s.mu.Unlock()
	defer session.close()
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		session.log.Warn("the node proxy's connection to the listener store broke", "err", err)
	}
	if !session.ended() {
		// The process lives on and will connect again.
		return
	}
	s.report(session.log, session.lost())
	session.void()
}

func (s *Server) report(log *slog.Logger, lost []Lost) {
	for _, group := range byPod(lost) {
		log.Warn("connections lost with the node proxy that was killed", "pod", group.pod, "connections", group.count,
			"some", group.some)
	}
	s.opts.Lost(lost)
}
