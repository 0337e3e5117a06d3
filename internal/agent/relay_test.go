package agent

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
	"lateen.dev/lateen/internal/agent/redirect"
	zdspb "lateen.dev/lateen/internal/gen/zds"
)

// relay is a node proxy without mesh: it listens in the pods that it is handed and passes connections on, outbound to
// where they were going and inbound from the client's own address. When a pod is taken back it cuts its connections.
type relay struct {
	t    *testing.T
	conn *net.UnixConn
	done chan struct{}

	mu      sync.Mutex
	pods    map[string]*relayedPod
	passed  int // connections passed on so far
	refusal string
}

type relayedPod struct {
	ns        *netns.Namespace
	listeners []net.Listener
	conns     []net.Conn
	closed    bool
}

func startRelay(t *testing.T, socket string) *relay {
	t.Helper()
	r := &relay{t: t, done: make(chan struct{}), pods: map[string]*relayedPod{}}
	eventually(t, "the agent listens for proxies", func() error {
		var err error
		r.conn, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
		return err
	})
	r.send(&zdspb.ZdsHello{Version: zdspb.Version_V1})
	go r.serve()
	t.Cleanup(r.stop)
	return r
}

// stop ends the relay as a crash would: its sockets close with it.
func (r *relay) stop() {
	r.conn.Close()
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.pods {
		r.removeLocked(uid)
	}
}

// reconnect connects to an agent that has started again, and keeps the pods meanwhile.
func (r *relay) reconnect(socket string) {
	r.t.Helper()
	<-r.done
	r.done = make(chan struct{})
	eventually(r.t, "the agent listens for proxies again", func() error {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
		if err == nil {
			r.conn = conn
		}
		return err
	})
	r.send(&zdspb.ZdsHello{Version: zdspb.Version_V1})
	go r.serve()
}

func (r *relay) send(m proto.Message) {
	b, err := proto.Marshal(m)
	if err != nil {
		r.t.Error(err)
	}
	_, _ = r.conn.Write(b)
}

func (r *relay) serve() {
	defer close(r.done)
	b, oob := make([]byte, 1024), make([]byte, unix.CmsgSpace(4))
	named := map[string]bool{}
	for {
		n, oobn, _, _, err := r.conn.ReadMsgUnix(b, oob)
		if err != nil {
			return
		}
		var m zdspb.WorkloadRequest
		if err := proto.Unmarshal(b[:n], &m); err != nil {
			r.t.Error(err)
			return
		}
		reason := ""
		switch request := m.Payload.(type) {
		case *zdspb.WorkloadRequest_Add:
			named[request.Add.Uid] = true
			if err := r.add(request.Add.Uid, oob[:oobn]); err != nil {
				reason = err.Error()
			}
		case *zdspb.WorkloadRequest_Keep:
			named[request.Keep.Uid] = true
		case *zdspb.WorkloadRequest_Del:
			r.remove(request.Del.Uid)
		case *zdspb.WorkloadRequest_SnapshotSent:
			r.keepOnly(named)
		}
		r.send(&zdspb.WorkloadResponse{Payload: &zdspb.WorkloadResponse_Ack{Ack: &zdspb.Ack{Error: reason}}})
	}
}

func (r *relay) add(uid string, oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fds[0]), "netns")
	defer file.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refusal != "" {
		return fmt.Errorf("%s", r.refusal)
	}
	if r.pods[uid] != nil {
		return nil
	}
	ns, err := netns.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return err
	}
	pod := &relayedPod{ns: ns}
	for _, port := range []int{redirect.OutboundPort, redirect.InboundPort, redirect.TunnelPort} {
		l := netnstest.Listen(r.t, ns, fmt.Sprintf("0.0.0.0:%d", port), netnstest.Marked(redirect.ProxyMark))
		pod.listeners = append(pod.listeners, l)
		go r.accept(pod, l, port == redirect.InboundPort)
	}
	r.pods[uid] = pod
	return nil
}

func (r *relay) accept(pod *relayedPod, l net.Listener, inbound bool) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go r.pass(pod, c, inbound)
	}
}

func (r *relay) pass(pod *relayedPod, c net.Conn, inbound bool) {
	defer c.Close()
	to, err := originalDestination(c)
	if err != nil {
		return
	}
	from, options := "", []netnstest.Option{netnstest.Marked(redirect.ProxyMark)}
	if inbound {
		// The client's address but not its port: with both, connection tracking could not tell the two apart.
		client := netip.MustParseAddrPort(c.RemoteAddr().String())
		from, options = netip.AddrPortFrom(client.Addr().Unmap(), 0).String(), append(options, netnstest.Transparent)
	}
	next, err := netnstest.Dial(pod.ns, from, to, options...)
	if err != nil {
		return
	}
	defer next.Close()
	r.mu.Lock()
	r.passed++
	pod.conns = append(pod.conns, c, next)
	cut := pod.closed
	r.mu.Unlock()
	if cut {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, next}, {next, c}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

func (r *relay) remove(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeLocked(uid)
}

func (r *relay) removeLocked(uid string) {
	pod := r.pods[uid]
	if pod == nil {
		return
	}
	delete(r.pods, uid)
	pod.closed = true
	for _, l := range pod.listeners {
		l.Close()
	}
	for _, c := range pod.conns {
		c.Close()
	}
	pod.ns.Close()
}

func (r *relay) keepOnly(named map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.pods {
		if !named[uid] {
			r.removeLocked(uid)
		}
	}
}

func (r *relay) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passed
}

func originalDestination(c net.Conn) (string, error) {
	const soOriginalDst = 80 // SO_ORIGINAL_DST, linux/netfilter_ipv4.h
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return "", err
	}
	var address unix.RawSockaddrInet4
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		length := uint32(unsafe.Sizeof(address))
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_IP, soOriginalDst,
			uintptr(unsafe.Pointer(&address)), uintptr(unsafe.Pointer(&length)), 0)
	})
	if err != nil {
		return "", err
	}
	if errno != 0 {
		return "", errno
	}
	port := address.Port>>8 | address.Port<<8
	return netip.AddrPortFrom(netip.AddrFrom4(address.Addr), port).String(), nil
}

// eventually waits until what returns no error.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s until %s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
