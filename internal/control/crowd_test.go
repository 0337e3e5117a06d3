package control

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
)

// line is a connection from somewhere that notes that it was closed.
type line struct {
	net.Conn
	from   netip.AddrPort
	closed bool
}

func (l *line) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(l.from) }
func (l *line) Close() error         { l.closed = true; return nil }

// gate is a listener to which connections come one by one.
type gate struct {
	t *testing.T
	*limited
	next     *line
	replaced []bool
	ports    uint16
}

func newGate(t *testing.T, total, perAddress int) *gate {
	g := &gate{t: t}
	g.limited = limit(g, total, perAddress, func(replaced bool) { g.replaced = append(g.replaced, replaced) })
	return g
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	if g.next == nil {
		return nil, net.ErrClosed
	}
	conn := g.next
	g.next = nil
	return conn, nil
}

func (*gate) Close() error   { return nil }
func (*gate) Addr() net.Addr { return nil }

// come has a caller of an address connect; nil if it is turned away.
func (g *gate) come(address string) (*line, net.Conn) {
	g.t.Helper()
	g.ports++
	l := &line{from: netip.AddrPortFrom(netip.MustParseAddr(address), g.ports)}
	g.next = l
	conn, err := g.limited.Accept()
	if (err != nil) != l.closed {
		g.t.Fatalf("%s: %v, closed: %v", l.from, err, l.closed)
	}
	return l, conn
}

// crowdOf fills all places from a few addresses, as pods without any token would.
func (g *gate) crowdOf(pods, each int) (all []*line) {
	for i := range pods * each {
		l, _ := g.come(fmt.Sprintf("10.244.1.%d", 1+i%pods))
		all = append(all, l)
	}
	return all
}

func stillOpen(lines []*line) (n int) {
	for _, l := range lines {
		if !l.closed {
			n++
		}
	}
	return n
}

func TestWhoFillsThePlacesTakesThemFromHimself(t *testing.T) {
	g := newGate(t, maxReaders, maxReadersPerAddress)
	pods := g.crowdOf(8, 128)
	if stillOpen(pods) != maxReaders {
		t.Fatalf("%d are open", stillOpen(pods))
	}
	// The kubelet asks whether the replica is ready, while the pods go on coming.
	for range 100 {
		probe, conn := g.come("10.243.0.11")
		pods = append(pods, g.crowdOf(8, 3)...)
		if probe.closed {
			t.Fatal("the probe lost its place to those who hold hundreds")
		}
		_ = conn.Close()
	}
	if stillOpen(pods) > maxReaders || len(g.replaced) == 0 || slices.Contains(g.replaced, false) {
		t.Errorf("%d open, replaced %v", stillOpen(pods), g.replaced[:min(3, len(g.replaced))])
	}
}

func TestTheOldestStrangerGoes(t *testing.T) {
	g := newGate(t, 4, 2)
	a1, _ := g.come("10.0.0.1")
	a2, _ := g.come("10.0.0.1")
	b1, _ := g.come("10.0.0.2")
	// An address that has too many loses its own.
	a3, _ := g.come("10.0.0.1")
	if !a1.closed || a2.closed || b1.closed {
		t.Fatalf("a1 %v, a2 %v, b1 %v", a1.closed, a2.closed, b1.closed)
	}
	c1, _ := g.come("10.0.0.3")
	// Of those that have most, the oldest; then all have one, and the oldest of all goes.
	d1, _ := g.come("10.0.0.4")
	if !a2.closed || a3.closed || b1.closed || c1.closed {
		t.Fatal("not the oldest of the address with most")
	}
	_, _ = g.come("10.0.0.5")
	if !b1.closed || a3.closed || c1.closed || d1.closed {
		t.Fatal("not the oldest of all")
	}
}

func TestWhoIsKnownKeepsHisPlace(t *testing.T) {
	g := newGate(t, 4, 2)
	var known []*line
	for i := range 3 {
		l, _ := g.come(fmt.Sprint("10.0.0.", 1+i))
		g.vouch(l.from.String())
		known = append(known, l)
	}
	g.crowdOf(8, 8)
	if stillOpen(known) != 3 {
		t.Fatal("strangers pushed out a caller who is known")
	}
	stranger, _ := g.come("10.0.0.9")
	g.vouch(stranger.from.String())
	g.vouch("10.9.9.9:1") // nobody
	g.next = &line{from: netip.MustParseAddrPort("10.0.0.10:1")}
	late := g.next
	if _, err := g.limited.Accept(); err == nil || !late.closed {
		t.Error("a place was found where all are held by callers who are known")
	}
	if len(g.replaced) == 0 || g.replaced[len(g.replaced)-1] {
		t.Errorf("told %v", g.replaced)
	}
}

// Whatever comes, goes and is vouched for: the bounds hold, what is counted is what is open, and the known stay.
func TestPlacesAreCounted(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // a test
		g := newGate(t, 12, 4)
		type guest struct {
			*line
			conn  net.Conn
			known bool
		}
		var all []*guest
		for range 400 {
			switch r.IntN(4) {
			case 0:
				if len(all) > 0 {
					x := all[r.IntN(len(all))]
					if x.known && !x.closed && r.IntN(4) > 0 {
						continue
					}
					_ = x.conn.Close()
					_ = x.conn.Close()
					x.known = false
				}
			case 1:
				if len(all) > 0 {
					if x := all[r.IntN(len(all))]; !x.closed {
						g.vouch(x.from.String())
						x.known = true
					}
				}
			default:
				l, conn := g.come(fmt.Sprint("10.0.0.", r.IntN(6)))
				if conn != nil {
					all = append(all, &guest{line: l, conn: conn})
				}
			}
			by, sum := map[string]int{}, 0
			for _, x := range all {
				if x.known && x.closed {
					t.Fatalf("seed %d: a caller who is known lost its place", seed)
				}
				if !x.closed {
					by[x.from.Addr().String()]++
					sum++
				}
			}
			if sum != g.sum || sum > 12 || len(by) != len(g.by) || len(g.most) != len(by) || len(g.peers) != sum {
				t.Fatalf("seed %d: %d open, %d counted, of %d addresses", seed, sum, g.sum, len(g.by))
			}
			for a, n := range by {
				if n > 4 || g.by[a].open != n {
					t.Fatalf("seed %d: %d of %s, %d counted", seed, n, a, g.by[a].open)
				}
			}
		}
	}
}
