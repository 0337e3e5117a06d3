package listenerstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
	storepb "lateen.dev/lateen/internal/gen/listenerstore"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("STORE_TEST_PROXY"); path != "" {
		actAsProxy(path)
	}
	goleak.VerifyTestMain(m)
}

// proxy is a node proxy as far as the store sees one.
type proxy struct{ conn *net.UnixConn }

func connect(path string) (proxy, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	return proxy{conn}, err
}

func (p proxy) ask(m *storepb.ProxyMessage, fds ...int) (*storepb.AgentMessage, []descriptor, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, nil, err
	}
	if _, _, err := p.conn.WriteMsgUnix(b, unix.UnixRights(fds...), nil); err != nil {
		return nil, nil, err
	}
	return p.hear()
}

func (p proxy) hear() (*storepb.AgentMessage, []descriptor, error) {
	b, oob := make([]byte, maxMessage), make([]byte, 1024)
	_ = p.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	n, oobn, _, _, err := p.conn.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, nil, err
	}
	files, err := received(oob[:oobn])
	if err != nil {
		return nil, nil, err
	}
	var m storepb.AgentMessage
	return &m, files, proto.Unmarshal(b[:n], &m)
}

func takeRequest(uid string, inode uint64) *storepb.ProxyMessage {
	return &storepb.ProxyMessage{Payload: &storepb.ProxyMessage_Take{Take: &storepb.Take{Uid: uid, NetnsInode: inode}}}
}

func giveRequest(uid string, inode uint64, names ...string) *storepb.ProxyMessage {
	return &storepb.ProxyMessage{Payload: &storepb.ProxyMessage_Give{Give: &storepb.Give{Uid: uid, NetnsInode: inode, Names: names}}}
}

// rig is a store that knows one pod.
type rig struct {
	t      *testing.T
	path   string
	server *Server
	pod    *netns.Namespace
	lost   chan []Lost

	exit     time.Duration                  // see ExitTimeout
	peer     func(*net.UnixConn) descriptor // how processes are known; nil: as ever
	complete <-chan struct{}                // see Options
}

func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "listener-store.sock"), pod: netnstest.New(t), lost: make(chan []Lost, 4)}
	r.serve()
	return r
}

// startToKill is start for a test that kills its proxy: on a busy machine a process ends long after its connection.
func startToKill(t *testing.T, peer func(*net.UnixConn) descriptor) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "listener-store.sock"), pod: netnstest.New(t), lost: make(chan []Lost, 4), exit: 5 * time.Second, peer: peer}
	r.serve()
	return r
}

// serve runs a store until the test or the returned function ends it.
func (r *rig) serve() (stop func()) {
	r.t.Helper()
	t := r.t
	var err error
	r.server, err = Listen(r.path, Options{
		Pod: func(uid string) (Pod, bool) {
			return Pod{Namespace: "default", Name: "web", Inode: r.pod.ID().Inode}, uid == "a"
		},
		PodIn: func(inode uint64) (Pod, bool) {
			return Pod{Namespace: "default", Name: "web"}, inode == r.pod.ID().Inode
		},
		Ledgers:     filepath.Join(filepath.Dir(r.path), "ledgers"),
		Lost:        func(l []Lost) { r.lost <- l },
		ExitTimeout: cmp.Or(r.exit, 300*time.Millisecond),
		Complete:    r.complete,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.peer != nil {
		r.server.peer = r.peer
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.server.Serve(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (r *rig) connect() proxy {
	r.t.Helper()
	p, err := connect(r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { p.conn.Close() })
	r.done(p, hello(storepb.Version_V1, 0))
	return p
}

func (r *rig) done(p proxy, m *storepb.ProxyMessage, fds ...int) {
	r.t.Helper()
	if answer, _, err := p.ask(m, fds...); err != nil || answer.GetAck() == nil || answer.GetAck().GetError() != "" {
		r.t.Fatalf("answered %v, %v", answer, err)
	}
}

// listen opens a TCP listener in a namespace; 127.0.0.1 works there.
func listen(t *testing.T, ns *netns.Namespace) *os.File {
	t.Helper()
	var f *os.File
	err := ns.Do(func() error {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		f, err = l.(*net.TCPListener).File()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("did not happen: " + what)
		}
	}
}

func TestASuccessorTakesTheVerySocketWithWhatWaitsInIt(t *testing.T) {
	r := start(t)
	inode := r.pod.ID().Inode
	listener := listen(t, r.pod)
	old := r.connect()
	r.done(old, giveRequest("a", inode, "hbone"), int(listener.Fd()))

	address, err := unix.Getsockname(int(listener.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	var waiting net.Conn
	err = r.pod.Do(func() error {
		waiting, err = net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", address.(*unix.SockaddrInet4).Port))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()

	successor := r.connect()
	answer, files, err := successor.ask(takeRequest("a", inode))
	if err != nil || len(files) != 1 || strings.Join(answer.GetHeld().GetNames(), ",") != "hbone" {
		t.Fatalf("took %v, %v, %v", answer, files, err)
	}
	defer closeAll(files)
	listener.Close()
	old.conn.Close()
	served, _, err := unix.Accept(int(files[0]))
	for err == unix.EAGAIN {
		time.Sleep(time.Millisecond)
		served, _, err = unix.Accept(int(files[0]))
	}
	if err != nil {
		t.Fatalf("what waited in the listener is lost: %v", err)
	}
	unix.Close(served)
}

func TestWithoutAProxyNothingIsHeldSoThatClientsAreRefused(t *testing.T) {
	r := start(t)
	listener := listen(t, r.pod)
	p := r.connect()
	r.done(p, giveRequest("a", r.pod.ID().Inode, "hbone"), int(listener.Fd()))
	if r.server.Held() != 1 {
		t.Fatalf("%d held", r.server.Held())
	}
	p.conn.Close()
	eventually(t, "the socket is closed", func() bool { return r.server.Held() == 0 })
}

func TestAProxyThatDrainsLeavesNothingBehind(t *testing.T) {
	r := start(t)
	p := r.connect()
	r.done(p, giveRequest("a", r.pod.ID().Inode, "hbone"), int(listen(t, r.pod).Fd()))
	r.done(p, &storepb.ProxyMessage{Payload: &storepb.ProxyMessage_Draining{Draining: &storepb.Draining{}}})
	if r.server.Held() != 0 {
		t.Fatalf("%d held", r.server.Held())
	}
}

func TestASocketOfAnotherNamespaceIsRefused(t *testing.T) {
	r := start(t)
	inode := r.pod.ID().Inode
	elsewhere := netnstest.New(t)
	p := r.connect()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, c := range map[string]struct {
		request *storepb.ProxyMessage
		file    *os.File
	}{
		"a socket from elsewhere":              {giveRequest("a", inode, "hbone"), listen(t, elsewhere)},
		"a socket from elsewhere that says so": {giveRequest("a", elsewhere.ID().Inode, "hbone"), listen(t, elsewhere)},
		"no socket":                            {giveRequest("a", inode, "hbone"), null},
		"a pod that nobody knows":              {giveRequest("b", inode, "hbone"), listen(t, r.pod)},
	} {
		answer, _, err := p.ask(c.request, int(c.file.Fd()))
		if err != nil || answer.GetAck().GetError() == "" {
			t.Errorf("%s: answered %v, %v", name, answer, err)
		}
	}
	if answer, files, _ := p.ask(takeRequest("a", elsewhere.ID().Inode)); answer.GetAck().GetError() == "" || len(files) > 0 {
		t.Errorf("asked in another namespace's name: %v, %v", answer, files)
	}
	if r.server.Held() != 0 {
		t.Fatalf("%d held", r.server.Held())
	}
}

func TestATerminatingPodIsTold(t *testing.T) {
	r := start(t)
	p := r.connect()
	r.server.Terminating("a")
	if m, _, err := p.hear(); err != nil || m.GetTerminating().GetUid() != "a" {
		t.Fatalf("heard %v, %v", m, err)
	}
	late, err := connect(r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer late.conn.Close()
	first, _, err := late.ask(hello(storepb.Version_V1, 0))
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := late.hear()
	if err != nil || first.GetTerminating() == nil && second.GetTerminating() == nil {
		t.Fatalf("a proxy that comes later heard %v, %v, %v", first, second, err)
	}
}

// actAsProxy is the body of a proxy that is to be killed: it has one connection in its ledger.
func actAsProxy(path string) {
	p, err := connect(path)
	if err != nil {
		panic(err)
	}
	ledgers := filepath.Join(filepath.Dir(path), "ledgers")
	if err := os.MkdirAll(ledgers, 0o700); err != nil {
		panic(err)
	}
	ledger, err := unix.Open(filepath.Join(ledgers, "1"), unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		panic(err)
	}
	if err := unix.Flock(ledger, unix.LOCK_EX); err != nil {
		panic(err)
	}
	var inode uint64
	fmt.Sscan(os.Getenv("STORE_TEST_INODE"), &inode)
	record := make([]byte, recordLength)
	record[0], record[1] = 1, 1
	binary.LittleEndian.PutUint64(record[8:], inode)
	if _, err := unix.Pwrite(ledger, record, 3*recordLength); err != nil {
		panic(err)
	}
	if _, _, err := p.ask(hello(storepb.Version_V1, 1), ledger); err != nil {
		panic(err)
	}
	if _, _, err := p.ask(takeRequest("a", inode)); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
}

// spawn starts a proxy in a process of its own, which has one connection open.
func (r *rig) spawn() *exec.Cmd {
	r.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STORE_TEST_PROXY="+r.path, fmt.Sprintf("STORE_TEST_INODE=%d", r.pod.ID().Inode))
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	ready := make([]byte, 6)
	if _, err := out.Read(ready); err != nil || string(ready) != "ready\n" {
		r.t.Fatalf("the proxy said %q, %v", ready, err)
	}
	return cmd
}

// lostOne waits until the one connection is reported.
func (r *rig) lostOne() {
	r.t.Helper()
	select {
	case lost := <-r.lost:
		if len(lost) != 1 || lost[0].Pod != "default/web" || lost[0].Direction != Inbound {
			r.t.Fatalf("lost %v", lost)
		}
	case <-time.After(15 * time.Second):
		r.t.Fatal("nobody said what was lost")
	}
}

func TestWhatAKilledProxyHadOpenIsNamed(t *testing.T) {
	r := startToKill(t, nil)
	cmd := r.spawn()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	r.lostOne()
	r.connect()
	r.nothingLost("it was reported already")
}

func TestWhatWasLostWhileNoAgentRanIsNamedWhenOneComes(t *testing.T) {
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "listener-store.sock"), pod: netnstest.New(t), lost: make(chan []Lost, 4)}
	stop := r.serve()
	cmd := r.spawn()
	stop()
	r.serve()
	r.connect()
	r.nothingLost("the proxy lives")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	r.connect()
	r.lostOne()
	r.connect()
	r.nothingLost("it was reported already")
	if left, err := os.ReadDir(filepath.Join(filepath.Dir(r.path), "ledgers")); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func (r *rig) nothingLost(because string) {
	r.t.Helper()
	select {
	case lost := <-r.lost:
		r.t.Fatalf("lost %v: %s", lost, because)
	case <-time.After(200 * time.Millisecond):
	}
}

// The successor started before the store had the listeners: it has its own beside them. Without migration the half of the
// connections that waits in the old one is reset.
func TestWhatWaitsForAProxyThatDrainsGoesToTheListenersThatItsSuccessorHas(t *testing.T) {
	r := start(t)
	inode := r.pod.ID().Inode
	shared := func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }
	setting := func() string {
		var have []byte
		if err := r.pod.Do(func() (err error) { have, err = os.ReadFile("/proc/sys/" + migrateSetting); return err }); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(have))
	}
	open := func() (net.Listener, *os.File) {
		l := netnstest.Listen(t, r.pod, "127.0.0.1:15008", shared)
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		return l, f
	}
	goes, given := open()
	old := r.connect()
	r.done(old, giveRequest("a", inode, "hbone"), int(given.Fd()))
	stays, given2 := open()
	successor := r.connect()
	r.done(successor, giveRequest("a", inode, "hbone"), int(given2.Fd()))
	// Fd has made it blocking, for the listener too, whose deadline would mean nothing.
	if err := unix.SetNonblock(int(given2.Fd()), true); err != nil {
		t.Fatal(err)
	}
	given2.Close()

	const many = 40
	var clients []net.Conn
	for range many {
		c, err := netnstest.Dial(r.pod, "", "127.0.0.1:15008")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	given.Close()
	goes.Close()
	if got := setting(); got != "0" {
		t.Fatalf("before the proxy drains: %s", got)
	}
	r.done(old, &storepb.ProxyMessage{Payload: &storepb.ProxyMessage_Draining{Draining: &storepb.Draining{}}})
	_ = stays.(*net.TCPListener).SetDeadline(time.Now().Add(30 * time.Second))
	for i := range many {
		c, err := stays.Accept()
		if err != nil {
			t.Fatalf("%d of %d connections reached the listener that stays: %v", i, many, err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range clients {
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatalf("a connection that waited: %v", err)
		}
	}
	eventually(t, "the pod has its setting back", func() bool { return setting() == "0" })
}

func TestAStoreThatEndsLeavesNoSettingBehind(t *testing.T) {
	pod := netnstest.New(t)
	p := newMigrator(slog.Default())
	l := netnstest.Listen(t, pod, "127.0.0.1:15008")
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	setting := func() string {
		var have []byte
		if err := pod.Do(func() (err error) { have, err = os.ReadFile("/proc/sys/" + migrateSetting); return err }); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(have))
	}
	inode := pod.ID().Inode
	for tries, looked := 0, false; !looked; tries++ {
		if tries == 20 {
			t.Fatal("no listener parts")
		}
		for range 2 {
			fd, err := unix.Dup(int(f.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			p.close(inode, []io.Closer{descriptor(fd)})
		}
		// Under the lock the setting stays as it is. A test that was too late for that finds nothing under way.
		p.mu.Lock()
		got := setting()
		looked = p.begun[inode] != nil
		p.mu.Unlock()
		if looked && got != "1" {
			t.Fatalf("while listeners part: %s", got)
		}
	}
	p.stop()
	if got := setting(); got != "0" {
		t.Fatalf("afterwards: %s", got)
	}
}
