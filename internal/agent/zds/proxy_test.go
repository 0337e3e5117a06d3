package zds

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	zdspb "lateen.dev/lateen/internal/gen/zds"
)

const patience = 30 * time.Second

// serve starts a server that is stopped with the test.
func serve(t *testing.T, opts Options) (s *Server, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "zds.sock")
	opts.Log = slog.New(slog.DiscardHandler)
	if opts.AcceptGap == 0 {
		opts.AcceptGap = time.Millisecond
	}
	s, err := Listen(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx := t.Context()
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		// The test's context has ended by now.
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, path
}

// proxy is a node proxy as far as ZDS goes.
type proxy struct {
	t    *testing.T
	conn *net.UnixConn
}

func dial(t *testing.T, path string) *proxy {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &proxy{t: t, conn: conn}
}

func connect(t *testing.T, path string) *proxy {
	t.Helper()
	p := dial(t, path)
	p.say(&zdspb.ZdsHello{Version: zdspb.Version_V1})
	return p
}

func (p *proxy) say(m proto.Message) {
	p.t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

func (p *proxy) acknowledge(reason string) {
	p.t.Helper()
	p.say(&zdspb.WorkloadResponse{Payload: &zdspb.WorkloadResponse_Ack{Ack: &zdspb.Ack{Error: reason}}})
}

// read returns the next request as text, and the inode of the namespace that came with it.
func (p *proxy) read(limit time.Duration) (request string, inode uint64, err error) {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(limit))
	b, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, _, err := p.conn.ReadMsgUnix(b, oob)
	if err != nil {
		return "", 0, err
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		p.t.Fatal("the message was cut")
	}
	var m zdspb.WorkloadRequest
	if err := proto.Unmarshal(b[:n], &m); err != nil {
		p.t.Fatal(err)
	}
	fds := p.descriptors(oob[:oobn])
	switch request := m.Payload.(type) {
	case *zdspb.WorkloadRequest_Add:
		if len(fds) != 1 {
			p.t.Fatalf("add came with %d descriptors", len(fds))
		}
		var st unix.Stat_t
		if err := unix.Fstat(fds[0], &st); err != nil {
			p.t.Fatal(err)
		}
		unix.Close(fds[0])
		i := request.Add.WorkloadInfo
		return strings.Join([]string{"add", request.Add.Uid, i.Namespace, i.Name, i.ServiceAccount}, " "), st.Ino, nil
	case *zdspb.WorkloadRequest_Keep:
		return "keep " + request.Keep.Uid, 0, p.none(fds)
	case *zdspb.WorkloadRequest_Del:
		return "del " + request.Del.Uid, 0, p.none(fds)
	case *zdspb.WorkloadRequest_SnapshotSent:
		return "snapshot_sent", 0, p.none(fds)
	}
	return "", 0, errors.New("a request without content")
}

func (p *proxy) none(fds []int) error {
	if len(fds) > 0 {
		return errors.New("descriptors came with something else than add")
	}
	return nil
}

func (p *proxy) descriptors(oob []byte) []int {
	p.t.Helper()
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		p.t.Fatal(err)
	}
	var fds []int
	for _, m := range messages {
		rights, err := unix.ParseUnixRights(&m)
		if err != nil {
			p.t.Fatal(err)
		}
		fds = append(fds, rights...)
	}
	return fds
}

// expect reads a request and fails the test unless it starts as given; it does not answer.
func (p *proxy) expect(prefix string) (inode uint64) {
	p.t.Helper()
	request, inode, err := p.read(patience)
	if err != nil {
		p.t.Fatalf("instead of %q: %v", prefix, err)
	}
	if !strings.HasPrefix(request, prefix) {
		p.t.Fatalf("got %q instead of %q", request, prefix)
	}
	return inode
}

// accept expects a request and acknowledges it.
func (p *proxy) accept(prefix string) (inode uint64) {
	p.t.Helper()
	inode = p.expect(prefix)
	p.acknowledge("")
	return inode
}

// silent fails the test if a request comes.
func (p *proxy) silent() {
	p.t.Helper()
	if request, _, err := p.read(100 * time.Millisecond); err == nil {
		p.t.Fatalf("unexpected %q", request)
	} else if errors.Is(err, io.EOF) {
		p.t.Fatal("the connection has ended")
	}
}

// ended waits for the agent to close the connection.
func (p *proxy) ended() {
	p.t.Helper()
	if request, _, err := p.read(patience); err == nil {
		p.t.Fatalf("got %q instead of the end", request)
	} else if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		p.t.Fatal(err)
	}
}

// awaitStatus waits for a pod's status.
func awaitStatus(t *testing.T, s *Server, uid, what string, is func(Status) bool) {
	t.Helper()
	deadline := time.After(patience)
	for !is(s.Status(uid)) {
		select {
		case <-s.Changed():
		case <-deadline:
			t.Fatalf("%s: not %s, but %+v", uid, what, s.Status(uid))
		}
	}
}

func accepted(s Status) bool { return s.Accepted }
func refused(s Status) bool  { return s.Refusal != "" && !s.Accepted }
func gone(s Status) bool     { return !s.Known }
