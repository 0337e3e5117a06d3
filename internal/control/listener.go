package control

import (
	"container/heap"
	"container/list"
	"net"
	"sync"
)

// Connections that may be open at once. Callers are strangers until their token is read, so what they can hold is bounded
// before that; a node proxy needs two connections, and proxies behind one address translation share it.
const (
	maxConnections           = 16384
	maxConnectionsPerAddress = 256

	// Those who read the pages keep few connections, and behind one address there may be a monitoring system.
	maxReaders           = 1024
	maxReadersPerAddress = 128
)

// limited bounds the connections that are open at once, in all and for each address. When there is no place for one that comes, a
// stranger's is closed: the oldest of its own address if that has too many, else the oldest of the address that has most. So
// whoever fills the places takes them from himself, and a probe or a proxy that comes once always finds one. Only where all places are
// held by callers who are known is the one that comes closed. It is safe for concurrent use.
type limited struct {
	net.Listener
	total, perAddress int
	// closed, if not nil, hears that a connection was closed for want of a place: one that was there, or the one that came.
	closed func(replaced bool)

	mu    sync.Mutex
	sum   int
	ever  uint64
	by    map[string]*crowd   // by address
	peers map[string]*counted // by address and port
	most  crowds
}

func limit(l net.Listener, total, perAddress int, closed func(replaced bool)) *limited {
	return &limited{Listener: l, total: total, perAddress: perAddress, closed: closed, by: map[string]*crowd{}, peers: map[string]*counted{}}
}

// Accept implements net.Listener; a connection for which there is no place is closed and the next one awaited.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		in, out := l.enter(conn)
		if out != nil {
			_ = out.Conn.Close()
		}
		if in == nil {
			_ = conn.Close()
		}
		if l.closed != nil && (in == nil || out != nil) {
			l.closed(in != nil)
		}
		if in != nil {
			return in, nil
		}
	}
}

// enter gives a connection a place, and returns whose place that was, if it was somebody's. It is nil if there is none.
func (l *limited) enter(conn net.Conn) (in, out *counted) {
	address, peer := host(conn.RemoteAddr()), conn.RemoteAddr().String()
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.by[address]
	switch {
	case own != nil && own.open >= l.perAddress:
		if out = own.oldest(); out == nil {
			return nil, nil
		}
	case l.sum >= l.total:
		if out = l.most[0].oldest(); out == nil {
			return nil, nil
		}
	}
	if out != nil {
		l.remove(out)
	}
	if own = l.by[address]; own == nil {
		own = &crowd{address: address}
		l.by[address] = own
		heap.Push(&l.most, own)
	}
	l.ever++
	in = &counted{Conn: conn, of: l, crowd: own, peer: peer, number: l.ever}
	in.place = own.strangers.PushBack(in)
	l.sum++
	own.open++
	l.peers[peer] = in
	heap.Fix(&l.most, own.index)
	return in, out
}

// vouch makes the caller of a connection known: it keeps its place. peer is its address and port.
func (l *limited) vouch(peer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.peers[peer]; c != nil && c.place != nil {
		c.crowd.strangers.Remove(c.place)
		c.place = nil
		heap.Fix(&l.most, c.crowd.index)
	}
}

// remove takes a connection's place away. The lock is held.
func (l *limited) remove(c *counted) {
	if c.gone {
		return
	}
	c.gone = true
	if c.place != nil {
		c.crowd.strangers.Remove(c.place)
		c.place = nil
	}
	l.sum--
	c.crowd.open--
	if l.peers[c.peer] == c {
		delete(l.peers, c.peer)
	}
	if c.crowd.open > 0 {
		heap.Fix(&l.most, c.crowd.index)
		return
	}
	heap.Remove(&l.most, c.crowd.index)
	delete(l.by, c.crowd.address)
}

// counted gives its place back when it is closed.
type counted struct {
	net.Conn
	of    *limited
	crowd *crowd
	peer  string
	// number counts those that came.
	number uint64

	// The lock of the listener guards these.
	place *list.Element // among the strangers of its address; nil if the caller is known
	gone  bool
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.of.mu.Lock()
	c.of.remove(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// crowd is the connections of one address.
type crowd struct {
	address   string
	open      int
	strangers list.List // of *counted, the oldest first
	index     int       // among the crowds
}

// oldest is the stranger that has been there for longest; nil if there is none.
func (c *crowd) oldest() *counted {
	if e := c.strangers.Front(); e != nil {
		return e.Value.(*counted)
	}
	return nil
}

// crowds is a heap: the most strangers first, and among equals those with the oldest.
type crowds []*crowd

// Len implements heap.Interface.
func (c crowds) Len() int { return len(c) }

// Less implements heap.Interface.
func (c crowds) Less(i, j int) bool {
	a, b := c[i].strangers.Len(), c[j].strangers.Len()
	if a != b || a == 0 {
		return a > b
	}
	return c[i].oldest().number < c[j].oldest().number
}

// Swap implements heap.Interface.
func (c crowds) Swap(i, j int) {
	c[i], c[j] = c[j], c[i]
	c[i].index, c[j].index = i, j
}

// Push implements heap.Interface.
func (c *crowds) Push(x any) {
	own := x.(*crowd)
	own.index = len(*c)
	*c = append(*c, own)
}

// Pop implements heap.Interface.
func (c *crowds) Pop() any {
	last := len(*c) - 1
	own := (*c)[last]
	(*c)[last] = nil
	*c = (*c)[:last]
	return own
}

func host(a net.Addr) string {
	h, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return h
}
