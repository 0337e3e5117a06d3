package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/hostile/cases"
	"lateen.dev/lateen/internal/hostile/client"
	"lateen.dev/lateen/internal/hostile/report"
	"lateen.dev/lateen/internal/hostile/upstream"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// leaky is a proxy that lets the first connections through as they are, and refuses what comes on others.
func leaky(t *testing.T, through int) *target {
	t.Helper()
	refuses := listen(t)
	go func() {
		for {
			conn, err := refuses.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1000))
			_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			_ = conn.Close()
		}
	}()
	lane := upstream.Serve(listen(t))
	here := &target{name: report.Here, lanes: []*upstream.Lane{lane}}
	t.Cleanup(here.close)
	here.dial = func(int, bool) (net.Conn, error) {
		to := refuses.Addr()
		if through > 0 {
			through--
			to = lane.Address()
		}
		return net.Dial("tcp", to.String())
	}
	return here
}

// denied is a case that asks for the denied path.
func denied(number int) cases.Case {
	text := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n%s: %d\r\nConnection: close\r\n\r\n", cases.DeniedPath, cases.Host, upstream.CaseField, number)
	return cases.Case{Number: number, Rules: []string{"denied path"}, Bytes: []byte(text), Requests: 1, Want: []int{403}}
}

func TestWhatEscapesOnceCountsAlthoughTheCaseIsSentAgain(t *testing.T) {
	for through, want := range []string{"", "denied path"} {
		here, list := leaky(t, through), []cases.Case{denied(1)}
		outcomes, err := sendAll([]*target{here}, list, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := sendAgain(options{}, []*target{here}, report.Table{}, list, outcomes); err != nil {
			t.Fatal(err)
		}
		if v := report.Unexpected(list[0], outcomes[0][report.Here]); len(v) > 0 {
			t.Errorf("%d let through: %q", through, v)
		}
		if v := strings.Join(here.escaped(list), "; "); want == "" && v != "" || !strings.Contains(v, want) {
			t.Errorf("%d let through: %q, want %q", through, v, want)
		}
	}
}

func TestWhatComesLateCountsForItsCaseAlone(t *testing.T) {
	here, list := leaky(t, 0), []cases.Case{denied(1), denied(2)}
	late := func() {
		conn, err := net.Dial("tcp", here.lanes[0].Address().String())
		if err != nil {
			t.Fatal(err)
		}
		client.Send(conn, list[0], 5*time.Second)
	}
	for _, c := range list {
		outcome, err := here.send(0, c, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if len(outcome.Records) > 0 {
			t.Errorf("case %d: %+v", c.Number, outcome.Records)
		}
		late() // before the next case, and before the end
	}
	v := here.escaped(list)
	if len(v) != 2 || !strings.HasPrefix(v[0], `late, of case "1": `) || v[0] != v[1] {
		t.Errorf("%q", v)
	}
}
