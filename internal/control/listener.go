package control

import (
	"net"
	"sync"
)

// Connections that may be open at once. Callers are unknown until their token is read, so what they can hold is bounded
// before that; a node proxy needs two connections, and proxies behind one address translation share it.
const (
	maxConnections           = 16384
	maxConnectionsPerAddress = 256
)

// limited closes connections beyond a limit as they come, in all and for each address. It is safe for concurrent use.
type limited struct {
	net.Listener
	total, perAddress int

	mu   sync.Mutex
	open map[string]int
	sum  int
}

func limit(l net.Listener, total, perAddress int) *limited {
	return &limited{Listener: l, total: total, perAddress: perAddress, open: map[string]int{}}
}

// Accept implements net.Listener; a connection over the limit is closed and the next one awaited.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := host(conn.RemoteAddr())
		if !l.enter(address) {
			_ = conn.Close()
			continue
		}
		return &counted{Conn: conn, leave: sync.OnceFunc(func() { l.leave(address) })}, nil
	}
}

func (l *limited) enter(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sum >= l.total || l.open[address] >= l.perAddress {
		return false
	}
	l.sum++
	l.open[address]++
	return true
}

func (l *limited) leave(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum--
	if l.open[address]--; l.open[address] == 0 {
		delete(l.open, address)
	}
}

// counted gives its place back when it is closed.
type counted struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}

func host(a net.Addr) string {
	h, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return h
}
