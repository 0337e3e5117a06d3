package agent

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// The port of the metrics is open to everybody who reaches the node, and what a connection costs is the agent's memory.
const (
	// portMost is how many connections are served at once, and portShare how many of them may come from one address.
	portMost  = 64
	portShare = 8
	// portOwn is how many more the node itself may have: its kubelet asks whether the agent is ready. So does, from the same
	// address, whatever pod is on the node's network. The oldest gives way: who holds connections keeps nobody from asking.
	portOwn = 16
)

// newServer makes a server that nobody can hold up by being slow.
func newServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), MaxHeaderBytes: 8 << 10,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
	}
}

// bounded is a listener that closes connections that are too many. It does not let them wait: who may have one would wait too.
type bounded struct {
	net.Listener

	mu     sync.Mutex
	own    []*member // the node's, oldest first
	others int
	from   map[netip.Addr]int
}

func newBounded(l net.Listener) *bounded { return &bounded{Listener: l, from: map[netip.Addr]int{}} }

// Accept returns the next connection that is not too many.
func (c *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		local, remote := addressOf(conn.LocalAddr()), addressOf(conn.RemoteAddr())
		// A client on the node's network connects from the very address that it connects to.
		own := remote == local || remote.IsLoopback()
		m := &member{Conn: conn, from: remote, own: own}
		m.leave = sync.OnceFunc(func() { c.leave(m) })
		entered, oldest := c.enter(m)
		if oldest != nil {
			oldest.Close()
		}
		if entered {
			return m, nil
		}
		conn.Close()
	}
}

// enter counts a connection, if there may be one more; oldest is what has to make room for it.
func (c *bounded) enter(m *member) (entered bool, oldest *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.own {
		if len(c.own) >= portOwn {
			oldest = c.own[0]
		}
		c.own = append(c.own, m)
		return true, oldest
	}
	if c.others >= portMost || c.from[m.from] >= portShare {
		return false, nil
	}
	c.others++
	c.from[m.from]++
	return true, nil
}

func (c *bounded) leave(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.own {
		c.own = slices.DeleteFunc(c.own, func(o *member) bool { return o == m })
		return
	}
	c.others--
	if c.from[m.from]--; c.from[m.from] == 0 {
		delete(c.from, m.from)
	}
}

// member is a connection that is counted until it is closed.
type member struct {
	net.Conn
	from  netip.Addr
	own   bool
	leave func()
}

func (m *member) Close() error {
	m.leave()
	return m.Conn.Close()
}

func addressOf(a net.Addr) netip.Addr {
	at, _ := netip.ParseAddrPort(a.String())
	return at.Addr().Unmap().WithZone("")
}
