// Package keeper holds duplicates of what node proxies listen on in pods, so that the next proxy takes over the very
// sockets and refuses nobody, and says which connections were lost when a proxy was killed. It neither accepts from a
// socket nor decides which pods there are.
//
// A socket is held only as long as a proxy that is not ending listens on it, or one that has just come is about to: a
// socket that nobody accepts from would make clients wait where they should be refused.
package keeper

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

// Options are a keeper's surroundings; zero values mean the defaults.
type Options struct {
	Log *slog.Logger
	// Pod describes a pod that the proxies were handed; false if there is none of this uid.
	Pod func(uid string) (Pod, bool)
	// Complete is closed once Pod knows every pod; nil if it always does. Proxies wait for that.
	Complete <-chan struct{}
	// PodIn describes the pod with a network namespace that the proxies were handed; false if there is none.
	PodIn func(inode uint64) (Pod, bool)
	// Ledgers is the directory in which proxies name their ledgers; empty if they do not. What stands in those of proxies
	// that were killed while no agent ran is reported when the next proxy comes.
	Ledgers string
	// Lost is called with the connections that a proxy had open when it was killed.
	Lost func([]Lost)
	// Patience is how long a held socket waits for a proxy that has come but not asked for it; 10 s.
	Patience time.Duration
	// Death is how long a process may take to be gone after its connection ended; 5 s.
	Death time.Duration
}

// Server holds sockets for the proxies that connect to it.
type Server struct {
	opts     Options
	listener *net.UnixListener
	peer     func(*net.UnixConn) descriptor // as peer says

	mu          sync.Mutex
	shelf       *shelf
	partings    *partings
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
	if opts.Death == 0 {
		opts.Death = 5 * time.Second
	}
	if opts.Patience == 0 {
		opts.Patience = 10 * time.Second
	}
	// Whoever connects receives what pods' connections arrive at.
	l, err := socket.Listen("unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("listen for proxies that give sockets: %w", err)
	}
	partings := newPartings(opts.Log)
	return &Server{opts: opts, listener: l, peer: peer, shelf: newShelf(partings.close), partings: partings, sessions: map[*session]bool{}, terminating: map[string]bool{}}, nil
}

// Serve serves proxies until ctx ends, and then closes what is held: the proxies go on listening.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var sessions sync.WaitGroup
	defer func() {
		cancel()
		sessions.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.shelf.clear()
		s.partings.over()
	}()
	defer context.AfterFunc(ctx, func() { s.listener.Close() })()
	for number := 1; ; number++ {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept proxies that give sockets: %w", err)
		}
		session := newSession(s, conn, s.opts.Log.With("keeper", number))
		sessions.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			err := session.run()
			s.end(ctx, session, err)
		})
	}
}

// Forget closes what is held of a pod.
func (s *Server) Forget(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.terminating, uid)
	s.shelf.forget(uid)
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
	return s.shelf.count()
}

func (s *Server) join(session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[session] = true
	s.shelf.come(session.id)
	for uid := range s.terminating {
		session.tell(terminatingMessage(uid))
	}
}

// leave gives up what only this proxy listened on, unless one that has come has not asked yet.
func (s *Server) leave(session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shelf.leave(session.id)
	time.AfterFunc(s.opts.Patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.shelf.closeOrphans()
	})
}

// end works through the end of a connection: what the proxy held, and, if it was killed, what it lost.
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
		session.log.Warn("node proxy's keeper connection broke", "err", err)
	}
	if !session.ended() {
		// It lives, and comes back.
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
