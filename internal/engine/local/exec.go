package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/podinit"
)

// stillThere says why nothing can be done inside a pod. The state's lock must be held.
func (p *pod) stillThere() error {
	if p.init == nil || p.stopping {
		return &api.Error{Code: http.StatusConflict, Message: fmt.Sprintf("pod %s does not run: %s", p.id.name, p.unreadyWhy()), Fix: "see `lateen get pods`"}
	}
	return nil
}

// session is one exec.
type session struct {
	conn net.Conn
	in   *bufio.Reader
	mu   sync.Mutex // one frame at a time
}

func (s *session) send(t api.FrameType, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return api.WriteFrame(s.conn, t, p)
}

// run starts the command and carries its streams until it and they have ended.
func (s *session) run(ctx context.Context, pod *podinit.Pod, cmd podinit.Command, in api.ExecRequest) (api.Exit, error) {
	st, err := openStreams(in)
	if err != nil {
		return api.Exit{}, err
	}
	defer st.closeOurs()
	proc, err := pod.Start(ctx, cmd, st.theirs)
	st.closeTheirs()
	if err != nil {
		return api.Exit{}, err
	}
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		s.feed(st)
	}()
	var outputs sync.WaitGroup
	copyOut := func(from *os.File, t api.FrameType) {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 && s.send(t, buf[:n]) != nil {
				return
			}
			if err != nil {
				return
			}
		}
	}
	outputs.Go(func() { copyOut(st.out, api.FrameStdout) })
	if st.err != nil {
		outputs.Go(func() { copyOut(st.err, api.FrameStderr) })
	}
	select {
	case <-proc.Done():
	case <-lost:
		// The client has gone: nobody would ever end the command.
		_ = proc.Signal(syscall.SIGHUP)
		select {
		case <-proc.Done():
		case <-time.After(time.Second):
			_ = proc.Signal(syscall.SIGKILL)
			<-proc.Done()
		}
	}
	// Processes that the command left running may hold its output open; its own output is there already.
	drained := make(chan struct{})
	go func() { outputs.Wait(); close(drained) }()
	select {
	case <-drained:
	case <-time.After(500 * time.Millisecond):
		st.closeOurs()
		<-drained
	}
	return api.Exit{Code: proc.Exit().Code}, nil
}

// feed passes on what the asker sends, until the asker goes.
func (s *session) feed(st *streams) {
	for {
		t, p, err := api.ReadFrame(s.in)
		if err != nil {
			return
		}
		switch t {
		case api.FrameStdin:
			if st.in != nil {
				_, _ = st.in.Write(p) // the command may have closed its stdin
			}
		case api.FrameStdinEOF:
			switch {
			case st.tty && st.in != nil:
				_, _ = st.in.Write([]byte{4}) // end of transmission, as a terminal says it
			case st.in != nil:
				st.in.Close()
			}
		case api.FrameResize:
			var size api.Size
			if st.tty && json.Unmarshal(p, &size) == nil {
				_ = setSize(st.in, size)
			}
		}
	}
}

// streams are both ends of what a command reads and writes. With a terminal all of ours are one file.
type streams struct {
	tty    bool
	in     *os.File // nil: no stdin
	out    *os.File
	err    *os.File // nil with a terminal
	theirs [3]*os.File
	once   sync.Once
}

func openStreams(in api.ExecRequest) (*streams, error) {
	if in.TTY {
		return openTerminal(in.Size)
	}
	st := &streams{}
	var err error
	if in.Stdin {
		st.theirs[0], st.in, err = os.Pipe()
	} else {
		st.theirs[0], err = os.Open(os.DevNull)
	}
	if err == nil {
		st.out, st.theirs[1], err = os.Pipe()
	}
	if err == nil {
		st.err, st.theirs[2], err = os.Pipe()
	}
	if err != nil {
		st.closeTheirs()
		st.closeOurs()
		return nil, err
	}
	return st, nil
}

func openTerminal(size api.Size) (*streams, error) {
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	raw, err := ptmx.SyscallConn()
	if err != nil {
		ptmx.Close()
		return nil, err
	}
	var n int
	cerr := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err = errors.Join(cerr, err); err != nil {
		ptmx.Close()
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	pts, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		ptmx.Close()
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	if size.Rows > 0 && size.Cols > 0 {
		_ = setSize(ptmx, size) // a wrong size is better than no session
	}
	return &streams{tty: true, in: ptmx, out: ptmx, theirs: [3]*os.File{pts, pts, pts}}, nil
}

func setSize(f *os.File, s api.Size) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var ierr error
	err = raw.Control(func(fd uintptr) {
		ierr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Cols})
	})
	return errors.Join(err, ierr)
}

func (st *streams) closeTheirs() {
	for i, f := range st.theirs {
		if f != nil && (i == 0 || f != st.theirs[0]) {
			f.Close()
		}
	}
}

func (st *streams) closeOurs() {
	st.once.Do(func() {
		for _, f := range []*os.File{st.in, st.out, st.err} {
			if f != nil {
				f.Close()
			}
		}
	})
}
