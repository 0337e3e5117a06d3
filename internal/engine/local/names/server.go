package names

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// Server serves a zone that can be replaced at any time.
type Server struct {
	zone atomic.Pointer[Zone]
	udp  *dns.Server
	tcp  *dns.Server
}

// Listen starts serving on an address, UDP and TCP, in the calling process's network namespace.
func Listen(address string) (*Server, error) {
	s := &Server{}
	s.zone.Store(&Zone{})
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for DNS: %w", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		packets.Close()
		return nil, fmt.Errorf("listen for DNS: %w", err)
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := s.zone.Load().Answer(q)
		if _, ok := w.RemoteAddr().(*net.UDPAddr); ok {
			size := dns.MinMsgSize
			if o := q.IsEdns0(); o != nil {
				size = max(size, int(o.UDPSize()))
			}
			m.Truncate(size)
		}
		_ = w.WriteMsg(m) // the asker asks again
	})
	s.udp = &dns.Server{PacketConn: packets, Handler: handler}
	s.tcp = &dns.Server{Listener: listener, Handler: handler, ReadTimeout: 5 * time.Second}
	go s.udp.ActivateAndServe()
	go s.tcp.ActivateAndServe()
	return s, nil
}

// Set replaces what the server knows.
func (s *Server) Set(z *Zone) { s.zone.Store(z) }

// Close stops serving.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.udp.ShutdownContext(ctx)
	_ = s.tcp.ShutdownContext(ctx)
}
