// Package upstream is the server behind a proxy under test: it reads what the proxy sends by strict readers of its own, keeps each
// request in a normal form, and answers. It shares no code with the proxies.
package upstream

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// CaseField names the case that a request belongs to.
const CaseField = "x-case"

// Paths that are not answered at once by 200 without content.
const (
	// EarlyPath is answered behind the head. The content is not read.
	EarlyPath = "/early"
	// LargePath is answered with content that does not end while the client reads.
	LargePath = "/large"
)

// Record is what one message of a proxy was, read strictly.
type Record struct {
	// Protocol is "HTTP/1.1", "HTTP/1.0" or "HTTP/2".
	Protocol string
	Method   string
	Target   string
	// Host is the value of the host field, or of :authority.
	Host string
	// Fields has the values of each name in lower case, in order, and those of trailers behind "trailer " and the name.
	Fields map[string][]string
	// Content is the content without its framing.
	Content string
	// Fault says why a strict reader does not take the message. It is empty for a valid one.
	Fault string
	// Partial says that the connection ended within the message.
	Partial bool
	// Early says that bytes stood behind the message before it was answered.
	Early bool
}

// Lane is one listening socket. Its records are those of one case at a time.
type Lane struct {
	listener net.Listener
	large    atomic.Int64

	mu      sync.Mutex
	records []Record
	open    map[net.Conn]bool
	closed  bool
}

// Serve accepts connections until Close.
func Serve(listener net.Listener) *Lane {
	l := &Lane{listener: listener, open: map[net.Conn]bool{}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if !l.enter(conn) {
				_ = conn.Close()
				return
			}
			go func() {
				defer l.leave(conn)
				l.serve(conn)
			}()
		}
	}()
	return l
}

func (l *Lane) enter(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.open[conn] = true
	return true
}

func (l *Lane) leave(conn net.Conn) {
	_ = conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, conn)
}

// Close ends the lane and its connections.
func (l *Lane) Close() {
	_ = l.listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for conn := range l.open {
		_ = conn.Close()
	}
}

// Address is where the lane listens.
func (l *Lane) Address() net.Addr { return l.listener.Addr() }

// Take returns the records since the last call.
func (l *Lane) Take() []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.records
	l.records = nil
	return taken
}

// LargeBytes is how much content of LargePath was written.
func (l *Lane) LargeBytes() int64 { return l.large.Load() }

func (l *Lane) keep(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

func (l *Lane) serve(conn net.Conn) {
	in := bufio.NewReaderSize(conn, 128<<10)
	if start, _ := in.Peek(4); string(start) == preface[:4] {
		l.serveHTTP2(conn, in)
		return
	}
	for l.exchange(conn, in) {
	}
}

// exchange reads one request of HTTP/1 and answers it. It returns false when the connection is over.
func (l *Lane) exchange(conn net.Conn, in *bufio.Reader) bool {
	r := Record{Fields: map[string][]string{}}
	head, err := readHead(in)
	if err != nil {
		if len(head) == 0 && !errors.Is(err, errFault) {
			return false // nothing was begun
		}
		return l.refuse(conn, r, err)
	}
	framing, err := r.parseHead(head)
	if err != nil {
		return l.refuse(conn, r, err)
	}
	if r.Target == EarlyPath {
		l.keep(r)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		_, _ = io.Copy(io.Discard, in)
		return false
	}
	if strings.EqualFold(r.first("expect"), "100-continue") && in.Buffered() == 0 {
		if _, err := io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return false
		}
	}
	if err := r.readContent(in, framing); err != nil {
		return l.refuse(conn, r, err)
	}
	r.Early = in.Buffered() > 0
	l.keep(r)
	return l.answer(conn, r)
}

// refuse keeps a message that is invalid or cut off, and ends the connection.
func (l *Lane) refuse(conn net.Conn, r Record, err error) bool {
	if errors.Is(err, errFault) {
		r.Fault = strings.TrimPrefix(err.Error(), errFault.Error()+": ")
		l.keep(r)
		_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return false
	}
	r.Partial = true
	l.keep(r)
	return false
}

func (l *Lane) answer(conn net.Conn, r Record) bool {
	switch {
	case r.Target == LargePath:
		l.answerLarge(conn)
		return false
	case r.Method == "CONNECT":
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		return false
	case strings.EqualFold(r.first("upgrade"), "websocket") && r.first("sec-websocket-key") != "":
		sum := sha1.Sum([]byte(r.first("sec-websocket-key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
		return false
	}
	_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	closes := r.Protocol == "HTTP/1.0" || hasElement(r.Fields["connection"], "close")
	return err == nil && !closes
}

func (l *Lane) answerLarge(conn net.Conn) {
	if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n"); err != nil {
		return
	}
	piece := bytes.Repeat([]byte{'x'}, 64<<10)
	for {
		n, err := conn.Write(piece)
		l.large.Add(int64(n))
		if err != nil {
			return
		}
	}
}

func (r *Record) first(name string) string {
	if values := r.Fields[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Case is the case that the message names. It is empty if the message names none.
func (r *Record) Case() string { return r.first(CaseField) }

// hasElement reports whether a list of comma-separated values has an element.
func hasElement(values []string, element string) bool {
	for _, value := range values {
		for e := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.Trim(e, " \t"), element) {
				return true
			}
		}
	}
	return false
}
