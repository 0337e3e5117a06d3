package zds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	zdspb "lateen.dev/lateen/internal/gen/zds"
)

// session is one proxy's connection. Its maps are guarded by the server's lock; its socket belongs to one goroutine.
type session struct {
	server *Server
	conn   *net.UnixConn
	log    *slog.Logger
	wake   chan struct{}

	told         map[string]delivery
	snapshotSent bool
}

// delivery is a pod that the proxy was told of.
type delivery struct {
	workload Workload
	accepted bool
	refusal  string
	retryAt  time.Time // a refused pod is offered again then
	pause    time.Duration
}

// message is what the proxy said, or why it will say no more.
type message struct {
	bytes []byte
	err   error
}

var errUnasked = errors.New("the proxy spoke without having been asked")

func (s *Server) serve(ctx context.Context, conn *net.UnixConn, log *slog.Logger) error {
	said := make(chan message, 1)
	ended := make(chan struct{})
	defer close(ended)
	go listen(conn, said, ended)

	hello, err := await(ctx, said, s.opts.AckTimeout, "hello")
	if err != nil {
		return err
	}
	if err := parseHello(hello); err != nil {
		return err
	}
	select {
	case <-s.complete:
	case <-ctx.Done():
		return ctx.Err()
	case m := <-said:
		return unexpected(m)
	}

	session := &session{server: s, conn: conn, log: log, wake: make(chan struct{}, 1), told: map[string]delivery{}}
	s.join(session)
	defer s.leave(session)
	log.Info("node proxy connected")
	return session.run(ctx, said)
}

// listen reads what the proxy says until the connection ends.
func listen(conn *net.UnixConn, said chan<- message, ended <-chan struct{}) {
	for {
		// One byte more than allowed shows that a message was too long.
		b := make([]byte, maxMessage+1)
		n, err := conn.Read(b)
		if err == nil && n > maxMessage {
			err = errTooLong
		}
		select {
		case said <- message{bytes: b[:n], err: err}:
		case <-ended:
			return
		}
		if err != nil {
			return
		}
	}
}

func await(ctx context.Context, said <-chan message, limit time.Duration, what string) ([]byte, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case m := <-said:
		return m.bytes, m.err
	case <-timer.C:
		return nil, fmt.Errorf("the proxy gave no %s within %v; closing, so that it starts afresh", what, limit)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// unexpected explains what came, or ended, while nothing was asked.
func unexpected(m message) error {
	switch {
	case errors.Is(m.err, io.EOF):
		return nil
	case m.err != nil:
		return m.err
	default:
		return errUnasked
	}
}

func (s *Server) join(newest *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Additions move to the newest proxy, so the others look again.
	s.sessions = append(s.sessions, newest)
	s.wakeLocked()
}

func (s *Server) leave(gone *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.sessions, gone); i >= 0 {
		s.sessions = slices.Delete(s.sessions, i, i+1)
	}
	s.wakeLocked()
}

func (s *session) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run sends one request after the other until nothing is left to say, then waits for a change.
func (s *session) run(ctx context.Context, said <-chan message) error {
	for {
		step, pause := s.next(time.Now())
		if step == nil {
			var due <-chan time.Time
			if pause > 0 {
				due = time.After(pause)
			}
			select {
			case <-s.wake:
			case <-due:
			case m := <-said:
				return unexpected(m)
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		refusal, err := s.ask(ctx, step, said)
		if err != nil {
			s.server.opts.Sent(step.kind(), "failed")
			return fmt.Errorf("%s: %w", step, err)
		}
		result := "ok"
		if refusal != nil {
			result = "refused"
			s.log.Warn("node proxy refused", "request", step.String(), "reason", refusal.Reason)
		}
		s.server.opts.Sent(step.kind(), result)
		s.record(step, refusal, time.Now())
	}
}

// step is one request of the protocol.
type step struct {
	request  *zdspb.WorkloadRequest
	workload Workload // of an add or a del
}

func (s *step) kind() string {
	switch s.request.Payload.(type) {
	case *zdspb.WorkloadRequest_Add:
		return "add"
	case *zdspb.WorkloadRequest_Keep:
		return "keep"
	case *zdspb.WorkloadRequest_Del:
		return "del"
	default:
		return "snapshot_sent"
	}
}

func (s *step) String() string {
	if s.workload.UID == "" {
		return s.kind()
	}
	return fmt.Sprintf("%s %s/%s", s.kind(), s.workload.Namespace, s.workload.Name)
}

// next decides what to ask now; if nothing, how long until a refused pod is due again (0: not at all).
func (s *session) next(now time.Time) (*step, time.Duration) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	for uid, d := range s.told {
		if w, wanted := s.server.desired[uid]; !wanted || replaces(w, d.workload) {
			return &step{request: deleteRequest(uid), workload: d.workload}, 0
		}
	}
	newest := s.server.sessions[len(s.server.sessions)-1] == s
	if s.snapshotSent && !newest {
		return nil, 0
	}
	var soonest time.Duration
	for uid, w := range s.server.desired {
		d, told := s.told[uid]
		switch {
		case !told && w.NetNS == nil && s.snapshotSent:
			// "keep" exists only within a snapshot.
		case !told, d.workload.NetNS == nil && w.NetNS != nil:
			return &step{request: addRequest(w), workload: w}, 0
		case d.accepted || !s.snapshotSent:
		case !now.Before(d.retryAt):
			return &step{request: addRequest(w), workload: w}, 0
		case soonest == 0 || d.retryAt.Sub(now) < soonest:
			soonest = d.retryAt.Sub(now)
		}
	}
	if !s.snapshotSent {
		return &step{request: snapshotSentRequest()}, 0
	}
	return nil, soonest
}

// ask sends a request and waits for its answer.
func (s *session) ask(ctx context.Context, step *step, said <-chan message) (*Refusal, error) {
	b, err := encode(step.request)
	if err != nil {
		return &Refusal{Reason: err.Error()}, nil
	}
	select {
	case m := <-said:
		// It would be taken for the answer to this request.
		if err := unexpected(m); err != nil {
			return nil, err
		}
		return nil, io.EOF
	default:
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.server.opts.AckTimeout)); err != nil {
		return nil, err
	}
	if step.request.GetAdd() == nil {
		_, err = s.conn.Write(b)
	} else {
		var writeErr error
		err = step.workload.NetNS.WithFD(func(fd int) error {
			_, _, writeErr = s.conn.WriteMsgUnix(b, unix.UnixRights(fd), nil)
			return nil
		})
		if err != nil {
			// The pod has gone meanwhile; nothing was sent, so the connection is in order.
			return &Refusal{Reason: err.Error()}, nil
		}
		err = writeErr
	}
	if err != nil {
		return nil, err
	}
	answer, err := await(ctx, said, s.server.opts.AckTimeout, "answer")
	if err != nil {
		return nil, err
	}
	return parseResponse(answer)
}

// record notes what the proxy answered.
func (s *session) record(step *step, refusal *Refusal, now time.Time) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	defer s.server.notifyLocked()
	uid := step.workload.UID
	switch step.kind() {
	case "snapshot_sent":
		s.snapshotSent = true
	case "del":
		delete(s.told, uid)
	default:
		d := delivery{workload: step.workload, accepted: refusal == nil}
		if refusal != nil {
			opts := s.server.opts
			d.refusal = refusal.Reason
			d.pause = min(max(2*s.told[uid].pause, opts.RetryMin), opts.RetryMax)
			d.retryAt = now.Add(d.pause)
		}
		s.told[uid] = d
	}
}
