package abuse

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func TestAClientTellsWhatItGotOfAServer(t *testing.T) {
	listener, dial := listen(t)
	door := Open(listener)
	defer door.Close()
	// The clients are behind no proxy, so that they get what the server writes.
	for want, s := range map[string]Server{
		"200":    {Want: "200", answer: okLine + two},
		"204":    {Want: "204", answer: "HTTP/1.1 204 No Content\r\n\r\n"},
		cut:      {Want: "502", answer: okLine + "content-length: 9\r\n\r\nok"},
		smuggled: {Want: "200", answer: okLine + two + poison},
	} {
		// The clients read to the end.
		s.ends = true
		if got := door.Play(dial, s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// limited is the connection to a proxy that answers by a text and then says nothing. A read beyond the text ends by the deadline, or as if
// the proxy had ended the connection if there is no deadline.
type limited struct {
	net.Conn
	text      *strings.Reader
	deadlines int
}

func (l *limited) Write(b []byte) (int, error) { return len(b), nil }
func (l *limited) Close() error                { return nil }

func (l *limited) SetDeadline(time.Time) error {
	l.deadlines++
	return nil
}

func (l *limited) Read(b []byte) (int, error) {
	switch {
	case l.text.Len() > 0:
		return l.text.Read(b)
	case l.deadlines > 0:
		return 0, os.ErrDeadlineExceeded
	}
	return 0, io.EOF
}

func TestAProxyThatFallsSilentCutsNothing(t *testing.T) {
	for text, want := range map[string]string{
		"":                               silence,
		okLine:                           silence,
		chunked + "2":                    silence,
		chunked + "0\r\nx: y\r\n":        silence,
		okLine + two:                     unended,
		okLine + two + poison:            smuggled,
		chunked + "2\r\nok\r\n0\r\n\r\n": unended,
	} {
		conn := &limited{text: strings.NewReader(text)}
		if got := ask(func() (net.Conn, error) { return conn, nil }); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A proxy that keeps its connection to the server, and trusts all that it reads there.
func TestAnAnswerForAnotherRequestIsTold(t *testing.T) {
	listener, toServer := listen(t)
	door := Open(listener)
	defer door.Close()
	front, dial := listen(t)
	go func() {
		var server net.Conn
		var in *bufio.Reader
		for {
			client, err := front.Accept()
			if err != nil {
				return
			}
			// The door ends connections that are older than its server, so the proxy dials behind the first client.
			if server == nil {
				if server, err = toServer(); err != nil {
					return
				}
				defer func() { _ = server.Close() }()
				in = bufio.NewReader(server)
			}
			relay(client, server, in)
		}
	}()
	if got := door.Play(dial, Server{Want: "200", answer: okLine + two + poison}); got != smuggled {
		t.Error(got)
	}
}

func relay(client, server net.Conn, in *bufio.Reader) {
	defer func() { _ = client.Close() }()
	request, err := http.ReadRequest(bufio.NewReader(client))
	if err != nil || request.Write(server) != nil {
		return
	}
	answer, err := http.ReadResponse(in, request)
	if err != nil {
		return
	}
	content, _ := io.ReadAll(answer.Body)
	answer.Body = io.NopCloser(bytes.NewReader(content))
	_ = answer.Write(client)
}
