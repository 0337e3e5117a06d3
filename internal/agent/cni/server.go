package cni

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"lateen.dev/lateen/internal/agent/socket"
)

// Handler is who knows the node's pods.
type Handler interface {
	// Add captures a pod that is being born, if it is to be. working is to be called as soon as it is known that it is.
	Add(ctx context.Context, r Request, working func()) Answer
	// Del returns when nothing of the mesh is open any more in a pod whose sandbox goes, or ctx ends.
	Del(ctx context.Context, r Request)
	// Check says whether the pod is as it should be.
	Check(ctx context.Context, r Request) Answer
}

// Server answers the plugin.
type Server struct {
	listener *net.UnixListener
	handler  Handler
	log      *slog.Logger
	answered func(Op, Verdict, time.Duration)
}

// requestTime is how long a plugin may take to say what it wants.
const requestTime = 5 * time.Second

// Listen opens the socket at path, replacing one that an earlier agent left. answered, if not nil, is told of each
// answer and how long it took.
func Listen(path string, h Handler, log *slog.Logger, answered func(Op, Verdict, time.Duration)) (*Server, error) {
	// Any client of this socket can have pods captured, so it is for root alone.
	l, err := socket.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for the CNI plugin: %w", err)
	}
	if answered == nil {
		answered = func(Op, Verdict, time.Duration) {}
	}
	return &Server{listener: l, handler: h, log: log, answered: answered}, nil
}

// Serve answers plugins until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	err := socket.Serve(ctx, s.listener, 0, func(_ int, conn *net.UnixConn) func(context.Context) {
		return func(ctx context.Context) { s.answer(ctx, conn) }
	})
	if err != nil {
		return fmt.Errorf("accept the CNI plugin: %w", err)
	}
	return nil
}

func (s *Server) answer(ctx context.Context, conn *net.UnixConn) {
	begun := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_ = conn.SetReadDeadline(begun.Add(requestTime))
	var r Request
	if err := json.NewDecoder(io.LimitReader(conn, maxMessage)).Decode(&r); err != nil {
		s.log.Warn("a request of the CNI plugin cannot be read", "err", err)
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	// A plugin that was killed has nobody left to answer.
	go func() {
		_, _ = conn.Read(make([]byte, 1))
		cancel()
	}()
	say := func(a Answer) { _ = json.NewEncoder(conn).Encode(a) }
	var a Answer
	switch r.Op {
	case Add:
		a = s.handler.Add(ctx, r, func() { say(Answer{Verdict: Working}) })
	case Del:
		s.handler.Del(ctx, r)
		a = Answer{Verdict: Done}
	case Check:
		a = s.handler.Check(ctx, r)
	default:
		a = Answer{Verdict: Unknown, Reason: fmt.Sprintf("this agent does not know the operation %q; plugin and agent are of different versions", r.Op)}
	}
	say(a)
	took := time.Since(begun)
	s.answered(r.Op, a.Verdict, took)
	level := slog.LevelDebug
	if a.Verdict == Failed || a.Verdict == Unknown {
		level = slog.LevelWarn
	}
	s.log.Log(ctx, level, "answered the CNI plugin", "op", r.Op, "pod", r.Namespace+"/"+r.Name, "verdict", a.Verdict, "reason", a.Reason, "duration", took)
}
