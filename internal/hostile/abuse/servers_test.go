package abuse

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
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

// A proxy that keeps its connection to the server, and trusts all that it reads there.
func TestAnAnswerForAnotherRequestIsTold(t *testing.T) {
	listener, toServer := listen(t)
	door := Open(listener)
	defer door.Close()
	front, dial := listen(t)
	go func() {
		server, err := toServer()
		if err != nil {
			return
		}
		defer func() { _ = server.Close() }()
		in := bufio.NewReader(server)
		for {
			client, err := front.Accept()
			if err != nil {
				return
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
