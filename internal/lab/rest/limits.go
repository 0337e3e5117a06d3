package rest

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// limits bound what callers cost who do nothing with their connections. None of them ends the wait for a run.
type limits struct {
	head    time.Duration // until a request's fields are here
	request time.Duration // until its body is here too
	answer  time.Duration // until the answer is taken
	idle    time.Duration // between requests
	// connections at a time; others wait in the kernel's queue.
	connections int
}

var usualLimits = limits{head: 10 * time.Second, request: 30 * time.Second, answer: 2 * time.Minute, idle: time.Minute, connections: 256}

// answerNow gives an answer its time anew: a run may have taken all of it.
func (s *Server) answerNow(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.limits.answer)) // a recorder in a test has none
}

// room is a listener that accepts only so many connections at a time. It leaves them as they are, where a wrapper would keep
// the server from closing their halves one after the other, without which a refused caller may lose his answer.
type room struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newRoom(l net.Listener, most int) *room {
	return &room{Listener: l, places: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept waits for a place, then for a connection.
func (r *room) Accept() (net.Conn, error) {
	select {
	case r.places <- struct{}{}:
	case <-r.closed:
		return nil, net.ErrClosed
	}
	conn, err := r.Listener.Accept()
	if err != nil {
		<-r.places
	}
	return conn, err
}

// Close ends all waiting.
func (r *room) Close() error {
	r.once.Do(func() { close(r.closed) })
	return r.Listener.Close()
}

// left is the server's hook: a connection that has ended makes room for another.
func (r *room) left(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		<-r.places
	}
}
