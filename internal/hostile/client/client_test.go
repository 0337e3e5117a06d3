package client

import (
	"bytes"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"lateen.dev/lateen/internal/hostile/cases"
)

// pipe is a connection whose far end has said something, and has closed if it was told to.
func pipe(t *testing.T, says []byte, closes bool) net.Conn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	said := make(chan struct{})
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			close(said)
			return
		}
		_, _ = conn.Write(says)
		if closes {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		close(said)
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	<-said // so that a far end that is late is not taken for a silent one
	return conn
}

func TestStatusesOfAnswersAreToldInOrder(t *testing.T) {
	for says, want := range map[string][]int{
		"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabHTTP/1.1 400 Bad Request\r\n\r\n": {200, 400},
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n":                           {200},
		"HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 200 OK\r\n\r\n":                {101},
		"HTTP/1.1 400 Bad\r\nconnection: close\r\n\r\nHTTP/1.1 200 OK\r\n\r\n":           {400},
		"garbage\r\n": nil,
		"":            nil,
	} {
		got := Send(pipe(t, []byte(says), true), cases.Case{Bytes: []byte("x")}, 5*time.Second)
		if !slices.Equal(got.Statuses, want) {
			t.Errorf("%q: %+v", says, got)
		}
	}
}

func TestSilenceIsNoEnd(t *testing.T) {
	got := Send(pipe(t, []byte("HTTP/1.1 200 OK\r\n\r\n"), false), cases.Case{Bytes: []byte("x")}, 50*time.Millisecond)
	if got.Closed || !slices.Equal(got.Statuses, []int{200}) {
		t.Errorf("%+v", got)
	}
	last := "HTTP/1.1 400 Bad\r\nConnection: close\r\ncontent-length: 1\r\n\r\na"
	if got := Send(pipe(t, []byte(last), false), cases.Case{Bytes: []byte("x")}, 5*time.Second); !got.Closed {
		t.Errorf("%+v", got)
	}
	if got := Send(pipe(t, nil, true), cases.Case{Bytes: []byte("x")}, 5*time.Second); !got.Closed {
		t.Errorf("%+v", got)
	}
}

func TestStatusesOfHTTP2AreThoseOfTheCase(t *testing.T) {
	var says, block bytes.Buffer
	framer := http2.NewFramer(&says, nil)
	encoder := hpack.NewEncoder(&block)
	respond := func(stream uint32, status string) {
		block.Reset()
		if err := encoder.WriteField(hpack.HeaderField{Name: ":status", Value: status}); err != nil {
			t.Fatal(err)
		}
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
	}
	respond(cases.ClosingStream, "200")
	respond(1, "403")
	if got := Send(pipe(t, says.Bytes(), false), cases.Case{HTTP2: true}, 5*time.Second); !slices.Equal(got.Statuses, []int{403}) || got.Reset {
		t.Errorf("%+v", got)
	}
	says.Reset()
	_ = framer.WriteRSTStream(1, http2.ErrCodeProtocol)
	respond(cases.ClosingStream, "200")
	if got := Send(pipe(t, says.Bytes(), false), cases.Case{HTTP2: true}, 5*time.Second); len(got.Statuses) != 0 || !got.Reset {
		t.Errorf("%+v", got)
	}
}
