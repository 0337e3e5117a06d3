package abuse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server is an endpoint that means harm. It answers each request of HTTP/1 by the same bytes.
type Server struct {
	Name string
	// Want is what a client gets: a status, or cut.
	Want string
	// answer is written once the head of a request is there.
	answer string
	// more is written behind the answer until the proxy ends the connection.
	more string
	// ends says that the server closes the connection behind the answer.
	ends bool
}

// Words for what a client got.
const (
	// cut is a connection that ended before the answer was complete.
	cut = "cut"
	// unended is a complete answer whose connection stayed open, though the request asked for its end.
	unended = "an answer without the end of the connection"
	// smuggled is an answer that was written before its request was there.
	smuggled = "an answer that no request of this client has"
)

// poison is an answer that no client may get, since it stands behind a complete one.
const poison = "HTTP/1.1 200 OK\r\nx-poison: yes\r\ncontent-length: 0\r\n\r\n"

const (
	okLine  = "HTTP/1.1 200 OK\r\n"
	chunked = okLine + "transfer-encoding: chunked\r\n\r\n"
	two     = "content-length: 2\r\n\r\nok"
)

// Servers are all of them.
var Servers = []Server{
	{Name: "a status of two digits", Want: "502", answer: "HTTP/1.1 20 OK\r\n" + two},
	{Name: "another protocol in the status line", Want: "502", answer: "ICY 200 OK\r\n" + two},
	{Name: "LF alone behind the lines of an answer", Want: "502", answer: "HTTP/1.1 200 OK\ncontent-length: 2\n\nok"},
	{Name: "a NUL in a field of an answer", Want: "502", answer: okLine + "x: a\x00b\r\n" + two},
	{Name: "a folded field of an answer", Want: "502", answer: okLine + "x: a\r\n b\r\n" + two},
	{Name: "two lengths of one answer", Want: "502", answer: okLine + "content-length: 3\r\n" + two},
	{Name: "a length and chunks in one answer", Want: "502", answer: okLine + "transfer-encoding: chunked\r\n" + two},
	{Name: "a length of 65 bits", Want: "502", answer: okLine + "content-length: 18446744073709551618\r\n\r\nok"},
	{Name: "chunks of HTTP/1.0", Want: "502", answer: "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"},
	{Name: "101 that nobody asked for", Want: "502", answer: "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n" + poison},
	{Name: "fields of an answer that never end", Want: "502", answer: okLine, more: "x-a: b\r\n"},
	{Name: "a status line that never ends", Want: "502", answer: "HTTP/1.1 200 ", more: "a"},
	{Name: "informational answers that never end", Want: "502", more: "HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n"},
	{Name: "the end instead of an answer", Want: "503", ends: true},
	{Name: "the end within an answer", Want: cut, answer: okLine + "content-length: 9\r\n\r\nok", ends: true},
	{Name: "a chunk size beyond 64 bits", Want: cut, answer: chunked + "fffffffffffffffff\r\nok"},
	{Name: "a chunk longer than its size", Want: cut, answer: chunked + "2\r\nokok\r\n0\r\n\r\n"},
	{Name: "chunk extensions of an answer that never end", Want: cut, answer: chunked + "2", more: ";a=b"},
	{Name: "trailers of an answer that never end", Want: cut, answer: chunked + "0\r\n", more: "x: y\r\n"},
	{Name: "an answer behind the answer", Want: "200", answer: okLine + two + poison},
	{Name: "an answer behind chunks", Want: "200", answer: chunked + "2\r\nok\r\n0\r\n\r\n" + poison},
	{Name: "an answer behind 204", Want: "204", answer: "HTTP/1.1 204 No Content\r\n\r\n" + poison},
	{Name: "an answer behind 304", Want: "304", answer: "HTTP/1.1 304 Not Modified\r\ncontent-length: 70\r\n\r\n" + poison},
	// The first surplus answer comes in one write with the answer. An answer that comes later may belong to the next request.
	{Name: "answers that never end", Want: "200", answer: okLine + two + poison, more: poison},
}

// Door is a listener whose server changes.
type Door struct {
	listener net.Listener

	mu     sync.Mutex
	server Server
	open   map[net.Conn]bool
}

// Open accepts connections until Close.
func Open(listener net.Listener) *Door {
	d := &Door{listener: listener, open: map[net.Conn]bool{}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			d.open[conn] = true
			server := d.server
			d.mu.Unlock()
			go func() {
				server.serve(conn)
				d.mu.Lock()
				delete(d.open, conn)
				d.mu.Unlock()
				_ = conn.Close()
			}()
		}
	}()
	return d
}

// Close ends the door and its connections.
func (d *Door) Close() {
	_ = d.listener.Close()
	d.change(Server{})
}

// change ends the connections of the last server.
func (d *Door) change(to Server) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.server = to
	for conn := range d.open {
		_ = conn.Close()
	}
}

// Play has the server answer a few clients, one after the other. It returns what they got, or what the first one got that got
// something else than is wanted.
func (d *Door) Play(dial Dial, s Server) string {
	d.change(s)
	const clients = 5
	for range clients {
		if heard := ask(dial); heard != s.Want {
			return heard
		}
	}
	return s.Want
}

// ask sends one request. It returns what the client got.
func ask(dial Dial) string {
	conn, err := dial()
	if err != nil {
		return "no connection: " + err.Error()
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	heard := &listening{conn: conn}
	if _, err := io.WriteString(conn, start+"Connection: close\r\n\r\n"); err != nil {
		return cut
	}
	in := bufio.NewReader(heard)
	var answer *http.Response
	for answer == nil || answer.StatusCode < 200 && answer.StatusCode != http.StatusSwitchingProtocols {
		if answer, err = http.ReadResponse(in, nil); err != nil {
			return heard.broken()
		}
	}
	content, err := io.ReadAll(answer.Body)
	rest, _ := io.ReadAll(in)
	switch {
	case answer.Header.Get("x-poison") != "" || bytes.Contains(append(content, rest...), []byte("x-poison")):
		return smuggled
	case err != nil:
		return heard.broken()
	case heard.late:
		return unended
	}
	return strconv.Itoa(answer.StatusCode)
}

// listening reads from a connection and notes the end of its patience. A reader of HTTP does not always pass that error on.
type listening struct {
	conn net.Conn
	late bool
}

func (l *listening) Read(b []byte) (int, error) {
	n, err := l.conn.Read(b)
	l.late = l.late || errors.Is(err, os.ErrDeadlineExceeded)
	return n, err
}

// broken tells a proxy that ended the connection within an answer from one that said no more.
func (l *listening) broken() string {
	if l.late {
		return silence
	}
	return cut
}

func (s Server) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		for line := ""; line != "\r\n"; {
			var err error
			if line, err = in.ReadString('\n'); err != nil {
				return
			}
		}
		if _, err := io.WriteString(conn, s.answer); err != nil || s.ends {
			return
		}
		for more := strings.Repeat(s.more, 100); more != ""; {
			if _, err := io.WriteString(conn, more); err != nil {
				return
			}
		}
	}
}
