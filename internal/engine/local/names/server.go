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
	zone    atomic.Pointer[Zone]
	servers []*dns.Server
}

// Listen starts serving on addresses, UDP and TCP, in the calling process's network namespace.
func Listen(addresses ...string) (*Server, error) {
	s := &Server{}
	s.zone.Store(&Zone{})
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
	for _, address := range addresses {
		packets, err := net.ListenPacket("udp", address)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("listen for DNS: %w", err)
		}
		s.serve(&dns.Server{PacketConn: packets, Handler: handler})
		listener, err := net.Listen("tcp", address)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("listen for DNS: %w", err)
		}
		s.serve(&dns.Server{Listener: listener, Handler: handler, ReadTimeout: 5 * time.Second})
	}
	return s, nil
}

func (s *Server) serve(server *dns.Server) {
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	s.servers = append(s.servers, server)
	go server.ActivateAndServe()
	<-started // only a server that has started can be shut down
}

// Set replaces what the server knows.
func (s *Server) Set(z *Zone) { s.zone.Store(z) }

// Close stops serving.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, server := range s.servers {
		_ = server.ShutdownContext(ctx)
	}
}
