package abuse

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"lateen.dev/lateen/internal/hostile/upstream"
)

// listen is a listener on the loopback address, and the way to it.
func listen(t *testing.T) (net.Listener, Dial) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener, func() (net.Conn, error) { return net.Dial("tcp", listener.Addr().String()) }
}

// answering dials a server that reads the first bytes of a connection, writes by say, and reads on to the end.
func answering(t *testing.T, say func(io.Writer)) Dial {
	t.Helper()
	listener, dial := listen(t)
	serve := func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1000))
		say(conn)
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return dial
}

func named(t *testing.T, name string) Client {
	t.Helper()
	i := slices.IndexFunc(Clients, func(c Client) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no client %q", name)
	}
	return Clients[i]
}

func TestAClientTellsWhatTheProxySaid(t *testing.T) {
	refuse := func(w io.Writer) { _, _ = io.WriteString(w, "HTTP/1.1 431 Too Large\r\ncontent-length: 0\r\n\r\n") }
	for _, name := range []string{"ten thousand fields", "a head that never ends", "a head of one byte a second"} {
		if got := named(t, name).Run(answering(t, refuse)); got != "431" {
			t.Errorf("%s: %s", name, got)
		}
	}
	goaway := func(w io.Writer) {
		framer := http2.NewFramer(w, nil)
		_ = framer.WriteSettings()
		_ = framer.WriteGoAway(1, http2.ErrCodeEnhanceYourCalm, nil)
	}
	for _, name := range []string{"ten thousand streams, opened and reset", "pings that never end"} {
		if got := named(t, name).Run(answering(t, goaway)); got != calm {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := named(t, "settings that never end").Run(answering(t, func(io.Writer) {})); got != closed {
		t.Errorf("a proxy that says nothing: %s", got)
	}
}

func TestAClientThatReadsNothingStopsItsServer(t *testing.T) {
	listener, dial := listen(t)
	lane := upstream.Serve(listener)
	defer lane.Close()
	written, err := Unread(dial, lane)
	if err != nil || written == 0 {
		t.Errorf("%d bytes, %v", written, err)
	}
}

func TestAPoliteClientCountsWhatItGets(t *testing.T) {
	listener, dial := listen(t)
	lane := upstream.Serve(listener)
	defer lane.Close()
	const pause = 20 * time.Millisecond
	served := Begin(dial, pause)
	refuse := func(w io.Writer) { _, _ = io.WriteString(w, "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n") }
	refused := Begin(answering(t, refuse), pause)
	some := func(of *Polite) Served {
		for {
			if s := of.Lap(); len(s.Times)+len(s.Failed) > 0 {
				return s
			}
			time.Sleep(time.Millisecond)
		}
	}
	ofServed, ofRefused := some(served), some(refused)
	served.End()
	_ = listener.Close()
	refused.End()
	if s := ofServed; len(s.Times) == 0 || len(s.Failed) > 0 || s.Percentile(99) < s.Percentile(50) {
		t.Errorf("%+v", s)
	}
	if s := ofRefused; len(s.Times) > 0 || len(s.Failed) == 0 {
		t.Errorf("%+v", s)
	}
}

func TestPercentilesOfAnswers(t *testing.T) {
	var s Served
	if got := s.Percentile(99); got != 0 {
		t.Errorf("without answers: %v", got)
	}
	for i := range 200 {
		s.Times = append(s.Times, time.Duration(i))
	}
	for hundredths, want := range map[int]time.Duration{0: 0, 50: 100, 99: 198, 100: 199} {
		if got := s.Percentile(hundredths); got != want {
			t.Errorf("%d: %v, want %v", hundredths, got, want)
		}
	}
}

func TestABusyClientIsAnsweredUntilItStops(t *testing.T) {
	listener, dial := listen(t)
	lane := upstream.Serve(listener)
	defer lane.Close()
	stop := make(chan struct{})
	// The second request is on its way when it is kept, and the client looks at stop between requests alone.
	go func() {
		for n := 0; n < 2; time.Sleep(time.Millisecond) {
			n += len(lane.Take())
		}
		close(stop)
	}()
	if answered, err := Busy(dial, stop); answered < 2 || err != nil {
		t.Errorf("%d answers, %v", answered, err)
	}
	stop = make(chan struct{})
	defer close(stop)
	if _, err := Busy(answering(t, func(io.Writer) {}), stop); err == nil {
		t.Error("a server that says nothing answers")
	}
	refuse := func(w io.Writer) { _, _ = io.WriteString(w, "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n") }
	if answered, err := Busy(answering(t, refuse), stop); answered > 0 || err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a server that refuses: %d answers, %v", answered, err)
	}
	silent := &limited{text: strings.NewReader(okLine + two + okLine + two)}
	if answered, err := Busy(func() (net.Conn, error) { return silent, nil }, stop); answered != 2 || silent.deadlines != 3 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a server that falls silent: %d answers, %d deadlines, %v", answered, silent.deadlines, err)
	}
}
