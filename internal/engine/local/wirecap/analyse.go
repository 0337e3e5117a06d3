package wirecap

import (
	"cmp"
	"net/netip"
	"slices"

	"lateen.dev/lateen/internal/engine/api"
)

// Analyser sorts packets into connections.
type Analyser struct {
	conns   map[pair]*conn
	packets int
}

// pair names a connection whichever way its packets go.
type pair struct{ low, high netip.AddrPort }

type conn struct {
	src, dst netip.AddrPort
	sawSYN   bool
	out, in  stream // from src, to src
}

// NewAnalyser starts with nothing seen.
func NewAnalyser() *Analyser { return &Analyser{conns: map[pair]*conn{}} }

// Add takes an Ethernet frame; what is not TCP over IP is counted and left.
func (a *Analyser) Add(frame []byte) {
	a.packets++
	s, ok := parse(frame)
	if !ok {
		return
	}
	key := pair{s.src, s.dst}
	if s.dst.Compare(s.src) < 0 {
		key = pair{s.dst, s.src}
	}
	c := a.conns[key]
	if s.syn && !s.ack && c != nil && (len(c.out.sample) > 0 || len(c.in.sample) > 0) {
		// The same ports again: a new connection. The old one is kept under a key that no packet has.
		a.conns[pair{netip.AddrPortFrom(key.low.Addr(), 0), netip.AddrPortFrom(key.high.Addr(), uint16(len(a.conns)))}] = c
		c = nil
	}
	if c == nil {
		c = &conn{src: s.src, dst: s.dst}
		if s.syn && s.ack || !s.syn && s.src.Port() < s.dst.Port() {
			c.src, c.dst = s.dst, s.src
		}
		a.conns[key] = c
	}
	if s.syn {
		c.sawSYN = true
		s.seq++ // a SYN takes a number of its own
	}
	if s.src == c.src {
		c.out.add(s.seq, s.payload, c.sawSYN)
	} else {
		c.in.add(s.seq, s.payload, c.sawSYN)
	}
}

// Packets is how many frames were added.
func (a *Analyser) Packets() int { return a.packets }

// Connections lists what was seen, sorted by destination port, then by bytes, most first.
func (a *Analyser) Connections() []api.CapturedConn {
	out := make([]api.CapturedConn, 0, len(a.conns))
	for _, c := range a.conns {
		out = append(out, c.report())
	}
	slices.SortFunc(out, func(x, y api.CapturedConn) int {
		return cmp.Or(cmp.Compare(x.Port, y.Port), cmp.Compare(y.BytesSent+y.BytesRecv, x.BytesSent+x.BytesRecv),
			cmp.Compare(x.Src, y.Src), cmp.Compare(x.Dst, y.Dst))
	})
	return out
}

func (c *conn) report() api.CapturedConn {
	r := api.CapturedConn{
		Src: c.src.String(), Dst: c.dst.String(), Port: int(c.dst.Port()), SawSYN: c.sawSYN,
		BytesSent: c.out.bytes, BytesRecv: c.in.bytes, Records: c.out.tls.records + c.in.tls.records, Class: c.class(),
	}
	r.Sample = c.out.sample
	// The more telling direction: readable text if there is any, else the first to speak.
	if len(r.Sample) == 0 || c.in.http && !c.out.http {
		r.Sample = c.in.sample
	}
	return r
}

func (c *conn) class() api.Class {
	switch {
	case c.out.bytes+c.in.bytes == 0:
		return api.ClassEmpty
	case c.out.http || c.in.http:
		return api.ClassHTTP
	case (c.out.bytes == 0 || c.out.isTLS()) && (c.in.bytes == 0 || c.in.isTLS()):
		return api.ClassTLS
	}
	return api.ClassPlaintext
}
