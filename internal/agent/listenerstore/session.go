package listenerstore

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	storepb "lateen.dev/lateen/internal/gen/listenerstore"
)

// session is one proxy's connection. One goroutine reads it; a mutex guards writes.
type session struct {
	server *Server
	conn   *net.UnixConn
	log    *slog.Logger
	id     int
	pidfd  descriptor // negative if the kernel cannot name the process

	writing sync.Mutex

	// Used by the reading goroutine only.
	greeted bool
	ledgers []descriptor
	pods    map[uint64]string // names of the pods that the proxy asked about, by network namespace
}

var sessionIDs atomic.Int64

func newSession(server *Server, conn *net.UnixConn, log *slog.Logger) *session {
	return &session{server: server, conn: conn, log: log, id: int(sessionIDs.Add(1)), pidfd: server.peer(conn), pods: map[uint64]string{}}
}

const soPeerPidfd = 77 // SO_PEERPIDFD, Linux 6.5

// peer returns a pidfd of the process at the other end. A pid alone may be another process's when it is read. The result is
// negative if the kernel cannot name the process.
func peer(conn *net.UnixConn) descriptor { return peerBy(conn, soPeerPidfd) }

// peerBy is peer with a socket option that the kernel may not know.
func peerBy(conn *net.UnixConn, option int) descriptor {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1
	}
	found := descriptor(-1)
	_ = raw.Control(func(fd uintptr) {
		if pidfd, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, option); err == nil {
			unix.CloseOnExec(pidfd)
			found = descriptor(pidfd)
			return
		}
		found = peerByNumber(int(fd))
	})
	return found
}

// peerByNumber is peer for kernels before 6.5, which give the pid only. The pid may be another process's when it is looked up.
// But a process closes its files before its pid is free, and no other process has the proxy's end of the connection, which is
// close-on-exec. If the connection is open after the look-up, the pid was the proxy's during the look-up.
func peerByNumber(fd int) descriptor {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || peer.Pid <= 0 {
		return -1 // 0: of a PID namespace that this process cannot see
	}
	pidfd, err := unix.PidfdOpen(int(peer.Pid), 0) // Linux 5.3
	if err != nil {
		return -1
	}
	hangup := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(hangup, 0)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(hangup, 0)
	}
	if err != nil || n != 0 {
		unix.Close(pidfd)
		return -1
	}
	return descriptor(pidfd)
}

// ended reports whether the process has ended. The connection closes first, so it waits up to ExitTimeout. It reports false for
// a process without a pidfd: the lost connections of such a process are read from its ledgers when the next proxy connects
// (orphaned).
func (s *session) ended() bool {
	if s.pidfd < 0 {
		return false
	}
	poll := []unix.PollFd{{Fd: int32(s.pidfd), Events: unix.POLLIN}}
	deadline := time.Now().Add(s.server.opts.ExitTimeout)
	for time.Now().Before(deadline) {
		n, err := unix.Poll(poll, int(time.Until(deadline).Milliseconds())+1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && n > 0
	}
	return false
}

func (s *session) close() {
	closeAll(s.ledgers)
	if s.pidfd >= 0 {
		s.pidfd.Close()
	}
}

// run answers requests until the proxy closes the connection (nil) or breaks the protocol.
func (s *session) run() error {
	b, oob := make([]byte, maxMessage+1), make([]byte, unix.CmsgSpace(4*253))
	for {
		n, oobn, flags, _, err := s.conn.ReadMsgUnix(b, oob)
		if errors.Is(err, io.EOF) || err == nil && n == 0 && oobn == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		files, err := received(oob[:oobn])
		if err == nil && (n > maxMessage || flags&unix.MSG_TRUNC != 0) {
			err = errTooLong
		}
		if err == nil && flags&unix.MSG_CTRUNC != 0 {
			err = errors.New("descriptors were lost: the agent has none left; raise its limit of open files")
		}
		if err != nil {
			closeAll(files)
			return err
		}
		if err := s.serve(b[:n], files); err != nil {
			return err
		}
	}
}

func (s *session) serve(b []byte, files []descriptor) error {
	m, err := parse(b, len(files))
	if err == nil && s.greeted == (m.GetHello() != nil) {
		err = errors.New("a proxy says hello once, and first")
	}
	if err != nil {
		closeAll(files)
		_ = s.answer(ackMessage(err), nil)
		return err
	}
	switch p := m.Payload.(type) {
	case *storepb.ProxyMessage_Hello:
		s.greeted = true
		select {
		case <-s.server.opts.Complete:
		case <-time.After(time.Second):
			closeAll(files)
			return errors.New("the agent does not know all pods yet; the proxy will come again")
		}
		// A proxy that is turned away keeps its ledgers: this session could not name their pods, and must not empty them.
		s.ledgers = files
		if lost := s.server.orphaned(); len(lost) > 0 {
			s.server.report(s.log, lost)
		}
		s.log.Info("node proxy gives duplicates of its listeners")
		s.server.join(s)
		return s.answer(welcomeMessage(), nil)
	case *storepb.ProxyMessage_Take:
		return s.take(p.Take)
	case *storepb.ProxyMessage_Give:
		if err := s.give(p.Give, files); err != nil {
			s.log.Warn("sockets are not kept", "pod", p.Give.GetUid(), "err", err)
			return s.answer(ackMessage(err), nil)
		}
	case *storepb.ProxyMessage_Release:
		s.server.mu.Lock()
		s.server.sockets.release(s.id, p.Release.GetUid())
		s.server.mu.Unlock()
	case *storepb.ProxyMessage_Draining:
		s.log.Info("node proxy drains")
		s.server.leave(s)
	}
	return s.answer(ackMessage(nil), nil)
}

func (s *session) take(request *storepb.Take) error {
	if _, err := s.pod(request.GetUid(), request.GetNetnsInode()); err != nil {
		return s.answer(ackMessage(err), nil)
	}
	s.server.mu.Lock()
	taken := s.server.sockets.take(s.id, request.GetUid(), request.GetNetnsInode())
	fds := make([]int, len(taken))
	for i, h := range taken {
		fds[i] = int(h.socket.(descriptor))
	}
	// The lock is held so that no socket is closed meanwhile. The write does not block: a unix socket takes the packet or fails.
	err := s.answer(heldMessage(taken), fds)
	s.server.mu.Unlock()
	return err
}

// pod checks that the agent has handed out a pod in this namespace, and remembers the pod's name.
func (s *session) pod(uid string, inode uint64) (Pod, error) {
	pod, known := s.server.opts.Pod(uid)
	switch {
	case !known:
		return Pod{}, fmt.Errorf("this agent has handed out no pod %s", uid)
	case pod.Inode != 0 && pod.Inode != inode:
		return Pod{}, fmt.Errorf("pod %s lives in network namespace %d, not in %d", uid, pod.Inode, inode)
	}
	s.pods[inode] = pod.Namespace + "/" + pod.Name
	return pod, nil
}

func (s *session) give(request *storepb.Give, files []descriptor) error {
	uid, inode := request.GetUid(), request.GetNetnsInode()
	if _, err := s.pod(uid, inode); err != nil {
		closeAll(files)
		return err
	}
	given := make([]held, len(files))
	for i, f := range files {
		cookie, err := inspect(f, inode)
		if err != nil {
			closeAll(files)
			return fmt.Errorf("socket %s: %w", request.GetNames()[i], err)
		}
		given[i] = held{name: request.GetNames()[i], inode: inode, cookie: cookie, socket: f}
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	for _, h := range given {
		s.server.sockets.give(s.id, uid, h)
	}
	s.server.sockets.settle(s.id, uid)
	return nil
}

// tell sends a message that answers no request. It does not wait for a proxy that does not read.
func (s *session) tell(m *storepb.AgentMessage) {
	if err := s.answer(m, nil); err != nil {
		s.log.Warn("node proxy was not told", "err", err)
	}
}

func (s *session) answer(m *storepb.AgentMessage, fds []int) error {
	b, err := encode(m)
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, _, err = s.conn.WriteMsgUnix(b, rights, nil)
	return err
}
