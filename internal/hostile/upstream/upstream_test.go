package upstream_test

import (
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/hostile/cases"
	"lateen.dev/lateen/internal/hostile/client"
	"lateen.dev/lateen/internal/hostile/upstream"
)

// lane is a server on the loopback address.
func lane(t *testing.T) *upstream.Lane {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := upstream.Serve(listener)
	t.Cleanup(l.Close)
	return l
}

func dial(t *testing.T, l *upstream.Lane) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", l.Address().String())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// patience bounds every wait; what is awaited takes milliseconds.
const patience = 20 * time.Second

// send sends bytes straight to the server, which ends the connection after the last request.
func send(t *testing.T, l *upstream.Lane, text string) ([]upstream.Record, client.Answer) {
	t.Helper()
	answer := client.Send(dial(t, l), cases.Case{Bytes: []byte(text)}, patience)
	return l.Take(), answer
}

// kept sends a case straight to the server, returns what it keeps once that is enough, and closes the server.
func kept(t *testing.T, l *upstream.Lane, c cases.Case, enough func([]upstream.Record) bool) (records []upstream.Record) {
	t.Helper()
	conn, ended := dial(t, l), make(chan struct{})
	go func() {
		defer close(ended)
		client.Send(conn, c, patience)
	}()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if records = append(records, l.Take()...); enough(records) || time.Now().After(deadline) {
			break
		}
	}
	l.Close()
	<-ended
	return records
}

func TestARequestIsKeptInItsParts(t *testing.T) {
	records, _ := send(t, lane(t), "POST /a?b HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-A: 1\r\nx-a:2 \r\nTransfer-Encoding: chunked\r\n\r\n3;e\r\nabc\r\n0\r\nX-T: z\r\n\r\n")
	if len(records) != 1 {
		t.Fatalf("%+v", records)
	}
	r := records[0]
	if r.Method != "POST" || r.Target != "/a?b" || r.Host != "h" || r.Content != "abc" || r.Fault != "" || r.Partial ||
		!slices.Equal(r.Fields["x-a"], []string{"1", "2"}) || !slices.Equal(r.Fields["trailer x-t"], []string{"z"}) {
		t.Errorf("%+v", r)
	}
}

func TestBytesBehindAnUnansweredRequestAreTold(t *testing.T) {
	records, answer := send(t, lane(t), "GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	if len(records) != 2 || !records[0].Early || records[1].Early || !answer.Closed {
		t.Errorf("%+v %+v", records, answer)
	}
}

func TestACutMessageIsPartial(t *testing.T) {
	l := lane(t)
	conn := dial(t, l)
	if _, err := io.WriteString(conn, "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab"); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	var records []upstream.Record
	for range 500 {
		if records = append(records, l.Take()...); len(records) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(records) != 1 || !records[0].Partial || records[0].Target != "/a" {
		t.Errorf("%+v", records)
	}
}

// The rules and the strict reader were written apart from each other: what a rule calls invalid the reader refuses, what it calls
// valid the reader takes.
func TestTheStrictReaderAgreesWithTheRules(t *testing.T) {
	// These are valid for a reader of messages. What is wrong is a matter of hosts, paths or policies.
	lenient := []string{
		"host: ", "path: ", "denied path", "authorization: twice", "content-type: twice", "a method", "PRI", "an asterisk", "connection: no token",
		"upgrade: ", "connect: ", "ten empty lines", "an empty line", "trailers: 101", "expect: ", "HTTP/2: ", "chunk extension: a NUL",
	}
	for _, c := range cases.Generate(3, 3000) {
		if len(c.Rules) != 1 || slices.ContainsFunc(lenient, func(name string) bool { return strings.HasPrefix(c.Rules[0], name) }) {
			continue
		}
		var isValid bool
		switch {
		case slices.Equal(c.Want, []int{200}):
			isValid = true
		case slices.Equal(c.Want, []int{400}), slices.Equal(c.Want, []int{501}), slices.Equal(c.Want, []int{505}):
		default:
			continue
		}
		faulty := func(records []upstream.Record) bool {
			return slices.ContainsFunc(records, func(r upstream.Record) bool { return r.Fault != "" })
		}
		records := kept(t, lane(t), c, func(records []upstream.Record) bool { return len(records) > 0 && (isValid || faulty(records)) })
		if len(records) == 0 || isValid && records[0].Fault != "" || !isValid && !faulty(records) {
			t.Fatalf("%s: %.200q: %+v", c.Rules[0], c.Bytes, records)
		}
	}
}

func TestFramesOfHTTP2AreReadStrictly(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases.Generate(5, 1500) {
		if !c.HTTP2 || seen[c.Rules[0]] {
			continue
		}
		seen[c.Rules[0]] = true
		isValid := strings.HasPrefix(c.Rules[0], "HTTP/2: valid")
		isFaulty := slices.ContainsFunc([]string{"CR LF", "NUL", "a space in", "lengths", "capitals", "HPACK"}, func(word string) bool { return strings.Contains(c.Rules[0], word) })
		l := lane(t)
		if !isValid && !isFaulty { // it may keep nothing
			client.Send(dial(t, l), c, 200*time.Millisecond)
			l.Close()
			continue
		}
		records := kept(t, l, c, func(records []upstream.Record) bool { return len(records) > 0 })
		first := upstream.Record{Fault: "nothing came"}
		if len(records) > 0 {
			first = records[0]
		}
		if isValid && first.Fault != "" || isFaulty && first.Fault == "" {
			t.Errorf("%s: %+v", c.Rules[0], records)
		}
	}
}
